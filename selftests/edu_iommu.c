// SPDX-License-Identifier: GPL-2.0
/*
 * edu_iommu - devices that read and write memory by themselves (kernel/edu), below an IOMMU that
 * translates: their addresses have 28 bits, whatever the machine's memory is.
 *
 * npulink-test: modules=none append=intel_iommu=on devices=intel-iommu:edu:edu timeout=180
 */
#define EDU_BITS	28
#define EDU_BOUNCES	false
#include "edu.h"
