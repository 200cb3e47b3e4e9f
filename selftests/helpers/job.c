// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * job.c - a rank that calls allreduce without end, and of which one does what goes wrong in jobs:
 * job WHAT ODD, with RANK, WORLD_SIZE and so on from the environment. It prints nothing.
 *
 * WHAT: late (the odd rank, each time), never (nothing goes wrong), fifo (the odd rank's
 * thread, which is not its first, opens $FIFO), child (the odd rank has a child that has inherited
 * all its files), memory (the odd rank fills memory without end), count (the odd rank calls
 * with another count).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <coll.h>

#define COUNT		65536
#define BEFORE		5	/* calls until the odd rank does it */
#define EACH_US		100000	/* from one call to the next, of late */
#define LATE_US		100000
#define CHUNK		(1 << 20)

static const char *what;
static bool odd;
static struct coll_comm *comm;
static float buf[COUNT];

static void trouble(int call)
{
	char *p;

	if (!strcmp(what, "late"))
		usleep(EACH_US + odd * LATE_US);
	if (!odd || call != BEFORE)
		return;
	if (!strcmp(what, "fifo"))
		open(getenv("FIFO"), O_RDONLY | O_CLOEXEC);
	if (!strcmp(what, "child") && !vfork()) {
		sleep(1000);
		_exit(0);
	}
	while (!strcmp(what, "memory")) {
		p = malloc(CHUNK);
		if (p)
			memset(p, 1, CHUNK);
		usleep(1000);
	}
}

static void *work(void *arg)
{
	size_t count = strcmp(what, "late") ? COUNT : 1024;

	for (int i = 0;; i++) {
		trouble(i);
		if (odd && i == BEFORE && !strcmp(what, "count"))
			count /= 2;
		if (coll_allreduce(comm, COLL_IN_PLACE, buf, count, COLL_FLOAT32, COLL_SUM))
			_exit(1);
	}
	return arg;
}

int main(int argc, char **argv)
{
	struct coll_config config = COLL_CONFIG_INIT;
	const char *rank = getenv("RANK");
	pthread_t thread;

	if (argc != 3 || !rank)
		return 2;
	what = argv[1];
	odd = !strcmp(rank, argv[2]);
	if (coll_comm_init_env(&comm, &config))
		return 1;
	if (strcmp(what, "fifo")) {
		work(NULL);
		return 0;
	}
	if (pthread_create(&thread, NULL, work, NULL))
		return 1;
	pthread_join(thread, NULL);
	return 0;
}
