// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * failure_texts.c - what libcoll says to each cause for which a communicator can fail, on
 * the rank where it arose and on another one: one paragraph with what happened and to whom,
 * where, the likely cause, and what to do.
 */
#include <signal.h>
#include "mock.h"
#include "coll.h"
#include "lib/base/base.h"
#include "lib/run/comm.h"
#include "kselftest.h"

#define RANKS	3
#define WHERE	1	/* where it arises */
#define ABOUT	2	/* whom it is about, if anybody */
#define NOBODY	NPULINK_NO_PEER
#define UNKNOWN	(NPULINK_CAUSE_REMOVED + 1)

static const struct text {
	const char *name;
	uint32_t cause;
	int status;
	uint32_t peer, code;
	struct npulink_call calls[2];
	bool far;		/* between machines: over port rxe0/1, with host2 at 10.1.2.3 */
	const char *what, *likely, *advice;
} texts[] = {
	{ .name = "abort", .cause = NPULINK_CAUSE_ABORT, .status = -ECANCELED, .peer = NOBODY,
	  .code = 4711, .what = "aborted the communicator (code 4711)",
	  .likely = "coll_comm_abort()", .advice = "printed" },
	{ .name = "deadline", .cause = NPULINK_CAUSE_DEADLINE, .status = -ETIMEDOUT,
	  .peer = ABOUT, .what = "until its deadline", .likely = "stopped",
	  .advice = "raise coll_config.deadline_ns" },
	{ .name = "deadline, of nobody", .cause = NPULINK_CAUSE_DEADLINE, .status = -ETIMEDOUT,
	  .peer = NOBODY, .what = "waited until its deadline", .likely = "device hangs",
	  .advice = "raise coll_config.deadline_ns" },
	{ .name = "death by exit", .cause = NPULINK_CAUSE_DEATH, .status = -EOWNERDEAD,
	  .peer = WHERE, .what = "exited or was killed", .likely = "error of its own",
	  .advice = "its own error message" },
	{ .name = "death by SIGKILL", .cause = NPULINK_CAUSE_DEATH, .status = -EOWNERDEAD,
	  .peer = WHERE, .code = SIGKILL, .what = "killed by signal 9 (Killed)",
	  .likely = "out of memory", .advice = "memory limits" },
	{ .name = "death by SIGSEGV", .cause = NPULINK_CAUSE_DEATH, .status = -EOWNERDEAD,
	  .peer = WHERE, .code = SIGSEGV, .what = "killed by signal 11", .likely = "bug",
	  .advice = "core dump" },
	{ .name = "death by SIGXCPU", .cause = NPULINK_CAUSE_DEATH, .status = -EOWNERDEAD,
	  .peer = WHERE, .code = SIGXCPU, .what = "killed by signal 24", .likely = "limit",
	  .advice = "ulimit" },
	{ .name = "death by SIGTERM", .cause = NPULINK_CAUSE_DEATH, .status = -EOWNERDEAD,
	  .peer = WHERE, .code = SIGTERM, .what = "killed by signal 15",
	  .likely = "a user, or what started the job", .advice = "coll_comm_shrink()" },
	{ .name = "left", .cause = NPULINK_CAUSE_LEFT, .status = -ESHUTDOWN, .peer = ABOUT,
	  .what = "left the communicator while", .likely = "fewer calls",
	  .advice = "before coll_comm_destroy()" },
	{ .name = "left instead of shrinking", .cause = NPULINK_CAUSE_LEFT, .status = -ESHUTDOWN,
	  .peer = WHERE, .what = "left without joining this communicator",
	  .likely = "instead of coll_comm_shrink()", .advice = "once more goes on without" },
	{ .name = "mismatch", .cause = NPULINK_CAUSE_MISMATCH, .status = -EPROTO, .peer = ABOUT,
	  .calls = { { .collective = NPULINK_COLL_BROADCAST, .dtype = NPULINK_FLOAT32, .root = 1,
		       .count = 3 },
		     { .collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT32,
		       .count = 4 } },
	  .what = "rank 1 broadcast of 3 float32, root 1, rank 2 allreduce of 4 int32 (sum)",
	  .likely = "depends on the rank", .advice = "the same calls in the same order" },
	{ .name = "mismatch of plans", .cause = NPULINK_CAUSE_MISMATCH, .status = -EPROTO,
	  .peer = ABOUT,
	  .calls = { { .collective = NPULINK_COLL_ALLGATHERV, .set_id = 1 },
		     { .collective = NPULINK_COLL_ALLGATHERV, .set_id = 2 } },
	  .what = "rank 1 and rank 2 both called allgatherv of int8, but planned it differently",
	  .likely = "COLL_ALGORITHM", .advice = "the same on all ranks" },
	{ .name = "mismatch of messages", .cause = NPULINK_CAUSE_MISMATCH, .status = -EPROTO,
	  .peer = ABOUT,
	  .calls = { { .collective = NPULINK_COLL_P2P, .dtype = NPULINK_INT64, .count = 5 },
		     { .collective = NPULINK_COLL_P2P, .dtype = NPULINK_INT64, .count = 6 } },
	  .what = "rank 1 message of 5 int64, rank 2 message of 6 int64",
	  .likely = "count or type", .advice = "coll_send() and coll_recv()" },
	{ .name = "mismatch long ago", .cause = NPULINK_CAUSE_MISMATCH, .status = -EPROTO,
	  .peer = ABOUT,
	  .calls = { { .collective = NPULINK_COLL_BARRIER },
		     { .collective = UINT32_MAX, .count = 300 } },
	  .what = "rank 1 called barrier, but rank 2 is far ahead, after 300 calls",
	  .likely = "left calls out", .advice = "the same calls in the same order" },
	{ .name = "link", .cause = NPULINK_CAUSE_LINK, .status = -ENOLINK, .peer = ABOUT,
	  .what = "the link between", .likely = "cable", .advice = "npulink link show" },
	{ .name = "machine that does not answer", .cause = NPULINK_CAUSE_LINK,
	  .status = -ENOLINK, .peer = ABOUT, .far = true, .code = EHOSTDOWN,
	  .what = " (10.1.2.3) over port rxe0/1 was lost: that machine does not answer",
	  .likely = "machine died", .advice = "see whether it runs" },
	{ .name = "rank that is not there", .cause = NPULINK_CAUSE_LINK, .status = -ENOLINK,
	  .peer = ABOUT, .far = true, .code = ESRCH, .what = "but the rank is not",
	  .likely = "before the two were connected", .advice = "its own error message" },
	{ .name = "rank whose communicator has failed", .cause = NPULINK_CAUSE_LINK,
	  .status = -ENOLINK, .peer = ABOUT, .far = true, .code = ECONNABORTED,
	  .what = "had failed there before", .likely = "met an error",
	  .advice = "their error messages" },
	{ .name = "connection that was closed", .cause = NPULINK_CAUSE_LINK, .status = -ENOLINK,
	  .peer = ABOUT, .far = true, .code = ECONNRESET, .what = "has closed the connection",
	  .likely = "its own RDMA device", .advice = "kernel logs" },
	{ .name = "port that was taken away", .cause = NPULINK_CAUSE_LINK, .status = -ENOLINK,
	  .peer = ABOUT, .far = true, .code = ENODEV, .what = "was taken away",
	  .likely = "npulink link del", .advice = "npulink link ports" },
	{ .name = "machine without a way to it", .cause = NPULINK_CAUSE_LINK,
	  .status = -ENOLINK, .peer = ABOUT, .far = true, .code = EHOSTUNREACH,
	  .what = "no way to that machine", .likely = "no port that is bound",
	  .advice = "npulink link ports" },
	{ .name = "modules of other versions", .cause = NPULINK_CAUSE_LINK, .status = -ENOLINK,
	  .peer = ABOUT, .far = true, .code = EPROTONOSUPPORT, .what = "different versions",
	  .likely = "updated on some", .advice = "the same version" },
	{ .name = "peer that broke the protocol", .cause = NPULINK_CAUSE_LINK,
	  .status = -ENOLINK, .peer = ABOUT, .far = true, .code = EPROTO,
	  .what = "do not understand", .likely = "has a bug", .advice = "kernel logs" },
	{ .name = "link lost for another reason", .cause = NPULINK_CAUSE_LINK,
	  .status = -ENOLINK, .peer = ABOUT, .far = true, .code = EIO,
	  .what = "was lost: Input/output error", .likely = "cable",
	  .advice = "npulink link show" },
	{ .name = "device", .cause = NPULINK_CAUSE_DEVICE, .status = -EIO, .peer = NOBODY,
	  .code = EREMOTEIO, .what = "reported a fault (Remote I/O error)",
	  .likely = "device or its driver is broken", .advice = "kernel log" },
	{ .name = "checksum", .cause = NPULINK_CAUSE_CHECKSUM, .status = -EBADMSG, .peer = ABOUT,
	  .code = 7, .what = "twice, over the link from npu7", .likely = "failing",
	  .advice = "replace what is broken" },
	{ .name = "checksum between machines", .cause = NPULINK_CAUSE_CHECKSUM,
	  .status = -EBADMSG, .peer = ABOUT, .code = UINT32_MAX,
	  .what = "twice, over the network between their machines", .likely = "cable",
	  .advice = "replace what is broken" },
	{ .name = "checksum over a port", .cause = NPULINK_CAUSE_CHECKSUM,
	  .status = -EBADMSG, .peer = ABOUT, .far = true, .code = UINT32_MAX,
	  .what = "between their machines, port rxe0/1", .likely = "cable",
	  .advice = "replace what is broken" },
	{ .name = "deadlock", .cause = NPULINK_CAUSE_DEADLOCK, .status = -EDEADLK, .peer = ABOUT,
	  .calls = { { .collective = NPULINK_COLL_BARRIER },
		     { .collective = NPULINK_COLL_P2P, .count = 4 } },
	  .what = "rank 1 in barrier for rank 2, which is in a send or receive of this communicator",
	  .likely = "different orders", .advice = "without blocking" },
	{ .name = "deadlock of two communicators", .cause = NPULINK_CAUSE_DEADLOCK,
	  .status = -EDEADLK, .peer = ABOUT, .code = 1,
	  .calls = { { .collective = NPULINK_COLL_BARRIER },
		     { .collective = NPULINK_COLL_BARRIER } },
	  .what = "which is in barrier of another communicator", .likely = "different orders",
	  .advice = "in a group" },
	{ .name = "removed", .cause = NPULINK_CAUSE_REMOVED, .status = -ENODEV, .peer = NOBODY,
	  .what = "was removed", .likely = "driver", .advice = "COLL_DEVICE" },
	{ .name = "a cause of the future", .cause = UNKNOWN, .status = -EIO, .peer = NOBODY,
	  .what = "for reason 11", .likely = "newer than libcoll", .advice = "install" },
};

static struct coll_comm *comms[RANKS];

static int make_comms(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_unique_id id;
	int rc = coll_get_unique_id(&id);

	config.device = "0";
	for (unsigned int i = 0; i < RANKS && !rc; i++)
		rc = coll_comm_init_rank(&comms[i], RANKS, &id, i, &config);
	return rc;
}

/* What the bootstrap finds out: ranks 0 and 1 are on host1, rank 2 is on host2. */
static int make_machines(struct coll_comm *comm)
{
	comm->machine = calloc(RANKS, sizeof(*comm->machine));
	comm->hosts = calloc(2, sizeof(*comm->hosts));
	if (!comm->machine || !comm->hosts)
		return 1;
	comm->machine[ABOUT] = 1;
	strcpy(comm->hosts[0], "host1");
	strcpy(comm->hosts[1], "host2");
	return 0;
}

static int complain(const char *text, const char *what)
{
	ksft_print_msg("\"%s\": %s\n", text, what);
	return 1;
}

/* Is @words between @from and @to (NULL: the end)? */
static bool between(const char *from, const char *to, const char *words)
{
	const char *at = strstr(from, words);

	return at && (!to || at + strlen(words) <= to);
}

/* The same for programs. */
static int check_state(unsigned int rank)
{
	struct coll_state state = COLL_STATE_INIT;

	if (coll_comm_status(comms[rank], &state))
		return complain("coll_comm_status", "refused");
	if (strcmp(state.machine, rank == ABOUT ? "" : "host2"))
		return complain(state.machine, "not the machine");
	return strcmp(state.port, "rxe0/1") ? complain(state.port, "not the port") : 0;
}

/* Does the text of @rank, which calls a barrier, say all of it? */
static int check(const struct text *t, unsigned int rank, bool where)
{
	const char *likely, *advice, *text;
	char name[32], start[32];
	int bad = 0;

	if (coll_barrier(comms[rank]) != t->status)
		return complain(t->name, "wrong error");
	text = coll_comm_last_error(comms[rank]);
	likely = strstr(text, ". Likely: ");
	advice = strstr(text, ". To do: ");
	if (!likely || !advice || likely > advice)
		return complain(text, "not: what happened, likely cause, what to do");
	snprintf(start, sizeof(start), "rank %u: barrier: ", rank);
	if (strncmp(text, start, strlen(start)))
		bad += complain(text, "whose call?");
	if (!between(text, likely, t->what))
		bad += complain(text, t->what);
	if (!between(likely, advice, t->likely))
		bad += complain(text, t->likely);
	if (!between(advice, NULL, t->advice))
		bad += complain(text, t->advice);
	/* Mismatch and deadlock compare two ranks, and call both by their numbers. */
	for (uint32_t r = WHERE; r <= ABOUT; r++) {
		bool one = t->cause == NPULINK_CAUSE_MISMATCH || t->cause == NPULINK_CAUSE_DEADLOCK;

		if ((r == ABOUT && t->peer != ABOUT) || t->cause == UNKNOWN)
			continue;
		snprintf(name, sizeof(name), r == rank && !one ? "this rank (%u)" : "rank %u", r);
		if (!between(text + strlen(start), likely, name))
			bad += complain(text, name);
	}
	if (where && !between(text, likely, " (operation 5, step 3)"))
		bad += complain(text, "which operation and step?");
	if (!where && !between(text, likely, " (operation 5)"))
		bad += complain(text, "which operation?");
	if (t->far && rank != ABOUT && !between(text, likely, "rank 2 on host2"))
		bad += complain(text, "which machine?");
	if (t->far)
		bad += check_state(rank);
	if (strchr(text, '\n') || strchr(text, '?') || text[strlen(text) - 1] != '.' ||
	    strlen(text) > COLL_TEXT - 100)
		bad += complain(text, "not one whole paragraph");
	return bad;
}

static int run(const struct text *t, bool where)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 10, 1, 2, 3 };
	int bad = make_comms();

	if (bad)
		return bad;
	pthread_mutex_lock(&mock.lock);
	mock.comms->code = t->code;
	if (t->far) {
		memcpy(mock.comms->ip, mapped, sizeof(mapped));
		strcpy(mock.comms->port, "rxe0/1");
	}
	for (unsigned int rank = 0; t->far && rank < RANKS; rank++)
		bad |= make_machines(comms[rank]);
	mock.comms->step = where ? 3 + 1 : 0;
	memcpy(mock.comms->calls, t->calls, sizeof(t->calls));
	mock_comm_fail(mock.comms, t->cause, t->status, WHERE, t->peer, 5);
	pthread_mutex_unlock(&mock.lock);
	for (unsigned int rank = 0; rank < RANKS; rank++)
		bad += check(t, rank, where);
	for (unsigned int rank = 0; rank < RANKS; rank++)
		bad += !!coll_comm_destroy(comms[rank]);
	return bad;
}

int main(void)
{
	bool had[UNKNOWN + 1] = { true };
	unsigned int i, missing = 0;

	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(texts) + 1);
	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		had[texts[i].cause] = true;
		ksft_test_result(!run(&texts[i], false) & !run(&texts[i], true), "%s\n",
				 texts[i].name);
	}
	for (i = 0; i < ARRAY_SIZE(had); i++)
		missing += !had[i];
	ksft_test_result(!missing, "no cause is left out\n");
	ksft_finished();
}
