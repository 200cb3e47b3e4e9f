/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * fpu.h - arithmetic that is the same on all ranks, whatever their processes have set: rounded to
 * nearest even, denormals kept, no exception signalled; and of which the caller sees nothing.
 */
#ifndef COLL_FPU_H
#define COLL_FPU_H

#include <fenv.h>
#include <stdint.h>

/* What the caller had; for coll_fpu_end(). Memory is read and written between the two. */
struct coll_fpu {
#if defined(__x86_64__)
	uint32_t mxcsr;
#else
	fenv_t env;
#endif
};

#if defined(__x86_64__)
static inline struct coll_fpu coll_fpu_begin(void)
{
	/* The default, with "inexact" noted already: kernel/soft/fpu.h says why. */
	const uint32_t mine = 0x1f80 | 0x20;
	struct coll_fpu had;

	__asm__ volatile("stmxcsr %0" : "=m" (had.mxcsr) : : "memory");
	__asm__ volatile("ldmxcsr %0" : : "m" (mine) : "memory");
	return had;
}

static inline void coll_fpu_end(struct coll_fpu had)
{
	__asm__ volatile("ldmxcsr %0" : : "m" (had.mxcsr) : "memory");
}
#else
static inline struct coll_fpu coll_fpu_begin(void)
{
	struct coll_fpu had;

	fegetenv(&had.env);
	fesetenv(FE_DFL_ENV);
	return had;
}

static inline void coll_fpu_end(struct coll_fpu had)
{
	fesetenv(&had.env);
}
#endif

#endif /* COLL_FPU_H */
