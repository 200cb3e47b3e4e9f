// SPDX-License-Identifier: GPL-2.0
/*
 * state.c - npulink comm, op, buf, stat: what the kernel knows of communicators, operations
 * in flight, pinned memory, and in total; as tables or JSON, once or again and again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/npulink_genl.h>
#include "state/state.h"

static const struct option state_options[] = {
	{ "watch", optional_argument, NULL, 'w' },
	CMD_OPTION_END
};

/* What "show" of each of these objects shares: an id, and a refresh. */
struct show {
	const char *object;
	const char *usage;
	const char *id_name;	/* NULL: takes none */
	int (*once)(uint32_t id);
};

/* There is nothing to show. */
static void print_hidden(const char *what)
{
	uint32_t hidden = state_hidden_comms();

	printf("there are no %s that you may see\n", what);
	if (hidden)
		printf("hidden from you, because others own them: %u communicators; root sees them\n",
		       hidden);
}

static int show_run(const struct show *show, int argc, char **argv)
{
	uint64_t id = ANY_DEV, watch = 0;
	int c, rc;

	while ((c = cmd_option(argc, argv, "w::", state_options, show->usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!cmd_watch(argc, argv, &watch))
			return EXIT_USAGE;
	}
	argc -= optind;
	argv += optind;
	if (argc && !show->id_name)
		return usage_error("%s show: unknown word \"%s\"", show->object, argv[0]);
	if (argc && !strcmp(argv[0], show->id_name) && argc > 1) {
		argc--;
		argv++;
	}
	if (argc > 1)
		return usage_error("%s show: unknown word \"%s\"", show->object, argv[1]);
	if (argc && !parse_u64(argv[0], ANY_DEV - 1, &id))
		return usage_error("%s show: \"%s\" is no number of a %s", show->object, argv[0],
				   show->id_name);
	for (;;) {
		if (watch && !opts.json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		rc = show->once(id);
		if (!watch || rc || fflush(stdout) || ferror(stdout))
			return rc;
		sleep(watch);
	}
}

/* ---- comm */

static struct json_object *rank_json(const struct state_rank *r)
{
	struct json_object *obj = json_object_new_object();
	struct proc proc;
	char text[16];

	put_u64(obj, "rank", r->rank);
	put_str(obj, "state", rank_state_name(r->state));
	if (r->gone)
		return obj;
	snprintf(text, sizeof(text), "npu%u", r->dev);
	put_str(obj, "dev", text);
	if (r->known) {
		proc_read(r->pid, &proc);
		snprintf(text, sizeof(text), "%c", proc.state);
		put_u64(obj, "pid", r->pid);
		put_u64(obj, "uid", r->uid);
		put_u64(obj, "file", r->file);
		put_str(obj, "process", *proc.name ? proc.name : NULL);
		put_str(obj, "process_state", text);
	}
	if (r->state == NPULINK_RANK_STATE_AWAITED) {
		put_u64(obj, "before", r->before);
		put_u64(obj, "before_comm", r->before_comm);
	}
	put_u64(obj, "next", r->next);
	put_u64(obj, "in_flight", r->ops);
	put_u64(obj, "oldest_ns", r->oldest);
	put_u64(obj, "done", r->done);
	put_u64(obj, "failed", r->failed);
	put_u64(obj, "bytes", r->bytes);
	put_u64(obj, "busy_ns", r->busy);
	put_u64(obj, "met", r->met);
	return obj;
}

static void rank_text(const struct state_rank *r)
{
	char bytes[16], age[24] = "-", user[16] = "-";
	struct proc proc = { .name = "-", .state = '-' };

	if (r->gone) {
		printf("  %5u  %s\n", r->rank, rank_state_name(r->state));
		return;
	}
	if (r->known) {
		proc_read(r->pid, &proc);
		user_name(r->uid, user);
	}
	if (r->ops)
		human_ns(r->oldest, age);
	printf("  %5u  %-7s npu%-4u %7u %c %-15s %-10s %8" PRIu64 " %6u %8s %9s\n", r->rank,
	       rank_state_name(r->state), r->dev, r->pid, proc.state, proc.name, user, r->next,
	       r->ops, age, human_bytes(r->bytes, bytes));
}

static struct json_object *comm_json(const struct state_comm *c, const struct state_rank *ranks,
				     size_t nranks)
{
	struct json_object *obj = json_object_new_object(), *array = json_object_new_array();

	put_u64(obj, "id", c->id);
	put_u64(obj, "nranks", c->nranks);
	put_u64(obj, "joined", c->joined);
	put_u64(obj, "left", c->left);
	if (c->uid != NONE)
		put_u64(obj, "uid", c->uid);
	put_bool(obj, "any_uid", c->any_uid);
	if (c->parent != NONE)
		put_u64(obj, "parent", c->parent);
	put_str(obj, "state", c->failed ? "failed" : "ok");
	json_object_object_add(obj, "cause", c->failed ? cause_json(&c->cause) : NULL);
	ranks = state_ranks_of(c->id, ranks, nranks, &nranks);
	for (size_t i = 0; i < nranks; i++)
		json_object_array_add(array, rank_json(&ranks[i]));
	json_object_object_add(obj, "ranks", array);
	return obj;
}

static void comm_text(const struct state_comm *c, const struct state_rank *ranks, size_t nranks)
{
	char text[CAUSE_TEXT], user[16] = "-";

	if (c->uid != NONE)
		user_name(c->uid, user);
	printf("comm %u: %u ranks, %u here, %u left, user %s%s", c->id, c->nranks, c->joined,
	       c->left, user, c->any_uid ? " and others" : "");
	if (c->parent != NONE)
		printf(", shrunk from %u", c->parent);
	printf("\n");
	if (c->failed)
		printf("  FAILED (%s): %s\n", cause_name(c->cause.cause),
		       cause_text(&c->cause, text, sizeof(text)));
	printf("  %5s  %-7s %-7s %7s %-17s %-10s %8s %6s %8s %9s\n", "RANK", "STATE", "DEVICE",
	       "PID", "S PROCESS", "USER", "CALLS", "FLIGHT", "OLDEST", "MOVED");
	ranks = state_ranks_of(c->id, ranks, nranks, &nranks);
	for (size_t i = 0; i < nranks; i++)
		rank_text(&ranks[i]);
}

static int comm_once(uint32_t id)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	struct state_comm *comms = NULL;
	struct state_rank *ranks = NULL;
	size_t ncomms = 0, nranks = 0;
	int rc = state_comms(&comms, &ncomms);

	if (!rc)
		rc = state_ranks(id, &ranks, &nranks);
	for (size_t i = 0; !rc && i < ncomms; i++) {
		if (id != ANY_DEV && comms[i].id != id)
			continue;
		if (array)
			json_object_array_add(array, comm_json(&comms[i], ranks, nranks));
		else
			comm_text(&comms[i], ranks, nranks);
	}
	if (!array && !rc && !ncomms)
		print_hidden("communicators");
	free(comms);
	free(ranks);
	if (array && !rc)
		json_print(array);
	return rc ? state_fail(rc, "communicator", id) : EXIT_SUCCESS;
}

static int comm_show(int argc, char **argv)
{
	static const struct show show = {
		"comm", "Usage: npulink [-j] comm show [[comm] ID] [-w [SECONDS]]\n"
		"\n"
		"Shows communicators and their ranks on this node: device, process and its state\n"
		"(R runs, S sleeps, D blocked, T stopped), how many collectives each has called,\n"
		"operations in flight and the age of the oldest. One that failed says why.\n"
		"Those of other users only for root.\n"
		"\n"
		"  -w, --watch [S]  again every S seconds (2)\n"
		"  -j, --json       JSON\n", "comm", comm_once
	};

	return show_run(&show, argc, argv);
}

/* ---- op */

static struct json_object *op_json(const struct state_op *op)
{
	struct json_object *obj = json_object_new_object(), *waits = json_object_new_array();

	put_u64(obj, "comm", op->comm);
	put_u64(obj, "rank", op->rank);
	put_u64(obj, "number", op->number);
	put_u64(obj, "seq", op->seq);
	json_object_object_add(obj, "call", call_json(&op->call, op->p2p));
	put_str(obj, "algorithm", *op->algorithm ? op->algorithm : NULL);
	put_str(obj, "state", op->state == NPULINK_OP_STATE_FAILING ? "failing" : "running");
	put_u64(obj, "steps", op->steps);
	put_u64(obj, "units", op->units);
	put_u64(obj, "units_done", op->units - op->units_left);
	put_u64(obj, "bytes", op->bytes);
	put_u64(obj, "bytes_done", op->bytes_done);
	put_u64(obj, "age_ns", op->age);
	if (op->left != NO_NUMBER)
		put_u64(obj, "left_ns", op->left);
	if (op->slow)
		put_u64(obj, "slow_ns", op->slow);
	for (unsigned int i = 0; i < op->nwaits; i++)
		json_object_array_add(waits, wait_json(&op->waits[i]));
	json_object_object_add(obj, "waits", waits);
	return obj;
}

static void wait_text(const struct state_wait *w)
{
	char since[24], a[16], b[16], peer[24] = "";

	if (w->peer != NONE)
		snprintf(peer, sizeof(peer), " rank %u", w->peer);
	printf("      step %u, %s of %s: ", w->step, human_bytes(w->done, a),
	       human_bytes(w->len, b));
	switch (w->kind) {
	case NPULINK_WAIT_RECV:
		printf("waits for bytes of%s%s", peer, w->met ? "" : ", which has not called it");
		break;
	case NPULINK_WAIT_SEND:
		printf("waits until%s takes them%s", peer,
		       w->met ? "" : ", which has not called it");
		break;
	case NPULINK_WAIT_ENGINE:
		printf("the engine moves%s%s", *peer ? " those of" : " them", peer);
		break;
	default:
		printf("waits for somebody to run it");
	}
	if (w->dev != NONE && w->peer_dev != NONE && w->dev != w->peer_dev)
		printf(", link npu%u -> npu%u", w->dev, w->peer_dev);
	printf(", for %s\n", human_ns(w->since, since));
}

static int op_once(uint32_t id)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	char text[128], age[24], a[16], b[16], steps[48];
	struct state_op *ops = NULL;
	size_t n = 0;
	int rc = state_ops(id, &ops, &n);

	for (size_t i = 0; !rc && i < n; i++) {
		const struct state_op *op = &ops[i];

		if (array) {
			json_object_array_add(array, op_json(op));
			continue;
		}
		/* A step is one of the plan; what the kernel counts may be chains of them. */
		if (op->units == op->steps)
			snprintf(steps, sizeof(steps), "steps");
		else
			snprintf(steps, sizeof(steps), "chains of %u steps", op->steps);
		printf("comm %u rank %u op %" PRIu64 ": %s%s%s, %u of %u %s, %s of %s, %s old\n",
		       op->comm, op->rank, op->number,
		       call_text(&op->call, op->p2p, text, sizeof(text)),
		       *op->algorithm ? ", " : "", op->algorithm, op->units - op->units_left,
		       op->units, steps, human_bytes(op->bytes_done, a), human_bytes(op->bytes, b),
		       human_ns(op->age, age));
		for (unsigned int k = 0; k < op->nwaits; k++)
			wait_text(&op->waits[k]);
	}
	if (!array && !rc && !n)
		print_hidden("operations in flight");
	free(ops);
	if (array && !rc)
		json_print(array);
	return rc ? state_fail(rc, "communicator", id) : EXIT_SUCCESS;
}

static int op_show(int argc, char **argv)
{
	static const struct show show = {
		"op", "Usage: npulink [-j] op show [[comm] ID] [-w [SECONDS]]\n"
		"\n"
		"Shows operations in flight, of all communicators or one: what was called, how far\n"
		"it is, and what its next steps wait for: which rank, over which link, since when.\n"
		"\n"
		"  -w, --watch [S]  again every S seconds (2)\n"
		"  -j, --json       JSON\n", "comm", op_once
	};

	return show_run(&show, argc, argv);
}

/* ---- buf */

static struct json_object *buf_json(const struct state_buf *b)
{
	static const char *const kinds[] = { "unknown", "user", "kernel", "dmabuf", "device" };
	struct json_object *obj = json_object_new_object();

	put_u64(obj, "id", b->id);
	put_str(obj, "kind", kinds[b->kind < ARRAY_SIZE(kinds) ? b->kind : 0]);
	put_u64(obj, "len", b->len);
	put_u64(obj, "pinned", b->pinned);
	put_u64(obj, "users", b->users);
	put_u64(obj, "devices", b->devices);
	put_bool(obj, "readonly", b->readonly);
	put_bool(obj, "unmapped", b->unmapped);
	return obj;
}

static struct json_object *file_json(const struct state_file *f, const struct state_buf *bufs,
				     size_t nbufs)
{
	struct json_object *obj = json_object_new_object(), *array;
	struct proc proc;
	char name[16];

	proc_read(f->pid, &proc);
	snprintf(name, sizeof(name), "npu%u", f->dev);
	put_u64(obj, "file", f->id);
	put_str(obj, "dev", name);
	put_u64(obj, "pid", f->pid);
	put_u64(obj, "uid", f->uid);
	put_str(obj, "process", *proc.name ? proc.name : NULL);
	put_u64(obj, "in_flight", f->ops);
	put_u64(obj, "nbufs", f->bufs);
	put_u64(obj, "registered", f->registered);
	put_u64(obj, "allocated", f->allocated);
	put_u64(obj, "imported", f->imported);
	put_u64(obj, "device", f->device);
	put_u64(obj, "arena", f->arena);
	put_u64(obj, "ring", f->ring);
	put_u64(obj, "pinned", f->pinned);
	if (!opts.details)
		return obj;
	array = json_object_new_array();
	for (size_t i = 0; i < nbufs; i++)
		if (bufs[i].file == f->id)
			json_object_array_add(array, buf_json(&bufs[i]));
	json_object_object_add(obj, "bufs", array);
	return obj;
}

static void file_text(const struct state_file *f, const struct state_buf *bufs, size_t nbufs)
{
	char a[16], b[16], c[16], d[16], e[16], g[16], user[16];
	struct proc proc;

	proc_read(f->pid, &proc);
	printf("%5u npu%-4u %7u %-15s %-10s %5u %9s %9s %9s %9s %9s %9s\n", f->id, f->dev, f->pid,
	       *proc.name ? proc.name : "-", user_name(f->uid, user), f->bufs,
	       human_bytes(f->registered, a), human_bytes(f->allocated, b),
	       human_bytes(f->imported, c), human_bytes(f->device, g),
	       human_bytes(f->arena + f->ring, d), human_bytes(f->pinned, e));
	for (size_t i = 0; opts.details && i < nbufs; i++)
		if (bufs[i].file == f->id)
			printf("      buffer %u: %s%s%s, %s, %s pinned, %u users, %u devices\n",
			       bufs[i].id,
			       bufs[i].kind == NPULINK_BUF_KIND_USER ? "memory of the process" :
			       bufs[i].kind == NPULINK_BUF_KIND_KERNEL ? "memory of the kernel" :
			       bufs[i].kind == NPULINK_BUF_KIND_DEVICE ? "memory of the device" :
			       "dma-buf", bufs[i].readonly ? ", read only" : "",
			       bufs[i].unmapped ? ", unmapped" : "", human_bytes(bufs[i].len, a),
			       human_bytes(bufs[i].pinned, b), bufs[i].users, bufs[i].devices);
}

static int buf_once(uint32_t id)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	struct state_file *files = NULL;
	struct state_buf *bufs = NULL;
	size_t nfiles = 0, nbufs = 0;
	int rc = state_files(&files, &nfiles);

	if (!rc && (opts.details || id != ANY_DEV))
		rc = state_bufs(id, &bufs, &nbufs);
	if (!rc && !array)
		printf("%5s %-7s %7s %-15s %-10s %5s %9s %9s %9s %9s %9s %9s\n", "FILE", "DEVICE",
		       "PID", "PROCESS", "USER", "BUFS", "REGISTER", "ALLOC", "IMPORT", "DEVMEM",
		       "INTERNAL", "PINNED");
	for (size_t i = 0; !rc && i < nfiles; i++) {
		if (id != ANY_DEV && files[i].id != id)
			continue;
		if (array)
			json_object_array_add(array, file_json(&files[i], bufs, nbufs));
		else
			file_text(&files[i], bufs, nbufs);
	}
	free(files);
	free(bufs);
	if (array && !rc)
		json_print(array);
	return rc ? state_fail(rc, "file", id) : EXIT_SUCCESS;
}

static int buf_show(int argc, char **argv)
{
	static const struct show show = {
		"buf", "Usage: npulink [-j] [-d] buf show [[file] ID] [-w [SECONDS]]\n"
		"\n"
		"Shows what processes have pinned: for each open device the memory that they\n"
		"registered, had allocated or imported, and what counts against RLIMIT_MEMLOCK.\n"
		"\n"
		"  -d, --details    each buffer (before the object: npulink -d buf show)\n"
		"  -w, --watch [S]  again every S seconds (2)\n"
		"  -j, --json       JSON\n", "file", buf_once
	};

	return show_run(&show, argc, argv);
}

/* ---- stat */

static int stat_once(uint32_t id)
{
	struct json_object *obj, *causes;
	struct state_stat s = { };
	int rc = state_stat(&s);
	char pinned[16];

	if (rc)
		return state_fail(rc, "", 0);
	if (opts.json) {
		obj = json_object_new_object();
		causes = json_object_new_object();
		put_u64(obj, "devices", s.devs);
		put_u64(obj, "files", s.files);
		put_u64(obj, "comms", s.comms);
		put_u64(obj, "ranks", s.ranks);
		put_u64(obj, "in_flight", s.ops);
		put_u64(obj, "pinned", s.pinned);
		put_u64(obj, "done", s.done);
		put_u64(obj, "failed", s.failed);
		put_u64(obj, "slow", s.slow);
		put_u64(obj, "events", s.events);
		put_u64(obj, "events_lost", s.events_lost);
		for (uint32_t i = 1; i < STATE_CAUSES; i++)
			put_u64(causes, cause_name(i), s.failures[i]);
		json_object_object_add(obj, "failures", causes);
		json_print(obj);
		return EXIT_SUCCESS;
	}
	printf("now: %u devices, %u open files, %u communicators, %u ranks, %u operations in flight, "
	       "%s pinned\n", s.devs, s.files, s.comms, s.ranks, s.ops,
	       human_bytes(s.pinned, pinned));
	printf("since the module was loaded: %" PRIu64 " operations done, %" PRIu64 " failed, %"
	       PRIu64 " slow; %" PRIu64 " events, %" PRIu64 " lost\n", s.done, s.failed, s.slow,
	       s.events, s.events_lost);
	printf("communicators that failed:");
	for (uint32_t i = 1; i < STATE_CAUSES; i++)
		printf(" %s %" PRIu64, cause_name(i), s.failures[i]);
	printf("\n");
	return EXIT_SUCCESS;
}

static int stat_show(int argc, char **argv)
{
	static const struct show show = {
		"stat", "Usage: npulink [-j] stat show [-w [SECONDS]]\n"
		"\n"
		"Shows totals of the node, all users: what there is, and what became of it.\n"
		"\n"
		"  -w, --watch [S]  again every S seconds (2)\n"
		"  -j, --json       JSON\n", NULL, stat_once
	};

	return show_run(&show, argc, argv);
}

static const struct cmd comm_cmds[] = {
	{ "show",	comm_show,	"[ID]: communicators, their ranks and processes" },
	{ }
};

static const struct cmd op_cmds[] = {
	{ "show",	op_show,	"[COMM]: operations in flight, and what they wait for" },
	{ }
};

static const struct cmd buf_cmds[] = {
	{ "show",	buf_show,	"[FILE]: memory that processes have pinned" },
	{ }
};

static const struct cmd stat_cmds[] = {
	{ "show",	stat_show,	"totals of the node" },
	{ }
};

int comm_cmd(int argc, char **argv)
{
	return cmd_run("comm", comm_cmds, argc, argv);
}

int op_cmd(int argc, char **argv)
{
	return cmd_run("op", op_cmds, argc, argv);
}

int buf_cmd(int argc, char **argv)
{
	return cmd_run("buf", buf_cmds, argc, argv);
}

int stat_cmd(int argc, char **argv)
{
	return cmd_run("stat", stat_cmds, argc, argv);
}
