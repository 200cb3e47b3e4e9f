/* SPDX-License-Identifier: GPL-2.0 */
/*
 * host.h - the machine that programs run on: made ready for them, put right after each,
 * and left as it was found. See host.c.
 */
#ifndef FUZZ_HOST_H
#define FUZZ_HOST_H

#include "prog.h"

/* Fills in @env but for thread_begin. @tree: with tools/ and build/. */
void host_open(struct exec_env *env, uint32_t ndev, const char *tree);
void host_close(const char *tree);

/* Around each program; what is wrong after it, or NULL. */
void host_before(const struct prog *p);
const char *host_after(const struct prog *p);

/* In the process that runs it: let go of what is not its own. */
void host_forget(void);

#endif /* FUZZ_HOST_H */
