// SPDX-License-Identifier: GPL-2.0
/*
 * data.c - what ranks send in npulink bench, and what must come out.
 *
 * Element i of rank r is a hash of r and i modulo a prime, so tables of one
 * period are enough to fill and compare buffers of any size at the speed of
 * memcpy(). The prime is no divisor of any chunk, so data that ends up in a
 * wrong place is noticed. Values are such that every partial result is exact
 * in every type: results are compared bit for bit, in whatever order the
 * algorithm reduces.
 */
#include <stdlib.h>
#include <string.h>
#include <linux/npulink.h>
#include "bench/bench.h"

struct bench_data {
	const struct bench *b;
	size_t size;		/* of an element */
	uint64_t period;
	uint8_t **sent;		/* [rank], made on first use */
	uint8_t *reduced;
};

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static bool is_float(enum coll_dtype dtype)
{
	return dtype >= COLL_FLOAT16;
}

static bool is_unsigned(enum coll_dtype dtype)
{
	return dtype <= COLL_UINT64 && dtype & 1;
}

/* Up to here all integers are exact, for sums that must not wrap around. */
static int64_t exact_limit(enum coll_dtype dtype)
{
	switch (dtype) {
	case COLL_INT8:		return INT8_MAX;
	case COLL_UINT8:	return UINT8_MAX;
	case COLL_INT16:	return INT16_MAX;
	case COLL_UINT16:	return UINT16_MAX;
	case COLL_FLOAT16:	return 2048;
	case COLL_BFLOAT16:	return 256;
	default:		return 1 << 24;
	}
}

/* Element @i of rank @rank. */
static int64_t value(const struct bench *b, uint32_t rank, uint64_t i)
{
	uint64_t hash = mix(mix(rank) ^ i);
	int64_t limit, every;

	if (b->coll->reduces && b->op == COLL_PROD) {
		if (!is_float(b->dtype))
			return hash | 1;
		/* Twos from a few ranks, else one or minus one. */
		every = (b->nranks + 7) / 8;
		if ((rank + i) % every == 0)
			return 2;
		return hash & 1 ? 1 : -1;
	}
	limit = 100;
	if (b->coll->reduces && b->op != COLL_MIN && b->op != COLL_MAX &&
	    (is_float(b->dtype) || b->op == COLL_AVG)) {
		limit = exact_limit(b->dtype) / b->nranks;
		if (limit > 1000)
			limit = 1000;
		if (limit < 1) {
			every = b->nranks / exact_limit(b->dtype) + 1;
			return (rank + i) % every == 0;
		}
	}
	if (is_unsigned(b->dtype))
		return hash % (limit + 1);
	return (int64_t)(hash % (2 * limit + 1)) - limit;
}

/* Round to nearest even; for what bench computes: no NaN, no subnormal. */
static uint16_t to_half(float f)
{
	uint32_t bits, mantissa;
	int exponent;

	memcpy(&bits, &f, 4);
	if (!(bits & 0x7fffffff))
		return bits >> 16;
	exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
	mantissa = (uint32_t)exponent << 23 | (bits & 0x7fffff);
	mantissa += 0xfff + (mantissa >> 13 & 1);
	return (bits >> 16 & 0x8000) | mantissa >> 13;
}

static uint16_t to_bfloat(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* numerator / denominator as element @i of @buf. */
static void store(enum coll_dtype dtype, void *buf, uint64_t i, int64_t numerator,
		  int64_t denominator)
{
	switch (dtype) {
	case COLL_INT8:
	case COLL_UINT8:
		((uint8_t *)buf)[i] = numerator / denominator;
		break;
	case COLL_INT16:
	case COLL_UINT16:
		((uint16_t *)buf)[i] = numerator / denominator;
		break;
	case COLL_INT32:
	case COLL_UINT32:
		((uint32_t *)buf)[i] = numerator / denominator;
		break;
	case COLL_INT64:
	case COLL_UINT64:
		((uint64_t *)buf)[i] = numerator / denominator;
		break;
	case COLL_FLOAT16:
		((uint16_t *)buf)[i] = to_half((float)numerator / (float)denominator);
		break;
	case COLL_BFLOAT16:
		((uint16_t *)buf)[i] = to_bfloat((float)numerator / (float)denominator);
		break;
	case COLL_FLOAT32:
		((float *)buf)[i] = (float)numerator / (float)denominator;
		break;
	case COLL_FLOAT64:
		((double *)buf)[i] = (double)numerator / (double)denominator;
		break;
	}
}

static int64_t reduce(enum coll_op op, int64_t a, int64_t b)
{
	switch (op) {
	case COLL_PROD:
		return (uint64_t)a * (uint64_t)b;
	case COLL_MIN:
		return a < b ? a : b;
	case COLL_MAX:
		return a > b ? a : b;
	default:
		return (uint64_t)a + (uint64_t)b;
	}
}

static void make_sent(struct bench_data *data, uint32_t rank)
{
	for (uint64_t i = 0; i < data->period; i++)
		store(data->b->dtype, data->sent[rank], i, value(data->b, rank, i), 1);
}

static void make_reduced(struct bench_data *data)
{
	const struct bench *b = data->b;

	for (uint64_t i = 0; i < data->period; i++) {
		int64_t sum = value(b, 0, i);

		for (uint32_t rank = 1; rank < b->nranks; rank++)
			sum = reduce(b->op, sum, value(b, rank, i));
		store(b->dtype, data->reduced, i, sum, b->op == COLL_AVG ? b->nranks : 1);
	}
}

static uint8_t *sent_by(struct bench_data *data, uint32_t rank)
{
	if (!data->sent[rank]) {
		data->sent[rank] = malloc(data->period * data->size);
		if (!data->sent[rank])
			abort();
		make_sent(data, rank);
	}
	return data->sent[rank];
}

struct bench_data *bench_data_new(const struct bench *b, uint32_t rank)
{
	struct bench_data *data = calloc(1, sizeof(*data));

	if (!data)
		return NULL;
	data->b = b;
	data->size = coll_dtype_size(b->dtype);
	data->period = b->nranks > 64 ? 251 : 4093;
	data->sent = calloc(b->nranks, sizeof(*data->sent));
	data->reduced = malloc(data->period * data->size);
	if (!data->sent || !data->reduced) {
		bench_data_free(data);
		return NULL;
	}
	sent_by(data, rank);
	if (b->check && b->coll->reduces)
		make_reduced(data);
	return data;
}

void bench_data_free(struct bench_data *data)
{
	if (data && data->sent)
		for (uint32_t rank = 0; rank < data->b->nranks; rank++)
			free(data->sent[rank]);
	if (data) {
		free(data->sent);
		free(data->reduced);
	}
	free(data);
}

void bench_data_fill(struct bench_data *data, uint32_t rank, uint64_t shift, void *buf,
		     uint64_t first, uint64_t count)
{
	uint64_t at = (first + shift) % data->period, n;
	const uint8_t *table = sent_by(data, rank);
	uint8_t *dst = buf;

	while (count) {
		n = data->period - at < count ? data->period - at : count;
		memcpy(dst, table + at * data->size, n * data->size);
		dst += n * data->size;
		count -= n;
		at = 0;
	}
}

static uint64_t check(const struct bench_data *data, const uint8_t *table, uint64_t shift,
		      const void *buf, uint64_t first, uint64_t count)
{
	uint64_t at = (first + shift) % data->period, n, wrong = 0;
	const uint8_t *got = buf;

	while (count) {
		n = data->period - at < count ? data->period - at : count;
		if (memcmp(got, table + at * data->size, n * data->size))
			for (uint64_t i = 0; i < n; i++)
				wrong += !!memcmp(got + i * data->size,
						  table + (at + i) * data->size, data->size);
		got += n * data->size;
		count -= n;
		at = 0;
	}
	return wrong;
}

uint64_t bench_data_check(struct bench_data *data, uint32_t rank, uint64_t shift, const void *buf,
			  uint64_t first, uint64_t count)
{
	return check(data, sent_by(data, rank), shift, buf, first, count);
}

uint64_t bench_data_check_reduced(struct bench_data *data, uint64_t shift, const void *buf,
				  uint64_t first, uint64_t count)
{
	return check(data, data->reduced, shift, buf, first, count);
}
