// SPDX-License-Identifier: GPL-2.0
/*
 * bootstrap.c - how long it takes N processes of this machine to meet, and how many
 * connections any of them keeps.
 *
 *	build/tools/benchmarks/bootstrap [-k] [-p] [N]...
 *
 * Each process meets the others as coll_comm_init_env() would, exchanges a record twice,
 * and parts. The time is from when the first may start until the last has parted; making
 * the processes is not in it. -k: with a key; -p: instead of measuring time, look at
 * rank 0's sockets all the time, to whom all others come.
 *
 * 2026-11-22, two processors, with other work on them (load 9), three runs in turn with
 * the star that it was before, all ranks connected to rank 0, 1,024 ranks: 1.22, 1.26 and
 * 1.36 s instead of 1.36, 1.62 and 2.72; with a key 8.4, 8.6 and 9.1 s, most of which is the
 * hashing of 360 KiB for each rank and exchange, instead of 12.7, 19.1 and 20.1. Once all have
 * met, a rank has at most 9 sockets instead of 1,024; while they come, at most 74.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/base/base.h"
#include "lib/bootstrap/bootstrap.h"
#include "../../selftests/loopback.h"

#define RECORD	360			/* about what a rank says of itself */

struct shared {
	_Atomic int ready, bad, most, peak;
	char text[COLL_TEXT];
};

static const uint8_t key[COLL_KEY_LEN] = "what all of them know";
static struct shared *shared;
static uint16_t port;
static bool keyed, peaks;

static void raise_to(_Atomic int *most, int n)
{
	int old = *most;

	while (n > old && !atomic_compare_exchange_weak(most, &old, n))
		;
}

static void *look(void *done)
{
	while (!*(_Atomic bool *)done) {
		raise_to(&shared->peak, open_sockets());
		usleep(2000);
	}
	return NULL;
}

static int rank_main(uint32_t rank, uint32_t n, int start)
{
	struct coll_bootstrap b = {
		.ops = &coll_bootstrap_tcp, .rank = rank, .nranks = n, .host = "127.0.0.1",
		.port = port, .key = keyed ? key : NULL, .key_is = "the key",
		.host_is = "the address", .same_address = "", .other_port = "",
	};
	uint8_t mine[RECORD] = { rank }, *all = malloc((size_t)n * RECORD);
	_Atomic bool done = false;
	pthread_t thread;
	char byte;
	int rc;

	shared->ready++;
	if (!all || read(start, &byte, 1) < 0)
		abort();
	b.until_ns = coll_now_ns() + 120000000000ULL;
	if (peaks && !rank)
		pthread_create(&thread, NULL, look, &done);
	else if (peaks)
		usleep(300000);
	rc = b.ops->open(&b);
	if (!rc)
		raise_to(&shared->most, open_sockets());
	for (int i = 0; i < 2 && !rc; i++)
		rc = b.ops->allgather(&b, mine, sizeof(mine), all);
	b.ops->close(&b);
	done = true;
	if (peaks && !rank)
		pthread_join(thread, NULL);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = all[(size_t)i * RECORD] != (uint8_t)i;
	if (rc && !shared->bad++)
		memcpy(shared->text, b.text, sizeof(b.text));
	free(all);
	return !!rc;
}

static int measure(uint32_t n)
{
	uint64_t from;
	int start[2];

	memset(shared, 0, sizeof(*shared));
	port = loopback_port();
	if (pipe(start))
		return 1;
	for (uint32_t i = 0; i < n; i++) {
		if (fork())
			continue;
		close(start[1]);
		_exit(rank_main(i, n, start[0]));
	}
	while (shared->ready < (int)n)
		usleep(1000);
	from = coll_now_ns();
	close(start[1]);
	close(start[0]);
	while (wait(NULL) > 0)
		;
	if (shared->bad) {
		fprintf(stderr, "%d of %u ranks failed: %s\n", shared->bad, n, shared->text);
		return 1;
	}
	if (peaks)
		printf("%5u ranks: at most %d sockets of rank 0 at any time\n", n, shared->peak);
	else
		printf("%5u ranks: %7.3f s, at most %d sockets once all have met\n", n,
		       (coll_now_ns() - from) / 1e9, shared->most);
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	int opt, rc = 0;

	while ((opt = getopt(argc, argv, "kp")) > 0) {
		keyed |= opt == 'k';
		peaks |= opt == 'p';
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	for (int i = optind; i < argc; i++)
		rc |= measure(atoi(argv[i]));
	return rc;
}
