// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_model.c - random programs of libcoll's calls, run by processes of several threads
 * and checked against a model that knows what each call has to answer: the data of those
 * that succeed, and of those that fail the error, its cause, who is to blame, and what
 * all later calls get.
 *
 * Threads with the same number in all processes run the same program, a track: they draw
 * the same numbers, so each knows the whole state, also of communicators that its process
 * is not in. What may differ between ranks (when, in which order, on which device) is
 * drawn from numbers of a rank's own. At the end of a round a process is killed. All the
 * time the kernel looks for processes that wait for each other, and must not find any. Devices
 * complete late for a while, or interrupt twice, which may change no answer.
 *
 * NPULINK_SEED=N repeats a run, as far as time allows; NPULINK_SECONDS=N: how long.
 *
 * npulink-test: ndev=8 timeout=90
 */
#include "coll_ranks.h"
#include "coll_cases.h"
#include "lib/run/comm.h"

#define RANKS		5
#define TRACKS		2
#define SLOTS		3	/* communicators of a track at a time */
#define STATEMENTS	30	/* of a track in a round */
#define NOBODY		RANKS

enum what {
	NEW, CALL, BURST, GROUP, BAD, DIFFER, ABORT, LEAVE, LATE, SHRINK, AGAIN, KNOB, DEFAULT,
	LARGE, MIDDLE, WHATS
};

static const char * const what_names[] = {
	"communicators made", "collectives", "requests in flight together", "groups",
	"bad arguments", "calls that differ", "aborts", "ranks that left", "deadlines",
	"shrunk communicators", "calls after a failure", "devices made slow, or to stutter",
	"default deadlines", "large collectives, which all ranks run together",
	"of them, aborted in the middle",
};

/* Shared by all processes. */
struct world {
	uint64_t seed;
	struct coll_unique_id id[TRACKS][2 * STATEMENTS], all;
	unsigned int met[TRACKS][2 * STATEMENTS], met_all;
	bool bad;
	char text[1200];
	uint64_t done[WHATS], deaths;
};

/* A communicator as the model has it. */
struct slot {
	struct coll_comm *comm;		/* NULL if this process is not in it */
	unsigned int n, self;
	unsigned int member[RANKS];	/* rank there -> process */
	bool used;
	int status;
	const char *cause;
	unsigned int blame;		/* rank of whom it is about, or NOBODY */
	unsigned int gone;		/* rank that left, or NOBODY */
	unsigned int code;
	uint32_t named[2];		/* collectives that a mismatch has to name */
};

struct track {
	struct world *w;
	unsigned int process, number, meetings, ids, statement;
	const char *doing;
	uint64_t common, own;
	struct slot slot[SLOTS];
	int rc;
};

/* ---- numbers, and what went wrong first */

static unsigned int draw_from(uint64_t *state, unsigned int below)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*state >> 33) % below;
}

static unsigned int draw(struct track *t, unsigned int below)
{
	return draw_from(&t->common, below);
}

static unsigned int draw_own(struct track *t, unsigned int below)
{
	return draw_from(&t->own, below);
}

__attribute__((format(printf, 2, 3)))
static int wrong(struct track *t, const char *fmt, ...)
{
	bool no = false;
	int n;
	va_list ap;

	if (!__atomic_compare_exchange_n(&t->w->bad, &no, true, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return -1;
	n = snprintf(t->w->text, sizeof(t->w->text), "process %u, track %u, statement %u (%s): ",
		     t->process, t->number, t->statement, t->doing);
	va_start(ap, fmt);
	vsnprintf(t->w->text + n, sizeof(t->w->text) - n, fmt, ap);
	va_end(ap);
	return -1;
}

static void did(struct track *t, const struct slot *s, enum what what)
{
	if (s->comm && !s->self)
		__atomic_fetch_add(&t->w->done[what], 1, __ATOMIC_RELAXED);
}

/*
 * All members come here before any of them goes on, by other means than npulink: what they
 * have called before is over on all of them.
 */
static int meet_at(struct world *w, unsigned int *met, unsigned int n)
{
	__atomic_fetch_add(met, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(met, __ATOMIC_SEQ_CST) < n) {
		if (__atomic_load_n(&w->bad, __ATOMIC_SEQ_CST))
			return -1;
		usleep(100);
	}
	return 0;
}

static int meet(struct track *t, const struct slot *s)
{
	unsigned int *met = &t->w->met[t->number][t->meetings++];

	return s->comm ? meet_at(t->w, met, s->n) : 0;
}

/* ---- what is expected */

static int expect_status(struct track *t, const struct slot *s)
{
	const char *text = coll_comm_last_error(s->comm);
	struct coll_state state = COLL_STATE_INIT;

	if (coll_comm_status(s->comm, &state))
		return wrong(t, "coll_comm_status: %s", text);
	if (state.status != s->status || strcmp(state.cause, s->cause) || state.code != s->code)
		return wrong(t, "status %d, cause %s, code %u; expected %d, %s, %u", state.status,
			     state.cause, state.code, s->status, s->cause, s->code);
	/* Whom it is about is the place where it arose with an abort, else the peer. */
	if (s->blame != NOBODY && (strcmp(s->cause, "abort") ? state.peer : state.rank) != s->blame)
		return wrong(t, "rank %u, peer %u; expected %u; %s", state.rank, state.peer,
			     s->blame, text);
	for (int i = 0; s->status == -EPROTO && i < 2; i++)
		if (!strstr(text, trial_names[s->named[i]]))
			return wrong(t, "no word of %s: %s", trial_names[s->named[i]], text);
	return 0;
}

/* A call in which all take part, on a communicator that has failed or just does. */
static int expect_failure(struct track *t, struct slot *s)
{
	int rc = coll_barrier(s->comm);

	if (rc != s->status)
		return wrong(t, "barrier: %d instead of %d: %s", rc, s->status,
			     coll_comm_last_error(s->comm));
	return expect_status(t, s);
}

static struct coll_case draw_case(struct track *t, const struct slot *s)
{
	static const size_t counts[] = { 0, 1, 3, 37, 500, 4000, 15000 };
	struct coll_case c = {
		.collective = draw(t, NPULINK_COLL_BARRIER + 1),
		.count = counts[draw(t, 7)],
		.dtype = draw(t, 12),
		.op = draw(t, 5),
		.in_place = draw(t, 2),
		.form = draw(t, CASE_FORMS),
		.root = draw(t, RANKS),
	};

	c.root = trial_rooted(c.collective) ? c.root % s->n : 0;
	return c;
}

/* ---- statements; every process draws the same, members act */

static void fail(struct slot *s, int status, const char *cause, unsigned int blame)
{
	s->status = status;
	s->cause = cause;
	s->blame = blame;
}

static int destroy(struct track *t, struct slot *s)
{
	int rc = coll_comm_destroy(s->comm);

	if (rc)
		return wrong(t, "destroy: %d, %s", rc, coll_comm_last_error(s->comm));
	*s = (struct slot){};
	return 0;
}

/* Long enough for a busy machine, or what the library thinks is. */
static uint64_t patience(void)
{
	return getenv("NPULINK_SLOW") ? 120000000000ULL : 30000000000ULL;
}

static uint64_t draw_deadline(struct track *t)
{
	if (draw(t, 3))
		return patience();
	return COLL_DEADLINE_AUTO;
}

static int make(struct track *t, struct slot *s, uint64_t deadline_ns)
{
	struct coll_config config = COLL_CONFIG_INIT;
	const struct coll_unique_id *id = &t->w->id[t->number][t->ids++];
	unsigned int i, k, who, of[RANKS];
	bool checksum = !draw(t, 4);
	char text[400] = "", device[8];
	int rc;

	if (destroy(t, s))
		return -1;
	for (i = 0; i < RANKS; i++)
		of[i] = i;
	for (i = 0; i < RANKS; i++) {
		k = i + draw(t, RANKS - i);
		who = of[k];
		of[k] = of[i];
		of[i] = who;
	}
	*s = (struct slot){ .used = true, .blame = NOBODY, .gone = NOBODY };
	s->n = draw(t, 8) ? 2 + draw(t, RANKS - 1) : 1;
	memcpy(s->member, of, sizeof(of));
	for (s->self = 0; s->self < s->n && of[s->self] != t->process; s->self++)
		;
	if (s->self == s->n)
		return 0;
	config.flags = checksum ? COLL_CHECKSUM : 0;
	config.deadline_ns = deadline_ns;
	config.error_text = text;
	config.error_size = sizeof(text);
	snprintf(device, sizeof(device), "npu%u", draw_own(t, 8));
	config.device = draw_own(t, 2) ? device : NULL;
	config.share = t->slot[draw_own(t, SLOTS)].comm;
	rc = coll_comm_init_rank(&s->comm, s->n, id, s->self, &config);
	if (rc)
		return wrong(t, "init: %d, %s", rc, text);
	if (coll_comm_rank(s->comm) != s->self || coll_comm_size(s->comm) != s->n)
		return wrong(t, "rank %u of %u", coll_comm_rank(s->comm), coll_comm_size(s->comm));
	did(t, s, NEW);
	if (deadline_ns == COLL_DEADLINE_AUTO)
		did(t, s, DEFAULT);
	return 0;
}

/* Of all devices, whoever uses them. */
static void knob(unsigned int device, const char *name, unsigned int value)
{
	char path[80];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/npulink_soft/npu%u/%s", device, name);
	f = fopen(path, "we");
	if (!f)
		return;
	fprintf(f, "%u", value);
	fclose(f);
}

/* A device whose completions come late, or twice; or well again. */
static int turn_knob(struct track *t)
{
	unsigned int device = draw_own(t, 8);

	if (t->process != draw(t, RANKS))
		return 0;
	switch (draw_own(t, 4)) {
	case 0:
		knob(device, "delay_ns", 1000 + draw_own(t, 300000));
		break;
	case 1:
		knob(device, "dup_irq", 1 + draw_own(t, 50));
		break;
	default:
		knob(device, "delay_ns", 0);
	}
	__atomic_fetch_add(&t->w->done[KNOB], 1, __ATOMIC_RELAXED);
	return 0;
}

static int one_call(struct track *t, struct slot *s)
{
	const struct coll_case c = draw_case(t, s);
	char text[900];

	if (!s->comm)
		return 0;
	did(t, s, CALL);
	return trial_run(s->comm, &c, text, sizeof(text)) ? wrong(t, "%s", text) : 0;
}

/* Of what can be run in one go, so much that all ranks do it together (core/run/round.c). */
static struct coll_case draw_large(struct track *t, const struct slot *s)
{
	static const uint32_t colls[] = {
		NPULINK_COLL_ALLREDUCE, NPULINK_COLL_REDUCE, NPULINK_COLL_BROADCAST,
		NPULINK_COLL_ALLGATHER, NPULINK_COLL_REDUCE_SCATTER, NPULINK_COLL_ALLTOALL,
	};
	struct coll_case c = draw_case(t, s);

	c.collective = colls[draw(t, ARRAY_SIZE(colls))];
	c.root = trial_rooted(c.collective) ? draw(t, RANKS) % s->n : 0;
	c.count = ((256 << 10) + draw(t, 100000)) / coll_dtype_size(c.dtype);
	return c;
}

/*
 * The same several times: the first one only shows how. Then one of the ranks may abort, at any
 * moment of another one, which ends well or with that.
 */
static int large(struct track *t, struct slot *s)
{
	struct coll_case c = draw_large(t, s);
	unsigned int times = 2 + draw(t, 3), who = draw(t, RANKS) % s->n, code = draw(t, 1000);
	bool aborts = !draw(t, 3);
	struct trial_run run;
	char text[900];
	int rc;

	if (aborts) {
		fail(s, -ECANCELED, "abort", who);
		s->code = code;
	}
	for (unsigned int i = 0; s->comm && i < times; i++) {
		did(t, s, LARGE);
		if (trial_run(s->comm, &c, text, sizeof(text)))
			return wrong(t, "%s", text);
	}
	if (!aborts)
		return 0;
	if (meet(t, s) || !s->comm)
		return s->comm ? -1 : 0;
	did(t, s, MIDDLE);
	c.form = s->self == who || draw_own(t, 2) ? CASE_REQUEST : CASE_BLOCKING;
	rc = trial_begin(s->comm, &c, &run);
	if (s->self == who) {
		usleep(draw_own(t, 4000));
		coll_comm_abort(s->comm, code);
	}
	rc = rc ? rc : trial_wait(&run);
	if (rc && rc != -ECANCELED)
		return wrong(t, "aborted: %d, %s", rc, coll_comm_last_error(s->comm));
	c.form = CASE_BLOCKING;
	if (trial_end(s->comm, &run, rc, text, sizeof(text)) && !rc)
		return wrong(t, "%s", text);
	return expect_failure(t, s);
}

/* Requests on all communicators at once: each rank has its own order of starting and waiting. */
static int burst(struct track *t)
{
	struct coll_case c[SLOTS][3];
	struct trial_run run[SLOTS * 3];
	struct slot *of[SLOTS * 3];
	unsigned int left[SLOTS], sum = 0, n = 0, i;
	char text[900];

	for (i = 0; i < SLOTS; i++) {
		struct slot *s = &t->slot[i];

		left[i] = 0;
		if (!s->used || s->status)
			continue;
		for (unsigned int k = 0; k < 3; k++) {
			c[i][k] = draw_case(t, s);
			if (c[i][k].form == CASE_BLOCKING)
				c[i][k].form = CASE_REQUEST;
		}
		left[i] = s->comm ? 3 : 0;
		sum += left[i];
	}
	while (n < sum) {
		do
			i = draw_own(t, SLOTS);
		while (!left[i]);
		of[n] = &t->slot[i];
		did(t, of[n], BURST);
		if (trial_begin(of[n]->comm, &c[i][3 - left[i]--], &run[n]))
			return wrong(t, "start: %s", coll_comm_last_error(of[n]->comm));
		n++;
	}
	while (n) {
		i = draw_own(t, n--);
		if (trial_end(of[i]->comm, &run[i], 0, text, sizeof(text)))
			return wrong(t, "%s", text);
		run[i] = run[n];
		of[i] = of[n];
	}
	return 0;
}

/* Sends along a permutation, and a collective, in one group. */
static int group(struct track *t, struct slot *s)
{
	struct coll_case c = draw_case(t, s);
	unsigned int by = draw(t, RANKS) % s->n, count = draw(t, 5000), to, from;
	static __thread int32_t out[5000], in[5000];
	struct coll_comm *comm = s->comm;
	struct trial_run run;
	char text[900];
	int rc, call;

	if (!comm)
		return 0;
	to = (s->self + by) % s->n;
	from = (s->self + s->n - by) % s->n;
	for (unsigned int i = 0; i < count; i++) {
		out[i] = (int)(1000 * s->self + i);
		in[i] = -1;
	}
	c.form = CASE_BLOCKING;
	rc = coll_group_start(comm);
	rc = rc ? rc : coll_send(comm, out, count, COLL_INT32, to);
	call = trial_begin(comm, &c, &run);
	rc = rc ? rc : coll_recv(comm, in, count, COLL_INT32, from);
	rc = rc ? rc : coll_group_end(comm);
	if (rc)
		return wrong(t, "group: %d, %s", rc, coll_comm_last_error(comm));
	if (trial_end(comm, &run, call, text, sizeof(text)))
		return wrong(t, "%s", text);
	for (unsigned int i = 0; i < count; i++)
		if (in[i] != (int)(1000 * from + i))
			return wrong(t, "received %d as number %u of rank %u", in[i], i, from);
	did(t, s, GROUP);
	return 0;
}

/* Only the rank that makes the mistake hears of it. */
static int bad_arguments(struct track *t, struct slot *s)
{
	unsigned int who = draw(t, RANKS) % s->n;
	static int64_t buf[8];
	int rc;

	if (!s->comm || s->self != who)
		return 0;
	switch (draw_own(t, 5)) {
	case 0:
		rc = coll_broadcast(s->comm, buf, buf, 1, COLL_INT64, s->n);
		break;
	case 1:
		rc = coll_allreduce(s->comm, buf, buf, 1, 12, COLL_SUM);
		break;
	case 2:
		rc = coll_allreduce(s->comm, buf, buf, 1, COLL_INT64, 5);
		break;
	case 3:
		rc = coll_allreduce(s->comm, (char *)buf + 1, (char *)buf + 17, 1, COLL_INT64,
				    COLL_SUM);
		break;
	default:
		rc = coll_send(s->comm, buf, 1, COLL_INT64, s->n + 7);
	}
	if (rc != -EINVAL || !*coll_comm_last_error(s->comm))
		return wrong(t, "%d, %s", rc, coll_comm_last_error(s->comm));
	__atomic_fetch_add(&t->w->done[BAD], 1, __ATOMIC_RELAXED);
	return 0;
}

/* One rank calls something else. Those that need nobody who differs may succeed. */
static int differ(struct track *t, struct slot *s)
{
	struct coll_case c = draw_case(t, s), other;
	unsigned int who = draw(t, RANKS) % s->n, how = draw(t, 5), by = 1 + draw(t, 20);
	struct trial_run run;
	char text[900];
	int rc;

	if (s->n == 1)
		return 0;
	/* With counts for each rank, two ranks may have nothing to do with each other. */
	if (trial_has_v(c.collective))
		c.collective--;
	c.count++;
	c.form = CASE_BLOCKING;
	other = c;
	if (c.collective == NPULINK_COLL_BARRIER)
		how = 0;
	if ((how == 3 && !trial_reduces(c.collective)) || (how == 4 && !trial_rooted(c.collective)))
		how = 1;
	if (how == 0) {
		do
			other.collective = (other.collective + by) % (NPULINK_COLL_BARRIER + 1);
		while (trial_has_v(other.collective) || (other.collective == c.collective && by++));
		other.root = trial_rooted(other.collective) ? c.root : 0;
	} else if (how == 1) {
		other.count += by;
	} else if (how == 2) {
		other.dtype = (c.dtype + 1 + by % 11) % 12;
	} else if (how == 3) {
		other.op = (c.op + 1 + by % 4) % 5;
	} else {
		other.root = (c.root + 1 + by % (s->n - 1)) % s->n;
	}
	fail(s, -EPROTO, "mismatch", NOBODY);
	s->named[0] = c.collective;
	s->named[1] = other.collective;
	if (meet(t, s) || !s->comm)
		return s->comm ? -1 : 0;
	rc = trial_begin(s->comm, s->self == who ? &other : &c, &run);
	if (rc && rc != -EPROTO)
		return wrong(t, "%s differs from %s in %u: %d, %s", trial_names[other.collective],
			     trial_names[c.collective], how, rc, coll_comm_last_error(s->comm));
	if (trial_end(s->comm, &run, rc, text, sizeof(text)) && !rc)
		return wrong(t, "%s", text);
	did(t, s, DIFFER);
	return expect_failure(t, s);
}

static int abort_it(struct track *t, struct slot *s)
{
	unsigned int who = draw(t, RANKS) % s->n, code = draw(t, 1000);

	fail(s, -ECANCELED, "abort", who);
	s->code = code;
	if (meet(t, s) || !s->comm)
		return s->comm ? -1 : 0;
	if (s->self == who) {
		usleep(draw_own(t, 3000));
		coll_comm_abort(s->comm, code);
	}
	did(t, s, ABORT);
	return expect_failure(t, s);
}

static int leave(struct track *t, struct slot *s)
{
	unsigned int who = draw(t, RANKS) % s->n;

	if (s->n == 1)
		return 0;
	fail(s, -ESHUTDOWN, "left", who);
	s->gone = who;
	if (meet(t, s) || !s->comm)
		return s->comm ? -1 : 0;
	did(t, s, LEAVE);
	if (s->self != who)
		return expect_failure(t, s);
	usleep(draw_own(t, 3000));
	if (coll_comm_destroy(s->comm))
		return wrong(t, "destroy: %s", coll_comm_last_error(s->comm));
	s->comm = NULL;
	return 0;
}

/* A new communicator, as all of it fails: one rank comes when the others have given up. */
static int late(struct track *t, struct slot *s)
{
	unsigned int who;

	if (make(t, s, 150000000))
		return -1;
	who = draw(t, RANKS) % s->n;
	if (s->n == 1)
		return 0;
	fail(s, -ETIMEDOUT, "deadline", NOBODY);
	/* Who joins when it has failed is told so at once. */
	if (meet(t, s) || (s->comm && s->self != who && expect_failure(t, s)) || meet(t, s))
		return -1;
	if (!s->comm)
		return 0;
	did(t, s, LATE);
	return s->self == who ? expect_failure(t, s) : 0;
}

/* Those who are left, in their old order. */
static int shrink(struct track *t, struct slot *s)
{
	struct slot old = *s;
	bool first = draw_own(t, 2);
	struct coll_config config = COLL_CONFIG_INIT;
	int rc = 0;

	*s = (struct slot){ .used = true, .blame = NOBODY, .gone = NOBODY };
	for (unsigned int i = 0; i < old.n; i++) {
		if (i == old.gone)
			continue;
		if (i == old.self)
			s->self = s->n;
		s->member[s->n++] = old.member[i];
	}
	if (!old.comm)
		return 0;
	config.deadline_ns = patience();
	rc = coll_comm_shrink(old.comm, &s->comm, &config);
	if (rc)
		return wrong(t, "shrink: %d, %s", rc, coll_comm_last_error(old.comm));
	if (coll_comm_rank(s->comm) != s->self || coll_comm_size(s->comm) != s->n)
		return wrong(t, "rank %u of %u instead of %u of %u", coll_comm_rank(s->comm),
			     coll_comm_size(s->comm), s->self, s->n);
	did(t, s, SHRINK);
	if (first && coll_barrier(s->comm))
		return wrong(t, "shrunk: %s", coll_comm_last_error(s->comm));
	return coll_comm_destroy(old.comm) ? wrong(t, "destroy of a failed one") :
	       !first && coll_barrier(s->comm) ? wrong(t, "shrunk, and the old one destroyed: %s",
						       coll_comm_last_error(s->comm)) : 0;
}

static int statement(struct track *t)
{
	struct slot *s = &t->slot[draw(t, SLOTS)];
	unsigned int what = draw(t, 24);

#define DO(name, call) (t->doing = what_names[name], call)
	if (what > 21)
		return DO(KNOB, turn_knob(t));
	if (!s->used)
		return DO(NEW, make(t, s, draw_deadline(t)));
	if (s->status && what < 8)
		return DO(SHRINK, shrink(t, s));
	if (s->status && what < 12) {
		did(t, s, AGAIN);
		return s->comm ? DO(AGAIN, expect_failure(t, s)) : 0;
	}
	if (s->status)
		return DO(NEW, make(t, s, draw_deadline(t)));
	switch (what) {
	case 0:
		return DO(NEW, make(t, s, draw_deadline(t)));
	case 1:
	case 2:
		return DO(DIFFER, differ(t, s));
	case 3:
		return DO(ABORT, abort_it(t, s));
	case 4:
		return DO(LEAVE, leave(t, s));
	case 5:
		return DO(LATE, late(t, s));
	case 6:
	case 7:
		return DO(BAD, bad_arguments(t, s));
	case 8:
	case 9:
	case 10:
		return DO(GROUP, group(t, s));
	case 11:
	case 12:
	case 13:
		return DO(BURST, burst(t));
	case 14:
	case 15:
		return DO(LARGE, large(t, s));
	default:
		return DO(CALL, one_call(t, s));
	}
#undef DO
}

static void *track_run(void *arg)
{
	struct track *t = arg;

	for (t->statement = 0; t->statement < STATEMENTS && !t->rc; t->statement++)
		t->rc = statement(t);
	return NULL;
}

/* ---- the end of a round: one is killed, and the others find that out everywhere */

static int killed_in_the_middle(struct track *t, struct coll_comm *all, unsigned int victim)
{
	struct slot s = { .comm = all, .n = RANKS, .self = t->process, .used = true };
	unsigned int calls = draw(t, 40);
	static int64_t buf[60000];
	/* Either it does so itself, between two calls, or somebody else, in the middle of any. */
	bool together = draw(t, 2);
	int rc = 0;

	t->doing = together ? "a death in the middle of what all do together" : "a death";
	for (unsigned int i = 0; i < RANKS; i++)
		s.member[i] = i;
	if (together && t->process == victim && !fork()) {
		usleep(draw_own(t, 100000));
		kill(getppid(), SIGKILL);
		_exit(0);
	}
	for (unsigned int i = 0; !rc; i++) {
		if (!together && t->process == victim && i == calls)
			raise(SIGKILL);
		rc = coll_allreduce(all, COLL_IN_PLACE, buf,
				    together ? ARRAY_SIZE(buf) : 1 + 77 * (i % 30), COLL_INT64,
				    COLL_MAX);
	}
	fail(&s, -EOWNERDEAD, "death", victim);
	s.code = SIGKILL;
	s.gone = victim;
	if (rc != s.status)
		return wrong(t, "allreduce: %d, %s", rc, coll_comm_last_error(all));
	if (expect_status(t, &s) || shrink(t, &s))
		return -1;
	for (int i = 0; i < 3; i++)
		if (one_call(t, &s))
			return -1;
	return coll_comm_destroy(s.comm) ? wrong(t, "destroy") : 0;
}

/* Whoever shares a communicator with the dead one knows, whoever does not goes on. */
static int aftermath(struct track *t, unsigned int victim)
{
	t->doing = "after a death";
	for (unsigned int i = 0; i < SLOTS; i++) {
		struct slot *s = &t->slot[i];

		for (unsigned int k = 0; s->used && !s->status && k < s->n; k++) {
			if (s->member[k] != victim)
				continue;
			fail(s, -EOWNERDEAD, "death", k);
			s->code = SIGKILL;
		}
		if (!s->comm)
			continue;
		if (s->status ? expect_failure(t, s) : coll_barrier(s->comm))
			return wrong(t, "barrier: %s", coll_comm_last_error(s->comm));
		if (destroy(t, s))
			return -1;
	}
	return 0;
}

static int process_run(struct world *w, unsigned int process, unsigned int victim)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct track track[TRACKS] = {};
	struct coll_comm *all;
	pthread_t thread[TRACKS];
	unsigned int i;
	int rc = 0;

	config.deadline_ns = patience();
	if (coll_comm_init_rank(&all, RANKS, &w->all, process, &config))
		return -1;
	for (i = 0; i < TRACKS; i++) {
		track[i] = (struct track){
			.w = w, .process = process, .number = i, .common = w->seed * 31 + i,
			.own = w->seed * 977 + 13 * process + i,
		};
		pthread_create(&thread[i], NULL, track_run, &track[i]);
	}
	for (i = 0; i < TRACKS; i++) {
		pthread_join(thread[i], NULL);
		rc |= track[i].rc;
	}
	/* Who still has to join a communicator would find it failed. */
	rc = rc ? rc : meet_at(w, &w->met_all, RANKS);
	rc = rc ? rc : killed_in_the_middle(&track[0], all, victim);
	for (i = 0; i < TRACKS && !rc; i++)
		rc = aftermath(&track[i], victim);
	return rc;
}

static bool round_of(struct world *w)
{
	unsigned int victim = w->seed % RANKS;
	pid_t pid[RANKS];
	int status;

	memset(w->met, 0, sizeof(w->met));
	w->met_all = 0;
	coll_get_unique_id(&w->all);
	for (unsigned int i = 0; i < TRACKS * 2 * STATEMENTS; i++)
		coll_get_unique_id(&w->id[0][0] + i);
	fflush(stdout);
	for (unsigned int i = 0; i < RANKS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			alarm(getenv("NPULINK_SLOW") ? 500 : 80);
			_exit(process_run(w, i, victim) ? 1 : 0);
		}
	}
	for (unsigned int i = 0; i < RANKS; i++) {
		bool well = waitpid(pid[i], &status, 0) == pid[i];

		well = well && (i == victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL :
				WIFEXITED(status) && !WEXITSTATUS(status));
		if (!well && !w->bad) {
			w->bad = true;
			snprintf(w->text, sizeof(w->text), "process %u ended with status %x", i,
				 status);
		}
	}
	w->deaths++;
	if (w->bad)
		ksft_print_msg("NPULINK_SEED=%llu: %s\n", (unsigned long long)w->seed, w->text);
	return !w->bad;
}

/* As often as can be: any circle that is found here is none. Returns what was set. */
static int search_for_deadlocks(int every_ms)
{
	FILE *f = fopen("/sys/module/npulink/parameters/deadlock_ms", "r+e");
	int old = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &old) == 1) {
		rewind(f);
		fprintf(f, "%d", every_ms);
	}
	fclose(f);
	return old;
}

int main(void)
{
	const char *seconds = getenv("NPULINK_SECONDS"), *seed = getenv("NPULINK_SEED");
	uint64_t end, rounds = 0;
	bool well = true;
	struct world *w;
	int search_ms;

	ksft_print_header();
	if (!have_device())
		ksft_exit_skip("no device\n");
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w->seed = seed ? strtoull(seed, NULL, 0) : now_ms() ^ (uint64_t)getpid() << 20;
	ksft_set_plan(1);
	ksft_print_msg("NPULINK_SEED=%llu\n", (unsigned long long)w->seed);
	end = now_ms() + 1000 * (seconds ? atoi(seconds) : getenv("NPULINK_SOAK") ? 600 : 8);
	search_ms = search_for_deadlocks(1);
	while (well && (!rounds++ || now_ms() < end)) {
		well = round_of(w);
		w->seed++;
	}
	search_for_deadlocks(search_ms);
	for (unsigned int i = 0; i < 8; i++) {
		knob(i, "delay_ns", 0);
		knob(i, "dup_irq", 0);
	}
	for (int i = 0; i < WHATS; i++)
		ksft_print_msg("%8llu %s\n", (unsigned long long)w->done[i], what_names[i]);
	ksft_print_msg("%8llu processes killed, in as many rounds\n",
		       (unsigned long long)w->deaths);
	ksft_test_result(well, "random programs do what the model says\n");
	ksft_exit(well);
}
