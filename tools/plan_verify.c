// SPDX-License-Identifier: GPL-2.0
/*
 * plan_verify.c - npulink plan verify: the proof that the plans of all ranks do
 * together what the collective is defined to do; plans of libcoll's planners, or
 * from a file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <coll.h>
#include "plan_text.h"
#include "query.h"
#include "verify_set.h"

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
	struct json_object *obj = query_json(q);
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

	query_print(q);
	printf("proved: %" PRIu64 " steps; %" PRIu64 " messages, %s bytes", report->steps,
	       report->messages, human_bytes(report->bytes, bytes));
	if (report->scratch)
		printf("; %s bytes of scratch memory", human_bytes(report->scratch, scratch));
	if (query_reduces(q->args.collective) && report->in_order)
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

int plan_verify(int argc, char **argv)
{
	struct coll_verify_report report = { };
	uint64_t *rows = NULL;
	struct query q;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:n:d:o:r:if:", verify_usage);
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
	query_free(&q);
	return rc;
}
