// SPDX-License-Identifier: GPL-2.0
/*
 * show.c - npulink plan show: the steps of one rank, or of all, as a table,
 * as JSON, or in libcoll's text form.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <coll.h>
#include "cli/aliases.h"
#include "lib/plan/text.h"
#include "plan/options.h"

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
	if (step->flags & NPULINK_STEP_F_SCALE)
		printf(" scale");
	if (step->flags & NPULINK_STEP_F_SCALE2)
		printf(" scale2");
	if (step->flags & NPULINK_STEP_F_REST)
		printf(" rest");
	if (step->flags & NPULINK_STEP_F_TRANSIENT && step->src2_off)
		printf(" window %" PRIu64, (uint64_t)step->src2_off);
	putchar('\n');
}

static void show_text(const struct query *q, const struct coll_plan *plan)
{
	char name[16], bytes[16];

	query_print(q);
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
	put_bool(obj, "scale", step->flags & NPULINK_STEP_F_SCALE);
	put_bool(obj, "scale2", step->flags & NPULINK_STEP_F_SCALE2);
	put_bool(obj, "rest", step->flags & NPULINK_STEP_F_REST);
	if (step->flags & NPULINK_STEP_F_TRANSIENT)
		put_u64(obj, "window", step->src2_off ?: step->len);
	return obj;
}

static struct json_object *json_plan(const struct query *q, const struct coll_plan *plan)
{
	struct json_object *obj = query_json(q), *slots = json_object_new_array();
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

	query_set_rank(q, rank);
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

int plan_show(int argc, char **argv)
{
	struct json_object *array = json_object_new_array();
	struct query q;
	uint32_t rank;
	int rc;

	rc = query_parse(&q, argc, argv, "a:p:k:n:d:o:r:it", show_usage);
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
	query_free(&q);
	return rc;
}
