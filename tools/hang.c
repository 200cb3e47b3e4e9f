// SPDX-License-Identifier: GPL-2.0
/*
 * hang.c - npulink hang: which rank does everybody wait for, and what does it do instead?
 *
 * For each communicator: if it failed, why. If an operation is older than a limit: ranks
 * that have not called it are to blame; if all have, who waits for whom is followed to
 * a rank that waits for nobody, whose engine or link it then is. All this is known to the
 * kernel, so it works also when processes are stopped, traced, or blocked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink_genl.h>
#include "see.h"

#define MAX_CULPRITS	16
#define EXIT_HANGS	3

struct culprit {
	uint32_t rank;
	const char *why;
	const struct see_rank *at;	/* NULL: not on this machine */
	const struct see_wait *wait;	/* that nothing else explains */
	const struct see_op *elsewhere;
};

/* One communicator, and what was found out. */
struct report {
	const struct see_comm *comm;
	const char *state;
	const struct see_op *op;	/* the oldest one */
	uint64_t number;
	struct culprit culprits[MAX_CULPRITS];
	size_t nculprits;		/* may be more than there is room for */
	const struct see_op **chain;
	size_t nchain;
	bool circle;
};

static struct {
	struct see_comm *comms;
	struct see_rank *ranks;
	struct see_op *ops;
	size_t ncomms, nranks, nops;
} all;

static const struct see_rank *find_rank(uint32_t comm, uint32_t rank)
{
	size_t lo = 0, hi = all.nranks;

	/* They come ordered by communicator, then by rank. */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct see_rank *r = &all.ranks[mid];

		if (r->comm < comm || (r->comm == comm && r->rank < rank))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < all.nranks && all.ranks[lo].comm == comm && all.ranks[lo].rank == rank ?
	       &all.ranks[lo] : NULL;
}

/* The operation of @rank that belongs to @like; their first is the oldest. */
static const struct see_op *find_op(const struct see_op *like, uint32_t rank)
{
	size_t lo = 0, hi = all.nops;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct see_op *o = &all.ops[mid];

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

/* What the process of @r waits for in another communicator. */
static const struct see_op *find_elsewhere(const struct see_rank *r)
{
	for (size_t i = 0; r->known && r->pid && i < all.nops; i++) {
		const struct see_rank *other;

		if (all.ops[i].comm == r->comm)
			continue;
		other = find_rank(all.ops[i].comm, all.ops[i].rank);
		if (other && other->known && other->pid == r->pid)
			return &all.ops[i];
	}
	return NULL;
}

static void blame(struct report *rep, uint32_t rank, const char *why, const struct see_wait *wait)
{
	const struct see_rank *at = find_rank(rep->comm->id, rank);
	struct culprit *c;

	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		if (rep->culprits[i].rank == rank)
			return;
	if (rep->nculprits++ >= MAX_CULPRITS)
		return;
	c = &rep->culprits[rep->nculprits - 1];
	*c = (struct culprit) { .rank = rank, .why = why, .at = at, .wait = wait };
	if (at && at->state == NPULINK_RANK_STATE_JOINED)
		c->elsewhere = find_elsewhere(at);
}

/* Why has a rank that is here not called what the others have? */
static const char *why_late(const struct see_rank *r)
{
	struct proc proc;

	if (r->state == NPULINK_RANK_STATE_LEFT)
		return "left";
	if (r->state == NPULINK_RANK_STATE_DEAD)
		return "dead";
	proc_read(r->known ? r->pid : 0, &proc);
	switch (proc.state) {
	case 'T':	return "stopped";
	case 't':	return "traced";
	case 'D':	return "blocked";
	case 'Z':
	case 'X':	return "dead";
	default:	return find_elsewhere(r) ? "waits-elsewhere" : "never-called";
	}
}

/* Those that have not called collective @rep->number, if somebody waits for it. */
static void find_lagging(struct report *rep)
{
	for (size_t i = 0; i < all.nranks; i++) {
		const struct see_rank *r = &all.ranks[i];

		if (r->comm == rep->comm->id &&
		    (r->state == NPULINK_RANK_STATE_LEFT || r->next <= rep->number))
			blame(rep, r->rank, why_late(r), NULL);
	}
	/* Others that are waited for have not come, or are on another machine. */
	for (size_t i = 0; i < all.nops; i++) {
		const struct see_op *op = &all.ops[i];

		if (op->comm != rep->comm->id || op->p2p || op->number != rep->number)
			continue;
		for (unsigned int k = 0; k < op->nwaits; k++) {
			const struct see_wait *w = &op->waits[k];

			if (w->met || w->peer == NONE || find_rank(op->comm, w->peer) ||
			    (w->kind != NPULINK_WAIT_RECV && w->kind != NPULINK_WAIT_SEND))
				continue;
			blame(rep, w->peer, w->remote ? "other-machine" : "not-joined", NULL);
		}
	}
}

static const struct see_wait *root_wait(const struct see_op *op)
{
	for (unsigned int k = 0; k < op->nwaits; k++)
		if (op->waits[k].kind == NPULINK_WAIT_ENGINE ||
		    op->waits[k].kind == NPULINK_WAIT_WORKER)
			return &op->waits[k];
	return NULL;
}

/* From the oldest operation to what it hangs on in the end. */
static int find_chain(struct report *rep)
{
	const struct see_op *op = rep->op;
	bool *seen = calloc(rep->comm->nranks, sizeof(*seen));
	const struct see_wait *w;

	rep->chain = calloc(rep->comm->nranks, sizeof(*rep->chain));
	while (seen && rep->chain && op && !rep->circle) {
		const struct see_op *next = NULL;

		if (seen[op->rank]) {
			rep->circle = true;
			break;
		}
		seen[op->rank] = true;
		rep->chain[rep->nchain++] = op;
		w = root_wait(op);
		if (w) {
			if (!rep->nculprits)
				blame(rep, op->rank, w->kind == NPULINK_WAIT_WORKER ? "not-run" :
				      w->dev != w->peer_dev ? "link" : "engine", w);
			break;
		}
		for (unsigned int k = 0; k < op->nwaits && !next; k++)
			if (op->waits[k].peer != NONE)
				next = find_op(op, op->waits[k].peer);
		/* A message that its peer has not called. */
		if (!next && op->nwaits && op->waits[0].peer != NONE && !rep->nculprits) {
			const struct see_rank *r = find_rank(op->comm, op->waits[0].peer);

			blame(rep, op->waits[0].peer, r ? why_late(r) : op->waits[0].remote ?
			      "other-machine" : "not-joined", NULL);
		}
		op = next;
	}
	free(seen);
	return rep->chain ? 0 : -1;
}

static void find_failed(struct report *rep)
{
	const struct see_cause *c = &rep->comm->cause;

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

static void examine(struct report *rep, uint64_t limit_ns)
{
	uint64_t oldest = 0;

	if (rep->comm->failed) {
		find_failed(rep);
		return;
	}
	rep->state = "ok";
	for (size_t i = 0; i < all.nops; i++) {
		const struct see_op *op = &all.ops[i];

		if (op->comm != rep->comm->id || op->age < oldest)
			continue;
		oldest = op->age;
		rep->op = op;
	}
	if (!rep->op || oldest < limit_ns)
		return;
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

/* ---- output */

static const char *const whys[][2] = {
	{ "never-called",	"has not called it" },
	{ "not-joined",		"has never joined the communicator" },
	{ "other-machine",	"has not called it; it is on another machine: "
				"run npulink hang there" },
	{ "left",		"has left the communicator" },
	{ "dead",		"is dead" },
	{ "death",		"is dead" },
	{ "stopped",		"has not called it: its process is stopped by a signal" },
	{ "traced",		"has not called it: its process is stopped by a debugger" },
	{ "blocked",		"has not called it: its process is blocked in the kernel" },
	{ "waits-elsewhere",	"has not called it: its process waits in another communicator" },
	{ "late",		"was waited for until the deadline" },
	{ "mismatch",		"called something else than its peer" },
	{ "link",		"gets its bytes over a link that is slow, or lost" },
	{ "engine",		"waits for the engine of its device" },
	{ "not-run",		"is not run: its process gets no processor" },
	{ "abort",		"aborted the communicator" },
	{ "device",		"has a device that reported a fault" },
	{ "removed",		"has lost its device" },
	{ "deadlock",		"waits for a rank that waits for it" },
	{ "checksum",		"got damaged data" },
};

static const char *why_text(const char *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(whys); i++)
		if (!strcmp(whys[i][0], why))
			return whys[i][1];
	return why;
}

static void culprit_text(const struct culprit *c)
{
	char text[128], since[24], a[16], b[16], stack[1024];
	struct proc proc;

	printf("  -> rank %u %s\n", c->rank, why_text(c->why));
	if (c->wait) {
		printf("     step %u: %s of %s done, the rest since %s", c->wait->step,
		       human_bytes(c->wait->done, a), human_bytes(c->wait->len, b),
		       human_ns(c->wait->since, since));
		if (c->wait->dev != c->wait->peer_dev)
			printf(" over the link npu%u -> npu%u", c->wait->dev, c->wait->peer_dev);
		printf("\n");
	}
	if (c->elsewhere)
		printf("     its process waits for operation %" PRIu64 " of communicator %u: %s\n",
		       c->elsewhere->number, c->elsewhere->comm,
		       call_text(&c->elsewhere->call, c->elsewhere->p2p, text, sizeof(text)));
	if (!c->at || !c->at->known || !c->at->pid)
		return;
	proc_read(c->at->pid, &proc);
	printf("     process %u (%s) on npu%u is %s", c->at->pid, *proc.name ? proc.name : "?",
	       c->at->dev, proc_state_text(proc.state));
	if (proc.tracer)
		printf(" by process %u", proc.tracer);
	if (*proc.wchan)
		printf(", in %s", proc.wchan);
	printf("\n");
	proc_stack(c->at->pid, stack, sizeof(stack));
	for (char *line = strtok(stack, "\n"); line; line = strtok(NULL, "\n"))
		printf("       %s\n", line);
}

static void report_text(const struct report *rep)
{
	const struct see_comm *c = rep->comm;
	char text[320], age[24];

	printf("communicator %u, %u ranks, %u here: %s\n", c->id, c->nranks, c->joined, rep->state);
	if (c->failed)
		printf("  %s\n", cause_text(&c->cause, text, sizeof(text)));
	if (strcmp(rep->state, "hangs") == 0)
		printf("  operation %" PRIu64 ", %s%s%s, for %s\n", rep->number,
		       call_text(&rep->op->call, rep->op->p2p, text, sizeof(text)),
		       *rep->op->algorithm ? ", " : "", rep->op->algorithm,
		       human_ns(rep->op->age, age));
	for (size_t i = 0; i < rep->nchain; i++) {
		const struct see_op *op = rep->chain[i];

		if (!op->nwaits || op->waits[0].peer == NONE || root_wait(op))
			continue;
		printf("  rank %u waits for rank %u (step %u of %u, %s)\n", op->rank,
		       op->waits[0].peer, op->waits[0].step, op->steps,
		       human_ns(op->waits[0].since, age));
	}
	if (rep->circle)
		printf("  ... and so on in a circle\n");
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		culprit_text(&rep->culprits[i]);
	if (rep->nculprits > MAX_CULPRITS)
		printf("  -> and %zu more\n", rep->nculprits - MAX_CULPRITS);
}

static struct json_object *culprit_json(const struct culprit *c)
{
	struct json_object *obj = json_object_new_object();
	char stack[1024], text[8];
	struct proc proc;

	put_u64(obj, "rank", c->rank);
	put_str(obj, "why", c->why);
	put_str(obj, "text", why_text(c->why));
	if (c->wait)
		json_object_object_add(obj, "wait", wait_json(c->wait));
	if (c->elsewhere) {
		put_u64(obj, "elsewhere_comm", c->elsewhere->comm);
		put_u64(obj, "elsewhere_number", c->elsewhere->number);
	}
	if (!c->at || !c->at->known)
		return obj;
	proc_read(c->at->pid, &proc);
	proc_stack(c->at->pid, stack, sizeof(stack));
	snprintf(text, sizeof(text), "%c", proc.state);
	put_u64(obj, "pid", c->at->pid);
	put_str(obj, "process", *proc.name ? proc.name : NULL);
	put_str(obj, "process_state", text);
	put_str(obj, "wchan", *proc.wchan ? proc.wchan : NULL);
	put_str(obj, "stack", *stack ? stack : NULL);
	return obj;
}

static struct json_object *report_json(const struct report *rep)
{
	struct json_object *obj = json_object_new_object();
	struct json_object *culprits = json_object_new_array(), *chain = json_object_new_array();

	put_u64(obj, "comm", rep->comm->id);
	put_str(obj, "state", rep->state);
	json_object_object_add(obj, "cause", rep->comm->failed ?
			       cause_json(&rep->comm->cause) : NULL);
	if (!strcmp(rep->state, "hangs")) {
		put_u64(obj, "number", rep->number);
		put_u64(obj, "age_ns", rep->op->age);
		json_object_object_add(obj, "call", call_json(&rep->op->call, rep->op->p2p));
		put_str(obj, "algorithm", *rep->op->algorithm ? rep->op->algorithm : NULL);
	}
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		json_object_array_add(culprits, culprit_json(&rep->culprits[i]));
	for (size_t i = 0; i < rep->nchain; i++) {
		const struct see_op *op = rep->chain[i];
		struct json_object *link = json_object_new_object();
		struct json_object *waits = json_object_new_array();

		put_u64(link, "rank", op->rank);
		for (unsigned int k = 0; k < op->nwaits; k++)
			json_object_array_add(waits, wait_json(&op->waits[k]));
		json_object_object_add(link, "waits", waits);
		json_object_array_add(chain, link);
	}
	put_u64(obj, "nculprits", rep->nculprits);
	json_object_object_add(obj, "culprits", culprits);
	json_object_object_add(obj, "chain", chain);
	put_bool(obj, "circle", rep->circle);
	return obj;
}

static const char usage[] =
	"Usage: npulink [-j] hang [-t SECONDS] [COMM]\n"
	"\n"
	"Says of each communicator, or of COMM, whether an operation hangs (is older than\n"
	"SECONDS) or why it failed; which ranks everybody waits for; how that was found out;\n"
	"and what the processes of these ranks do instead. Asks the kernel only, so it works\n"
	"also if they are stopped or blocked. Root sees those of all users, and stacks.\n"
	"\n"
	"  -t, --time SECONDS  an operation that is older hangs (1)\n"
	"  -j, --json          JSON\n"
	"\n"
	"Exit status: 0 nothing hangs or has failed, 3 something has.\n";

static int examine_all(uint64_t id, uint64_t limit_ns)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	bool found = false, bad = false;

	for (size_t i = 0; i < all.ncomms; i++) {
		struct report rep = { .comm = &all.comms[i] };

		if (id != ANY_DEV && all.comms[i].id != id)
			continue;
		found = true;
		examine(&rep, limit_ns);
		bad |= strcmp(rep.state, "ok");
		if (array)
			json_object_array_add(array, report_json(&rep));
		else
			report_text(&rep);
		free(rep.chain);
	}
	if (array)
		json_print(array);
	else if (!found && id == ANY_DEV)
		printf("there are no communicators that you may see\n");
	if (!found && id != ANY_DEV)
		return see_fail(-ENOENT, "communicator", id);
	return bad ? EXIT_HANGS : EXIT_SUCCESS;
}

int hang_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "time", required_argument, NULL, 't' },
		CMD_OPTION_END
	};
	uint64_t seconds = 1, id = ANY_DEV;
	char *words[argc + 2];
	int c, rc;

	words[0] = "hang";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	if (argc && !strcmp(argv[0], "help")) {
		fputs(usage, stdout);
		return EXIT_SUCCESS;
	}
	while ((c = cmd_option(argc + 1, words, "t:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!parse_u64(optarg, 1000000, &seconds))
			return usage_error("hang: \"%s\" is no number of seconds", optarg);
	}
	if (optind < argc && argc + 1 - optind > 1)
		return usage_error("hang: unknown word \"%s\"", words[optind + 1]);
	if (optind < argc + 1 && !parse_u64(words[optind], ANY_DEV - 1, &id))
		return usage_error("hang: \"%s\" is no number of a communicator", words[optind]);

	rc = see_comms(&all.comms, &all.ncomms);
	if (!rc)
		rc = see_ranks(ANY_DEV, &all.ranks, &all.nranks);
	if (!rc)
		rc = see_ops(ANY_DEV, &all.ops, &all.nops);
	c = rc ? see_fail(rc, "communicator", id) : examine_all(id, seconds * 1000000000);
	free(all.comms);
	free(all.ranks);
	free(all.ops);
	return c;
}
