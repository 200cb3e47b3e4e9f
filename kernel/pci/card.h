/* SPDX-License-Identifier: GPL-2.0 */
/*
 * card.h - the window of NPU cards, as driver and card see it: see tools/vm/card/README.md. All
 * numbers are little-endian. Who writes a field is said with it; the other side copies it
 * once and trusts nothing of it.
 */
#ifndef NPULINK_CARD_H
#define NPULINK_CARD_H

#include <linux/types.h>

#define CARD_MAGIC	0x647261632d75706eULL	/* "npu-card" */
#define CARD_VERSION	1
#define CARD_MAX	16	/* cards of a window */
#define CARD_MAX_SRC	65	/* inputs of a request */
#define CARD_SPLIT_MAX	8	/* bytes of a request that has an operand in two pieces */
#define CARD_PEER	0	/* the cards' own number, of doorbells: i rings card i, .. */
#define CARD_BELL_RESET(cards)	(cards)	/* .. and this one what resets them */

/* Page 0, written by the card before anybody else sees it. */
struct card_header {
	__le64 magic;
	__le32 version;
	__le32 cards;
	__le32 entries;		/* of each ring, a power of two */
	__le32 max_len;		/* bytes of a request */
	__le32 dtypes;		/* masks, as in npulink_step.h */
	__le32 redops;
	__le64 area_off;	/* card i: at area_off + i * area_len .. */
	__le64 area_len;
	__le64 sq_off;		/* .. and there, its rings */
	__le64 cq_off;
	__le64 mem_off;		/* memory of the cards */
	__le64 mem_len;
	__le64 reserved[5];
	/* Written by the driver before it starts a card. */
	__le64 window_bus;	/* bus address of the window */
	__le32 driver_peer;	/* who is to be interrupted: vector i by card i */
	__le32 reserved2;
};

/* A card's registers, each group in a line of its own. */
struct card_regs {
	/* driver */
	__le32 sq_tail;		/* requests that were put on the ring, ever since the start */
	__le32 cq_head;		/* completions that were taken off */
	__le32 start;		/* 1: run */
	__le32 reset;		/* another number than before: be quiet, and begin anew */
	__le32 pad0[12];
	/* card */
	__le32 cq_tail;		/* completions that were put on the ring */
	__le32 started;		/* 1: it runs */
	__le32 error;		/* CARD_ERR_*: it has stopped */
	__le32 quiet;		/* the last @reset that was obeyed: it writes nowhere any more */
	__le32 pad1[12];
	/* card: counters since it was made */
	__le64 doorbells;
	__le64 interrupts;
	__le64 requests;
	__le64 bytes;
};

#define CARD_ERR_INDEX	1	/* a ring cannot hold so many */
#define CARD_ERR_DIED	2	/* its firmware is gone */

#define CARD_OP_COPY	0
#define CARD_OP_REDUCE	1

#define CARD_F_INTERRUPT	1	/* when it is done */
#define CARD_F_REST		2	/* what is left to divide by is div / 2^scale */

#define CARD_OPERAND_SCALED	1

/* @first bytes at @addr; if that is less than the length, the others are at @next. */
struct card_operand {
	__le64 addr;		/* bus addresses */
	__le64 next;
	__le32 first;
	__le32 flags;
};

/* dst = src[0] (+) src[1] (+) .., rounded after each, then divided. */
struct card_desc {
	__le32 tag;		/* its number since the start */
	__u8 op;
	__u8 flags;
	__u8 dtype;
	__u8 redop;
	__le32 len;
	__le32 div;
	__u8 scale;
	__u8 reserved;
	__le16 nsrc;
	__le32 reserved2[3];
	struct card_operand dst;
	struct card_operand src[CARD_MAX_SRC];
	__u8 pad[432];
};

/* In the order of the requests. */
struct card_done {
	__le32 tag;
	__le32 status;
};

#define CARD_OK		0
#define CARD_BAD_DESC	1	/* makes no sense */
#define CARD_BAD_ADDR	2	/* nothing is there */

#endif /* NPULINK_CARD_H */
