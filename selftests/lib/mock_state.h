/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock_state.h - what the mock device (mock.h) knows: its files, communicators, ranks, plans and
 * operations, and what the test wants to go wrong.
 */
#ifndef MOCK_STATE_H
#define MOCK_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <linux/npulink.h>

#define MOCK_FILES	64
#define MOCK_IDS	4096
#define MOCK_OPS	4096
#define MOCK_ALLOC_AT	0x300000000ULL
#define MOCK_FILE_LEN	0x400000000ULL

struct mock_buf {
	unsigned char *mem;
	size_t len;
	bool registered, readonly, stale;
	unsigned int users;
};

struct mock_comm {
	uint8_t secret[16];
	uint32_t nranks;
	unsigned int joined;
	struct mock_rank *ranks[64];
	uint32_t cause, rank, peer, code;
	uint32_t step;		/* + 1; 0: none */
	int status;
	uint64_t number;
	struct npulink_call calls[2];
	uint32_t peer_timeout_ms, flags;	/* of who joined last */
	uint8_t ip[16];
	char port[32];
	struct mock_comm *survivors;
	uint32_t map[64];		/* rank of each in the one whose survivors these are */
	struct mock_comm *next;
};

struct mock_rank {
	struct mock_comm *comm;
	struct mock_file *file;
	uint32_t rank;
	uint64_t next;			/* number of the next collective */
	uint64_t p2p[2][64];		/* of the next receive, send; by peer */
	unsigned int plans;
	bool shrunk;
};

struct mock_plan {
	struct mock_rank *rank;
	uint32_t rank_id;
	struct npulink_call call;
	uint32_t nslots, nsteps;
	struct npulink_slot *slots;
	struct npulink_step *steps;
	bool p2p, p2p_send;
	uint32_t peer;
	unsigned int inflight;
};

struct mock_op {
	struct mock_file *file;
	struct mock_plan *plan;
	uint64_t seq, number, cookie;
	unsigned char *slot[NPULINK_MAX_SLOTS];
	struct mock_buf *buf[NPULINK_MAX_SLOTS];
	bool held, done, live;
	int status;
	unsigned char *state;		/* of each step: 0, 1 (offered), 2 (done) */
	unsigned char **out;
};

enum { MOCK_BUF = 1, MOCK_RANK, MOCK_PLAN };

struct mock_file {
	int fd;
	pid_t pid;
	unsigned char *arena, *alloc;
	size_t alloc_used;
	struct npulink_ring *ring;
	size_t ring_len;
	unsigned int inflight;
	uint64_t seq;
	struct { int type; void *object; } id[MOCK_IDS];
	uint32_t next_id;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct mock_file files[MOCK_FILES];
	struct mock_comm *comms;
	struct mock_op ops[MOCK_OPS];
	unsigned int calls[32];
	/* What to do with the next calls of an ioctl. */
	struct { int rc; unsigned int skip, times; bool after; } fail[32];
	int fail_open;			/* with this errno */
	unsigned int max_inflight;
	size_t memlock, locked;
	uint32_t abi;
	uint64_t deadline_ns, slow_ns;	/* of the last post that was accepted */
} mock = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
	.max_inflight = 256,
	.memlock = SIZE_MAX,
	.abi = NPULINK_ABI_VERSION,
};

/* The next @times calls after @skip give -rc; @after: they are done all the same. */
static inline void mock_fail(unsigned long cmd, int rc, unsigned int skip, unsigned int times,
			     bool after)
{
	unsigned int nr = _IOC_NR(cmd);

	mock.fail[nr].rc = rc;
	mock.fail[nr].skip = skip;
	mock.fail[nr].times = times;
	mock.fail[nr].after = after;
}

static inline unsigned int mock_calls(unsigned long cmd)
{
	return mock.calls[_IOC_NR(cmd)];
}

#endif /* MOCK_STATE_H */
