/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cov.h - which places in the modules' code programs reach, by the kernel's KCOV: see cov.c.
 */
#ifndef FUZZ_COV_H
#define FUZZ_COV_H

#include <stdbool.h>
#include <stdint.h>

/* False if this kernel has no KCOV. @tree: where the modules were built. */
bool cov_open(const char *tree);

/* In the process that runs a program. */
void cov_begin(uint32_t thread);

/*
 * What the last program reached, by number; how many of these nobody had been at before.
 * The list is good until the next call.
 */
uint32_t cov_collect(uint32_t **places, uint32_t *n);

/* So many are known, and so many of them reached. */
uint32_t cov_places(void);
uint32_t cov_reached(void);

/* As comments of TAP, for each module. */
void cov_report(void);

#endif /* FUZZ_COV_H */
