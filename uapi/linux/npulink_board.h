/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_board.h - memory that the ranks of a communicator on one node share.
 */
#ifndef _UAPI_LINUX_NPULINK_BOARD_H
#define _UAPI_LINUX_NPULINK_BOARD_H

#include <linux/npulink.h>

/**
 * DOC: The board of a communicator
 *
 * Ranks of one node can do a small collective by themselves, in memory that all of them read and
 * write. The kernel gives that memory and knows nothing of what is in it: how ranks find out that
 * all have come, and what they do until then, is a matter of the library that they use.
 *
 * Each collective has a number. One that ranks have done by themselves takes a number as one that
 * was posted: whoever posts the next one says so with NPULINK_POST_NUMBER. All ranks have to agree
 * which numbers were posted. If they do not, those who have posted one wait for the others, which
 * hang, deadline and deadlock see as ever.
 *
 * Any rank may map the memory at any time. At first it is 0. What one rank spoils it spoils for the
 * ranks of this communicator, and for nobody else. Shared futexes work on it. A child
 * of fork() does not have it. It stays as long as the communicator, or a mapping of it.
 *
 * mmap() fails with
 *
 *  - EINVAL: another length, another offset, or a private mapping
 *  - EACCES: what is only read would be mapped to be written
 *  - EOPNOTSUPP: the communicator has more than NPULINK_BOARD_RANKS ranks, or ranks on other nodes,
 *    or was made with NPULINK_COMM_ANY_UID or NPULINK_COMM_CHECKSUM
 *
 * Nobody may use the memory while the kernel says that boards are closed, or that the communicator
 * has failed.
 */

#define NPULINK_BOARD_RANKS	64		/* larger communicators have none */
#define NPULINK_BOARD_BYTES	(128UL << 10)	/* of shared memory, for each rank */

#define NPULINK_BOARD_SHIFT	30
/* mmap(): two pages to read, struct npulink_board_machine and struct npulink_board_comm .. */
#define NPULINK_MMAP_BOARD(id)		(0x800000000000ULL + ((__u64)(id) << NPULINK_BOARD_SHIFT))
/* .. and the shared memory, NPULINK_BOARD_BYTES for each rank of the communicator. */
#define NPULINK_MMAP_BOARD_SHARED(id)	(NPULINK_MMAP_BOARD(id) + (1ULL << 29))

/**
 * struct npulink_board_machine - the first page: equal for all communicators
 * @closed: all collectives are to be posted, as somebody wants to see each operation, or devices
 *	    are to behave in a special way
 * @reserved: 0
 */
struct npulink_board_machine {
	__u32 closed;
	__u32 reserved[15];
};

/**
 * struct npulink_board_comm - the second page
 * @failed: the communicator has
 * @reserved: 0
 */
struct npulink_board_comm {
	__u32 failed;
	__u32 reserved[15];
};

#endif /* _UAPI_LINUX_NPULINK_BOARD_H */
