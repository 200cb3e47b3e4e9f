/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fpu.h - the floating point and vector unit, where the kernel lends it out.
 * Elsewhere devices reduce integers only. Task context; between begin and end
 * the task is not preempted, so what lies between must be short.
 */
#ifndef NPULINK_SOFT_FPU_H
#define NPULINK_SOFT_FPU_H

#include <linux/types.h>

#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <asm/fpu/types.h>

static inline bool soft_fpu_exists(void)
{
	return true;
}

static inline bool soft_fpu_usable(void)
{
	return irq_fpu_usable();
}

static inline bool soft_fpu_has_avx2(void)
{
	return boot_cpu_has(X86_FEATURE_AVX2) && boot_cpu_has(X86_FEATURE_F16C);
}

static inline bool soft_fpu_has_avx512(void)
{
	return boot_cpu_has(X86_FEATURE_AVX512F) && boot_cpu_has(X86_FEATURE_AVX512BW) &&
	       boot_cpu_has(X86_FEATURE_AVX512DQ) && boot_cpu_has(X86_FEATURE_AVX512VL);
}

static inline void soft_fpu_begin(void)
{
	/*
	 * The default, with "inexact" noted already. To the hardware that is all the
	 * same, but an emulator which has that flag to set cannot let the host's
	 * unit do the work until it is set: with sums that are exact, never.
	 */
	const u32 mxcsr = MXCSR_DEFAULT | 0x20;

	kernel_fpu_begin();
	asm volatile("ldmxcsr %0" : : "m" (mxcsr));
}

static inline void soft_fpu_end(void)
{
	kernel_fpu_end();
}

#elif defined(CONFIG_ARCH_HAS_KERNEL_FPU_SUPPORT)
#include <linux/fpu.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>

static inline bool soft_fpu_exists(void)
{
	return kernel_fpu_available();
}

static inline bool soft_fpu_usable(void)
{
	/* arm64's may_use_simd(), which is not everywhere. */
	return in_task() && !irqs_disabled();
}

static inline void soft_fpu_begin(void)
{
	kernel_fpu_begin();
}

static inline void soft_fpu_end(void)
{
	kernel_fpu_end();
}

#else
static inline bool soft_fpu_exists(void)
{
	return false;
}

static inline bool soft_fpu_usable(void)
{
	return false;
}

static inline void soft_fpu_begin(void) { }
static inline void soft_fpu_end(void) { }
#endif

#endif /* NPULINK_SOFT_FPU_H */
