// SPDX-License-Identifier: GPL-2.0
/*
 * calls.c - two ranks call the same again and again, and then once more while it is counted which
 * functions are entered: of libcoll by gcov, of the modules by the function tracer. See run.
 *
 *	calls board|post|steps
 *
 * board: a small allreduce on the board; post: one that is posted; steps: a broadcast, whose steps
 * are run one by one.
 */
#include <coll.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM	200

void __gcov_reset(void);
void __gcov_dump(void);

static const char *what;
static int go[2];	/* a pipe: rank 0 may make the call that counts */

static int call(struct coll_comm *comm)
{
	int in = 1, out = 0;

	if (!strcmp(what, "steps"))
		return coll_broadcast(comm, &in, &out, 1, COLL_INT32, 0);
	return coll_allreduce(comm, &in, &out, 1, COLL_INT32, COLL_SUM) ?: out != 2;
}

static void trace(const char *on)
{
	int fd = open("/sys/kernel/tracing/tracing_on", O_WRONLY);

	if (fd < 0 || write(fd, on, 1) != 1)
		perror("tracing_on");
	close(fd);
}

static int rank(const struct coll_unique_id *id, int r)
{
	struct coll_comm *comm;
	int i, rc = coll_comm_init_rank(&comm, 2, id, r, NULL);

	for (i = 0; !rc && i < WARM; i++)
		rc = call(comm);
	if (rc)
		return 1;
	/* Rank 0 comes a moment before, so that it waits, but not for so long that it posts. */
	if (r) {
		trace("1");
		rc = write(go[1], "", 1) != 1;
		usleep(2000);
		__gcov_reset();
	} else {
		rc = read(go[0], &i, 1) != 1;
	}
	rc = rc ?: call(comm);
	if (r) {
		trace("0");
		__gcov_dump();
	}
	_exit(!!rc);
}

int main(int argc, char **argv)
{
	struct coll_unique_id id;
	int status = 1, bad;
	pid_t child;

	what = argc > 1 ? argv[1] : "post";
	if (pipe(go) || coll_get_unique_id(&id))
		return 1;
	child = fork();
	if (!child)
		rank(&id, 0);
	if (!fork())
		rank(&id, 1);
	bad = wait(&status) < 0 || status;
	return wait(&status) < 0 || status || bad;
}
