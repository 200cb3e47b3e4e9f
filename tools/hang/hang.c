// SPDX-License-Identifier: GPL-2.0
/*
 * hang.c - npulink hang: which rank does everybody wait for, and what does it do instead?
 *
 * For each communicator: if it failed, why. If an operation is older than a limit: ranks
 * that have not called it are to blame; if all have, who waits for whom is followed to
 * a rank that waits for nobody, whose engine or link it then is. All this is known to the
 * kernel, so it works also when processes are stopped, traced, or blocked. Of ranks on other
 * machines it knows what their kernels answer. If nobody waits, ranks whose processes are
 * stopped, traced or frozen are named: they are why nobody calls anything. A job of which a rank
 * has never come is joining: ranks are missing, or, before there is a communicator, devices are
 * open without one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink_genl.h>
#include "hang/hang.h"

#define EXIT_HANGS	3
#define ASKING_NS	2000000000ULL	/* who waits asks several times a second */

struct seen all;

const struct state_rank *ranks_of(const struct report *rep, size_t *n)
{
	return state_ranks_of(rep->comm->id, all.ranks, all.nranks, n);
}

static const struct state_rank *find_rank(uint32_t comm, uint32_t rank)
{
	size_t n, lo = 0, hi;
	const struct state_rank *ranks = state_ranks_of(comm, all.ranks, all.nranks, &n);

	/* Ordered by rank, of which not all need be here. */
	for (hi = n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (ranks[mid].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && ranks[lo].rank == rank ? &ranks[lo] : NULL;
}

/* The operation of @rank that belongs to @like; their first is the oldest. */
static const struct state_op *find_op(const struct state_op *like, uint32_t rank)
{
	size_t lo = 0, hi = all.nops;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct state_op *o = &all.ops[mid];

		if (o->comm < like->comm || (o->comm == like->comm && o->rank < rank))
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < all.nops && all.ops[lo].comm == like->comm && all.ops[lo].rank == rank; lo++)
		if (all.ops[lo].p2p == like->p2p &&
		    (like->p2p || all.ops[lo].number == like->number))
			return &all.ops[lo];
	return NULL;
}

/* What is known of a rank on another machine: by the connection with the latest answer. */
static const struct state_conn *find_far(uint32_t comm, uint32_t rank)
{
	const struct state_conn *found = NULL;

	for (size_t i = 0; i < all.nconns; i++) {
		const struct state_conn *c = &all.conns[i];

		if (!c->remote || c->comm != comm || c->peer != rank)
			continue;
		if (!found || (c->answered && (!found->answered ||
					       c->status.age < found->status.age)))
			found = c;
	}
	return found;
}

/* What the process of @r waits for in another communicator. */
static const struct state_op *find_elsewhere(const struct state_rank *r)
{
	for (size_t i = 0; r->known && r->pid && i < all.nops; i++) {
		const struct state_rank *other;

		if (all.ops[i].comm == r->comm)
			continue;
		other = find_rank(all.ops[i].comm, all.ops[i].rank);
		if (other && other->known && other->pid == r->pid)
			return &all.ops[i];
	}
	return NULL;
}

static void blame(struct report *rep, uint32_t rank, const char *why, const struct state_wait *wait)
{
	const struct state_rank *at = find_rank(rep->comm->id, rank);
	struct culprit *c;

	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		if (rep->culprits[i].rank == rank)
			return;
	if (rep->nculprits++ >= MAX_CULPRITS)
		return;
	c = &rep->culprits[rep->nculprits - 1];
	*c = (struct culprit) { .rank = rank, .why = why, .at = at, .wait = wait };
	if (!at)
		c->far = find_far(rep->comm->id, rank);
	if (at && !at->gone && at->state != NPULINK_RANK_STATE_DEAD)
		c->elsewhere = find_elsewhere(at);
}

/* NULL: nothing keeps it from running. */
const char *why_held(char state)
{
	switch (state) {
	case 'T':	return "stopped";
	case 'F':	return "frozen";
	case 't':	return "traced";
	default:	return NULL;
	}
}

static const char *why_task(char state)
{
	switch (state) {
	case 'D':	return "blocked";
	case 'Z':
	case 'X':	return "dead";
	default:	return why_held(state) ?: "never-called";
	}
}

/* Why has a rank that is here not called what the others have? */
static const char *why_late(const struct state_rank *r)
{
	struct proc proc;
	const char *why;

	if (r->state == NPULINK_RANK_STATE_LEFT)
		return "left";
	if (r->state == NPULINK_RANK_STATE_DEAD)
		return "dead";
	proc_read_rank(r, &proc);
	why = why_task(proc.state);
	if (strcmp(why, "never-called"))
		return why;
	if (find_elsewhere(r))
		return "waits-elsewhere";
	return r->state == NPULINK_RANK_STATE_AWAITED ? "not-shrunk" : why;
}

/* Is what its kernel has said of before the operation, or has it been silent since? */
static bool is_old(const struct report *rep, const struct state_conn *far)
{
	return far->status.age > ASKING_NS || (rep->op && far->status.age > rep->op->age);
}

/* The same of one that is not here; NULL: it has called it. */
static const char *why_far(const struct report *rep, uint32_t rank, bool remote)
{
	const struct state_conn *far = find_far(rep->comm->id, rank);
	bool called;

	if (!far)
		return remote ? "other-machine" : "not-joined";
	if (far->state == NPULINK_CONN_STATE_CONNECTING)
		return "not-connected";
	if (far->state == NPULINK_CONN_STATE_LEFT)
		return "left";
	if (!far->answered)
		return "other-machine";
	if (is_old(rep, far))
		return rep->op && rep->op->age < ASKING_NS / 4 ? "other-machine" : "not-answered";
	called = far->status.next > rep->number;
	if (rep->op->p2p)
		called = far->status.p2p && far->status.number == rep->number &&
			 far->status.called != NPULINK_CALLED_NOT;
	return called ? NULL : why_task(far->status.task);
}

/* Those that have not called collective @rep->number, if somebody waits for it. */
static void find_lagging(struct report *rep)
{
	const struct state_rank *r;
	size_t n;

	r = ranks_of(rep, &n);
	for (size_t i = 0; i < n; i++, r++)
		if (r->gone || r->next <= rep->number)
			blame(rep, r->rank, why_late(r), NULL);
	/* Others that are waited for have not come, or are on another machine. */
	for (size_t i = 0; i < all.nops; i++) {
		const struct state_op *op = &all.ops[i];

		if (op->comm != rep->comm->id || op->p2p || op->number != rep->number)
			continue;
		for (unsigned int k = 0; k < op->nwaits; k++) {
			const struct state_wait *w = &op->waits[k];

			const char *why;

			/* To one on another machine there is always somebody to talk. */
			if ((w->met && !w->remote) || w->peer == NONE ||
			    find_rank(op->comm, w->peer) ||
			    (w->kind != NPULINK_WAIT_RECV && w->kind != NPULINK_WAIT_SEND))
				continue;
			why = why_far(rep, w->peer, w->remote);
			if (why)
				blame(rep, w->peer, why, NULL);
		}
	}
}

const struct state_wait *root_wait(const struct hop *hop)
{
	for (unsigned int k = 0; k < hop->nwaits; k++)
		if (hop->waits[k].kind == NPULINK_WAIT_ENGINE ||
		    hop->waits[k].kind == NPULINK_WAIT_WORKER)
			return &hop->waits[k];
	return NULL;
}

/* What @rank waits for in the operation that hangs; false: it is not in it, or not known. */
static bool find_hop(const struct report *rep, uint32_t rank, struct hop *hop)
{
	const struct state_op *op = find_op(rep->op, rank);
	const struct state_conn *far = op ? NULL : find_far(rep->comm->id, rank);

	if (op) {
		*hop = (struct hop) { rank, op->steps, op->waits, op->nwaits, 0, NULL };
		return true;
	}
	if (!far || !far->answered || !far->status.waits || is_old(rep, far) ||
	    far->status.number != rep->op->number || far->status.p2p != rep->op->p2p)
		return false;
	*hop = (struct hop) { rank, 0, &far->status.wait, 1, 0, far };
	return true;
}

static void blame_root(struct report *rep, const struct hop *hop, const struct state_wait *w)
{
	if (rep->nculprits)
		return;
	blame(rep, hop->rank, w->kind == NPULINK_WAIT_WORKER ? "not-run" :
	      w->dev != w->peer_dev ? "link" : "engine", w);
}

static bool blamed(const struct report *rep, uint32_t rank)
{
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		if (rep->culprits[i].rank == rank)
			return true;
	return false;
}

/*
 * Where to go from @hop: of several that it waits for, to who is to blame, which is the end, or to
 * one where we have not been. Without either, where we have been: a circle.
 */
static bool follow(const struct report *rep, struct hop *hop, const bool *seen, struct hop *next)
{
	bool known = false;
	struct hop to;

	for (unsigned int k = 0; k < hop->nwaits; k++)
		if (blamed(rep, hop->waits[k].peer)) {
			hop->lead = k;
			return false;
		}
	for (unsigned int k = 0; k < hop->nwaits; k++) {
		uint32_t peer = hop->waits[k].peer;

		if (peer >= rep->comm->nranks || (known && seen[peer]) || !find_hop(rep, peer, &to))
			continue;
		hop->lead = k;
		*next = to;
		known = true;
		if (!seen[peer])
			break;
	}
	return known;
}

/* From the oldest operation to what it hangs on in the end. */
static int find_chain(struct report *rep)
{
	bool *seen = calloc(rep->comm->nranks, sizeof(*seen));
	struct hop hop, next = { };
	const struct state_wait *w;
	bool more;

	rep->chain = calloc(rep->comm->nranks, sizeof(*rep->chain));
	more = seen && rep->chain && find_hop(rep, rep->op->rank, &hop);
	while (more) {
		if (seen[hop.rank]) {
			/* Else it is another branch that ends with who is to blame. */
			rep->circle = !rep->nculprits;
			break;
		}
		seen[hop.rank] = true;
		w = root_wait(&hop);
		more = !w && follow(rep, &hop, seen, &next);
		rep->chain[rep->nchain++] = hop;
		if (w) {
			blame_root(rep, &hop, w);
			break;
		}
		/* A message that its peer has not called. */
		if (!more && hop.nwaits && hop.waits[0].peer != NONE && !rep->nculprits) {
			const struct state_rank *r = find_rank(rep->comm->id, hop.waits[0].peer);
			const char *why = r ? why_late(r) : why_far(rep, hop.waits[0].peer,
								    hop.waits[0].remote);

			blame(rep, hop.waits[0].peer, why ? why : "other-machine", NULL);
		}
		hop = next;
	}
	free(seen);
	return rep->chain ? 0 : -1;
}

static void find_failed(struct report *rep)
{
	const struct state_cause *c = &rep->comm->cause;

	rep->state = "failed";
	switch (c->cause) {
	case NPULINK_CAUSE_DEADLINE:
	case NPULINK_CAUSE_LEFT:
		blame(rep, c->peer != NONE ? c->peer : c->rank,
		      c->cause == NPULINK_CAUSE_LEFT ? "left" : "late", NULL);
		break;
	case NPULINK_CAUSE_MISMATCH:
	case NPULINK_CAUSE_LINK:
	case NPULINK_CAUSE_DEADLOCK:
		blame(rep, c->rank, cause_name(c->cause), NULL);
		if (c->peer != NONE)
			blame(rep, c->peer, cause_name(c->cause), NULL);
		break;
	default:
		blame(rep, c->rank, cause_name(c->cause), NULL);
	}
}

/* Nothing waits here: does anybody on another machine wait for a rank of ours? */
static void find_asked(struct report *rep, uint64_t limit_ns)
{
	for (size_t i = 0; i < all.nconns; i++) {
		const struct state_conn *c = &all.conns[i];
		const struct state_rank *r;

		if (c->comm != rep->comm->id || !c->asked || c->asked_p2p ||
		    c->asked_age > ASKING_NS || c->asked_since + c->asked_age < limit_ns)
			continue;
		r = find_rank(c->comm, c->rank);
		if (!r || r->next > c->asked_number)
			continue;
		if (!rep->asked || c->asked_number < rep->number) {
			rep->asked = c;
			rep->number = c->asked_number;
			rep->nculprits = 0;
		}
		if (c->asked_number == rep->number)
			blame(rep, c->rank, why_late(r), NULL);
	}
	if (rep->asked)
		rep->state = "hangs";
}

/* Nobody waits: is anybody kept from it? So looks a job that was stopped as a whole. */
static void find_stopped(struct report *rep)
{
	const struct state_rank *r;
	struct proc proc;
	size_t n;

	r = ranks_of(rep, &n);
	for (size_t i = 0; i < n; i++, r++) {
		if (r->state != NPULINK_RANK_STATE_JOINED || !r->known || !r->pid)
			continue;
		proc_read(r->pid, &proc);
		if (why_held(proc.state))
			blame(rep, r->rank, why_held(proc.state), NULL);
	}
	if (rep->nculprits)
		rep->state = "stopped";
}

/* What hangs in one that has not failed, or is stopped. */
static void find_waiting(struct report *rep, uint64_t limit_ns)
{
	uint64_t oldest = 0;

	for (size_t i = 0; i < all.nops; i++) {
		const struct state_op *op = &all.ops[i];

		if (op->comm != rep->comm->id || op->age < oldest)
			continue;
		oldest = op->age;
		rep->op = op;
	}
	if (!rep->op || oldest < limit_ns) {
		find_asked(rep, limit_ns);
		if (!rep->op && !rep->asked)
			find_stopped(rep);
		return;
	}
	rep->state = "hangs";
	/* The lowest number in flight: later ones wait for it anyway. */
	rep->number = rep->op->number;
	for (size_t i = 0; !rep->op->p2p && i < all.nops; i++)
		if (all.ops[i].comm == rep->comm->id && !all.ops[i].p2p &&
		    all.ops[i].number < rep->number) {
			rep->number = all.ops[i].number;
			rep->op = &all.ops[i];
		}
	if (!rep->op->p2p)
		find_lagging(rep);
	find_chain(rep);
}

/* ---- who has not come */

/*
 * By rank, who is neither here, nor gone, nor said to be on another machine; to be freed. NULL:
 * nobody, or it has failed, so that nobody comes any more.
 */
static bool *find_missing(const struct state_comm *c)
{
	const struct state_rank *r;
	size_t n = c->nranks, nof;
	bool *missing;

	if (c->failed || c->joined + c->left >= c->nranks)
		return NULL;
	missing = malloc(n);
	if (!missing)
		return NULL;
	memset(missing, true, n);
	r = state_ranks_of(c->id, all.ranks, all.nranks, &nof);
	for (size_t i = 0; i < nof; i++, r++) {
		if (r->state != NPULINK_RANK_STATE_AWAITED && r->rank < c->nranks &&
		    missing[r->rank]) {
			missing[r->rank] = false;
			n--;
		}
	}
	for (size_t i = 0; i < all.nconns; i++) {
		const struct state_conn *conn = &all.conns[i];

		if (conn->comm == c->id && conn->remote && conn->peer < c->nranks &&
		    missing[conn->peer]) {
			missing[conn->peer] = false;
			n--;
		}
	}
	if (n)
		return missing;
	free(missing);
	return NULL;
}

static void examine(struct report *rep, uint64_t limit_ns)
{
	rep->missing = find_missing(rep->comm);
	rep->state = rep->missing ? "joining" : "ok";
	if (rep->comm->failed)
		find_failed(rep);
	else
		find_waiting(rep, limit_ns);
}

/* A rank that was made with it; NULL: none. */
const struct state_rank *rank_of_file(const struct state_file *f)
{
	for (size_t i = 0; i < all.nranks; i++)
		if (all.ranks[i].known && all.ranks[i].file == f->id)
			return &all.ranks[i];
	return NULL;
}

/* It has a device open, and no communicator. */
bool is_joining(const struct state_file *f)
{
	return !rank_of_file(f) && !proc_dead(f->pid);
}

static const char usage[] =
	"Usage: npulink [-j] hang [-t SECONDS] [COMM]\n"
	"\n"
	"Says of each communicator, or of COMM, whether an operation hangs (is older than\n"
	"SECONDS), processes are stopped, or why it failed; which ranks everybody waits for; how\n"
	"that was found out; what their processes do instead, and what to do about it. Asks the\n"
	"kernel only, so it works also if they are stopped or blocked. Names ranks that have not\n"
	"joined, and processes that have a device open and no communicator: they may wait for\n"
	"others, to make one; and who holds the device of one that is dead. Root sees all users',\n"
	"and stacks; others are told how many communicators are hidden from them.\n"
	"\n"
	"  -t, --time SECONDS  an operation that is older hangs (1)\n"
	"  -j, --json          JSON\n"
	"\n"
	"Exit status: 0 nothing hangs, is stopped or has failed, 3 something, 4 nothing that may be\n"
	"seen, but there is more.\n";

static int examine_all(uint64_t id, uint64_t limit_ns)
{
	struct report *reps = calloc(all.ncomms + 1, sizeof(*reps));
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	bool bad = false;
	size_t n = 0;

	if (!reps)
		return fail("not enough memory");
	for (size_t i = 0; i < all.ncomms; i++) {
		if (id != ANY_DEV && all.comms[i].id != id)
			continue;
		reps[n].comm = &all.comms[i];
		examine(&reps[n], limit_ns);
		bad |= strcmp(reps[n].state, "ok") && strcmp(reps[n].state, "joining");
		n++;
	}
	find_starved(reps, n);
	if (id == ANY_DEV) {
		find_holders();
		bad |= all.nholders;
	}
	if (array && id == ANY_DEV)
		others_json(array);
	for (size_t i = 0; i < n; i++) {
		if (array)
			json_object_array_add(array, report_json(&reps[i]));
		else
			report_text(&reps[i]);
		free(reps[i].missing);
		free(reps[i].chain);
	}
	free(reps);
	if (array)
		json_print(array);
	else if (!n && id == ANY_DEV)
		printf("there are no communicators that you may see\n");
	if (!array && id == ANY_DEV)
		others_text();
	if (!n && id != ANY_DEV)
		return state_fail(-ENOENT, "communicator", id);
	return bad ? EXIT_HANGS : id == ANY_DEV && (all.hidden_comms || all.hidden_files) ?
	       EXIT_HIDDEN : EXIT_SUCCESS;
}

int hang_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "time", required_argument, NULL, 't' },
		CMD_OPTION_END
	};
	struct state_stat before = { }, after = { };
	uint64_t seconds = 1, id = ANY_DEV;
	char *words[argc + 2];
	int c, rc;

	words[0] = "hang";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "t:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!parse_u64(optarg, 1000000, &seconds))
			return usage_error("hang: \"%s\" is no whole number of seconds", optarg);
	}
	if (optind < argc && argc + 1 - optind > 1)
		return usage_error("hang: unknown word \"%s\"", words[optind + 1]);
	if (optind < argc + 1 && !parse_u64(words[optind], ANY_DEV - 1, &id))
		return usage_error("hang: \"%s\" is no number of a communicator", words[optind]);

	rc = state_stat(&before);
	if (!rc)
		rc = state_comms(&all.comms, &all.ncomms);
	/* Before ranks: one that joins meanwhile has a communicator. */
	if (!rc)
		rc = state_files(&all.files, &all.nfiles);
	if (!rc)
		rc = state_ranks(ANY_DEV, &all.ranks, &all.nranks);
	if (!rc)
		rc = state_ops(ANY_DEV, &all.ops, &all.nops);
	if (!rc)
		rc = state_conns(ANY_DEV, &all.conns, &all.nconns);
	if (!rc)
		rc = state_stat(&after);
	all.hidden_comms = count_hidden(before.comms, after.comms, all.ncomms);
	all.hidden_files = count_hidden(before.files, after.files, all.nfiles);
	c = rc ? state_fail(rc, "communicator", id) : examine_all(id, seconds * 1000000000);
	free(all.comms);
	free(all.ranks);
	free(all.ops);
	free(all.conns);
	free(all.files);
	free(all.looks);
	return c;
}
