/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tmpl_stream.h - non-temporal stores, for the VARIANT at hand: what they overwrite is not read
 * from memory before, and what else is in the cache stays there. They are in no order with other
 * stores: see soft_stream_fence().
 */
#define WORD	LANES(u64)

#if VBYTES == 16
#define STREAM	"movntdq"
#else
#define STREAM	"vmovntdq"
#endif

static void SOFT_FN(u64, stream)(void *dst, const void *src, size_t n)
{
	size_t i;
	WORD w;

	for (i = 0; i < n; i += sizeof(w)) {
		__builtin_memcpy(&w, src + i, sizeof(w));
		asm volatile(STREAM " %1, (%0)" : : "r" (dst + i), "v" (w) : "memory");
	}
}

#undef STREAM
#undef WORD
