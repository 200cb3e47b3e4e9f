// SPDX-License-Identifier: GPL-2.0
/*
 * reduce.c - the software NPU's reduction loops against a plain reference, bit for
 * bit: every data type, reduction and variant, with special values, odd lengths
 * and alignments, chains, and operands scattered over memory. Compiles the
 * very sources of npulink_soft.ko.
 *
 * npulink-test: san-soak
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include "harness.h"

#include "soft_loops.h"
#include "../../kernel/soft/walk.c"

#define ARRAY(a)	(sizeof(a) / sizeof((a)[0]))

static const char *const dtype_names[NPULINK_DTYPES] = {
	"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
	"float16", "bfloat16", "float32", "float64",
};

static uint64_t seed = 1;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dULL;
}

/* ---- the reference: one element at a time, through numbers, not bits -------- */

/* A float format: fraction bits, exponent bits. */
struct format {
	int frac;
	int exp;
};

static const struct format half = { 10, 5 }, bfloat = { 7, 8 };

static double decode(struct format f, unsigned int bits)
{
	int bias = (1 << (f.exp - 1)) - 1;
	int e = bits >> f.frac & ((1 << f.exp) - 1);
	double m = bits & ((1 << f.frac) - 1), v;

	if (e == (1 << f.exp) - 1)
		v = m ? NAN : INFINITY;
	else if (!e)
		v = ldexp(m, 1 - bias - f.frac);
	else
		v = ldexp(m + (1 << f.frac), e - bias - f.frac);
	return bits >> 15 ? -v : v;
}

/* Round to nearest even. */
static unsigned int encode(struct format f, double v)
{
	int bias = (1 << (f.exp - 1)) - 1, e;
	unsigned int sign = signbit(v) ? 0x8000 : 0, inf = ((1 << f.exp) - 1) << f.frac;
	double m;

	if (isnan(v))
		return inf | 1 << (f.frac - 1);
	v = fabs(v);
	if (isinf(v))
		return sign | inf;
	if (v == 0)
		return sign;
	e = ilogb(v);
	if (e < 1 - bias)
		e = 1 - bias;
	m = nearbyint(ldexp(v, f.frac - e));
	if (m >= 2 << f.frac) {
		m /= 2;
		e++;
	}
	if (e > bias)
		return sign | inf;
	if (m < 1 << f.frac)
		return sign | (unsigned int)m;
	return sign | (e + bias) << f.frac | ((unsigned int)m - (1 << f.frac));
}

static double extreme(double a, double b, bool max)
{
	if (isnan(a) || isnan(b))
		return NAN;
	if (a == b)
		return !signbit(a) == max ? a : b;
	return (a > b) == max ? a : b;
}

static double calc(double a, double b, int op)
{
	switch (op) {
	case NPULINK_SUM:
		return a + b;
	case NPULINK_PROD:
		return a * b;
	default:
		return extreme(a, b, op == NPULINK_MAX);
	}
}

static __int128 icalc(__int128 a, __int128 b, int op)
{
	switch (op) {
	case NPULINK_SUM:
		return a + b;
	case NPULINK_PROD:
		return (uint64_t)a * (uint64_t)b;
	case NPULINK_MIN:
		return a < b ? a : b;
	default:
		return a > b ? a : b;
	}
}

static __int128 get_int(int dtype, uint64_t x)
{
	switch (dtype) {
	case NPULINK_INT8: return (int8_t)x;
	case NPULINK_UINT8: return (uint8_t)x;
	case NPULINK_INT16: return (int16_t)x;
	case NPULINK_UINT16: return (uint16_t)x;
	case NPULINK_INT32: return (int32_t)x;
	case NPULINK_UINT32: return (uint32_t)x;
	case NPULINK_INT64: return (int64_t)x;
	default: return x;
	}
}

static double get_float(int dtype, uint64_t x)
{
	float f;
	double d;

	switch (dtype) {
	case NPULINK_FLOAT16: return decode(half, x);
	case NPULINK_BFLOAT16: return decode(bfloat, x);
	case NPULINK_FLOAT32:
		memcpy(&f, &x, 4);
		return f;
	default:
		memcpy(&d, &x, 8);
		return d;
	}
}

static uint64_t put_float(int dtype, double v)
{
	float f = v;
	uint64_t x = 0;

	switch (dtype) {
	case NPULINK_FLOAT16:
		return encode(half, v);
	case NPULINK_BFLOAT16:
		return encode(bfloat, v);
	case NPULINK_FLOAT32:
		if (isnan(v))
			return 0x7fc00000;
		memcpy(&x, &f, 4);
		return x;
	default:
		if (isnan(v))
			return 0x7ff8000000000000;
		memcpy(&x, &v, 8);
		return x;
	}
}

static unsigned int size_of(int dtype)
{
	return 1U << soft_dtype_shift(dtype);
}

static uint64_t load(int dtype, const void *p)
{
	uint64_t x = 0;

	memcpy(&x, p, size_of(dtype));
	return x;
}

static uint64_t reference(int dtype, int op, uint64_t a, uint64_t b)
{
	uint64_t mask = ~0ULL >> (64 - 8 * size_of(dtype));

	if (dtype < NPULINK_FLOAT16)
		return icalc(get_int(dtype, a), get_int(dtype, b), op) & mask;
	return put_float(dtype, calc(get_float(dtype, a), get_float(dtype, b), op));
}

static uint64_t reference_div(int dtype, uint64_t a, uint32_t by)
{
	uint64_t mask = ~0ULL >> (64 - 8 * size_of(dtype));

	if (dtype < NPULINK_FLOAT16)
		return (get_int(dtype, a) / by) & mask;
	return put_float(dtype, get_float(dtype, a) / ldexp(by & SOFT_DIV_MAX, -(int)(by >> 24)));
}

/* In a format that a double has room for, what is scaled is exact. */
static double scaled_float(int dtype, uint64_t x, int k)
{
	double v = ldexp(get_float(dtype, x), -k);

	return dtype == NPULINK_FLOAT32 ? (float)v : v;
}

static uint64_t reference_scaled(int dtype, uint64_t a, int ka, uint64_t b, int kb)
{
	return put_float(dtype, scaled_float(dtype, a, ka) + scaled_float(dtype, b, kb));
}

/* Values at which something may go wrong. */
static const uint16_t special16[] = {
	0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x03ff, 0x0400, 0x0401, 0x8400, 0x007f, 0x0080,
	0x0081, 0x3c00, 0xbc00, 0x3c01, 0x3bff, 0x3f80, 0xbf80, 0x3f81, 0x1400, 0x1401, 0x2000,
	0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0xfe00, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81,
	0xffc1, 0x7fff, 0xffff, 0x5555, 0xaaaa,
};

static const uint32_t special32[] = {
	0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x00800001,
	0x3f800000, 0xbf800000, 0x3f800001, 0x33800000, 0x33800001, 0x34000000, 0x7f7fffff,
	0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffc00000,
	0x7fffffff, 0xffffffff, 0x1fffffff, 0x20000000, 0x5f000000, 0x73000000,
};

static const uint64_t special64[] = {
	0, 0x8000000000000000, 1, 0x8000000000000001, 0x000fffffffffffff, 0x0010000000000000,
	0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001, 0x3ca0000000000000,
	0x3ca0000000000001, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
	0xfff0000000000000, 0x7ff0000000000001, 0xfff0000000000001, 0x7ff8000000000000,
	0xfff8000000000000, 0x7fffffffffffffff, 0xffffffffffffffff, 0x1ff0000000000000,
};

static uint64_t value(int dtype)
{
	uint64_t r = rnd();

	if (r & 3)
		return rnd() ^ (r >> 60 == 1 ? rnd() << 32 : 0);
	switch (size_of(dtype)) {
	case 1: return special16[r / 4 % ARRAY(special16)];
	case 2: return special16[r / 4 % ARRAY(special16)];
	case 4: return special32[r / 4 % ARRAY(special32)];
	default: return special64[r / 4 % ARRAY(special64)];
	}
}

static void fill(int dtype, void *p, size_t n)
{
	for (; n; n--, p += size_of(dtype)) {
		uint64_t x = value(dtype);

		memcpy(p, &x, size_of(dtype));
	}
}

/* ---- the loops ----------------------------------------------------------- */

FIXTURE(loops) {
	const struct soft_variant *v;
};

FIXTURE_VARIANT(loops) {
	const struct soft_variant *v;
	bool avx2;
	bool avx512;
};

FIXTURE_VARIANT_ADD(loops, int_scalar) { .v = &soft_int_scalar };
FIXTURE_VARIANT_ADD(loops, int_swar) { .v = &soft_int_swar };
FIXTURE_VARIANT_ADD(loops, fp_scalar) { .v = &soft_fp_scalar };
#ifdef __x86_64__
FIXTURE_VARIANT_ADD(loops, sse2) { .v = &soft_fp_sse2 };
FIXTURE_VARIANT_ADD(loops, avx2) { .v = &soft_fp_avx2, .avx2 = true };
FIXTURE_VARIANT_ADD(loops, avx512) { .v = &soft_fp_avx512, .avx512 = true };
#endif

FIXTURE_SETUP(loops)
{
	self->v = variant->v;
#ifdef __x86_64__
	if (variant->avx2 && (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")))
		SKIP_CASE("this CPU has no AVX2");
	if (variant->avx512 && !(__builtin_cpu_supports("avx512bw") &&
				 __builtin_cpu_supports("avx512dq")))
		SKIP_CASE("this CPU has no AVX-512");
#endif
}

FIXTURE_TEARDOWN(loops)
{
}

/* One call with n elements at the given misalignments; 0 or 1 + first wrong index. */
static size_t run(const struct soft_variant *v, int dtype, int op, size_t n, unsigned int skew,
		  bool in_place)
{
	size_t size = size_of(dtype), bytes = n * size, i;
	uint8_t *a = malloc(bytes + 8), *b = malloc(bytes + 8), *d = malloc(bytes + 16);
	uint8_t *pa = a + (skew & 7), *pb = b + (skew >> 3 & 7), *pd = d + (skew >> 6 & 7);
	uint8_t *want = malloc(bytes + 8);
	size_t bad = 0;

	fill(dtype, pa, n);
	fill(dtype, pb, n);
	for (i = 0; i < n; i++) {
		uint64_t w = reference(dtype, op, load(dtype, pa + i * size),
				       load(dtype, pb + i * size));

		memcpy(want + i * size, &w, size);
	}
	memset(d, 0xa5, bytes + 16);
	if (in_place) {
		memcpy(pd, pa, bytes);
		v->reduce[dtype][op](pd, pd, pb, n);
	} else {
		v->reduce[dtype][op](pd, pa, pb, n);
	}
	for (i = 0; i < n && !bad; i++) {
		if (memcmp(pd + i * size, want + i * size, size))
			bad = 1 + i;
	}
	/* Nothing beside it was written. */
	for (i = 0; i < (size_t)(pd - d); i++)
		bad = d[i] != 0xa5 ? ~0UL : bad;
	for (i = pd - d + bytes; i < bytes + 16; i++)
		bad = d[i] != 0xa5 ? ~0UL : bad;
	if (bad)
		ksft_print_msg("%s %s op %d n %zu skew %x: element %zd\n", v->name,
			       dtype_names[dtype], op, n, skew, bad - 1);
	free(a);
	free(b);
	free(d);
	free(want);
	return bad;
}

TEST_F(loops, lengths_and_alignments)
{
	int dtype, op;
	size_t n;

	for (dtype = 0; dtype < NPULINK_DTYPES; dtype++) {
		for (op = 0; op < NPULINK_REDOPS; op++) {
			if (!self->v->reduce[dtype][op])
				continue;
			for (n = 0; n < 150; n++) {
				ASSERT_EQ(0, run(self->v, dtype, op, n, 0, false));
				ASSERT_EQ(0, run(self->v, dtype, op, n, rnd(), rnd() & 1));
			}
			ASSERT_EQ(0, run(self->v, dtype, op, 20011, rnd(), false));
		}
	}
}

TEST_F(loops, special_values)
{
	int dtype, op;

	for (dtype = NPULINK_FLOAT32; dtype <= NPULINK_FLOAT64; dtype++) {
		size_t n = dtype == NPULINK_FLOAT32 ? ARRAY(special32) : ARRAY(special64), i, j;

		for (op = 0; op < NPULINK_REDOPS; op++) {
			if (!self->v->reduce[dtype][op])
				continue;
			for (i = 0; i < n * n; i++) {
				uint64_t x[8], y[8], z[8] = { 0 };
				uint32_t x32[8], y32[8];

				/* In each lane of a vector. */
				for (j = 0; j < 8; j++) {
					size_t k = (i + j) % (n * n);

					x[j] = special64[k / n % ARRAY(special64)];
					y[j] = special64[k % n % ARRAY(special64)];
					x32[j] = special32[k / n % ARRAY(special32)];
					y32[j] = special32[k % n % ARRAY(special32)];
				}
				if (dtype == NPULINK_FLOAT32)
					self->v->reduce[dtype][op](z, x32, y32, 8);
				else
					self->v->reduce[dtype][op](z, x, y, 8);
				for (j = 0; j < 8; j++) {
					uint64_t a = dtype == NPULINK_FLOAT32 ? x32[j] : x[j];
					uint64_t b = dtype == NPULINK_FLOAT32 ? y32[j] : y[j];

					ASSERT_EQ(reference(dtype, op, a, b),
						  load(dtype, (char *)z + j * size_of(dtype))) {
						TH_LOG("%s op %d: %llx, %llx", dtype_names[dtype],
						       op, (long long)a, (long long)b);
					}
				}
			}
		}
	}
}

/* With sanitizers it is memory that is looked at, and they are slow. */
#ifdef __SANITIZE_ADDRESS__
#define HALVES	4
#else
#define HALVES	(ARRAY(special16) + 6)
#endif

/* All of one operand x special ones and some random ones. */
TEST_F(loops, half_exhaustive)
{
	static uint16_t a[65536], b[65536], d[65536];
	int dtype, op;
	size_t i, k;

	for (i = 0; i < 65536; i++)
		a[i] = i;
	for (dtype = NPULINK_FLOAT16; dtype <= NPULINK_BFLOAT16; dtype++) {
		for (op = 0; op < NPULINK_REDOPS; op++) {
			if (!self->v->reduce[dtype][op])
				continue;
			for (k = 0; k < HALVES; k++) {
				uint16_t x = k < ARRAY(special16) ? special16[k] : rnd();

				for (i = 0; i < 65536; i++)
					b[i] = x;
				if (k & 1)
					self->v->reduce[dtype][op](d, a, b, 65536);
				else
					self->v->reduce[dtype][op](d, b, a, 65536);
				for (i = 0; i < 65536; i++) {
					if (reference(dtype, op, i, x) == d[i])
						continue;
					ASSERT_EQ(reference(dtype, op, i, x), d[i]) {
						TH_LOG("%s op %d: %zx, %x", dtype_names[dtype], op,
						       i, x);
					}
				}
			}
			/* Random pairs: sums that need rounding are among neighbours. */
			for (i = 0; i < 65536; i++)
				b[i] = i + (rnd() & 0x1fff) - 0x1000;
			self->v->reduce[dtype][op](d, a, b, 65536);
			for (i = 0; i < 65536; i++)
				ASSERT_EQ(reference(dtype, op, i, b[i]), d[i]);
		}
	}
}

TEST_F(loops, division)
{
	static const uint32_t divisors[] = {
		2, 3, 4, 5, 7, 8, 11, 16, 127, 128, 129, 255, 256, 257, 1000, 2047, 2048, 2049,
		4095, 4097, 32767, 65535, 65536, 65537, 100003, 1048575, 1048576, SOFT_DIV_MAX,
		/* Floats only. */
		SOFT_DIV_BY(3, 2), SOFT_DIV_BY(5, 3), SOFT_DIV_BY(2049, 12),
		SOFT_DIV_BY(1048575, 20),
	};
	static uint8_t d[65536 * 2], was[65536 * 2];
	int dtype;
	size_t i, k;

	for (dtype = 0; dtype < NPULINK_DTYPES; dtype++) {
		size_t size = size_of(dtype), n = sizeof(d) / size;

		if (!self->v->div[dtype])
			continue;
		for (k = 0; k < ARRAY(divisors); k++) {
			if (dtype < NPULINK_FLOAT16 && divisors[k] > SOFT_DIV_MAX)
				continue;
			fill(dtype, was, n);
			for (i = 0; size == 2 && i < 65536; i++)
				memcpy(was + 2 * i, &i, 2);
			memcpy(d, was, sizeof(d));
			self->v->div[dtype](d, n - k % 7, divisors[k]);
			for (i = 0; i < n - k % 7; i++) {
				uint64_t x = load(dtype, was + i * size);
				uint64_t want = reference_div(dtype, x, divisors[k]);

				ASSERT_EQ(want, load(dtype, d + i * size)) {
					TH_LOG("%s: %llx / %u", dtype_names[dtype], (long long)x,
					       divisors[k]);
				}
			}
			ASSERT_EQ(0, memcmp(d + i * size, was + i * size, (k % 7) * size));
		}
	}
}

/* Either input of a mean, or both; none of the powers is so large that a half is not exact. */
TEST_F(loops, scaled)
{
	static const int powers[][2] = {
		{ 1, 0 }, { 0, 1 }, { 1, 1 }, { 3, 3 }, { 0, 14 }, { 14, 14 },
	};
	static uint8_t a[65536 * 2], b[65536 * 2], d[65536 * 2];
	int dtype;
	size_t i, k;

	for (dtype = NPULINK_FLOAT16; dtype < NPULINK_DTYPES; dtype++) {
		size_t size = size_of(dtype), n = sizeof(d) / size;

		if (!self->v->scaled[dtype])
			continue;
		for (k = 0; k < ARRAY(powers); k++) {
			fill(dtype, a, n);
			fill(dtype, b, n);
			for (i = 0; size == 2 && i < 65536; i++)
				memcpy(a + 2 * i, &i, 2);
			self->v->scaled[dtype](d, a, b, n - k % 7,
					       SOFT_SCALES(powers[k][0], powers[k][1]));
			for (i = 0; i < n - k % 7; i++) {
				uint64_t x = load(dtype, a + i * size);
				uint64_t y = load(dtype, b + i * size);
				uint64_t want = reference_scaled(dtype, x, powers[k][0],
								 y, powers[k][1]);

				ASSERT_EQ(want, load(dtype, d + i * size)) {
					TH_LOG("%s: %llx / 2^%d + %llx / 2^%d", dtype_names[dtype],
					       (long long)x, powers[k][0], (long long)y,
					       powers[k][1]);
				}
			}
		}
	}
}

/* ---- operands that are scattered over memory --------------------------------- */

/* A buffer that begins at any byte and goes on in another place at each page. */
static struct npulink_buf *scatter(uint64_t len, unsigned int page, void **memory)
{
	unsigned int first = 1 + rnd() % page, n = 0, max = len / page + 3;
	struct npulink_buf *buf = calloc(1, sizeof(*buf));
	uint8_t *p = calloc(max, 2 * page);
	uint64_t off = 0;

	buf->mem.len = len;
	buf->mem.ranges = calloc(max + 1, sizeof(*buf->mem.ranges));
	while (off < len) {
		buf->mem.ranges[n].off = off;
		/* Backwards, so that no two ranges are adjacent. */
		buf->mem.ranges[n].va = p + 2 * page * (max - 1 - n) + (n ? 0 : page - first);
		off += n ? page : first;
		n++;
	}
	buf->mem.ranges[n].off = len;
	buf->mem.nranges = n;
	*memory = p;
	return buf;
}

static void unscatter(struct npulink_buf *buf, void *memory)
{
	free(memory);
	free(buf->mem.ranges);
	free(buf);
}

static void copy_in(struct npulink_buf *buf, uint64_t off, const uint8_t *from, size_t len)
{
	struct npulink_operand o = { .buf = buf, .off = off };
	u32 hint = 0;

	soft_scatter(&o, from, 0, len, &hint);
}

static void copy_out(uint8_t *to, struct npulink_buf *buf, uint64_t off, size_t len)
{
	struct npulink_operand o = { .buf = buf, .off = off };
	u32 hint = 0;

	soft_gather(to, &o, 0, len, &hint);
}

#define NSRC 6
#define LEN 4096

#ifdef __x86_64__
static const struct soft_variant *streaming;
static size_t streamed;

/* Non-temporal stores, as they are to be asked for. */
static void stream(void *dst, const void *src, size_t n)
{
	if ((uintptr_t)dst % SOFT_LINE || (uintptr_t)src % SOFT_LINE || n % SOFT_LINE ||
	    n > SOFT_SCRATCH)
		abort();
	streaming->stream(dst, src, n);
	streamed += n;
}
#endif

TEST(chain_equals_step_by_step)
{
	static const struct soft_variant *const variants[] = {
#ifdef __x86_64__
		&soft_fp_sse2, &soft_fp_sse2, &soft_fp_sse2,
#endif
		&soft_int_scalar, &soft_fp_scalar,
	};
	static uint8_t flat[NSRC][LEN], want[LEN], got[LEN + 16];
	int round, i;

	for (round = 0; round < 20000; round++) {
		const struct soft_variant *v = variants[rnd() % ARRAY(variants)];
		int dtype = rnd() % NPULINK_DTYPES, op = rnd() % NPULINK_REDOPS;
		unsigned int size = size_of(dtype), page = 16 << rnd() % 6;
		bool scales = v->scaled[dtype] && op == NPULINK_SUM && rnd() & 1;
		unsigned int nsrc = 2 + rnd() % (NSRC - 1), len = (1 + rnd() % 500) * size, at, n;
		struct npulink_operand src[NSRC], dst;
		bool in_place = rnd() & 1;
		void *memory[NSRC], *dst_memory;
		struct soft_kernel k = { .reduce = v->reduce[dtype][op],
					 .shift = soft_dtype_shift(dtype) };
		u32 hint[NSRC + 1] = { 0 };

		if (!k.reduce)
			continue;
		if (scales) {
			k.scaled = v->scaled[dtype];
			k.scale = 1 + rnd() % 14;
			/* What is only scaled is divided. */
			if (!(rnd() & 3))
				nsrc = 1;
		}
		if (nsrc == 1 || !(rnd() & 3)) {
			k.by = nsrc == 1 ? 1U << k.scale : nsrc;
			if (scales && nsrc > 1)
				k.by = SOFT_DIV_BY(nsrc, rnd() & 3);
			k.div = v->div[dtype] ? v->div[dtype] : soft_int_scalar.div[dtype];
			if (!k.div)
				k.div = soft_fp_scalar.div[dtype];
		}
		for (i = 0; i < (int)nsrc; i++) {
			src[i].off = (rnd() % 8) * size;
			src[i].scaled = scales && rnd() & 1;
			src[i].buf = scatter(src[i].off + len + 8, page, &memory[i]);
			fill(dtype, flat[i], len / size);
			copy_in(src[i].buf, src[i].off, flat[i], len);
		}
		if (in_place) {
			dst = src[0];
		} else {
			dst.off = 8 + (rnd() % 8) * size;
			dst.buf = scatter(dst.off + len + 8, page, &dst_memory);
		}
		memcpy(want, flat[0], len);
		for (i = 1; i < (int)nsrc; i++) {
			for (at = 0; at < len; at += size) {
				uint64_t x = load(dtype, want + at), y = load(dtype, flat[i] + at);
				int kx = i == 1 && src[0].scaled ? k.scale : 0;
				int ky = src[i].scaled ? k.scale : 0;
				uint64_t w = reference(dtype, op, x, y);

				if (kx | ky)
					w = reference_scaled(dtype, x, kx, y, ky);
				memcpy(want + at, &w, size);
			}
		}
		for (at = 0; k.by && at < len; at += size) {
			uint64_t w = reference_div(dtype, load(dtype, want + at), k.by);

			memcpy(want + at, &w, size);
		}
		for (at = 0; at < len; at += n) {
			n = (1 + rnd() % 300) * size;
			if (n > len - at)
				n = len - at;
			soft_walk_reduce(&k, &dst, src, nsrc, at, n, hint);
		}
		copy_out(got, dst.buf, dst.off, len + 8);
		ASSERT_EQ(0, memcmp(got, want, len)) {
			TH_LOG("%s %s op %d nsrc %u len %u page %u", v->name, dtype_names[dtype],
			       op, nsrc, len, page);
		}
		for (i = 0; i < 8; i++)
			ASSERT_EQ(0, got[len + i]);
		for (i = 0; i < (int)nsrc; i++)
			unscatter(src[i].buf, memory[i]);
		if (!in_place)
			unscatter(dst.buf, dst_memory);
	}
}

#ifdef __x86_64__
/* Long and short, at any address, in one piece or many: the same with and without. */
TEST(past_the_cache)
{
	static const struct soft_variant *const variants[] = {
		&soft_fp_sse2, &soft_fp_avx2, &soft_fp_avx512,
	};
	static uint8_t scratch[SOFT_SCRATCH] __attribute__((aligned(SOFT_LINE)));
	const unsigned int most = 20000;
	uint8_t *got = malloc(most + 16), *want = malloc(most + 16), *flat = malloc(most);

	for (int round = 0; round < 3000; round++) {
		int dtype = rnd() % NPULINK_DTYPES, op = rnd() % NPULINK_REDOPS, v = rnd() % 3;
		unsigned int size = size_of(dtype), page = 256 << rnd() % 8;
		unsigned int nsrc = 2 + rnd() % (NSRC - 1);
		unsigned int len = (1 + rnd() % (rnd() & 1 ? 100 : most / size)) * size;
		struct npulink_operand src[NSRC], a, b;
		u32 hint[NSRC + 1] = { 0 };
		void *memory[NSRC], *a_memory, *b_memory;
		struct soft_kernel k = { .shift = soft_dtype_shift(dtype) };
		size_t before = streamed;

		if ((v == 1 && (!__builtin_cpu_supports("avx2") ||
				!__builtin_cpu_supports("f16c"))) ||
		    (v == 2 && (!__builtin_cpu_supports("avx512bw") ||
				!__builtin_cpu_supports("avx512dq"))))
			v = 0;
		streaming = variants[v];
		k.reduce = streaming->reduce[dtype][op];
		if (!k.reduce)
			continue;
		if (streaming->div[dtype] && rnd() & 1) {
			k.by = nsrc;
			k.div = streaming->div[dtype];
		}
		for (unsigned int i = 0; i < nsrc; i++) {
			src[i].off = rnd() % 100;
			src[i].scaled = false;
			src[i].buf = scatter(src[i].off + len + 8, page, &memory[i]);
			fill(dtype, flat, len / size);
			copy_in(src[i].buf, src[i].off, flat, len);
		}
		a.off = 8 + rnd() % 100;
		b.off = a.off;
		a.buf = scatter(a.off + len + 8, page, &a_memory);
		b.buf = scatter(b.off + len + 8, page, &b_memory);
		soft_walk_reduce(&k, &a, src, nsrc, 0, len, hint);
		memset(hint, 0, sizeof(hint));
		k.stream = stream;
		k.scratch = scratch;
		soft_walk_reduce(&k, &b, src, nsrc, 0, len, hint);
		copy_out(want, a.buf, a.off - 8, len + 16);
		copy_out(got, b.buf, b.off - 8, len + 16);
		ASSERT_EQ(0, memcmp(got, want, len + 16)) {
			TH_LOG("%s %s op %d nsrc %u len %u page %u", streaming->name,
			       dtype_names[dtype], op, nsrc, len, page);
		}
		/* Of bytes there are always some that can be stored so. */
		if (size == 1 && page >= 512 && len > 1000)
			ASSERT_GT(streamed, before);
		for (unsigned int i = 0; i < nsrc; i++)
			unscatter(src[i].buf, memory[i]);
		unscatter(a.buf, a_memory);
		unscatter(b.buf, b_memory);
	}
	TH_LOG("%zu bytes past the cache", streamed);
	EXPECT_GT(streamed, 1000000);
	free(got);
	free(want);
	free(flat);
}
#endif

TEST(copy)
{
	static uint8_t flat[LEN], got[LEN + 8];
	int round, i;

	for (round = 0; round < 20000; round++) {
		unsigned int len = rnd() % LEN, at, n;
		struct npulink_operand src = { .off = rnd() % 99 }, dst = { .off = rnd() % 99 };
		void *src_memory, *dst_memory;
		u32 hint[2] = { 0 };

		src.buf = scatter(src.off + len + 8, 16 << rnd() % 8, &src_memory);
		dst.buf = scatter(dst.off + len + 8, 16 << rnd() % 8, &dst_memory);
		fill(NPULINK_UINT8, flat, len);
		copy_in(src.buf, src.off, flat, len);
		for (at = 0; at < len; at += n) {
			n = 1 + rnd() % 2000;
			if (n > len - at)
				n = len - at;
			soft_walk_copy(&dst, &src, at, n, hint);
		}
		copy_out(got, dst.buf, dst.off, len + 8);
		ASSERT_EQ(0, memcmp(got, flat, len));
		for (i = 0; i < 8; i++)
			ASSERT_EQ(0, got[len + i]);
		unscatter(src.buf, src_memory);
		unscatter(dst.buf, dst_memory);
	}
}

TEST_HARNESS_MAIN
