/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * text.h - plans as text that people read and edit, and as bytes in a file.
 */
#ifndef COLL_PLAN_TEXT_H
#define COLL_PLAN_TEXT_H

#include "plan/plan.h"

/**
 * DOC: the text form
 *
 * One statement per line; # begins a comment. Numbers are decimal or 0x.. ::
 *
 *	plan allreduce ring		collective, and algorithm if one made it
 *	ranks 8
 *	rank 3
 *	root 0				if the collective has one
 *	dtype float32
 *	redop sum			if it reduces
 *	count 1024			not in the v forms
 *	counts 1 2 3 4 5 6 7 8		v forms, also displs, rcounts, rdispls
 *	peer 4 send			p2p: send or recv
 *	in-place
 *	set 0x1c9d..			id of the plan set
 *	slot send 4096 read		min_len and access; without any slot lines they
 *	slot recv 4096 read write	follow from the call and the steps
 *	slot scratch 512 read write	slots above 2 go by number
 *	0 send to=4 src=send+1536 len=512
 *	1 recvReduceSend from=2 to=4 src=send+1024 dst=recv+1024 len=512
 *	2 recv from=2 dst=recv+2560 len=512 after=0,1
 *	end
 *
 * Steps may be numbered in any ascending way, or not at all; after= names numbers.
 * Further words of a step: channel=N, src2=SLOT+OFF, window=BYTES or transient, div, scale,
 * scale2, rest, chain, drain, dtype=.. and redop=.. if they differ from the call's.
 * A file holds any number of plans.
 */

/**
 * struct coll_text - a plan and what it was made for
 * @args: the call, as in coll_plan_make()
 * @plan: the plan
 * @algorithm: name of the algorithm, "" if none was given
 * @mem: of the arrays in @args
 */
struct coll_text {
	struct coll_args args;
	struct coll_plan plan;
	char algorithm[32];
	uint64_t *mem;
};

struct coll_text_error {
	uint32_t line;		/* 0: not about a line */
	char text[160];
};

/**
 * coll_plan_format() - write a plan as text
 * @args: call
 * @algorithm: name, or NULL
 * @plan: plan
 * @text: result, to be freed
 *
 * Return: 0 or -ENOMEM.
 */
int coll_plan_format(const struct coll_args *args, const char *algorithm,
		     const struct coll_plan *plan, char **text);

/**
 * coll_plan_parse() - read one plan
 * @text: text
 * @len: its length; goes on after the plan if it succeeds
 * @line: number of the line before @text; goes on as well
 * @out: result, to be freed with coll_text_free(); zeroed by this function
 * @error: what is wrong
 *
 * The plan is well formed in that it can be handed to npulink_verify(), which
 * alone says whether it makes sense.
 *
 * Return: 0; -ENOENT: nothing but comments are left; -EINVAL with @error; -ENOMEM.
 */
int coll_plan_parse(const char **text, size_t *len, uint32_t *line, struct coll_text *out,
		    struct coll_text_error *error);
void coll_text_free(struct coll_text *text);

/**
 * coll_plan_save() - write a plan as bytes: call, slots and steps as PLAN_CREATE
 * takes them, with a short header
 * @plan: plan
 * @data: result, to be freed
 * @len: its length
 *
 * Return: 0 or -ENOMEM.
 */
int coll_plan_save(const struct coll_plan *plan, void **data, size_t *len);

/* The reverse. 0; -EINVAL with @error; -ENOMEM. */
int coll_plan_load(const void *data, size_t len, struct coll_plan *plan,
		   struct coll_text_error *error);

/* "recvReduceSend", ..: what people call a step. */
const char *coll_step_name(const struct npulink_step *step);

#endif /* COLL_PLAN_TEXT_H */
