/* SPDX-License-Identifier: GPL-2.0 */
/*
 * query.h - what the commands of npulink plan are asked about: one collective call.
 */
#ifndef TOOL_QUERY_H
#define TOOL_QUERY_H

#include "npulink.h"
#include "plan.h"

/* What the command line asks for. */
struct query {
	struct coll_args args;
	const struct coll_algorithm *alg;
	uint64_t *counts;	/* of the v forms */
	size_t ncounts;
	bool all, text;		/* show: of all ranks, libcoll's text form */
	const char *file;	/* verify: read the plans from there */
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

/*
 * Fill in @q from the command line, @letters being its short options. Returns -1 to
 * go on, else the exit status. To be undone with query_free() in either case.
 */
int query_parse(struct query *q, int argc, char **argv, const char *letters, const char *usage);
void query_free(struct query *q);
/* From here on it is about @rank. */
void query_set_rank(struct query *q, uint32_t rank);
/* What is asked about, in one line or as the beginning of an object. */
void query_print(const struct query *q);
struct json_object *query_json(const struct query *q);

bool query_reduces(uint32_t collective);
/* "send", "recv", "scratch", "slot7" */
const char *slot_name(uint32_t slot, char buf[16]);

/* plan_show.c, plan_verify.c */
int plan_show(int argc, char **argv);
int plan_verify(int argc, char **argv);

#endif /* TOOL_QUERY_H */
