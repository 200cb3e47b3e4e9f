// SPDX-License-Identifier: GPL-2.0
/*
 * aliases.c - names of collectives, data types and reductions on the command line:
 * libcoll's, and those that users of nccl-tests and hccl_test have in their fingers.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "cli/aliases.h"
#include "cli/npulink.h"
#include "lib/plan/plan.h"

static const struct {
	const char *alias, *name;
} dtype_aliases[] = {
	{ "int", "int32" },
	{ "uint", "uint32" },
	{ "char", "int8" },
	{ "half", "float16" },
	{ "float", "float32" },
	{ "double", "float64" },
	{ "fp16", "float16" },
	{ "fp32", "float32" },
	{ "fp64", "float64" },
	{ "bf16", "bfloat16" },
	{ "bfp16", "bfloat16" },
};

bool parse_dtype(const char *text, uint32_t *dtype)
{
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(dtype_aliases); i++)
		if (!strcasecmp(text, dtype_aliases[i].alias))
			text = dtype_aliases[i].name;
	rc = coll_dtype_parse(text);
	*dtype = rc;
	return rc >= 0;
}

bool parse_redop(const char *text, uint32_t *redop)
{
	int rc = coll_redop_parse(text);

	*redop = rc;
	return rc >= 0;
}

/* all-reduce, all_reduce and all_reduce_perf are allreduce. */
bool parse_collective(const char *text, uint32_t *collective)
{
	static const char *const two[][2] = {
		{ "all_reduce", "allreduce" },
		{ "all_gather", "allgather" },
		{ "all_gatherv", "allgatherv" },
		{ "all_to_all", "alltoall" },
		{ "all_to_allv", "alltoallv" },
		{ "reducescatter", "reduce_scatter" },
		{ "bcast", "broadcast" },
	};
	char word[32];
	size_t len;
	int rc;

	snprintf(word, sizeof(word), "%s", text);
	len = strlen(word);
	if (len > 5 && !strcmp(word + len - 5, "_perf"))
		word[len - 5] = 0;
	for (char *c = word; *c; c++)
		if (*c == '-')
			*c = '_';
	for (size_t i = 0; i < ARRAY_SIZE(two); i++)
		if (!strcmp(word, two[i][0]))
			strcpy(word, two[i][1]);
	rc = coll_collective_parse(word);
	*collective = rc;
	return rc >= 0;
}

/* As nccl-tests prints it, for programs that read its tables. */
const char *dtype_label(uint32_t dtype)
{
	switch (dtype) {
	case NPULINK_FLOAT16:	return "half";
	case NPULINK_FLOAT32:	return "float";
	case NPULINK_FLOAT64:	return "double";
	default:		return coll_dtype_name(dtype);
	}
}
