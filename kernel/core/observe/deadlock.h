/* SPDX-License-Identifier: GPL-2.0 */
/*
 * deadlock.h - what deadlock.c, deadlock_read.c and deadlock_stuck.c share: one search.
 */
#ifndef NPULINK_DEADLOCK_H
#define NPULINK_DEADLOCK_H

#include "comm/comm.h"
#include "run/op.h"

/* A thread that waits without limit. */
struct dl_wait {
	struct mm_struct *mm;		/* only compared */
	struct npulink_file *file;	/* referenced */
	struct npulink_op *op;		/* referenced */
	u64 id;
	u32 threads;			/* that have @mm */
};

/* A process that has such threads: waits[first .. first + nwaits). */
struct dl_proc {
	struct mm_struct *mm;
	u32 first;
	u32 nwaits;
	u32 threads;
	u32 part;		/* the first process of its part, see dl_split() */
	u32 next;		/* the next one of that part, or DL_NONE */
	u32 comms;		/* of the first one: the first communicator of that part */
	bool in;		/* supposed never to post again */
	bool suspect;		/* would be in a circle if all its threads waited */
};

#define DL_NONE	(~0U)

/* A communicator that somebody waits in, who has a reference. */
struct dl_comm {
	struct npulink_comm *comm;
	u32 part;		/* a process of its part */
	u32 next;		/* the next one of that part, or DL_NONE */
};

struct dl_op {
	struct npulink_op *op;	/* referenced */
	u32 nstuck;
	unsigned long stuck[];	/* units */
};

struct dl_mark {
	struct dl_op *o;
	u32 unit;
};

struct dl {
	struct dl_wait *waits;
	u32 nwaits;
	u32 max_waits;
	bool young;			/* others began to wait too lately to be looked at */
	struct dl_proc *procs;
	u32 nprocs;
	struct dl_comm *comms;
	u32 ncomms;
	u32 now;			/* the part that is being searched: its first process */
	struct xarray ops;
	struct dl_mark *marks;		/* a stack: units to be called stuck */
	u32 nmarks;
	u32 max_marks;
	u64 looks;			/* so much has been looked at in this part */
	struct npulink_op *rank_ops[NPULINK_MAX_INFLIGHT];
};

/* ---- deadlock_read.c */

bool dl_room(void **array, u32 n, u32 *max, u32 more, size_t size);
void dl_watch(struct npulink_file *file);
int dl_read(struct dl *dl, unsigned long before);
int dl_read_procs(struct dl *dl);
struct dl_proc *dl_proc(const struct dl *dl, const struct mm_struct *mm);
bool dl_still_wait(struct dl *dl);
void dl_free(struct dl *dl);

/* ---- deadlock_stuck.c */

int dl_solve(struct dl *dl);
void dl_forget(struct dl *dl);
bool dl_missing_rank(struct dl *dl, struct npulink_op *op, u32 *peer);

void npulink_deadlock_waits(struct npulink_file *file);
void npulink_deadlock_forget(struct npulink_file *file);
void npulink_deadlock_exit(void);

#endif /* NPULINK_DEADLOCK_H */
