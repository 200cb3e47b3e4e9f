// SPDX-License-Identifier: GPL-2.0
/*
 * knobs - every fault of the software device under every collective of libcoll, large
 * enough for interrupts and too small for them. What the knob allows to work is right to
 * the last byte, the rest ends on all ranks with the error that the fault deserves, and
 * the next communicator on the same devices works.
 *
 * npulink-test: timeout=170
 */
#include <sys/prctl.h>
#include "team.h"
#include "coll_ranks.h"
#include "coll_cases.h"

#define RANKS		4
#define VICTIM		2
#define LARGE		40000	/* bytes per rank: beyond the arena, with several requests */
#define HOLD_STEPS	2
#define BROKEN		1000000	/* more than one collective has requests */

enum fault {
	DELAY, DUP, DROP, CORRUPT, RESENT, DAMAGED, FAIL, RELEASE, ABORT, DEADLINE, KILL, FAULTS
};

static const char * const fault_names[] = {
	"completions come late", "interrupts come twice", "interrupts are lost", "a bit flips",
	"a bit flips on a link, with checksums", "links are broken, with checksums",
	"a request fails", "held and released", "held, then aborted",
	"held past the deadline", "held, then killed",
};

/* What the processes share beside struct ranks. */
struct shared {
	enum fault fault;
	uint32_t collective;
	bool large;
	int rc[RANKS];
	int wrong[RANKS];
	char text[RANKS][700];
	int done, told;
};

static struct shared *sh;
static unsigned int counts[FAULTS][2];	/* runs that met the fault, and those that did not */

static struct coll_case make_case(void)
{
	struct coll_case c = {
		.collective = sh->collective, .dtype = COLL_INT32, .op = COLL_SUM,
		.root = 1, .count = sh->large ? LARGE / 4 : 5,
	};

	if (!trial_rooted(c.collective))
		c.root = 0;
	return c;
}

/* Run the case; what it says to a wrong result is kept apart from its error. */
static int run_case(struct ranks *ranks, struct coll_comm *comm)
{
	unsigned int rank = coll_comm_rank(comm);
	struct coll_case c = make_case();
	struct coll_state state;
	int rc;

	/* First one that works: everybody is there. */
	rc = coll_barrier(comm);
	if (rc)
		return rc;
	pthread_barrier_wait(&ranks->barrier);
	if (!rank) {
		/* The parent turns the knob while nothing runs. */
		__atomic_store_n(&ranks->number[0], 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&ranks->number[0], __ATOMIC_ACQUIRE) != 2)
		usleep(500);
	sh->wrong[rank] = trial_run(comm, &c, sh->text[rank], sizeof(sh->text[rank]));
	__atomic_fetch_add(&sh->done, 1, __ATOMIC_RELEASE);
	/* Its part may have ended well before another's failed: all are told. */
	while (__atomic_load_n(&sh->done, __ATOMIC_ACQUIRE) != RANKS)
		usleep(500);
	coll_comm_status(comm, &state);
	sh->rc[rank] = state.status;
	__atomic_fetch_add(&sh->told, 1, __ATOMIC_RELEASE);
	/* Nobody leaves before all have seen it. */
	while (__atomic_load_n(&ranks->number[0], __ATOMIC_ACQUIRE) != 3)
		usleep(500);
	return 0;
}

/* Aborts from a thread of its own, as an application would. */
static void *aborter(void *arg)
{
	struct ranks *ranks = ((void **)arg)[0];
	struct coll_comm *comm = ((void **)arg)[1];

	while (__atomic_load_n(&ranks->number[1], __ATOMIC_ACQUIRE) != 1 &&
	       __atomic_load_n(&ranks->number[0], __ATOMIC_ACQUIRE) != 3)
		usleep(500);
	if (__atomic_load_n(&ranks->number[1], __ATOMIC_ACQUIRE) == 1)
		coll_comm_abort(comm, 99);
	return NULL;
}

static int run_rank(struct ranks *ranks, struct coll_comm *comm)
{
	void *arg[] = { ranks, comm };
	pthread_t thread;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sh->fault != ABORT || coll_comm_rank(comm) != 1)
		return run_case(ranks, comm);
	pthread_create(&thread, NULL, aborter, arg);
	rc = run_case(ranks, comm);
	pthread_join(thread, NULL);
	return rc;
}

static void turn(unsigned int hold)
{
	unsigned int n;

	for (n = 0; n < RANKS; n++) {
		switch (sh->fault) {
		case DELAY:
			raw_knob(n, "delay_ns", 2000000);
			break;
		case DUP:
			raw_knob(n, "dup_irq", 1000);
			break;
		case DROP:
			raw_knob(n, "drop_irq", 1000);
			break;
		case CORRUPT:
			if (n == VICTIM)
				raw_knob(n, "corrupt", 1);
			break;
		case RESENT:
			if (n == VICTIM)
				raw_knob(n, "corrupt_link", 1);
			break;
		case DAMAGED:
			if (n == VICTIM)
				raw_knob(n, "corrupt_link", BROKEN);
			break;
		case FAIL:
			if (n == VICTIM)
				raw_knob(n, "fail_post", 1);
			break;
		default:
			if (n == VICTIM)
				raw_knob(n, "hold", hold);
		}
	}
}

/* All have ended, or @stuck does not change for a while. */
static bool all_done_or(const char *stuck)
{
	unsigned int i, still = 0, n;
	long long sum, last = -1;

	for (i = 0; i < 20000; i++) {
		if (__atomic_load_n(&sh->done, __ATOMIC_ACQUIRE) == RANKS)
			return true;
		for (sum = 0, n = 0; n < RANKS; n++)
			sum += raw_knob_get(n, stuck);
		still = sum && sum == last ? still + 1 : 0;
		last = sum;
		if (still > 20)
			return false;
		usleep(1000);
	}
	return false;
}

/* What all ranks have to see; 0: the right result. */
static const int expected[FAULTS] = {
	[DAMAGED] = -EBADMSG, [FAIL] = -EIO, [ABORT] = -ECANCELED, [DEADLINE] = -ETIMEDOUT,
	[KILL] = -EOWNERDEAD,
};

static int judge(bool met, bool killed)
{
	const char *words[FAULTS] = {
		[DAMAGED] = "twice, over the link from npu", [FAIL] = "step", [ABORT] = "99",
		[DEADLINE] = "deadline", [KILL] = "rank 2",
	};
	int want = met ? expected[sh->fault] : 0, bad = 0, wrong = 0, r;

	for (r = 0; r < RANKS; r++) {
		if (killed && r == VICTIM)
			continue;
		wrong += !!sh->wrong[r];
		if (sh->rc[r] != want ||
		    /* Those who need nothing from others may have ended well before. */
		    (want && sh->wrong[r] && words[sh->fault] &&
		     !strstr(sh->text[r], words[sh->fault])) ||
		    (!want && sh->fault != CORRUPT && sh->wrong[r])) {
			ksft_print_msg("%s, %s, rank %d: status %d instead of %d: %s\n",
				       fault_names[sh->fault], trial_names[sh->collective], r,
				       sh->rc[r], want, sh->text[r]);
			bad++;
		}
	}
	/* Nothing but a checksum finds it, but it must have been there to be found. */
	if (sh->fault == CORRUPT && met && !wrong) {
		ksft_print_msg("a bit flips, %s: nobody's result is wrong\n",
			       trial_names[sh->collective]);
		bad++;
	}
	return bad;
}

/* One collective with the fault; 0 if all is as it should be. */
static int one(enum fault fault, uint32_t collective, bool large, unsigned int hold)
{
	struct ranks *ranks = ranks_new(RANKS);
	bool met = false, killed = false;
	struct team rescue;
	pid_t pid[RANKS];
	int bad = 0, r;

	memset(sh, 0, sizeof(*sh));
	sh->fault = fault;
	sh->collective = collective;
	sh->large = large;
	if (fault == RESENT || fault == DAMAGED)
		ranks->config.flags = COLL_CHECKSUM;
	if (fault == DEADLINE)
		ranks->config.deadline_ns = getenv("NPULINK_SLOW") ? 3000000000ULL : 700000000;
	/* Rank r is on device r. */
	for (r = 0; r < RANKS; r++)
		pid[r] = rank_start(ranks, r, run_rank);
	while (__atomic_load_n(&ranks->number[0], __ATOMIC_ACQUIRE) != 1)
		usleep(500);
	turn(hold);
	__atomic_store_n(&ranks->number[0], 2, __ATOMIC_RELEASE);
	switch (fault) {
	case DROP:
		met = !all_done_or("lost");
		/* Found by the next interrupt of the device, whoever causes it. */
		for (r = 0; r < RANKS; r++)
			raw_knob(r, "drop_irq", 0);
		if (met && team_open(&rescue, RANKS, RANKS, 400000))
			bad++;
		if (met && team_allreduce(&rescue, 1))
			bad++;
		if (met)
			team_close(&rescue);
		break;
	case RELEASE:
		met = !all_done_or("held");
		if (met) {
			raw_knob(VICTIM, "release", 1);
			raw_knob(VICTIM, "hold", RAW_HOLD_OFF);
		}
		break;
	case ABORT:
		met = !all_done_or("held");
		if (met)
			__atomic_store_n(&ranks->number[1], 1, __ATOMIC_RELEASE);
		break;
	case DEADLINE:
		met = !all_done_or("held");
		break;
	case KILL:
		met = !all_done_or("held");
		killed = met;
		if (met) {
			kill(pid[VICTIM], SIGKILL);
			__atomic_fetch_add(&sh->told, 1, __ATOMIC_RELEASE);
			__atomic_fetch_add(&sh->done, 1, __ATOMIC_RELEASE);
		}
		break;
	default:
		break;
	}
	/* Whatever was done to it, it ends. */
	for (r = 0; r < 60000 && __atomic_load_n(&sh->told, __ATOMIC_ACQUIRE) != RANKS; r++)
		usleep(1000);
	if (fault == FAIL)
		met = !raw_knob_get(VICTIM, "fail_post");
	if (fault == RESENT)
		met = !raw_knob_get(VICTIM, "corrupt_link");
	if (fault == DAMAGED)
		met = raw_knob_get(VICTIM, "corrupt_link") != BROKEN;
	if (fault == CORRUPT)
		met = !raw_knob_get(VICTIM, "corrupt");
	if (fault == DELAY || fault == DUP)
		met = true;
	if (__atomic_load_n(&sh->told, __ATOMIC_ACQUIRE) != RANKS) {
		ksft_print_msg("%s, %s: hangs\n", fault_names[fault], trial_names[collective]);
		bad++;
		for (r = 0; r < RANKS; r++) {
			kill(pid[r], SIGKILL);
			waitpid(pid[r], NULL, 0);
		}
	} else {
		bad += judge(met, killed);
		__atomic_store_n(&ranks->number[0], 3, __ATOMIC_RELEASE);
		for (r = 0; r < RANKS; r++) {
			if (killed && r == VICTIM)
				waitpid(pid[r], NULL, 0);
			else
				bad += rank_join_end(ranks, r, pid[r]);
		}
	}
	raw_knobs_reset(RANKS);
	for (r = 0; r < RANKS; r++) {
		if (!RAW_EVENTUALLY(!raw_knob_get(r, "held") && !raw_knob_get(r, "lost"))) {
			ksft_print_msg("%s, %s: device %d keeps requests\n", fault_names[fault],
				       trial_names[collective], r);
			bad++;
		}
	}
	counts[fault][!met]++;
	ranks_free(ranks);
	return bad;
}

int main(void)
{
	unsigned int n = 0, stride = getenv("NPULINK_SLOW") ? 5 : 1;
	bool soak = getenv("NPULINK_SOAK");
	long before = raw_pages_pinned();
	int fault;

	ksft_print_header();
	if (!have_device() || access(RAW_KNOBS, W_OK))
		ksft_exit_skip("no /dev/npulink/npu0, or no debugfs\n");
	ksft_set_plan(FAULTS + 1);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	raw_knobs_reset(RANKS);
	for (fault = 0; fault < FAULTS; fault++) {
		int bad = 0;

		for (uint32_t c = 0; c < NPULINK_COLL_P2P; c++) {
			unsigned int holds = soak && fault >= RELEASE ? 8 : 1;

			for (unsigned int h = 0; h < holds; h++, n++) {
				if (n % stride)
					continue;
				bad += one(fault, c, true, soak ? h : (c + fault) % HOLD_STEPS);
				if (soak)
					bad += one(fault, c, false, h);
			}
		}
		ksft_print_msg("%s: %u met it, %u did not need what it affects\n",
			       fault_names[fault], counts[fault][0], counts[fault][1]);
		/* A barrier, and who only sends, have no requests. */
		ksft_test_result(!bad && (counts[fault][0] || stride > 1),
				 "every collective: %s\n", fault_names[fault]);
	}
	ksft_test_result(RAW_EVENTUALLY(raw_pages_pinned() <= before), "nothing stays pinned\n");
	ksft_finished();
}
