// SPDX-License-Identifier: GPL-2.0
/*
 * edu_bounce - devices that read and write memory by themselves (kernel/edu), and reach only the
 * lower 4 GiB of a machine that has more: what lies above is copied to buffers below, and back.
 *
 * npulink-test: modules=none mem=6144 devices=edu,dma_mask=0xffffffff:edu,dma_mask=0xffffffff timeout=180
 */
#define EDU_BITS	32
#define EDU_BOUNCES	true
#include "edu.h"
