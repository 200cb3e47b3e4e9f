// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * names.c - collectives, data types and reductions as people write them.
 */
#include <string.h>
#include "base/base.h"
#include "plan/planner.h"

static const char * const dtypes[NPULINK_DTYPES] = {
	[NPULINK_INT8] = "int8", [NPULINK_UINT8] = "uint8",
	[NPULINK_INT16] = "int16", [NPULINK_UINT16] = "uint16",
	[NPULINK_INT32] = "int32", [NPULINK_UINT32] = "uint32",
	[NPULINK_INT64] = "int64", [NPULINK_UINT64] = "uint64",
	[NPULINK_FLOAT16] = "float16", [NPULINK_BFLOAT16] = "bfloat16",
	[NPULINK_FLOAT32] = "float32", [NPULINK_FLOAT64] = "float64",
};

static const char * const redops[NPULINK_CALL_AVG + 1] = {
	[NPULINK_SUM] = "sum", [NPULINK_PROD] = "prod",
	[NPULINK_MIN] = "min", [NPULINK_MAX] = "max",
	[NPULINK_CALL_AVG] = "avg",
};

static const char *name_of(const char * const *names, uint32_t n, uint32_t value)
{
	return value < n ? names[value] : "?";
}

static int parse(const char * const *names, uint32_t n, const char *text)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(names[i], text))
			return i;
	return -1;
}

const char *coll_collective_name(uint32_t collective)
{
	return coll_kind(collective)->name;
}

int coll_collective_parse(const char *text)
{
	uint32_t c;

	for (c = 0; c < NPULINK_COLLS; c++)
		if (!strcmp(coll_kind(c)->name, text))
			return c;
	return -1;
}

const char *coll_dtype_name(uint32_t dtype)
{
	return name_of(dtypes, ARRAY_SIZE(dtypes), dtype);
}

int coll_dtype_parse(const char *text)
{
	return parse(dtypes, ARRAY_SIZE(dtypes), text);
}

const char *coll_redop_name(uint32_t redop)
{
	return name_of(redops, ARRAY_SIZE(redops), redop);
}

int coll_redop_parse(const char *text)
{
	return parse(redops, ARRAY_SIZE(redops), text);
}
