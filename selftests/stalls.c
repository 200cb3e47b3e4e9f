// SPDX-License-Identifier: GPL-2.0
/*
 * stalls - a user whose memory is slow keeps nobody else waiting. Every ioctl that reads
 * or writes memory of the caller is made to wait there, by userfaultfd: where the kernel
 * writes the answer, and in each array, behind what it has taken already. Meanwhile another
 * user does all that one can do, and the device itself can be removed.
 *
 * npulink-test: timeout=150
 */
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <linux/userfaultfd.h>
#include "nl.h"
#include "team.h"
#include "users.h"
#include "harness.h"

#define PAGE	4096UL
#define LEN	8192UL

/* ---- a page that comes late */

struct gate {
	int fd;
	char *mem;		/* a page that is there, then the late one */
	bool write;		/* it is late for who writes */
};

static char *gate_page(const struct gate *g)
{
	return g->mem + PAGE;
}

static int gate_make(struct gate *g, bool write)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range.len = PAGE };

	if (write)
		api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	reg.mode = write ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING;
	g->write = write;
	g->mem = raw_anon(2 * PAGE);
	g->fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (g->fd < 0)
		return -errno;
	reg.range.start = (uintptr_t)gate_page(g);
	g->mem[0] = 0;
	return ioctl(g->fd, UFFDIO_API, &api) || ioctl(g->fd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

static int gate_protect(const struct gate *g, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)gate_page(g), PAGE },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	return ioctl(g->fd, UFFDIO_WRITEPROTECT, &wp) ? -errno : 0;
}

/* Whoever waits for the page gets it, full of zeros if there was none. */
static int gate_open(const struct gate *g)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)gate_page(g), PAGE } };

	if (g->write)
		return gate_protect(g, false);
	return ioctl(g->fd, UFFDIO_ZEROPAGE, &zero) ? -errno : 0;
}

/* ---- the calls, and where they wait */

/* Alice: two ranks on two devices, a buffer of pages, and the gate. */
struct alice {
	struct team t;
	struct gate gate;
	int buf, dmabuf;
	uint64_t seq;
};

struct stall {
	const char *name;
	unsigned long cmd;
	bool write;	/* of the answer; else what is read is late */
	/* Makes the argument of the call. NULL: it cannot. */
	void *(*prepare)(struct alice *a);
	int rc;		/* what the call gives in the end */
	int pins;	/* or at once: until 6.2 the kernel waits for no page that it pins */
};

/* All of an argument in the late page. */
static void *late(struct alice *a, const void *arg, size_t size)
{
	return memcpy(gate_page(&a->gate), arg, size);
}

/* An array whose first element is there, and whose second one is late: its address. */
static void *late_array(struct alice *a, const void *first, size_t size)
{
	return memcpy(gate_page(&a->gate) - size, first, size);
}

/* The argument of a call with a late array is where nothing is late. */
static void *soon(const void *arg, size_t size)
{
	static uint64_t room[64];

	return memcpy(room, arg, size);
}

static void *at_info(struct alice *a)
{
	struct npulink_device_info cmd = { .size = sizeof(cmd) };

	return late(a, &cmd, sizeof(cmd));
}

static void *at_register(struct alice *a)
{
	struct npulink_buf_register cmd = {
		.size = sizeof(cmd), .addr = (uintptr_t)a->t.m[0].send, .len = LEN,
	};

	return late(a, &cmd, sizeof(cmd));
}

/* The memory itself. */
static void *in_register(struct alice *a)
{
	struct npulink_buf_register cmd = {
		.size = sizeof(cmd), .addr = (uintptr_t)a->gate.mem, .len = 2 * PAGE,
	};

	return soon(&cmd, sizeof(cmd));
}

static void *at_alloc(struct alice *a)
{
	struct npulink_buf_alloc cmd = { .size = sizeof(cmd), .len = LEN };

	return late(a, &cmd, sizeof(cmd));
}

static void *at_import(struct alice *a)
{
	struct npulink_buf_import cmd = { .size = sizeof(cmd), .fd = a->dmabuf };

	return late(a, &cmd, sizeof(cmd));
}

static void *at_export(struct alice *a)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = a->buf };

	return late(a, &cmd, sizeof(cmd));
}

static void *at_create(struct alice *a)
{
	struct npulink_comm_create cmd = { .size = sizeof(cmd), .nranks = 2 };

	raw_secret(cmd.secret);
	return late(a, &cmd, sizeof(cmd));
}

static void *in_peers(struct alice *a)
{
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = a->t.m[0].comm, .npeers = 2,
	};
	struct npulink_peer peer = { .kind = NPULINK_PEER_LOCAL };
	struct npulink_device_info info;

	RAW_CHECK(!raw_info(a->t.m[0].fd, &info));
	memcpy(peer.node_id, info.out_node_id, sizeof(peer.node_id));
	cmd.peers = (uintptr_t)late_array(a, &peer, sizeof(peer));
	return soon(&cmd, sizeof(cmd));
}

static void *at_status(struct alice *a)
{
	struct npulink_comm_status cmd = { .size = sizeof(cmd), .comm_id = a->t.m[0].comm };

	return late(a, &cmd, sizeof(cmd));
}

static void *at_shrink(struct alice *a)
{
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd), .comm_id = a->t.m[0].comm };

	RAW_CHECK(!raw_abort(a->t.m[1].fd, a->t.m[1].comm, 1));
	return late(a, &cmd, sizeof(cmd));
}

static void *at_plan(struct alice *a)
{
	struct npulink_plan_create cmd = raw_plan_cmd(a->t.m[0].comm, NULL, 0, NULL, 0);

	return late(a, &cmd, sizeof(cmd));
}

/* Why it was refused. */
static void *at_plan_refused(struct alice *a)
{
	static struct npulink_step bad;
	struct npulink_plan_create cmd = raw_plan_cmd(a->t.m[0].comm, NULL, 0, &bad, 1);

	bad = raw_step(0x80, 0);
	return late(a, &cmd, sizeof(cmd));
}

static void *in_plan_slots(struct alice *a)
{
	struct npulink_slot slot = { .min_len = 1, .access = NPULINK_SLOT_READ };
	struct npulink_plan_create cmd;

	cmd = raw_plan_cmd(a->t.m[0].comm, late_array(a, &slot, sizeof(slot)), 2, NULL, 0);
	return soon(&cmd, sizeof(cmd));
}

static void *in_plan_steps(struct alice *a)
{
	struct npulink_step step = raw_step(0, 0);
	struct npulink_plan_create cmd;

	cmd = raw_plan_cmd(a->t.m[0].comm, NULL, 0, late_array(a, &step, sizeof(step)), 2);
	return soon(&cmd, sizeof(cmd));
}

static void *at_post_seq(struct alice *a)
{
	struct npulink_post post = member_post_cmd(&a->t.m[0], NPULINK_POST_HELD);

	return late(a, &post, sizeof(post));
}

/* All but its result. */
static void *at_post_result(struct alice *a)
{
	struct npulink_post post = member_post_cmd(&a->t.m[0], NPULINK_POST_WAIT);

	RAW_CHECK(!member_start(&a->t.m[1], 0, &a->seq));
	return memcpy(gate_page(&a->gate) - offsetof(struct npulink_post, out_result), &post,
		      sizeof(post));
}

/* A plan of four slots that nothing uses. */
static int plan_of_four(struct alice *a)
{
	struct npulink_slot slots[4] = {};

	return raw_plan(a->t.m[0].fd, a->t.m[0].comm, slots, 4, NULL, 0);
}

static void *in_post_binds(struct alice *a)
{
	struct npulink_post post = raw_post_cmd(plan_of_four(a), NPULINK_POST_HELD);
	struct npulink_bind bind = {};

	post.nbinds = 4;
	post.binds = (uintptr_t)late_array(a, &bind, sizeof(bind));
	return soon(&post, sizeof(post));
}

/* Memory that was registered, and has been taken away under the registration. */
static void *in_post_memory(struct alice *a)
{
	struct member *m = &a->t.m[0];
	struct npulink_post post;

	RAW_CHECK(!gate_open(&a->gate));
	gate_page(&a->gate)[0] = 1;
	m->buf = raw_register(m->fd, gate_page(&a->gate), PAGE, 0);
	RAW_CHECK(m->buf > 0 && !raw_destroy(m->fd, m->plan));
	RAW_CHECK(!madvise(gate_page(&a->gate), PAGE, MADV_DONTNEED));
	m->len = 64;
	RAW_CHECK(!member_plan(m));
	post = member_post_cmd(m, NPULINK_POST_HELD);
	return soon(&post, sizeof(post));
}

static struct npulink_post_batch batch_cmd(const void *posts, uint32_t n, uint32_t flags)
{
	return (struct npulink_post_batch) {
		.size = sizeof(struct npulink_post_batch), .flags = flags, .nposts = n,
		.posts = (uintptr_t)posts, .wait_until_ns = RAW_FOREVER,
	};
}

static void *at_batch(struct alice *a)
{
	static struct npulink_post post;
	struct npulink_post_batch cmd = batch_cmd(&post, 1, 0);

	post = member_post_cmd(&a->t.m[0], NPULINK_POST_HELD);
	return late(a, &cmd, sizeof(cmd));
}

/* The second post: it turns out to be none. */
static void *in_batch_posts(struct alice *a)
{
	struct npulink_post post = member_post_cmd(&a->t.m[0], NPULINK_POST_HELD);
	struct npulink_post_batch cmd = batch_cmd(late_array(a, &post, sizeof(post)), 2, 0);

	return soon(&cmd, sizeof(cmd));
}

/* The second one's seq. */
static void *at_batch_seq(struct alice *a)
{
	struct npulink_post *posts = (void *)(gate_page(&a->gate) - sizeof(*posts));
	struct npulink_post_batch cmd = batch_cmd(posts, 2, 0);

	posts[0] = member_post_cmd(&a->t.m[0], NPULINK_POST_HELD);
	posts[1] = posts[0];
	return soon(&cmd, sizeof(cmd));
}

static void *at_wait(struct alice *a)
{
	struct npulink_wait cmd = { .size = sizeof(cmd), .wait_until_ns = RAW_FOREVER };

	RAW_CHECK(!member_start(&a->t.m[1], 0, &a->seq));
	RAW_CHECK(!member_start(&a->t.m[0], 0, &a->seq));
	cmd.seq = a->seq;
	return late(a, &cmd, sizeof(cmd));
}

static void *at_ring(struct alice *a)
{
	struct npulink_ring_setup cmd = { .size = sizeof(cmd), .entries = 8, .eventfd = -1 };

	return late(a, &cmd, sizeof(cmd));
}

/* At the answer, or in an array. */
#define AT	true
#define IN	false

static const struct stall stalls[] = {
	{ "DEVICE_INFO, answer", NPULINK_DEVICE_INFO, AT, at_info, 0, 0 },
	{ "BUF_REGISTER, answer", NPULINK_BUF_REGISTER, AT, at_register, 0, 0 },
	{ "BUF_REGISTER, memory", NPULINK_BUF_REGISTER, IN, in_register, 0, -EFAULT },
	{ "BUF_ALLOC, answer", NPULINK_BUF_ALLOC, AT, at_alloc, 0, 0 },
	{ "BUF_IMPORT, answer", NPULINK_BUF_IMPORT, AT, at_import, 0, 0 },
	{ "BUF_EXPORT, answer", NPULINK_BUF_EXPORT, AT, at_export, 0, 0 },
	{ "COMM_CREATE, answer", NPULINK_COMM_CREATE, AT, at_create, 0, 0 },
	{ "COMM_PEERS, peers", NPULINK_COMM_PEERS, IN, in_peers, -EADDRNOTAVAIL, 0 },
	{ "COMM_STATUS, answer", NPULINK_COMM_STATUS, AT, at_status, 0, 0 },
	{ "COMM_SHRINK, answer", NPULINK_COMM_SHRINK, AT, at_shrink, 0, 0 },
	{ "PLAN_CREATE, answer", NPULINK_PLAN_CREATE, AT, at_plan, 0, 0 },
	{ "PLAN_CREATE, refusal", NPULINK_PLAN_CREATE, AT, at_plan_refused, -EINVAL, 0 },
	{ "PLAN_CREATE, slots", NPULINK_PLAN_CREATE, IN, in_plan_slots, 0, 0 },
	{ "PLAN_CREATE, steps", NPULINK_PLAN_CREATE, IN, in_plan_steps, -EINVAL, 0 },
	{ "POST, seq", NPULINK_POST, AT, at_post_seq, 0, 0 },
	{ "POST, result", NPULINK_POST, AT, at_post_result, 0, 0 },
	{ "POST, bindings", NPULINK_POST, IN, in_post_binds, 0, 0 },
	{ "POST, memory", NPULINK_POST, IN, in_post_memory, -ESTALE, -ESTALE },
	{ "POST_BATCH, answer", NPULINK_POST_BATCH, AT, at_batch, 0, 0 },
	{ "POST_BATCH, posts", NPULINK_POST_BATCH, IN, in_batch_posts, -EINVAL, 0 },
	{ "POST_BATCH, seq", NPULINK_POST_BATCH, AT, at_batch_seq, 0, 0 },
	{ "WAIT, result", NPULINK_WAIT, AT, at_wait, 0, 0 },
	{ "RING_SETUP, answer", NPULINK_RING_SETUP, AT, at_ring, 0, 0 },
};

/* They return nothing and have no array; PORT_INFO answers with no lock held, if at all. */
static const unsigned long cannot_stall[] = {
	NPULINK_COMM_ABORT, NPULINK_DESTROY, NPULINK_PORT_INFO,
};

/* ---- Alice */

struct slow_call {
	int fd, rc;
	unsigned long cmd;
	void *arg;
};

static void *slow_call(void *arg)
{
	struct slow_call *c = arg;

	__atomic_store_n(&c->rc, raw_ioctl(c->fd, c->cmd, c->arg), __ATOMIC_RELEASE);
	return NULL;
}

/* 1 while it waits. */
static int slow_rc(const struct slow_call *c)
{
	return __atomic_load_n(&c->rc, __ATOMIC_ACQUIRE);
}

/* Says 1 when the call waits, and what it gave once the page has come. */
static void alice_main(const struct stall *st, int dev, int sk)
{
	struct npulink_buf_export exp = { .size = sizeof(exp) };
	struct slow_call call = { .cmd = st->cmd, .rc = 1 };
	struct pollfd p = { .events = POLLIN };
	static struct alice a;
	uint8_t secret[16];
	pthread_t thread;
	uint64_t off;
	int r;

	/* Privileged: it stops the kernel, too. */
	if (gate_make(&a.gate, st->write)) {
		tell(sk, -1);
		_exit(0);
	}
	unlimit_memlock();
	become(ALICE);
	raw_secret(secret);
	a.t.n = 2;
	for (r = 0; r < 2; r++)
		RAW_CHECK(!member_join(&a.t.m[r], r ? 1 : dev, secret, r, 2, LEN));
	a.buf = raw_buf_alloc(a.t.m[0].fd, LEN, &off);
	exp.id = a.buf;
	RAW_CHECK(a.buf > 0 && !raw_ioctl(a.t.m[0].fd, NPULINK_BUF_EXPORT, &exp));
	a.dmabuf = exp.out_fd;
	if (st->write)
		gate_page(&a.gate)[0] = 0;
	call.arg = st->prepare(&a);
	call.fd = a.t.m[0].fd;
	if (st->write)
		RAW_CHECK(!gate_protect(&a.gate, true));
	RAW_CHECK(!pthread_create(&thread, NULL, slow_call, &call));
	p.fd = a.gate.fd;
	while (poll(&p, 1, 100) != 1 && slow_rc(&call) == 1)
		;
	r = slow_rc(&call);
	if (r != 1)
		fprintf(stderr, "# %s does not wait: %d\n", st->name, r);
	RAW_CHECK(r == 1 || (st->pins && r == st->pins));
	tell(sk, r == 1);
	hear(sk);
	if (r == 1) {
		RAW_CHECK(slow_rc(&call) == 1);	/* all the time */
		RAW_CHECK(!gate_open(&a.gate));
	}
	pthread_join(thread, NULL);
	tell(sk, call.rc == st->pins ? st->rc : call.rc);
	_exit(0);
}

/* ---- Bob, and the administrator */

static void dumps(int family)
{
	static const int cmds[] = {
		NPULINK_GENL_CMD_DEV_GET, NPULINK_GENL_CMD_LINK_GET, NPULINK_GENL_CMD_COMM_GET,
		NPULINK_GENL_CMD_RANK_GET, NPULINK_GENL_CMD_OP_GET, NPULINK_GENL_CMD_FILE_GET,
		NPULINK_GENL_CMD_BUF_GET, NPULINK_GENL_CMD_CONN_GET, NPULINK_GENL_CMD_PORT_GET,
		NPULINK_GENL_CMD_FLIGHT_GET,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cmds); i++)
		RAW_CHECK(nl_count(family, cmds[i]) >= 0);
}

/* Open, create, plan, post, shrink, destroy, close and dump. */
static void whole_life(void)
{
	struct npulink_ring_setup ring = { .size = sizeof(ring), .entries = 8, .eventfd = -1 };
	struct npulink_comm_shrink shr = { .size = sizeof(shr) };
	int family, sock = nl_open(), id, r;
	struct member *m;
	uint64_t off;
	struct team t;

	/* Both see what they may. */
	family = nl_family(sock, NULL);
	RAW_CHECK(family > 0);
	close(sock);
	dumps(family);
	become(BOB);
	dumps(family);
	RAW_CHECK(!team_open(&t, 2, 2, LEN));
	RAW_CHECK(!team_allreduce(&t, 1));
	for (r = 0; r < 2; r++) {
		m = &t.m[r];
		id = raw_buf_alloc(m->fd, LEN, &off);
		RAW_CHECK(id > 0 && !raw_destroy(m->fd, id));
		RAW_CHECK(!raw_ioctl(m->fd, NPULINK_RING_SETUP, &ring));
		RAW_CHECK(!raw_destroy(m->fd, m->plan) && !raw_destroy(m->fd, m->buf));
		if (!r)
			RAW_CHECK(!raw_abort(m->fd, m->comm, 1));
		shr.comm_id = m->comm;
		RAW_CHECK(!raw_ioctl(m->fd, NPULINK_COMM_SHRINK, &shr));
		RAW_CHECK(!raw_destroy(m->fd, m->comm));
	}
	team_close(&t);
	_exit(0);
}

FIXTURE(stalls) {
	int sk[2];
	unsigned int ms;	/* what takes longer is stuck */
};

FIXTURE_SETUP(stalls)
{
	struct timeval tv = { .tv_sec = 30 };

	if (getuid())
		SKIP_CASE("only root can be two users");
	raw_knobs_reset(4);
	self->ms = getenv("NPULINK_SLOW") ? 30000 : 10000;
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, self->sk));
	/* A child that gives up says nothing. */
	ASSERT_EQ(0, setsockopt(self->sk[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
}

FIXTURE_TEARDOWN(stalls)
{
	close(self->sk[0]);
	close(self->sk[1]);
}

/* Where a process is, for who has to find out why. */
static void tell_stack(pid_t pid)
{
	char command[160];

	snprintf(command, sizeof(command), "for s in /proc/%d/task/*/stack; do cat $s; echo; done |"
		 " sed 's/^/# /' >&2", pid);
	if (system(command))
		fprintf(stderr, "# no stack\n");
}

/* Exit status of a child that ends in time; else where it is, and -ETIME. */
static int reap_in(pid_t pid, unsigned int ms)
{
	uint64_t until = raw_now() + ms * 1000000ULL;
	int status;

	while (raw_now() < until) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		raw_sleep_ms(2);
	}
	tell_stack(pid);
	return -ETIME;
}

/* fork(), and its name for the child. */
static pid_t life_begin(void)
{
	pid_t pid = fork();

	if (!pid)
		whole_life();
	return pid;
}

TEST_F(stalls, others_go_on)
{
	uint64_t alone, from, worst = 0;
	const char *where = "";
	unsigned int i;
	pid_t alice, bob;
	int rc, stuck;

	from = raw_now();
	ASSERT_EQ(0, reap_in(life_begin(), self->ms));
	alone = raw_now() - from;
	for (i = 0; i < ARRAY_SIZE(stalls); i++) {
		alice = fork();
		if (!alice)
			alice_main(&stalls[i], 0, self->sk[1]);
		rc = hear(self->sk[0]);
		if (rc < 0) {
			raw_reap(alice);
			SKIP(return, "this kernel has no userfaultfd that protects");
		}
		from = raw_now();
		bob = life_begin();
		stuck = reap_in(bob, self->ms);
		EXPECT_EQ(0, stuck)
			TH_LOG("beside %s", stalls[i].name);
		if (raw_now() - from > worst) {
			worst = raw_now() - from;
			where = stalls[i].name;
		}
		tell(self->sk[0], 1);
		EXPECT_EQ(stalls[i].rc, hear(self->sk[0]))
			TH_LOG("%s", stalls[i].name);
		EXPECT_EQ(0, raw_reap(alice));
		/* The others take as long to be found. */
		if (stuck)
			break;
	}
	TH_LOG("a life alone takes %.1f ms, beside a stalled call %.1f ms at worst (%s)",
	       alone * 1e-6, worst * 1e-6, where);
}

static int new_device(void)
{
	int i, fd;

	if (raw_write(RAW_SOFT "/new_device", "1"))
		return -1;
	for (i = 8; i < 64; i++) {
		fd = raw_open(i);
		if (fd >= 0) {
			close(fd);
			return i;
		}
	}
	return -1;
}

/* The device that the call is made on. */
TEST_F(stalls, the_device_can_go)
{
	unsigned int i;
	char text[16];
	pid_t alice, admin;
	int dev, rc, stuck;

	for (i = 0; i < ARRAY_SIZE(stalls); i++) {
		dev = new_device();
		ASSERT_LE(8, dev);
		/* There may be no udevd. */
		snprintf(text, sizeof(text), "npu%d", dev);
		rc = system("chgrp --reference=/dev/npulink/npu0 /dev/npulink/*;"
			    "chmod --reference=/dev/npulink/npu0 /dev/npulink/*");
		alice = fork();
		if (!alice)
			alice_main(&stalls[i], dev, self->sk[1]);
		rc = hear(self->sk[0]);
		if (rc < 0) {
			raw_reap(alice);
			raw_write(RAW_SOFT "/del_device", text);
			SKIP(return, "this kernel has no userfaultfd that protects");
		}
		admin = fork();
		if (!admin)
			_exit(raw_write(RAW_SOFT "/del_device", text) ? 1 : 0);
		stuck = reap_in(admin, self->ms);
		EXPECT_EQ(0, stuck)
			TH_LOG("%s keeps its device", stalls[i].name);
		tell(self->sk[0], 1);
		rc = hear(self->sk[0]);
		EXPECT_TRUE(rc == stalls[i].rc || rc == -ENODEV)
			TH_LOG("%s: %d", stalls[i].name, rc);
		EXPECT_EQ(0, raw_reap(alice));
		if (stuck)
			break;
	}
}

TEST_F(stalls, every_ioctl_is_here)
{
	uint32_t arg[64] = {};
	unsigned int nr, i;
	int fd = raw_open(0);
	bool found;

	/* Too small a structure is EINVAL, no such ioctl ENOTTY. */
	for (nr = 0; nr < 256; nr++) {
		if (raw_ioctl(fd, _IO(NPULINK_TYPE, nr), arg) == -ENOTTY)
			continue;
		found = false;
		for (i = 0; i < ARRAY_SIZE(stalls); i++)
			found |= _IOC_NR(stalls[i].cmd) == nr;
		for (i = 0; i < ARRAY_SIZE(cannot_stall); i++)
			found |= _IOC_NR(cannot_stall[i]) == nr;
		EXPECT_TRUE(found)
			TH_LOG("ioctl %u is not tested", nr);
	}
	close(fd);
}

/* ---- a batch that has begun, and whose next post is late */

/* Two ranks of a communicator, in two processes: one sends, the other has work of its own. */
static int peer_plan(struct member *m, bool sender)
{
	struct npulink_slot slots[2] = {
		{ .min_len = 2 << 20, .access = NPULINK_SLOT_READ },
		{ .min_len = 2 << 20, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[2] = {
		raw_step(sender ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 64),
		raw_step(NPULINK_STEP_COPY, 1 << 20),
	};

	steps[0].send_peer = sender ? 1 : NPULINK_NO_PEER;
	steps[0].recv_peer = sender ? NPULINK_NO_PEER : 0;
	steps[0].dst_slot = !sender;
	steps[0].dst_off = sender ? 0 : 1 << 20;
	steps[1].dst_slot = 1;
	m->plan = raw_plan(m->fd, m->comm, slots, 2, steps, sender ? 1 : 2);
	return m->plan < 0 ? m->plan : 0;
}

static void batch_main(const uint8_t *secret, int sk)
{
	struct npulink_post_batch cmd;
	struct slow_call call = { .cmd = NPULINK_POST_BATCH, .arg = &cmd };
	struct pollfd p = { .events = POLLIN };
	struct npulink_post post;
	struct member m;
	struct gate gate;
	pthread_t thread;

	if (gate_make(&gate, false)) {
		tell(sk, -1);
		_exit(0);
	}
	RAW_CHECK(!member_join(&m, 0, secret, 0, 2, 2 << 20) && !peer_plan(&m, true));
	tell(sk, 1);
	hear(sk);
	post = member_post_cmd(&m, NPULINK_POST_HELD);
	cmd = batch_cmd(memcpy(gate_page(&gate) - sizeof(post), &post, sizeof(post)), 2, 0);
	call.fd = m.fd;
	RAW_CHECK(!pthread_create(&thread, NULL, slow_call, &call));
	p.fd = gate.fd;
	RAW_CHECK(poll(&p, 1, 20000) == 1);
	tell(sk, 2);
	hear(sk);
	RAW_CHECK(!gate_open(&gate));
	pthread_join(thread, NULL);
	RAW_CHECK(call.rc == -EINVAL && cmd.out_posted == 1);
	_exit(0);
}

static int wait_for(int fd, uint64_t seq, unsigned int ms, struct npulink_result *res)
{
	struct npulink_wait cmd = {
		.size = sizeof(cmd), .seq = seq, .wait_until_ns = raw_now() + ms * 1000000ULL,
	};
	int rc = raw_ioctl(fd, NPULINK_WAIT, &cmd);

	*res = cmd.out_result;
	return rc;
}

/* What it has posted goes on, and ends. */
TEST_F(stalls, a_batch_keeps_no_peer)
{
	struct npulink_result res = {};
	uint8_t secret[16];
	struct member m;
	uint64_t seq;
	pid_t pid;
	int rc;

	raw_secret(secret);
	pid = fork();
	if (!pid)
		batch_main(secret, self->sk[1]);
	rc = hear(self->sk[0]);
	if (rc < 0) {
		raw_reap(pid);
		SKIP(return, "this kernel has no userfaultfd");
	}
	ASSERT_EQ(0, member_join(&m, 1, secret, 1, 2, 2 << 20));
	ASSERT_EQ(0, peer_plan(&m, false));
	/* Our own work is with the engine when the other one's message comes. */
	ASSERT_EQ(0, raw_knob(1, "hold", 0));
	ASSERT_EQ(0, member_start(&m, 0, &seq));
	ASSERT_TRUE(RAW_EVENTUALLY(raw_knob_get(1, "held") > 0));
	tell(self->sk[0], 1);
	ASSERT_EQ(2, hear(self->sk[0]));
	ASSERT_EQ(0, raw_knob(1, "hold", RAW_HOLD_OFF));
	EXPECT_EQ(0, wait_for(m.fd, seq, self->ms, &res));
	EXPECT_EQ(0, res.status);
	tell(self->sk[0], 1);
	EXPECT_EQ(0, raw_reap(pid));
	member_leave(&m);
}

TEST_HARNESS_MAIN
