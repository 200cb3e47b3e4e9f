// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_agree_lies.c - a rank that wants to go on after a failure agrees about that with another
 * machine, which is played here, and lies. It is cut off, and the rank goes on without it; into
 * a communicator with a secret that it was not meant to have, or with ranks that there are not,
 * it gets nobody. And what the rank itself may ask for is counted.
 *
 * npulink-test: cpus=1 modules=none timeout=240
 */
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "agree_member.h"

#define GROUP		"/sys/fs/cgroup/npulink-agree"

struct agree_lie {
	const char *what;
	uint8_t instead;		/* of what */
	void (*make)(struct agree_msg *m);
	size_t len;			/* if it is not that of the message */
	bool first_right;		/* what it is instead of has been said before */
};

#define LIE(name, body) static void name(struct agree_msg *m) { body; }

LIE(lie_none, (void)m)
LIE(lie_type, m->head.type = NPULINK_WIRE_AGREES)
LIE(lie_bye, memset(&m->head, 0, sizeof(m->head)); m->head.type = NPULINK_WIRE_BYE)
LIE(lie_seq, m->head.seq++)
LIE(lie_flags, m->head.flags = 1)
LIE(lie_credits, m->head.credits = 1)
LIE(lie_reserved, m->head.agree.reserved[83] = 1)
LIE(lie_agree_flags, m->head.agree.flags = 2)
LIE(lie_unreached, m->alive.dead[0] = 2)
LIE(lie_offer_flags, m->head.agree.flags = NPULINK_WIRE_MINORITY)
LIE(lie_nonce, m->head.agree.nonce[0] = 1)
LIE(lie_size, m->head.agree.size--)
LIE(lie_cause, m->alive.cause.cause = 99)
LIE(lie_cause_rank, m->alive.cause.rank = 2)
LIE(lie_port, m->alive.cause.port[0] = 1)
LIE(lie_hash, m->alive.places ^= 1)
LIE(lie_nplaces, m->alive.nplaces = 3)
LIE(lie_nranks, m->alive.nranks = 2)
LIE(lie_dead, m->alive.dead[0] = 4)
LIE(lie_dead_far, m->alive.dead[1023] = 0x80)
LIE(lie_live, m->alive.live[0] = 3)
LIE(lie_live_far, m->alive.live[1023] = 0x80)
LIE(lie_fewer, m->alive.live[0] = 0)
LIE(lie_unused, m->head.number = 1)
LIE(lie_as_offer, m->head.type = NPULINK_WIRE_OFFER; m->head.number = 1;
	m->head.agree.size = sizeof(m->offer); m->offer.places[0] = 3)
LIE(lie_number, m->head.number = 0)
LIE(lie_huge, m->head.number = 1ULL << 32)
LIE(lie_decider, m->head.agree.decider = 1)
LIE(lie_beyond, m->offer.places[0] = 7)
LIE(lie_without_us, m->offer.places[0] = 1)
LIE(lie_without_him, m->offer.places[0] = 2)
LIE(lie_commit_early, m->head.type = NPULINK_WIRE_COMMIT; m->head.number = 1;
	m->head.agree.size = 0; memset(m->head.agree.nonce, 0, 16))
LIE(lie_accept, m->head.type = NPULINK_WIRE_ACCEPT; m->head.number = 1;
	m->head.agree.decider = 1; m->head.agree.size = 0; memset(m->head.agree.nonce, 0, 16))
LIE(lie_other, m->head.number = 2)
LIE(lie_whose, m->head.agree.decider = 1)
LIE(lie_nobodys, m->head.agree.decider = 8192)

#define ALIVE(text, fn)		{ .what = text, .instead = NPULINK_WIRE_ALIVE, .make = fn }
#define OFFER(text, fn)		{ .what = text, .instead = NPULINK_WIRE_OFFER, .make = fn }
#define COMMIT(text, fn)	{ .what = text, .instead = NPULINK_WIRE_COMMIT, .make = fn }
#define HEADER			sizeof(struct npulink_wire_msg)

static const struct agree_lie agree_lies[] = {
	ALIVE("an unknown type", lie_type),
	ALIVE("what belongs to another kind of connection", lie_bye),
	ALIVE("a number too far", lie_seq),
	ALIVE("flags", lie_flags),
	ALIVE("credits", lie_credits),
	ALIVE("reserved bytes", lie_reserved),
	ALIVE("another flag than there is", lie_agree_flags),
	ALIVE("a nonce that is not one", lie_nonce),
	ALIVE("another size than it has", lie_size),
	{ "half a header", NPULINK_WIRE_ALIVE, lie_none, 60, false },
	{ "half of who is alive", NPULINK_WIRE_ALIVE, lie_none, HEADER + 500, false },
	ALIVE("an unknown cause", lie_cause),
	ALIVE("a cause at a rank that is not there", lie_cause_rank),
	ALIVE("a port that cannot be printed", lie_port),
	ALIVE("that ranks are elsewhere", lie_hash),
	ALIVE("that there are more machines", lie_nplaces),
	ALIVE("that there are more ranks", lie_nranks),
	ALIVE("that a machine is dead that there is not", lie_dead),
	ALIVE("the same of the last of all", lie_dead_far),
	ALIVE("that a rank lives that there is not", lie_live),
	ALIVE("the same of the last of all", lie_live_far),
	ALIVE("that it cannot reach whom it tells so", lie_unreached),
	ALIVE("the number of an offer", lie_unused),
	ALIVE("an offer before it says who is alive", lie_as_offer),
	{ "that a rank has died since", NPULINK_WIRE_ALIVE, lie_fewer, 0, true },
	OFFER("an offer without number", lie_number),
	OFFER("an offer with the flag of something else", lie_offer_flags),
	OFFER("an offer with a huge number", lie_huge),
	OFFER("another one's offer", lie_decider),
	OFFER("an offer with a machine that there is not", lie_beyond),
	OFFER("an offer without the rank", lie_without_us),
	OFFER("an offer without itself", lie_without_him),
	{ "half an offer", NPULINK_WIRE_OFFER, lie_none, HEADER + 100, false },
	OFFER("that an offer holds that there was not", lie_commit_early),
	OFFER("that it accepts what it was not offered", lie_accept),
	{ "the same offer again", NPULINK_WIRE_OFFER, lie_none, 0, true },
	COMMIT("that another offer holds", lie_other),
	COMMIT("that the rank's own offer holds, which it has not made", lie_whose),
	COMMIT("that an offer of a machine holds that there is not", lie_nobodys),
	{ "more than that it holds", NPULINK_WIRE_COMMIT, lie_none, HEADER + 1, false },
};

/* It is cut off, and the rank goes on alone. */
static bool caught(const struct agree_lie *lie)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, lie->instead);
	if (ok && lie->first_right)
		ok = lie->instead == NPULINK_WIRE_OFFER ? offer(&a) : say_right(&a, lie->instead);
	m = message(&a, lie->instead);
	lie->make(&m);
	ok = ok && say(&a, &m, lie->len ?: sizeof(m.head) + m.head.agree.size) &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* It cannot reach a machine, and then it can. */
static bool is_back(void)
{
	struct agree_msg m;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_ALIVE);
	m = message(&a, NPULINK_WIRE_ALIVE);
	m.alive.dead[0] = 1;
	ok = ok && say(&a, &m, sizeof(m.head) + m.head.agree.size) &&
	     say_right(&a, NPULINK_WIRE_ALIVE) && hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/* Memory is not granted in an agreement, so nothing can have arrived. */
static bool writes(void)
{
	const uint32_t imm = 0;
	struct survivor s;
	struct agreer a;
	bool ok;

	if (!survivor_init(&s, BOUND, true, true))
		return false;
	ok = begin(&a, &s, NPULINK_WIRE_OFFER) && !hostile_write(&a.h, 0, 0, 0, &imm) &&
	     hostile_dropped(&a.h, 10000);
	hostile_end(&a.h);
	return survivor_end(&s, 1) && ok;
}

/*
 * What an agreement needs is the user's to pay, although a worker takes it: not without room in
 * RLIMIT_MEMLOCK, and with it, at the next try.
 */
static int limited(void)
{
	struct rlimit limit = { 64 << 10, 4 << 20 };
	struct survivor s;
	struct stat st;

	if (stat("/dev/npulink/npu0", &st) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
	    setgroups(0, NULL) || setresgid(st.st_gid, st.st_gid, st.st_gid) ||
	    setresuid(60001, 60001, 60001))
		return 1;
	if (!survivor_init(&s, SHORT, true, true))
		return 2;
	pthread_join(s.thread, NULL);
	if (s.rc != -ENOMEM) {
		ksft_print_msg("%d\n", s.rc);
		return 3;
	}
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || pthread_create(&s.thread, NULL, ask, &s))
		return 4;
	return survivor_end(&s, 1) ? 0 : 5;
}

static bool pays(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(limited());
	if (waitpid(pid, &status, 0) != pid || status)
		ksft_print_msg("status %#x\n", status);
	return !status;
}

/* Bytes of kernel memory that the group has. */
static long group_kernel(void)
{
	char line[128];
	long n = -1;
	FILE *f = fopen(GROUP "/memory.stat", "re");

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, "kernel ", 7))
			n = atol(line + 7);
	if (f)
		fclose(f);
	return n;
}

static int grouped(void)
{
	struct survivor s;
	bool grew, shrank;
	long base;

	if (raw_write(GROUP "/cgroup.procs", "0") || !survivor_init(&s, LONG, true, false))
		return 1;
	base = group_kernel();
	if (base < 0 || pthread_create(&s.thread, NULL, ask, &s))
		return 2;
	/* Nobody answers at the other end; what there is to talk to him is there. */
	grew = RAW_EVENTUALLY(group_kernel() > base + (256 << 10));
	if (!survivor_end(&s, 1))
		return 3;
	shrank = RAW_EVENTUALLY(group_kernel() < base + (128 << 10));
	if (!grew || !shrank)
		ksft_print_msg("kernel memory of its group: %ld before, %ld after\n", base,
			       group_kernel());
	return grew && shrank ? 0 : 4;
}

/* The same of its memory cgroup. */
static bool pays_in_group(void)
{
	int status = 0;
	pid_t pid;

	if (raw_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	    (mkdir(GROUP, 0755) && errno != EEXIST)) {
		ksft_print_msg("no memory cgroup\n");
		return false;
	}
	pid = fork();
	if (!pid)
		_exit(grouped());
	if (waitpid(pid, &status, 0) != pid || status)
		ksft_print_msg("status %#x\n", status);
	rmdir(GROUP);
	return !status;
}

/* ---- very many machines ---------------------------------------------------------------- */

#define MANY_RANKS	(1U << 16)
#define MANY_IDS	8000U		/* ids of machines, and then the last of them again */
#define MANY_AGAIN	16U
#define MANY_MS		10000		/* it was some minutes */

/* Where they are, one after the other, is quickly found out. What for, there is no memory. */
static int asks_with_many(int out)
{
	struct npulink_peer *peers = calloc(MANY_RANKS, sizeof(*peers));
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .first = 1, .npeers = MANY_RANKS - 1,
		.peers = (uintptr_t)(peers + 1),
	};
	struct npulink_comm_shrink shrink = { .size = sizeof(shrink) };
	struct rlimit limit = { 1 << 20, 1 << 20 };
	uint8_t secret[16];
	struct stat st;
	int fd;

	if (!peers || stat("/dev/npulink/npu0", &st) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
	    setgroups(0, NULL) || setresgid(st.st_gid, st.st_gid, st.st_gid) ||
	    setresuid(60001, 60001, 60001))
		return 1;
	raw_secret(secret);
	fd = raw_open(0);
	cmd.comm_id = raw_comm_timeout(fd, secret, 0, MANY_RANKS, SHORT);
	for (uint32_t i = 1; i < MANY_RANKS; i++) {
		uint32_t id = i < MANY_IDS ? i : MANY_IDS - 1 - i % MANY_AGAIN;

		if (i == 1 && rxe_peer(&peers[1], fd, IP, htons(1)))
			return 2;
		peers[i] = peers[1];
		memcpy(peers[i].node_id + 4, &id, sizeof(id));
	}
	if (raw_ioctl(fd, NPULINK_COMM_PEERS, &cmd) || raw_abort(fd, cmd.comm_id, 1) ||
	    write(out, "a", 1) != 1)
		return 3;
	shrink.comm_id = cmd.comm_id;
	if (raw_ioctl(fd, NPULINK_COMM_SHRINK, &shrink) != -ENOMEM || write(out, "b", 1) != 1)
		return 4;
	return 0;
}

static bool many(void)
{
	struct pollfd p = { .events = POLLIN };
	bool asked, ok = false;
	int64_t start;
	int fds[2], status;
	char c;
	pid_t pid;

	if (pipe(fds))
		return false;
	pid = fork();
	if (!pid)
		_exit(asks_with_many(fds[1]));
	close(fds[1]);
	p.fd = fds[0];
	asked = read(fds[0], &c, 1) == 1;
	start = hostile_ms();
	if (asked)
		ok = poll(&p, 1, MANY_MS) == 1 && read(fds[0], &c, 1) == 1;
	if (!ok)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fds[0]);
	if (!ok || status)
		ksft_print_msg("%sasked, status %#x after %d ms\n", asked ? "" : "not ", status,
			       (int)(hostile_ms() - start));
	/* To forget so many takes a while. */
	for (int i = 0; i < 60 && !nothing_left(); i++)
		raw_sleep_ms(1000);
	return ok && !status;
}

int main(void)
{
	rxe_apart();
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	set_up();
	ksft_set_plan(ARRAY_SIZE(agree_lies) + 5 + 2);
	for (unsigned int i = 0; i < ARRAY_SIZE(agree_lies); i++)
		ksft_test_result(caught(&agree_lies[i]), "a member says %s\n", agree_lies[i].what);
	ksft_test_result(is_back(), "a member says that a machine is back\n");
	ksft_test_result(writes(), "a member writes\n");
	ksft_test_result(pays(), "its memory counts for the user who asks\n");
	ksft_test_result(pays_in_group(), "and for the cgroup of the process\n");
	ksft_test_result(many(), "very many machines\n");
	all_left();
}
