// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_tree.c - the exchange over sockets among many processes: everybody gets what
 * everybody said, nobody keeps more than a few connections, and a rank that dies takes
 * nobody with it into a hang.
 *
 * A machine is known by the spelling of rank 0's address here, so that there can be
 * several on this one; connect() is a firewall.
 *
 * npulink-test: san-soak
 */
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/base/base.h"
#include "lib/bootstrap/tcp.h"
#include "kselftest.h"
#include "loopback.h"

#define MAX_RANKS	300
#define MAX_CONNS	(2 * COLL_FANOUT + 1)

struct outcome {
	int rc;
	uint32_t conns, children;
	char text[COLL_TEXT];
};

/* Shared by the test and all ranks. */
struct shared {
	struct outcome ranks[MAX_RANKS];
	_Atomic uint32_t met, dropped, passed;
	_Atomic uint16_t filtered;
};

/* What of the ranks' own ports others do not get to; rank 0's is always open. */
enum filter { NONE, FIRST, ALL };

/**
 * struct plan - what the ranks of a test do
 * @n: ranks
 * @machines: they are on
 * @key: or NULL
 * @missing: ranks from the end that never come
 * @stuck: ranks that can open no connection but the first
 * @seconds: until they give up
 * @wait: this one, once it has met the others, waits to be killed
 * @filter: in between machines
 * @gather: it drops so many connections at a time, or lets so many pass before it does
 * @patience_us: how much later, then
 * @files: that rank 0 may have, or 0
 */
struct plan {
	uint32_t n, machines;
	const uint8_t *key;
	uint32_t missing;
	bool stuck;
	int seconds;
	uint32_t wait;
	enum filter filter;
	uint32_t gather;
	unsigned int patience_us;
	unsigned int files;
};

#define NOBODY	UINT32_MAX

static const uint8_t key[COLL_KEY_LEN] = "what all of them know";

static struct shared *shared;
static uint16_t port;
static pid_t pids[MAX_RANKS];
static const struct plan *filter;	/* of this process */

/* Instead of libc's. */
int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	uint16_t none = 0;

	if (!filter || !filter->filter || addr->sa_family != AF_INET || in->sin_port == htons(port))
		return syscall(SYS_connect, fd, addr, len);
	atomic_compare_exchange_strong(&shared->filtered, &none, in->sin_port);
	if (filter->filter == FIRST && in->sin_port != shared->filtered) {
		shared->passed++;
		return syscall(SYS_connect, fd, addr, len);
	}
	shared->dropped++;
	while ((filter->filter == ALL ? shared->dropped : shared->passed) < filter->gather)
		usleep(1000);
	usleep(filter->patience_us);
	errno = EHOSTUNREACH;
	return -1;
}

static uint32_t word_of(uint32_t rank, int i)
{
	return (rank + 1) * 2654435761U + i;
}

/* The first connection, and a socket to listen at, are the last files it gets. */
static void be_stuck(void)
{
	const struct rlimit few = { 200, 200 };
	int fd;

	setrlimit(RLIMIT_NOFILE, &few);
	do {
		fd = dup(0);
	} while (fd < 197);
}

/* Does somebody listen at the port of this meeting? */
static bool listened_to(void)
{
	FILE *f = fopen("/proc/net/tcp", "re");
	unsigned int at, state;
	bool found = false;
	char line[256];

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, " %*u: %*8x:%x %*8x:%*x %x", &at, &state) == 2 && at == port &&
			state == TCP_LISTEN;
	if (f)
		fclose(f);
	return found;
}

static void rank_main(uint32_t rank, const struct plan *plan)
{
	uint32_t *all = calloc(plan->n, 100 * sizeof(*all)), mine[100];
	struct outcome *o = &shared->ranks[rank];
	struct coll_bootstrap b = {
		.ops = &coll_bootstrap_tcp, .rank = rank, .nranks = plan->n, .port = port,
		.key = plan->key, .key_is = "the key", .host_is = "the address",
		.same_address = "is it right", .other_port = "take another port",
	};
	char host[160] = "127.0.0.";

	/* 1, 01, 001, .. */
	for (uint32_t i = 0; i < rank % plan->machines; i++)
		strcat(host, "0");
	b.host = strcat(host, "1");
	filter = plan;
	if (!rank && plan->files)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ plan->files, plan->files });
	b.until_ns = coll_now_ns() + plan->seconds * 1000000000ULL;
	if (plan->stuck && rank) {
		/* Rank 0 is to be the entry. */
		while (!listened_to())
			usleep(1000);
		be_stuck();
	}
	o->rc = b.ops->open(&b);
	if (!o->rc && plan->n > 1) {
		o->conns = plan->stuck ? 0 : open_sockets();
		o->children = ((struct coll_tcp *)b.priv)->children.n;
	}
	shared->met++;
	if (!o->rc && rank == plan->wait)
		pause();
	for (int i = 0; i < 2 && !o->rc; i++) {
		for (int k = 0; k < 100; k++)
			mine[k] = word_of(rank, i + k);
		o->rc = b.ops->allgather(&b, mine, sizeof(mine), all);
		for (uint32_t r = 0; r < plan->n && !o->rc; r++)
			for (int k = 0; k < 100; k++)
				if (all[100 * r + k] != word_of(r, i + k))
					o->rc = -EILSEQ;
	}
	memcpy(o->text, b.text, sizeof(o->text));
	b.ops->close(&b);
}

static void start(const struct plan *plan)
{
	port = loopback_port();
	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (uint32_t i = 0; i < plan->n - plan->missing; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		alarm(60);
		rank_main(i, plan);
		_exit(0);
	}
}

/* Returns how many failed, those that were killed included. */
static uint32_t finish(const struct plan *plan)
{
	uint32_t bad = 0;
	int status;

	for (uint32_t i = 0; i < plan->n - plan->missing; i++) {
		waitpid(pids[i], &status, 0);
		if (!status && !shared->ranks[i].rc)
			continue;
		if (!bad++)
			ksft_print_msg("rank %u: status %d, %d: %s\n", i, status,
				       shared->ranks[i].rc, shared->ranks[i].text);
	}
	return bad;
}

static uint32_t most_conns(const struct plan *plan)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < plan->n; i++)
		if (shared->ranks[i].conns > most)
			most = shared->ranks[i].conns;
	return most;
}

static void test_meeting(uint32_t n, uint32_t machines, const uint8_t *key)
{
	const struct plan plan = {
		.n = n, .machines = machines, .key = key, .seconds = 50, .wait = NOBODY,
	};
	uint32_t bad;

	start(&plan);
	bad = finish(&plan);
	if (most_conns(&plan) > MAX_CONNS)
		ksft_print_msg("%u connections\n", most_conns(&plan));
	ksft_test_result(!bad && most_conns(&plan) <= MAX_CONNS, "%u ranks, %u machines%s\n", n,
			 machines, key ? ", with a key" : "");
}

/* It stays where it asked for a place. */
static void test_place_not_reached(void)
{
	const struct plan plan = {
		.n = 2 * COLL_FANOUT, .machines = 1, .key = key, .stuck = true, .seconds = 50,
		.wait = NOBODY,
	};
	uint32_t most = 0, bad;

	start(&plan);
	bad = finish(&plan);
	for (uint32_t i = 0; i < plan.n; i++)
		if (shared->ranks[i].children > most)
			most = shared->ranks[i].children;
	ksft_test_result(!bad && most == plan.n - 1,
			 "who cannot get to its place stays at the entry (%u)\n", most);
}

/* However many these are, they all try at a time: nobody waits for another one's way. */
static void test_filtered(void)
{
	const struct plan plan = {
		.n = 120, .machines = 120, .key = key, .seconds = 50, .wait = NOBODY, .filter = ALL,
		.gather = 120 - 1 - COLL_FANOUT,
	};
	uint32_t bad;

	start(&plan);
	bad = finish(&plan);
	ksft_test_result(!bad && shared->ranks[0].children == plan.n - 1,
			 "machines that only rank 0 is open to stay there (%u)\n",
			 shared->ranks[0].children);
}

/* Who does not get to its place goes where others got to: more surely the later, each try. */
static void test_one_filtered(void)
{
	struct plan plan = {
		.n = 40, .machines = 40, .key = key, .seconds = 50, .wait = NOBODY, .filter = FIRST,
		.gather = 2 * COLL_FANOUT,
	};
	bool ok = false;

	for (plan.patience_us = 200000; plan.patience_us < 10000000 && !ok; plan.patience_us *= 6) {
		start(&plan);
		ok = !finish(&plan) && shared->ranks[0].children == COLL_FANOUT;
	}
	ksft_test_result(ok, "no rank is the child of a machine that is closed (%u)\n",
			 shared->ranks[0].children);
}

static void test_files(void)
{
	const struct plan plan = {
		.n = 60, .machines = 60, .key = key, .seconds = 50, .wait = NOBODY, .filter = ALL,
		.files = 40,
	};
	uint32_t bad;

	start(&plan);
	bad = finish(&plan);
	ksft_test_result(bad == plan.n && shared->ranks[0].rc == -EMFILE &&
			 strstr(shared->ranks[0].text, "may have 40 files (RLIMIT_NOFILE)"),
			 "rank 0 has no file left for another connection\n");
}

/* Everybody's line is rank 0's. */
static void test_missing(void)
{
	struct plan plan = {
		.n = 40, .machines = 3, .missing = 3, .wait = NOBODY,
	};
	uint32_t same = 0;

	/* Those who come need time for that, too: more, if the machine is busy. */
	for (plan.seconds = 1; plan.seconds <= 16 && same != 37; plan.seconds *= 4) {
		start(&plan);
		finish(&plan);
		same = 0;
		for (uint32_t i = 0; i < 37; i++)
			same += shared->ranks[i].rc == -ETIMEDOUT &&
				strstr(shared->ranks[i].text, "rank 37-39 did not come");
	}
	ksft_test_result(same == 37, "ranks that do not come are named on all %u\n", same);
}

/*
 * Ranks with children are as good as any: each must be told of to all that are left. While one is
 * awaited, the others are given time to come, more each @try.
 */
static bool dies(uint32_t victim, bool met, uint32_t try)
{
	const struct plan plan = {
		.n = 40, .machines = 3, .key = key, .missing = met ? 0 : 1, .seconds = 30,
		.wait = met ? victim : NOBODY,
	};
	uint32_t left = plan.n - plan.missing, told = 0, named = 0;
	uint64_t from;
	char name[2][16];

	start(&plan);
	if (met)
		while (shared->met < plan.n)
			usleep(1000);
	else
		usleep(700000 << 2 * try);
	from = coll_now_ns();
	kill(pids[victim], SIGKILL);
	finish(&plan);
	snprintf(name[0], sizeof(name[0]), "rank %u ", victim);
	snprintf(name[1], sizeof(name[1]), "rank %u,", victim);
	for (uint32_t i = 0; i < left; i++) {
		const char *text = shared->ranks[i].text;

		if (i == victim)
			continue;
		told += shared->ranks[i].rc < 0;
		if (strstr(text, name[0]) || strstr(text, name[1]))
			named++;
		else
			ksft_print_msg("rank %u: %d: %s\n", i, shared->ranks[i].rc, text);
	}
	if (told != left - 1 || named != left - 1)
		ksft_print_msg("%u of %u failed, %u named it\n", told, left - 1, named);
	return told == left - 1 && named == left - 1 && coll_now_ns() - from < 8000000000ULL;
}

static void test_death(uint32_t victim, bool met)
{
	bool ok = false;

	for (uint32_t try = 0; try < 3 && !ok; try++)
		ok = dies(victim, met, try);
	ksft_test_result(ok, "rank %u dies %s\n", victim,
			 met ? "when all have met" : "while one is awaited");
}

int main(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ksft_print_header();
	ksft_set_plan(14);
	test_meeting(2, 1, NULL);
	test_meeting(2, 2, NULL);
	test_meeting(MAX_RANKS, 1, NULL);
	test_meeting(MAX_RANKS, 40, key);
	test_meeting(40, 40, key);
	test_place_not_reached();
	test_filtered();
	test_one_filtered();
	test_files();
	test_missing();
	test_death(0, false);
	test_death(1, false);
	test_death(0, true);
	test_death(2, true);
	ksft_finished();
}
