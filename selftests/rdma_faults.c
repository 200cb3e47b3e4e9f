// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_faults.c - two machines whose network loses packets, whose cable is pulled, whose
 * RDMA device or port is taken away under load. Never a wrong byte or a hang, an error
 * within the bound that names machine and port, and then all works again. A hundred times
 * each in make soak; NPULINK_ROUNDS says another number.
 *
 * npulink-test: machines=2 mem=768 modules=none timeout=300
 */
#include <sys/mman.h>
#include "cases.h"
#include "lib/run/comm.h"
#include "remote.h"

#define NDEV	1
#define NPULINK	"build/tools/npulink"

static unsigned int rounds;

/* How long the ranks of this machine took: to notice, or for what they had to do. */
static volatile struct {
	unsigned int n;
	double sum, worst;
} *times;

static void note(double took)
{
	times->n++;
	times->sum += took;
	if (took > times->worst)
		times->worst = took;
}

/* All rounds, or the other machine waits for this one. */
static int repeat(int (*one)(void), const char *what)
{
	int bad = 0;

	memset((void *)times, 0, sizeof(*times));
	for (unsigned int i = 0; i < rounds; i++) {
		int rc = one();

		if (rc)
			remote_fail("%s: round %u of %u failed", what, i + 1, rounds);
		bad += !!rc;
	}
	ksft_print_msg("%s: %u times, %.3f s in the mean, %.3f s at most\n", what, times->n,
		       times->n ? times->sum / times->n : 0, times->worst);
	return bad;
}

static int traffic(struct coll_comm *comm, unsigned int rank)
{
	static const size_t counts[] = { 1, 900, 5000 };
	int bad = 0;

	for (unsigned int i = 0; i < 6 && !bad; i++) {
		struct coll_case c = {
			.collective = i % 2 ? NPULINK_COLL_ALLREDUCE : NPULINK_COLL_ALLTOALL,
			.count = counts[i / 2], .dtype = COLL_INT32, .op = COLL_SUM,
		};

		bad = remote_case(comm, rank, &c);
	}
	return bad;
}

static int timed_traffic(struct coll_comm *comm, unsigned int rank)
{
	double start = now();
	int bad = traffic(comm, rank);

	note(now() - start);
	return bad;
}

static int traffic_once(void)
{
	return remote_ranks(1, timed_traffic);
}

static int lossy(void)
{
	int bad = run("tc qdisc add dev eth0 root netem loss 1%% delay 1ms reorder 2%%");

	if (bad)
		return remote_fail("no netem");
	bad = repeat(traffic_once, "a collective each of six with loss");
	return bad | run("tc qdisc del dev eth0 root");
}

/*
 * Much data both ways, so that what is sent again has keys behind it that were registered since:
 * rxe would do that again, too.
 */
static int much(struct coll_comm *comm, unsigned int rank)
{
	int bad = 0;

	for (unsigned int i = 0; i < 4 && !bad; i++) {
		struct coll_case c = {
			.collective = NPULINK_COLL_ALLREDUCE, .count = 500000,
			.dtype = COLL_INT32, .op = COLL_SUM,
		};

		bad = remote_case(comm, rank, &c);
	}
	return bad;
}

static int lossy_much(void)
{
	int bad = run("tc qdisc add dev eth0 root netem loss 0.3%%");

	if (bad)
		return remote_fail("no netem");
	bad = remote_ranks(1, much);
	return bad | run("tc qdisc del dev eth0 root");
}

/* What machine 1, or each, does to the network some time after all ranks have begun, and undoes. */
static const char *blow, *repair;
/* A cable has two ends. What is in flight then waits, and names its step. */
static bool cable;

/* Does it say what was lost, and where? */
static int check_words(struct coll_comm *comm, unsigned int rank)
{
	const char *host = rank ? "vm0" : "vm1", *text = coll_comm_last_error(comm);
	struct coll_state state = COLL_STATE_INIT;

	if (coll_comm_status(comm, &state) || strcmp(state.cause, "link") || state.rank > 1 ||
	    state.peer != !state.rank)
		return remote_fail("rank %u: %s of rank %u and %d", rank, state.cause, state.rank,
				   (int)state.peer);
	/* The other one may have found out first, and told us. */
	if (strcmp(state.machine, state.peer == rank ? "" : host) || strcmp(state.port, "rxe0/1"))
		return remote_fail("rank %u: machine \"%s\", port \"%s\"", rank, state.machine,
				   state.port);
	if (cable && (state.step == UINT32_MAX || state.number == UINT64_MAX))
		return remote_fail("rank %u: no operation and step", rank);
	if (!strstr(text, host) || !strstr(text, "over port rxe0/1") ||
	    (cable && (!strstr(text, "(operation ") || !strstr(text, ", step "))))
		return remote_fail("rank %u: %s", rank, text);
	return 0;
}

/* Some time from now; *when is shared, and the other machine is told. */
static void strike(unsigned int rank, volatile double *when)
{
	unsigned int seed = remote_port, us = 300000 + rand_r(&seed) % 400000;
	char path[256];
	int bad;

	*when = 0;
	if (!rank && !cable) {
		remote_watch("struck", remote_port, when);
		return;
	}
	if (fork())
		return;
	usleep(us);
	/* Before it is done: that may take a while itself. */
	*when = now();
	remote_shared_path(path, "struck", remote_port);
	bad = run("touch %s", path);
	bad |= system(blow);
	_exit(!!bad);
}

/* Right sums until it fails; then it must be the link, and soon. */
static int until_lost(struct coll_comm *comm, unsigned int rank)
{
	static uint8_t in[300000], out[300000], want[300000];
	volatile double *blown = mmap(NULL, sizeof(*blown), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double took;
	int rc = 0;

	for (size_t i = 0; i < sizeof(in); i++) {
		in[i] = i / 7 + rank;
		want[i] = i / 7 * 2 + 1;
	}
	strike(rank, blown);
	while (!rc) {
		memset(out, 0, sizeof(out));
		rc = coll_allreduce(comm, in, out, sizeof(in), COLL_UINT8, COLL_SUM);
		if (!rc && memcmp(out, want, sizeof(out)))
			rc = -EILSEQ;
	}
	took = now();
	/* What is still to be done would otherwise come after it was undone. */
	while (wait(NULL) > 0)
		;
	if (rc != -ENOLINK)
		return remote_fail("rank %u: %d: %s", rank, rc, coll_comm_last_error(comm));
	/* The other machine may hear of the loss before it sees when that was. */
	took = *blown && *blown < took ? took - *blown : 0;
	if (!remote_in_time(took) || !*blown)
		return remote_fail("rank %u: noticed after %.2f s", rank, took);
	ksft_print_msg("rank %u: noticed after %.2f s\n", rank, took);
	note(took);
	return check_words(comm, rank);
}

static int lose_once(void)
{
	int bad;

	setenv("COLL_PEER_TIMEOUT", remote_bound(), 1);
	bad = remote_ranks(1, until_lost);
	unsetenv("COLL_PEER_TIMEOUT");
	if (machine == 1 || cable)
		bad |= run("%s", repair);
	/* The address comes back a moment after the device. */
	for (int i = 0; i < 400 && run(NPULINK " link ports | grep 'rxe0/1 .*npu0' | "
				       "grep -q 'bound$'"); i++)
		usleep(50000);
	return bad | remote_ranks(1, traffic);
}

static int lose(const char *what, const char *how, const char *undo)
{
	blow = how;
	repair = undo;
	return repeat(lose_once, what);
}

int main(void)
{
	remote_setup(NDEV, 20000);
	run("modprobe sch_netem");
	times = mmap(NULL, sizeof(*times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	rounds = remote_rounds(100);
	ksft_print_header();
	ksft_set_plan(7);
	/* rxe takes half a second for many a packet that is lost. */
	if (rounds > 1)
		chosen_result(!lossy(), "1 %% of packets lost, some reordered\n");
	else
		ksft_test_result_skip("1 %% of packets lost: only in make soak\n");
	chosen_result(!lossy_much(), "much data, of which some packets are lost\n");
	/*
	 * Not by taking the interface down: when rxe of 6.1 cannot send a datagram, it
	 * never connects again.
	 */
	cable = true;
	chosen_result(!lose("cable", "tc qdisc add dev eth0 root netem loss 100%",
			    "tc qdisc del dev eth0 root"), "a cable is pulled\n");
	cable = false;
	chosen_result(!lose("port", NPULINK " link del npu0 rdma rxe0/1",
			    NPULINK " link add npu0 rdma rxe0/1"),
		      "a port is unbound under load\n");
	chosen_result(!lose("device", "rdma link delete rxe0",
			    "rdma link add rxe0 type rxe netdev eth0"),
		      "an RDMA device is removed under load\n");
	ksft_test_result(remote_idle(), "no key and no connection is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
