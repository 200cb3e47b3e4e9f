/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sim.h - runs the plans of all ranks on a model of a network and tells how long
 * they take, which messages get in each other's way, and when each one is moved.
 *
 * sim.c says what the two rules are; net.c has the networks. Plans must have
 * been verified: the simulator trusts that they meet and looks at no buffers.
 */
#ifndef COLL_SIM_H
#define COLL_SIM_H

#include "plan/plan.h"
#include "verify/set.h"

#define COLL_NET_FULL		0	/* a link for each pair */
#define COLL_NET_RING		1	/* links to both neighbours, the shorter way */
#define COLL_NET_MESH		2	/* rows x cols, along the row first, then the column */
#define COLL_NET_TREE		3	/* leaf switches below a crossbar */
#define COLL_NET_SERVERS	4	/* a network inside each server, one between them */
#define COLL_NET_TORUS		5	/* a mesh whose lines are rings, the shorter way */
#define COLL_NETS		6

#define COLL_SHARE_WAIT		0	/* wormhole: wait until the whole way is free */
#define COLL_SHARE_FAIR		1	/* messages on one link get equal parts of it */
#define COLL_SHARE_IGNORE	2	/* count conflicts, but lose no time */

#define COLL_RULE_COST		0	/* the cost rule of ALGORITHMS.md */
#define COLL_RULE_EXEC		1	/* what the kernel does: slices, no list order */

/**
 * struct coll_sim_slow - messages from one rank to another that take longer
 * @src: from
 * @dst: to
 * @factor: alpha and beta times this
 */
struct coll_sim_slow {
	uint32_t src, dst;
	double factor;
};

/**
 * struct coll_net - a network
 * @kind: COLL_NET_*
 * @nranks: ranks, one at each node
 * @rows: MESH, TORUS
 * @cols: MESH, TORUS
 * @group: TREE: ranks at each leaf switch
 * @uplinks: TREE: links of a leaf switch to the crossbar, in each direction
 * @server_of: SERVERS: server of each rank
 * @sharing: COLL_SHARE_*: what happens when two messages want one link
 * @ports: 1: a send port and a receive port per rank; more: one of each for every
 *	   peer. SERVERS: that holds inside a server, and there is one more port to
 *	   the network between servers
 * @alpha: seconds per message, [1] between leaf switches or servers
 * @beta: seconds per byte moved, [1] as above
 * @gamma: seconds per byte reduced; a rank has one unit that does it
 * @slow: pairs of ranks that are slower than others, or NULL
 * @nslow: how many
 * @start: seconds after which each rank begins, or NULL: all at once
 */
struct coll_net {
	uint32_t kind, nranks;
	uint32_t rows, cols;
	uint32_t group, uplinks;
	const uint32_t *server_of;
	uint32_t sharing, ports;
	double alpha[2], beta[2], gamma;
	const struct coll_sim_slow *slow;
	uint32_t nslow;
	const double *start;
};

/**
 * struct coll_sim_message - one message, as it happened
 * @src: from
 * @dst: to
 * @src_step: step of @src
 * @dst_step: step of @dst
 * @len: bytes
 * @reduce: it is added to something
 * @due: both steps were ready
 * @start: it started to move
 * @end: all of it has arrived
 * @done: and is reduced
 */
struct coll_sim_message {
	uint32_t src, dst, src_step, dst_step;
	uint64_t len;
	bool reduce;
	double due, start, end, done;
};

/**
 * struct coll_sim_conflict - a message that found a link taken
 * @time: when
 * @link: which, see coll_net_link_name()
 * @src: the message that came second
 * @dst: its destination
 * @src_step: its step at @src
 * @by_src: the one that had the link
 * @by_dst: its destination
 * @by_step: its step at @by_src
 */
struct coll_sim_conflict {
	double time;
	uint32_t link;
	uint32_t src, dst, src_step;
	uint32_t by_src, by_dst, by_step;
};

/**
 * struct coll_sim_opts - how to simulate, and who wants to know
 * @rule: COLL_RULE_*
 * @slice: EXEC: bytes moved at a time, 0: 128 KiB as npulink_soft has it
 * @by_events: use the engine that knows all models even where the fast one does
 * @message: called for each message when it is done, or NULL
 * @conflict: called for each conflict, or NULL
 * @ctx: for both
 */
struct coll_sim_opts {
	uint32_t rule;
	uint64_t slice;
	bool by_events;
	void (*message)(void *ctx, const struct coll_sim_message *message);
	void (*conflict)(void *ctx, const struct coll_sim_conflict *conflict);
	void *ctx;
};

/**
 * struct coll_sim_result - how it went
 * @seconds: until the last rank is done
 * @steps: steps of all ranks
 * @messages: messages
 * @bytes: bytes in them
 * @conflicts: times that a message found a link taken
 * @busy: seconds that messages were moving, sum over all
 * @waited: seconds that messages waited for links, sum over all
 * @memory: bytes allocated at the end, for all that grows with the problem
 * @lists: different lists of steps among the ranks
 * @sampled: 0: each rank's plan was made; else those of so many ranks, which were all
 *	     alike but for their peers (only done if there are very many steps)
 * @text: what is wrong, if it failed with -EDEADLK or -EINVAL
 */
struct coll_sim_result {
	double seconds;
	uint64_t steps, messages, bytes, conflicts;
	double busy, waited;
	uint64_t memory;
	uint32_t lists, sampled;
	char text[200];
};

/**
 * coll_sim_run() - simulate the plans of a set
 * @set: the plans
 * @net: network
 * @opts: how, or NULL: the cost rule
 * @result: what came out
 *
 * Return: 0; -EDEADLK if ranks wait for each other, -EINVAL if a message has no
 * receiver, both with @result->text; -ENOMEM; what @set->get returned.
 */
int coll_sim_run(const struct coll_set *set, const struct coll_net *net,
		 const struct coll_sim_opts *opts, struct coll_sim_result *result);

/* The same for what an algorithm plans; arguments as in coll_verify_algorithm(). */
int coll_sim_algorithm(const struct coll_algorithm *alg, const struct coll_args *args,
		       const struct coll_net *net, const struct coll_sim_opts *opts,
		       struct coll_sim_result *result);

/* A full mesh of links with these costs: what closed forms are about. */
struct coll_net coll_net_of(const struct coll_cost_params *params, uint32_t nranks);

/**
 * coll_net_parse() - read a network's name
 * @text: "full", "ring", "mesh:ROWSxCOLS", "torus:ROWSxCOLS", "tree:RANKS[:UPLINKS]" (ranks
 *	  per leaf switch; as many uplinks if not given), "servers:RANKS" (ranks per server)
 *	  or "servers:N,N,.."
 * @nranks: ranks
 * @net: kind and shape are filled in; @net->server_of is to be freed
 * @error: what is wrong, one clause
 *
 * Return: 0, -EINVAL, -ENOMEM.
 */
int coll_net_parse(const char *text, uint32_t nranks, struct coll_net *net, const char **error);

/* Number of links that can be contended for; 0: none. */
uint32_t coll_net_links(const struct coll_net *net);

/* "(2,3)->(2,4)": COLL_NET_LINK_NAME bytes are enough. */
#define COLL_NET_LINK_NAME	48
const char *coll_net_link_name(const struct coll_net *net, uint32_t link, char *buf);

/* ---- bounds.c */

/**
 * struct coll_bounds - what no algorithm can beat under the cost rule
 * @latency: rounds that it takes to reach everybody
 * @bandwidth: bytes that have to pass through one rank's ports
 * @compute: bytes that have to be reduced, evenly spread
 * @best: the largest of them
 */
struct coll_bounds {
	double latency, bandwidth, compute, best;
};

/* alltoallv: the own rank's counts only. */
struct coll_bounds coll_bounds(const struct coll_args *args,
			       const struct coll_cost_params *params);

/*
 * The same on a network: between servers there is one port more, and no message is faster than
 * the faster of both levels. @args->counts of alltoallv are those of all ranks, row by row:
 * what the busiest rank needs. Negative latency: no memory.
 */
struct coll_bounds coll_bounds_on(const struct coll_args *args, const struct coll_net *net);

/* ---- forms.c */

/*
 * The closed form of a call, of alltoallv with the counts of all ranks, row by row: in each step
 * the largest message of any of them counts. Negative: no memory.
 */
double coll_form(const struct coll_algorithm *alg, const struct coll_args *args,
		 const struct coll_cost_params *params);

/* Is it exact for this very call: these ports, and counts that divide? */
bool coll_form_exact(const struct coll_algorithm *alg, const struct coll_args *args,
		     const struct coll_cost_params *params);

#endif /* COLL_SIM_H */
