/* SPDX-License-Identifier: GPL-2.0 */
/*
 * aliases.h - names on the command line.
 */
#ifndef TOOL_WORDS_H
#define TOOL_WORDS_H

#include <stdbool.h>
#include <stdint.h>

bool parse_dtype(const char *text, uint32_t *dtype);
bool parse_redop(const char *text, uint32_t *redop);
bool parse_collective(const char *text, uint32_t *collective);
const char *dtype_label(uint32_t dtype);

#endif /* TOOL_WORDS_H */
