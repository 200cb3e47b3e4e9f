// SPDX-License-Identifier: GPL-2.0
/*
 * state_nl.c - reads communicators, ranks, operations, memory, totals and events over the
 * generic netlink family "npulink".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/nl.h"
#include "state/state.h"

static uint32_t get_or_none(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u32(attrs[attr]) : NONE;
}

static uint64_t get_number(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u64(attrs[attr]) : NO_NUMBER;
}

static int parse_call(struct nlattr *nest, struct npulink_call *call)
{
	struct nlattr *a[NPULINK_A_CALL_MAX + 1];

	if (!nest || nla_parse_nested(a, NPULINK_A_CALL_MAX, nest, NULL))
		return -EPROTO;
	call->collective = get_u32(a, NPULINK_A_CALL_COLLECTIVE);
	call->dtype = get_u32(a, NPULINK_A_CALL_DTYPE);
	call->redop = get_u32(a, NPULINK_A_CALL_REDOP);
	call->root = get_u32(a, NPULINK_A_CALL_ROOT);
	call->count = get_u64(a, NPULINK_A_CALL_COUNT);
	call->set_id = get_u64(a, NPULINK_A_CALL_SET_ID);
	return 0;
}

static void parse_circle(struct nlattr *nest, struct state_circle *circle)
{
	struct nlattr *a[NPULINK_A_CIRCLE_MAX + 1];
	struct npulink_circle_wait *w = &circle->waits[circle->known];

	if (circle->known == NPULINK_CIRCLE_MAX ||
	    nla_parse_nested(a, NPULINK_A_CIRCLE_MAX, nest, NULL))
		return;
	w->comm = get_u32(a, NPULINK_A_CIRCLE_COMM);
	w->rank = get_u32(a, NPULINK_A_CIRCLE_RANK);
	w->peer = get_u32(a, NPULINK_A_CIRCLE_PEER);
	w->number = get_number(a, NPULINK_A_CIRCLE_NUMBER);
	circle->known++;
}

static void parse_place(struct nlattr *ip, struct nlattr *port, struct state_place *place)
{
	place->there = ip && nla_len(ip) == sizeof(place->ip);
	if (!place->there)
		return;
	memcpy(place->ip, nla_data(ip), sizeof(place->ip));
	if (port)
		nla_strlcpy(place->port, port, sizeof(place->port));
}

static int parse_cause(struct nlattr *nest, struct state_cause *cause)
{
	struct nlattr *a[NPULINK_A_CAUSE_MAX + 1], *attr;
	int rem;

	if (nla_parse_nested(a, NPULINK_A_CAUSE_MAX, nest, NULL))
		return -EPROTO;
	cause->cause = get_u32(a, NPULINK_A_CAUSE_CAUSE);
	cause->error = get_u32(a, NPULINK_A_CAUSE_ERRNO);
	cause->rank = get_u32(a, NPULINK_A_CAUSE_RANK);
	cause->peer = get_or_none(a, NPULINK_A_CAUSE_PEER);
	cause->step = get_or_none(a, NPULINK_A_CAUSE_STEP);
	cause->code = get_u32(a, NPULINK_A_CAUSE_CODE);
	cause->number = get_number(a, NPULINK_A_CAUSE_NUMBER);
	parse_place(a[NPULINK_A_CAUSE_IP], a[NPULINK_A_CAUSE_PORT], &cause->place);
	cause->circle.n = get_u32(a, NPULINK_A_CAUSE_NCIRCLE);
	nla_for_each_nested(attr, nest, rem) {
		if (nla_type(attr) == NPULINK_A_CAUSE_CIRCLE)
			parse_circle(attr, &cause->circle);
		if (nla_type(attr) == NPULINK_A_CAUSE_CALLS && cause->ncalls < 2 &&
		    !parse_call(attr, &cause->calls[cause->ncalls]))
			cause->ncalls++;
	}
	return 0;
}

static int parse_comm(struct nlattr **a, void *item)
{
	struct state_comm *comm = item;

	comm->id = get_u32(a, NPULINK_A_COMM_ID);
	comm->nranks = get_u32(a, NPULINK_A_COMM_NRANKS);
	comm->joined = get_u32(a, NPULINK_A_COMM_JOINED);
	comm->left = get_u32(a, NPULINK_A_COMM_LEFT);
	comm->uid = get_or_none(a, NPULINK_A_COMM_UID);
	comm->parent = get_or_none(a, NPULINK_A_COMM_PARENT);
	comm->any_uid = a[NPULINK_A_COMM_ANY_UID];
	comm->failed = a[NPULINK_A_COMM_CAUSE];
	return comm->failed ? parse_cause(a[NPULINK_A_COMM_CAUSE], &comm->cause) : 0;
}

static int parse_rank(struct nlattr **a, void *item)
{
	struct state_rank *rank = item;

	rank->comm = get_u32(a, NPULINK_A_RANK_COMM);
	rank->rank = get_u32(a, NPULINK_A_RANK_RANK);
	rank->state = get_u32(a, NPULINK_A_RANK_STATE);
	rank->known = a[NPULINK_A_RANK_PID];
	rank->pid = get_u32(a, NPULINK_A_RANK_PID);
	rank->tid = get_u32(a, NPULINK_A_RANK_TID);
	rank->uid = get_u32(a, NPULINK_A_RANK_UID);
	rank->file = get_u32(a, NPULINK_A_RANK_FILE);
	rank->dev = get_or_none(a, NPULINK_A_RANK_DEV);
	rank->gone = rank->dev == NONE;
	rank->before = get_or_none(a, NPULINK_A_RANK_BEFORE);
	rank->before_comm = get_or_none(a, NPULINK_A_RANK_BEFORE_COMM);
	rank->ops = get_u32(a, NPULINK_A_RANK_OPS);
	rank->next = get_u64(a, NPULINK_A_RANK_NEXT);
	rank->oldest = get_u64(a, NPULINK_A_RANK_OLDEST);
	rank->done = get_u64(a, NPULINK_A_RANK_DONE);
	rank->failed = get_u64(a, NPULINK_A_RANK_FAILED);
	rank->bytes = get_u64(a, NPULINK_A_RANK_BYTES);
	rank->busy = get_u64(a, NPULINK_A_RANK_BUSY);
	rank->met = get_u64(a, NPULINK_A_RANK_MET);
	return 0;
}

static int parse_wait(struct nlattr *nest, struct state_wait *wait)
{
	struct nlattr *a[NPULINK_A_WAIT_MAX + 1];

	if (nla_parse_nested(a, NPULINK_A_WAIT_MAX, nest, NULL))
		return -EPROTO;
	wait->kind = get_u32(a, NPULINK_A_WAIT_KIND);
	wait->step = get_u32(a, NPULINK_A_WAIT_STEP);
	wait->peer = get_or_none(a, NPULINK_A_WAIT_PEER);
	wait->dev = get_or_none(a, NPULINK_A_WAIT_DEV);
	wait->peer_dev = get_or_none(a, NPULINK_A_WAIT_PEER_DEV);
	wait->since = get_u64(a, NPULINK_A_WAIT_SINCE);
	wait->done = get_u64(a, NPULINK_A_WAIT_DONE);
	wait->len = get_u64(a, NPULINK_A_WAIT_LEN);
	wait->met = a[NPULINK_A_WAIT_MET];
	wait->remote = a[NPULINK_A_WAIT_REMOTE];
	return 0;
}

static void parse_status(struct nlattr *nest, struct state_conn *conn)
{
	struct nlattr *a[NPULINK_A_STATUS_MAX + 1];
	struct state_status *st = &conn->status;

	if (nla_parse_nested(a, NPULINK_A_STATUS_MAX, nest, NULL))
		return;
	conn->answered = true;
	st->age = get_u64(a, NPULINK_A_STATUS_AGE);
	st->next = get_u64(a, NPULINK_A_STATUS_NEXT);
	st->number = get_u64(a, NPULINK_A_STATUS_NUMBER);
	st->p2p = a[NPULINK_A_STATUS_P2P];
	st->called = get_u32(a, NPULINK_A_STATUS_CALLED);
	st->task = get_u32(a, NPULINK_A_STATUS_TASK);
	st->waits = a[NPULINK_A_STATUS_WAIT] &&
		    !parse_wait(a[NPULINK_A_STATUS_WAIT], &st->wait);
}

static int parse_conn(struct nlattr **a, void *item)
{
	struct state_conn *conn = item;

	conn->comm = get_u32(a, NPULINK_A_CONN_COMM);
	conn->rank = get_u32(a, NPULINK_A_CONN_RANK);
	conn->peer = get_u32(a, NPULINK_A_CONN_PEER);
	conn->dev = get_u32(a, NPULINK_A_CONN_DEV);
	conn->peer_dev = get_or_none(a, NPULINK_A_CONN_PEER_DEV);
	conn->steps = get_u64(a, NPULINK_A_CONN_STEPS);
	conn->bytes = get_u64(a, NPULINK_A_CONN_BYTES);
	conn->remote = a[NPULINK_A_CONN_IP];
	if (!conn->remote)
		return 0;
	if (nla_len(a[NPULINK_A_CONN_IP]) != sizeof(conn->ip))
		return -EPROTO;
	memcpy(conn->ip, nla_data(a[NPULINK_A_CONN_IP]), sizeof(conn->ip));
	conn->state = get_u32(a, NPULINK_A_CONN_STATE);
	get_str(a, NPULINK_A_CONN_KIND, conn->kind, sizeof(conn->kind));
	get_str(a, NPULINK_A_CONN_VIA, conn->via, sizeof(conn->via));
	conn->switches = get_u32(a, NPULINK_A_CONN_SWITCHES);
	conn->sent_steps = get_u64(a, NPULINK_A_CONN_SENT_STEPS);
	conn->sent_bytes = get_u64(a, NPULINK_A_CONN_SENT_BYTES);
	conn->asked = a[NPULINK_A_CONN_ASKED];
	conn->asked_age = get_u64(a, NPULINK_A_CONN_ASKED);
	conn->asked_number = get_u64(a, NPULINK_A_CONN_ASKED_NUMBER);
	conn->asked_since = get_u64(a, NPULINK_A_CONN_ASKED_SINCE);
	conn->asked_p2p = a[NPULINK_A_CONN_ASKED_P2P];
	if (a[NPULINK_A_CONN_STATUS])
		parse_status(a[NPULINK_A_CONN_STATUS], conn);
	return 0;
}

static int parse_op(struct nlmsghdr *nlh, struct nlattr **a, void *item)
{
	struct genlmsghdr *genl = genlmsg_hdr(nlh);
	struct state_op *op = item;
	struct nlattr *attr;
	int rem;

	op->comm = get_u32(a, NPULINK_A_OP_COMM);
	op->rank = get_u32(a, NPULINK_A_OP_RANK);
	op->state = get_u32(a, NPULINK_A_OP_STATE);
	op->steps = get_u32(a, NPULINK_A_OP_STEPS);
	op->units = get_u32(a, NPULINK_A_OP_UNITS);
	op->units_left = get_u32(a, NPULINK_A_OP_UNITS_LEFT);
	op->number = get_u64(a, NPULINK_A_OP_NUMBER);
	op->seq = get_u64(a, NPULINK_A_OP_SEQ);
	op->bytes = get_u64(a, NPULINK_A_OP_BYTES);
	op->bytes_done = get_u64(a, NPULINK_A_OP_BYTES_DONE);
	op->age = get_u64(a, NPULINK_A_OP_AGE);
	op->left = get_number(a, NPULINK_A_OP_LEFT);
	op->slow = get_u64(a, NPULINK_A_OP_SLOW);
	op->p2p = a[NPULINK_A_OP_P2P];
	get_str(a, NPULINK_A_OP_ALGORITHM, op->algorithm, sizeof(op->algorithm));
	nla_for_each_attr(attr, genlmsg_attrdata(genl, 0), genlmsg_attrlen(genl, 0), rem)
		if (nla_type(attr) == NPULINK_A_OP_WAIT && op->nwaits < MAX_WAITS &&
		    !parse_wait(attr, &op->waits[op->nwaits]))
			op->nwaits++;
	return parse_call(a[NPULINK_A_OP_CALL], &op->call);
}

static int parse_file(struct nlattr **a, void *item)
{
	struct state_file *file = item;

	file->id = get_u32(a, NPULINK_A_FILE_ID);
	file->dev = get_u32(a, NPULINK_A_FILE_DEV);
	file->pid = get_u32(a, NPULINK_A_FILE_PID);
	file->uid = get_u32(a, NPULINK_A_FILE_UID);
	file->ops = get_u32(a, NPULINK_A_FILE_OPS);
	file->bufs = get_u32(a, NPULINK_A_FILE_BUFS);
	file->registered = get_u64(a, NPULINK_A_FILE_REGISTERED);
	file->allocated = get_u64(a, NPULINK_A_FILE_ALLOCATED);
	file->imported = get_u64(a, NPULINK_A_FILE_IMPORTED);
	file->arena = get_u64(a, NPULINK_A_FILE_ARENA);
	file->ring = get_u64(a, NPULINK_A_FILE_RING);
	file->pinned = get_u64(a, NPULINK_A_FILE_PINNED);
	file->device = get_u64(a, NPULINK_A_FILE_DEVICE);
	return 0;
}

static int parse_buf(struct nlattr **a, void *item)
{
	struct state_buf *buf = item;

	buf->file = get_u32(a, NPULINK_A_BUF_FILE);
	buf->id = get_u32(a, NPULINK_A_BUF_ID);
	buf->kind = get_u32(a, NPULINK_A_BUF_KIND);
	buf->users = get_u32(a, NPULINK_A_BUF_USERS);
	buf->len = get_u64(a, NPULINK_A_BUF_LEN);
	buf->pinned = get_u64(a, NPULINK_A_BUF_PINNED);
	buf->readonly = a[NPULINK_A_BUF_READONLY];
	buf->unmapped = a[NPULINK_A_BUF_UNMAPPED];
	buf->devices = get_u32(a, NPULINK_A_BUF_DEVICES);
	return 0;
}

static int parse_stat(struct nlmsghdr *nlh, struct nlattr **a, void *item)
{
	struct genlmsghdr *genl = genlmsg_hdr(nlh);
	struct nlattr *attr, *f[NPULINK_A_FAILURE_MAX + 1];
	struct state_stat *stat = item;
	int rem;

	stat->devs = get_u32(a, NPULINK_A_STAT_DEVS);
	stat->files = get_u32(a, NPULINK_A_STAT_FILES);
	stat->comms = get_u32(a, NPULINK_A_STAT_COMMS);
	stat->ranks = get_u32(a, NPULINK_A_STAT_RANKS);
	stat->ops = get_u32(a, NPULINK_A_STAT_OPS);
	stat->pinned = get_u64(a, NPULINK_A_STAT_PINNED);
	stat->done = get_u64(a, NPULINK_A_STAT_OPS_DONE);
	stat->failed = get_u64(a, NPULINK_A_STAT_OPS_FAILED);
	stat->slow = get_u64(a, NPULINK_A_STAT_SLOW);
	stat->events = get_u64(a, NPULINK_A_STAT_EVENTS);
	stat->events_lost = get_u64(a, NPULINK_A_STAT_EVENTS_LOST);
	nla_for_each_attr(attr, genlmsg_attrdata(genl, 0), genlmsg_attrlen(genl, 0), rem) {
		uint32_t cause;

		if (nla_type(attr) != NPULINK_A_STAT_FAILURES ||
		    nla_parse_nested(f, NPULINK_A_FAILURE_MAX, attr, NULL))
			continue;
		cause = get_u32(f, NPULINK_A_FAILURE_CAUSE);
		if (cause < STATE_CAUSES)
			stat->failures[cause] = get_u64(f, NPULINK_A_FAILURE_COUNT);
	}
	return 0;
}

int state_comms(struct state_comm **comms, size_t *n)
{
	struct list list = {
		.size = sizeof(**comms), .parse = parse_comm, .maxattr = NPULINK_A_COMM_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_COMM_GET, 0, ANY_DEV, true, &list, (void **)comms, n);
}

int state_ranks(uint32_t comm, struct state_rank **ranks, size_t *n)
{
	struct list list = {
		.size = sizeof(**ranks), .parse = parse_rank, .maxattr = NPULINK_A_RANK_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_RANK_GET, NPULINK_A_RANK_COMM, comm, true, &list,
		       (void **)ranks, n);
}

/* The first of that communicator, or of a later one: they come ordered by that, then by rank. */
static size_t first_rank(uint64_t comm, const struct state_rank *ranks, size_t n)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ranks[mid].comm < comm)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct state_rank *state_ranks_of(uint32_t comm, const struct state_rank *ranks, size_t n,
				    size_t *nof)
{
	size_t first = first_rank(comm, ranks, n);

	*nof = first_rank((uint64_t)comm + 1, ranks, n) - first;
	return ranks + first;
}

int state_conns(uint32_t comm, struct state_conn **conns, size_t *n)
{
	struct list list = {
		.size = sizeof(**conns), .parse = parse_conn, .maxattr = NPULINK_A_CONN_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_CONN_GET, NPULINK_A_CONN_COMM, comm, true, &list,
		       (void **)conns, n);
}

int state_ops(uint32_t comm, struct state_op **ops, size_t *n)
{
	struct list list = {
		.size = sizeof(**ops), .parse_all = parse_op, .maxattr = NPULINK_A_OP_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_OP_GET, NPULINK_A_OP_COMM, comm, true, &list,
		       (void **)ops, n);
}

int state_files(struct state_file **files, size_t *n)
{
	struct list list = {
		.size = sizeof(**files), .parse = parse_file, .maxattr = NPULINK_A_FILE_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_FILE_GET, 0, ANY_DEV, true, &list, (void **)files, n);
}

int state_bufs(uint32_t file, struct state_buf **bufs, size_t *n)
{
	struct list list = {
		.size = sizeof(**bufs), .parse = parse_buf, .maxattr = NPULINK_A_BUF_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_BUF_GET, NPULINK_A_BUF_FILE, file, true, &list,
		       (void **)bufs, n);
}

int state_stat(struct state_stat *stat)
{
	struct list list = {
		.size = sizeof(*stat), .parse_all = parse_stat, .maxattr = NPULINK_A_STAT_MAX,
	};
	struct state_stat *items;
	size_t n;
	int rc;

	rc = nl_list(NPULINK_GENL_CMD_STAT_GET, 0, ANY_DEV, false, &list, (void **)&items, &n);
	if (rc)
		return rc;
	if (n == 1)
		*stat = *items;
	free(items);
	return n == 1 ? 0 : -EPROTO;
}

uint32_t count_hidden(uint32_t before, uint32_t after, size_t seen)
{
	uint32_t n = before < after ? before : after;

	return n > seen ? n - seen : 0;
}

uint32_t state_hidden_comms(void)
{
	struct state_stat before, after;
	struct state_comm *comms;
	size_t n;

	if (state_stat(&before) || state_comms(&comms, &n))
		return 0;
	free(comms);
	return state_stat(&after) ? 0 : count_hidden(before.comms, after.comms, n);
}

int state_fail(int rc, const char *what, uint32_t id)
{
	if (rc == -ENOENT)
		return fail("there is no %s %u that you may see", what, id);
	return nl_fail(rc, id);
}

/* ---- events */

struct listener {
	bool (*fn)(const struct state_event *event, void *arg);
	void *arg;
	bool over;
};

static int on_event(struct nl_msg *msg, void *arg)
{
	struct nlattr *a[NPULINK_A_EVENT_MAX + 1];
	struct genlmsghdr *genl = genlmsg_hdr(nlmsg_hdr(msg));
	struct listener *listener = arg;
	struct state_event event;
	struct nlattr *attr;
	int rem;

	if (genl->cmd != NPULINK_GENL_CMD_EVENT || listener->over ||
	    genlmsg_parse(nlmsg_hdr(msg), 0, a, NPULINK_A_EVENT_MAX, NULL) < 0)
		return NL_OK;
	event = (struct state_event) {
		.type = get_u32(a, NPULINK_A_EVENT_TYPE),
		.dev = get_or_none(a, NPULINK_A_EVENT_DEV),
		.peer_dev = get_or_none(a, NPULINK_A_EVENT_PEER_DEV),
		.comm = get_or_none(a, NPULINK_A_EVENT_COMM),
		.rank = get_or_none(a, NPULINK_A_EVENT_RANK),
		.peer = get_or_none(a, NPULINK_A_EVENT_PEER),
		.step = get_or_none(a, NPULINK_A_EVENT_STEP),
		.cause = get_u32(a, NPULINK_A_EVENT_CAUSE),
		.code = get_u32(a, NPULINK_A_EVENT_CODE),
		.serial = get_u64(a, NPULINK_A_EVENT_SERIAL),
		.time = get_u64(a, NPULINK_A_EVENT_TIME),
		.lost = get_u64(a, NPULINK_A_EVENT_LOST),
		.number = get_number(a, NPULINK_A_EVENT_NUMBER),
		.age = get_u64(a, NPULINK_A_EVENT_AGE),
		.limit = get_u64(a, NPULINK_A_EVENT_LIMIT),
		.circle.n = get_u32(a, NPULINK_A_EVENT_NCIRCLE),
	};
	parse_place(a[NPULINK_A_EVENT_IP], a[NPULINK_A_EVENT_PORT], &event.place);
	nla_for_each_attr(attr, genlmsg_attrdata(genl, 0), genlmsg_attrlen(genl, 0), rem)
		if (nla_type(attr) == NPULINK_A_EVENT_CIRCLE)
			parse_circle(attr, &event.circle);
	listener->over = !listener->fn(&event, listener->arg);
	return NL_OK;
}

int state_events(bool (*fn)(const struct state_event *event, void *arg), void *arg)
{
	struct listener listener = { .fn = fn, .arg = arg };
	struct nl_sock *sock;
	int group, rc;

	rc = nl_open(&sock);
	if (rc < 0)
		goto out;
	nl_socket_disable_seq_check(sock);
	errno = 0;
	/* A burst must find room while a line is being printed. */
	nl_socket_set_buffer_size(sock, 1 << 20, 0);
	rc = group = genl_ctrl_resolve_grp(sock, NPULINK_GENL_NAME, NPULINK_GENL_GROUP_EVENTS);
	if (rc >= 0)
		rc = nl_socket_add_membership(sock, group);
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, on_event, &listener);
	/* Tell the caller that from now on nothing is missed. */
	if (rc >= 0 && !fn(NULL, arg))
		listener.over = true;
	while (rc >= 0 && !listener.over) {
		errno = 0;
		rc = nl_recvmsgs_default(sock);
		/* What did not fit is seen by the gap in the serial numbers. */
		if (rc == -NLE_NOMEM || rc == -NLE_INTR || rc == -NLE_AGAIN)
			rc = 0;
	}
	rc = nl_errno(rc, 0);
out:
	nl_socket_free(sock);
	return rc;
}
