// SPDX-License-Identifier: GPL-2.0
/*
 * entry.c - libFuzzer's entry points, for the target that -DTARGET names, with
 * -DMUTATOR if it has one of its own.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TARGET(data, size);
	return 0;
}

#ifdef MUTATOR
/* libFuzzer's own changes, too: they know how branches compare. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
	if (seed % 4 == 0)
		return LLVMFuzzerMutate(data, size, max);
	return MUTATOR(data, size, max, seed);
}
#endif
