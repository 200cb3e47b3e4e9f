/* SPDX-License-Identifier: GPL-2.0 */
/*
 * graph.h - the plans of all ranks of a collective, linked: graph.c, graph_items.c.
 */
#ifndef NPULINK_GRAPH_H
#define NPULINK_GRAPH_H

#include <linux/kref.h>
#include "run/op.h"

/* Bytes of a slot of one rank's operation. */
struct npulink_graph_operand {
	u32 rank;
	u16 slot;
	bool scaled;
	u64 off;
};

struct npulink_graph_req {
	u32 rank;		/* whose engine */
	u32 unit;
	u32 operand;		/* graph->operands[operand ..]: dst, then nsrc inputs */
	u16 nsrc;
	u8 dtype;
	u8 redop;
	bool div;
	bool rest;
	u8 scale;
	bool nontemporal;	/* the result is read again only after it has left the cache */
	u64 len;
};

/* What goes over one link. */
struct npulink_graph_link {
	u32 rank;		/* the receiver */
	u32 peer;		/* index in its plan's peers */
	u64 steps;
	u64 bytes;
};

/* Requests that belong together: one, and those that copy what it has written, or reads. */
struct npulink_graph_item {
	u32 first;		/* graph->reqs[first .. first + nreqs) */
	u32 nreqs;
	u32 at;			/* number of its first block */
	u32 block;		/* bytes of a block */
	u64 len;
};

/*
 * struct npulink_graph - all ranks' plans as one list of requests
 * @serial: no other graph has had it
 * @max_req: bytes that a device has to take inline
 * @nitems: items that do not depend on each other: their blocks can be run in any order, by
 *	several tasks at a time. 0: one task runs the requests, in their order
 * @nblocks: blocks of all items
 */
struct npulink_graph {
	struct kref kref;
	u64 serial;
	u32 nranks;
	u32 nreqs;
	u32 noperands;
	u32 nlinks;
	u32 nitems;
	u32 nblocks;
	u64 max_req;
	struct npulink_graph_req *reqs;
	struct npulink_graph_operand *operands;
	struct npulink_graph_link *links;
	struct npulink_graph_item *items;
};

struct npulink_graph *npulink_graph_make(struct npulink_op *const *ops, u32 nranks);
void npulink_graph_put(struct npulink_graph *g);
int npulink_graph_run(const struct npulink_graph *g, struct npulink_op *const *ops);
s64 npulink_graph_run_block(const struct npulink_graph *g, struct npulink_op *const *ops,
			    u32 block, struct npulink_req *req);
void npulink_graph_count(const struct npulink_graph *g, struct npulink_op *const *ops);

extern unsigned int npulink_graph_bytes;

/* ---- graph_items.c */

bool npulink_graph_divide(struct npulink_graph *g, u32 max_src, u64 bytes);

#endif /* NPULINK_GRAPH_H */
