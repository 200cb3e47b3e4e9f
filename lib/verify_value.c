// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * verify_value.c - arithmetic on symbolic buffer contents, see verify_value.h.
 *
 * Contents are kept per range of bytes, not per byte, and neighbours that go
 * together are joined, so that an image stays as small as the plan is simple.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "verify_value.h"

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

struct value value_of_rank(uint64_t seed, uint32_t rank)
{
	uint64_t a = mix(seed + 2 * (uint64_t)rank), b = mix(~seed - rank);

	return (struct value){
		.sum = (__uint128_t)a << 64 | b,
		.expr = mix(a ^ b), .count = 1, .lo = rank, .hi = rank,
	};
}

struct value value_foreign(uint32_t rank)
{
	return (struct value){ .flags = VALUE_FOREIGN, .lo = rank, .hi = rank };
}

struct value value_divide(struct value v)
{
	if (v.flags & VALUE_DIVIDED)
		v.flags |= VALUE_LATE;
	v.flags |= VALUE_DIVIDED;
	v.expr = mix(~v.expr);
	return v;
}

struct value value_all(uint64_t seed, uint32_t nranks)
{
	struct value all = { .count = nranks };
	uint32_t i;

	for (i = 0; i < nranks; i++)
		all.sum += value_of_rank(seed, i).sum;
	return all;
}

/* Is @a of the ranks just behind those of @b? */
static bool follows(const struct value *a, const struct value *b)
{
	return a->lo == (a->wrap && b->hi + 1 == a->wrap ? 0 : b->hi + 1);
}

/*
 * Operands may be swapped: all reductions commute. What "in order" asks for is
 * that only neighbouring ranges of ranks are put together.
 */
static struct value value_sum(const struct value *a, const struct value *b, bool same_place)
{
	struct value v = {
		.sum = a->sum + b->sum,
		.expr = mix((a->expr + b->expr) ^ mix(a->expr ^ b->expr)),
		.flags = a->flags | b->flags, .wrap = a->wrap,
	};

	if (__builtin_add_overflow(a->count, b->count, &v.count))
		v.count = UINT32_MAX;
	if (!same_place || (v.flags & VALUE_FOREIGN))
		v.flags |= VALUE_MIXED;
	if (v.flags & VALUE_DIVIDED)
		v.flags |= VALUE_LATE;
	if (follows(b, a)) {
		v.lo = a->lo;
		v.hi = b->hi;
	} else {
		if (!follows(a, b))
			v.flags |= VALUE_DISORDER;
		v.lo = b->lo;
		v.hi = a->hi;
	}
	return v;
}

static bool same_value(const struct value *a, const struct value *b)
{
	return a->sum == b->sum && a->expr == b->expr && a->count == b->count &&
	       a->lo == b->lo && a->hi == b->hi && a->flags == b->flags;
}

/* Does @b go on where @a ends? */
static bool joins(const struct piece *a, const struct piece *b)
{
	return a->off + a->len == b->off && a->base + a->len == b->base &&
	       same_value(&a->v, &b->v);
}

/* ---- images */

void image_free(struct image *img)
{
	free(img->p);
	memset(img, 0, sizeof(*img));
}

static struct piece *piece_at(const struct image *img, size_t i)
{
	return &img->p[i < img->gap ? i : i + (img->cap - img->n)];
}

/* Pieces below @at before the gap, the others behind it. */
static void image_move_gap(struct image *img, size_t at)
{
	size_t free = img->cap - img->n;

	if (at < img->gap)
		memmove(img->p + at + free, img->p + at, (img->gap - at) * sizeof(*img->p));
	else
		memmove(img->p + img->gap, img->p + img->gap + free,
			(at - img->gap) * sizeof(*img->p));
	img->gap = at;
}

void image_close(struct image *img)
{
	if (img->n)
		image_move_gap(img, img->n);
}

int image_reserve(struct image *img, size_t cap)
{
	size_t behind = img->n - img->gap;
	struct piece *p;

	if (cap <= img->cap)
		return 0;
	p = realloc(img->p, cap * sizeof(*img->p));
	if (!p)
		return -ENOMEM;
	memmove(p + cap - behind, p + img->cap - behind, behind * sizeof(*p));
	img->p = p;
	img->cap = cap;
	return 0;
}

static int image_grow(struct image *img, size_t n)
{
	size_t cap = img->cap ? img->cap : 4;

	while (cap < n)
		cap += cap < 64 ? cap : cap / 4;
	return image_reserve(img, cap);
}

int image_append(struct image *img, uint64_t len, uint64_t base, struct value v, uint32_t step)
{
	struct piece *last = img->n ? &img->p[img->n - 1] : NULL;
	struct piece next = {
		.off = last ? last->off + last->len : 0,
		.len = len, .base = base, .v = v, .step = step,
	};

	if (!len)
		return 0;
	if (last && joins(last, &next)) {
		last->len += len;
		return 0;
	}
	if (image_grow(img, img->n + 1))
		return -ENOMEM;
	img->p[img->n++] = next;
	img->gap = img->n;
	return 0;
}

/* Index of the first piece that ends after @off. */
static size_t image_find(const struct image *img, uint64_t off)
{
	size_t lo = 0, hi = img->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (piece_at(img, mid)->off + piece_at(img, mid)->len > off)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

int image_read(const struct image *img, uint64_t off, uint64_t len, struct image *out,
	       uint64_t *bad)
{
	uint64_t at = off, end = off + len;
	size_t i;

	for (i = image_find(img, off); at < end; i++) {
		const struct piece *p = i < img->n ? piece_at(img, i) : NULL;
		uint64_t skip, n;

		if (!p || p->off > at) {
			*bad = at;
			return -ENODATA;
		}
		skip = at - p->off;
		n = p->len - skip < end - at ? p->len - skip : end - at;
		if (image_append(out, n, p->base + skip, p->v, p->step))
			return -ENOMEM;
		at += n;
	}
	return 0;
}

/* Join pieces @i - 1 and @i if they go together. The gap is at or behind @i. */
static void image_join(struct image *img, size_t i)
{
	struct piece *left, *right;

	if (!i || i >= img->n)
		return;
	left = piece_at(img, i - 1);
	right = piece_at(img, i);
	if (!joins(left, right))
		return;
	left->len += right->len;
	/* Behind the gap the first piece goes by the number of pieces alone. */
	if (i < img->gap) {
		memmove(right, right + 1, (img->gap - i - 1) * sizeof(*right));
		img->gap--;
	}
	img->n--;
}

int image_write(struct image *img, uint64_t off, uint64_t len, const struct image *in)
{
	uint64_t end = off + len;
	size_t lo = image_find(img, off), hi = lo, nnew = in ? in->n : 0, k, i;
	struct piece left = { 0 }, right = { 0 };

	while (hi < img->n && piece_at(img, hi)->off < end)
		hi++;
	if (lo < hi) {
		if (piece_at(img, lo)->off < off) {
			left = *piece_at(img, lo);
			left.len = off - left.off;
		}
		right = *piece_at(img, hi - 1);
		if (right.off + right.len > end) {
			uint64_t cut = end - right.off;

			right.off += cut;
			right.base += cut;
			right.len -= cut;
		} else {
			right.len = 0;
		}
	}

	k = nnew + !!left.len + !!right.len;
	if (image_grow(img, img->n - (hi - lo) + k))
		return -ENOMEM;
	image_move_gap(img, hi);
	img->n = img->n - (hi - lo) + k;
	i = lo;
	if (left.len)
		img->p[i++] = left;
	for (hi = 0; hi < nnew; hi++) {
		img->p[i] = in->p[hi];
		img->p[i++].off += off;
	}
	if (right.len)
		img->p[i++] = right;
	img->gap = i;

	for (; i + 1 > lo && i; i--)
		image_join(img, i);
	return 0;
}

int image_erase(struct image *img, uint64_t off, uint64_t len)
{
	return image_write(img, off, len, NULL);
}

int image_sum(const struct image *a, const struct image *b, bool divide, struct image *out)
{
	uint64_t ca = 0, cb = 0;	/* bytes taken of the pieces i and j */
	size_t i = 0, j = 0;

	while (i < a->n && j < b->n) {
		const struct piece *p = &a->p[i], *q = &b->p[j];
		uint64_t n = p->len - ca < q->len - cb ? p->len - ca : q->len - cb;
		struct value v = value_sum(&p->v, &q->v, p->base + ca == q->base + cb);

		if (image_append(out, n, p->base + ca, divide ? value_divide(v) : v, p->step))
			return -ENOMEM;
		ca += n;
		cb += n;
		if (ca == p->len) {
			i++;
			ca = 0;
		}
		if (cb == q->len) {
			j++;
			cb = 0;
		}
	}
	return 0;
}
