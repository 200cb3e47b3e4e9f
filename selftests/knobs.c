// SPDX-License-Identifier: GPL-2.0
/*
 * knobs - every fault of the software device, at step k, under every collective of libcoll,
 * under messages and under a group of both, without and with checksums. What the fault
 * allows to work is right to the last byte, the rest ends on all ranks with the error
 * that the fault deserves, naming what the knob hit, and the next communicator on
 * the same devices works.
 *
 * How often a fault could act in a collective is counted first, with one that lets
 * everything pass. Then k is the first, the last and one in between; in make soak it
 * is all of them, until the fault is not met any more. NPULINK_SEED=N repeats what was
 * chosen by chance.
 *
 * npulink-test: timeout=170
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "team.h"
#include "links.h"
#include "coll_ranks.h"
#include "coll_cases.h"
#include "lib/run/cache.h"
#include "lib/run/comm.h"
#include "lib/run/request.h"

#define RANKS		4	/* rank r is on device r */
#define LARGE		4800	/* bytes per rank; little, as it is checked byte by byte, .. */
#define COPY_MAX	512	/* .. but not for the arena .. */
#define INLINE_MAX	"1024"	/* .. and for the engine to answer at once */
#define BEYOND		1000000	/* more than any collective has requests and interrupts */
#define EVERY		UINT32_MAX	/* as k: not one, but all of them on all devices */
#define LOCAL		UINT32_MAX	/* as hit_from: the request had no input from a link */

enum target { SENDRECV = NPULINK_COLL_P2P, GROUP, TARGETS };

enum kind { DELAY, DUP, DROP, CORRUPT, RESENT, DAMAGED, FAIL, RELEASE, ABORT, DEADLINE, KILL };

static const struct fault {
	enum kind kind;
	bool checksum;
	const char *knob, *name, *sees;
} faults[] = {
	{ DELAY, false, "delay", "a completion is 2 ms late, or all are", "the right result" },
	{ DUP, false, "dup_irq", "an interrupt comes twice, or all do", "the right result" },
	{ DROP, false, "drop_irq", "an interrupt is lost, or all are", "the right result" },
	{ DROP, true, "drop_irq", "the same, with checksums", "the right result" },
	{ CORRUPT, false, "corrupt", "a bit flips", "a wrong result, and no error" },
	{ CORRUPT, true, "corrupt", "the same, with checksums",
	  "the right result if it was on the way, else a wrong one" },
	{ RESENT, true, "corrupt_link", "a bit flips on a link, with checksums",
	  "the right result" },
	{ DAMAGED, true, "corrupt_link", "links are broken from then on, with checksums",
	  "EBADMSG, and over which link" },
	{ FAIL, false, "fail_post", "a request fails", "EIO, and in which step" },
	{ FAIL, true, "fail_post", "the same, with checksums", "EIO, and in which step" },
	{ RELEASE, false, "hold", "held, released", "the right result" },
	{ RELEASE, true, "hold", "the same, with checksums", "the right result" },
	{ ABORT, false, "hold", "held, aborted", "ECANCELED with the code" },
	{ ABORT, true, "hold", "the same, with checksums", "ECANCELED with the code" },
	{ DEADLINE, false, "hold", "held past the deadline", "ETIMEDOUT" },
	{ DEADLINE, true, "hold", "the same, with checksums", "ETIMEDOUT" },
	{ KILL, false, "hold", "held, the rank killed", "EOWNERDEAD, and who" },
	{ KILL, true, "hold", "the same, with checksums", "EOWNERDEAD, and who" },
};

/* What all ranks have to see if it was met; otherwise the right result. */
static const struct {
	int status;
	const char *cause, *words;
} expected[] = {
	[DAMAGED] = { -EBADMSG, "checksum", "arrived damaged" },
	[FAIL] = { -EIO, "device", "step" },
	[ABORT] = { -ECANCELED, "abort", "99" },
	[DEADLINE] = { -ETIMEDOUT, "deadline", "deadline" },
	[KILL] = { -EOWNERDEAD, "death", "was killed by signal 9" },
};

#define FAULTS	ARRAY_SIZE(faults)

static const char * const knobs[] = {
	"delay", "dup_irq", "drop_irq", "corrupt", "corrupt_link", "fail_post", "hold",
};

static struct {
	unsigned int injected, met, targets;
} counts[FAULTS];

/* ---- the ranks: processes that do what they are told ------------------------------------ */

enum order { JOIN, RUN, TELL, QUIT };

/* What they share beside struct ranks. */
struct shared {
	uint32_t orders, answers, aborts;	/* futexes */
	enum order order;
	enum target target;
	bool large;
	int wrong[RANKS];
	char text[RANKS][800];
	uint64_t number[RANKS];
	struct coll_state state[RANKS];
	uint32_t step_peer, step_unit;
};

static struct shared *sh;
static struct ranks *ranks;
static pid_t pids[RANKS];
static struct coll_comm *comm;		/* in a rank's process */

static void word_wait(uint32_t *word, uint32_t old, unsigned int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	syscall(SYS_futex, word, FUTEX_WAIT, old, ms ? &ts : NULL, NULL, 0);
}

static void word_bump(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct coll_case make_case(void)
{
	struct coll_case c = {
		.collective = sh->target, .dtype = COLL_INT32, .op = COLL_SUM,
		.root = trial_rooted(sh->target), .count = sh->large ? LARGE / 4 : 5,
	};

	return c;
}

/* Everybody sends to the right; in a group there is a collective beside it. */
static int messages(unsigned int rank, char *text, size_t size)
{
	static int32_t out[LARGE / 4], in[LARGE / 4], sum[LARGE / 4];
	unsigned int right = (rank + 1) % RANKS, left = (rank + RANKS - 1) % RANKS;
	unsigned int n = sh->large ? LARGE / 4 : 5, i, bad = 0;
	struct coll_request *req[2] = { };
	bool group = sh->target == GROUP;
	int rc, end;

	for (i = 0; i < n; i++) {
		out[i] = 1000 * rank + i;
		in[i] = sum[i] = -1;
	}
	if (group) {
		rc = coll_group_start(comm);
		rc = rc ? rc : coll_send(comm, out, n, COLL_INT32, right);
		rc = rc ? rc : coll_recv(comm, in, n, COLL_INT32, left);
		rc = rc ? rc : coll_allreduce(comm, out, sum, n, COLL_INT32, COLL_SUM);
		end = coll_group_end(comm);
	} else {
		rc = coll_isend(comm, out, n, COLL_INT32, right, &req[0]);
		rc = rc ? rc : coll_irecv(comm, in, n, COLL_INT32, left, &req[1]);
		end = coll_waitall(2, req);
	}
	rc = rc ? rc : end;
	for (i = 0; !rc && i < n; i++)
		bad += in[i] != (int32_t)(1000 * left + i) ||
		       (group && sum[i] != (int32_t)(6000 + 4 * i));
	if (rc || bad)
		snprintf(text, size, "rank %u: rc %d, %u wrong: %s", rank, rc, bad,
			 rc ? coll_comm_last_error(comm) : "");
	return rc || bad ? -1 : 0;
}

/* Whom the plan of the latest call receives from in the step that failed, and its request. */
static void look_at_plan(const struct coll_state *state, const struct coll_case *c)
{
	const struct coll_cached *cached = comm->plans.newest;
	struct coll_args args;
	struct coll_plan plan;

	/* Calls that are kept have not looked for theirs. */
	while (cached && (cached->args.collective != c->collective ||
			  (cached->args.count && cached->args.count != c->count)))
		cached = cached->older;
	if (!cached)
		return;
	args = cached->args;
	args.topo = coll_comm_topo(comm);
	if (coll_plan_make(cached->alg, &args, &plan))
		return;
	if (state->step < plan.nsteps) {
		uint32_t unit = state->step;

		while (plan.steps[unit].flags & NPULINK_STEP_F_CHAIN)
			unit--;
		sh->step_unit = unit;
		sh->step_peer = plan.steps[state->step].recv_peer;
	}
	coll_plan_free(&plan);
}

static int obey(unsigned int rank)
{
	struct coll_state *state = &sh->state[rank];
	struct coll_case c = make_case();
	char *text = sh->text[rank];
	int rc;

	switch (sh->order) {
	case JOIN:
		if (comm && coll_comm_destroy(comm))
			return -1;
		comm = rank_join(ranks, rank);
		rc = comm ? coll_barrier(comm) : -1;
		if (rc)
			rank_fail(ranks, rank, "barrier: %s", coll_comm_last_error(comm));
		return rc;
	case RUN:
		*state = (struct coll_state)COLL_STATE_INIT;
		coll_comm_status(comm, state);
		sh->number[rank] = state->next;
		sh->wrong[rank] = sh->target >= SENDRECV ?
				  messages(rank, text, sizeof(sh->text[0])) :
				  trial_run(comm, &c, text, sizeof(sh->text[0]));
		return 0;
	case TELL:
		*state = (struct coll_state)COLL_STATE_INIT;
		rc = coll_comm_status(comm, state);
		if (!rc && state->status && state->rank == rank && state->step != NPULINK_NO_PEER &&
		    sh->target < SENDRECV)
			look_at_plan(state, &c);
		return rc;
	case QUIT:
		return 0;
	}
	return -1;
}

/* Aborts from a thread of its own, as an application would. */
static void *aborter(void *arg)
{
	uint32_t seen = (uintptr_t)arg;

	for (;;) {
		while (__atomic_load_n(&sh->aborts, __ATOMIC_SEQ_CST) == seen)
			word_wait(&sh->aborts, seen, 0);
		seen++;
		coll_comm_abort(comm, 99);
	}
	return NULL;
}

static void rank_main(unsigned int rank, uint32_t seen)
{
	void *aborts = (void *)(uintptr_t)sh->aborts;
	enum order order = JOIN;
	pthread_t thread;
	int rc = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (rank == 1)
		pthread_create(&thread, NULL, aborter, aborts);
	while (!rc && order != QUIT) {
		while (__atomic_load_n(&sh->orders, __ATOMIC_SEQ_CST) == seen)
			word_wait(&sh->orders, seen, 0);
		seen++;
		order = sh->order;
		rc = obey(rank);
		if (!rc && order == QUIT)
			rc = coll_comm_destroy(comm);
		if (!rc)
			word_bump(&sh->answers);
	}
	_exit(!!rc);
}

static void give(enum order order)
{
	sh->order = order;
	__atomic_store_n(&sh->answers, 0, __ATOMIC_SEQ_CST);
	word_bump(&sh->orders);
}

/* Have @n ranks done it? Waits for some ms. */
static bool answered(unsigned int n, unsigned int ms)
{
	uint64_t until = raw_now() + ms * 1000000ULL;
	uint32_t have;

	while ((have = __atomic_load_n(&sh->answers, __ATOMIC_SEQ_CST)) < n) {
		if (raw_now() >= until)
			return false;
		word_wait(&sh->answers, have, ms < 100 ? ms : 100);
	}
	return true;
}

static void end_ranks(void)
{
	int r;

	for (r = 0; r < RANKS; r++) {
		if (!pids[r])
			continue;
		kill(pids[r], SIGKILL);
		waitpid(pids[r], NULL, 0);
		pids[r] = 0;
	}
}

static bool joined;

/* A deadline that has to pass: this many times doubled. */
static unsigned int slower;

/* A new communicator, if the one that there is will not do. */
static int join(const struct fault *f)
{
	uint64_t deadline = ((struct coll_config)COLL_CONFIG_INIT).deadline_ns;
	struct coll_config *config = &ranks->config;
	unsigned int flags = f->checksum ? COLL_CHECKSUM : 0;
	uint32_t seen = sh->orders;
	int r;

	if (f->kind == DEADLINE)
		deadline = (getenv("NPULINK_SLOW") ? 3000000000ULL : 200000000) << slower;
	if (joined && config->flags == flags && config->deadline_ns == deadline)
		return 0;
	config->flags = flags;
	config->deadline_ns = deadline;
	coll_get_unique_id(&ranks->id);
	memset(ranks->text, 0, sizeof(ranks->text));
	for (r = 0; r < RANKS; r++) {
		if (pids[r])
			continue;
		fflush(stdout);
		pids[r] = fork();
		if (!pids[r])
			rank_main(r, seen);
	}
	give(JOIN);
	joined = answered(RANKS, 60000);
	if (joined)
		return 0;
	for (r = 0; r < RANKS; r++)
		ksft_print_msg("rank %d cannot join: %s\n", r, ranks->text[r]);
	end_ranks();
	return 1;
}

/* ---- what the knobs and the links say --------------------------------------------------- */

static bool counts_requests(const char *knob)
{
	return strcmp(knob, "hold");
}

/* Set the knob so that it lets @k pass on device @n. */
static void arm(const struct fault *f, unsigned int n, uint32_t k, uint32_t times)
{
	if (!counts_requests(f->knob)) {
		raw_knob(n, f->knob, k);
		return;
	}
	raw_knob(n, "skip", k);
	raw_knob(n, f->knob, times);
	if (f->kind == DELAY)
		raw_knob(n, "delay_ns", k == BEYOND ? 1 : 2000000);
}

static uint32_t times_of(const struct fault *f)
{
	return f->kind == DAMAGED ? BEYOND : 1;
}

/* ---- one run ---------------------------------------------------------------------------- */

struct run {
	const struct fault *f;
	unsigned int victim;
	uint32_t k, n;		/* of so many */
	bool met, killed;
	uint32_t hit_step, hit_from;
	uint64_t damaged[RANKS][RANKS];		/* by this run, [from][to] */
	uint32_t passed[RANKS];
};

static bool concerns(const struct run *run, unsigned int n)
{
	return n == run->victim || run->k == EVERY || run->k == BEYOND;
}

static const char *target_name(enum target t)
{
	return t == SENDRECV ? "send/recv" : t == GROUP ? "group" : trial_names[t];
}

static int complain(const struct run *run, const char *what, long got, long want)
{
	ksft_print_msg("%s, %s of %s, device %u, k %u of %u: %s %ld instead of %ld\n",
		       run->f->name, target_name(sh->target), sh->large ? "4800 bytes" : "20 bytes",
		       run->victim, run->k, run->n, what, got, want);
	return 1;
}

/* Who and where: as the knob says that it was. */
static int judge_state(const struct run *run, const struct coll_state *st, unsigned int rank)
{
	uint32_t victim = run->victim, step = st->step;
	int bad = 0;

	if (strcmp(st->cause, expected[run->f->kind].cause))
		bad += complain(run, st->cause, 0, 1);
	/* Messages are counted by themselves. */
	if (run->f->kind == FAIL || run->f->kind == DAMAGED) {
		if (sh->target < SENDRECV && st->number != sh->number[rank])
			bad += complain(run, "operation", st->number, sh->number[rank]);
		if (st->rank != victim)
			bad += complain(run, "rank", st->rank, victim);
	}
	switch (run->f->kind) {
	case FAIL:
		if (st->peer != COLL_NO_RANK)
			bad += complain(run, "peer", st->peer, COLL_NO_RANK);
		if (step != run->hit_step)
			bad += complain(run, "step", step, run->hit_step);
		if (st->code != EIO)
			bad += complain(run, "code", st->code, EIO);
		break;
	case DAMAGED:
		if (st->peer >= RANKS || st->code != st->peer)
			return complain(run, "far end of the link", st->code, st->peer);
		/* Requests that run side by side are all hit; the last one alone. */
		if (run->damaged[st->peer][victim] < 2 ||
		    (run->k + 1 == run->n && run->damaged[st->peer][victim] != 2))
			bad += complain(run, "damaged on the link that is named",
					run->damaged[st->peer][victim], 2);
		if (run->k + 1 == run->n && st->peer != run->hit_from)
			bad += complain(run, "peer", st->peer, run->hit_from);
		if (sh->target == SENDRECV && step)
			bad += complain(run, "step", step, 0);
		if (sh->target < SENDRECV && sh->step_peer != st->peer)
			bad += complain(run, "step receives from", sh->step_peer, st->peer);
		if (sh->target < SENDRECV && run->k + 1 == run->n && sh->step_unit != run->hit_step)
			bad += complain(run, "request of step", sh->step_unit, run->hit_step);
		break;
	case ABORT:
		if (st->rank != 1 || st->code != 99)
			bad += complain(run, "aborted by rank", st->rank, 1);
		break;
	case KILL:
		if (st->rank != victim || st->peer != victim || st->code != SIGKILL)
			bad += complain(run, "dead rank", st->rank, victim);
		break;
	default:
		break;
	}
	return bad;
}

/* Each link has damaged what it was told to, and no other has. */
static int judge_links(const struct run *run)
{
	bool one = run->met && (run->f->kind == RESENT || run->f->kind == CORRUPT) &&
		   run->hit_from != LOCAL;
	unsigned int to, from;
	int bad = 0;

	for (to = 0; to < RANKS; to++) {
		for (from = 0; from < RANKS; from++) {
			bool this = one && to == run->victim && from == run->hit_from;

			if (run->f->kind == DAMAGED && to == run->victim &&
			    (run->k + 1 < run->n || from == run->hit_from))
				continue;
			if (run->damaged[from][to] != this)
				bad += complain(run, "damaged", run->damaged[from][to], this);
		}
	}
	return bad;
}

static int judge(const struct run *run)
{
	int want = run->met ? expected[run->f->kind].status : 0, bad = 0, wrong = 0, r;
	bool may_differ = run->met && run->f->kind == CORRUPT &&
			  (!run->f->checksum || run->hit_from == LOCAL);

	for (r = 0; r < RANKS; r++) {
		if (run->killed && r == (int)run->victim)
			continue;
		wrong += !!sh->wrong[r];
		if (sh->state[r].status != want ||
		    /* Those who need nothing from others may have ended well before. */
		    (want && sh->wrong[r] && !strstr(sh->text[r], expected[run->f->kind].words)) ||
		    (!want && !may_differ && sh->wrong[r])) {
			bad += complain(run, "status", sh->state[r].status, want);
			ksft_print_msg("rank %d: %s\n", r, sh->text[r]);
		} else if (want) {
			bad += judge_state(run, &sh->state[r], r);
		}
	}
	/* Nothing but a checksum finds it, but it must have been there to be found. */
	if (may_differ && !wrong)
		bad += complain(run, "wrong results", 0, 1);
	if (want && !wrong && !run->killed)
		bad += complain(run, "ranks that failed", 0, 1);
	if (run->f->checksum)
		bad += judge_links(run);
	return bad;
}

static struct team rescue;

/*
 * Wait for the end, doing to it what the fault is. A request that is held or lost stays
 * so until then: *stuck.
 */
static int act(struct run *run, bool *stuck)
{
	const char *where = run->f->kind == DROP ? "lost" : "held";
	bool parks = run->f->kind == DROP || !counts_requests(run->f->knob);
	unsigned int tries, still = 0, r;
	long long sum;

	*stuck = false;
	for (tries = 0; tries < 60000; tries++) {
		if (answered(run->killed ? RANKS - 1 : RANKS, parks ? 1 : 60000))
			return 0;
		if (!parks)
			break;
		for (sum = 0, r = 0; r < RANKS; r++)
			if (concerns(run, r))
				sum += raw_knob_get(r, where);
		still = sum ? still + 1 : 0;
		/* What is lost may be found by another interrupt. */
		if (still < (run->f->kind == DROP ? 4 : 1))
			continue;
		if (*stuck && run->f->kind != DROP)
			continue;
		*stuck = true;
		still = 0;
		switch (run->f->kind) {
		case DROP:
			for (r = 0; r < RANKS; r++)
				raw_knob(r, "drop_irq", 0);
			if (team_allreduce(&rescue, tries))
				return complain(run, "the device is broken", 1, 0);
			break;
		case RELEASE:
			raw_knob(run->victim, "release", 1);
			raw_knob(run->victim, "hold", RAW_HOLD_OFF);
			break;
		case ABORT:
			word_bump(&sh->aborts);
			break;
		case KILL:
			run->killed = true;
			kill(pids[run->victim], SIGKILL);
			waitpid(pids[run->victim], NULL, 0);
			pids[run->victim] = 0;
			break;
		default:
			break;
		}
	}
	for (r = 0; r < RANKS; r++)
		ksft_print_msg("rank %u: %s\n", r, sh->text[r]);
	return complain(run, "hangs", 1, 0);
}

/* Has its counter gone down? */
static bool was_met(const struct run *run, bool stuck)
{
	uint32_t times = run->k == EVERY ? BEYOND : times_of(run->f);
	unsigned int r;

	if (!counts_requests(run->f->knob) || (run->f->kind == DROP && stuck))
		return stuck;
	for (r = 0; r < RANKS; r++)
		if (concerns(run, r) && raw_knob_get(r, run->f->knob) < times)
			return true;
	return false;
}

static void arm_all(const struct run *run)
{
	bool every = run->k == EVERY;
	unsigned int r;

	for (r = 0; r < RANKS; r++)
		if (concerns(run, r))
			arm(run->f, r, every ? 0 : run->k, every ? BEYOND : times_of(run->f));
}

/* How much of what could have met the fault each device has let pass. */
static void read_passed(struct run *run)
{
	const char *knob = counts_requests(run->f->knob) ? "skip" : run->f->knob;
	unsigned int r;

	for (r = 0; r < RANKS; r++)
		run->passed[r] = BEYOND - raw_knob_get(r, knob);
}

/* The target with the fault; 0 if all is as it should be. */
static int one(struct run *run)
{
	static struct links before, after;
	bool stuck;
	int bad, r, q;

	if (join(run->f))
		return 1;
	memset(sh->wrong, 0, sizeof(sh->wrong));
	memset(sh->text, 0, sizeof(sh->text));
	sh->step_peer = COLL_NO_RANK;
	if (run->f->checksum)
		links_read(&before);
	arm_all(run);
	give(RUN);
	bad = act(run, &stuck);
	if (!bad) {
		run->met = was_met(run, stuck);
		run->hit_step = raw_knob_get(run->victim, "hit_step");
		run->hit_from = raw_knob_get(run->victim, "hit_from");
		if (run->k == BEYOND)
			read_passed(run);
		give(TELL);
		if (!answered(run->killed ? RANKS - 1 : RANKS, 60000))
			bad = complain(run, "ranks that tell", sh->answers, RANKS);
	}
	if (run->f->checksum) {
		links_read(&after);
		for (r = 0; r < RANKS; r++)
			for (q = 0; q < RANKS; q++)
				run->damaged[r][q] = after.damaged[r][q] - before.damaged[r][q];
	}
	if (bad)
		end_ranks();
	else
		bad = judge(run);
	if (bad || (run->met && expected[run->f->kind].status))
		joined = false;
	raw_knobs_reset(RANKS);
	for (r = 0; r < RANKS; r++)
		if (!RAW_EVENTUALLY(!raw_knob_get(r, "held") && !raw_knob_get(r, "lost")))
			bad += complain(run, "kept by device", r, -1);
	return bad;
}

/* ---- all of them ------------------------------------------------------------------------ */

/* How many times a knob could act on each device; found once. */
static int count(const struct fault *f, uint32_t n[RANKS])
{
	static struct {
		bool known;
		uint32_t n[RANKS];
	} found[ARRAY_SIZE(knobs)][2][TARGETS][2], *of;
	struct run run = { .f = f, .k = BEYOND };
	unsigned int i;
	int bad = 0;

	for (i = 0; strcmp(knobs[i], f->knob); i++)
		;
	of = &found[i][f->checksum][sh->target][sh->large];
	if (!of->known) {
		/* Nothing shall pass. */
		slower = 6;
		bad = one(&run);
		slower = 0;
		if (run.met)
			bad += complain(&run, "met", 1, 0);
		memcpy(of->n, run.passed, sizeof(of->n));
		of->known = !bad;
	}
	memcpy(n, of->n, sizeof(of->n));
	return bad;
}

static unsigned int seed;

static uint32_t any(uint32_t n)
{
	return (rand_r(&seed) >> 8) % n;
}

static int inject(const struct fault *f, unsigned int victim, uint32_t k, uint32_t n, bool *met)
{
	struct run run;
	int bad;

	/* A busy machine may let a deadline pass before the fault is met: then once more. */
	for (slower = 0; ; slower += 2) {
		run = (struct run){ .f = f, .victim = victim, .k = k, .n = n };
		bad = one(&run);
		/* Interrupts that come at the same time are one. */
		if (!bad && !run.met && f->kind != DUP && (k < n || k == EVERY))
			bad += complain(&run, "met", 0, 1);
		if (!bad || f->kind != DEADLINE || slower == 4)
			break;
	}
	slower = 0;
	counts[f - faults].injected++;
	counts[f - faults].met += run.met;
	if (met)
		*met = run.met;
	return bad;
}

/* The fault in sh->target. */
static int sweep(const struct fault *f)
{
	bool soak = getenv("NPULINK_SOAK"), slow = getenv("NPULINK_SLOW"), met;
	uint32_t n[RANKS], k, ks[4], nks = 0;
	unsigned int victim = any(RANKS), i;
	int bad = count(f, n);

	for (i = 0; i < RANKS && !n[victim]; i++)
		victim = (victim + 1) % RANKS;
	if (bad || !n[victim]) {
		/* A barrier moves no bytes, and what is small is done without interrupts. */
		if (!bad && sh->target != NPULINK_COLL_BARRIER && sh->large)
			bad = complain(&(struct run){ .f = f }, "requests", 0, 1);
		return bad;
	}
	counts[f - faults].targets++;
	for (i = 0; soak && i < RANKS; i++) {
		unsigned int v = (victim + i) % RANKS;

		/* Deadlines take their time. */
		if (f->kind == DEADLINE && i)
			break;
		for (k = 0, met = n[v]; met && !bad && k < 2 * n[v] + 16; k++)
			bad = inject(f, v, k, n[v], &met);
	}
	if (soak)
		return bad;
	ks[nks++] = 0;
	if (n[victim] > 1)
		ks[nks++] = n[victim] - 1;
	if (n[victim] > 2)
		ks[nks++] = 1 + any(n[victim] - 2);
	if (f->kind <= DROP)
		ks[nks++] = EVERY;
	if (slow || f->kind == DEADLINE) {
		ks[0] = ks[any(nks)];
		nks = 1;
	}
	for (i = 0; i < nks && !bad; i++)
		bad += inject(f, victim, ks[i], n[victim], NULL);
	return bad;
}

static int sweep_all(const struct fault *f)
{
	bool soak = getenv("NPULINK_SOAK"), slow = getenv("NPULINK_SLOW");
	/* Without interrupts, the engine answers at once. */
	bool interrupts = f->kind == DUP || f->kind == DROP;
	/* Others turn out the next time, and those with checksums are not those without. */
	unsigned int t, part = any(4);
	int bad = 0;

	for (t = 0; t < TARGETS; t++) {
		if (!soak && (slow ? t % 4 != part : (t + f->checksum + part) % 2))
			continue;
		sh->target = t;
		sh->large = interrupts || soak || any(4);
		bad += sweep(f);
		if (!soak || interrupts)
			continue;
		sh->large = false;
		bad += sweep(f);
	}
	return bad;
}

int main(void)
{
	long before = raw_pages_pinned();
	char inline_max[24];
	unsigned int i, r;
	int bad, status;

	ksft_print_header();
	if (!have_device() || access(RAW_KNOBS, W_OK))
		ksft_exit_skip("no /dev/npulink/npu0, or no debugfs\n");
	ksft_set_plan(FAULTS + 2);
	seed = getenv("NPULINK_SEED") ? strtoul(getenv("NPULINK_SEED"), NULL, 0) : raw_now() >> 10;
	ksft_print_msg("NPULINK_SEED=%u\n", seed);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ranks = ranks_new(RANKS);
	ranks->config.copy_max = COPY_MAX;
	snprintf(inline_max, sizeof(inline_max), "%lld", raw_read(RAW_INLINE_MAX));
	raw_write(RAW_INLINE_MAX, INLINE_MAX);
	raw_knobs_reset(RANKS);
	if (team_open(&rescue, RANKS, RANKS, 1 << 14))
		ksft_exit_fail_msg("cannot open the devices\n");
	for (i = 0; i < FAULTS; i++) {
		uint64_t begin = raw_now();

		bad = sweep_all(&faults[i]);
		ksft_test_result(!bad && counts[i].met, "%s: %u injected, %u met, %u ms\n",
				 faults[i].name, counts[i].injected, counts[i].met,
				 (unsigned int)((raw_now() - begin) / 1000000));
	}
	ksft_print_msg("| fault | in | injected | met | all ranks see |\n");
	ksft_print_msg("| --- | ---: | ---: | ---: | --- |\n");
	for (i = 0; i < FAULTS; i++)
		ksft_print_msg("| %s | %u | %u | %u | %s |\n", faults[i].name, counts[i].targets,
			       counts[i].injected, counts[i].met, faults[i].sees);
	give(QUIT);
	for (bad = 0, r = 0; r < RANKS; r++) {
		bad += pids[r] && (waitpid(pids[r], &status, 0) != pids[r] || status);
		pids[r] = 0;
	}
	ksft_test_result(!bad, "the ranks end\n");
	team_close(&rescue);
	raw_write(RAW_INLINE_MAX, inline_max);
	ksft_test_result(RAW_EVENTUALLY(raw_pages_pinned() <= before), "nothing stays pinned\n");
	ksft_finished();
}
