/* SPDX-License-Identifier: GPL-2.0 */
/*
 * state.h - what the kernel tells of communicators, ranks, operations and memory; for
 * npulink comm, op, buf, stat, hang, monitor.
 */
#ifndef TOOL_SEE_H
#define TOOL_SEE_H

#include "cli/npulink.h"

#define NONE		0xffffffffU
#define NO_NUMBER	(~0ULL)
#define MAX_WAITS	8

/* Processes that wait for each other: how many, and the first waits. */
struct state_circle {
	uint32_t n, known;
	struct npulink_circle_wait waits[NPULINK_CIRCLE_MAX];
};

/* A machine, and the port of rank's that leads there, or "". */
struct state_place {
	bool there;
	uint8_t ip[16];
	char port[32];
};

struct state_cause {
	uint32_t cause, error, rank, peer, step, code;
	uint64_t number;
	struct state_place place;
	struct state_circle circle;
	unsigned int ncalls;
	struct npulink_call calls[2];
};

struct state_comm {
	uint32_t id, nranks, joined, left, parent;
	uint32_t uid;		/* NONE: another user's */
	bool any_uid, failed;
	struct state_cause cause;
};

struct state_rank {
	uint32_t comm, rank, state, pid, tid, uid, file, dev, ops;
	uint64_t next, oldest, done, failed, bytes, busy, met;
	bool known;		/* pid, uid, file are; tid, who has posted last, 0: nobody */
	bool gone;		/* no member any more: nothing but its state is known */
	uint32_t before, before_comm;	/* AWAITED: what it is in one before */
};

struct state_wait {
	uint32_t kind, step, peer, dev, peer_dev;
	uint64_t since, done, len;
	bool met, remote;
};

/* A rank on another machine. */
struct state_status {
	uint64_t age, next, number;
	bool p2p;
	uint32_t called;
	char task;		/* state of its process, as ps has it */
	bool waits;
	struct state_wait wait;
};

/* What a rank exchanges with a peer; from @state on only of peers on another machine. */
struct state_conn {
	uint32_t comm, rank, peer, dev, peer_dev;
	uint64_t steps, bytes;
	bool remote;
	uint8_t ip[16];
	uint32_t state;		/* 0: not connected yet */
	char kind[16], via[32];
	uint32_t switches;	/* times that it went on over another port */
	uint64_t sent_steps, sent_bytes;
	bool answered, asked;
	struct state_status status;	/* what the peer's kernel says of it */
	uint64_t asked_age, asked_number, asked_since;	/* what it wants to know of ours */
	bool asked_p2p;
};

struct state_op {
	uint32_t comm, rank, state, steps, units, units_left;
	uint64_t number, seq, bytes, bytes_done, age, left, slow;
	bool p2p;
	char algorithm[NPULINK_ALGORITHM_LEN + 1];
	struct npulink_call call;
	unsigned int nwaits;
	struct state_wait waits[MAX_WAITS];
};

struct state_file {
	uint32_t id, dev, pid, uid, ops, bufs;
	uint64_t registered, allocated, imported, device, arena, ring, pinned;
};

struct state_buf {
	uint32_t file, id, kind, users, devices;
	uint64_t len, pinned;
	bool readonly, unmapped;
};

#define STATE_CAUSES	(NPULINK_CAUSE_REMOVED + 1)

struct state_stat {
	uint32_t devs, files, comms, ranks, ops;
	uint64_t pinned, done, failed, slow, events, events_lost;
	uint64_t failures[STATE_CAUSES];
};

struct state_event {
	uint32_t type, dev, peer_dev, comm, rank, peer, step, cause, code;
	uint64_t serial, time, lost, number, age, limit;
	struct state_place place;
	struct state_circle circle;
};

/* Arrays to be freed, in the kernel's order; of one communicator (file) or all. -errno. */
int state_comms(struct state_comm **comms, size_t *n);
int state_ranks(uint32_t comm, struct state_rank **ranks, size_t *n);
/* Those of one communicator, among all that were seen. */
const struct state_rank *state_ranks_of(uint32_t comm, const struct state_rank *ranks, size_t n,
				    size_t *nof);
int state_conns(uint32_t comm, struct state_conn **conns, size_t *n);
int state_ops(uint32_t comm, struct state_op **ops, size_t *n);
int state_files(struct state_file **files, size_t *n);
int state_bufs(uint32_t file, struct state_buf **bufs, size_t *n);
int state_stat(struct state_stat *stat);
/* How many communicators the reader may not see. 0 also if that cannot be known. */
uint32_t state_hidden_comms(void);
#define EXIT_HIDDEN	4	/* there was nothing to be seen, but there is something */
/* Of so many before and after @seen were read. */
uint32_t count_hidden(uint32_t before, uint32_t after, size_t seen);
/* Calls @fn for each event until it returns false, or an error. */
int state_events(bool (*fn)(const struct state_event *event, void *arg), void *arg);
/* Says what -errno of these means; returns EXIT_FAILURE. */
int state_fail(int rc, const char *what, uint32_t id);

/* state_text.c: words for people */
const char *cause_name(uint32_t cause);
const char *rank_state_name(uint32_t state);
const char *wait_name(uint32_t kind);
const char *conn_state_name(uint32_t state);
const char *human_ns(uint64_t ns, char buf[24]);
/* "allreduce of 1024 float32 (sum)" */
const char *call_text(const struct npulink_call *call, bool p2p, char *buf, size_t size);
/* "rank 3 died (signal 9)" */
const char *cause_text(const struct state_cause *cause, char *buf, size_t size);
struct json_object *call_json(const struct npulink_call *call, bool p2p);
#define CAUSE_TEXT	900		/* long enough for any */

/* "comm 3: rank 0 waits for rank 1 in operation 5; ..." */
const char *circle_text(const struct state_circle *circle, char *buf, size_t size);
struct json_object *circle_json(const struct state_circle *circle);
/* As members of @obj. */
void place_json(struct json_object *obj, const struct state_place *place);
struct json_object *cause_json(const struct state_cause *cause);
struct json_object *wait_json(const struct state_wait *wait);

/* proc.c: of a process, as /proc tells it */
struct proc {
	char name[32];
	char state;		/* R, S, D, T, t, Z, X; F: frozen; ?: not known */
	char wchan[64];
	char group[512];	/* the cgroup that is frozen, with F */
	uint32_t tracer;
	uint32_t tid;		/* the thread that this is about: it calls, or has not ended */
};

void proc_read(uint32_t pid, struct proc *proc);
/* The same of the thread that calls, by the name of its process. */
void proc_read_rank(const struct state_rank *r, struct proc *proc);
/* Has it ended, with all threads? */
bool proc_dead(uint32_t pid);
void clean_text(char *text);
const char *proc_state_text(char state);
/* Its name, or the number. */
const char *user_name(uint32_t uid, char buf[16]);
/* Lines of its kernel stack into @buf, or "". */
void proc_stack(uint32_t pid, char *buf, size_t size);

/* Its cgroup, as the one hierarchy has it, or "". */
void proc_group(uint32_t pid, char *group, size_t size);

/* starve.c: what a look at a process, or a thread, and its cgroups tells */
struct starve_look {
	uint64_t time, ran, delayed;	/* ns */
	unsigned int ready;		/* threads that want a processor */
	char cpu_group[256], memory_group[256];	/* that have a limit */
	uint64_t throttled, throttled_us, high;
};

/* What came of two looks. */
struct starve {
	uint32_t pid, tid;		/* 0: all threads */
	char group[256];
	uint64_t ns, ran, delayed;	/* between the looks */
	int policy;
	unsigned int stolen;		/* percent of all processors */
	const char *why;		/* memory-high, throttled, starved, stolen; NULL: none */
	char limit[256];		/* the cgroup that does */
};

/* Of those with pid and tid set; takes a moment, for all of them together. */
void starve_find(struct starve *s, size_t n);
/* @why for people */
const char *starve_why(const char *why);
const char *starve_text(const struct starve *s, char *buf, size_t size);
/* As a member of @obj, if it was looked at. */
void starve_json(struct json_object *obj, const struct starve *s);

#endif /* TOOL_SEE_H */
