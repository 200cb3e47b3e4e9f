// SPDX-License-Identifier: GPL-2.0
/*
 * plan.c - npulink plan: what libcoll would have a rank do, step by step, and the
 * proof that the ranks together do the right thing. Needs neither module nor device.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"
#include "npulink.h"
#include "plan_text.h"
#include "verify_set.h"
#include "words.h"

#define MAX_RANKS	NPULINK_MAX_RANKS

/* What the command line asks for. */
struct query {
	struct coll_args args;
	const struct coll_algorithm *alg;
	uint64_t *counts;	/* of the v forms */
	size_t ncounts;
	bool all, text;		/* show: of all ranks, libcoll's text form */
	const char *file;	/* verify: read the plans from there */
};

static const struct option long_opts[] = {
	{ "algorithm", required_argument, NULL, 'a' },
	{ "ranks", required_argument, NULL, 'p' },
	{ "rank", required_argument, NULL, 'k' },
	{ "count", required_argument, NULL, 'n' },
	{ "counts", required_argument, NULL, 'v' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "in-place", no_argument, NULL, 'i' },
	{ "chunks", required_argument, NULL, 'C' },
	{ "all", no_argument, NULL, 'A' },
	{ "text", no_argument, NULL, 't' },
	{ "file", required_argument, NULL, 'f' },
	CMD_OPTION_END
};

#define OPTIONS_HELP \
	"  -a, --algorithm NAME  this one instead of the cheapest\n" \
	"  -p, --ranks N         number of ranks (8)\n" \
	"  -n, --count N         elements, as libcoll counts them: of the buffer for\n" \
	"                        allreduce, reduce, broadcast, else of one rank's shard (1024)\n" \
	"      --counts N,N,...  elements of each rank's shard, for the v forms\n" \
	"  -d, --datatype TYPE   int8 .. uint64, half, bfloat16, float or double (float)\n" \
	"  -o, --op OP           sum, prod, min, max or avg (sum)\n" \
	"  -r, --root RANK       root, where there is one (0)\n" \
	"  -i, --in-place        send and receive buffer are one\n" \
	"      --chunks N        chunks of algorithms that work in a pipeline\n"

static bool is_v_form(uint32_t collective)
{
	return collective == NPULINK_COLL_SCATTERV || collective == NPULINK_COLL_GATHERV ||
	       collective == NPULINK_COLL_ALLGATHERV || collective == NPULINK_COLL_ALLTOALLV ||
	       collective == NPULINK_COLL_REDUCE_SCATTERV;
}

static bool reduces(uint32_t collective)
{
	return collective == NPULINK_COLL_ALLREDUCE || collective == NPULINK_COLL_REDUCE ||
	       collective == NPULINK_COLL_REDUCE_SCATTER ||
	       collective == NPULINK_COLL_REDUCE_SCATTERV;
}

static bool parse_counts(struct query *q, const char *text)
{
	char *copy = strdup(text), *save = NULL, *word;
	bool ok = copy;

	for (word = ok ? strtok_r(copy, ",", &save) : NULL; word && ok;
	     word = strtok_r(NULL, ",", &save)) {
		uint64_t *counts = reallocarray(q->counts, q->ncounts + 1, sizeof(*counts));

		if (!counts)
			exit(fail("not enough memory"));
		q->counts = counts;
		ok = parse_u64(word, UINT64_MAX, &counts[q->ncounts++]);
	}
	free(copy);
	return ok && q->ncounts;
}

static bool parse_u32(const char *text, uint32_t max, uint32_t *value)
{
	uint64_t v;

	if (!parse_u64(text, max, &v))
		return false;
	*value = v;
	return true;
}

static bool set_option(struct query *q, const char **algorithm, int c, const char *arg)
{
	struct coll_args *args = &q->args;

	switch (c) {
	case 'a':
		*algorithm = arg;
		return true;
	case 'p':
		return parse_u32(arg, MAX_RANKS, &args->nranks) && args->nranks;
	case 'k':
		return parse_u32(arg, MAX_RANKS - 1, &args->rank);
	case 'n':
		return parse_u64(arg, UINT64_MAX, &args->count);
	case 'v':
		return parse_counts(q, arg);
	case 'd':
		return parse_dtype(arg, &args->dtype);
	case 'o':
		return parse_redop(arg, &args->redop);
	case 'r':
		return parse_u32(arg, MAX_RANKS - 1, &args->root);
	case 'i':
		args->in_place = true;
		return true;
	case 'C':
		return parse_u32(arg, 1 << 20, &args->chunks) && args->chunks;
	case 'A':
		q->all = true;
		return true;
	case 't':
		q->text = true;
		return true;
	case 'f':
		q->file = arg;
		return true;
	}
	return false;
}

static const char *option_name(int c)
{
	for (size_t i = 0; long_opts[i].name; i++)
		if (long_opts[i].val == c)
			return long_opts[i].name;
	return "?";
}

/* alltoallv: every rank sends counts[i] to rank i, so rank i gets that from each. */
static void set_rank(struct query *q, uint32_t rank)
{
	q->args.rank = rank;
	for (uint32_t i = 0; q->args.rcounts && i < q->args.nranks; i++)
		((uint64_t *)q->args.rcounts)[i] = q->counts[rank];
}

/* Complete the arguments of the v forms: equal shards unless --counts says otherwise. */
static int fill_counts(struct query *q)
{
	struct coll_args *args = &q->args;
	uint64_t *rcounts;

	if (!is_v_form(args->collective)) {
		if (q->ncounts)
			return fail("%s takes --count, not --counts",
				    coll_collective_name(args->collective));
		return 0;
	}
	if (!q->ncounts) {
		q->counts = calloc(args->nranks, sizeof(*q->counts));
		if (!q->counts)
			return fail("not enough memory");
		for (; q->ncounts < args->nranks; q->ncounts++)
			q->counts[q->ncounts] = args->count;
	}
	if (q->ncounts != args->nranks)
		return fail("--counts has %zu numbers, but there are %u ranks", q->ncounts,
			    args->nranks);
	args->count = 0;
	args->counts = q->counts;
	if (args->collective != NPULINK_COLL_ALLTOALLV)
		return 0;
	rcounts = calloc(args->nranks, sizeof(*rcounts));
	if (!rcounts)
		return fail("not enough memory");
	args->rcounts = rcounts;
	set_rank(q, args->rank);
	return 0;
}

static int choose(struct query *q, const char *algorithm)
{
	const char *collective = coll_collective_name(q->args.collective), *why;
	char text[400] = "";
	struct coll_tune tune;
	double seconds;
	int rc;

	if (algorithm) {
		q->alg = coll_algorithm_find(q->args.collective, algorithm);
		if (!q->alg)
			return fail("%s has no algorithm \"%s\"; see: npulink plan list %s",
				    collective, algorithm, collective);
		why = q->alg->supports ? q->alg->supports(&q->args) : NULL;
		if (why)
			return fail("%s cannot do it: %s", algorithm, why);
		return 0;
	}
	rc = coll_tune_init(&tune, NULL, NULL, q->args.nranks, text, sizeof(text));
	if (rc)
		return fail("%s", *text ? text : coll_strerror(rc));
	rc = coll_tune_choose(&tune, &q->args, &q->alg, &seconds, text, sizeof(text));
	coll_tune_free(&tune);
	if (rc)
		return fail("%s", *text ? text : coll_strerror(rc));
	return 0;
}

/* Returns -1 to go on, else the exit status. */
static int parse_query(struct query *q, int argc, char **argv, const char *letters,
		       const char *usage)
{
	const char *algorithm = NULL, *why;
	int c, rc;

	*q = (struct query){ .args = { .nranks = 8, .count = 1024, .dtype = NPULINK_FLOAT32 } };
	while ((c = cmd_option(argc, argv, letters, long_opts, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!set_option(q, &algorithm, c, optarg))
			return usage_error("plan %s: \"%s\" makes no sense for --%s", argv[0],
					   optarg, option_name(c));
	}
	argc -= optind;
	if (q->file)
		return argc ? usage_error("plan %s: unknown word \"%s\"", argv[0],
					  argv[optind]) : -1;
	if (!argc)
		return usage_error("plan %s: which collective? see: npulink plan %s --help",
				   argv[0], argv[0]);
	if (!parse_collective(argv[optind], &q->args.collective))
		return usage_error("plan %s: unknown collective \"%s\", see: npulink plan list",
				   argv[0], argv[optind]);
	if (argc > 1)
		return usage_error("plan %s: unknown word \"%s\"", argv[0], argv[optind + 1]);
	if (q->args.collective == NPULINK_COLL_P2P)
		return fail("send and receive are plans of one step; there is nothing to choose");
	if (q->args.rank >= q->args.nranks)
		return fail("there is no rank %u of %u", q->args.rank, q->args.nranks);
	if (q->args.root >= q->args.nranks)
		return fail("there is no root %u of %u ranks", q->args.root, q->args.nranks);
	rc = fill_counts(q);
	if (rc)
		return rc;
	why = coll_args_check(&q->args);
	if (why)
		return fail("%s: %s", argv[optind], why);
	rc = choose(q, algorithm);
	return rc ? rc : -1;
}

static void free_query(struct query *q)
{
	free((void *)q->args.rcounts);
	free(q->counts);
}

/* ---- show */

static const char *slot_name(uint32_t slot, char buf[16])
{
	static const char *const names[] = { "send", "recv", "scratch" };

	if (slot < ARRAY_SIZE(names))
		return names[slot];
	snprintf(buf, 16, "slot%u", slot);
	return buf;
}

static bool uses_src(const struct npulink_step *step)
{
	return step->op & (NPULINK_STEP_COPY | NPULINK_STEP_REDUCE) ||
	       step->op == NPULINK_STEP_SEND;
}

static bool uses_src2(const struct npulink_step *step)
{
	return step->op & NPULINK_STEP_REDUCE && !(step->op & NPULINK_STEP_RECV);
}

static bool uses_dst(const struct npulink_step *step)
{
	return step->op & ~NPULINK_STEP_SEND;
}

static const char *place(uint32_t slot, uint64_t off, char buf[48])
{
	char name[16];

	snprintf(buf, 48, "%s+%" PRIu64, slot_name(slot, name), off);
	return buf;
}

static const char *peer_name(uint32_t peer, char buf[16])
{
	if (peer == NPULINK_NO_PEER)
		strcpy(buf, "-");
	else
		snprintf(buf, 16, "%u", peer);
	return buf;
}

static void show_step(const struct coll_plan *plan, uint32_t i)
{
	const struct npulink_step *step = &plan->steps[i];
	char from[16], to[16], a[48], b[48], reads[100] = "-", writes[100] = "-", after[64] = "";
	size_t n = 0;

	if (uses_src(step))
		snprintf(reads, sizeof(reads), "%s%s%s", place(step->src_slot, step->src_off, a),
			 uses_src2(step) ? "," : "",
			 uses_src2(step) ? place(step->src2_slot, step->src2_off, b) : "");
	if (uses_dst(step))
		place(step->dst_slot, step->dst_off, writes);
	for (int j = 0; j < NPULINK_STEP_DEPS; j++)
		if (step->dep[j])
			n += snprintf(after + n, sizeof(after) - n, "%s%u", n ? "," : "",
				      i - step->dep[j]);
	if (step->flags & NPULINK_STEP_F_DRAIN)
		snprintf(after, sizeof(after), "all");
	printf("%5u  %-18s %5s %5s %10" PRIu64 "  %-18s %-16s %s", i, coll_step_name(step),
	       peer_name(step->recv_peer, from), peer_name(step->send_peer, to),
	       (uint64_t)step->len, reads, writes, *after ? after : "-");
	if (step->channel)
		printf(" channel %u", step->channel);
	if (step->flags & NPULINK_STEP_F_CHAIN)
		printf(" chain");
	if (step->flags & NPULINK_STEP_F_DIV)
		printf(" divide");
	if (step->flags & NPULINK_STEP_F_TRANSIENT && step->src2_off)
		printf(" window %" PRIu64, (uint64_t)step->src2_off);
	putchar('\n');
}

/* "allreduce ring: 1024 float, sum, 8 ranks" */
static void show_call(const struct query *q)
{
	const struct coll_args *args = &q->args;

	printf("%s, algorithm %s: %u ranks", coll_collective_name(args->collective), q->alg->name,
	       args->nranks);
	if (args->collective != NPULINK_COLL_BARRIER) {
		if (args->counts)
			printf(", uneven shards of %s", dtype_label(args->dtype));
		else
			printf(", %" PRIu64 " %s", args->count, dtype_label(args->dtype));
	}
	if (reduces(args->collective))
		printf(", %s", coll_redop_name(args->redop));
	switch (args->collective) {
	case NPULINK_COLL_REDUCE:
	case NPULINK_COLL_BROADCAST:
	case NPULINK_COLL_SCATTER:
	case NPULINK_COLL_SCATTERV:
	case NPULINK_COLL_GATHER:
	case NPULINK_COLL_GATHERV:
		printf(", root %u", args->root);
	}
	printf("%s\n", args->in_place ? ", in place" : "");
}

static void show_text(const struct query *q, const struct coll_plan *plan)
{
	char name[16], bytes[16];

	show_call(q);
	printf("rank %u, %u steps", plan->rank, plan->nsteps);
	for (uint32_t i = 0; i < plan->nslots; i++) {
		const struct npulink_slot *slot = &plan->slots[i];

		if (slot->access || slot->min_len)
			printf("; %s: %s, %s%s", slot_name(i, name),
			       human_bytes(slot->min_len, bytes),
			       slot->access & NPULINK_SLOT_READ ? "read" : "",
			       slot->access & NPULINK_SLOT_WRITE ?
			       slot->access & NPULINK_SLOT_READ ? "+write" : "write" : "");
	}
	putchar('\n');
	if (plan->nsteps)
		printf("%5s  %-18s %5s %5s %10s  %-18s %-16s %s\n", "STEP", "DOES", "FROM", "TO",
		       "BYTES", "READS", "WRITES", "AFTER");
	for (uint32_t i = 0; i < plan->nsteps; i++)
		show_step(plan, i);
}

static struct json_object *json_place(uint32_t slot, uint64_t off)
{
	struct json_object *obj = json_object_new_object();
	char name[16];

	put_str(obj, "slot", slot_name(slot, name));
	put_u64(obj, "offset", off);
	return obj;
}

static struct json_object *json_step(const struct coll_plan *plan, uint32_t i)
{
	const struct npulink_step *step = &plan->steps[i];
	struct json_object *obj = json_object_new_object(), *after = json_object_new_array();

	put_u64(obj, "step", i);
	put_str(obj, "does", coll_step_name(step));
	if (step->recv_peer != NPULINK_NO_PEER)
		put_u64(obj, "from", step->recv_peer);
	if (step->send_peer != NPULINK_NO_PEER)
		put_u64(obj, "to", step->send_peer);
	put_u64(obj, "bytes", step->len);
	if (uses_src(step))
		json_object_object_add(obj, "src", json_place(step->src_slot, step->src_off));
	if (uses_src2(step))
		json_object_object_add(obj, "src2", json_place(step->src2_slot, step->src2_off));
	if (uses_dst(step))
		json_object_object_add(obj, "dst", json_place(step->dst_slot, step->dst_off));
	for (int j = 0; j < NPULINK_STEP_DEPS; j++)
		if (step->dep[j])
			json_object_array_add(after, json_object_new_int64(i - step->dep[j]));
	json_object_object_add(obj, "after", after);
	put_u64(obj, "channel", step->channel);
	put_bool(obj, "drain", step->flags & NPULINK_STEP_F_DRAIN);
	put_bool(obj, "chain", step->flags & NPULINK_STEP_F_CHAIN);
	put_bool(obj, "divide", step->flags & NPULINK_STEP_F_DIV);
	if (step->flags & NPULINK_STEP_F_TRANSIENT)
		put_u64(obj, "window", step->src2_off ?: step->len);
	return obj;
}

static struct json_object *json_call(const struct query *q)
{
	const struct coll_args *args = &q->args;
	struct json_object *obj = json_object_new_object(), *counts;

	put_str(obj, "collective", coll_collective_name(args->collective));
	put_str(obj, "algorithm", q->alg->name);
	put_u64(obj, "ranks", args->nranks);
	put_str(obj, "datatype", coll_dtype_name(args->dtype));
	put_str(obj, "op", coll_redop_name(args->redop));
	put_u64(obj, "root", args->root);
	put_bool(obj, "in_place", args->in_place);
	if (args->counts) {
		counts = json_object_new_array();
		for (uint32_t i = 0; i < args->nranks; i++)
			json_object_array_add(counts, json_object_new_uint64(args->counts[i]));
		json_object_object_add(obj, "counts", counts);
	} else {
		put_u64(obj, "count", args->count);
	}
	return obj;
}

static struct json_object *json_plan(const struct query *q, const struct coll_plan *plan)
{
	struct json_object *obj = json_call(q), *slots = json_object_new_array();
	struct json_object *steps = json_object_new_array(), *slot;
	char name[32];

	put_u64(obj, "rank", plan->rank);
	/* A string: most readers of JSON keep only 53 bits of a number. */
	snprintf(name, sizeof(name), "%016" PRIx64, (uint64_t)plan->call.set_id);
	put_str(obj, "set_id", name);
	for (uint32_t i = 0; i < plan->nslots; i++) {
		slot = json_object_new_object();
		put_str(slot, "slot", slot_name(i, name));
		put_u64(slot, "bytes", plan->slots[i].min_len);
		put_bool(slot, "read", plan->slots[i].access & NPULINK_SLOT_READ);
		put_bool(slot, "write", plan->slots[i].access & NPULINK_SLOT_WRITE);
		json_object_array_add(slots, slot);
	}
	json_object_object_add(obj, "slots", slots);
	for (uint32_t i = 0; i < plan->nsteps; i++)
		json_object_array_add(steps, json_step(plan, i));
	json_object_object_add(obj, "steps", steps);
	return obj;
}

static int make_plan(struct query *q, uint32_t rank, struct coll_plan *plan)
{
	int rc;

	set_rank(q, rank);
	rc = coll_plan_make(q->alg, &q->args, plan);
	if (!rc)
		return 0;
	return fail("cannot plan %s %s: %s", coll_collective_name(q->args.collective),
		    q->alg->name, coll_strerror(rc));
}

static int show_rank(struct query *q, uint32_t rank, struct json_object *array)
{
	struct coll_plan plan;
	char *text = NULL;
	int rc;

	rc = make_plan(q, rank, &plan);
	if (rc)
		return rc;
	if (opts.json) {
		json_object_array_add(array, json_plan(q, &plan));
	} else if (q->text) {
		if (coll_plan_format(&q->args, q->alg->name, &plan, &text))
			rc = fail("not enough memory");
		else
			fputs(text, stdout);
		free(text);
	} else {
		if (rank && q->all)
			putchar('\n');
		show_text(q, &plan);
	}
	coll_plan_free(&plan);
	return rc;
}

static const char show_usage[] =
	"Usage: npulink [-j] plan show COLLECTIVE [OPTION]...\n"
	"\n"
	"Shows the steps of one rank. A step begins when the steps it comes AFTER are\n"
	"done; FROM and TO are ranks, READS and WRITES are buffer + offset in bytes.\n"
	"\n"
	"  -k, --rank RANK       whose steps (0)\n"
	"      --all             the steps of all ranks\n"
	"  -t, --text            in the form that \"plan verify --file\" reads\n"
	OPTIONS_HELP
	"  -j, --json            JSON; with --all, an array\n";

static int plan_show(int argc, char **argv)
{
	struct json_object *array = json_object_new_array();
	struct query q;
	uint32_t rank;
	int rc;

	rc = parse_query(&q, argc, argv, "a:p:k:n:d:o:r:it", show_usage);
	if (rc >= 0)
		goto out;
	rc = 0;
	if (!q.all)
		rc = show_rank(&q, q.args.rank, array);
	else
		for (rank = 0; !rc && rank < q.args.nranks; rank++)
			rc = show_rank(&q, rank, array);
	if (!rc && opts.json)
		json_print(json_object_get(q.all ? array : json_object_array_get_idx(array, 0)));
out:
	json_object_put(array);
	free_query(&q);
	return rc;
}

/* ---- verify */

static const char verify_usage[] =
	"Usage: npulink [-j] plan verify COLLECTIVE [OPTION]...\n"
	"       npulink [-j] plan verify --file FILE\n"
	"\n"
	"Proves the plans of all ranks right together: steps stay within their buffers,\n"
	"no two that may run at a time touch the same bytes, every send meets its receive,\n"
	"nothing waits in a circle, and every byte of the result holds exactly what the\n"
	"collective is defined to leave there.\n"
	"\n"
	"  -f, --file FILE       the plans of all ranks, as \"plan show --all --text\" prints\n"
	"                        them; - is standard input\n"
	OPTIONS_HELP
	"  -j, --json            JSON\n"
	"\n"
	"Exit status: 0 proved, 1 not.\n";

/* alltoallv: every rank sends the same, row by row. */
static uint64_t *all_rows(const struct query *q)
{
	uint32_t n = q->args.nranks;
	uint64_t *rows = calloc((size_t)n * n, sizeof(*rows));

	for (uint32_t i = 0; rows && i < n; i++)
		memcpy(rows + (size_t)i * n, q->counts, n * sizeof(*rows));
	return rows;
}

static struct json_object *json_report(const struct query *q,
				       const struct coll_verify_report *report, bool proved)
{
	struct json_object *obj = json_call(q);
	char name[16];

	put_bool(obj, "proved", proved);
	if (proved) {
		put_u64(obj, "steps", report->steps);
		put_u64(obj, "messages", report->messages);
		put_u64(obj, "bytes", report->bytes);
		put_u64(obj, "scratch", report->scratch);
		put_bool(obj, "in_order", report->in_order);
		return obj;
	}
	put_str(obj, "reason", report->reason);
	put_u64(obj, "rank", report->rank);
	if (report->step != ~0U)
		put_u64(obj, "step", report->step);
	if (report->slot != ~0U) {
		put_str(obj, "slot", slot_name(report->slot, name));
		put_u64(obj, "offset", report->off);
		put_u64(obj, "length", report->len);
	}
	return obj;
}

static void show_report(const struct query *q, const struct coll_verify_report *report)
{
	char bytes[16], scratch[16];

	show_call(q);
	printf("proved: %" PRIu64 " steps; %" PRIu64 " messages, %s bytes", report->steps,
	       report->messages, human_bytes(report->bytes, bytes));
	if (report->scratch)
		printf("; %s bytes of scratch memory", human_bytes(report->scratch, scratch));
	if (reduces(q->args.collective) && report->in_order)
		printf("; added up in the order of ranks");
	putchar('\n');
}

static int refuse(const struct coll_verify_report *report)
{
	char where[64] = "", name[16];

	if (report->step != ~0U)
		snprintf(where, sizeof(where), ", step %u", report->step);
	else if (report->slot != ~0U)
		snprintf(where, sizeof(where), ", %s+%" PRIu64, slot_name(report->slot, name),
			 report->off);
	return fail("rank %u%s: %s", report->rank, where, report->reason);
}

static int conclude(const struct query *q, const struct coll_verify_report *report, int rc)
{
	if (rc && rc != -EINVAL)
		return fail("cannot verify it: %s", coll_strerror(rc));
	if (opts.json)
		json_print(json_report(q, report, !rc));
	else if (!rc)
		show_report(q, report);
	return rc ? refuse(report) : EXIT_SUCCESS;
}

/* ---- verify --file */

/* Plans of a file by rank. */
struct file_set {
	struct coll_text *texts;
	size_t n, cap;
	const struct coll_text **by_rank;
};

static char *read_all(const char *path, size_t *len)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : stdin;
	char *text = NULL, *bigger;
	size_t cap = 0, n;

	*len = 0;
	if (!file)
		return NULL;
	do {
		if (*len == cap) {
			cap = cap ? 2 * cap : 65536;
			bigger = realloc(text, cap);
			if (!bigger) {
				free(text);
				text = NULL;
				break;
			}
			text = bigger;
		}
		n = fread(text + *len, 1, cap - *len, file);
		*len += n;
	} while (n);
	if (ferror(file)) {
		free(text);
		text = NULL;
	}
	if (file != stdin)
		fclose(file);
	return text;
}

static int parse_file(const char *path, const char *text, size_t len, struct file_set *set)
{
	struct coll_text_error error;
	uint32_t line = 0;
	int rc;

	for (;;) {
		if (set->n == set->cap) {
			struct coll_text *texts;

			set->cap = set->cap ? 2 * set->cap : 16;
			texts = reallocarray(set->texts, set->cap, sizeof(*texts));
			if (!texts)
				return fail("not enough memory");
			set->texts = texts;
		}
		rc = coll_plan_parse(&text, &len, &line, &set->texts[set->n], &error);
		if (rc == -ENOENT)
			return 0;
		if (rc == -EINVAL)
			return fail("%s:%u: %s", path, error.line, error.text);
		if (rc)
			return fail("%s: %s", path, strerror(-rc));
		set->n++;
	}
}

/* One plan for each rank, all for the same call. */
static int sort_file(const char *path, struct file_set *set)
{
	const struct coll_args *first, *args;
	uint32_t nranks;

	if (!set->n)
		return fail("%s: there is no plan in it", path);
	first = &set->texts[0].args;
	nranks = first->nranks;
	set->by_rank = calloc(nranks, sizeof(*set->by_rank));
	if (!set->by_rank)
		return fail("not enough memory");
	for (size_t i = 0; i < set->n; i++) {
		args = &set->texts[i].args;
		if (args->nranks != nranks || args->collective != first->collective ||
		    args->dtype != first->dtype || args->redop != first->redop ||
		    args->root != first->root || args->count != first->count)
			return fail("%s: the plans of rank %u and %u are for different calls",
				    path, first->rank, args->rank);
		if (set->by_rank[args->rank])
			return fail("%s: there are two plans of rank %u", path, args->rank);
		set->by_rank[args->rank] = &set->texts[i];
	}
	for (uint32_t rank = 0; rank < nranks; rank++)
		if (!set->by_rank[rank])
			return fail("%s: the plan of rank %u of %u is missing", path, rank, nranks);
	return 0;
}

/* The verifier frees what it gets, so it gets a copy. */
static int get_plan(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	const struct file_set *set = ctx;
	const struct coll_text *text = set->by_rank[rank];
	size_t len = text->plan.nsteps * sizeof(*plan->steps);

	*args = text->args;
	*plan = text->plan;
	plan->steps = malloc(len ?: 1);
	if (!plan->steps)
		return -ENOMEM;
	memcpy(plan->steps, text->plan.steps, len);
	plan->cap = plan->nsteps;
	return 0;
}

static int verify_file(struct query *q)
{
	struct coll_verify_report report = { };
	struct coll_algorithm alg = { };
	struct file_set file = { };
	struct coll_set set = { .get = get_plan, .ctx = &file, .seed = 1 };
	size_t len;
	char *text;
	int rc;

	text = read_all(q->file, &len);
	if (!text)
		return fail("cannot read %s: %s", q->file, strerror(errno));
	rc = parse_file(q->file, text, len, &file);
	if (!rc)
		rc = sort_file(q->file, &file);
	if (!rc) {
		q->args = file.texts[0].args;
		alg.name = *file.texts[0].algorithm ? file.texts[0].algorithm : "of the file";
		q->alg = &alg;
		set.nranks = q->args.nranks;
		rc = coll_verify_set(&set, &report);
		rc = conclude(q, &report, rc);
		q->alg = NULL;
	}
	for (size_t i = 0; i < file.n; i++)
		coll_text_free(&file.texts[i]);
	free(file.texts);
	free(file.by_rank);
	free(text);
	q->args = (struct coll_args){ };
	return rc;
}

static int plan_verify(int argc, char **argv)
{
	struct coll_verify_report report = { };
	uint64_t *rows = NULL;
	struct query q;
	int rc;

	rc = parse_query(&q, argc, argv, "a:p:n:d:o:r:if:", verify_usage);
	if (rc >= 0)
		goto out;
	if (q.file) {
		rc = verify_file(&q);
		goto out;
	}
	if (q.args.collective == NPULINK_COLL_ALLTOALLV) {
		rows = all_rows(&q);
		if (!rows) {
			rc = fail("not enough memory");
			goto out;
		}
		q.args.counts = rows;
	}
	rc = coll_verify_algorithm(q.alg, &q.args, &report);
	q.args.counts = q.counts;
	rc = conclude(&q, &report, rc);
out:
	free(rows);
	free_query(&q);
	return rc;
}

/* ---- list */

static const char list_usage[] =
	"Usage: npulink [-j] plan list [COLLECTIVE]\n"
	"\n"
	"Lists the algorithms that libcoll knows: p ranks, n bytes, alpha seconds per\n"
	"message, beta per byte moved, gamma per byte reduced; lg is the logarithm to\n"
	"base 2. \"<=\" marks an upper bound, else the cost is exact.\n"
	"\n"
	"  -j, --json  JSON\n";

static struct json_object *list_json(const struct coll_algorithm *alg)
{
	struct json_object *obj = json_object_new_object();

	put_str(obj, "collective", coll_collective_name(alg->collective));
	put_str(obj, "algorithm", alg->name);
	put_str(obj, "description", alg->desc);
	put_str(obj, "cost", alg->formula);
	put_bool(obj, "exact", alg->exact);
	put_bool(obj, "reorders", alg->commutative);
	return obj;
}

/* Formulas for one port and for many are parted by a semicolon: a line for each. */
static void list_text(const struct coll_algorithm *alg)
{
	const char *form = alg->formula, *end;

	printf("%-16s %-16s %s\n", coll_collective_name(alg->collective), alg->name, alg->desc);
	for (;;) {
		end = strstr(form, "; ");
		printf("%36s%s%.*s\n", "", alg->exact ? "" : "<= ",
		       end ? (int)(end - form) : (int)strlen(form), form);
		if (!end)
			break;
		form = end + 2;
	}
}

static int plan_list(int argc, char **argv)
{
	const struct coll_algorithm *alg = NULL;
	struct json_object *array;
	uint32_t collective = ~0U;
	int c;

	while ((c = cmd_option(argc, argv, "", NULL, list_usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	argc -= optind;
	argv += optind;
	if (argc && !parse_collective(argv[0], &collective))
		return usage_error("plan list: unknown collective \"%s\"", argv[0]);
	if (argc > 1)
		return usage_error("plan list: unknown word \"%s\"", argv[1]);

	array = json_object_new_array();
	if (!opts.json)
		printf("%-16s %-16s %s\n", "COLLECTIVE", "ALGORITHM", "WHAT IT DOES AND COSTS");
	for (uint32_t i = 0; i < NPULINK_COLLS; i++) {
		if (collective != ~0U && i != collective)
			continue;
		while ((alg = coll_algorithm_next(i, alg))) {
			if (opts.json)
				json_object_array_add(array, list_json(alg));
			else
				list_text(alg);
		}
	}
	if (opts.json)
		json_print(array);
	else
		json_object_put(array);
	return EXIT_SUCCESS;
}

static const struct cmd cmds[] = {
	{ "list",	plan_list,	"[COLLECTIVE]: algorithms and what they cost" },
	{ "show",	plan_show,	"COLLECTIVE: the steps of one rank" },
	{ "verify",	plan_verify,	"COLLECTIVE: prove the plans of all ranks right" },
	{ }
};

int plan_cmd(int argc, char **argv)
{
	return cmd_run("plan", cmds, argc, argv);
}
