/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pass.h - tasks that may go on as soon as a processor is free for them: pass.c.
 */
#ifndef NPULINK_PASS_H
#define NPULINK_PASS_H

#include <linux/list.h>

struct task_struct;

/*
 * struct npulink_pass_group - tasks that pass processors to each other
 * @size: how many tasks there are
 * @held: of them may go on and have no processor
 * @tick: by the backstop's, when one of them was woken last
 * @pause: how often they are not held when one had to wait for the backstop the next time
 * @rest: how often they are not held from now on
 */
struct npulink_pass_group {
	u32 size;
	u32 held;
	u32 tick;
	u32 pause;
	u32 rest;
};

/*
 * struct npulink_pass - a task that sleeps
 * @node: among those that may go on, but have no processor yet
 * @task: which
 * @cpu: where it ran last
 * @to: for which processor it was woken, until npulink_pass_came(); or -1
 * @tick: by the backstop's, since when it may go on
 * @group: its
 * @go: it was woken; the last that is written here before it is the sleeper's again
 */
struct npulink_pass {
	struct list_head node;
	struct task_struct *task;
	int cpu;
	int to;
	u32 tick;
	struct npulink_pass_group *group;
	bool go;
};

extern struct list_head npulink_passes;

bool npulink_pass_may_hold(struct npulink_pass_group *group);
u32 npulink_pass_processors(void);
bool npulink_pass_hold(struct npulink_pass *pass, struct npulink_pass_group *group);
bool npulink_pass_withdraw(struct npulink_pass *pass);
void npulink_pass_some(struct npulink_pass_group *group, u32 n);
void npulink_pass_came(struct npulink_pass *pass);
void npulink_pass_next(void);
void npulink_pass_init(void);
void npulink_pass_exit(void);

/* Does anybody wait for a processor? */
static inline bool npulink_pass_any(void)
{
	return !list_empty(&npulink_passes);
}

/* The current task is about to sleep, and may say so: others can have its processor. */
static inline void npulink_pass(void)
{
	if (npulink_pass_any())
		npulink_pass_next();
}

#endif /* NPULINK_PASS_H */
