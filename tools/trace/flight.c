// SPDX-License-Identifier: GPL-2.0
/*
 * flight.c - reading the flight recorders of the kernel over netlink, and bringing
 * what they hold in order.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/nl.h"
#include "lib/plan/plan.h"
#include "state/link_probe.h"
#include "state/state.h"
#include "trace/flight.h"

/* What is being read: ops and steps are matched when all are there. */
struct reader {
	struct flight_log *log;
	uint32_t comm;
	int error;
};

static void *more(void *array, size_t n, size_t add, size_t size, int *error)
{
	void *p = reallocarray(array, n + add + 1, size);

	if (!p)
		*error = -ENOMEM;
	return p;
}

static void read_head(struct flight *f, struct nlattr **attrs, struct flight_log *log)
{
	uint64_t monotonic = get_u64(attrs, NPULINK_A_FLIGHT_NOW_MONOTONIC);

	f->comm = get_u32(attrs, NPULINK_A_FLIGHT_COMM);
	f->rank = get_u32(attrs, NPULINK_A_FLIGHT_RANK);
	f->nranks = get_u32(attrs, NPULINK_A_FLIGHT_NRANKS);
	f->dev = get_u32(attrs, NPULINK_A_FLIGHT_DEV);
	f->pid = get_u32(attrs, NPULINK_A_FLIGHT_PID);
	f->uid = get_u32(attrs, NPULINK_A_FLIGHT_UID);
	f->ops_done = get_u64(attrs, NPULINK_A_FLIGHT_OPS_DONE);
	f->steps_done = get_u64(attrs, NPULINK_A_FLIGHT_STEPS_DONE);
	/* The same for all, so that their times can be compared. */
	f->to_monotonic = log->n > 1 ? log->v[0].to_monotonic :
			  (int64_t)(monotonic - get_u64(attrs, NPULINK_A_FLIGHT_NOW));
	f->joined = get_u64(attrs, NPULINK_A_FLIGHT_JOINED) + f->to_monotonic;
	f->left = attrs[NPULINK_A_FLIGHT_LEFT];
	if (f->left)
		f->left_at = get_u64(attrs, NPULINK_A_FLIGHT_LEFT) + f->to_monotonic;
	f->now = monotonic;
	if (log->n == 1)
		log->to_real = get_u64(attrs, NPULINK_A_FLIGHT_NOW_REAL) - monotonic;
	if (attrs[NPULINK_A_FLIGHT_TASK])
		nla_strlcpy(f->task, attrs[NPULINK_A_FLIGHT_TASK], sizeof(f->task));
	clean_text(f->task);
}

static void read_ops(struct flight *f, struct nlattr *attr, int *error)
{
	size_t n = nla_len(attr) / sizeof(struct npulink_flight_op);

	f->ops = more(f->ops, f->nops, n, sizeof(*f->ops), error);
	for (size_t i = 0; i < n && !*error; i++) {
		struct flight_op *op = &f->ops[f->nops++];

		memset(op, 0, sizeof(*op));
		/* Attributes are aligned to four bytes only. */
		memcpy(&op->k, (char *)nla_data(attr) + i * sizeof(op->k), sizeof(op->k));
		op->k.algorithm[sizeof(op->k.algorithm) - 1] = '\0';
		op->k.start += f->to_monotonic;
		if (op->k.end)
			op->k.end += f->to_monotonic;
	}
}

/* From here to flight_match() @op is the kernel's serial. */
static void read_steps(struct flight *f, struct nlattr *attr, int *error)
{
	size_t n = nla_len(attr) / sizeof(struct npulink_flight_step);

	f->steps = more(f->steps, f->nsteps, n, sizeof(*f->steps), error);
	for (size_t i = 0; i < n && !*error; i++) {
		struct npulink_flight_step k;

		memcpy(&k, (char *)nla_data(attr) + i * sizeof(k), sizeof(k));
		f->steps[f->nsteps++] = (struct flight_step) {
			.start = k.start + f->to_monotonic, .len = k.len, .op = k.serial,
			.step = k.step, .nsteps = k.nsteps, .recv_peer = k.recv_peer,
			.send_peer = k.send_peer, .channel = k.channel, .what = k.op,
			.wait = npulink_flight_ns(k.wait), .queue = npulink_flight_ns(k.queue),
			.engine = npulink_flight_ns(k.engine),
			.take = npulink_flight_ns(k.take),
		};
	}
}

static void read_peers(struct flight *f, struct nlattr *attr, int *error)
{
	size_t n = nla_len(attr) / sizeof(*f->peers);

	f->peers = more(f->peers, f->npeers, n, sizeof(*f->peers), error);
	if (*error)
		return;
	memcpy(f->peers + f->npeers, nla_data(attr), n * sizeof(*f->peers));
	f->npeers += n;
}

static int on_message(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[NPULINK_A_FLIGHT_MAX + 1];
	struct reader *r = arg;
	struct flight_log *log = r->log;
	struct flight *f = log->n ? &log->v[log->n - 1] : NULL;
	uint32_t id;

	if (r->error || genlmsg_parse(nlmsg_hdr(msg), 0, attrs, NPULINK_A_FLIGHT_MAX, NULL) < 0 ||
	    !attrs[NPULINK_A_FLIGHT_ID])
		return NL_OK;
	id = nla_get_u32(attrs[NPULINK_A_FLIGHT_ID]);
	if (attrs[NPULINK_A_FLIGHT_COMM]) {
		if (r->comm != ANY_COMM && nla_get_u32(attrs[NPULINK_A_FLIGHT_COMM]) != r->comm)
			return NL_OK;
		log->v = more(log->v, log->n, 1, sizeof(*log->v), &r->error);
		if (r->error)
			return NL_STOP;
		f = &log->v[log->n++];
		memset(f, 0, sizeof(*f));
		f->id = id;
		read_head(f, attrs, log);
	}
	/* Of one whose head was left out. */
	if (!f || f->id != id)
		return NL_OK;
	if (attrs[NPULINK_A_FLIGHT_PEERS])
		read_peers(f, attrs[NPULINK_A_FLIGHT_PEERS], &r->error);
	if (attrs[NPULINK_A_FLIGHT_OPS])
		read_ops(f, attrs[NPULINK_A_FLIGHT_OPS], &r->error);
	if (attrs[NPULINK_A_FLIGHT_STEPS])
		read_steps(f, attrs[NPULINK_A_FLIGHT_STEPS], &r->error);
	return r->error ? NL_STOP : NL_OK;
}

static int by_serial(const void *a, const void *b)
{
	const struct flight_op *x = a, *y = b;

	return (x->k.serial > y->k.serial) - (x->k.serial < y->k.serial);
}

static int by_start(const void *a, const void *b)
{
	const struct flight_step *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->step > y->step) - (x->step < y->step);
}


void flight_match(struct flight *f)
{
	size_t n = 0;

	qsort(f->ops, f->nops, sizeof(*f->ops), by_serial);
	for (size_t i = 0; i < f->nops; i++)
		/* One that ended while it was read was seen twice. */
		if (!n || f->ops[n - 1].k.serial != f->ops[i].k.serial)
			f->ops[n++] = f->ops[i];
		else if (f->ops[i].k.end)
			f->ops[n - 1] = f->ops[i];
	f->nops = n;
	n = 0;
	for (size_t i = 0; i < f->nsteps; i++) {
		struct flight_op key = { .k.serial = f->steps[i].op }, *op;

		op = bsearch(&key, f->ops, f->nops, sizeof(*f->ops), by_serial);
		if (!op)
			continue;
		f->steps[n] = f->steps[i];
		f->steps[n++].op = op - f->ops;
	}
	f->nsteps = n;
	qsort(f->steps, f->nsteps, sizeof(*f->steps), by_start);
}

int flight_read(struct flight_log *log, uint32_t what, uint32_t comm)
{
	struct reader r = { .log = log, .comm = comm };
	int rc;

	*log = (struct flight_log){ };
	rc = nl_ask(NPULINK_GENL_CMD_FLIGHT_GET, NPULINK_A_FLIGHT_WHAT, what, true, on_message, &r);
	if (rc)
		return nl_fail(rc, 0);
	if (r.error)
		return fail("cannot read flight recorders: %s", strerror(-r.error));
	if (!log->n && comm != ANY_COMM)
		return fail("there is no communicator %u on record that you may see", comm);
	for (size_t i = 0; i < log->n; i++)
		flight_match(&log->v[i]);
	return flight_index(log);
}

/* ---- runs */

static int by_rank(const void *a, const void *b)
{
	const struct flight *x = a, *y = b;

	if (x->comm != y->comm)
		return x->comm < y->comm ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

struct run_ref {
	uint32_t comm, rank;
	uint64_t number;
	struct flight_op *op;
};

static int by_number(const void *a, const void *b)
{
	const struct run_ref *x = a, *y = b;

	if (x->comm != y->comm)
		return x->comm < y->comm ? -1 : 1;
	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_first_start(const void *a, const void *b)
{
	const struct flight_run *x = a, *y = b;

	return (x->first_start > y->first_start) - (x->first_start < y->first_start);
}

int flight_index(struct flight_log *log)
{
	struct run_ref *refs;
	size_t n = 0;
	bool over = true;

	qsort(log->v, log->n, sizeof(*log->v), by_rank);
	for (size_t i = 0; i < log->n; i++)
		n += log->v[i].nops;
	refs = calloc(n + 1, sizeof(*refs));
	log->runs = calloc(n + 1, sizeof(*log->runs));
	if (!refs || !log->runs) {
		free(refs);
		return fail("not enough memory");
	}
	n = 0;
	for (size_t i = 0; i < log->n; i++)
		for (size_t k = 0; k < log->v[i].nops; k++) {
			struct flight_op *op = &log->v[i].ops[k];

			op->run = NO_RUN;
			if (op->k.call.collective != NPULINK_COLL_P2P)
				refs[n++] = (struct run_ref){ log->v[i].comm, log->v[i].rank,
							      op->k.number, op };
		}
	qsort(refs, n, sizeof(*refs), by_number);
	log->nruns = 0;
	for (size_t i = 0; i < n; i++) {
		const struct npulink_flight_op *op = &refs[i].op->k;
		struct flight_run *run = log->nruns ? &log->runs[log->nruns - 1] : NULL;

		if (!run || run->comm != refs[i].comm || run->number != refs[i].number) {
			run = &log->runs[log->nruns++];
			*run = (struct flight_run){ .comm = refs[i].comm,
				.number = refs[i].number, .first_start = op->start,
				.op = refs[i].op };
			over = true;
		}
		run->nranks++;
		if (op->start < run->first_start)
			run->first_start = op->start;
		if (op->start > run->last_start)
			run->last_start = op->start;
		over = over && op->end;
		if (!over)
			run->end = 0;
		else if (op->end > run->end)
			run->end = op->end;
	}
	qsort(log->runs, log->nruns, sizeof(*log->runs), by_first_start);
	/* Now that they stay where they are: which run an operation belongs to. */
	for (size_t i = 0; i < log->nruns; i++) {
		const struct flight_run *run = &log->runs[i];
		struct run_ref key = { run->comm, 0, run->number, NULL };
		size_t lo = 0, hi = n;

		while (lo < hi) {
			size_t mid = lo + (hi - lo) / 2;

			if (by_number(&refs[mid], &key) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		for (; lo < n && refs[lo].comm == run->comm && refs[lo].number == run->number; lo++)
			refs[lo].op->run = i;
	}
	free(refs);
	return 0;
}

/* Point-to-point operations stay if they overlap what is left. */
void flight_keep_last(struct flight_log *log, uint32_t last)
{
	uint64_t from, to = 0;

	if (!last || log->nruns <= last)
		return;
	from = log->runs[log->nruns - last].first_start;
	for (size_t i = log->nruns - last; i < log->nruns; i++)
		to = log->runs[i].end > to ? log->runs[i].end : to;
	for (size_t i = 0; i < log->n; i++) {
		struct flight *f = &log->v[i];
		size_t nops = 0, nsteps = 0;
		uint32_t *moved = calloc(f->nops + 1, sizeof(*moved));

		if (!moved)
			exit(fail("not enough memory"));
		for (size_t k = 0; k < f->nops; k++) {
			const struct flight_op *op = &f->ops[k];
			bool keep = op->run == NO_RUN ?
				    op->k.start <= to && (!op->k.end || op->k.end >= from) :
				    op->run >= log->nruns - last;

			moved[k] = keep ? nops : NO_RUN;
			if (keep)
				f->ops[nops++] = *op;
		}
		for (size_t k = 0; k < f->nsteps; k++) {
			if (moved[f->steps[k].op] == NO_RUN)
				continue;
			f->steps[nsteps] = f->steps[k];
			f->steps[nsteps].op = moved[f->steps[k].op];
			nsteps++;
		}
		f->nops = nops;
		f->nsteps = nsteps;
		free(moved);
	}
	free(log->runs);
	flight_index(log);
}

static void flight_free_one(struct flight *f)
{
	free(f->peers);
	free(f->ops);
	free(f->steps);
}

/* Those that have begun since @since. */
static void flight_drop_ops(struct flight *f, uint64_t since)
{
	size_t n = 0;

	for (size_t i = 0; i < f->nops; i++)
		if (f->ops[i].k.start >= since)
			f->ops[n++] = f->ops[i];
	f->nops = n;
	f->nsteps = 0;
}

void flight_keep_since(struct flight_log *log, uint64_t ns)
{
	for (size_t i = 0; i < log->n; i++) {
		struct flight *f = &log->v[i];

		flight_drop_ops(f, f->now > ns ? f->now - ns : 0);
		f->npeers = 0;
	}
	free(log->runs);
	flight_index(log);
}

static void peer_subtract(struct npulink_flight_peer *p, const struct npulink_flight_peer *before)
{
	p->waits -= before->waits;
	p->wait_ns -= before->wait_ns;
	p->takes -= before->takes;
	p->take_ns -= before->take_ns;
	p->moves -= before->moves;
	p->move_ns -= before->move_ns;
	p->move_bytes -= before->move_bytes;
	for (size_t i = 0; i < NPULINK_FLIGHT_BUCKETS; i++) {
		p->late[i] -= before->late[i];
		p->slow[i] -= before->slow[i];
	}
}

void flight_subtract(struct flight_log *log, const struct flight_log *before)
{
	size_t n = 0;

	for (size_t i = 0; i < log->n; i++) {
		struct flight *f = &log->v[i];
		const struct flight *old = NULL;

		for (size_t k = 0; k < before->n && !old; k++)
			if (before->v[k].id == f->id)
				old = &before->v[k];
		for (size_t p = 0; old && p < f->npeers; p++)
			for (size_t k = 0; k < old->npeers; k++)
				if (old->peers[k].peer == f->peers[p].peer)
					peer_subtract(&f->peers[p], &old->peers[k]);
		if (old)
			flight_drop_ops(f, old->now);
		/* One that had gone before has done nothing since. */
		if (old && old->left)
			flight_free_one(f);
		else
			log->v[n++] = *f;
	}
	log->n = n;
	free(log->runs);
	flight_index(log);
}

size_t flight_drop_probes(struct flight_log *log)
{
	size_t n = 0, dropped;

	for (size_t i = 0; i < log->n; i++) {
		if (!strcmp(log->v[i].task, PROBE_TASK))
			flight_free_one(&log->v[i]);
		else
			log->v[n++] = log->v[i];
	}
	dropped = log->n - n;
	log->n = n;
	free(log->runs);
	flight_index(log);
	return dropped;
}

void flight_free(struct flight_log *log)
{
	for (size_t i = 0; i < log->n; i++)
		flight_free_one(&log->v[i]);
	free(log->v);
	free(log->runs);
	*log = (struct flight_log){ };
}

/* ---- names */

uint64_t flight_op_bytes(const struct npulink_flight_op *op)
{
	return op->call.count * npulink_dtype_size(op->call.dtype);
}

const char *flight_op_name(const struct npulink_flight_op *op, char *buf, size_t size)
{
	const char *collective = coll_collective_name(op->call.collective);
	char bytes[16];

	snprintf(buf, size, "%s %s%s%s", collective ? collective : "?",
		 op->call.count ? human_bytes(flight_op_bytes(op), bytes) : "",
		 op->call.count && *op->algorithm ? " " : "", op->algorithm);
	return buf;
}
