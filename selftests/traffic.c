// SPDX-License-Identifier: GPL-2.0
/*
 * traffic [SECONDS [hold]] - ranks on the first four devices run collectives, small and
 * large ones, until the time is up or their devices have gone. What unload.sh disturbs;
 * as a test of its own, that nothing else goes wrong. hold: then stay, with all
 * files open and everything in them. NPULINK_READY names a file that is made when all of them are
 * at it.
 */
#include <pthread.h>
#include "team.h"

#define DEVICES	4

static const size_t sizes[] = { 64, 12000, 600000 };
#define TEAMS	(ARRAY_SIZE(sizes))

static struct team teams[TEAMS];
static bool stop;

struct runner {
	pthread_t thread;
	struct member *m;
	int rc;
	uint32_t ops;
};

static void *run(void *arg)
{
	struct runner *r = arg;

	for (; !r->rc; __atomic_add_fetch(&r->ops, 1, __ATOMIC_RELAXED))
		r->rc = member_run(r->m, NULL);
	return NULL;
}

/* Has each of them been through one, which is said once? */
static bool under_way(struct runner runner[TEAMS][DEVICES])
{
	uint32_t t, r;
	int fd;

	for (t = 0; t < TEAMS; t++)
		for (r = 0; r < DEVICES; r++)
			if (!__atomic_load_n(&runner[t][r].ops, __ATOMIC_RELAXED))
				return false;
	fd = open(getenv("NPULINK_READY"), O_CREAT | O_WRONLY, 0600);
	return fd < 0 || !close(fd);
}

static bool gone(int rc)
{
	return rc == -ENODEV || rc == -ENOENT || rc == -ENXIO;
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 2;
	struct runner runner[TEAMS][DEVICES] = {};
	uint64_t begin = raw_now();
	bool ended = false, waited_for = getenv("NPULINK_READY");
	int bad = 0, rc;
	uint32_t t, r;

	for (t = 0; t < TEAMS; t++) {
		rc = team_open(&teams[t], DEVICES, DEVICES, sizes[t]);
		if (rc) {
			fprintf(stderr, "# cannot begin: %d\n", rc);
			return 1;
		}
	}
	for (t = 0; t < TEAMS; t++) {
		for (r = 0; r < DEVICES; r++) {
			runner[t][r].m = &teams[t].m[r];
			pthread_create(&runner[t][r].thread, NULL, run, &runner[t][r]);
		}
	}
	while (raw_now() - begin < seconds * 1000000000ULL && !ended) {
		raw_sleep_ms(10);
		if (waited_for)
			waited_for = !under_way(runner);
		for (t = 0; t < TEAMS; t++)
			for (r = 0; r < DEVICES; r++)
				ended |= __atomic_load_n(&runner[t][r].rc, __ATOMIC_RELAXED) != 0;
	}
	stop = !ended;
	for (t = 0; stop && t < TEAMS; t++)
		raw_abort(teams[t].m[0].fd, teams[t].m[0].comm, 0);
	for (t = 0; t < TEAMS; t++) {
		for (r = 0; r < DEVICES; r++) {
			rc = (pthread_join(runner[t][r].thread, NULL), runner[t][r].rc);
			if (!(gone(rc) && argc > 1) && !(rc == -ECANCELED && stop)) {
				fprintf(stderr, "# %zu bytes, rank %u: %d after %u\n", sizes[t], r,
					rc, runner[t][r].ops);
				bad = 1;
			}
		}
	}
	if (argc > 2)
		pause();
	return bad;
}
