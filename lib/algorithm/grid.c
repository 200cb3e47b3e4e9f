// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * grid.c - broadcast on a 2-D mesh of rows x cols nodes, numbered row by row.
 *
 * What distinguishes these is which messages are on their way at the same time:
 * on a mesh whose routes go along the row first, some of them never share a link.
 * See "Broadcast on a 2-D mesh" in ALGORITHMS.md.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "algorithm/algorithms.h"
#include "plan/planner.h"

/* Whom a node gets it from, and to whom it passes it on, in this order. */
struct node {
	uint32_t parent;
	uint32_t child[64];
	uint32_t nchildren;
};

static void add_child(struct node *n, uint32_t child)
{
	n->child[n->nchildren++] = child;
}

/* ---- halving a line of nodes */

enum pick {
	PICK_OPPOSITE,		/* the node at the same place of the other half */
	PICK_FAR_FROM_ROOT,	/* that of the other half farthest from the first root */
};

/*
 * Nodes [lo, hi), of which @root has it: it passes it on to one of the other half,
 * and so on in both halves. The lower half is the larger one, or with @keep the
 * one of him who has it.
 */
struct halving {
	uint32_t lo, hi, holder, root;
	enum pick pick;
	bool keep;
};

/* Halve once; the holder of the other half is who it is passed on to. */
static void halve(const struct halving *h, struct halving *own, struct halving *other)
{
	uint32_t n = h->hi - h->lo, mid = h->lo + (n + 1) / 2;
	bool low;

	if (h->keep && h->holder >= mid)
		mid = h->lo + n / 2;
	low = h->holder < mid;
	*own = *h;
	*other = *h;
	if (low) {
		own->hi = mid;
		other->lo = mid;
	} else {
		own->lo = mid;
		other->hi = mid;
	}
	if (h->pick == PICK_OPPOSITE)
		other->holder = min_u32(other->lo + (h->holder - own->lo), other->hi - 1);
	else
		other->holder = other->lo > h->root ? other->hi - 1 : other->lo;
}

static struct node halving_node(struct halving h, uint32_t me)
{
	struct node n = { .parent = NPULINK_NO_PEER };

	while (h.hi - h.lo > 1) {
		struct halving own, other;

		halve(&h, &own, &other);
		if (me == h.holder)
			add_child(&n, other.holder);
		if (me == other.holder)
			n.parent = h.holder;
		h = me >= own.lo && me < own.hi ? own : other;
	}
	return n;
}

/* ---- whole messages down a tree */

static int emit(const struct coll_args *args, struct coll_plan *plan, const struct node *n)
{
	uint64_t len = args->count * npulink_dtype_size(args->dtype);
	struct plan_at at = at_recv(0);
	uint32_t i, got = PLAN_NONE;

	if (n->parent != NPULINK_NO_PEER && n->nchildren == 1) {
		plan_recv_send(plan, n->parent, n->child[0], at, len);
		return 0;
	}
	if (n->parent == NPULINK_NO_PEER)
		at = plan_input(args, 0);
	else
		got = plan_recv(plan, n->parent, at, len);
	for (i = 0; i < n->nchildren; i++) {
		plan_after(plan, got);
		plan_send(plan, n->child[i], at, len);
	}
	if (n->parent == NPULINK_NO_PEER && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0), len);
	return 0;
}

/* Shortest distance first: messages of one round overtake each other in a row. */
static int hypercube_naive(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t v = args->rank ^ args->root, top = v ? 1U << lg_floor(v) : 0, d;
	struct node n = { .parent = v ? args->rank ^ top : NPULINK_NO_PEER };

	for (d = top ? 2 * top : 1; d < args->nranks; d *= 2)
		add_child(&n, args->rank ^ d);
	return emit(args, plan, &n);
}

/* Longest distance first: within the column, then in each row. */
static int hypercube_reversed(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t v = args->rank ^ args->root, low = v ? v & -v : args->nranks, d;
	struct node n = { .parent = v ? args->rank ^ low : NPULINK_NO_PEER };

	for (d = low / 2; d; d /= 2)
		add_child(&n, args->rank ^ d);
	return emit(args, plan, &n);
}

static int halving_tree(const struct coll_args *args, struct coll_plan *plan)
{
	struct halving h = {
		.hi = args->nranks, .holder = args->root, .root = args->root,
		.pick = PICK_OPPOSITE,
	};
	struct node n = halving_node(h, args->rank);

	return emit(args, plan, &n);
}

static int rsbcast(const struct coll_args *args, struct coll_plan *plan)
{
	struct halving h = {
		.hi = args->nranks, .holder = args->root, .root = args->root,
		.pick = PICK_FAR_FROM_ROOT,
	};
	struct node n = halving_node(h, args->rank);

	return emit(args, plan, &n);
}

/* Halving of the root's column, then of each row. */
static int dimensions(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t rows = args->topo->rows, cols = args->topo->cols, i, k;
	uint32_t row = args->rank / cols, col = args->rank % cols, rootcol = args->root % cols;
	struct halving column = {
		.hi = rows, .holder = args->root / cols, .root = args->root / cols,
		.pick = PICK_FAR_FROM_ROOT,
	};
	struct halving line = {
		.hi = cols, .holder = rootcol, .root = rootcol, .pick = PICK_FAR_FROM_ROOT,
	};
	struct node n = { .parent = NPULINK_NO_PEER }, in_row = halving_node(line, col);

	if (col == rootcol) {
		n = halving_node(column, row);
		if (n.parent != NPULINK_NO_PEER)
			n.parent = n.parent * cols + col;
		for (i = 0; i < n.nchildren; i++)
			n.child[i] = n.child[i] * cols + col;
	} else {
		n.parent = row * cols + in_row.parent;
	}
	for (k = 0; k < in_row.nchildren; k++)
		add_child(&n, row * cols + in_row.child[k]);
	return emit(args, plan, &n);
}

/* ---- scatter, then collect */

/* Chunk i of the buffer is the one that node i is to have before the collecting. */
struct collect {
	const struct coll_args *args;
	struct coll_plan *plan;
	struct plan_shards s;
	bool root;
	struct plan_at buf;
	uint32_t got;		/* the step that brought what is held */
	uint32_t given[128];	/* sends that read what is received again later */
	uint32_t glo[128], ghi[128], ngiven;
};

static struct collect collect_of(const struct coll_args *args, struct coll_plan *plan)
{
	bool root = args->rank == args->root;

	return (struct collect){
		.args = args, .plan = plan, .s = plan_shards(args), .root = root,
		.buf = root ? plan_input(args, 0) : at_recv(0), .got = PLAN_NONE,
	};
}

static uint64_t range_len(const struct collect *c, uint32_t lo, uint32_t hi)
{
	return shard_off(&c->s, hi - 1) + shard_len(&c->s, hi - 1) - shard_off(&c->s, lo);
}

static struct plan_at range_at(const struct collect *c, uint32_t lo)
{
	return at_plus(c->buf, shard_off(&c->s, lo));
}

/* Nodes 0 .. n - 1 of a line, and which chunks each one is to have. */
struct line {
	uint32_t n, base, stride, shift;	/* rank = base + (i + shift) % n * stride */
	uint32_t first, width;			/* chunks from first + i * width on */
};

static uint32_t line_rank(const struct line *l, uint32_t i)
{
	return l->base + mod_add(i, l->shift, l->n) * l->stride;
}

static void scatter_line(struct collect *c, const struct line *l, uint32_t me, uint32_t holder)
{
	struct halving h = {
		.hi = l->n, .holder = holder, .root = holder, .pick = PICK_OPPOSITE, .keep = true,
	};

	while (h.hi - h.lo > 1) {
		struct halving own, other;
		uint32_t lo, hi, step;

		halve(&h, &own, &other);
		lo = l->first + other.lo * l->width;
		hi = l->first + other.hi * l->width;
		if (me == h.holder) {
			plan_after(c->plan, c->got);
			step = plan_send(c->plan, line_rank(l, other.holder), range_at(c, lo),
					 range_len(c, lo, hi));
			c->given[c->ngiven] = step;
			c->glo[c->ngiven] = lo;
			c->ghi[c->ngiven++] = hi;
		}
		if (me == other.holder)
			c->got = plan_recv(c->plan, line_rank(l, h.holder), range_at(c, lo),
					   range_len(c, lo, hi));
		h = me >= own.lo && me < own.hi ? own : other;
	}
}

/* Receiving chunks [lo, hi) again: not before they were passed on. */
static void after_given(const struct collect *c, uint32_t lo, uint32_t hi)
{
	uint32_t i;

	for (i = 0; i < c->ngiven; i++)
		if (lo < c->ghi[i] && c->glo[i] < hi)
			plan_after(c->plan, c->given[i]);
}

/*
 * Collect around the ring that the line closes to: in step s pass on what node
 * me - s was to have. Node @skip has everything: it only sends, and nobody sends to
 * it; n if there is none.
 */
static void collect_ring(struct collect *c, const struct line *l, uint32_t me, uint32_t skip)
{
	uint32_t after = mod_add(me, 1 % l->n, l->n), before = mod_sub(me, 1 % l->n, l->n);
	uint32_t next = line_rank(l, after), prev = line_rank(l, before), s, got = c->got;

	for (s = 0; s < l->n; s++) {
		uint32_t at = l->first + mod_sub(me, s, l->n) * l->width;
		uint64_t len = range_len(c, at, at + l->width);
		bool sends = s + 1 < l->n && after != skip, recvs = s && me != skip;

		if (recvs)
			after_given(c, at, at + l->width);
		if (sends || recvs)
			plan_after(c->plan, got);
		if (sends && recvs)
			plan_recv_send(c->plan, prev, next, range_at(c, at), len);
		else if (sends)
			plan_send(c->plan, next, range_at(c, at), len);
		else if (recvs)
			plan_recv(c->plan, prev, range_at(c, at), len);
	}
}

static int finish(const struct coll_args *args, struct coll_plan *plan)
{
	if (args->rank == args->root && !plan_in_place(args))
		plan_copy(plan, at_send(0), at_recv(0),
			  args->count * npulink_dtype_size(args->dtype));
	return 0;
}

static int scatter_collect_1d(const struct coll_args *args, struct coll_plan *plan)
{
	struct collect c = collect_of(args, plan);
	struct line l = { .n = args->nranks, .stride = 1, .width = 1 };

	scatter_line(&c, &l, args->rank, args->root);
	collect_ring(&c, &l, args->rank, args->root);
	return finish(args, plan);
}

/* The same counted from the root, so it does not matter where that is. */
static int van_de_geijn(const struct coll_args *args, struct coll_plan *plan)
{
	struct collect c = collect_of(args, plan);
	struct line l = { .n = args->nranks, .stride = 1, .shift = args->root, .width = 1 };
	uint32_t me = mod_sub(args->rank, args->root, args->nranks);

	scatter_line(&c, &l, me, 0);
	collect_ring(&c, &l, me, 0);
	return finish(args, plan);
}

/* Rows of chunks down the root's column, chunks along each row, and back. */
static int scatter_collect_2d(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t rows = args->topo->rows, cols = args->topo->cols;
	uint32_t row = args->rank / cols, col = args->rank % cols;
	uint32_t rootrow = args->root / cols, rootcol = args->root % cols;
	struct collect c = collect_of(args, plan);
	struct line column = { .n = rows, .base = col, .stride = cols, .width = cols };
	struct line line = {
		.n = cols, .base = row * cols, .stride = 1, .first = row * cols, .width = 1,
	};

	if (col == rootcol)
		scatter_line(&c, &column, row, rootrow);
	scatter_line(&c, &line, col, rootcol);
	collect_ring(&c, &line, col, rootcol);
	if (!c.root) {
		plan_after_all(plan);
		c.got = plan_nop(plan);
	}
	collect_ring(&c, &column, row, col == rootcol ? rootrow : rows);
	return finish(args, plan);
}

/* ---- the fence: chunks by two ways that share no port in any step */

/*
 * Even chunks go east along row 0 and then south, so column 0 gets them last, from
 * column @cols - 1. When chunk 0 reaches node (i, j), counted from the root; odd
 * chunks do the same with rows and columns exchanged.
 */
static uint32_t fence_time(uint32_t i, uint32_t j, uint32_t cols)
{
	if (!i)
		return j - 1;
	if (j)
		return i + j;
	return cols + i + (cols % 2 ? 0 : 1);
}

struct fence_op {
	uint32_t time, peer;
	bool recv;
	uint32_t odd;
};

struct fence {
	uint32_t rows, cols, rootrow, rootcol;
	struct fence_op ops[16];
	uint32_t nops;
};

/* Node (i, j) of the even tree, or (j, i) of the odd one. */
static uint32_t fence_rank(const struct fence *f, uint32_t i, uint32_t j, uint32_t odd)
{
	uint32_t row = odd ? j : i, col = odd ? i : j;

	return mod_add(row, f->rootrow, f->rows) * f->cols + mod_add(col, f->rootcol, f->cols);
}

static void fence_add(struct fence *f, bool recv, uint32_t odd, uint32_t time, uint32_t i,
		      uint32_t j)
{
	f->ops[f->nops++] = (struct fence_op){
		.time = time, .recv = recv, .odd = odd, .peer = fence_rank(f, i, j, odd),
	};
}

/* What node (i, j) does in the tree of a mesh of rows x cols. */
static void fence_node(struct fence *f, uint32_t i, uint32_t j, uint32_t rows, uint32_t cols,
		       uint32_t odd)
{
	uint32_t back = cols % 2 ? i + 1 : i;	/* row of column 0 that (i, cols - 1) serves */

	if (i && !j)
		fence_add(f, true, odd, fence_time(i, j, cols), cols % 2 ? i - 1 : i, cols - 1);
	else if (i)
		fence_add(f, true, odd, fence_time(i, j, cols), i - 1, j);
	else if (j)
		fence_add(f, true, odd, fence_time(i, j, cols), i, j - 1);

	if (!i && j + 1 < cols)
		fence_add(f, false, odd, fence_time(i, j + 1, cols), i, j + 1);
	if (j && i + 1 < rows)
		fence_add(f, false, odd, fence_time(i + 1, j, cols), i + 1, j);
	if (j == cols - 1 && back && back < rows)
		fence_add(f, false, odd, fence_time(back, 0, cols), back, 0);
}

static int fence(const struct coll_args *args, struct coll_plan *plan)
{
	uint32_t k = args->chunks, rank = args->rank, p = args->nranks, t, o, step;
	struct fence f = { .rows = args->topo->rows, .cols = args->topo->cols };
	struct plan_shards s = plan_split(args->count, k, npulink_dtype_size(args->dtype));
	uint32_t i, j, *got = malloc(k * sizeof(*got));
	bool root = rank == args->root;

	if (!got)
		return -ENOMEM;
	f.rootrow = args->root / f.cols;
	f.rootcol = args->root % f.cols;
	i = mod_sub(rank / f.cols, f.rootrow, f.rows);
	j = mod_sub(rank % f.cols, f.rootcol, f.cols);
	if (f.rows > 1 && f.cols > 1) {
		fence_node(&f, i, j, f.rows, f.cols, 0);
		fence_node(&f, j, i, f.cols, f.rows, 1);
	} else {
		/* A single line: a chain for all chunks, of either parity. */
		uint32_t v = i + j;

		for (o = 0; o < 2; o++) {
			if (v)
				f.ops[f.nops++] = (struct fence_op){
					v - 1, mod_sub(rank, 1, p), true, o };
			if (v + 1 < p)
				f.ops[f.nops++] = (struct fence_op){
					v, mod_add(rank, 1, p), false, o };
		}
	}
	for (t = 0; t < k; t++)
		got[t] = PLAN_NONE;
	/* The list is in the order of time, which decides who goes first at a port. */
	for (t = 0; t < k + f.rows + f.cols + 2; t++) {
		for (o = 0; o < f.nops; o++) {
			const struct fence_op *op = &f.ops[o];
			uint32_t c = t - op->time;
			struct plan_at at;

			if (t < op->time || c >= k || c % 2 != op->odd)
				continue;
			at = root ? plan_input(args, shard_off(&s, c)) :
			     at_recv(shard_off(&s, c));
			if (op->recv) {
				step = plan_recv(plan, op->peer, at, shard_len(&s, c));
				got[c] = step;
				continue;
			}
			plan_after(plan, got[c]);
			plan_send(plan, op->peer, at, shard_len(&s, c));
		}
	}
	free(got);
	return finish(args, plan);
}

/* ---- which calls they are for */

static const char *is_mesh(const struct coll_args *args)
{
	return args->topo && args->topo->rows && args->topo->cols ? NULL :
	       "the ranks are not wired as a 2-D mesh";
}

static const char *is_mesh_of_powers(const struct coll_args *args)
{
	const char *why = is_mesh(args);

	if (why)
		return why;
	return (args->topo->rows & (args->topo->rows - 1)) ||
	       (args->topo->cols & (args->topo->cols - 1)) ?
	       "rows and columns are not powers of two" : NULL;
}

/* ---- closed forms: "Broadcast on a 2-D mesh" in ALGORITHMS.md */

static double bytes(const struct coll_args *args)
{
	return (double)args->count * npulink_dtype_size(args->dtype);
}

static double cost_rounds(const struct coll_args *args, const struct coll_cost_params *c)
{
	return lg_ceil(args->nranks) * (c->alpha + bytes(args) * c->beta);
}

static double cost_dimensions(const struct coll_args *args, const struct coll_cost_params *c)
{
	return (lg_ceil(args->topo->rows) + lg_ceil(args->topo->cols)) *
	       (c->alpha + bytes(args) * c->beta);
}

/* Both ways: (p-1)/p n each, with the largest chunk. */
static double twice(const struct coll_args *args, const struct coll_cost_params *c)
{
	struct plan_shards s = plan_shards(args);

	return 2 * (args->nranks - 1.0) * shard_max(&s) * c->beta;
}

static double cost_1d(const struct coll_args *args, const struct coll_cost_params *c)
{
	return (args->nranks - 1.0 + lg_ceil(args->nranks)) * c->alpha + twice(args, c);
}

static double cost_2d(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t rows = args->topo->rows, cols = args->topo->cols;

	return (lg_ceil(rows) + lg_ceil(cols) + rows + cols - 2.0) * c->alpha + twice(args, c);
}

static uint32_t fence_chunks(const struct coll_args *args, const struct coll_cost_params *c)
{
	double d = args->topo ? args->topo->rows + args->topo->cols : 1;

	return chunks_of(sqrt(d * bytes(args) * c->beta / c->alpha), args);
}

/* Steps until everybody has chunk @c, counted from when it leaves the root. */
static uint32_t fence_delay(const struct coll_topo *t, uint32_t c)
{
	return t->rows + t->cols + 1 - (c % 2 ? t->rows : t->cols) % 2;
}

static double cost_fence(const struct coll_args *args, const struct coll_cost_params *c)
{
	uint32_t k = plan_chunks(args, fence_chunks);
	struct plan_shards s = plan_split(args->count, k, npulink_dtype_size(args->dtype));
	double hop = c->alpha + shard_max(&s) * c->beta;
	uint32_t steps;

	if (args->nranks == 1)
		return 0;
	if (args->topo->rows == 1 || args->topo->cols == 1)
		return (args->nranks + k - 2.0) * hop;
	/* The last chunk, or the one before it if its way is longer. */
	steps = k - 1 + fence_delay(args->topo, k - 1);
	if (k > 1 && k - 2 + fence_delay(args->topo, k - 2) > steps)
		steps = k - 2 + fence_delay(args->topo, k - 2);
	return steps * hop;
}

#define FORM_FENCE							\
	"max(k-1+d(k-1), k-2+d(k-2)) (alpha + n beta/k) <= (k+r+c)(alpha + n beta/k), "	\
	"d(even) = r+c+1-[c odd], d(odd) = r+c+1-[r odd]"

#define ROW(name_, exact_, form, supports_, plan_, cost_, ...)			\
	{ .collective = NPULINK_COLL_BROADCAST, .name = name_, .exact = exact_,	\
	  .formula = form, .supports = supports_, .plan = plan_, .cost = cost_,	\
	  __VA_ARGS__ }

/* Of two that cost the same the first is taken: those without contention come first. */
const struct coll_algorithm coll_grid_algorithms[] = {
	ROW("van-de-geijn", true, "(L+p-1) alpha + 2(p-1)/p n beta", NULL, van_de_geijn, cost_1d,
	    .desc = "scatter, then collect around a ring"),
	ROW("hypercube-reversed", true, "lg p (alpha + n beta)", is_mesh_of_powers,
	    hypercube_reversed, cost_rounds, .desc = "the longest distance first: no contention"),
	ROW("rsbcast", true, "L (alpha + n beta)", is_mesh, rsbcast, cost_rounds,
	    .desc = "to the node of the other half that is farthest from the root: no contention"),
	ROW("dimensions", true, "(ceil(lg r) + ceil(lg c))(alpha + n beta)", is_mesh, dimensions,
	    cost_dimensions, .desc = "down the root's column, then along each row"),
	ROW("hypercube-naive", true,
	    "lg p (alpha + n beta) without contention; lg p alpha + (r+c-2) n beta with it",
	    is_mesh_of_powers, hypercube_naive, cost_rounds,
	    .desc = "the shortest distance first: rounds share links"),
	ROW("halving", true, "L (alpha + n beta) without contention", is_mesh, halving_tree,
	    cost_rounds, .desc = "to the opposite node of the other half of the nodes in a line"),
	ROW("fence", false, FORM_FENCE, is_mesh, fence, cost_fence, .chunks = fence_chunks,
	    .desc = "in k chunks, by two ways that share no port and no link"),
	ROW("scatter-collect-1d", true, "(L+p-1) alpha + 2(p-1)/p n beta", is_mesh,
	    scatter_collect_1d, cost_1d, .desc = "halve the line of nodes, then a ring"),
	ROW("scatter-collect-2d", true,
	    "(ceil(lg r) + ceil(lg c) + r + c - 2) alpha + 2(p-1)/p n beta", is_mesh,
	    scatter_collect_2d, cost_2d,
	    .desc = "halve columns and rows, then rings of rows and columns"),
	{ .name = NULL },
};
