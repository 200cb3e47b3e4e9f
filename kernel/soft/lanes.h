/* SPDX-License-Identifier: GPL-2.0 */
/*
 * lanes.h - lets one source be scalar or vector code. Included again by every
 * file that instantiates loops, after defining
 *
 *	VARIANT		prefix of all function names
 *	VBYTES		bytes of a vector register; 0: scalars
 *
 * LANES(type) is then a vector of that type, or the type itself, SEL() picks lane by
 * lane, and IS_NAN() looks at f or its bits, whichever is cheaper (for scalars the
 * bits, above all where floating point is emulated). GCC's and clang's vector
 * arithmetic does the rest, but for minima and maxima: what C has for them becomes
 * three instructions. LANES_INSN() is one that takes registers of any size.
 */
#undef LANES
#undef SEL
#undef IS_NAN
#undef LANES_INSN

#if VBYTES
#define LANES(lane_t)								\
	lane_t __attribute__((__vector_size__(VBYTES)))
#define SEL(type, cond, x, y)							\
({										\
	LANES(type) m_ = (LANES(type))(cond);					\
										\
	((x) & m_) | ((y) & ~m_);						\
})
#define IS_NAN(f, bits, inf)	((f) != (f))
#define LANES_INSN(insn, x, y)							\
({										\
	typeof(x) z_;								\
										\
	asm(insn " %2, %1, %0" : "=v" (z_) : "v" (x), "vm" (y));		\
	z_;									\
})
#else
#define LANES(lane_t)								\
	lane_t
#define SEL(type, cond, x, y)	((type)((cond) ? (x) : (y)))
#define IS_NAN(f, bits, inf)	((bits) << 1 > (inf) << 1)
#endif

#ifndef SOFT_NAME
#define SOFT_PASTE(v, t, x)	v ## _ ## t ## _ ## x
#define SOFT_PASTE2(v, t, x)	SOFT_PASTE(v, t, x)
#define SOFT_NAME(x)		SOFT_PASTE2(VARIANT, TYPE, x)
/* The function of another instantiation, for tables. */
#define SOFT_FN(type, x)	SOFT_PASTE2(VARIANT, type, x)

/* How instructions for integers of so many bits end. */
#define SOFT_SUFFIX_8	"b"
#define SOFT_SUFFIX_16	"w"
#define SOFT_SUFFIX_32	"d"
#define SOFT_SUFFIX_64	"q"
#define SOFT_SUFFIX(bits)	SOFT_PASTE2(SOFT, SUFFIX, bits)

/* Operations that a template's apply() tells apart, always as constants. */
enum soft_op {
	SOFT_SUM, SOFT_PROD, SOFT_MIN, SOFT_MAX, SOFT_UMIN, SOFT_UMAX, SOFT_DIV, SOFT_SCALED
};
#endif
