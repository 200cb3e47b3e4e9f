/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * plan.h - planners: pure functions from a call to the list of steps of one rank.
 *
 * A planner family is one file of algorithm/, and ends in a table of struct
 * coll_algorithm, one row per (collective, algorithm); algorithm/algorithms.c lists the
 * tables. To add an algorithm: add a row; nothing else changes.
 */
#ifndef COLL_PLAN_H
#define COLL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <npulink/verify.h>

/**
 * struct coll_wires - messages that have to pass the busiest link one after the other
 * @shift: each rank sends to the one that is 2^i above
 * @exchange: each pair of ranks whose numbers differ in bit i has two
 * @each: each rank has one for another at the same distance; the mean of distances
 * @heap: along a binary tree whose nodes are numbered as in a heap, in each round
 * @trees: along two binary trees whose nodes stand between their children
 */
struct coll_wires {
	double shift[32], exchange[32], each, heap, trees;
};

/**
 * struct coll_topo - how ranks are wired, for planners that care
 * @rows: of the 2-D mesh, 0 if it is none
 * @cols: of the 2-D mesh; ranks are numbered row by row
 * @torus: the mesh's lines are rings
 * @ring: each rank has links to the one before and the one behind only
 * @group: ranks at each leaf switch of a tree, 0 if it is none
 * @uplinks: links of a leaf switch to the others
 * @nservers: number of servers, 0 or 1 if all ranks are in one
 * @server_of: server of each rank, ascending; NULL with @nservers <= 1
 * @wires: what sharing links costs, or NULL: nothing, or nobody knows
 * @scattered: ranks of a server are not one after the other, so that there are no @server_of
 */
struct coll_topo {
	uint32_t rows, cols;
	bool torus, ring, scattered;
	uint32_t group, uplinks;
	const struct coll_wires *wires;
	uint32_t nservers;
	const uint32_t *server_of;
};

/* Is there anything that planners or the choice among them would look at? */
static inline bool coll_topo_known(const struct coll_topo *t)
{
	return t->rows || t->ring || t->group || t->nservers > 1 || t->scattered;
}

/**
 * struct coll_cost_params - the network, in the cost rule of ALGORITHMS.md
 * @alpha: seconds per message
 * @beta: seconds per byte moved
 * @gamma: seconds per byte reduced
 * @ports: send ports and receive ports per rank; 1, or nranks - 1 for a full mesh
 * @far_alpha: seconds per message between servers, 0: as within one
 * @far_beta: seconds per byte between servers, of a rank's port to there; 0: as within one
 * @wires: which of the messages of a round share links; NULL: none
 */
struct coll_cost_params {
	double alpha, beta, gamma;
	uint32_t ports;
	double far_alpha, far_beta;
	const struct coll_wires *wires;
};

/**
 * struct coll_args - what to plan
 * @collective: NPULINK_COLL_*
 * @dtype: NPULINK_INT8 ..
 * @redop: NPULINK_SUM .. NPULINK_MAX, NPULINK_CALL_AVG
 * @root: root rank
 * @nranks: number of ranks, at least 1
 * @rank: own rank
 * @count: elements. allreduce, reduce, broadcast: of the buffer. scatter, gather,
 *	   allgather, reduce_scatter: of one rank's shard. alltoall: of the block for
 *	   one peer. v forms: unused. barrier: 0. p2p: elements
 * @counts: scatterv, gatherv, allgatherv, reduce_scatterv: elements of each
 *	    rank's shard. alltoallv: elements that this rank sends to each rank
 * @displs: offset in elements of each shard in the large buffer
 * @rcounts: alltoallv: elements received from each rank
 * @rdispls: alltoallv: where they go. @displs and @rdispls may be NULL: one
 *	     block after another
 * @peer: p2p: the other rank
 * @send: p2p: this rank is the sender
 * @in_place: send and receive buffer are one (NPULINK_SLOT_RECV; its layout is
 *	      that of MPI_IN_PLACE: shards lie at their place in the large buffer).
 *	      It may differ between ranks. broadcast, scatter(v), gather(v): looked
 *	      at only at the root, the others have one buffer anyway. reduce: the
 *	      input is in RECV, which ranks other than the root only read.
 *	      reduce_scatter(v): the result is left in the own shard, the rest of
 *	      the buffer is undefined. alltoallv: @counts and @displs are unused
 * @packed: by slot: blocks of a v form are one after the other in what is bound, whatever
 *	    @displs and @rdispls say
 * @chunks: pipelined algorithms: number of chunks, 0: the best for @network
 * @network: what chunks cost, the same on all ranks; NULL: a default
 * @topo: wiring, or NULL
 */
struct coll_args {
	uint32_t collective, dtype, redop, root, nranks, rank;
	uint64_t count;
	const uint64_t *counts, *displs, *rcounts, *rdispls;
	uint32_t peer;
	bool send;
	bool in_place;
	bool packed[2];
	uint32_t chunks;
	const struct coll_cost_params *network;
	const struct coll_topo *topo;
};

/**
 * struct coll_kind - what a collective is: a row of npulink/collectives.h
 * @name: for people
 * @givers: who has an input
 * @getters: who has a result
 * @gives: how much an input is
 * @gets: how much a result is
 * @whose: what is in the result
 */
struct coll_kind {
	const char *name;
	enum npulink_who givers, getters;
	enum npulink_part gives, gets;
	enum npulink_whose whose;
};

/* Of a number that is none, a collective in which nobody has anything. */
const struct coll_kind *coll_kind(uint32_t collective);

/* Makes the count that of a call with @count elements in the whole buffer; not of v forms. */
void coll_set_whole(struct coll_args *args, uint64_t count);

/* Are the counts of what a rank gets others than those of what it gives? */
bool coll_has_rcounts(uint32_t collective);

/* Is the buffer a whole that algorithms split into a shard per rank? */
bool coll_splits(uint32_t collective);

/* Does this rank have an input, or a result? */
bool coll_gives(const struct coll_args *args);
bool coll_gets(const struct coll_args *args);

/* The rank whose input is in that block of the own result, or NPULINK_ALL_RANKS for the sum. */
uint32_t coll_whose(const struct coll_args *args, uint32_t block);

/**
 * struct coll_plan - one rank's list of steps
 * @call: for PLAN_CREATE; set_id filled in by coll_plan_make()
 * @algorithm: name of the algorithm, NULL if coll_plan_make() did not make it
 * @nranks: ranks
 * @rank: own rank
 * @nslots: slots used (highest + 1)
 * @slots: NPULINK_SLOT_SEND, NPULINK_SLOT_RECV, NPULINK_SLOT_SCRATCH; in place:
 *	   SEND is unused (min_len 0, access 0). min_len is the number of bytes
 *	   that the caller's buffer really has for this call, access what steps do;
 *	   a slot that no step touches has neither
 * @nsteps: number of steps
 * @cap: allocated
 * @steps: the list
 * @build: private to planner.h
 */
struct coll_plan {
	struct npulink_call call;
	const char *algorithm;
	uint32_t nranks, rank;
	uint32_t nslots;
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	uint32_t nsteps, cap;
	struct npulink_step *steps;
	struct {
		uint32_t after[NPULINK_STEP_DEPS], nafter;
		bool drain;
		int rc;
	} build;
};

/**
 * struct coll_algorithm - one way to do one collective
 * @collective: NPULINK_COLL_*
 * @name: unique within the collective, [a-z0-9-]+
 * @desc: one line for people
 * @formula: the closed form, as text
 * @exact: the form is exact under the cost rule; else an upper bound
 * @commutative: changes the order of operands
 * @supports: NULL if it can do the call, else why not, one clause
 * @plan: append the steps of args->rank. The plan is empty and has call, nranks
 *	  and rank set. Return 0 or -errno
 * @cost: seconds by the closed form
 * @chunks: pipelined algorithms: the best number of chunks for this network; else
 *	    NULL. With args->chunks 0, plan and cost take that for args->network, whatever
 *	    network the cost is asked for: all ranks must take the same
 * @rotation: all ranks' plans are rank 0's with peers shifted (p^2-message
 *	      algorithms); the verifier checks that before it relies on it
 * @ordered: each result is the sum of rank 0's, rank 1's .. in that order, on all ranks
 * @together: what one request writes others at most copy: ranks of one machine can run all of
 *	      them together, block by block (kernel/core/run/round.c)
 */
struct coll_algorithm {
	uint32_t collective;
	const char *name;
	const char *desc;
	const char *formula;
	bool exact;
	bool commutative;
	bool rotation;
	bool ordered;
	bool together;
	const char *(*supports)(const struct coll_args *args);
	int (*plan)(const struct coll_args *args, struct coll_plan *plan);
	double (*cost)(const struct coll_args *args, const struct coll_cost_params *params);
	uint32_t (*chunks)(const struct coll_args *args, const struct coll_cost_params *params);
};

/* What ranks have to agree on, as one number: begin with this, add word by word. */
#define COLL_HASH_INIT	0xcbf29ce484222325ULL

uint64_t coll_hash_add(uint64_t h, uint64_t word);
uint64_t coll_hash_text(uint64_t h, const char *text);
uint64_t coll_hash_topo(uint64_t h, const struct coll_topo *topo, uint32_t nranks);

/**
 * coll_plan_make() - plan one rank's part
 * @alg: algorithm
 * @args: call
 * @plan: result, to be freed with coll_plan_free(); zeroed by this function
 *
 * Checks the arguments, runs the planner, fills in slots and call (with set_id).
 *
 * Return: 0, -EINVAL (arguments), -EOPNOTSUPP (supports() says no),
 * -EOVERFLOW, -ENOMEM.
 */
int coll_plan_make(const struct coll_algorithm *alg, const struct coll_args *args,
		   struct coll_plan *plan);
void coll_plan_free(struct coll_plan *plan);

/**
 * struct coll_plan_stats - what a plan moves
 * @sends: messages sent
 * @recvs: messages received
 * @sent: bytes in them
 * @received: bytes in them
 * @read: bytes that the device reads, here or at a peer; a chain's dst counts as
 *	  read by its first step only
 * @written: bytes that the device writes; a chain counts once
 */
struct coll_plan_stats {
	uint64_t sends, recvs, sent, received, read, written;
};

void coll_plan_stats(const struct coll_plan *plan, struct coll_plan_stats *stats);

/**
 * coll_plan_desc() - a plan as the kernel's verifier wants it
 * @plan: plan; the description points into it
 */
struct npulink_plan_desc coll_plan_desc(const struct coll_plan *plan);

/* NULL if the arguments are well formed, else what is wrong, one clause. */
const char *coll_args_check(const struct coll_args *args);

/* The blocks, one per rank, of a slot of a v form; false if it has none. */
bool coll_args_blocks(const struct coll_args *args, uint32_t slot, const uint64_t **counts,
		      const uint64_t **displs);

/* 0; -EINVAL: two ranks' blocks overlap where they are written to; -ENOMEM. O(p log p). */
int coll_args_overlap(const struct coll_args *args, uint32_t ranks[2]);

/* Names: "allreduce", "float32", "sum". Return -1 if the text is none. */
const char *coll_collective_name(uint32_t collective);
int coll_collective_parse(const char *text);
const char *coll_dtype_name(uint32_t dtype);
int coll_dtype_parse(const char *text);
const char *coll_redop_name(uint32_t redop);
int coll_redop_parse(const char *text);

#endif /* COLL_PLAN_H */
