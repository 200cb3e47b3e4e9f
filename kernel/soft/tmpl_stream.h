/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_stream.h - non-temporal stores, for the VARIANT at hand: what they overwrite is not read
 * from memory before, and what else is in the cache stays there. They are in no order with other
 * stores: see SOFT_STREAM_FENCE().
 */
#if VBYTES == 16
#define STREAM_STORE(p, w)	asm volatile("movntdq %1, %0" : "=m" (*(p)) : "x" (w))
#else
#define STREAM_STORE(p, w)	asm volatile("vmovntdq %1, %0" : "=m" (*(p)) : "v" (w))
#endif

static void SOFT_FN(u64, stream)(void *dst, const void *src, size_t n)
{
	LANES(u64) *to = dst;
	LANES(u64) w;
	size_t i;

	for (i = 0; i < n / sizeof(w); i++) {
		__builtin_memcpy(&w, src + i * sizeof(w), sizeof(w));
		STREAM_STORE(to + i, w);
	}
}

#undef STREAM_STORE
