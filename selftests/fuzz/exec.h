/* SPDX-License-Identifier: GPL-2.0 */
/*
 * exec.h - what the calls of a program share while it runs: see exec.c.
 */
#ifndef FUZZ_EXEC_H
#define FUZZ_EXEC_H

#include <pthread.h>
#include <sys/types.h>
#include "prog.h"

#define FILES	6
#define THINGS	16
#define AREAS	4	/* ours, for OP_MEMORY */
#define MAPPED	2	/* of the device, to be registered in turn */
#define MAPS	12	/* of the device, to be written */
#define AREA	(128 * 1024)
#define TEAM	4
#define IDS	8

struct coll_plan;

struct thing {
	int fd;
	uint32_t id;
	uint64_t len;			/* buffers; plans: number of slots */
	uint32_t comm;			/* communicators: ranks << 16 | rank */
	uint64_t min_len[NPULINK_MAX_SLOTS];
};

/* What the calls so far have made. */
struct exec {
	const struct prog *prog;
	const struct exec_env *env;
	bool root;			/* really, not in a namespace of its own */
	uint32_t uid;
	pid_t pid;
	int files[FILES];
	struct thing comms[THINGS], bufs[THINGS], plans[THINGS], seqs[THINGS];
	uint32_t ncomms, nbufs, nplans, nseqs;
	int dmabufs[4];
	uint32_t ndmabufs;
	char *areas[AREAS + MAPPED];
	struct {
		char *addr;
		size_t len;
	} maps[MAPS];
	uint32_t nmaps;
	int words;			/* a file, for exec_scribble() */
	char *edge;			/* a page, then nothing */
	char *readonly;
	struct npulink_ring *ring;
	size_t ring_len;
	/* Of netlink's answers. */
	uint32_t comm_ids[IDS], file_ids[IDS], ncomm_ids, nfile_ids;
	int events;			/* a socket that listens */
	/* The last team. */
	uint32_t n;
	bool far;			/* others are said to be elsewhere */
	int team_fd[TEAM];
	uint32_t team_comm[TEAM], team_plan[TEAM], team_buf[TEAM], team_nslots;
	uint64_t team_len[TEAM][NPULINK_MAX_SLOTS];
	pthread_t threads[PROG_THREADS];
};

extern struct exec ex;

/* Tables of things: put one in, take any one out, or one that nobody has made. */
struct thing *exec_add(struct thing *table, uint32_t *n, int fd, uint32_t id);
struct thing exec_pick(struct rnd *r, const struct thing *table, uint32_t n);
/* A buffer, most often of that file and as long as that. */
struct thing exec_pick_buf(struct rnd *r, int fd, uint64_t len);
int exec_file(struct rnd *r);
/* When to stop waiting. */
uint64_t exec_soon(struct rnd *r);

/* For the one who has started it, and the end of this process. */
void exec_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Say that ranks from @first on are on other machines; -errno. */
int exec_describe(struct rnd *r, int fd, uint32_t comm, uint32_t first, uint32_t nranks);

/* Parameters of the modules that programs of root set to values below @limit. */
extern const struct exec_param {
	const char *path;
	uint32_t limit;
} exec_params[];
#define EXEC_PARAMS	10

/* An ioctl of @size bytes, spoiled if @bend is not 0; -errno. */
int exec_ioctl(struct rnd *r, int fd, unsigned long cmd, void *arg, size_t size, uint8_t bend);
#define CALL(r, fd, cmd, arg, bend)	exec_ioctl(r, fd, cmd, &(arg), sizeof(arg), bend)

/* Look at what netlink says: @n bytes of messages. */
void exec_read(char *reply, ssize_t n);

/* One for each enum prog_op. */
void exec_team(struct rnd *r, uint8_t bend);
void exec_team_post(struct rnd *r, uint8_t bend);
void exec_info(struct rnd *r, uint8_t bend);
void exec_register(struct rnd *r, uint8_t bend);
void exec_alloc(struct rnd *r, uint8_t bend);
void exec_import(struct rnd *r, uint8_t bend);
void exec_export(struct rnd *r, uint8_t bend);
void exec_comm(struct rnd *r, uint8_t bend);
void exec_peers(struct rnd *r, uint8_t bend);
void exec_abort(struct rnd *r, uint8_t bend);
void exec_status(struct rnd *r, uint8_t bend);
void exec_plan(struct rnd *r, uint8_t bend);
void exec_post(struct rnd *r, uint8_t bend);
void exec_batch(struct rnd *r, uint8_t bend);
void exec_wait(struct rnd *r, uint8_t bend);
void exec_ring(struct rnd *r, uint8_t bend);
void exec_destroy(struct rnd *r, uint8_t bend);
void exec_shrink(struct rnd *r, uint8_t bend);
void exec_mmap(struct rnd *r, uint8_t bend);
void exec_memory(struct rnd *r, uint8_t bend);
void exec_tail(struct rnd *r, uint8_t bend);
void exec_poll(struct rnd *r, uint8_t bend);
void exec_raw(struct rnd *r, uint8_t bend);
void exec_genl(struct rnd *r, uint8_t bend);
void exec_knob(struct rnd *r, uint8_t bend);
void exec_fail_nth(struct rnd *r, uint8_t bend);
void exec_port_info(struct rnd *r, uint8_t bend);
void exec_remote(struct rnd *r, uint8_t bend);
void exec_policy(struct rnd *r, uint8_t bend);
void exec_events(struct rnd *r, uint8_t bend);
void exec_device(struct rnd *r, uint8_t bend);
void exec_board(struct rnd *r, uint8_t bend);
void exec_scribble(struct rnd *r, uint8_t bend);

#endif /* FUZZ_EXEC_H */
