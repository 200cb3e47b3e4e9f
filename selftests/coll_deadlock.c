// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * coll_deadlock - processes that wait for each other through several communicators, or by
 * receives alone, are told so; those that only look like it are left alone.
 */
#include "cases.h"
#include "coll_ranks.h"
#include "lib/run/comm.h"
#include "nl.h"
#include "raw.h"

#define RANKS	3

/* Found by a search every half second; before that only the deadline would tell. */
#define SOON_MS	(getenv("NPULINK_SLOW") ? 60000 : 20000)

static struct ranks *others[RANKS];	/* of more communicators */
static int data[2][1000];

static int allreduce(struct coll_comm *comm)
{
	return coll_allreduce(comm, data[0], data[1], 1000, COLL_INT32, COLL_SUM);
}

static int take(struct coll_comm *comm, uint32_t peer)
{
	return coll_recv(comm, data[1], 10, COLL_INT32, peer);
}

static int give(struct coll_comm *comm, uint32_t peer)
{
	return coll_send(comm, data[0], 10, COLL_INT32, peer);
}

/*
 * The text names a circle: who waits next is whom the one before waits for, each in one
 * communicator. All ranks of these tests have the same number in all communicators.
 */
static bool circle(const char *text)
{
	unsigned int comm[8], rank[8], peer[8], n = 0;

	for (text = strstr(text, "(comm"); text && n < 8; text = strstr(text, ", comm")) {
		if (sscanf(text, "%*[(, ]comm %u rank %u for rank %u", &comm[n], &rank[n],
			   &peer[n]) != 3)
			return false;
		n++;
		text++;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (!comm[i] || rank[(i + 1) % n] != peer[i])
			return false;
		for (unsigned int k = 0; k < i; k++)
			if (rank[k] == rank[i])
				return false;
	}
	return n > 1;
}

/* A rank was told of a circle, in words; the number of those who were is counted. */
static int told(struct ranks *ranks, struct coll_comm *comm, int rc, uint64_t start)
{
	if (rc != -EDEADLK)
		return rank_fail(ranks, coll_comm_rank(comm), "%d instead of EDEADLK", rc);
	if (!strstr(coll_comm_last_error(comm), "in a circle") ||
	    !circle(coll_comm_last_error(comm)))
		return rank_fail(ranks, coll_comm_rank(comm), "\"%s\"", coll_comm_last_error(comm));
	if (now_ms() - start > (uint64_t)SOON_MS)
		return rank_fail(ranks, coll_comm_rank(comm), "after %d ms",
				 (int)(now_ms() - start));
	__atomic_add_fetch(&ranks->number[0], 1, __ATOMIC_RELAXED);
	return 0;
}

/* ---- circles */

/*
 * Rank r begins with communicator r, then takes the one after it, so each waits for all
 * others. One communicator has to be broken for two ranks, two for three: then the last
 * one goes on and ends well.
 */
static int opposite_orders(struct ranks *ranks, struct coll_comm *comm)
{
	struct coll_comm *comms[RANKS] = { comm };
	uint32_t rank = coll_comm_rank(comm), k;
	uint64_t start;
	int rc = 0;

	for (k = 1; k < ranks->n; k++) {
		comms[k] = rank_join(others[k], rank);
		if (!comms[k])
			return rank_fail(ranks, rank, "%s", others[k]->text[rank]);
	}
	for (k = 0; !rc && k < ranks->n; k++)
		rc = coll_barrier(comms[k]);
	start = now_ms();
	for (k = 0; !rc && k < ranks->n; k++) {
		uint32_t c = (rank + k) % ranks->n;

		rc = allreduce(comms[c]);
		if (rc == -EDEADLK) {
			__atomic_or_fetch(&ranks->number[1], 1 << c, __ATOMIC_RELAXED);
			rc = told(ranks, comms[c], rc, start);
		}
	}
	for (k = 1; k < ranks->n; k++)
		rc |= coll_comm_destroy(comms[k]);
	return rc;
}

/* Both want to receive first. */
static int receives(struct ranks *ranks, struct coll_comm *comm)
{
	uint32_t rank = coll_comm_rank(comm);
	int rc = coll_barrier(comm);
	uint64_t start = now_ms();

	return rc ? rc : told(ranks, comm, take(comm, (rank + 1) % ranks->n), start);
}

/* Rank 1 waits for rank 0 by way of others: those who are in a collective with it. */
static int through_others(struct ranks *ranks, struct coll_comm *comm)
{
	uint32_t rank = coll_comm_rank(comm);
	int rc = coll_barrier(comm);
	uint64_t start = now_ms();

	if (rc)
		return rc;
	return told(ranks, comm, rank ? allreduce(comm) : take(comm, 1), start);
}

static void *second_thread(void *arg)
{
	return (void *)(long)take(arg, 1 - coll_comm_rank(arg));
}

/* Two threads in each of two processes, all of them receiving. */
static int threads(struct ranks *ranks, struct coll_comm *comm)
{
	uint32_t rank = coll_comm_rank(comm);
	struct coll_comm *more = rank_join(others[1], rank);
	pthread_t thread;
	uint64_t start = now_ms();
	void *result;
	int rc;

	if (!more)
		return -1;
	rc = coll_barrier(comm);
	if (rc || pthread_create(&thread, NULL, second_thread, more))
		return -1;
	rc = told(ranks, comm, take(comm, 1 - rank), start);
	/* The other communicator is a circle of its own; the younger one is broken first. */
	pthread_join(thread, &result);
	if ((long)result != -EDEADLK)
		rc = rank_fail(ranks, rank, "thread: %d", (int)(long)result);
	coll_comm_destroy(more);
	return rc;
}

/*
 * Ranks 0 and 1 wait for each other. Rank 2 waits for rank 0, in a younger communicator, which
 * is on no circle: it stays whole, and rank 0 goes on there.
 */
static int beside(struct ranks *ranks, struct coll_comm *comm)
{
	uint32_t rank = coll_comm_rank(comm);
	struct coll_comm *younger;
	uint64_t start;
	int rc = coll_barrier(comm);

	younger = rc ? NULL : rank_join(others[1], rank);
	if (!younger)
		return -1;
	rc = coll_barrier(younger);
	start = now_ms();
	if (rank == 2)
		rc = rc ? rc : take(younger, 0);
	else
		rc = rc ? rc : told(ranks, comm, take(comm, 1 - rank), start);
	if (!rank)
		rc = rc ? rc : give(younger, 2);
	coll_comm_destroy(younger);
	return rc;
}

/* What hog_start() starts; @up is told before it waits. */
static int hog_run(int up)
{
	uint32_t nsteps = 400000, i;
	struct npulink_slot slot = { .min_len = 4, .access = NPULINK_SLOT_WRITE };
	struct npulink_step *steps = malloc(nsteps * sizeof(*steps));
	int fd = raw_open(0), peer_fd = raw_open(1), comm, peer, plan, buf, rc = 0;
	uint8_t secret[16];

	if (!steps)
		return -ENOMEM;
	for (i = 0; i < nsteps; i++) {
		steps[i] = raw_step(NPULINK_STEP_RECV, 4);
		steps[i].recv_peer = 1;
	}
	raw_secret(secret);
	comm = raw_comm(fd, secret, 0, 2);
	peer = raw_comm(peer_fd, secret, 1, 2);
	plan = raw_plan(fd, comm, &slot, 1, steps, nsteps);
	buf = raw_register(fd, raw_anon(4096), 4096, 0);
	if (peer < 0 || plan < 0 || buf < 0)
		return -EIO;
	for (i = 0; i < 4 && !rc; i++) {
		struct npulink_post post = raw_post_cmd(plan, NPULINK_POST_HELD);

		if (i == 3) {
			post.flags = NPULINK_POST_WAIT;
			if (write(up, "x", 1) != 1)
				return -EIO;
		}
		raw_bind(&post, buf, 0, 4);
		rc = raw_ioctl(fd, NPULINK_POST, &post);
	}
	return rc;
}

/*
 * A process that waits for itself in operations that have more steps than a search will look at.
 * Returns when it waits, or a negative number.
 */
static pid_t hog_start(void)
{
	int up[2], n;
	pid_t pid;
	char c;

	if (pipe(up))
		return -1;
	pid = fork();
	if (!pid)
		_exit(!!hog_run(up[1]));
	close(up[1]);
	n = read(up[0], &c, 1);
	close(up[0]);
	/* Who began to wait a moment ago is not looked at yet. */
	sleep(getenv("NPULINK_SLOW") ? 15 : 4);
	return n == 1 ? pid : -1;
}

static pid_t hog;

/* Found although another user's circle is too large to be searched. */
static int beside_a_hog(struct ranks *ranks, struct coll_comm *comm)
{
	int rc = receives(ranks, comm);

	if (!rc && kill(hog, 0))
		rc = rank_fail(ranks, coll_comm_rank(comm), "the hog does not wait any more");
	return rc;
}

/* What is told of a circle that a thread may still break: an event, and nothing else. */

static int listen_to_events(void)
{
	struct timeval tv = { .tv_usec = 300000 };
	int sock = nl_open();
	uint32_t group;

	if (nl_family(sock, &group) < 0 ||
	    setsockopt(sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv))) {
		close(sock);
		return -1;
	}
	return sock;
}

/* How many events that came suspect a circle, and whether all of them are of ranks 0 and 1. */
static int suspected(int sock, bool *right)
{
	struct nlattr *attrs[NL_ATTRS], *edge[NL_ATTRS];
	char buf[8192];
	uint32_t rank;
	ssize_t len;
	int n = 0;

	*right = true;
	while ((len = recv(sock, buf, sizeof(buf), 0)) > (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN)) {
		nl_parse(buf + NLMSG_HDRLEN + GENL_HDRLEN,
			 ((struct nlmsghdr *)buf)->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
		if (nl_u32(attrs[NPULINK_A_EVENT_TYPE]) != NPULINK_EVENT_SUSPECT)
			continue;
		n++;
		rank = nl_u32(attrs[NPULINK_A_EVENT_RANK]);
		if (nl_u32(attrs[NPULINK_A_EVENT_CAUSE]) != NPULINK_CAUSE_DEADLOCK ||
		    nl_u32(attrs[NPULINK_A_EVENT_NCIRCLE]) != 2 || rank > 1 ||
		    nl_u32(attrs[NPULINK_A_EVENT_PEER]) != 1 - rank ||
		    !attrs[NPULINK_A_EVENT_CIRCLE]) {
			*right = false;
			continue;
		}
		/* The last edge of the circle leads back to the first. */
		nl_parse(nl_value(attrs[NPULINK_A_EVENT_CIRCLE]),
			 attrs[NPULINK_A_EVENT_CIRCLE]->nla_len - NLA_HDRLEN, edge);
		if (nl_u32(edge[NPULINK_A_CIRCLE_RANK]) != 1 - rank ||
		    nl_u32(edge[NPULINK_A_CIRCLE_PEER]) != rank)
			*right = false;
	}
	return n;
}

/* ---- what is none */

static int events;		/* of this process */

static void *late_sender(void *arg)
{
	uint64_t until = now_ms() + SOON_MS;
	bool right;

	/* Until both have been looked at; main() looks at what was told. */
	while (!suspected(events, &right) && now_ms() < until)
		;
	return (void *)(long)give(arg, 1 - coll_comm_rank(arg));
}

/* Both receive, and look like a circle, but have a thread each that will send. */
static int a_thread_will(struct ranks *ranks, struct coll_comm *comm)
{
	pthread_t thread;
	void *result;
	int rc = coll_barrier(comm);

	events = listen_to_events();
	if (rc || events < 0 || pthread_create(&thread, NULL, late_sender, comm))
		return -1;
	rc = take(comm, 1 - coll_comm_rank(comm));
	pthread_join(thread, &result);
	return rc ? rc : (int)(long)result;
}

/* Rank 0 is at something else for a while; the others wait for it in a row. */
static int only_late(struct ranks *ranks, struct coll_comm *comm)
{
	uint32_t rank = coll_comm_rank(comm);
	int rc = coll_barrier(comm);

	if (rc)
		return rc;
	if (!rank) {
		usleep(getenv("NPULINK_SLOW") ? 12000000 : 2500000);
		return give(comm, 1);
	}
	rc = take(comm, rank - 1);
	return rc || rank + 1 == ranks->n ? rc : give(comm, rank + 1);
}

static const struct {
	const char *name;
	unsigned int n;
	int (*fn)(struct ranks *ranks, struct coll_comm *comm);
	int told;		/* how many ranks are; -1: any but none; -2: none, an event */
} cases[] = {
	{ "two ranks, two communicators, opposite orders", 2, opposite_orders, -1 },
	{ "three ranks, three communicators, a circle of three", 3, opposite_orders, -1 },
	{ "two ranks that only receive", 2, receives, 2 },
	{ "three ranks that only receive", 3, receives, 3 },
	{ "a receive against a collective", 3, through_others, 3 },
	{ "two threads each that only receive", 2, threads, 2 },
	{ "a circle, and one that waits for it", 3, beside, 2 },
	{ "a circle beside one that is too large", 2, beside_a_hog, 2 },
	{ "no circle: another thread will send", 2, a_thread_will, -2 },
	{ "no circle: only late", 3, only_late, 0 },
};

int main(void)
{
	unsigned int i, k;
	int bad, want, sock, events;
	bool right;

	ksft_print_header();
	if (access("/dev/npulink/npu0", F_OK))
		ksft_exit_skip("no /dev/npulink/npu0\n");
	ksft_set_plan(ARRAY_SIZE(cases));
	sock = listen_to_events();
	if (sock < 0)
		ksft_exit_fail_msg("no events\n");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ranks *ranks;

		if (!case_chosen(cases[i].name)) {
			ksft_test_result_skip("%s\n", cases[i].name);
			continue;
		}
		ranks = ranks_new(cases[i].n);
		/* So that what is not found is a failure of its own, and no hang. */
		ranks->config.deadline_ns = 2000000ULL * SOON_MS;
		for (k = 1; k < RANKS; k++) {
			others[k] = ranks_new(cases[i].n);
			others[k]->config.deadline_ns = ranks->config.deadline_ns;
		}
		hog = 0;
		if (cases[i].fn == beside_a_hog)
			hog = hog_start();
		bad = hog < 0 ? 1 : ranks_run(ranks, cases[i].fn);
		if (hog > 0) {
			bad += waitpid(hog, NULL, WNOHANG) != 0;
			kill(hog, SIGKILL);
			waitpid(hog, NULL, 0);
		}
		want = cases[i].told;
		if ((want == -1 && !ranks->number[0]) ||
		    (want != -1 && ranks->number[0] != (want > 0 ? want : 0))) {
			ksft_print_msg("%d ranks were told\n", ranks->number[0]);
			bad++;
		}
		/* No more than has to be. */
		if (cases[i].fn == opposite_orders &&
		    __builtin_popcount(ranks->number[1]) != (int)cases[i].n - 1) {
			ksft_print_msg("broken: %#x\n", ranks->number[1]);
			bad++;
		}
		/* Only what is not certain is told by such an event. */
		events = suspected(sock, &right);
		if (!right || (want == -2 && !events) || (!want && events)) {
			ksft_print_msg("%d events%s\n", events, right ? "" : ", and wrong ones");
			bad++;
		}
		ksft_test_result(!bad, "%s\n", cases[i].name);
		for (k = 1; k < RANKS; k++)
			ranks_free(others[k]);
		ranks_free(ranks);
	}
	ksft_finished();
}
