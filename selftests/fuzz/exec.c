// SPDX-License-Identifier: GPL-2.0
/*
 * exec.c - runs one program of calls, see prog.h.
 *
 * What calls have made is kept in small tables that all threads use without locks:
 * stale and wrong ids are as welcome as right ones. Waits are short, and a timer ends
 * the process in the middle of whatever does not come to an end.
 */
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include "plan.h"
#include "prog.h"
#include "raw.h"

#define FILES	6
#define THINGS	16
#define AREAS	4	/* ours, for OP_MEMORY */
#define MAPPED	2	/* of the device, to be registered in turn */
#define AREA	(128 * 1024)
#define TEAM	4

struct thing {
	int fd;
	uint32_t id;
	uint64_t len;			/* buffers; plans: number of slots */
	uint32_t comm;
	uint64_t min_len[NPULINK_MAX_SLOTS];
};

static struct {
	const struct prog *prog;
	const struct exec_env *env;
	pid_t pid;
	int files[FILES];
	struct thing comms[THINGS], bufs[THINGS], plans[THINGS], seqs[THINGS];
	uint32_t ncomms, nbufs, nplans, nseqs;
	int dmabufs[4];
	uint32_t ndmabufs;
	char *areas[AREAS + MAPPED];
	char *edge;			/* a page, then nothing */
	char *readonly;
	struct npulink_ring *ring;
	size_t ring_len;
	/* The last team. */
	uint32_t n;
	int team_fd[TEAM];
	uint32_t team_comm[TEAM], team_plan[TEAM], team_buf[TEAM], team_nslots;
	uint64_t team_len[TEAM][NPULINK_MAX_SLOTS];
	pthread_t threads[PROG_THREADS];
} x;

static struct thing *add(struct thing *table, uint32_t *n, int fd, uint32_t id)
{
	struct thing *t = &table[__atomic_fetch_add(n, 1, __ATOMIC_RELAXED) % THINGS];

	t->fd = fd;
	t->id = id;
	return t;
}

static struct thing pick(struct rnd *r, const struct thing *table, uint32_t n)
{
	if (!n || rnd_one_in(r, 24))
		return (struct thing) { .fd = x.files[rnd_below(r, FILES)], .id = rnd_below(r, 9) };
	return table[rnd_below(r, n < THINGS ? n : THINGS)];
}

static int file(struct rnd *r)
{
	return x.files[rnd_below(r, FILES)];
}

static uint64_t soon(struct rnd *r)
{
	switch (rnd_below(r, 8)) {
	case 0:
		return 0;
	case 1:
		return rnd_one_in(r, 4) ? RAW_FOREVER : raw_now();
	default:
		return raw_now() + 1000000ULL * rnd_below(r, 20);
	}
}

/* ---- one ioctl, with spoiled arguments if wanted */

/* An address at which an argument should not be. */
static void *bad_place(struct rnd *r, const void *arg, size_t size)
{
	size_t part = rnd_below(r, size + 1);

	switch (rnd_below(r, 6)) {
	case 0:
		return (void *)(uintptr_t)rnd_odd(r);
	case 1:		/* the end is missing */
		memcpy(x.edge + 4096 - part, arg, part);
		return x.edge + 4096 - part;
	case 2:		/* the answer cannot be written */
		return x.readonly;
	case 3:
		return (char *)arg + 1;
	case 4:
		return x.areas[rnd_below(r, AREAS)];
	default:
		return NULL;
	}
}

static int call(struct rnd *r, int fd, unsigned long cmd, void *arg, size_t size, uint8_t bend)
{
	char big[512] = {};
	void *p = arg;
	uint32_t k;

	if (!bend)
		return raw_ioctl(fd, cmd, arg);
	memcpy(big, arg, size);
	for (k = 0; k < 1U + bend % 3; k++) {
		switch (rnd_below(r, 8)) {
		case 0:		/* longer, zero or not behind */
			*(uint32_t *)big = size + rnd_below(r, sizeof(big) - size);
			if (rnd_one_in(r, 2))
				big[size + rnd_below(r, sizeof(big) - size)] = 1;
			break;
		case 1:
			*(uint32_t *)big = rnd_one_in(r, 2) ? rnd_below(r, size + 1) : rnd_odd(r);
			break;
		case 2:
			p = bad_place(r, big, size);
			break;
		case 3:
			gen_bend_bytes(r, big + 4, size - 4);
			break;
		case 4:
		case 5:
			*(uint64_t *)(big + rnd_below(r, size / 8) * 8) = rnd_odd(r);
			break;
		default:
			*(uint32_t *)(big + rnd_below(r, size / 4) * 4) = rnd_odd(r);
		}
	}
	if (p == arg)
		p = big;
	k = raw_ioctl(fd, cmd, p);
	memcpy(arg, big, size);
	return k;
}

#define CALL(r, fd, cmd, arg, bend)	call(r, fd, cmd, &(arg), sizeof(arg), bend)

/* ---- plans */

/* One that libcoll makes, of a few ranks. */
static bool make_plan(struct rnd r, uint32_t nranks, uint32_t rank, struct coll_plan *plan)
{
	static const uint32_t lens[] = { 0, 1, 2, 7, 64, 1000, 4096, 40000 };
	uint64_t counts[TEAM] = { 5, 0, 130, 1000 }, back[TEAM];
	const struct coll_algorithm *alg = NULL;
	struct coll_args args = {
		.collective = rnd_below(&r, NPULINK_COLLS), .nranks = nranks, .rank = rank,
		.count = lens[rnd_below(&r, sizeof(lens) / sizeof(lens[0]))],
		.dtype = rnd_below(&r, NPULINK_DTYPES), .root = rnd_below(&r, nranks),
		.redop = rnd_below(&r, NPULINK_CALL_AVG + 1),
		.in_place = rnd_one_in(&r, 2), .counts = counts,
	};
	uint32_t which = rnd_below(&r, 8), i;

	if (args.collective == NPULINK_COLL_P2P) {
		if (rank > 1)
			return false;
		args.peer = !rank;
		args.send = !rank;
	}
	if (args.collective == NPULINK_COLL_ALLTOALLV) {
		for (i = 0; i < TEAM; i++)
			back[i] = counts[rank];
		args.rcounts = back;
	}
	do {
		alg = coll_algorithm_next(args.collective, alg);
	} while (which-- && alg);
	if (!alg)
		alg = coll_algorithm_next(args.collective, NULL);
	return !coll_plan_make(alg, &args, plan);
}

static void record_plan(int fd, const struct npulink_plan_create *cmd,
			const struct npulink_slot *slots)
{
	struct thing *t = add(x.plans, &x.nplans, fd, cmd->out_id);
	uint32_t i;

	t->len = cmd->nslots;
	t->comm = cmd->comm_id;
	for (i = 0; i < cmd->nslots && i < NPULINK_MAX_SLOTS; i++)
		t->min_len[i] = slots[i].min_len;
}

static void do_plan(struct rnd *r, uint8_t bend)
{
	struct thing comm = pick(r, x.comms, x.ncomms);
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	struct npulink_step *steps;
	struct npulink_plan_create cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .nslots = 1 + rnd_below(r, 4),
		.slots = (uintptr_t)slots, .flags = rnd_one_in(r, 4) ? NPULINK_PLAN_CHECK_RACES : 0,
	};
	uint32_t nranks = comm.comm >> 16, rank = comm.comm & 0xffff, i;
	struct coll_plan plan;

	if (nranks && nranks <= TEAM && rank < nranks && rnd_one_in(r, 2) &&
	    make_plan(*r, nranks, rank, &plan)) {
		cmd.call = plan.call;
		cmd.nslots = plan.nslots;
		memcpy(slots, plan.slots, sizeof(slots));
		cmd.nsteps = plan.nsteps;
		steps = plan.steps;
	} else {
		if (!nranks)
			nranks = 2;
		gen_call(r, &cmd.call, nranks);
		gen_slots(r, slots, cmd.nslots);
		cmd.nsteps = rnd_below(r, rnd_one_in(r, 8) ? 200 : 12);
		steps = calloc(cmd.nsteps + 1, sizeof(*steps));
		for (i = 0; steps && i < cmd.nsteps; i++)
			gen_step(r, &cmd.call, nranks, rank, slots, cmd.nslots, i,
				 i ? &steps[i - 1] : NULL, &steps[i]);
	}
	if (bend & 1 && cmd.nsteps && steps)
		for (i = 0; i < 1U + bend % 3; i++)
			gen_bend_step(r, &steps[rnd_below(r, cmd.nsteps)]);
	if (bend & 2)
		gen_bend_call(r, &cmd.call);
	cmd.steps = (uintptr_t)steps;
	if (!CALL(r, comm.fd, NPULINK_PLAN_CREATE, cmd, bend & 4 ? bend : 0))
		record_plan(comm.fd, &cmd, slots);
	free(steps);
}

/* ---- teams */

static uint64_t team_bytes(uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < x.team_nslots; i++)
		sum += (x.team_len[rank][i] + 63) / 64 * 64;
	return sum ? sum : 64;
}

static void team_buffer(struct rnd *r, uint32_t k)
{
	uint64_t len = team_bytes(k), offset;
	int id;

	switch (rnd_below(r, 3)) {
	case 0:		/* the arena */
		mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, x.team_fd[k],
		     NPULINK_MMAP_ARENA);
		id = 0;
		break;
	case 1:
		id = raw_buf_alloc(x.team_fd[k], len, &offset);
		break;
	default:
		id = raw_register(x.team_fd[k], raw_anon(len), len, 0);
	}
	x.team_buf[k] = id < 0 ? 0 : id;
	add(x.bufs, &x.nbufs, x.team_fd[k], x.team_buf[k])->len = len;
}

static void do_team(struct rnd *r)
{
	uint32_t n = 1 + rnd_below(r, TEAM), k, i;
	struct rnd same = { rnd_next(r) };
	uint8_t secret[16];
	struct coll_plan plan;

	x.n = 0;
	raw_secret(secret);
	secret[15] = rnd_next(r);
	for (k = 0; k < n; k++) {
		struct npulink_plan_create cmd;
		int fd = raw_open(rnd_below(r, x.env->ndev)), comm;

		if (fd < 0)
			return;
		x.files[k % FILES] = fd;
		comm = raw_comm(fd, secret, k, n);
		if (comm < 0)
			return;
		add(x.comms, &x.ncomms, fd, comm)->comm = n << 16 | k;
		x.team_fd[k] = fd;
		x.team_comm[k] = comm;
		if (!make_plan(same, n, k, &plan))
			return;
		cmd = raw_plan_cmd(comm, plan.slots, plan.nslots, plan.steps, plan.nsteps);
		cmd.call = plan.call;
		x.team_nslots = plan.nslots;
		for (i = 0; i < plan.nslots; i++)
			x.team_len[k][i] = plan.slots[i].min_len;
		if (!raw_ioctl(fd, NPULINK_PLAN_CREATE, &cmd))
			record_plan(fd, &cmd, plan.slots);
		x.team_plan[k] = cmd.out_id;
		coll_plan_free(&plan);
		team_buffer(r, k);
	}
	x.n = n;
}

static struct npulink_post team_post(uint32_t k, struct npulink_bind *binds)
{
	struct npulink_post post = raw_post_cmd(x.team_plan[k], NPULINK_POST_HELD);
	uint64_t off = 0;
	uint32_t i;

	for (i = 0; i < x.team_nslots; i++) {
		binds[i] = (struct npulink_bind) {
			.buf_id = x.team_buf[k], .off = off, .len = x.team_len[k][i],
		};
		off += (x.team_len[k][i] + 63) / 64 * 64;
	}
	post.nbinds = x.team_nslots;
	if (x.team_nslots > NPULINK_POST_BINDS)
		post.binds = (uintptr_t)binds;
	else
		memcpy(post.inline_binds, binds, x.team_nslots * sizeof(*binds));
	return post;
}

static void do_team_post(struct rnd *r, uint8_t bend)
{
	struct npulink_bind binds[TEAM][NPULINK_MAX_SLOTS];
	struct npulink_post post;
	struct npulink_result res;
	uint32_t n = x.n, first = rnd_below(r, n), k, i;
	uint64_t seq[TEAM] = {};
	bool wait = !rnd_one_in(r, 3);

	for (i = 0; i < n; i++) {
		k = (first + i) % n;
		post = team_post(k, binds[k]);
		if (rnd_one_in(r, 4))
			post.deadline_ns = 1000000ULL * rnd_below(r, 50);
		if (rnd_one_in(r, 4))
			post.flags = 0;
		if (i == n - 1 && rnd_one_in(r, 2))
			post.flags = NPULINK_POST_WAIT;
		post.wait_until_ns = raw_now() + 50000000;
		CALL(r, x.team_fd[k], NPULINK_POST, post,
		     bend && rnd_one_in(r, n) ? bend : 0);
		seq[k] = post.out_seq;
		add(x.seqs, &x.nseqs, x.team_fd[k], post.out_seq);
	}
	for (k = 0; wait && k < n; k++) {
		struct npulink_wait cmd = {
			.size = sizeof(cmd), .seq = seq[k], .wait_until_ns = raw_now() + 50000000,
		};

		raw_ioctl(x.team_fd[k], NPULINK_WAIT, &cmd);
		res = cmd.out_result;
		(void)res;
	}
}

/* ---- single calls */

static void do_register(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_register cmd = {
		.size = sizeof(cmd), .flags = rnd_one_in(r, 4) ? NPULINK_BUF_READONLY : 0,
		.addr = (uintptr_t)x.areas[rnd_below(r, AREAS + MAPPED)] + rnd_below(r, AREA),
		.len = 1 + rnd_below(r, AREA),
	};
	int fd = file(r);

	if (!CALL(r, fd, NPULINK_BUF_REGISTER, cmd, bend))
		add(x.bufs, &x.nbufs, fd, cmd.out_id)->len = cmd.len;
}

static void do_alloc(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_alloc cmd = { .size = sizeof(cmd), .len = 1 + rnd_below(r, AREA) };
	int fd = file(r);

	if (!CALL(r, fd, NPULINK_BUF_ALLOC, cmd, bend))
		add(x.bufs, &x.nbufs, fd, cmd.out_id)->len = (cmd.len + 4095) / 4096 * 4096;
}

/* From another npulink file, from udmabuf, or no dma-buf at all. */
static int some_dmabuf(struct rnd *r)
{
	struct udmabuf_create create = { .size = 8192 };
	int dev, fd = -1;

	if (x.ndmabufs && rnd_one_in(r, 2))
		return dup(x.dmabufs[rnd_below(r, x.ndmabufs < 4 ? x.ndmabufs : 4)]);
	if (rnd_one_in(r, 3))
		return dup(rnd_below(r, 12));
	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	create.memfd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (dev >= 0 && !ftruncate(create.memfd, 65536) &&
	    !fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		fd = ioctl(dev, UDMABUF_CREATE, &create);
	close(create.memfd);
	if (dev >= 0)
		close(dev);
	return fd;
}

static void do_import(struct rnd *r, uint8_t bend)
{
	struct npulink_buf_import cmd = {
		.size = sizeof(cmd), .flags = rnd_one_in(r, 4) ? NPULINK_BUF_READONLY : 0,
		.fd = some_dmabuf(r),
	};
	int fd = file(r), dmabuf = cmd.fd;

	if (!CALL(r, fd, NPULINK_BUF_IMPORT, cmd, bend))
		add(x.bufs, &x.nbufs, fd, cmd.out_id)->len = cmd.out_len;
	if (dmabuf >= 0)
		close(dmabuf);
}

static void do_export(struct rnd *r, uint8_t bend)
{
	struct thing buf = pick(r, x.bufs, x.nbufs);
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = buf.id };

	if (!CALL(r, buf.fd, NPULINK_BUF_EXPORT, cmd, bend)) {
		x.dmabufs[x.ndmabufs++ % 4] = cmd.out_fd;
		if (rnd_one_in(r, 2))
			mmap(NULL, 4096 * (1 + rnd_below(r, 4)), PROT_READ | PROT_WRITE,
			     MAP_SHARED, cmd.out_fd, 0);
	}
}

static void do_comm(struct rnd *r, uint8_t bend)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .nranks = 1 + rnd_below(r, 4),
		.flags = rnd_one_in(r, 4) ? NPULINK_COMM_ANY_UID : 0,
	};
	int fd = file(r);

	cmd.rank = rnd_below(r, cmd.nranks);
	if (rnd_one_in(r, 32))
		cmd.nranks = rnd_odd(r) % 70000;
	*(uint32_t *)cmd.secret = x.pid;
	cmd.secret[8] = rnd_below(r, 2);
	if (!CALL(r, fd, NPULINK_COMM_CREATE, cmd, bend))
		add(x.comms, &x.ncomms, fd, cmd.out_id)->comm = cmd.nranks << 16 | cmd.rank;
}

static void do_peers(struct rnd *r, uint8_t bend)
{
	struct thing comm = pick(r, x.comms, x.ncomms);
	struct npulink_peer peers[TEAM] = {};
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .first = rnd_below(r, 3),
		.npeers = rnd_below(r, TEAM + 1), .peers = (uintptr_t)peers,
	};
	struct npulink_device_info info;
	uint32_t i;

	raw_info(comm.fd, &info);
	for (i = 0; i < TEAM; i++) {
		memcpy(peers[i].node_id, info.out_node_id, 16);
		if (bend & 1 && rnd_one_in(r, 3))
			gen_bend_bytes(r, &peers[i], sizeof(peers[i]));
	}
	CALL(r, comm.fd, NPULINK_COMM_PEERS, cmd, bend & 2 ? bend : 0);
}

static void do_abort(struct rnd *r, uint8_t bend)
{
	struct thing comm = pick(r, x.comms, x.ncomms);
	struct npulink_comm_abort cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .code = rnd_next(r),
	};

	CALL(r, comm.fd, NPULINK_COMM_ABORT, cmd, bend);
}

static void do_status(struct rnd *r, uint8_t bend)
{
	struct thing comm = pick(r, x.comms, x.ncomms);
	struct npulink_comm_status cmd = { .size = sizeof(cmd), .comm_id = comm.id };

	CALL(r, comm.fd, NPULINK_COMM_STATUS, cmd, bend);
}

static void do_shrink(struct rnd *r, uint8_t bend)
{
	struct thing comm = pick(r, x.comms, x.ncomms);
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd), .comm_id = comm.id };

	if (rnd_one_in(r, 2))
		raw_abort(comm.fd, comm.id, 1);
	if (!CALL(r, comm.fd, NPULINK_COMM_SHRINK, cmd, bend))
		add(x.comms, &x.ncomms, comm.fd, cmd.out_id)->comm =
			cmd.out_nranks << 16 | cmd.out_rank;
}

static struct npulink_post some_post(struct rnd *r, const struct thing *plan,
				     struct npulink_bind *binds)
{
	struct npulink_post post = raw_post_cmd(plan->id, rnd_below(r, 4));
	uint64_t off = 0;
	uint32_t i;

	post.nbinds = plan->len <= NPULINK_MAX_SLOTS ? plan->len : 0;
	if (rnd_one_in(r, 16))
		post.nbinds = rnd_below(r, NPULINK_MAX_SLOTS + 1);
	for (i = 0; i < post.nbinds; i++) {
		struct thing buf = pick(r, x.bufs, x.nbufs);

		if (rnd_one_in(r, 8))
			off = rnd_below(r, 4096);
		binds[i] = (struct npulink_bind) {
			.buf_id = buf.id, .off = off, .len = plan->min_len[i],
		};
		off += (plan->min_len[i] + 63) / 64 * 64;
		if (rnd_one_in(r, 24))
			gen_bend_bytes(r, &binds[i], sizeof(binds[i]));
	}
	if (post.nbinds > NPULINK_POST_BINDS)
		post.binds = (uintptr_t)binds;
	else
		memcpy(post.inline_binds, binds, post.nbinds * sizeof(*binds));
	post.cookie = rnd_next(r);
	post.deadline_ns = rnd_one_in(r, 2) ? 0 : 1000000ULL * rnd_below(r, 30);
	if (rnd_one_in(r, 32))
		post.deadline_ns = rnd_odd(r);
	post.wait_until_ns = soon(r);
	return post;
}

static void do_post(struct rnd *r, uint8_t bend)
{
	struct thing plan = pick(r, x.plans, x.nplans);
	struct npulink_bind binds[NPULINK_MAX_SLOTS];
	struct npulink_post post = some_post(r, &plan, binds);

	CALL(r, plan.fd, NPULINK_POST, post, bend);
	add(x.seqs, &x.nseqs, plan.fd, post.out_seq);
}

static void do_batch(struct rnd *r, uint8_t bend)
{
	struct thing plan = pick(r, x.plans, x.nplans);
	struct npulink_bind binds[6][NPULINK_MAX_SLOTS];
	struct npulink_post posts[6];
	struct npulink_post_batch cmd = {
		.size = sizeof(cmd), .flags = rnd_below(r, 2), .nposts = 1 + rnd_below(r, 6),
		.posts = (uintptr_t)posts, .wait_until_ns = soon(r),
	};
	uint32_t i;

	for (i = 0; i < 6; i++) {
		struct thing one = rnd_one_in(r, 3) ? pick(r, x.plans, x.nplans) : plan;

		posts[i] = some_post(r, &one, binds[i]);
		posts[i].flags &= ~NPULINK_POST_WAIT;
		if (bend & 1 && rnd_one_in(r, 4))
			gen_bend_bytes(r, &posts[i], sizeof(posts[i]));
	}
	CALL(r, plan.fd, NPULINK_POST_BATCH, cmd, bend & 2 ? bend : 0);
	for (i = 0; i < cmd.out_posted && i < 6; i++)
		add(x.seqs, &x.nseqs, plan.fd, posts[i].out_seq);
}

static void do_wait(struct rnd *r, uint8_t bend)
{
	struct thing seq = pick(r, x.seqs, x.nseqs);
	struct npulink_wait cmd = {
		.size = sizeof(cmd), .seq = seq.id + (rnd_one_in(r, 8) ? rnd_below(r, 3) : 0),
		.wait_until_ns = soon(r),
	};

	CALL(r, seq.fd, NPULINK_WAIT, cmd, bend);
}

static void do_ring(struct rnd *r, uint8_t bend)
{
	struct npulink_ring_setup cmd = {
		.size = sizeof(cmd), .entries = 1U << rnd_below(r, 8), .eventfd = -1,
	};
	int fd = file(r);

	if (rnd_one_in(r, 2))
		cmd.eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (CALL(r, fd, NPULINK_RING_SETUP, cmd, bend))
		return;
	x.ring_len = cmd.out_len;
	x.ring = mmap(NULL, cmd.out_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		      NPULINK_MMAP_RING);
	if (x.ring == MAP_FAILED)
		x.ring = NULL;
}

static void do_destroy(struct rnd *r, uint8_t bend)
{
	struct thing t;
	struct npulink_destroy cmd = { .size = sizeof(cmd) };

	switch (rnd_below(r, 4)) {
	case 0:
		t = pick(r, x.comms, x.ncomms);
		break;
	case 1:
		t = pick(r, x.bufs, x.nbufs);
		break;
	default:
		t = pick(r, x.plans, x.nplans);
	}
	cmd.id = t.id;
	CALL(r, t.fd, NPULINK_DESTROY, cmd, bend);
}

static void do_mmap(struct rnd *r, uint8_t bend)
{
	struct thing buf = pick(r, x.bufs, x.nbufs);
	uint64_t off = 0x1000000000ULL * rnd_below(r, 3), len = 4096 * (1 + rnd_below(r, 17));
	int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED;
	char *p;

	switch (rnd_below(r, 5)) {
	case 0:
		off = NPULINK_MMAP_ARENA;
		break;
	case 1:
		off = NPULINK_MMAP_RING;
		break;
	case 2:
		off = NPULINK_MMAP_DOORBELL;
		break;
	default:	/* where BUF_ALLOC says: found out with a small one */
		{
			int id = raw_buf_alloc(buf.fd, 4096, &off);

			if (id > 0) {
				add(x.bufs, &x.nbufs, buf.fd, id)->len = 4096;
				len = 4096;
			}
		}
	}
	if (bend & 1)
		off = rnd_odd(r) & ~4095ULL;
	if (bend & 2)
		len = 4096ULL * (1 + rnd_below(r, 70));
	if (bend & 4)
		flags = MAP_PRIVATE;
	if (bend & 8)
		prot = rnd_below(r, 8);
	p = mmap(NULL, len, prot, flags, buf.fd, off);
	if (p == MAP_FAILED)
		return;
	if (rnd_one_in(r, 3))
		madvise(p, len, rnd_one_in(r, 2) ? MADV_DOFORK : MADV_DONTNEED);
	if (rnd_one_in(r, 4))
		mremap(p, len, len + 4096, MREMAP_MAYMOVE);
	else if (rnd_one_in(r, 4))	/* split it */
		mprotect(p, 4096, PROT_READ);
	else if (rnd_one_in(r, 2))
		munmap(p, rnd_one_in(r, 2) ? len : 4096);
	else			/* it may be registered in turn */
		x.areas[AREAS + rnd_below(r, MAPPED)] = p;
}

static void do_memory(struct rnd *r)
{
	char *area = x.areas[rnd_below(r, AREAS)];
	char *p = area + 4096 * rnd_below(r, AREA / 4096);
	size_t len = 4096 * (1 + rnd_below(r, 8));

	switch (rnd_below(r, 8)) {
	case 0:
		munmap(p, len);
		break;
	case 1:
		mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
		break;
	case 2:
		madvise(p, len, MADV_DONTNEED);
		break;
	case 3:
		mprotect(p, len, rnd_one_in(r, 2) ? PROT_READ : PROT_READ | PROT_WRITE);
		break;
	case 4:
		mremap(p, 4096, 8192, MREMAP_MAYMOVE);
		break;
	case 5:
		madvise(area, AREA, MADV_HUGEPAGE);
		break;
	case 6:
		mlock(p, len);
		break;
	default:
		mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0);
	}
}

static void do_tail(struct rnd *r)
{
	struct npulink_ring *ring = x.ring;

	if (!ring)
		return;
	switch (rnd_below(r, 3)) {
	case 0:
		ring->tail = ring->head;
		break;
	case 1:
		ring->tail = rnd_odd(r);
		break;
	default:
		ring->head = rnd_odd(r);
		ring->entries = rnd_odd(r);
	}
}

static void do_poll(struct rnd *r)
{
	struct pollfd fds[2] = { { file(r), POLLIN, 0 }, { file(r), rnd_next(r), 0 } };
	char c;

	poll(fds, 2, rnd_below(r, 5));
	if (rnd_one_in(r, 4) && read(fds[0].fd, &c, 1) == 1)
		fds[0].fd = write(fds[0].fd, &c, 1);
}

static void do_raw(struct rnd *r)
{
	uint32_t buf[64];
	uint32_t i;

	for (i = 0; i < 64; i++)
		buf[i] = rnd_one_in(r, 2) ? 0 : rnd_below(r, 16);
	buf[0] = rnd_one_in(r, 4) ? rnd_odd(r) : 4 * rnd_below(r, 64);
	raw_ioctl(file(r), rnd_one_in(r, 4) ? rnd_next(r) :
		  _IO(NPULINK_TYPE, rnd_below(r, 20)), buf);
}

/* ---- other processes and threads */

static void one_call(const struct call *c);

static void do_fork(struct rnd *r)
{
	struct call c = { .seed = rnd_next(r) };
	uint32_t i;
	pid_t pid = fork();

	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(1);
	for (i = 0; i < 6; i++) {
		c.op = OP_OPEN + rnd_below(r, OP_FORK - OP_OPEN);
		c.seed = rnd_next(r);
		one_call(&c);
	}
	_exit(0);
}

static void do_kill(struct rnd *r)
{
	struct call c = { .op = OP_TEAM_POST, .seed = rnd_next(r) };
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(1);
		c.op = OP_TEAM;
		one_call(&c);
		c.op = OP_COMM;		/* beside our own ranks, if the secret is theirs */
		one_call(&c);
		c.op = OP_TEAM_POST;
		for (;;)
			one_call(&c);
	}
	if (pid < 0)
		return;
	usleep(rnd_below(r, 20000));
	kill(pid, SIGKILL);
}

static void do_signal(struct rnd *r)
{
	pthread_t t = x.threads[rnd_below(r, PROG_THREADS)];

	if (t)
		pthread_kill(t, SIGUSR1);
}

/* ---- netlink */

static int genl_family(int sock)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genlh;
		struct nlattr attr;
		char name[8];
	} rq = {
		.nlh = { .nlmsg_len = sizeof(rq), .nlmsg_type = GENL_ID_CTRL,
			 .nlmsg_flags = NLM_F_REQUEST },
		.genlh = { .cmd = CTRL_CMD_GETFAMILY, .version = 1 },
		.attr = { .nla_len = NLA_HDRLEN + 8, .nla_type = CTRL_ATTR_FAMILY_NAME },
		.name = NPULINK_GENL_NAME,
	};
	char reply[2048];
	ssize_t len, at;

	if (send(sock, &rq, sizeof(rq), 0) < 0)
		return -1;
	len = recv(sock, reply, sizeof(reply), 0);
	for (at = NLMSG_HDRLEN + GENL_HDRLEN; at + NLA_HDRLEN <= len;) {
		struct nlattr *attr = (void *)(reply + at);

		if (attr->nla_type == CTRL_ATTR_FAMILY_ID)
			return *(uint16_t *)(attr + 1);
		if (attr->nla_len < NLA_HDRLEN)
			break;
		at += NLA_ALIGN(attr->nla_len);
	}
	return -1;
}

static void do_genl(struct rnd *r, uint8_t bend)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genlh;
		uint32_t attrs[64];
	} rq = {};
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), tries, family;
	struct timeval tv = { .tv_usec = 50000 };
	struct nlattr *attr = (void *)rq.attrs;
	char reply[512];

	if (sock < 0)
		return;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	family = genl_family(sock);
	if (family < 0)
		goto out;
	rq.nlh.nlmsg_type = family;
	rq.nlh.nlmsg_flags = NLM_F_REQUEST | (rnd_one_in(r, 2) ? NLM_F_DUMP : 0) |
			     (rnd_one_in(r, 3) ? NLM_F_ACK : 0);
	rq.nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
	rq.genlh.cmd = 1 + rnd_below(r, 2);
	rq.genlh.version = 1;
	if (rnd_one_in(r, 2)) {
		attr->nla_len = NLA_HDRLEN + 4;
		attr->nla_type = rnd_below(r, 5);
		rq.attrs[1] = rnd_one_in(r, 3) ? rnd_odd(r) : rnd_below(r, 9);
		rq.nlh.nlmsg_len += 8;
	}
	while (bend && !rnd_one_in(r, 3)) {
		if (rnd_one_in(r, 2))
			gen_bend_bytes(r, &rq, rq.nlh.nlmsg_len);
		else
			rq.genlh.cmd = rnd_below(r, 12);
		if (rq.nlh.nlmsg_len > sizeof(rq))
			rq.nlh.nlmsg_len = sizeof(rq);
	}
	/* A small buffer: dumps take several messages, and may be left in the middle. */
	if (send(sock, &rq, rq.nlh.nlmsg_len, 0) > 0)
		for (tries = rnd_below(r, 6); tries; tries--)
			if (recv(sock, reply, sizeof(reply), MSG_DONTWAIT) < 0)
				break;
out:
	close(sock);
}

/* ---- faults */

static void do_knob(struct rnd *r)
{
	static const char * const knobs[] = { "drop_irq", "dup_irq", "fail_post", "delay_ns" };
	uint32_t k = rnd_below(r, 4);

	if (x.env->root)
		raw_knob(rnd_below(r, x.env->ndev), knobs[k],
			 k == 3 ? rnd_below(r, 2000000) : 1 + rnd_below(r, 8));
}

static void do_fail_nth(struct rnd *r)
{
	char n[8];

	snprintf(n, sizeof(n), "%u", 1 + rnd_below(r, rnd_one_in(r, 4) ? 40 : 8));
	if (x.env->root)
		raw_write("/proc/thread-self/fail-nth", n);
}

/* ---- a program */

static void one_call(const struct call *c)
{
	struct rnd r = { c->seed };
	struct npulink_device_info info = { .size = sizeof(info) };
	uint32_t i;

	switch (c->op) {
	case OP_TEAM:
		return do_team(&r);
	case OP_TEAM_POST:
		if (!x.n)
			return do_post(&r, c->bend);
		return do_team_post(&r, c->bend);
	case OP_OPEN:
		i = rnd_below(&r, FILES);
		x.files[i] = raw_open(rnd_below(&r, x.env->ndev));
		return;
	case OP_CLOSE:
		close(file(&r));
		return;
	case OP_INFO:
		CALL(&r, file(&r), NPULINK_DEVICE_INFO, info, c->bend);
		return;
	case OP_REGISTER:
		return do_register(&r, c->bend);
	case OP_ALLOC:
		return do_alloc(&r, c->bend);
	case OP_IMPORT:
		return do_import(&r, c->bend);
	case OP_EXPORT:
		return do_export(&r, c->bend);
	case OP_COMM:
		return do_comm(&r, c->bend);
	case OP_PEERS:
		return do_peers(&r, c->bend);
	case OP_ABORT:
		return do_abort(&r, c->bend);
	case OP_STATUS:
		return do_status(&r, c->bend);
	case OP_PLAN:
		return do_plan(&r, c->bend);
	case OP_POST:
		return do_post(&r, c->bend);
	case OP_BATCH:
		return do_batch(&r, c->bend);
	case OP_WAIT:
		return do_wait(&r, c->bend);
	case OP_RING:
		return do_ring(&r, c->bend);
	case OP_DESTROY:
		return do_destroy(&r, c->bend);
	case OP_SHRINK:
		return do_shrink(&r, c->bend);
	case OP_MMAP:
		return do_mmap(&r, c->bend);
	case OP_MEMORY:
		return do_memory(&r);
	case OP_TAIL:
		return do_tail(&r);
	case OP_POLL:
		return do_poll(&r);
	case OP_RAW:
		return do_raw(&r);
	case OP_FORK:
		return do_fork(&r);
	case OP_KILL:
		return do_kill(&r);
	case OP_SIGNAL:
		return do_signal(&r);
	case OP_GENL:
		return do_genl(&r, c->bend);
	case OP_KNOB:
		return do_knob(&r);
	case OP_FAIL_NTH:
		return do_fail_nth(&r);
	case OP_NAP:
		usleep(rnd_below(&r, 3000));
	}
}

static void *thread_main(void *arg)
{
	uint32_t thread = (uintptr_t)arg, i;

	x.env->thread_begin(thread);
	for (i = 0; i < x.prog->n; i++)
		if (x.prog->calls[i].thread == thread)
			one_call(&x.prog->calls[i]);
	return NULL;
}

static void on_signal(int sig)
{
}

void exec_prog(const struct prog *p, const struct exec_env *env)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct itimerval limit = { .it_value.tv_usec = 700000 };
	uint32_t used = 0, i;

	x.prog = p;
	x.env = env;
	x.pid = getpid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGCHLD, SIG_IGN);
	setitimer(ITIMER_REAL, &limit, NULL);
	for (i = 0; i < AREAS + MAPPED; i++)
		x.areas[i] = raw_anon(AREA);
	x.edge = raw_anon(8192);
	munmap(x.edge + 4096, 4096);
	x.readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < FILES; i++)
		x.files[i] = i < 2 ? raw_open(i) : -1;
	for (i = 0; i < p->n; i++)
		used |= 1U << p->calls[i].thread;
	for (i = 1; i < PROG_THREADS; i++)
		if (used >> i & 1 && pthread_create(&x.threads[i], NULL, thread_main,
						    (void *)(uintptr_t)i))
			x.threads[i] = 0;
	x.threads[0] = pthread_self();
	thread_main(NULL);
	for (i = 1; i < PROG_THREADS; i++)
		if (x.threads[i])
			pthread_join(x.threads[i], NULL);
	_exit(0);
}
