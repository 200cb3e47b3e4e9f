/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_board.h - where ranks of one machine meet without a system call.
 */
#ifndef _UAPI_LINUX_NPULINK_BOARD_H
#define _UAPI_LINUX_NPULINK_BOARD_H

#include <linux/npulink.h>

/**
 * DOC: The board of a communicator
 *
 * A small collective need not be posted if all ranks meet on the board: memory that all of
 * them can read, in which each can write only what is its own. A rank puts what it brings
 * into a slot, and then the flag that says under which number; who finds the same flag
 * in that slot of every rank has all that there is, and works out its result by itself.
 *
 * Numbers are those of collectives: one that is met on the board has the next one, as if it
 * had been posted. A rank that does not want to wait any longer posts it. Then, and only
 * then, it is decided whether the operation is one of the board: if all flags are there by
 * that time it is, and POST gives EALREADY; if not, it is one that all ranks have to post,
 * however many flags are seen afterwards. So a rank
 *
 *  1. takes as the number N its own next or posted[rank], whichever is larger, and writes
 *     it to next;
 *  2. if closed, failed or off[N % NPULINK_BOARD_SLOTS] > N: posts, without a flag;
 *  3. fills the slot N % NPULINK_BOARD_SLOTS, once all ranks are done with what it held:
 *     they are if their next, or their posted, is larger than its number;
 *  4. writes the flag (release), and then, after a full barrier, looks at off as in 2:
 *     if it is N's, it posts;
 *  5. looks at the flags of all ranks (acquire), and when all are N's and equal, once more
 *     at off: if it is N's, it posts. If not, the operation is met;
 *  6. when it has read what it needs, writes N + 1 to next (release).
 *
 * Whoever does not find all flags in 5 may look again, or sleep: BOARD_WAIT. And who finds
 * them all right after 4 wakes those who sleep, if there are any: BOARD_WAIT with
 * NPULINK_BOARD_WAKE. It may work out first what all of them need, which goes into its
 * results[N % NPULINK_BOARD_SLOTS], and then N's flag there (release). Who is woken by it and finds
 * that flag (acquire) need not look at those of all ranks: they were there. Without that,
 * every rank reads the memory of all.
 *
 * What does not fit into a slot goes beside it, into wide[N % NPULINK_BOARD_WIDES] and
 * wide_results[N % NPULINK_BOARD_WIDES], for which 3 holds as well. There are few of them, and
 * slots are small, so that what is used again soon is still in the cache.
 *
 * What takes long has to be posted, as only that is seen by hang, deadline and deadlock. With
 * a flag out, the rank must not post any other collective before that one is met or posted;
 * with several, not even an equal one, which would get the number of one of them.
 */

#define NPULINK_BOARD_SLOTS	16
#define NPULINK_BOARD_BYTES	1024	/* that a slot has for what a rank brings */
#define NPULINK_BOARD_WIDES	4	/* slots that have more beside them, and .. */
#define NPULINK_BOARD_WIDE	8192	/* .. how much */
#define NPULINK_BOARD_RANKS	64	/* larger communicators have none */

/* mmap(): all of it, to read, once every rank has mapped its own; and that, to write. */
#define NPULINK_BOARD_SHIFT		30
#define NPULINK_MMAP_BOARD(id)		(0x800000000000ULL + ((__u64)(id) << NPULINK_BOARD_SHIFT))
#define NPULINK_MMAP_BOARD_OWN(id)	(NPULINK_MMAP_BOARD(id) + (1ULL << 29))

/*
 * What a slot says: under which number, and of what call. Calls that differ need codes that do, as
 * ranks whose flags are equal are taken to have called the same; 24 bits have room for all that
 * fits on a board.
 */
#define NPULINK_BOARD_FLAG(number, code)	(((number) + 1) << 24 | ((code) & 0xffffff))

/**
 * struct npulink_board_machine - first of all: equal for all communicators
 * @closed: nothing may be put on any board, as somebody wants to see each operation, or devices
 *	    are to behave in a special way
 * @reserved: 0
 *
 * Each part of the mapping begins with a page: this one, struct npulink_board_comm, and a struct
 * npulink_board_rank of each rank. Written by the kernel only.
 */
struct npulink_board_machine {
	__u32 closed;
	__u32 reserved[15];
};

/**
 * struct npulink_board_comm - of the communicator
 * @failed: it has
 * @waiting: how many ranks sleep in BOARD_WAIT
 * @reserved: 0
 * @off: by number: 1 + that of the last collective that was posted
 * @posted: by rank: the number of its next collective, as far as posted ones are concerned
 *
 * Written by the kernel only.
 */
struct npulink_board_comm {
	__u32 failed;
	__u32 waiting;
	__u32 reserved[14];
	__aligned_u64 off[NPULINK_BOARD_SLOTS];
	__aligned_u64 posted[NPULINK_BOARD_RANKS];
};

/**
 * struct npulink_board_slot - what a rank brings, or has worked out
 * @flag: NPULINK_BOARD_FLAG()
 * @data: that, as the ranks agree to read it
 * @reserved: each has cache lines of its own
 */
struct npulink_board_slot {
	__aligned_u64 flag;
	__u8 data[NPULINK_BOARD_BYTES];
	__u8 reserved[56];
};

/**
 * struct npulink_board_rank - of a rank, which alone writes it
 * @next: the number of its next collective; it has done with what is on the board under lower ones.
 *	  If that is more than one for each nanosecond of its life, POST fails with EOVERFLOW
 * @reserved: 0
 * @slots: by number: what it brings
 * @results: by number: what is for all, or parts of it for each
 * @wide: by number: what it brings, instead of what a slot would hold
 * @wide_results: by number: the same for results
 */
struct npulink_board_rank {
	__aligned_u64 next;
	__aligned_u64 reserved[7];
	struct npulink_board_slot slots[NPULINK_BOARD_SLOTS];
	struct npulink_board_slot results[NPULINK_BOARD_SLOTS];
	__u8 wide[NPULINK_BOARD_WIDES][NPULINK_BOARD_WIDE];
	__u8 wide_results[NPULINK_BOARD_WIDES][NPULINK_BOARD_WIDE];
};

/**
 * struct npulink_board_wait - ioctl(NPULINK_BOARD_WAIT)
 * @size: sizeof(struct npulink_board_wait)
 * @flags: NPULINK_BOARD_WAKE: do not sleep, wake those who do
 * @comm_id: communicator
 * @rank: one whose flag was not there, which is looked at first; 0 with WAKE
 * @number: of the collective; 0 with WAKE
 *
 * Sleeps until the flags of all ranks are there, or somebody has posted the operation, or the
 * communicator has failed: look which. Returns 1 + the rank that has woken it, with WAKE, or 0;
 * with WAKE, 0. Where there are more ranks than processors, those who are woken by WAKE may have to
 * wait until others sleep, or until none of them has done so for up to 0.4 ms; about 10 ms
 * at most.
 *
 *  - EINVAL: @rank is none
 *  - ETIME: none of it after a while (10 to 20 ms): post it
 *  - ENOTCONN: not all ranks have mapped the board
 *  - EBUSY: another thread is here for this rank
 *  - EINTR: a signal. Whatever its handler asks for, the call is not restarted: signals that come
 *    often would keep it from ETIME for ever
 */
struct npulink_board_wait {
	__u32 size;
	__u32 flags;
	__u32 comm_id;
	__u32 rank;
	__aligned_u64 number;
};
#define NPULINK_BOARD_WAIT _IO(NPULINK_TYPE, NPULINK_CMD_BOARD_WAIT)

#define NPULINK_BOARD_WAKE	(1 << 0)

#endif /* _UAPI_LINUX_NPULINK_BOARD_H */
