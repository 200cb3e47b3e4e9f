/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * value.h - symbolic contents of buffers: which ranks' inputs, of which
 * place, a range of bytes is the sum of. Used by the set verifier only.
 */
#ifndef COLL_VERIFY_VALUE_H
#define COLL_VERIFY_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A sum of inputs. Every rank is a random 128-bit number, and @sum their sum with
 * multiplicity; since @count bounds the multiplicities, two equal sums are the
 * same multiset but for a chance of 2^-100 or so.
 */
struct value {
	__uint128_t sum;
	uint64_t expr;		/* hash of the expression: equal bits if equal */
	uint32_t count;		/* inputs added up, with multiplicity; saturates */
	uint32_t lo, hi;	/* ranks, if they are a range added up in order */
	uint32_t flags;
	uint32_t wrap;		/* ranks are counted modulo this, 0: not at all */
	uint32_t refs;		/* pieces that have it; else the next one not in use */
};

/* Values that pieces have. Most are those of many pieces: copies of one input. */
struct values {
	struct value *v;
	uint32_t n, cap, unused;
};

#define VALUE_FOREIGN	(1 << 0)	/* the caller's bytes that are no input */
#define VALUE_MIXED	(1 << 1)	/* a sum of bytes of different places */
#define VALUE_DIVIDED	(1 << 2)	/* AVG has divided it */
#define VALUE_DISORDER	(1 << 3)	/* not added up in the order of ranks */
#define VALUE_LATE	(1 << 4)	/* something was added after the division */
#define VALUE_SCALED	(1 << 5)	/* scaled, as inputs of a mean of floats are */
#define VALUE_UNEVEN	(1 << 6)	/* so was not all that it was made of, or not once */

/*
 * Bytes [off, off + len) of a slot hold the places [base, base + len) of an
 * input. A place is a byte of the large buffer, with the shards one after another; in
 * alltoallv shard << PLACE_BITS | byte.
 */
struct piece {
	uint64_t off, len, base;
	uint32_t value;
	uint32_t step;		/* that wrote it; ~0: there from the start */
};

#define PLACE_BITS	41

/*
 * Pieces by offset. What lies between them was never written. Pieces from number
 * @gap on are at the end of the array, so that writing where one has just written
 * moves nothing; an image that is only appended to, or closed, has them all at p[0].
 */
struct image {
	struct values *values;
	struct piece *p;
	uint32_t n, cap, gap;
};

struct value value_of_rank(uint64_t seed, uint32_t rank);
struct value value_foreign(uint32_t rank);
/* @rest: by what scaling has left to divide by. */
struct value value_divide(struct value v, bool rest);
/* @rounded: to its type, as what is written is, and not what enters a sum. */
struct value value_scale(struct value v, bool rounded);
/* The sum of all ranks: what a reduction is for; @expr and order are not set. */
struct value value_all(uint64_t seed, uint32_t nranks);

void values_init(struct values *values);
void values_free(struct values *values);

static inline const struct value *piece_value(const struct image *img, const struct piece *p)
{
	return &img->values->v[p->value];
}

/* Empty; clear keeps the memory for what comes next. */
void image_free(struct image *img);
void image_clear(struct image *img);

/*
 * Append what is in [off, off + len) to @out, offsets counted from 0. Returns
 * -ENODATA if a byte was never written, with *@bad its offset, or -ENOMEM.
 */
int image_read(const struct image *img, uint64_t off, uint64_t len, struct image *out,
	       uint64_t *bad);

/*
 * Replace [off, off + len) by @in, whose offsets count from 0 and which is empty
 * then. 0 or -ENOMEM.
 */
int image_write(struct image *img, uint64_t off, uint64_t len, struct image *in);

/* Room for so many pieces: images that grow side by side leave holes in memory. */
int image_reserve(struct image *img, uint32_t n);

/* All pieces to the beginning of the array. */
void image_close(struct image *img);

/* Forget what is in [off, off + len). */
int image_erase(struct image *img, uint64_t off, uint64_t len);

/* @out = @a + @b, both of the same length, and what flags of a step say of it. */
int image_sum(const struct image *a, const struct image *b, uint32_t flags, struct image *out);

/* value_scale() all of it, which is closed. 0 or -ENOMEM. */
int image_scale(struct image *img, bool rounded);

/* Append one piece at the end. */
int image_append(struct image *img, uint64_t len, uint64_t base, struct value v, uint32_t step);

#endif /* COLL_VERIFY_VALUE_H */
