/* SPDX-License-Identifier: GPL-2.0 */
/*
 * prog.h - programs of calls on /dev/npulink/npuN, for fuzz_ioctl.c.
 *
 * A call is a number of what to do and a seed from which all its arguments follow,
 * given what the calls before it have made. So any program means something, and
 * to change one is to change some bytes. exec.c runs them, exec_*.c are the calls.
 */
#ifndef FUZZ_PROG_H
#define FUZZ_PROG_H

#include <stdbool.h>
#include <stdint.h>
#include "gen.h"

#define PROG_CALLS	40
#define PROG_THREADS	3

enum prog_op {
	OP_TEAM,		/* ranks of one communicator, with a plan of libcoll */
	OP_TEAM_POST,		/* one collective on all of them */
	OP_OPEN,
	OP_CLOSE,
	OP_INFO,
	OP_REGISTER,
	OP_ALLOC,
	OP_IMPORT,
	OP_EXPORT,
	OP_COMM,
	OP_PEERS,
	OP_ABORT,
	OP_STATUS,
	OP_PLAN,
	OP_POST,
	OP_BATCH,
	OP_WAIT,
	OP_RING,
	OP_DESTROY,
	OP_SHRINK,
	OP_MMAP,
	OP_MEMORY,		/* munmap, madvise, mprotect, mremap what may be registered */
	OP_TAIL,		/* scribble on the ring */
	OP_POLL,
	OP_RAW,			/* any number, any bytes */
	OP_FORK,		/* a child that has our files */
	OP_KILL,		/* a process that joins, and is killed */
	OP_SIGNAL,		/* interrupt another thread */
	OP_GENL,
	OP_KNOB,		/* make the software device fail */
	OP_FAIL_NTH,		/* an allocation in the next call fails */
	OP_NAP,
	OP_PORT_INFO,
	OP_REMOTE,		/* a team that is told that its ranks are on several machines */
	OP_POLICY,
	OP_EVENTS,
	OP_DEVICE,		/* take a software device away, or make one */
	OP_BOARD,		/* map the boards of the team */
	OP_SCRIBBLE,		/* write whatever is mapped: boards, arenas, rings, buffers */
	OPS,
};

/* Who runs it. The last is root in user and network namespaces of its own. */
enum prog_as {
	AS_ROOT,
	AS_USER,
	AS_NAMESPACE,
};

struct call {
	uint8_t op;
	uint8_t thread;
	uint8_t bend;		/* not 0: spoil the arguments */
	uint8_t pad;
	uint32_t seed;
};

struct prog {
	uint8_t as;
	uint32_t n;
	struct call calls[PROG_CALLS];
};

void prog_generate(struct rnd *r, struct prog *p);
void prog_mutate(struct rnd *r, struct prog *p, const struct prog *other);
/* As hexadecimal text with a letter for who runs it, and back; false if it is none. */
void prog_print(const struct prog *p, char *text);
bool prog_scan(struct prog *p, const char *text);
#define PROG_TEXT	(PROG_CALLS * 16 + 3)

#define EXEC_IOCTLS	32
#define EXEC_GENL	32

/* What programs report. The counts are [of root, of others][accepted, refused]. */
struct exec_shared {
	uint32_t ops[OPS];
	uint32_t ioctls[EXEC_IOCTLS][2][2];
	uint32_t genl[EXEC_GENL][2][2];
	uint32_t connected;	/* posts that found connections of npulink_rdma */
	char complaint[160];	/* somebody got what was not for him */
};

struct nlattr;

struct exec_env {
	/* Looks at what netlink tells, instead of whose it is; or NULL. */
	void (*told)(uint8_t cmd, struct nlattr **attrs);
	uint32_t ndev;
	bool root;		/* we are, so that programs may be run as whoever they say */
	uint32_t uid, gid;	/* of those who are not */
	int family;
	uint32_t group;		/* netlink, of events */
	int disk;		/* a file that is not in memory */
	const char *port;	/* of kind rdma, "" if there is none */
	struct exec_shared *shared;
	void (*thread_begin)(uint32_t thread);
};

/* In a process of its own, which it ends. */
void exec_prog(const struct prog *p, const struct exec_env *env) __attribute__((noreturn));

/* How many ioctls are known: NPULINK_CMD_* below that. */
uint32_t exec_ioctls(void);

extern const char * const prog_names[OPS];

#endif /* FUZZ_PROG_H */
