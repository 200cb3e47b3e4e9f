// SPDX-License-Identifier: GPL-2.0
/*
 * reduce.c - reductions by npulink_soft's own loops, so that their results agree bit for bit.
 */
#include "machine.h"
#include "soft_loops.h"

uint32_t card_shift(unsigned int dtype)
{
	return soft_dtype_shift(dtype);
}

uint32_t card_dtypes(void)
{
	return (1U << NPULINK_DTYPES) - 1;
}

uint32_t card_redops(void)
{
	return (1U << NPULINK_REDOPS) - 1;
}

/* As soft_divisor() of kernel/soft/engine.c. */
static u32 divisor(const struct card_desc *desc, unsigned int nsrc)
{
	u32 div = desc->div;

	if (!desc->scale)
		return div;
	if (nsrc == 1)
		return 1U << desc->scale;
	if (!(desc->flags & CARD_F_REST))
		return div;
	return div == 1U << desc->scale ? 0 : SOFT_DIV_BY(div, desc->scale);
}

void card_reduce(const struct card_desc *desc, void *dst, void *const *src)
{
	const struct soft_variant *v =
		desc->dtype >= NPULINK_FLOAT16 ? &soft_fp_scalar : &soft_int_scalar;
	unsigned int nsrc = desc->nsrc, i;
	struct npulink_operand scaled[CARD_MAX_SRC] = {};
	struct soft_kernel k = {
		.reduce = v->reduce[desc->dtype][desc->redop] ?:
			  soft_int_scalar.reduce[desc->dtype][desc->redop],
		.scaled = v->scaled[desc->dtype],
		.div = v->div[desc->dtype],
		.by = divisor(desc, nsrc),
		.scale = v->scaled[desc->dtype] ? desc->scale : 0,
		.shift = soft_dtype_shift(desc->dtype),
	};
	/* A block of the result stays in the cache while all inputs are added. */
	u32 block = 4096, at, n;

	for (i = 0; i < nsrc; i++)
		scaled[i].scaled = desc->src[i].flags & CARD_OPERAND_SCALED;
	for (at = 0; at < desc->len; at += n) {
		const void *a = src[0] + at;

		n = desc->len - at < block ? desc->len - at : block;
		if (nsrc == 1 && dst + at != a)
			memcpy(dst + at, a, n);
		for (i = 1; i < nsrc; i++) {
			soft_add(&k, scaled, i, dst + at, a, src[i] + at, n >> k.shift);
			a = dst + at;
		}
		if (k.by > 1)
			k.div(dst + at, n >> k.shift, k.by);
	}
}
