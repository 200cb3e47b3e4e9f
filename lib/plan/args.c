// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * args.c - what a call means: are its arguments well formed, how large are
 * its buffers, where do the shards of its large buffer lie, how many chunks are best.
 */
#include <errno.h>
#include <stdlib.h>
#include "plan/planner.h"

static const char *topo_check(const struct coll_args *args)
{
	const struct coll_topo *t = args->topo;
	uint32_t i;

	if (t->rows || t->cols) {
		if ((uint64_t)t->rows * t->cols != args->nranks)
			return "the mesh has not as many nodes as there are ranks";
	}
	if (t->nservers <= 1)
		return NULL;
	if (!t->server_of)
		return "the servers of the ranks are not given";
	for (i = 0; i < args->nranks; i++) {
		uint32_t before = i ? t->server_of[i - 1] : 0;

		if (t->server_of[i] != before && t->server_of[i] != before + 1)
			return "servers must be numbered in the order of ranks";
	}
	if (t->server_of[0] || t->server_of[args->nranks - 1] != t->nservers - 1)
		return "a server has no ranks";
	return NULL;
}

const char *coll_args_check(const struct coll_args *args)
{
	uint32_t c = args->collective;

	if (c >= NPULINK_COLLS)
		return "no such collective";
	if (!args->nranks)
		return "there are no ranks";
	if (args->nranks > NPULINK_MAX_RANKS)
		return "too many ranks";
	if (args->rank >= args->nranks)
		return "the rank is not below the number of ranks";
	if (args->dtype >= NPULINK_DTYPES)
		return "no such data type";
	if (npulink_coll_reduces(c) && args->redop > NPULINK_CALL_AVG)
		return "no such reduction";
	if (npulink_coll_has_root(c) && args->root >= args->nranks)
		return "the root is not below the number of ranks";
	if (c == NPULINK_COLL_P2P && args->peer >= args->nranks)
		return "the peer is not below the number of ranks";
	if (c == NPULINK_COLL_P2P && args->peer == args->rank)
		return "the peer is the own rank";
	if (coll_has_rcounts(c)) {
		if (!args->rcounts)
			return "the counts to receive are missing";
		if (!args->in_place && !args->counts)
			return "the counts to send are missing";
		if (!args->in_place && args->counts[args->rank] != args->rcounts[args->rank])
			return "sends another count to itself than it receives";
	} else if (npulink_coll_is_v(c) && !args->counts) {
		return "the counts are missing";
	}
	return args->topo ? topo_check(args) : NULL;
}

/* ---- displacements */

static void prefix_sums(const uint64_t *counts, uint64_t *displs, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		displs[i] = sum;
		/* Saturates: plan_buffers() then finds it too large. */
		if (__builtin_add_overflow(sum, counts[i], &sum))
			sum = UINT64_MAX;
	}
}

/* Displacements of a large buffer are the business of him who has one. */
static bool has_large_buffer(const struct coll_args *args)
{
	return !npulink_coll_has_root(args->collective) || args->rank == args->root;
}

/* Whose blocks @counts and @displs are about: those of the send buffer, or of the other one? */
static bool is_large_sent(const struct coll_args *args)
{
	return !args->in_place &&
	       coll_kind(args->collective)->gives == NPULINK_PART_BLOCKS;
}

int plan_args_fill(const struct coll_args *in, struct coll_args *out, uint64_t **mem)
{
	uint32_t large = is_large_sent(in) ? NPULINK_SLOT_SEND : NPULINK_SLOT_RECV;

	*out = *in;
	*mem = NULL;
	if (!npulink_coll_has_root(in->collective))
		out->root = 0;
	if (!npulink_coll_reduces(in->collective))
		out->redop = 0;
	if (in->collective == NPULINK_COLL_BARRIER)
		out->dtype = 0;
	if (in->collective == NPULINK_COLL_BARRIER || npulink_coll_is_v(in->collective))
		out->count = 0;
	if (!coll_has_rcounts(in->collective)) {
		out->rcounts = NULL;
		out->rdispls = NULL;
	}
	if (!npulink_coll_is_v(in->collective)) {
		out->counts = NULL;
		out->displs = NULL;
		return 0;
	}
	if (coll_has_rcounts(in->collective) && in->in_place) {
		out->counts = in->rcounts;
		out->displs = in->rdispls;
	}
	if (!has_large_buffer(in) || in->packed[large])
		out->displs = NULL;
	if (in->packed[NPULINK_SLOT_RECV])
		out->rdispls = NULL;
	if (out->displs && (out->rdispls || !coll_has_rcounts(in->collective)))
		return 0;

	*mem = malloc(2 * in->nranks * sizeof(**mem));
	if (!*mem)
		return -ENOMEM;
	if (!out->displs) {
		prefix_sums(out->counts, *mem, in->nranks);
		out->displs = *mem;
	}
	if (coll_has_rcounts(in->collective) && !out->rdispls) {
		prefix_sums(out->rcounts, *mem + in->nranks, in->nranks);
		out->rdispls = *mem + in->nranks;
	}
	return 0;
}

/* ---- blocks */

bool coll_args_blocks(const struct coll_args *args, uint32_t slot, const uint64_t **counts,
		      const uint64_t **displs)
{
	bool recv = slot == NPULINK_SLOT_RECV;

	*counts = args->counts;
	*displs = args->displs;
	if (!has_large_buffer(args))
		return false;
	if (!npulink_coll_is_v(args->collective))
		return false;
	if (coll_has_rcounts(args->collective)) {
		if (recv) {
			*counts = args->rcounts;
			*displs = args->rdispls;
		}
		return recv || !args->in_place;
	}
	return coll_kind(args->collective)->gives == NPULINK_PART_BLOCKS ?
	       recv == args->in_place : recv;
}

struct block {
	uint64_t from, to;
	uint32_t rank;
};

static int compare_blocks(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int coll_args_overlap(const struct coll_args *args, uint32_t ranks[2])
{
	const uint64_t *counts, *displs;
	uint32_t i, n = 0;
	struct block *v;
	int rc = 0;

	/* What the root of a scatterv sends is only read. */
	if (args->collective == NPULINK_COLL_SCATTERV ||
	    !coll_args_blocks(args, NPULINK_SLOT_RECV, &counts, &displs) || !displs)
		return 0;
	v = malloc(args->nranks * sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (i = 0; i < args->nranks; i++)
		if (counts[i])
			/* One that has no end is found too large by plan_buffers(). */
			v[n++] = (struct block) { displs[i], displs[i] + counts[i], i };
	qsort(v, n, sizeof(*v), compare_blocks);
	for (i = 1; i < n && !rc; i++) {
		if (v[i].from >= v[i - 1].to)
			continue;
		ranks[0] = min_u32(v[i].rank, v[i - 1].rank);
		ranks[1] = v[i].rank + v[i - 1].rank - ranks[0];
		rc = -EINVAL;
	}
	free(v);
	return rc;
}

/* ---- sizes */

static int bytes_of(uint64_t a, uint64_t b, uint64_t esize, uint64_t *bytes)
{
	if (__builtin_mul_overflow(a, b, bytes) ||
	    __builtin_mul_overflow(*bytes, esize, bytes) || *bytes > NPULINK_MAX_LEN)
		return -EOVERFLOW;
	return 0;
}

static int extent(const uint64_t *counts, const uint64_t *displs, uint32_t n, uint64_t esize,
		  uint64_t *bytes)
{
	uint64_t end, max = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!counts[i])
			continue;
		if (__builtin_add_overflow(counts[i], displs[i], &end))
			return -EOVERFLOW;
		if (end > max)
			max = end;
	}
	return bytes_of(max, 1, esize, bytes);
}

static uint64_t part_of(enum npulink_part part, uint64_t large, uint64_t own)
{
	return part == NPULINK_PART_NONE ? 0 : part == NPULINK_PART_BLOCK ? own : large;
}

int plan_buffers(const struct coll_args *args, uint64_t *send, uint64_t *recv)
{
	uint64_t esize = npulink_dtype_size(args->dtype), large = 0, own = 0;
	const struct coll_kind *k = coll_kind(args->collective);
	uint64_t other;
	int rc;

	/* The large buffer, and the own shard of it. */
	if (npulink_coll_is_v(args->collective)) {
		rc = extent(args->counts, args->displs, args->nranks, esize, &large);
		own = args->counts[args->rank] * esize;
	} else if (npulink_coll_has_blocks(args->collective)) {
		rc = bytes_of(args->count, args->nranks, esize, &large);
		own = args->count * esize;
	} else {
		rc = bytes_of(k->gives ? args->count : 0, 1, esize, &large);
		own = large;
	}
	if (rc)
		return rc;
	other = large;
	if (coll_has_rcounts(args->collective))
		rc = extent(args->rcounts, args->rdispls, args->nranks, esize, &other);
	if (rc)
		return rc;

	*send = coll_gives(args) ? part_of(k->gives, large, own) : 0;
	*recv = coll_gets(args) ? part_of(k->gets, other, own) : 0;
	if (plan_in_place(args)) {
		/* One buffer holds both. In alltoallv it is the one of rcounts. */
		if (*send > *recv && !coll_has_rcounts(args->collective))
			*recv = *send;
		*send = 0;
	}
	return 0;
}

struct plan_at plan_input(const struct coll_args *args, uint64_t off)
{
	struct plan_at at = plan_in_place(args) ? at_recv(off) : at_send(off);

	at.plain = true;
	return at;
}

/* ---- shards */

struct plan_shards plan_split(uint64_t count, uint32_t n, uint64_t esize)
{
	return (struct plan_shards){
		.n = n, .esize = esize, .count = count / n, .extra = count % n,
	};
}

struct plan_shards plan_shards(const struct coll_args *args)
{
	uint64_t esize = npulink_dtype_size(args->dtype);

	if (coll_splits(args->collective))
		return plan_split(args->count, args->nranks, esize);
	if (!npulink_coll_is_v(args->collective))
		return (struct plan_shards){
			.n = args->nranks, .esize = esize, .count = args->count,
		};
	return (struct plan_shards){
		.n = args->nranks, .esize = esize,
		.counts = args->counts, .displs = args->displs,
	};
}

uint64_t shard_max(const struct plan_shards *s)
{
	uint64_t max = 0;
	uint32_t i;

	if (!s->counts)
		return shard_len(s, 0);
	for (i = 0; i < s->n; i++)
		if (s->counts[i] > max)
			max = s->counts[i];
	return max * s->esize;
}

/* ---- chunks of pipelined algorithms */

uint32_t chunks_of(double k, const struct coll_args *args)
{
	double most = args->count < 65536 ? args->count : 65536;

	if (!(k < most))
		k = most;
	return k < 1 ? 1 : k + 0.5;
}

uint32_t plan_chunks(const struct coll_args *args,
		     uint32_t (*best)(const struct coll_args *args,
				      const struct coll_cost_params *params))
{
	/* What tune/tune.c takes without a calibration: software NPUs. */
	static const struct coll_cost_params network = {
		.alpha = 2 / 1e6, .beta = 0.25 / 1e9, .gamma = 0.25 / 1e9, .ports = 1,
	};

	return args->chunks ? chunks_of(args->chunks, args) :
			      best(args, args->network ?: &network);
}
