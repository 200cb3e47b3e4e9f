// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * error.c - what went wrong, where, and what to do about it.
 *
 * One line for the last failure of each thread, kept in the communicator. The words for
 * failures of the communicator are made from what the kernel knows about the first cause.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <npulink/verify.h>
#include "base/base.h"
#include "coll.h"
#include "run/cause.h"
#include "run/comm.h"
#include "run/dev.h"
#include "run/drv.h"
#include "run/error.h"
#include "run/op.h"

/* Of one thread, or of a later one that has its place. */
struct coll_error {
	struct coll_error *next;
	pthread_t thread;
	char text[COLL_TEXT];
};

/* The calling thread's, or NULL. Lock held. */
static struct coll_error *own_error(const struct coll_comm *comm)
{
	struct coll_error *e = comm->errors;

	while (e && !pthread_equal(e->thread, pthread_self()))
		e = e->next;
	return e;
}

void coll_errors_free(struct coll_comm *comm)
{
	struct coll_error *e;

	while ((e = comm->errors)) {
		comm->errors = e->next;
		free(e);
	}
}

int coll_fail(struct coll_comm *comm, int rc, const char *fmt, ...)
{
	struct coll_error *e;
	char text[COLL_TEXT];
	va_list ap;
	int n;

	n = snprintf(text, sizeof(text), "rank %u: ", comm->rank);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - n, fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&comm->error_lock);
	e = own_error(comm);
	if (!e) {
		e = malloc(sizeof(*e));
		if (e) {
			e->thread = pthread_self();
			e->next = comm->errors;
			comm->errors = e;
		}
	}
	if (e)
		memcpy(e->text, text, sizeof(text));
	pthread_mutex_unlock(&comm->error_lock);
	return rc;
}

const char *coll_comm_last_error(struct coll_comm *comm)
{
	const struct coll_error *e;

	if (!comm)
		return "there is no communicator";
	/* There, a thread of the parent may have held the lock. */
	if (coll_dev_is_child(comm->dev))
		return "this process was forked from the one that made the communicator; "
		       "only that may use it. Make a new one after fork()";
	pthread_mutex_lock(&comm->error_lock);
	e = own_error(comm);
	pthread_mutex_unlock(&comm->error_lock);
	return e ? e->text : "";
}

const char *coll_comm_warning(struct coll_comm *comm)
{
	return comm->warning[0] ? comm->warning : NULL;
}

/* ---- calls in words */

/* What has no name is a mistake of the caller, who may know the number. */
static const char *name_or(const char *name, const char *what, unsigned int number, char buf[24])
{
	if (*name != '?')
		return name;
	snprintf(buf, 24, "%s %u", what, number);
	return buf;
}

static const char *type_name(unsigned int dtype, char buf[24])
{
	return name_or(coll_dtype_name(dtype), "type", dtype, buf);
}

/* "allreduce of 1024 float32 (sum)", "broadcast of 3 int8 from root 2". */
static void describe(char *text, size_t size, const struct npulink_call *c)
{
	const char *name = coll_collective_name(c->collective);
	char count[24] = "", op[32] = "", root[24] = "", buf[24];

	if (c->collective == NPULINK_COLL_BARRIER) {
		snprintf(text, size, "barrier");
		return;
	}
	if (c->collective == NPULINK_COLL_P2P)
		name = "message";
	if (!npulink_coll_is_v(c->collective))
		snprintf(count, sizeof(count), "%" PRIu64 " ", (uint64_t)c->count);
	if (npulink_coll_reduces(c->collective))
		snprintf(op, sizeof(op), " (%s)",
			 name_or(coll_redop_name(c->redop), "reduction", c->redop, buf));
	if (npulink_coll_has_root(c->collective))
		snprintf(root, sizeof(root), ", root %u", c->root);
	snprintf(text, size, "%s of %s%s%s%s", name, count,
		 type_name(c->dtype, buf), op, root);
}

void coll_describe(const struct coll_args *args, char *text, size_t size)
{
	const struct npulink_call call = {
		.collective = args->collective,
		.dtype = args->dtype,
		.redop = args->redop,
		.root = args->root,
		.count = args->count,
	};
	char buf[24];

	if (args->collective == NPULINK_COLL_P2P)
		snprintf(text, size, "%s of %" PRIu64 " %s %s rank %u",
			 args->send ? "send" : "receive", args->count,
			 type_name(args->dtype, buf), args->send ? "to" : "from",
			 args->peer);
	else
		describe(text, size, &call);
}

/* ---- failures in words */

/* Why the communicator failed: what happened, why that is likely, and what to do. */
struct failure {
	char what[560];
	char likely[140];
	const char *advice;
};

/* The name of @rank's machine, if that is another one, and known. */
static const char *host_of(const struct coll_comm *comm, uint32_t rank)
{
	const char *host;

	if (!comm->hosts || rank >= comm->nranks ||
	    comm->machine[rank] == comm->machine[comm->rank])
		return NULL;
	host = comm->hosts[comm->machine[rank]];
	return *host ? host : NULL;
}

static void describe_rank(char *text, size_t size, const struct coll_comm *comm, uint32_t rank)
{
	const char *host = host_of(comm, rank);

	if (rank == comm->rank)
		snprintf(text, size, "this rank (%u)", rank);
	else if (rank == NPULINK_NO_PEER)
		snprintf(text, size, "a rank");
	else if (host)
		snprintf(text, size, "rank %u on %s", rank, host);
	else
		snprintf(text, size, "rank %u", rank);
}

/* The address of the peer's machine, or "". */
static void describe_ip(char text[INET6_ADDRSTRLEN], const struct npulink_comm_status *st)
{
	static const uint8_t none[16], mapped[12] = { [10] = 0xff, 0xff };
	const uint8_t *ip = st->out_peer_ip;

	*text = 0;
	if (!memcmp(ip, none, sizeof(none)))
		return;
	if (!memcmp(ip, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, ip + sizeof(mapped), text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, ip, text, INET6_ADDRSTRLEN);
}

/* Where the peer of a failure is, if on another machine: its name, else its address. */
void coll_machine_name(const struct coll_comm *comm, const struct npulink_comm_status *st,
		       char *name, size_t size)
{
	const char *host = host_of(comm, st->out_peer);
	char ip[INET6_ADDRSTRLEN];

	describe_ip(ip, st);
	if (st->out_peer == comm->rank)
		*ip = 0;
	snprintf(name, size, "%s", host ? host : ip);
}

__attribute__((format(printf, 2, 3)))
static void happened(struct failure *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->what, sizeof(f->what), fmt, ap);
	va_end(ap);
}

__attribute__((format(printf, 3, 4)))
static void because(struct failure *f, const char *advice, const char *fmt, ...)
{
	va_list ap;

	f->advice = advice;
	va_start(ap, fmt);
	vsnprintf(f->likely, sizeof(f->likely), fmt, ap);
	va_end(ap);
}

static void describe_mismatch(struct failure *f, const struct npulink_comm_status *st)
{
	const struct npulink_call *a = &st->out_calls[0], *b = &st->out_calls[1];
	char one[96], two[96];

	describe(one, sizeof(one), a);
	describe(two, sizeof(two), b);
	if (b->collective == UINT32_MAX) {
		happened(f, "rank %u called %s, but rank %u is far ahead, after %" PRIu64 " calls, and did something else when that was its turn, which is forgotten",
			 st->out_rank, one, st->out_peer, (uint64_t)b->count);
		because(f, "all ranks must make the same calls in the same order",
			"rank %u left calls out, or rank %u made more of them", st->out_rank,
			st->out_peer);
	} else if (!strcmp(one, two)) {
		happened(f, "rank %u and rank %u both called %s, but planned it differently",
			 st->out_rank, st->out_peer, one);
		because(f, "make these the same on all ranks",
			"they have not the same libcoll, COLL_ALGORITHM, calibration file, or counts");
	} else if (a->collective == NPULINK_COLL_P2P) {
		happened(f, "what is sent is not what is received: rank %u %s, rank %u %s",
			 st->out_rank, one, st->out_peer, two);
		because(f, "give coll_send() and coll_recv() the same count and type, in the same order",
			"the two disagree about the count or type, or one has left a message out");
	} else {
		happened(f, "ranks called different things: rank %u %s, rank %u %s", st->out_rank,
			 one, st->out_peer, two);
		because(f, "all ranks must make the same calls in the same order",
			"what is called, or how much, depends on the rank");
	}
}

static void describe_wait(char *text, size_t size, const struct npulink_call *c)
{
	if (c->collective == NPULINK_COLL_P2P)
		snprintf(text, size, "a send or receive");
	else
		describe(text, size, c);
}

static void describe_deadlock(struct failure *f, const struct npulink_comm_status *st)
{
	char one[96], two[96], circle[240] = "";
	size_t n = 0;

	/* As npulink comm shows them. */
	for (uint32_t i = 0;
	     i < st->out_ncircle && i < NPULINK_CIRCLE_MAX && n < sizeof(circle); i++) {
		const struct npulink_circle_wait *w = &st->out_circle[i];

		n += snprintf(circle + n, sizeof(circle) - n, "%scomm %u rank %u for rank %u",
			      i ? ", " : " (", w->comm, w->rank, w->peer);
	}
	if (n && n < sizeof(circle) - 1)
		strcat(circle, ")");
	describe_wait(one, sizeof(one), &st->out_calls[0]);
	describe_wait(two, sizeof(two), &st->out_calls[1]);
	happened(f, "processes wait for each other in a circle: rank %u in %.80s for rank %u, which is in %.80s of %s%s",
		 st->out_rank, one, st->out_peer, two,
		 st->out_code ? "another communicator" : "this communicator", circle);
	because(f, "call in the same order everywhere, or in a group, or without blocking",
		"they make blocking calls in different orders");
}

/* Why a connection between machines was lost. */
static const struct lost {
	uint32_t error;
	const char *what, *likely, *advice;
} losts[] = {
	{ EHOSTDOWN, "that machine does not answer",
	  "the machine died or hangs, or a cable, adapter or switch on the way has failed",
	  "see whether it runs and can be reached; when it is back, make a new communicator" },
	{ ESRCH, "that machine is there, but the rank is not",
	  "its process died or left before the two were connected",
	  "look for its own error message first; then make a new communicator" },
	{ ECONNABORTED, "the communicator had failed there before",
	  "ranks there met an error before the two were connected",
	  "look for their error messages first; then make a new communicator" },
	{ ECONNRESET, "that machine has closed the connection",
	  "it has lost its own RDMA device or port, or has been cut off",
	  "see the kernel logs of both; then make a new communicator" },
	{ ENODEV, "a port or an RDMA device was taken away",
	  "an administrator unbound it (npulink link del), or its driver was unloaded",
	  "see npulink link ports; when it is back, make a new communicator" },
	{ EHOSTUNREACH, "there is no way to that machine",
	  "no port that is bound leads there, or its address is not that of an RDMA device",
	  "see npulink link ports on both; then make a new communicator" },
	{ EPROTONOSUPPORT, "the modules are of different versions",
	  "npulink was updated on some machines only",
	  "install the same version of npulink on all machines" },
	{ EPROTO, "the two do not understand each other",
	  "the peer's kernel module has a bug, or is not what it says",
	  "see the kernel logs of both" },
	{ 0, NULL, "a cable, adapter or switch on the way has failed, or a machine has",
	  "see npulink link show and the kernel logs of both; then make a new communicator" },
};

static const struct lost *find_lost(uint32_t error)
{
	const struct lost *lost = losts;

	while (lost->error && lost->error != error)
		lost++;
	return lost;
}

const char *coll_lost_text(uint32_t error)
{
	return find_lost(error)->what ?: strerror(error);
}

static void describe_lost(struct failure *f, const struct npulink_comm_status *st,
			  const char *rank, const char *peer)
{
	const struct lost *lost;
	char ip[INET6_ADDRSTRLEN], port[64] = "";

	describe_ip(ip, st);
	lost = find_lost(*ip ? st->out_code : 0);
	if (*st->out_port)
		snprintf(port, sizeof(port), " over port %.31s", st->out_port);
	if (*ip)
		happened(f, "the link between %s and %s (%s)%s was lost: %s", rank, peer, ip,
			 port, coll_lost_text(st->out_code));
	else
		happened(f, "the link between %s and %s was lost", rank, peer);
	because(f, lost->advice, "%s", lost->likely);
}

static void describe_death(struct failure *f, const char *who, uint32_t signal)
{
	if (!signal) {
		happened(f, "%s exited or was killed without leaving the communicator", who);
		because(f, "look for its own error message first; coll_comm_shrink() goes on without it",
			"it met an error of its own, or ended well, but without coll_comm_destroy()");
		return;
	}
	happened(f, "%s was killed by signal %u (%s)", who, signal, strsignal(signal));
	switch (signal) {
	case SIGKILL:
		because(f, "see the kernel log there, and the memory limits; coll_comm_shrink() goes on without it",
			"the kernel was out of memory, or somebody killed it");
		break;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGABRT:
	case SIGTRAP:
	case SIGSYS:
		because(f, "see its last words and its core dump; coll_comm_shrink() goes on without it",
			"its program has a bug");
		break;
	case SIGXCPU:
	case SIGXFSZ:
		because(f, "see ulimit -a there; coll_comm_shrink() goes on without it",
			"it reached a limit of its processor time or file size");
		break;
	default:
		because(f, "see the log of who started it; coll_comm_shrink() goes on without it",
			"a user, or what started the job, ended it");
	}
}

/* From what the kernel noted. */
static void describe_cause(struct failure *f, const struct coll_comm *comm,
			   const struct npulink_comm_status *st)
{
	char rank[96], peer[96], what[128];
	struct coll_args args;

	describe_rank(rank, sizeof(rank), comm, st->out_rank);
	describe_rank(peer, sizeof(peer), comm, st->out_peer);
	switch (st->out_cause) {
	case NPULINK_CAUSE_ABORT:
		if (coll_board_decode(st->out_code, &args)) {
			coll_describe(&args, what, sizeof(what));
			happened(f, "%s called something else than rank %u, which called %s", rank,
				 args.root, what);
			because(f, "make the same calls in the same order on all ranks",
				"a program error in the application");
			break;
		}
		happened(f, "%s aborted the communicator (code %u)", rank, st->out_code);
		because(f, "see what it printed, and what the program means by that code",
			"its program met an error of its own and called coll_comm_abort()");
		break;
	case NPULINK_CAUSE_DEADLINE:
		if (st->out_peer == NPULINK_NO_PEER) {
			happened(f, "%s waited until its deadline", rank);
			because(f, "see what the others do (npulink hang), or raise coll_config.deadline_ns",
				"its device hangs, or a rank is late or has never come");
			break;
		}
		happened(f, "%s waited for %s until its deadline", rank, peer);
		because(f, "see why that rank is late (npulink hang), or raise coll_config.deadline_ns; coll_comm_shrink() waits for it again, unless its process is ended",
			"%s computes for longer than that, is stopped, or does not make this call",
			peer);
		break;
	case NPULINK_CAUSE_DEATH:
		describe_death(f, peer, st->out_code);
		break;
	case NPULINK_CAUSE_LEFT:
		/* Nobody waited for it: it has not come to what the others shrank to. */
		if (st->out_peer == st->out_rank) {
			happened(f, "%s left without joining this communicator", peer);
			because(f, "every survivor of a failure calls coll_comm_shrink(); coll_comm_shrink() once more goes on without those that do not",
				"this one was shrunk, and that rank called coll_comm_destroy() instead of coll_comm_shrink()");
			break;
		}
		happened(f, "%s left the communicator while %s still needed it", peer, rank);
		because(f, "all ranks must make the same calls before coll_comm_destroy()",
			"%s made fewer calls than %s", peer, rank);
		break;
	case NPULINK_CAUSE_MISMATCH:
		describe_mismatch(f, st);
		break;
	case NPULINK_CAUSE_LINK:
		describe_lost(f, st, rank, peer);
		break;
	case NPULINK_CAUSE_DEVICE:
		happened(f, "the device of %s reported a fault (%s)", rank,
			 strerror(st->out_code));
		because(f, "see the kernel log there, reset or replace the device, or take another (COLL_DEVICE)",
			"the device or its driver is broken");
		break;
	case NPULINK_CAUSE_CHECKSUM:
		if (st->out_code == UINT32_MAX) {
			happened(f, "data from %s arrived damaged at %s, twice, over the network between their machines%s%.31s",
				 peer, rank, *st->out_port ? ", port " : "", st->out_port);
			because(f, "see npulink link show, and replace what is broken",
				"memory, an adapter or a cable on the way is failing");
			break;
		}
		happened(f, "data from %s arrived damaged at %s, twice, over the link from npu%u",
			 peer, rank, st->out_code);
		because(f, "see npulink link show, and replace what is broken",
			"memory of a device or the link between them is failing");
		break;
	case NPULINK_CAUSE_DEADLOCK:
		describe_deadlock(f, st);
		break;
	case NPULINK_CAUSE_REMOVED:
		happened(f, "the device of %s was removed", rank);
		because(f, "see the kernel log there; take another device (COLL_DEVICE), or wait until it is back",
			"an administrator unbound it or unloaded its driver, or it fell off its bus");
		break;
	default:
		happened(f, "the communicator failed for reason %u, which is not known here",
			 st->out_cause);
		because(f, "install the libcoll that came with the module",
			"the kernel module is newer than libcoll");
		break;
	}
}

/* An operation that failed, or was refused, with rc: the text for it. */
int coll_fail_op(const struct coll_operation *op, int rc)
{
	struct coll_comm *comm = op->comm;
	struct npulink_comm_status st;
	struct coll_args args;
	char what[128], where[64] = "", words[128];
	struct failure f = { .advice = "" };

	coll_describe(&op->args, what, sizeof(what));
	if (coll_is_failure(rc) &&
	    !coll_drv_comm_status(&comm->dev->drv, comm->id, &st) && st.out_cause) {
		describe_cause(&f, comm, &st);
		if (st.out_cause == NPULINK_CAUSE_ABORT && coll_board_decode(st.out_code, &args))
			rc = -EPROTO;
		if (st.out_number != UINT64_MAX && st.out_step != UINT32_MAX)
			snprintf(where, sizeof(where), " (operation %" PRIu64 ", step %u)",
				 (uint64_t)st.out_number, st.out_step);
		else if (st.out_number != UINT64_MAX)
			snprintf(where, sizeof(where), " (operation %" PRIu64 ")",
				 (uint64_t)st.out_number);
		return coll_fail(comm, rc, "%s: %s%s. Likely: %s. To do: %s.", what, f.what, where,
				 f.likely, f.advice);
	}
	switch (rc) {
	case -EBUSY:
		return coll_fail(comm, rc,
				 "%s: too many operations in flight (at most %u, and %u requests): wait for some, or raise coll_config.inflight",
				 what, comm->dev->info.out_max_inflight, comm->dev->ring_entries);
	case -ESTALE:
		return coll_fail(comm, rc,
				 "%s: a buffer's memory changes while the call is made: another thread unmaps or remaps it",
				 what);
	case -ENOTUNIQ:
		return coll_fail(comm, rc,
				 "%s: send and receive buffer overlap: make them disjoint, or use COLL_IN_PLACE",
				 what);
	case -EPERM:
		return coll_fail(comm, rc,
				 "%s: this process did not make the communicator: after fork(), only the parent may use it",
				 what);
	case -ENODEV:
		return coll_fail(comm, rc, "%s: %s has gone", what, comm->dev->info.out_name);
	default:
		return coll_fail(comm, rc, "%s: %s", what, coll_words(rc, words, sizeof(words)));
	}
}

int coll_fail_plan(struct coll_comm *comm, const struct coll_args *args, int rc,
		   const struct npulink_plan_create *refused)
{
	char what[128], words[128];

	coll_describe(args, what, sizeof(what));
	if (rc == -EINVAL && refused && refused->out_reason)
		return coll_fail(comm, rc,
				 "%s: the kernel refused the plan at step %u: %s. This is a bug in libcoll: please report it",
				 what, refused->out_bad_step,
				 npulink_bad_reason(refused->out_reason));
	if (coll_is_failure(rc)) {
		const struct coll_operation op = { .comm = comm, .args = *args };

		return coll_fail_op(&op, rc);
	}
	if (rc == -EOVERFLOW)
		return coll_fail(comm, rc,
				 "%s: too large: at most %llu bytes at each rank, make several calls",
				 what, (unsigned long long)NPULINK_MAX_LEN);
	return coll_fail(comm, rc, "%s: cannot make the plan: %s", what,
			 coll_words(rc, words, sizeof(words)));
}

/* Registering len bytes at addr (NULL: allocating them) failed. */
int coll_fail_pin(struct coll_comm *comm, const struct coll_args *args, const void *addr,
		  size_t len, int rc)
{
	char what[136] = "", where[64] = "", text[COLL_TEXT];

	if (args) {
		coll_describe(args, what, sizeof(what) - 2);
		strcat(what, ": ");
	}
	if (addr)
		snprintf(where, sizeof(where), " at %p", addr);
	switch (rc) {
	case -ENOMEM:
		coll_cause_memory(rc, len, what, text, sizeof(text));
		return coll_fail(comm, rc, "%s", text);
	case -EFAULT:
		if (!addr)
			break;
		return coll_fail(comm, rc,
				 "%snot all of the %zu bytes%s are mapped with the needed access",
				 what, len, where);
	case -EOPNOTSUPP:
		if (!addr)
			break;
		return coll_fail(comm, rc,
				 "%sthe %zu bytes%s are a shared mapping of a file, which cannot be pinned: use ordinary memory, a memfd, or coll_mem_alloc",
				 what, len, where);
	}
	return coll_fail(comm, rc, "%scannot pin %zu bytes%s: %s", what, len, where,
			 coll_words(rc, text, sizeof(text)));
}
