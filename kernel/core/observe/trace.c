// SPDX-License-Identifier: GPL-2.0
/*
 * trace.c - the tracepoints of trace.h.
 */
#define CREATE_TRACE_POINTS
#include "trace.h"
