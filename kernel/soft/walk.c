// SPDX-License-Identifier: GPL-2.0
/*
 * walk.c - goes through the pieces of memory that operands are made of.
 *
 * A buffer is a list of physically contiguous ranges and may begin at any
 * byte, so ranges of different operands end at different places, and elements may
 * lie across two ranges. Those are put together in a bounce of one element.
 *
 * Each operand has a hint: the index of the range that it was last seen in.
 */
#include "reduce.h"

/* Address of byte @at of an operand; *left: contiguous bytes from there. */
static void *soft_at(const struct npulink_operand *o, u64 at, u32 *hint, u64 *left)
{
	const struct npulink_buf_mem *mem = npulink_buf_mem(o->buf);
	const struct npulink_range *r = mem->ranges + *hint;

	at += o->off;
	if (at >= r[1].off && *hint + 1 < mem->nranges)
		r++;
	if (at < r[0].off || at >= r[1].off)
		r = mem->ranges + npulink_mem_range(mem, at);
	*hint = r - mem->ranges;
	*left = r[1].off - at;
	return r->va + (at - r->off);
}

static void soft_gather(void *to, const struct npulink_operand *from, u64 at, u32 len, u32 *hint)
{
	u64 left;

	for (; len; at += left, to += left, len -= left) {
		void *p = soft_at(from, at, hint, &left);

		if (left > len)
			left = len;
		memcpy(to, p, left);
	}
}

static void soft_scatter(const struct npulink_operand *to, const void *from, u64 at, u32 len,
			 u32 *hint)
{
	u64 left;

	for (; len; at += left, from += left, len -= left) {
		void *p = soft_at(to, at, hint, &left);

		if (left > len)
			left = len;
		memcpy(p, from, left);
	}
}

/* Where to read up to *len bytes of whole elements; *len is cut down as needed. */
static const void *soft_input(const struct npulink_operand *o, u64 at, u32 *len, u32 shift,
			      u32 *hint, u64 *bounce)
{
	u64 left;
	const void *p = soft_at(o, at, hint, &left);

	if (left >= *len)
		return p;
	*len = left >> shift << shift;
	if (*len)
		return p;
	*len = 1U << shift;
	soft_gather(bounce, o, at, *len, hint);
	return bounce;
}

/* All inputs of @len contiguous bytes of the result, which stay in the cache. */
static void soft_piece(const struct soft_kernel *k, void *dst, const struct npulink_operand *src,
		       unsigned int nsrc, u64 at, u32 len, u32 *hint)
{
	u64 bounce_a, bounce_b;
	const void *a, *b;
	unsigned int i;
	u32 pos, n;

	/* What is only scaled is divided. */
	for (pos = 0; nsrc == 1 && pos < len; pos += n) {
		n = len - pos;
		a = soft_input(src, at + pos, &n, k->shift, hint, &bounce_a);
		if (a != dst + pos)
			memcpy(dst + pos, a, n);
	}
	for (i = 1; i < nsrc; i++) {
		for (pos = 0; pos < len; pos += n) {
			n = len - pos;
			if (i == 1)
				a = soft_input(src, at + pos, &n, k->shift, hint, &bounce_a);
			else
				a = dst + pos;
			b = soft_input(src + i, at + pos, &n, k->shift, hint + i, &bounce_b);
			soft_add(k, src, i, dst + pos, a, b, n >> k->shift);
		}
	}
	if (k->by > 1)
		k->div(dst, len >> k->shift, k->by);
}

/*
 * The same, for a result that nobody looks at as long as the cache has it: what is overwritten is
 * not read, which is a quarter of the traffic of two inputs and one result.
 */
static void soft_piece_past(const struct soft_kernel *k, void *dst,
			    const struct npulink_operand *src, unsigned int nsrc, u64 at, u32 len,
			    u32 *hint)
{
	u32 pos = -(unsigned long)dst & (SOFT_LINE - 1), n;

	/* Elements lie across lines: where one begins is never a multiple. */
	if ((unsigned long)dst & ((1U << k->shift) - 1) || pos >= len)
		pos = len;
	if (pos)
		soft_piece(k, dst, src, nsrc, at, pos, hint);
	for (; len - pos >= SOFT_LINE; pos += n) {
		n = len - pos < SOFT_SCRATCH ? (len - pos) / SOFT_LINE * SOFT_LINE : SOFT_SCRATCH;
		soft_piece(k, k->scratch, src, nsrc, at + pos, n, hint);
		k->stream(dst + pos, k->scratch, n);
	}
	if (pos < len)
		soft_piece(k, dst + pos, src, nsrc, at + pos, len - pos, hint);
}

/**
 * soft_walk_reduce() - reduce a block of a request
 * @k: loops, division, element size
 * @dst: result
 * @src: inputs
 * @nsrc: number of inputs; a single one is copied and divided
 * @at: offset of the block in each operand
 * @len: bytes, whole elements
 * @hint: one for @dst and then one for each input, 0 to begin with
 */
void soft_walk_reduce(const struct soft_kernel *k, const struct npulink_operand *dst,
		      const struct npulink_operand *src, unsigned int nsrc,
		      u64 at, u32 len, u32 *hint)
{
	u64 bounce, left;
	u32 n;

	for (; len; at += n, len -= n) {
		void *p = soft_at(dst, at, hint, &left);

		n = left < len ? left >> k->shift << k->shift : len;
		if (n && k->stream) {
			soft_piece_past(k, p, src, nsrc, at, n, hint + 1);
		} else if (n) {
			soft_piece(k, p, src, nsrc, at, n, hint + 1);
		} else {
			n = 1U << k->shift;
			soft_piece(k, &bounce, src, nsrc, at, n, hint + 1);
			soft_scatter(dst, &bounce, at, n, hint);
		}
	}
}

/**
 * soft_walk_copy() - copy a block of a request
 * @dst: result
 * @src: input
 * @at: offset of the block in both
 * @len: bytes
 * @hint: one for @dst and one for @src
 */
void soft_walk_copy(const struct npulink_operand *dst, const struct npulink_operand *src,
		    u64 at, u32 len, u32 *hint)
{
	u64 n, left;

	for (; len; at += n, len -= n) {
		void *to = soft_at(dst, at, hint, &n);
		const void *from = soft_at(src, at, hint + 1, &left);

		if (n > left)
			n = left;
		if (n > len)
			n = len;
		if (to != from)
			memcpy(to, from, n);
	}
}
