// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * text.c - plans written as text, see text.h for the grammar, and as
 * bytes. parse.c reads the text.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "plan/planner.h"
#include "plan/text.h"

#define RECV	NPULINK_STEP_RECV
#define REDUCE	NPULINK_STEP_REDUCE
#define SEND	NPULINK_STEP_SEND
#define COPY	NPULINK_STEP_COPY

const char *coll_step_name(const struct npulink_step *step)
{
	bool passes = (step->flags & NPULINK_STEP_F_TRANSIENT) ||
		      step->dst_slot == NPULINK_SLOT_SCRATCH;

	switch (step->op) {
	case 0:
		return "nop";
	case COPY:
		return "copy";
	case REDUCE:
		return "reduce";
	case SEND:
		return "send";
	case RECV:
		return "recv";
	case RECV | REDUCE:
		return "recvReduce";
	case RECV | SEND:
		return "recvCopySend";
	case RECV | REDUCE | SEND:
		return passes ? "recvReduceSend" : "recvReduceCopySend";
	case COPY | SEND:
		return "copySend";
	case REDUCE | SEND:
		return "reduceSend";
	}
	return "?";
}

/* ---- text */

static void put_slot(FILE *f, uint32_t slot)
{
	static const char * const names[] = { "send", "recv", "scratch" };

	if (slot < ARRAY_SIZE(names))
		fputs(names[slot], f);
	else
		fprintf(f, "%u", slot);
}

static void put_operand(FILE *f, const char *name, uint32_t slot, uint64_t off)
{
	fprintf(f, " %s=", name);
	put_slot(f, slot);
	fprintf(f, "+%llu", (unsigned long long)off);
}

static void put_step(FILE *f, const struct coll_plan *plan, uint32_t i)
{
	const struct npulink_step *s = &plan->steps[i];
	uint32_t redop = plan->call.redop == NPULINK_CALL_AVG ? NPULINK_SUM : plan->call.redop;
	const char *sep = " after=";
	uint32_t k;

	fprintf(f, "%u %s", i, coll_step_name(s));
	if (s->op & RECV)
		fprintf(f, " from=%u", s->recv_peer);
	if (s->op & SEND)
		fprintf(f, " to=%u", s->send_peer);
	if (s->channel)
		fprintf(f, " channel=%u", s->channel);
	if (s->len) {
		if ((s->op & (REDUCE | COPY)) || s->op == SEND)
			put_operand(f, "src", s->src_slot, s->src_off);
		if ((s->op & REDUCE) && !(s->op & RECV))
			put_operand(f, "src2", s->src2_slot, s->src2_off);
		if (s->op != SEND)
			put_operand(f, "dst", s->dst_slot, s->dst_off);
		fprintf(f, " len=%llu", (unsigned long long)s->len);
	}
	if ((s->op & REDUCE) && s->dtype != plan->call.dtype)
		fprintf(f, " dtype=%s", coll_dtype_name(s->dtype));
	if ((s->op & REDUCE) && s->redop != redop)
		fprintf(f, " redop=%s", coll_redop_name(s->redop));
	/* Only what is passed on has a window; elsewhere that member is an operand's. */
	if ((s->flags & NPULINK_STEP_F_TRANSIENT) && (s->op & RECV) && (s->op & SEND) &&
	    s->src2_off)
		fprintf(f, " window=%llu", (unsigned long long)s->src2_off);
	else if (s->flags & NPULINK_STEP_F_TRANSIENT)
		fputs(" transient", f);
	if (s->flags & NPULINK_STEP_F_DIV)
		fputs(" div", f);
	if (s->flags & NPULINK_STEP_F_SCALE)
		fputs(" scale", f);
	if (s->flags & NPULINK_STEP_F_SCALE2)
		fputs(" scale2", f);
	if (s->flags & NPULINK_STEP_F_REST)
		fputs(" rest", f);
	if (s->flags & NPULINK_STEP_F_CHAIN)
		fputs(" chain", f);
	if (s->flags & NPULINK_STEP_F_DRAIN)
		fputs(" drain", f);
	for (k = 0; k < NPULINK_STEP_DEPS; k++) {
		if (!s->dep[k])
			continue;
		fprintf(f, "%s%u", sep, i - s->dep[k]);
		sep = ",";
	}
	fputc('\n', f);
}

static void put_array(FILE *f, const char *name, const uint64_t *a, uint32_t n)
{
	uint32_t i;

	if (!a)
		return;
	fputs(name, f);
	for (i = 0; i < n; i++)
		fprintf(f, " %llu", (unsigned long long)a[i]);
	fputc('\n', f);
}

static void put_call(FILE *f, const struct coll_args *args, const struct coll_plan *plan)
{
	const struct npulink_call *call = &plan->call;
	bool v = npulink_coll_is_v(call->collective);

	fprintf(f, "ranks %u\nrank %u\n", plan->nranks, plan->rank);
	if (npulink_coll_has_root(call->collective))
		fprintf(f, "root %u\n", call->root);
	if (call->collective != NPULINK_COLL_BARRIER)
		fprintf(f, "dtype %s\n", coll_dtype_name(call->dtype));
	if (npulink_coll_reduces(call->collective))
		fprintf(f, "redop %s\n", coll_redop_name(call->redop));
	if (!v && call->collective != NPULINK_COLL_BARRIER)
		fprintf(f, "count %llu\n", (unsigned long long)call->count);
	if (v) {
		put_array(f, "counts", args->counts, plan->nranks);
		put_array(f, "displs", args->displs, plan->nranks);
	}
	if (coll_has_rcounts(call->collective)) {
		put_array(f, "rcounts", args->rcounts, plan->nranks);
		put_array(f, "rdispls", args->rdispls, plan->nranks);
	}
	if (call->collective == NPULINK_COLL_P2P)
		fprintf(f, "peer %u %s\n", args->peer, args->send ? "send" : "recv");
	if (args->in_place)
		fputs("in-place\n", f);
	fprintf(f, "set 0x%llx\n", (unsigned long long)call->set_id);
}

int coll_plan_format(const struct coll_args *args, const char *algorithm,
		     const struct coll_plan *plan, char **text)
{
	size_t len;
	FILE *f = open_memstream(text, &len);
	uint32_t i;
	bool bad;

	if (!f)
		return -ENOMEM;
	fprintf(f, "plan %s%s%s\n", coll_collective_name(plan->call.collective),
		algorithm ? " " : "", algorithm ? algorithm : "");
	put_call(f, args, plan);
	for (i = 0; i < plan->nslots; i++) {
		const struct npulink_slot *slot = &plan->slots[i];

		fputs("slot ", f);
		put_slot(f, i);
		fprintf(f, " %llu%s%s\n", (unsigned long long)slot->min_len,
			slot->access & NPULINK_SLOT_READ ? " read" : "",
			slot->access & NPULINK_SLOT_WRITE ? " write" : "");
	}
	for (i = 0; i < plan->nsteps; i++)
		put_step(f, plan, i);
	fputs("end\n", f);
	bad = ferror(f);
	if (fclose(f) || bad) {
		free(*text);
		*text = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* ---- bytes */

struct file_head {
	char magic[8];
	uint32_t nranks, rank, nslots, nsteps;
	struct npulink_call call;
};

static const char magic[8] = "npuplan1";

int coll_plan_save(const struct coll_plan *plan, void **data, size_t *len)
{
	struct file_head head = {
		.nranks = plan->nranks, .rank = plan->rank,
		.nslots = plan->nslots, .nsteps = plan->nsteps, .call = plan->call,
	};
	size_t slots = plan->nslots * sizeof(plan->slots[0]);
	size_t steps = plan->nsteps * sizeof(plan->steps[0]);
	char *p;

	memcpy(head.magic, magic, sizeof(magic));
	*len = sizeof(head) + slots + steps;
	p = malloc(*len);
	if (!p)
		return -ENOMEM;
	memcpy(p, &head, sizeof(head));
	memcpy(p + sizeof(head), plan->slots, slots);
	if (steps)
		memcpy(p + sizeof(head) + slots, plan->steps, steps);
	*data = p;
	return 0;
}

static int bad_file(struct coll_text_error *error, const char *text)
{
	error->line = 0;
	snprintf(error->text, sizeof(error->text), "%s", text);
	return -EINVAL;
}

int coll_plan_load(const void *data, size_t len, struct coll_plan *plan,
		   struct coll_text_error *error)
{
	struct file_head head;
	size_t slots, steps;

	memset(plan, 0, sizeof(*plan));
	if (len < sizeof(head))
		return bad_file(error, "too short for a plan");
	memcpy(&head, data, sizeof(head));
	if (memcmp(head.magic, magic, sizeof(magic)))
		return bad_file(error, "not a plan");
	if (head.nslots > NPULINK_MAX_SLOTS || head.nsteps > NPULINK_MAX_STEPS)
		return bad_file(error, "too many slots or steps");
	slots = head.nslots * sizeof(plan->slots[0]);
	steps = head.nsteps * sizeof(plan->steps[0]);
	if (len != sizeof(head) + slots + steps)
		return bad_file(error, "the length is not that of its slots and steps");

	plan->call = head.call;
	plan->nranks = head.nranks;
	plan->rank = head.rank;
	plan->nslots = head.nslots;
	plan->nsteps = head.nsteps;
	plan->cap = head.nsteps;
	memcpy(plan->slots, (const char *)data + sizeof(head), slots);
	if (!steps)
		return 0;
	plan->steps = malloc(steps);
	if (!plan->steps) {
		memset(plan, 0, sizeof(*plan));
		return -ENOMEM;
	}
	memcpy(plan->steps, (const char *)data + sizeof(head) + slots, steps);
	return 0;
}
