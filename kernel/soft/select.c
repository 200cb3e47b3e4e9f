// SPDX-License-Identifier: GPL-2.0
/*
 * select.c - which loops to use. As lib/raid6 and crypto/xor.c do, measure all
 * that this CPU can run when the module is loaded, and take the fastest for each
 * data type and reduction: which one it is cannot be told from feature bits
 * (vectors are slow where they are emulated, wide ones slow on some CPUs).
 */
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/nospec.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "fpu.h"
#include "soft.h"

#define SOFT_BENCH_BYTES	4096
#define SOFT_BENCH_NS		5000

/* Up to here, loops without vector registers are used if there are any. */
#define SOFT_LIGHT_BYTES	512

static const struct soft_variant *const soft_variants[] = {
	&soft_int_scalar,
	&soft_int_swar,
	&soft_fp_scalar,
#ifdef CONFIG_X86_64
	&soft_fp_sse2,
	&soft_fp_avx2,
	&soft_fp_avx512,
#endif
};

static const char *const soft_dtype_names[NPULINK_DTYPES] = {
	"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
	"float16", "bfloat16", "float32", "float64",
};

static const char *const soft_redop_names[NPULINK_REDOPS] = { "sum", "prod", "min", "max" };

/* Chosen at load, and changed by soft_select_force() only. */
static const struct soft_variant *soft_best[NPULINK_DTYPES][NPULINK_REDOPS];
static bool soft_forced;

/* MB/s */
static u32 soft_rates[ARRAY_SIZE(soft_variants)][NPULINK_DTYPES][NPULINK_REDOPS];

/*
 * Is a non-temporal result worth it? Where a loop has so many MB/s in the cache, memory is what it
 * waits for beyond it: a processor gets 10 to 30 GB/s of that, of which three go into a byte of
 * the result. Emulated ones have less. (Such stores themselves cannot be measured here: in some
 * runs they stay in the cache, and are five times as fast.) A variant that was asked for is
 * to be tested with all it has.
 */
static bool soft_streams[NPULINK_DTYPES][NPULINK_REDOPS];

static atomic64_t soft_blocks_streamed;

void __percpu *soft_scratch;

static bool soft_variant_runs(const struct soft_variant *v)
{
	if (v->fpu && !soft_fpu_exists())
		return false;
#ifdef CONFIG_X86_64
	if (v == &soft_fp_avx2)
		return soft_fpu_has_avx2();
	if (v == &soft_fp_avx512)
		return soft_fpu_has_avx512();
#endif
	return true;
}

/* MB/s of results; the best of three, of which the first warms up. */
static u32 soft_measure(const struct soft_variant *v, unsigned int dtype, unsigned int redop,
			u8 *buf)
{
	u64 best = 0, start, ns, n;
	int i;

	for (i = 0; i < 3; i++) {
		if (v->fpu)
			soft_fpu_begin();
		else
			preempt_disable();
		start = ktime_get_ns();
		n = 0;
		do {
			v->reduce[dtype][redop](buf, buf + SOFT_BENCH_BYTES,
						buf + 2 * SOFT_BENCH_BYTES,
						SOFT_BENCH_BYTES >> soft_dtype_shift(dtype));
			n += SOFT_BENCH_BYTES;
			ns = ktime_get_ns() - start;
		} while (ns < SOFT_BENCH_NS);
		if (v->fpu)
			soft_fpu_end();
		else
			preempt_enable();
		best = max(best, div64_u64(1000 * n, ns));
	}
	return best;
}

/* The fastest, or the one called @name where there is one. */
static void soft_choose(const char *name)
{
	unsigned int v, d, r;

	for (d = 0; d < NPULINK_DTYPES; d++) {
		for (r = 0; r < NPULINK_REDOPS; r++) {
			const struct soft_variant *best = NULL;
			bool stream = false;
			u32 rate = 0;

			for (v = 0; v < ARRAY_SIZE(soft_variants); v++) {
				if (!soft_rates[v][d][r])
					continue;
				if (name && !strcmp(name, soft_variants[v]->name)) {
					best = soft_variants[v];
					stream = best->stream;
					break;
				}
				if (soft_rates[v][d][r] <= rate)
					continue;
				rate = soft_rates[v][d][r];
				best = soft_variants[v];
				stream = best->stream && rate >= SOFT_STREAM_RATE;
			}
			WRITE_ONCE(soft_best[d][r], best);
			WRITE_ONCE(soft_streams[d][r], stream);
		}
	}
}

int soft_select_init(void)
{
	unsigned int v, d, r;
	u32 rate;
	u8 *buf;

	soft_scratch = __alloc_percpu(SOFT_SCRATCH, SOFT_LINE);
	if (!soft_scratch)
		return -ENOMEM;
	buf = kmalloc(3 * SOFT_BENCH_BYTES, GFP_KERNEL);
	if (!buf) {
		free_percpu(soft_scratch);
		return -ENOMEM;
	}
	/* A normal, harmless number in all formats. */
	memset(buf, 0x3c, 3 * SOFT_BENCH_BYTES);
	for (v = 0; v < ARRAY_SIZE(soft_variants); v++) {
		if (!soft_variant_runs(soft_variants[v]))
			continue;
		for (d = 0; d < NPULINK_DTYPES; d++) {
			for (r = 0; r < NPULINK_REDOPS; r++) {
				if (!soft_variants[v]->reduce[d][r])
					continue;
				rate = soft_measure(soft_variants[v], d, r, buf);
				soft_rates[v][d][r] = max(rate, 1U);
			}
		}
		cond_resched();
	}
	kfree(buf);
	soft_choose(NULL);
	return 0;
}

void soft_select_exit(void)
{
	free_percpu(soft_scratch);
}

/* Types that have all reductions: without floating point, the integers. */
u32 soft_select_dtypes(void)
{
	u32 dtypes = 0;
	unsigned int d;

	for (d = 0; d < NPULINK_DTYPES; d++) {
		if (soft_best[d][NPULINK_SUM])
			dtypes |= BIT(d);
	}
	return dtypes;
}

static const char *soft_choice_name(unsigned int dtype)
{
	const struct soft_variant *v = soft_best[dtype][NPULINK_SUM];

	return v ? v->name : "none";
}

void soft_select_describe(char *text, size_t size)
{
	snprintf(text, size, "int:%s f32:%s f16:%s", soft_choice_name(NPULINK_INT32),
		 soft_choice_name(NPULINK_FLOAT32), soft_choice_name(NPULINK_FLOAT16));
}

/**
 * soft_select() - loops for a reduction of @len bytes
 * @k: to be filled in
 * @dtype: data type
 * @redop: reduction
 * @by: divisor, see &struct soft_variant
 * @scale: power of two by which inputs are scaled
 * @len: bytes
 * @past: with non-temporal stores, where they are worth it
 *
 * Return: whether they need the floating point unit, whose user sets @k->scratch if there is a
 * @k->stream.
 */
bool soft_select(struct soft_kernel *k, unsigned int dtype, unsigned int redop, u32 by, u32 scale,
		 u64 len, bool past)
{
	const struct soft_variant *v;
	bool fpu;

	dtype = array_index_nospec(dtype, NPULINK_DTYPES);
	redop = array_index_nospec(redop, NPULINK_REDOPS);
	v = READ_ONCE(soft_best[dtype][redop]);
	if (v->fpu && len <= SOFT_LIGHT_BYTES && soft_int_scalar.reduce[dtype][redop] &&
	    !READ_ONCE(soft_forced))
		v = &soft_int_scalar;
	k->reduce = v->reduce[dtype][redop];
	k->stream = past && READ_ONCE(soft_streams[dtype][redop]) ? v->stream : NULL;
	k->shift = soft_dtype_shift(dtype);
	k->scale = scale;
	if (unlikely(scale))
		k->scaled = v->scaled[dtype];
	k->by = by;
	fpu = v->fpu;
	if (by > 1) {
		if (!v->div[dtype])
			v = soft_int_scalar.div[dtype] ? &soft_int_scalar : &soft_fp_scalar;
		k->div = v->div[dtype];
		fpu |= v->fpu;
	}
	return fpu;
}

/**
 * soft_select_force() - use one variant wherever it exists, to test it
 * @name: its name, or "auto"
 *
 * Return: 0, or -EINVAL: there is none of that name.
 */
int soft_select_force(const char *name)
{
	unsigned int v;

	if (!strcmp(name, "auto")) {
		WRITE_ONCE(soft_forced, false);
		soft_choose(NULL);
		return 0;
	}
	for (v = 0; v < ARRAY_SIZE(soft_variants); v++) {
		if (strcmp(name, soft_variants[v]->name) || !soft_variant_runs(soft_variants[v]))
			continue;
		soft_choose(name);
		WRITE_ONCE(soft_forced, true);
		return 0;
	}
	return -EINVAL;
}

/* A block was stored past the cache. */
void soft_select_streamed(void)
{
	atomic64_inc(&soft_blocks_streamed);
}

/*
 * One line for each type and reduction: what is used, also for non-temporal results, and MB/s of
 * all variants; then how many blocks of such results there were.
 */
void soft_select_show(struct seq_file *m)
{
	unsigned int v, d, r;

	for (d = 0; d < NPULINK_DTYPES; d++) {
		for (r = 0; r < NPULINK_REDOPS; r++) {
			const struct soft_variant *best = READ_ONCE(soft_best[d][r]);

			seq_printf(m, "%-8s %-4s %-6s %s", soft_dtype_names[d],
				   soft_redop_names[r], best ? best->name : "none",
				   READ_ONCE(soft_streams[d][r]) ? "stream" : "cached");
			for (v = 0; v < ARRAY_SIZE(soft_variants); v++) {
				if (soft_rates[v][d][r])
					seq_printf(m, " %s=%u", soft_variants[v]->name,
						   soft_rates[v][d][r]);
			}
			seq_putc(m, '\n');
		}
	}
	seq_printf(m, "stores %lld\n", (long long)atomic64_read(&soft_blocks_streamed));
}
