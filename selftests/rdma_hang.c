// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_hang.c - two machines, joined by RDMA: a process of the one is held up, and the other one
 * waits for it. What npulink tells on each of them of who hangs, and why.
 *
 * npulink-test: machines=2 mem=768 modules=none timeout=300
 */
#include <pthread.h>
#include "lib/run/comm.h"
#include "remote.h"

#define NDEV	2
#define GROUP	"/sys/fs/cgroup/npulink-rdma-hang"

enum { STOPPED, FROZEN, THREAD, SILENT, HOWS };

/*
 * How rank 1, of machine 1, is held up: what is said of it, and the state of its process. THREAD:
 * its first thread has ended, and another one goes on, though not with this. SILENT: what its
 * machine sends is lost after it has answered, so that what it does now is not known.
 */
static const struct {
	const char *name, *why, *state;
} hows[HOWS] = {
	[STOPPED] = { "stopped", "stopped", "T" },
	[FROZEN] = { "frozen with its cgroup", "frozen", "F" },
	[THREAD] = { "without its first thread, and does not call", "never-called", "S" },
	[SILENT] = { "behind a network that is cut", "never-called", "S" },
};

static unsigned int how;
static int go_on[2];	/* a pipe: what ends it */

/* Tell the other machine, in a directory that both have. */
static void mark_path(char path[256], unsigned int of)
{
	snprintf(path, 256, "%s/../hang-%u-seen-%u", getenv("NPULINK_RESULTS"), how, of);
}

static bool marked(unsigned int of)
{
	char path[256];

	mark_path(path, of);
	for (int i = 0; i < 1000; i++) {
		if (!access(path, F_OK))
			return true;
		usleep(100000);
	}
	return false;
}

/* Both machines are there: of marks after those of the end. */
static bool met(unsigned int first)
{
	char path[256];

	mark_path(path, first + machine);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	return marked(first + !machine);
}

/* Ask npulink until it says so of the newest communicator. */
static bool tool_says(const char *command, const char *format, ...)
{
	char filter[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(filter, sizeof(filter), format, args);
	va_end(args);
	for (int i = 0; i < 200; i++) {
		if (!run("{ build/tools/npulink -j %s || [ $? = 3 ]; } >/tmp/tool.json && "
			 "jq -e '%s' /tmp/tool.json >/dev/null", command, filter))
			return true;
		usleep(100000);
	}
	run("sed 's/^/# /' /tmp/tool.json");
	return false;
}

static bool here_says(void)
{
	return tool_says("hang -t 0", ".[-1] | .state == \"hangs\" and .asked_by == 0 and "
			 ".asked_from == \"10.77.0.1\" and ([.culprits[].rank] == [1]) and "
			 ".culprits[0].why == \"%s\" and .culprits[0].pid > 1 and "
			 ".culprits[0].process_state == \"%s\"", hows[how].why, hows[how].state) &&
	       tool_says("op show", "length == 0");
}

static bool there_says(void)
{
	return tool_says("hang -t 0", ".[-1] | .state == \"hangs\" and "
			 "([.culprits[].rank] == [1]) and (.culprits[0] | .why == \"%s\" and "
			 ".machine == \"10.77.0.2\" and .process_state == \"%s\" and "
			 ".connection == \"up\" and (.via | startswith(\"rxe\"))) and "
			 "(.chain[0].waits | length > 0)", hows[how].why, hows[how].state) &&
	       tool_says("op show",
			 "length == 1 and (.[0].waits | length > 0 and all(.remote))") &&
	       tool_says("link show", "[.[] | select(.type == \"rdma\")] | length == 2 and "
			 "all(.state == \"up\" and .bytes > 0 and .connections == 1)");
}

/* An old answer is none: it only says when there was one. */
static bool there_says_nothing(void)
{
	return tool_says("hang -t 0", ".[-1] | .state == \"hangs\" and "
			 "([.culprits[].rank] == [1]) and (.culprits[0] | "
			 ".why == \"not-answered\" and .answered_ns > 2000000000 and "
			 "(has(\"process_state\") | not))");
}

/* What each machine can tell while rank 1 is held up, and rank 0 waits for it. */
static int watch(pid_t rank)
{
	char path[256];
	bool ok = true;

	if (machine && how == FROZEN)
		ok = !run("mkdir " GROUP " && echo %d >" GROUP "/cgroup.procs && "
			  "echo 1 >" GROUP "/cgroup.freeze", rank);
	ok = ok && (machine ? here_says() : there_says());
	if (how == SILENT) {
		ok &= met(2);
		if (machine)
			ok &= !run("tc qdisc add dev eth0 root netem loss 100%%");
		else
			ok &= there_says_nothing();
	}
	mark_path(path, machine);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	ok &= marked(!machine);
	if (machine && how == SILENT)
		ok &= !run("tc qdisc del dev eth0 root");
	if (machine && how == FROZEN)
		ok &= !run("echo 0 >" GROUP "/cgroup.freeze && "
			   "echo %d >/sys/fs/cgroup/cgroup.procs && rmdir " GROUP, rank);
	if (how == STOPPED)
		kill(rank, SIGCONT);
	else
		ok &= write(go_on[1], "", 1) == 1;
	return !ok;
}

static struct coll_comm *thread_comm;
static pid_t watcher;

static int call(struct coll_comm *comm, unsigned int rank)
{
	static int in[2000], out[2000];
	int status, bad;

	bad = remote_check(coll_allreduce(comm, in, out, ARRAY_SIZE(in), COLL_INT32, COLL_SUM),
			   comm, rank, "allreduce");
	waitpid(watcher, &status, 0);
	return bad || status;
}

static void *call_later(void *arg)
{
	char c;

	if (read(go_on[0], &c, 1) != 1)
		_exit(1);
	_exit(call(thread_comm, 1) || coll_comm_destroy(thread_comm));
	return arg;
}

static int held_up(struct coll_comm *comm, unsigned int rank)
{
	pid_t self = getpid();
	pthread_t thread;
	int x = 1, y;
	char c;

	/* Connected, which takes its time. */
	for (int i = 0; i < 3; i++)
		if (remote_check(coll_allreduce(comm, &x, &y, 1, COLL_INT32, COLL_SUM), comm, rank,
				 "to warm up"))
			return 1;
	if (pipe(go_on))
		return 1;
	watcher = fork();
	if (!watcher)
		_exit(watch(self));
	if (rank && how == STOPPED) {
		raise(SIGSTOP);
	} else if (rank && how == THREAD) {
		thread_comm = comm;
		if (!pthread_create(&thread, NULL, call_later, NULL))
			pthread_exit(NULL);
		return 1;
	} else if (rank && read(go_on[0], &c, 1) != 1) {
		return 1;
	}
	return call(comm, rank);
}

int main(void)
{
	remote_setup(NDEV, 20000);
	run("modprobe sch_netem");
	ksft_print_header();
	ksft_set_plan(HOWS + 2);
	for (how = 0; how < HOWS; how++)
		ksft_test_result(!remote_ranks(1, held_up), "npulink names who is %s\n",
				 hows[how].name);
	ksft_test_result(remote_clean(), "no key and no connection is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
