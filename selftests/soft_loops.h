/* SPDX-License-Identifier: GPL-2.0 */
/*
 * soft_loops.h - the reduction loops of npulink_soft.ko in a program: the module's own
 * sources, each variant for its own kind of processor, as kernel/soft/Kbuild has them.
 */
#ifndef SELFTESTS_SOFT_LOOPS_H
#define SELFTESTS_SOFT_LOOPS_H

#include "../kernel/soft/int_scalar.c"
#include "../kernel/soft/int_swar.c"
#include "../kernel/soft/fp_scalar.c"
#ifdef __x86_64__
#include "../kernel/soft/fp_vec_sse2.c"
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#include "../kernel/soft/fp_vec_avx2.c"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "../kernel/soft/fp_vec_avx512.c"
#pragma GCC pop_options
#endif

#endif /* SELFTESTS_SOFT_LOOPS_H */
