/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.h - memory that a communicator's ranks share, see linux/npulink_board.h: board.c.
 */
#ifndef NPULINK_BOARD_H
#define NPULINK_BOARD_H

#include <linux/npulink_board.h>
#include <linux/types.h>

struct file;
struct kernel_param_ops;
struct npulink_comm;
struct npulink_file;
struct vm_area_struct;

/*
 * struct npulink_board - of a communicator; made by the first rank that maps a part of it
 * @comm: what the kernel says about the communicator
 * @shared: what ranks write
 */
struct npulink_board {
	struct npulink_board_comm *comm;
	struct file *shared;
};

extern const struct kernel_param_ops npulink_board_param_ops;
extern bool npulink_graphs;

void npulink_board_failed(struct npulink_comm *comm);
void npulink_board_drop(struct npulink_comm *comm);
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma);
void npulink_board_special(bool special);
int npulink_board_init(void);
void npulink_board_exit(void);

/* While somebody traces: the tracepoints call these. */
int npulink_trace_begin(void);
void npulink_trace_end(void);

#endif /* NPULINK_BOARD_H */
