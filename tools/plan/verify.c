// SPDX-License-Identifier: GPL-2.0
/*
 * verify.c - npulink plan verify: the proof that the plans of all ranks do
 * together what the collective is defined to do; plans of libcoll's planners, or
 * from a file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <coll.h>
#include "plan/options.h"

static const char verify_usage[] =
	"Usage: npulink [-j] plan verify COLLECTIVE [OPTION]...\n"
	"       npulink [-j] plan verify --file FILE\n"
	"       npulink plan verify --all [--jobs N] [--ranks N,...]\n"
	"\n"
	"Proves the plans of all ranks right together: steps stay within their buffers,\n"
	"no two that may run at a time touch the same bytes, every send meets its receive,\n"
	"nothing waits in a circle, and every byte of the result holds exactly what the\n"
	"collective is defined to leave there.\n"
	"\n"
	"  -f, --file FILE       the plans of all ranks, as \"plan show --all --text\" prints\n"
	"                        them; - is standard input\n"
	"      --all             every algorithm, for 1..64 ranks and some up to 4,096; says\n"
	"                        what was proved by symmetry; minutes\n"
	"      --jobs N          with --all: so many processes (one per processor)\n"
	"      --ranks N,...     with --all: with so many ranks only\n"
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
	if (npulink_coll_reduces(q->args.collective) && report->in_order)
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

static int verify_file(struct query *q)
{
	struct coll_verify_report report = { };
	struct plan_file file;
	int rc = plan_file_read(&file, q->file);

	if (rc)
		return rc;
	q->args = file.args;
	q->alg = &file.alg;
	rc = conclude(q, &report, coll_verify_set(&file.set, &report));
	q->alg = NULL;
	q->args = (struct coll_args){ };
	plan_file_free(&file);
	return rc;
}

/* "--all [--jobs N] [--ranks N,...]", which have nothing in common with one call's options. */
static int verify_all(int argc, char **argv)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t jobs = n > 0 ? n : 1;
	const char *ranks = NULL;

	for (int i = 2; i < argc; i += 2) {
		if (i + 1 == argc || (strcmp(argv[i], "--jobs") && strcmp(argv[i], "--ranks")))
			return usage_error("plan verify: --all goes with --jobs and --ranks only");
		if (!strcmp(argv[i], "--ranks"))
			ranks = argv[i + 1];
		else if (!parse_u64(argv[i + 1], 64, &jobs) || !jobs)
			return usage_error("plan verify: --jobs \"%s\" is no number from 1 to 64",
					   argv[i + 1]);
	}
	return plan_verify_all(jobs, ranks);
}

int plan_verify(int argc, char **argv)
{
	struct coll_verify_report report = { };
	uint64_t *rows = NULL;
	struct query q;
	int rc;

	if (argc > 1 && !strcmp(argv[1], "--all"))
		return verify_all(argc, argv);
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
