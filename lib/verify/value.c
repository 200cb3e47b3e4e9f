// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * value.c - arithmetic on symbolic buffer contents, see value.h.
 *
 * Contents are kept per range of bytes, not per byte, and neighbours that go
 * together are joined, so that an image stays as small as the plan is simple.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink_step.h>
#include "verify/value.h"

#define NONE	(~0U)

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

struct value value_divide(struct value v, bool rest)
{
	if (v.flags & VALUE_DIVIDED)
		v.flags |= VALUE_LATE;
	if (rest != !!(v.flags & VALUE_SCALED))
		v.flags |= VALUE_UNEVEN;
	v.flags |= VALUE_DIVIDED;
	v.expr = mix(~v.expr);
	return v;
}

struct value value_scale(struct value v, bool rounded)
{
	if (v.flags & VALUE_SCALED || v.count != 1)
		v.flags |= VALUE_UNEVEN;
	v.flags |= VALUE_SCALED;
	v.expr = mix(v.expr + 1 + rounded);
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
	if ((a->flags ^ b->flags) & VALUE_SCALED)
		v.flags |= VALUE_UNEVEN;
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

/* ---- values that pieces share */

void values_init(struct values *values)
{
	*values = (struct values){ .unused = NONE };
}

void values_free(struct values *values)
{
	free(values->v);
	values_init(values);
}

/* One more; NONE if there is no memory. */
static uint32_t value_new(struct values *values, const struct value *v)
{
	uint32_t id = values->unused;

	if (id != NONE) {
		values->unused = values->v[id].refs;
	} else {
		if (values->n == values->cap) {
			uint32_t cap = values->cap ? values->cap + values->cap / 2 : 256;
			struct value *more = realloc(values->v, cap * sizeof(*more));

			if (!more)
				return NONE;
			values->v = more;
			values->cap = cap;
		}
		id = values->n++;
	}
	values->v[id] = *v;
	values->v[id].refs = 1;
	return id;
}

static void value_put(struct values *values, uint32_t id)
{
	struct value *v = &values->v[id];

	if (--v->refs)
		return;
	v->refs = values->unused;
	values->unused = id;
}

/* Does @b go on where @a ends? */
static bool joins(const struct image *img, const struct piece *a, const struct piece *b)
{
	return a->off + a->len == b->off && a->base + a->len == b->base &&
	       (a->value == b->value ||
		same_value(piece_value(img, a), piece_value(img, b)));
}

/* ---- images */

static struct piece *piece_at(const struct image *img, uint32_t i)
{
	return &img->p[i < img->gap ? i : i + (img->cap - img->n)];
}

void image_clear(struct image *img)
{
	uint32_t i;

	for (i = 0; i < img->n; i++)
		value_put(img->values, piece_at(img, i)->value);
	img->n = 0;
	img->gap = 0;
}

void image_free(struct image *img)
{
	image_clear(img);
	free(img->p);
	img->p = NULL;
	img->cap = 0;
}

/* Pieces below @at before the gap, the others behind it. */
static void image_move_gap(struct image *img, uint32_t at)
{
	uint32_t free = img->cap - img->n;

	if (at < img->gap)
		memmove(img->p + at + free, img->p + at, (img->gap - at) * sizeof(*img->p));
	else if (at > img->gap)
		memmove(img->p + img->gap, img->p + img->gap + free,
			(at - img->gap) * sizeof(*img->p));
	img->gap = at;
}

void image_close(struct image *img)
{
	if (img->n)
		image_move_gap(img, img->n);
}

int image_reserve(struct image *img, uint32_t cap)
{
	uint32_t behind = img->n - img->gap;
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

static int image_grow(struct image *img, uint32_t n)
{
	uint32_t cap = img->cap ? img->cap : 4;

	while (cap < n)
		cap += cap < 64 ? cap : cap / 4;
	return image_reserve(img, cap);
}

/* The same with a value that has been counted for it. */
static int append(struct image *img, uint64_t len, uint64_t base, uint32_t value, uint32_t step)
{
	struct piece *last = img->n ? &img->p[img->n - 1] : NULL;
	struct piece next = {
		.off = last ? last->off + last->len : 0,
		.len = len, .base = base, .value = value, .step = step,
	};

	if (last && joins(img, last, &next)) {
		last->len += len;
		value_put(img->values, value);
		return 0;
	}
	if (image_grow(img, img->n + 1)) {
		value_put(img->values, value);
		return -ENOMEM;
	}
	img->p[img->n++] = next;
	img->gap = img->n;
	return 0;
}

int image_append(struct image *img, uint64_t len, uint64_t base, struct value v, uint32_t step)
{
	uint32_t id;

	if (!len)
		return 0;
	id = value_new(img->values, &v);
	return id == NONE ? -ENOMEM : append(img, len, base, id, step);
}

/* Index of the first piece that ends after @off. */
static uint32_t image_find(const struct image *img, uint64_t off)
{
	uint32_t lo = 0, hi = img->n;

	/* Often it is where one has just written. */
	if (img->gap && img->gap <= hi) {
		const struct piece *p = piece_at(img, img->gap - 1);

		if (p->off + p->len <= off)
			lo = img->gap;
		else if (p->off > off)
			hi = img->gap - 1;
		else
			return img->gap - 1;
	}
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct piece *p = piece_at(img, mid);

		if (p->off + p->len > off)
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
	uint32_t i;

	for (i = image_find(img, off); at < end; i++) {
		const struct piece *p = i < img->n ? piece_at(img, i) : NULL;
		uint64_t skip, n;

		if (!p || p->off > at) {
			*bad = at;
			return -ENODATA;
		}
		skip = at - p->off;
		n = p->len - skip < end - at ? p->len - skip : end - at;
		img->values->v[p->value].refs++;
		if (append(out, n, p->base + skip, p->value, p->step))
			return -ENOMEM;
		at += n;
	}
	return 0;
}

/* Join pieces @i - 1 and @i if they go together. The gap is at or behind @i. */
static void image_join(struct image *img, uint32_t i)
{
	struct piece *left, *right;

	if (!i || i >= img->n)
		return;
	left = piece_at(img, i - 1);
	right = piece_at(img, i);
	if (!joins(img, left, right))
		return;
	left->len += right->len;
	value_put(img->values, right->value);
	/* Behind the gap the first piece goes by the number of pieces alone. */
	if (i < img->gap) {
		memmove(right, right + 1, (img->gap - i - 1) * sizeof(*right));
		img->gap--;
	}
	img->n--;
}

int image_write(struct image *img, uint64_t off, uint64_t len, struct image *in)
{
	uint64_t end = off + len;
	uint32_t lo = image_find(img, off), hi = lo, nnew = in ? in->n : 0, k, i;
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
	if (left.len)
		img->values->v[left.value].refs++;
	if (right.len)
		img->values->v[right.value].refs++;
	for (i = lo; i < hi; i++)
		value_put(img->values, piece_at(img, i)->value);
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
	if (in) {
		in->n = 0;
		in->gap = 0;
	}

	for (; i + 1 > lo && i; i--)
		image_join(img, i);
	return 0;
}

int image_erase(struct image *img, uint64_t off, uint64_t len)
{
	return image_write(img, off, len, NULL);
}

int image_scale(struct image *img, bool rounded)
{
	for (uint32_t i = 0; i < img->n; i++) {
		struct value v = value_scale(*piece_value(img, &img->p[i]), rounded);
		uint32_t id = value_new(img->values, &v);

		if (id == NONE)
			return -ENOMEM;
		value_put(img->values, img->p[i].value);
		img->p[i].value = id;
	}
	return 0;
}

int image_sum(const struct image *a, const struct image *b, uint32_t flags, struct image *out)
{
	uint64_t ca = 0, cb = 0;	/* bytes taken of the pieces i and j */
	uint32_t i = 0, j = 0;

	while (i < a->n && j < b->n) {
		const struct piece *p = &a->p[i], *q = &b->p[j];
		uint64_t n = p->len - ca < q->len - cb ? p->len - ca : q->len - cb;
		struct value v = value_sum(piece_value(a, p), piece_value(b, q),
					   p->base + ca == q->base + cb);

		if (flags & NPULINK_STEP_F_DIV)
			v = value_divide(v, flags & NPULINK_STEP_F_REST);
		if (image_append(out, n, p->base + ca, v, p->step))
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
