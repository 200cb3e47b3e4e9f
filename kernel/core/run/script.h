/* SPDX-License-Identifier: GPL-2.0 */
/*
 * script.h - all ranks' requests of a collective, in an order in which they can be run: made by
 * script.c, run for small collectives by meet.c, for large ones by share.c.
 */
#ifndef NPULINK_SCRIPT_H
#define NPULINK_SCRIPT_H

#include "run/op.h"

/* Bytes of a slot of one rank's operation. */
struct npulink_script_operand {
	u32 rank;
	u16 slot;
	bool scaled;
	u64 off;
};

struct npulink_script_req {
	u32 rank;		/* whose engine */
	u32 unit;
	u32 operand;		/* script->operands[operand ..]: dst, then nsrc inputs */
	u16 nsrc;
	u8 dtype;
	u8 redop;
	bool div;
	bool rest;
	u8 scale;
	bool nontemporal;	/* nobody reads the result again before it is out of the cache */
	u64 len;
};

/* What went over one link. */
struct npulink_script_link {
	u32 rank;		/* the receiver */
	u32 peer;		/* index in its plan's peers */
	u64 steps;
	u64 bytes;
};

/*
 * struct npulink_script - the requests of all ranks' plans, in an order that the plans allow
 * @max_req: bytes read by the largest request; of a share, what its devices must do inline
 * @share: how it is divided among all ranks' tasks; NULL: it is not
 * @busy: bit 0: @ops is in use
 * @ops: the operations being run, by rank
 */
struct npulink_script {
	struct kref kref;
	u32 nranks;
	u32 nreqs;
	u32 noperands;
	u32 nlinks;
	u64 max_req;
	struct npulink_script_req *reqs;
	struct npulink_script_operand *operands;
	struct npulink_script_link *links;
	struct npulink_share *share;
	unsigned long busy;
	struct npulink_op *ops[];
};

struct npulink_script *npulink_script_make(struct npulink_op *list, u32 nranks);
int npulink_script_req_run(const struct npulink_script *s, const struct npulink_script_req *sr,
			   struct npulink_req *req, u64 at, u64 n);
void npulink_script_fail(const struct npulink_script *s, const struct npulink_script_req *sr,
			 int rc);
void npulink_script_count(const struct npulink_script *s);

/* ---- share.c --------------------------------------------------------------- */

bool npulink_share_make(struct npulink_script *s, u32 max_src, u64 bytes);
void npulink_share_free(struct npulink_script *s);
void npulink_share_post(struct npulink_op *list, struct npulink_run *run);
bool npulink_share_withdraw(struct npulink_op *op);

/* ---- meet.c ---------------------------------------------------------------- */

void npulink_meet_close(struct npulink_op *list, bool done, u64 met, struct npulink_run *run);

void npulink_share_part(struct npulink_req *req, const struct npulink_op *waits, u64 until_ns);

#endif /* NPULINK_SCRIPT_H */
