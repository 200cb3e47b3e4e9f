// SPDX-License-Identifier: GPL-2.0
/*
 * report.c - npulink hang: what was found out, as text and as JSON, and what the processes
 * of those that are to blame do instead.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink_genl.h>
#include "hang/hang.h"

/* What is the matter with a rank, and what to do about it on its machine. */
static const struct reason {
	const char *why, *text, *to_do;
} reasons[] = {
	{ "never-called", "has not called it",
	  "its stack, or a debugger (gdb -p, py-spy dump --pid), says what it does instead" },
	{ "not-joined", "has never joined the communicator",
	  "look at whether its process runs, and at what it wrote" },
	{ "not-shrunk", "has not called coll_comm_shrink yet",
	  "its stack, or a debugger (gdb -p, py-spy dump --pid), says what it does instead" },
	{ "other-machine", "is on another machine, whose kernel has not answered yet", NULL },
	{ "not-answered", "is on another machine, whose kernel has not answered since it was asked",
	  NULL },
	{ "not-connected", "is on another machine, and there is no connection to it yet",
	  NULL },
	{ "left", "has left the communicator", "look at why it ended before the others" },
	{ "dead", "is dead", "look at what it wrote, and at dmesg" },
	{ "death", "is dead", "look at what it wrote, and at dmesg" },
	{ "stopped", "has not called it: its process is stopped by a signal", "kill -CONT" },
	{ "traced", "has not called it: its process is stopped by a debugger",
	  "let it go on there, or end the debugger" },
	{ "frozen", "has not called it: its process is frozen with its cgroup",
	  "unpause its container, or write 0 to the file cgroup.freeze of its cgroup" },
	{ "blocked", "has not called it: its process is blocked in the kernel",
	  "its stack says in what; mostly a disk or a network file system that does not answer" },
	{ "waits-elsewhere", "has not called it: its process waits in another communicator",
	  "have all ranks call communicators in one order, or without waiting" },
	{ "late", "was waited for until the deadline",
	  "npulink slow, and its stack, say what it did instead; COLL_DEADLINE is the deadline" },
	{ "mismatch", "called something else than its peer", NULL },
	{ "link", "gets its bytes over a link that is slow, or lost", "npulink doctor" },
	{ "engine", "waits for the engine of its device", "npulink dev show" },
	{ "not-run", "is not run: its process gets no processor",
	  "look at its priority, its cgroup's cpu.max, and what else runs on its processors" },
	{ "throttled", "has not called it: its process gets no processor beyond its cgroup's cpu.max",
	  "raise cpu.max of its cgroup, or write max to it" },
	{ "starved", "has not called it: its process gets no processor, others have them",
	  "look at its priority (chrt, nice), its processors (taskset), and what else runs there" },
	{ "stolen", "has not called it: its process gets no processor, the host has them",
	  "look at the host of this virtual machine" },
	{ "memory-high", "has not called it: its process is held up by its cgroup's memory.high",
	  "raise memory.high of its cgroup, or have it use less" },
	{ "abort", "aborted the communicator", NULL },
	{ "device", "has a device that reported a fault", NULL },
	{ "removed", "has lost its device", NULL },
	{ "deadlock", "waits for a rank that waits for it", NULL },
	{ "checksum", "got damaged data", NULL },
};

static const struct reason *reason(const char *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (!strcmp(reasons[i].why, why))
			return &reasons[i];
	return NULL;
}

/* @bare, if it is wanted: does the text begin with a process instead of a verb? */
static const char *reason_text(const struct report *rep, const struct culprit *c, bool *bare)
{
	const struct reason *r = reason(c->why);
	const char *process = r ? strstr(r->text, ": its process ") : NULL;

	/* Where nobody waits, or for its engine, there is nothing that it has not called. */
	process = !strcmp(rep->state, "stopped") || c->wait ? process : NULL;
	if (bare)
		*bare = process;
	return process ? process + 2 : r ? r->text : c->why;
}

/* What to do on the machine of process @pid, if it is known. NULL: nothing. */
static const char *to_do(const char *why, uint32_t pid, char *buf, size_t size)
{
	const struct reason *r = reason(why);

	if (!r || !r->to_do)
		return NULL;
	if (pid && !strcmp(why, "stopped"))
		snprintf(buf, size, "%s %u", r->to_do, pid);
	else
		snprintf(buf, size, "%s", r->to_do);
	return buf;
}

/* What there is to do on another machine is said there. */
static const char *culprit_to_do(const struct culprit *c, char *buf, size_t size)
{
	return c->far ? NULL : to_do(c->why, c->at ? c->at->pid : 0, buf, size);
}

static bool is_culprit(const struct report *rep, uint32_t rank)
{
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		if (rep->culprits[i].rank == rank)
			return true;
	return false;
}

/*
 * The next rank after @after whose process is stopped, traced or frozen, for which reason it is not
 * to blame so far: when the culprits go on, everybody waits for it. *why: which of these.
 */
static const struct state_rank *also_stopped(const struct report *rep, const struct state_rank *after,
					   const char **why)
{
	bool failed = !strcmp(rep->state, "failed");
	const struct state_rank *ranks, *r;
	struct proc proc;
	size_t n;

	if (!failed && strcmp(rep->state, "hangs"))
		return NULL;
	ranks = ranks_of(rep, &n);
	for (r = after ? after + 1 : ranks; r < ranks + n; r++) {
		if ((!failed && is_culprit(rep, r->rank)) || !r->known || !r->pid ||
		    r->state != NPULINK_RANK_STATE_JOINED)
			continue;
		proc_read(r->pid, &proc);
		*why = why_held(proc.state);
		if (*why)
			return r;
	}
	return NULL;
}

static void also_stopped_text(const struct report *rep)
{
	const struct state_rank *r;
	const char *why, *advice;
	unsigned int n = 0;
	char text[128];

	for (r = also_stopped(rep, NULL, &why); r; r = also_stopped(rep, r, &why)) {
		if (n++ == MAX_CULPRITS) {
			printf("  and more\n");
			break;
		}
		advice = to_do(why, r->pid, text, sizeof(text));
		printf("  rank %u%s is %s; to do: %s\n", r->rank,
		       is_culprit(rep, r->rank) ? "" : ", too,", why, advice);
	}
}

static void culprit_text(const struct report *rep, const struct culprit *c)
{
	char text[128], since[24], a[16], b[16], ip[48], stack[1024];
	const char *advice = culprit_to_do(c, text, sizeof(text)), *reason;
	struct proc proc;
	bool bare;

	reason = reason_text(rep, c, &bare);
	printf("  -> rank %u%s %s\n", c->rank, bare ? ":" : "", reason);
	if (advice)
		printf("     to do: %s\n", advice);
	if (c->wait) {
		printf("     step %u: %s of %s done, the rest since %s", c->wait->step,
		       human_bytes(c->wait->done, a), human_bytes(c->wait->len, b),
		       human_ns(c->wait->since, since));
		if (c->wait->dev != c->wait->peer_dev)
			printf(" over the link npu%u -> npu%u", c->wait->dev, c->wait->peer_dev);
		printf("\n");
	}
	if (c->far) {
		printf("     it is on %s", ip_text(c->far->ip, ip));
		if (c->far->state)
			printf(", over %s (%s)", *c->far->via ? c->far->via : "no port yet",
			       conn_state_name(c->far->state));
		if (c->far->answered)
			printf(", whose kernel %s %s%s", strcmp(c->why, "not-answered") ?
			       "said so" : "has not answered for",
			       human_ns(c->far->status.age, since),
			       strcmp(c->why, "not-answered") ? " ago" : "");
		printf("; run npulink hang there\n");
	}
	if (c->elsewhere)
		printf("     its process waits for operation %" PRIu64 " of communicator %u: %s\n",
		       c->elsewhere->number, c->elsewhere->comm,
		       call_text(&c->elsewhere->call, c->elsewhere->p2p, text, sizeof(text)));
	if (!c->at || !c->at->known || !c->at->pid)
		return;
	proc_read_rank(c->at, &proc);
	if (proc.state == '?') {
		printf("     process %u on npu%u has ended\n", c->at->pid, c->at->dev);
		return;
	}
	printf("     process %u (%s) on npu%u", c->at->pid, *proc.name ? proc.name : "?",
	       c->at->dev);
	if (proc.tid != c->at->pid)
		printf(", its thread %u", proc.tid);
	printf(" is %s", proc_state_text(proc.state));
	if (proc.tracer)
		printf(" by process %u", proc.tracer);
	if (*proc.group)
		printf(" %s", proc.group);
	if (*proc.wchan)
		printf(", in %s", proc.wchan);
	printf("\n");
	proc_stack(proc.tid, stack, sizeof(stack));
	for (char *line = strtok(stack, "\n"); line; line = strtok(NULL, "\n"))
		printf("       %s\n", line);
	if (c->starve && *starve_text(c->starve, stack, sizeof(stack)))
		printf("     %s\n", stack);
}

static void missing_text(const struct report *rep)
{
	const char *before = "  not joined yet: rank ";

	for (uint32_t rank = 0; rep->missing && rank < rep->comm->nranks; rank++) {
		uint32_t first = rank;

		if (!rep->missing[rank])
			continue;
		while (rank + 1 < rep->comm->nranks && rep->missing[rank + 1])
			rank++;
		printf("%s%u", before, first);
		if (rank > first)
			printf("-%u", rank);
		before = ", ";
	}
	if (rep->missing)
		printf("\n");
}

static void joining_text(void)
{
	size_t n = 0;

	for (size_t i = 0; i < all.nfiles; i++) {
		const struct state_file *f = &all.files[i];
		struct proc proc;

		if (!is_joining(f))
			continue;
		if (!n)
			printf("no communicator yet: either these wait for a rank that has not come, or they need none\n");
		if (n++ == MAX_CULPRITS) {
			printf("  and more\n");
			break;
		}
		proc_read(f->pid, &proc);
		printf("  process %u (%s) on npu%u is %s\n", f->pid, *proc.name ? proc.name : "?",
		       f->dev, proc_state_text(proc.state));
	}
}

static void holders_text(void)
{
	for (size_t i = 0; i < all.nholders; i++) {
		const struct holder *h = &all.holders[i];
		struct proc proc;

		proc_read(h->pid, &proc);
		printf("npu%u is held by process %u (%s), which has it from process %u, which is dead: it stays in use\n  to do: kill %u\n",
		       h->file->dev, h->pid, *proc.name ? proc.name : "?", h->file->pid, h->pid);
	}
}

void others_text(void)
{
	joining_text();
	holders_text();
	if (all.hidden_comms || all.hidden_files)
		printf("hidden from you, because others own them: %u communicators, %u open devices; root sees them\n",
		       all.hidden_comms, all.hidden_files);
}

void report_text(const struct report *rep)
{
	const struct state_comm *c = rep->comm;
	char text[CAUSE_TEXT], age[24], ip[48];

	printf("communicator %u, %u ranks, %u here: %s\n", c->id, c->nranks, c->joined, rep->state);
	if (c->failed)
		printf("  %s\n", cause_text(&c->cause, text, sizeof(text)));
	missing_text(rep);
	if (rep->op && !strcmp(rep->state, "hangs"))
		printf("  operation %" PRIu64 ", %s%s%s, for %s\n", rep->number,
		       call_text(&rep->op->call, rep->op->p2p, text, sizeof(text)),
		       *rep->op->algorithm ? ", " : "", rep->op->algorithm,
		       human_ns(rep->op->age, age));
	if (rep->asked)
		printf("  operation %" PRIu64 ", which rank %u at %s has called, for %s\n",
		       rep->number, rep->asked->peer, ip_text(rep->asked->ip, ip),
		       human_ns(rep->asked->asked_since + rep->asked->asked_age, age));
	for (size_t i = 0; i < rep->nchain; i++) {
		const struct hop *hop = &rep->chain[i];

		const struct state_wait *w = &hop->waits[hop->lead];

		if (!hop->nwaits || w->peer == NONE || root_wait(hop))
			continue;
		printf("  rank %u waits for rank %u (step %u", hop->rank, w->peer, w->step);
		if (hop->steps)
			printf(" of %u", hop->steps);
		printf(", %s)", human_ns(w->since, age));
		if (hop->far)
			printf(", says %s", ip_text(hop->far->ip, ip));
		printf("\n");
	}
	if (rep->circle)
		printf("  ... and so on in a circle\n");
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		culprit_text(rep, &rep->culprits[i]);
	if (rep->nculprits > MAX_CULPRITS)
		printf("  -> and %zu more\n", rep->nculprits - MAX_CULPRITS);
	also_stopped_text(rep);
}

static struct json_object *culprit_json(const struct report *rep, const struct culprit *c)
{
	struct json_object *obj = json_object_new_object();
	char stack[1024], text[128], ip[48];
	struct proc proc;

	put_u64(obj, "rank", c->rank);
	put_str(obj, "why", c->why);
	put_str(obj, "text", reason_text(rep, c, NULL));
	if (culprit_to_do(c, text, sizeof(text)))
		put_str(obj, "to_do", text);
	if (c->wait)
		json_object_object_add(obj, "wait", wait_json(c->wait));
	if (c->elsewhere) {
		put_u64(obj, "elsewhere_comm", c->elsewhere->comm);
		put_u64(obj, "elsewhere_number", c->elsewhere->number);
	}
	if (c->far) {
		put_str(obj, "machine", ip_text(c->far->ip, ip));
		put_str(obj, "via", *c->far->via ? c->far->via : NULL);
		put_str(obj, "connection", conn_state_name(c->far->state));
	}
	if (c->far && c->far->answered && !strcmp(c->why, "not-answered")) {
		put_u64(obj, "answered_ns", c->far->status.age);
	} else if (c->far && c->far->answered) {
		snprintf(text, sizeof(text), "%c", c->far->status.task);
		put_u64(obj, "answered_ns", c->far->status.age);
		put_str(obj, "process_state", text);
	}
	if (!c->at || !c->at->known)
		return obj;
	proc_read_rank(c->at, &proc);
	proc_stack(proc.tid, stack, sizeof(stack));
	snprintf(text, sizeof(text), "%c", proc.state);
	put_u64(obj, "pid", c->at->pid);
	put_u64(obj, "tid", proc.tid);
	put_str(obj, "process", *proc.name ? proc.name : NULL);
	put_str(obj, "process_state", text);
	if (*proc.group)
		put_str(obj, "frozen", proc.group);
	put_str(obj, "wchan", *proc.wchan ? proc.wchan : NULL);
	put_str(obj, "stack", *stack ? stack : NULL);
	if (c->starve)
		starve_json(obj, c->starve);
	return obj;
}

struct json_object *report_json(const struct report *rep)
{
	struct json_object *obj = json_object_new_object(), *not_joined = json_object_new_array();
	struct json_object *culprits = json_object_new_array(), *chain = json_object_new_array();
	struct json_object *stopped = json_object_new_array();
	const struct state_rank *r;
	const char *why;
	char ip[48];

	put_u64(obj, "comm", rep->comm->id);
	put_str(obj, "state", rep->state);
	json_object_object_add(obj, "cause", rep->comm->failed ?
			       cause_json(&rep->comm->cause) : NULL);
	if (!strcmp(rep->state, "hangs"))
		put_u64(obj, "number", rep->number);
	if (rep->asked) {
		put_u64(obj, "age_ns", rep->asked->asked_since + rep->asked->asked_age);
		put_u64(obj, "asked_by", rep->asked->peer);
		put_str(obj, "asked_from", ip_text(rep->asked->ip, ip));
	} else if (rep->op && !strcmp(rep->state, "hangs")) {
		put_u64(obj, "age_ns", rep->op->age);
		json_object_object_add(obj, "call", call_json(&rep->op->call, rep->op->p2p));
		put_str(obj, "algorithm", *rep->op->algorithm ? rep->op->algorithm : NULL);
	}
	for (size_t i = 0; i < rep->nculprits && i < MAX_CULPRITS; i++)
		json_object_array_add(culprits, culprit_json(rep, &rep->culprits[i]));
	for (size_t i = 0; i < rep->nchain; i++) {
		const struct hop *hop = &rep->chain[i];
		struct json_object *link = json_object_new_object();
		struct json_object *waits = json_object_new_array();

		put_u64(link, "rank", hop->rank);
		if (hop->far)
			put_str(link, "machine", ip_text(hop->far->ip, ip));
		for (unsigned int k = 0; k < hop->nwaits; k++)
			json_object_array_add(waits, wait_json(&hop->waits[k]));
		json_object_object_add(link, "waits", waits);
		json_object_array_add(chain, link);
	}
	put_u64(obj, "nculprits", rep->nculprits);
	json_object_object_add(obj, "culprits", culprits);
	json_object_object_add(obj, "chain", chain);
	put_bool(obj, "circle", rep->circle);
	for (r = also_stopped(rep, NULL, &why); r; r = also_stopped(rep, r, &why))
		json_object_array_add(stopped, json_object_new_uint64(r->rank));
	json_object_object_add(obj, "also_stopped", stopped);
	for (uint32_t rank = 0; rep->missing && rank < rep->comm->nranks; rank++)
		if (rep->missing[rank])
			json_object_array_add(not_joined, json_object_new_uint64(rank));
	json_object_object_add(obj, "not_joined", not_joined);
	return obj;
}

/* In the form of a communicator that is not there. */
static struct json_object *no_comm_json(const char *state)
{
	struct json_object *obj = json_object_new_object();

	json_object_object_add(obj, "comm", NULL);
	put_str(obj, "state", state);
	json_object_object_add(obj, "cause", NULL);
	put_u64(obj, "nculprits", 0);
	json_object_object_add(obj, "culprits", json_object_new_array());
	json_object_object_add(obj, "chain", json_object_new_array());
	put_bool(obj, "circle", false);
	json_object_object_add(obj, "not_joined", json_object_new_array());
	return obj;
}

static struct json_object *process_json(uint32_t pid, uint32_t dev)
{
	struct json_object *o = json_object_new_object();
	struct proc proc;
	char text[16];

	proc_read(pid, &proc);
	put_u64(o, "pid", pid);
	put_str(o, "process", *proc.name ? proc.name : NULL);
	snprintf(text, sizeof(text), "%c", proc.state);
	put_str(o, "process_state", text);
	snprintf(text, sizeof(text), "npu%u", dev);
	put_str(o, "dev", text);
	return o;
}

static void joining_json(struct json_object *array)
{
	struct json_object *obj, *processes = json_object_new_array();

	for (size_t i = 0; i < all.nfiles; i++)
		if (is_joining(&all.files[i]))
			json_object_array_add(processes, process_json(all.files[i].pid,
								      all.files[i].dev));
	if (!json_object_array_length(processes)) {
		json_object_put(processes);
		return;
	}
	obj = no_comm_json("joining");
	json_object_object_add(obj, "processes", processes);
	json_object_array_add(array, obj);
}

static void holders_json(struct json_object *array)
{
	struct json_object *obj, *processes, *o;
	char text[32];

	if (!all.nholders)
		return;
	obj = no_comm_json("held");
	processes = json_object_new_array();
	for (size_t i = 0; i < all.nholders; i++) {
		const struct holder *h = &all.holders[i];

		o = process_json(h->pid, h->file->dev);
		put_u64(o, "from", h->file->pid);
		snprintf(text, sizeof(text), "kill %u", h->pid);
		put_str(o, "to_do", text);
		json_object_array_add(processes, o);
	}
	json_object_object_add(obj, "processes", processes);
	json_object_array_add(array, obj);
}

void others_json(struct json_object *array)
{
	struct json_object *obj;

	joining_json(array);
	holders_json(array);
	if (!all.hidden_comms && !all.hidden_files)
		return;
	obj = no_comm_json("hidden");
	put_u64(obj, "hidden_comms", all.hidden_comms);
	put_u64(obj, "hidden_devices", all.hidden_files);
	json_object_array_add(array, obj);
}
