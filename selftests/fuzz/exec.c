// SPDX-License-Identifier: GPL-2.0
/*
 * exec.c - runs one program of calls, see prog.h.
 *
 * What calls have made is kept in small tables that all threads use without locks:
 * stale and wrong ids are as welcome as right ones. Waits are short, and a timer ends
 * the process in the middle of whatever does not come to an end.
 */
#include <assert.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include "exec.h"
#include "raw.h"

struct exec ex;

struct thing *exec_add(struct thing *table, uint32_t *n, int fd, uint32_t id)
{
	struct thing *t = &table[__atomic_fetch_add(n, 1, __ATOMIC_RELAXED) % THINGS];

	t->fd = fd;
	t->id = id;
	return t;
}

struct thing exec_pick(struct rnd *r, const struct thing *table, uint32_t n)
{
	if (!n || rnd_one_in(r, 24))
		return (struct thing) {
			.fd = ex.files[rnd_below(r, FILES)], .id = rnd_below(r, 9),
		};
	return table[rnd_below(r, n < THINGS ? n : THINGS)];
}

struct thing exec_pick_buf(struct rnd *r, int fd, uint64_t len)
{
	uint32_t tries = 1 + rnd_below(r, 16);
	struct thing buf;

	do {
		buf = exec_pick(r, ex.bufs, ex.nbufs);
	} while (--tries && (buf.fd != fd || buf.len < len));
	return buf;
}

/* Some are closed, or have never been opened. */
int exec_file(struct rnd *r)
{
	uint32_t tries = 1 + rnd_below(r, 8);
	int fd;

	do {
		fd = ex.files[rnd_below(r, FILES)];
	} while (fd < 0 && --tries);
	return fd;
}

uint64_t exec_soon(struct rnd *r)
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

void exec_complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ex.env->shared->complaint, sizeof(ex.env->shared->complaint), fmt, ap);
	va_end(ap);
	_exit(1);
}

/* ---- other processes and threads */

static void exec_one(const struct call *c);

static void exec_fork(struct rnd *r, uint8_t bend)
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
		exec_one(&c);
	}
	_exit(0);
}

static void exec_kill(struct rnd *r, uint8_t bend)
{
	struct call c = { .op = OP_TEAM_POST, .seed = rnd_next(r) };
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(1);
		c.op = OP_TEAM;
		exec_one(&c);
		c.op = OP_COMM;		/* beside our own ranks, if the secret is theirs */
		exec_one(&c);
		c.op = OP_TEAM_POST;
		for (;;)
			exec_one(&c);
	}
	if (pid < 0)
		return;
	usleep(rnd_below(r, 20000));
	kill(pid, SIGKILL);
}

static void exec_signal(struct rnd *r, uint8_t bend)
{
	pthread_t t = ex.threads[rnd_below(r, PROG_THREADS)];

	if (t)
		pthread_kill(t, SIGUSR1);
}

/* ---- a program */

static void exec_open(struct rnd *r, uint8_t bend)
{
	uint32_t i = rnd_below(r, FILES);

	ex.files[i] = raw_open(rnd_below(r, ex.env->ndev));
}

static void exec_close(struct rnd *r, uint8_t bend)
{
	close(exec_file(r));
}

static void exec_nap(struct rnd *r, uint8_t bend)
{
	usleep(rnd_below(r, 3000));
}

static void (* const ops[])(struct rnd *r, uint8_t bend) = {
	[OP_TEAM] = exec_team, [OP_TEAM_POST] = exec_team_post, [OP_OPEN] = exec_open,
	[OP_CLOSE] = exec_close, [OP_INFO] = exec_info, [OP_REGISTER] = exec_register,
	[OP_ALLOC] = exec_alloc, [OP_IMPORT] = exec_import, [OP_EXPORT] = exec_export,
	[OP_COMM] = exec_comm, [OP_PEERS] = exec_peers, [OP_ABORT] = exec_abort,
	[OP_STATUS] = exec_status, [OP_PLAN] = exec_plan, [OP_POST] = exec_post,
	[OP_BATCH] = exec_batch, [OP_WAIT] = exec_wait, [OP_RING] = exec_ring,
	[OP_DESTROY] = exec_destroy, [OP_SHRINK] = exec_shrink, [OP_MMAP] = exec_mmap,
	[OP_MEMORY] = exec_memory, [OP_TAIL] = exec_tail, [OP_POLL] = exec_poll,
	[OP_RAW] = exec_raw, [OP_FORK] = exec_fork, [OP_KILL] = exec_kill,
	[OP_SIGNAL] = exec_signal, [OP_GENL] = exec_genl, [OP_KNOB] = exec_knob,
	[OP_FAIL_NTH] = exec_fail_nth, [OP_NAP] = exec_nap, [OP_PORT_INFO] = exec_port_info,
	[OP_REMOTE] = exec_remote, [OP_POLICY] = exec_policy, [OP_EVENTS] = exec_events,
	[OP_DEVICE] = exec_device, [OP_BOARD] = exec_board, [OP_SCRIBBLE] = exec_scribble,
};
static_assert(ARRAY_SIZE(ops) == OPS, "each can be run");

static void exec_one(const struct call *c)
{
	struct rnd r = { c->seed };

	ex.env->shared->ops[c->op]++;
	ops[c->op](&r, c->bend);
}

static void *thread_main(void *arg)
{
	uint32_t thread = (uintptr_t)arg, i;

	ex.env->thread_begin(thread);
	for (i = 0; i < ex.prog->n; i++)
		if (ex.prog->calls[i].thread == thread)
			exec_one(&ex.prog->calls[i]);
	return NULL;
}

static void on_signal(int sig)
{
}

/* An ordinary user, or one who is root in namespaces of his own and nowhere else. */
static void become(uint8_t as, uint32_t limit)
{
	struct rlimit memlock = { limit, limit };
	char map[32];

	if (setgroups(0, NULL) || setresgid(ex.env->gid, ex.env->gid, ex.env->gid) ||
	    setresuid(ex.env->uid, ex.env->uid, ex.env->uid))
		exec_complain("cannot become user %u", ex.env->uid);
	ex.uid = ex.env->uid;
	setrlimit(RLIMIT_MEMLOCK, &memlock);
	/* Else what is in /proc belongs to root, fail-nth, too. */
	prctl(PR_SET_DUMPABLE, 1);
	if (as != AS_NAMESPACE || (unshare(CLONE_NEWUSER | CLONE_NEWNET) && unshare(CLONE_NEWUSER)))
		return;
	snprintf(map, sizeof(map), "0 %u 1", ex.env->uid);
	raw_write("/proc/self/uid_map", map);
}

void exec_prog(const struct prog *p, const struct exec_env *env)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct itimerval limit = { .it_value.tv_sec = 1 };
	uint32_t used = 0, i;

	/* Connections take their time. */
	for (i = 0; i < p->n; i++)
		if (p->calls[i].op == OP_REMOTE)
			limit.it_value.tv_sec = 2;
	ex.prog = p;
	ex.env = env;
	ex.pid = getpid();
	ex.uid = getuid();
	ex.root = env->root && p->as == AS_ROOT;
	if (env->root && p->as != AS_ROOT)
		become(p->as, 65536U << p->calls[0].seed % 8);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGCHLD, SIG_IGN);
	setitimer(ITIMER_REAL, &limit, NULL);
	for (i = 0; i < AREAS + MAPPED; i++)
		ex.areas[i] = raw_anon(AREA);
	ex.words = memfd_create("words", MFD_CLOEXEC);
	ex.edge = raw_anon(8192);
	munmap(ex.edge + 4096, 4096);
	ex.readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < FILES; i++)
		ex.files[i] = i < 2 ? raw_open(i) : -1;
	for (i = 0; i < p->n; i++)
		used |= 1U << p->calls[i].thread;
	for (i = 1; i < PROG_THREADS; i++)
		if (used >> i & 1 && pthread_create(&ex.threads[i], NULL, thread_main,
						    (void *)(uintptr_t)i))
			ex.threads[i] = 0;
	ex.threads[0] = pthread_self();
	thread_main(NULL);
	for (i = 1; i < PROG_THREADS; i++)
		if (ex.threads[i])
			pthread_join(ex.threads[i], NULL);
	_exit(0);
}
