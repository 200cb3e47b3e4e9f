/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fuzz.h - the native fuzz targets: each takes any bytes, and aborts if what the code
 * under test promises does not hold. libFuzzer runs them (entry.c), and so does
 * lib/fuzz_regress.c on what is in corpus/.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void fuzz_verify(const uint8_t *data, size_t size);
void fuzz_plan_text(const uint8_t *data, size_t size);
void fuzz_plan_file(const uint8_t *data, size_t size);
void fuzz_override(const uint8_t *data, size_t size);
void fuzz_calibration(const uint8_t *data, size_t size);
void fuzz_network(const uint8_t *data, size_t size);

/* Changes records of 64 bytes as such; for the targets that take plans as bytes. */
size_t fuzz_mutate_verify(uint8_t *data, size_t size, size_t max, unsigned int seed);
size_t fuzz_mutate_plan_file(uint8_t *data, size_t size, size_t max, unsigned int seed);

#define FUZZ_ASSERT(cond, fmt, ...) do { \
	if (!(cond)) { \
		fprintf(stderr, "%s:%d: %s: " fmt "\n", __FILE__, __LINE__, #cond, \
			##__VA_ARGS__); \
		abort(); \
	} \
} while (0)

#endif /* FUZZ_FUZZ_H */
