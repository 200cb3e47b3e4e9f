// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * names.c - collectives, data types and reductions as people write them.
 */
#include <string.h>
#include "base/base.h"
#include "plan/planner.h"

static const char * const collectives[NPULINK_COLLS] = {
	[NPULINK_COLL_ALLREDUCE] = "allreduce",
	[NPULINK_COLL_REDUCE] = "reduce",
	[NPULINK_COLL_BROADCAST] = "broadcast",
	[NPULINK_COLL_SCATTER] = "scatter",
	[NPULINK_COLL_SCATTERV] = "scatterv",
	[NPULINK_COLL_GATHER] = "gather",
	[NPULINK_COLL_GATHERV] = "gatherv",
	[NPULINK_COLL_ALLGATHER] = "allgather",
	[NPULINK_COLL_ALLGATHERV] = "allgatherv",
	[NPULINK_COLL_REDUCE_SCATTER] = "reduce_scatter",
	[NPULINK_COLL_REDUCE_SCATTERV] = "reduce_scatterv",
	[NPULINK_COLL_ALLTOALL] = "alltoall",
	[NPULINK_COLL_ALLTOALLV] = "alltoallv",
	[NPULINK_COLL_BARRIER] = "barrier",
	[NPULINK_COLL_P2P] = "p2p",
};

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
	return name_of(collectives, ARRAY_SIZE(collectives), collective);
}

int coll_collective_parse(const char *text)
{
	return parse(collectives, ARRAY_SIZE(collectives), text);
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
