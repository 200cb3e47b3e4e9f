// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_failover.c - two machines that are joined by two networks, with a port of each device in
 * either. Ports are taken away in the middle of collectives, by every means that there is, and
 * those that are in use: operations go on over the other one, with right results and nobody the
 * wiser but who looks at events. Only when both are gone they fail.
 *
 * npulink-test: machines=2 links=2 mem=512 modules=none timeout=300
 */
#include <sys/mman.h>
#include "lib/run/comm.h"
#include "remote.h"

#define NPULINK	"build/tools/npulink"
#define EVENTS	"/tmp/events"
#define TURN	"%s/../turn-%u"

static bool slow;		/* a kernel that takes its time */

/* What a process of the machine tells the others. */
static volatile struct {
	int over;		/* all ports were taken away that are to be */
	int bad;
	unsigned int switches;
	double blown;		/* when the last port was */
	char lost[32];		/* the one that was in use then */
} *told;

/* What is printed by a command. */
__attribute__((format(printf, 3, 4)))
static int ask(char *out, size_t size, const char *fmt, ...)
{
	char command[512];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	f = popen(command, "r");
	*out = 0;
	if (f && !fgets(out, size, f))
		*out = 0;
	out[strcspn(out, "\n")] = 0;
	return f ? pclose(f) : -1;
}

static unsigned int events(const char *name)
{
	char text[32];

	ask(text, sizeof(text), "grep -c ' %s ' " EVENTS, name);
	return atoi(text);
}

/* Is it so, within @seconds? */
__attribute__((format(printf, 2, 3)))
static bool soon(double seconds, const char *fmt, ...)
{
	double until = now() + seconds * (slow ? 5 : 1);
	char command[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	do {
		if (!system(command))
			return true;
		usleep(50000);
	} while (now() < until);
	return false;
}

static bool listen_to_events(void)
{
	run("timeout 3000 " NPULINK " monitor >" EVENTS " &");
	return soon(40, "grep -q listening " EVENTS);
}

/* ---- taking ports away */

/* The index of the port that is in use, as in rxeN/1, or -1. */
static int in_use(void)
{
	char via[32];
	int n;

	ask(via, sizeof(via), NPULINK " -j link show | jq -r '[.[] | select(.connections and "
	    ".state == \"up\")][0].via'");
	return sscanf(via, "rxe%d/1", &n) == 1 ? n : -1;
}

static const struct {
	const char *take, *give;
} means[] = {
	{ "rdma link delete rxe%d", "rdma link add rxe%d type rxe netdev eth%d" },
	{ NPULINK " link del npu0 rdma rxe%d/1", NPULINK " link add npu0 rdma rxe%d/1" },
	/*
	 * Not by taking the interface down: when rxe of 6.1 cannot send a datagram, it
	 * never connects again.
	 */
	{ "tc qdisc add dev eth%d root netem loss 100%%", "tc qdisc del dev eth%d root" },
};

static int do_it(const char *how, int port)
{
	char command[256];

	snprintf(command, sizeof(command), how, port, port);
	return system(command);
}

/* Of this machine, the port that is in use; give it back when another one is. */
static int take_one(unsigned int kind)
{
	unsigned int before = events("port-next");
	int port = in_use();

	if (port < 0 || do_it(means[kind].take, port))
		return remote_fail("cannot take port %d by %s", port, means[kind].take);
	if (!soon(40, "test $(grep -c ' port-next ' " EVENTS ") -gt %u", before)) {
		run("tail -n 5 " EVENTS " | sed 's/^/# /'; " NPULINK " link show | sed 's/^/# /'");
		return remote_fail("nothing goes on after %s of %d", means[kind].take, port);
	}
	told->switches++;
	if (in_use() == port)
		return remote_fail("port %d is still in use", port);
	if (do_it(means[kind].give, port) ||
	    !soon(40, NPULINK " link ports | grep 'rxe%d/1 .*npu0' | grep -q 'bound$'", port))
		return remote_fail("port %d does not come back", port);
	return 0;
}

/* The machines in turn, each when the other one is done. */
static int take_turns(unsigned int n, unsigned int first)
{
	const char *results = getenv("NPULINK_RESULTS");
	unsigned int seed = machine + 1;
	int bad = 0;

	for (unsigned int r = first; r < first + n && !bad; r++) {
		if (!soon(120, "test %u = %u || test -e " TURN, r, first, results, r)) {
			bad = remote_fail("it is never our turn");
		} else if (r % machines == machine) {
			usleep(rand_r(&seed) % 400000);
			bad = take_one(r % ARRAY_SIZE(means));
		}
		if (r % machines == machine)
			run("touch " TURN, results, r + 1);
	}
	return bad;
}

/* ---- what goes on meanwhile */

static int all_right(struct coll_comm *comm, unsigned int rank, unsigned int i)
{
	static const uint32_t colls[] = {
		NPULINK_COLL_ALLREDUCE, NPULINK_COLL_ALLTOALL, NPULINK_COLL_REDUCE_SCATTER,
		NPULINK_COLL_ALLGATHER, NPULINK_COLL_BROADCAST,
	};
	static const size_t counts[] = { 1, 100000, 900, 30000 };
	size_t count = counts[i % ARRAY_SIZE(counts)];
	struct coll_case c = {
		.collective = colls[i % ARRAY_SIZE(colls)],
		.count = slow ? count / 10 + 1 : count, .dtype = COLL_INT32, .op = COLL_SUM,
		.in_place = i / 2 % 2,
	};

	return remote_case(comm, rank, &c);
}

/* Until both machines have done with their ports what they wanted to. */
static int until_over(struct coll_comm *comm, unsigned int rank)
{
	unsigned int n = 0;
	int bad = 0, over = 0, mine;

	while (!bad && !over) {
		bad = all_right(comm, rank, n++);
		mine = told->over;
		if (!bad)
			bad = remote_check(coll_allreduce(comm, &mine, &over, 1, COLL_INT32,
							  COLL_MIN), comm, rank, "allreduce");
	}
	while (wait(NULL) > 0)
		;
	ksft_print_msg("rank %u: %u collectives, %u times a port was lost\n", rank, n,
		       told->switches);
	return bad | told->bad;
}

/* Six turns in a row are each means on each machine. */
#define TURNS	3

static unsigned int turns, turn;	/* to take, and taken before */

static int with_two_ports(struct coll_comm *comm, unsigned int rank)
{
	if (!fork()) {
		told->bad = take_turns(turns, turn);
		told->over = 1;
		_exit(0);
	}
	return until_over(comm, rank);
}

/* Machine 1 has one port only, which is gone for a moment. */
static int with_one_port(struct coll_comm *comm, unsigned int rank)
{
	if (!fork()) {
		if (machine == 1) {
			usleep(300000);
			told->bad = do_it(means[0].take, 0);
			usleep(200000);
			told->bad |= do_it(means[0].give, 0) ||
				     !soon(40, "grep -q ' port-next ' " EVENTS);
			told->switches++;
		}
		told->over = 1;
		_exit(0);
	}
	return until_over(comm, rank);
}

/* Machine 1 loses both, the one that is in use last. */
static int with_none(struct coll_comm *comm, unsigned int rank)
{
	static char in[300000], out[300000];
	struct coll_state state = COLL_STATE_INIT;
	int rc, port;
	double took;

	/* Both see which one it is before it is taken away. */
	rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	port = in_use();
	snprintf((char *)told->lost, sizeof(told->lost), "rxe%d/1", port);
	rc = rc ? rc : coll_barrier(comm);
	if (!fork()) {
		usleep(500000);
		if (machine == 1)
			told->bad = run("rdma link delete rxe%d; rdma link delete rxe%d", !port,
					port);
		told->blown = now();
		_exit(0);
	}
	while (!rc)
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_INT8, COLL_SUM);
	while (wait(NULL) > 0)
		;
	took = now() - told->blown;
	if (rc != -ENOLINK || coll_comm_status(comm, &state) || strcmp(state.cause, "link"))
		return remote_fail("rank %u: %d: %s", rank, rc, coll_comm_last_error(comm));
	if (!remote_in_time(took))
		return remote_fail("rank %u: noticed after %.2f s", rank, took);
	/* What was in use, and not what was tried after that. */
	if (strcmp(state.port, (char *)told->lost))
		return remote_fail("rank %u: port %s, not %s", rank, state.port, told->lost);
	ksft_print_msg("rank %u: noticed after %.2f s\n", rank, took);
	return told->bad;
}

static int traffic(struct coll_comm *comm, unsigned int rank)
{
	int bad = 0;

	for (unsigned int i = 0; i < 10 && !bad; i++)
		bad = all_right(comm, rank, i);
	return bad;
}

static int ranks(remote_fn fn)
{
	memset((void *)told, 0, sizeof(*told));
	return remote_ranks(1, fn);
}

static int two_ports(unsigned int n)
{
	int bad;

	turns = n;
	bad = ranks(with_two_ports);
	turn += n;
	return bad;
}

/* Does npulink monitor say which port, and where it goes on? And nothing else happened. */
static bool events_right(unsigned int n)
{
	bool ok = events("port-lost") >= n && events("port-next") >= n && !events("link") &&
		  !run("grep -q ' port-lost .*: rank %u has lost rank %u on 10.7[78].0.%u over port rxe[01]/1' "
		       EVENTS, machine, !machine, !machine + 1) &&
		  !run("grep -q ' port-next .*: rank %u goes on with rank %u on 10.7[78].0.%u over port rxe[01]/1' "
		       EVENTS, machine, !machine, !machine + 1);

	if (!ok)
		run("sed 's/^/# /' " EVENTS);
	return ok;
}

int main(void)
{
	unsigned int loops = getenv("NPULINK_SOAK") ? 17 : 1, i;
	int bad = 0;

	remote_setup(1, 20000);
	run("modprobe sch_netem");
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	ksft_print_header();
	ksft_set_plan(9);
	slow = getenv("NPULINK_SLOW");
	setenv("COLL_PEER_TIMEOUT", slow ? "20" : "4", 1);
	ksft_test_result(listen_to_events(), "npulink monitor listens\n");
	for (i = 0; i < loops && !bad; i++)
		bad = two_ports(TURNS);
	ksft_test_result(!bad, "ports in use are lost, and it goes on\n");
	/* What both machines have lost, each has heard of. */
	ksft_test_result(events_right(TURNS * loops), "npulink monitor says so\n");
	setenv("COLL_CHECKSUM", "1", 1);
	/* What differs is what is sent again, whoever's port it is. */
	for (i = 0, bad = 0; i < loops && !bad && (!slow || loops > 1); i++)
		bad = two_ports(loops > 1 ? TURNS : 1);
	if (slow && loops == 1)
		ksft_test_result_skip("the same with checksums: on the debug kernel only in make soak\n");
	else
		ksft_test_result(!bad, "the same with checksums\n");
	unsetenv("COLL_CHECKSUM");
	if (machine == 1)
		run(NPULINK " link del npu0 rdma rxe1/1");
	ksft_test_result(!ranks(with_one_port), "a machine with one port loses it for a moment\n");
	if (machine == 1)
		run(NPULINK " link add npu0 rdma rxe1/1");
	setenv("COLL_PEER_TIMEOUT", remote_bound(), 1);
	bad = ranks(with_none);
	unsetenv("COLL_PEER_TIMEOUT");
	ksft_test_result(!bad, "both ports are lost\n");
	if (machine == 1)
		run("rdma link add rxe0 type rxe netdev eth0; "
		    "rdma link add rxe1 type rxe netdev eth1");
	/* Addresses come back a moment after the device. */
	soon(40, "test $(" NPULINK " link ports | grep -c 'bound$') -ge 2");
	ksft_test_result(!ranks(traffic), "new communicators work\n");
	ksft_test_result(remote_clean(), "no key, no connection and no memory is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
