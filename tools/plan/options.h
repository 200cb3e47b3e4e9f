/* SPDX-License-Identifier: GPL-2.0 */
/*
 * options.h - what the commands of npulink plan are asked about: one collective call.
 */
#ifndef TOOL_QUERY_H
#define TOOL_QUERY_H

#include "cli/npulink.h"
#include "lib/plan/plan.h"
#include "lib/verify/set.h"
#include "plan/net.h"

/* What the command line asks for. */
struct query {
	struct coll_args args;
	const struct coll_algorithm *alg;
	uint64_t *counts;	/* of the v forms */
	size_t ncounts;
	bool all, text;		/* show: of all ranks, libcoll's text form */
	const char *file;	/* verify, simulate: read the plans from there */
	const char *name;	/* of the algorithm asked for, or NULL */
	bool asked;		/* alg, by that name or by an override */
	bool every;		/* no collective given, or "all" */
	struct net_opts net;
	struct coll_cost_params network;	/* of args */
	struct coll_topo topo;	/* of args, from --net */
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
	"      --chunks N        chunks of algorithms that work in a pipeline (the best number\n" \
	"                        for what the network costs)\n"

#define FORMS_HELP \
	"p ranks, n bytes of all shards together (of one rank, where each has its own), L is\n" \
	"lg p rounded up; alpha seconds for a message, beta for a byte moved, gamma for a byte\n" \
	"reduced; k chunks, unless a form says what k is; m servers of q ranks, a mesh of r rows\n" \
	"and c columns. <=: an upper bound, else exact.\n"

/*
 * Fill in @q from the command line, @letters being its short options, after a * if
 * it may be about all collectives. Returns -1 to go on, else the exit status. To be
 * undone with query_free() in either case.
 */
int query_parse(struct query *q, int argc, char **argv, const char *letters, const char *usage);
void query_free(struct query *q);

/* Says what is wrong with a call, 0 if nothing. */
int query_check(const struct coll_args *args, const char *verb);
/* From here on it is about @rank. */
void query_set_rank(struct query *q, uint32_t rank);
/* What is asked about, in one line or as the beginning of an object. */
void query_title(const struct query *q, char *text, size_t size);
void query_print(const struct query *q);
struct json_object *query_json(const struct query *q);

/* "send", "recv", "scratch", "slot7" */
const char *slot_name(uint32_t slot, char buf[16]);

/* file.c: plans in libcoll's text form */
struct plan_file {
	struct coll_set set;
	struct coll_args args;
	struct coll_algorithm alg;
	void *mem;
};

/* The plans of all ranks, for one call. 0 or EXIT_FAILURE. */
int plan_file_read(struct plan_file *file, const char *path);
void plan_file_free(struct plan_file *file);

/* plan_*.c */
int plan_cost(int argc, char **argv);
int plan_explain(int argc, char **argv);
int plan_plot(int argc, char **argv);
int plan_show(int argc, char **argv);
int plan_simulate(int argc, char **argv);
int plan_verify(int argc, char **argv);

/* Prove every algorithm; returns the exit status. */
int plan_verify_all(uint32_t workers, const char *ranks);

#endif /* TOOL_QUERY_H */
