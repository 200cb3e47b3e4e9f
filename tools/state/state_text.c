// SPDX-License-Identifier: GPL-2.0
/*
 * state_text.c - words for what the kernel tells in numbers, in text and JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <linux/npulink_genl.h>
#include "lib/plan/plan.h"
#include "lib/run/error.h"
#include "state/state.h"

const char *cause_name(uint32_t cause)
{
	static const char *const names[STATE_CAUSES] = {
		"none", "abort", "deadline", "death", "left", "mismatch", "link", "device",
		"checksum", "deadlock", "removed",
	};

	return cause < STATE_CAUSES ? names[cause] : "unknown";
}

const char *rank_state_name(uint32_t state)
{
	switch (state) {
	case NPULINK_RANK_STATE_JOINED:	return "joined";
	case NPULINK_RANK_STATE_DEAD:	return "dead";
	case NPULINK_RANK_STATE_LEFT:	return "left";
	case NPULINK_RANK_STATE_AWAITED: return "awaited";
	default:			return "unknown";
	}
}

const char *wait_name(uint32_t kind)
{
	switch (kind) {
	case NPULINK_WAIT_RECV:		return "recv";
	case NPULINK_WAIT_SEND:		return "send";
	case NPULINK_WAIT_ENGINE:	return "engine";
	case NPULINK_WAIT_WORKER:	return "worker";
	default:			return "unknown";
	}
}

const char *conn_state_name(uint32_t state)
{
	switch (state) {
	case NPULINK_CONN_STATE_CONNECTING:	return "connecting";
	case NPULINK_CONN_STATE_UP:		return "up";
	case NPULINK_CONN_STATE_LEFT:		return "left";
	case NPULINK_CONN_STATE_DOWN:		return "down";
	case NPULINK_CONN_STATE_RESUMING:	return "resuming";
	default:				return "none";
	}
}

const char *human_ns(uint64_t ns, char buf[24])
{
	if (ns < 1000000)
		snprintf(buf, 24, "%.0f us", ns / 1e3);
	else if (ns < 1000000000)
		snprintf(buf, 24, "%.0f ms", ns / 1e6);
	else
		snprintf(buf, 24, "%.1f s", ns / 1e9);
	return buf;
}

static const char *or_number(const char *name, uint32_t value, char buf[16])
{
	if (name)
		return name;
	snprintf(buf, 16, "#%u", value);
	return buf;
}

const char *call_text(const struct npulink_call *call, bool p2p, char *buf, size_t size)
{
	const char *coll = coll_collective_name(call->collective);
	char a[16], b[16], c[16], redop[24] = "", root[24] = "";

	if (npulink_coll_reduces(call->collective))
		snprintf(redop, sizeof(redop), ", %s",
			 or_number(coll_redop_name(call->redop), call->redop, c));
	if (npulink_coll_has_root(call->collective))
		snprintf(root, sizeof(root), ", root %u", call->root);
	if (p2p || call->collective == NPULINK_COLL_P2P)
		snprintf(buf, size, "message of %" PRIu64 " %s", (uint64_t)call->count,
			 or_number(coll_dtype_name(call->dtype), call->dtype, b));
	else if (call->collective == ~0U)
		snprintf(buf, size, "something long ago, %" PRIu64 " calls by now",
			 (uint64_t)call->count);
	else if (call->collective == NPULINK_COLL_BARRIER)
		snprintf(buf, size, "barrier");
	else
		snprintf(buf, size, "%s of %" PRIu64 " %s%s%s",
			 or_number(coll, call->collective, a), (uint64_t)call->count,
			 or_number(coll_dtype_name(call->dtype), call->dtype, b), redop, root);
	return buf;
}

const char *circle_text(const struct state_circle *circle, char *buf, size_t size)
{
	char op[48];
	size_t n = 0;

	*buf = 0;
	for (uint32_t i = 0; i < circle->known && n < size; i++) {
		const struct npulink_circle_wait *w = &circle->waits[i];

		if (w->number == NO_NUMBER)
			snprintf(op, sizeof(op), "a message");
		else
			snprintf(op, sizeof(op), "operation %" PRIu64, (uint64_t)w->number);
		n += snprintf(buf + n, size - n, "%scomm %u: rank %u waits for rank %u in %s",
			      i ? "; " : "", w->comm, w->rank, w->peer, op);
	}
	if (circle->n > circle->known && n < size)
		snprintf(buf + n, size - n, "; and %u more", circle->n - circle->known);
	return buf;
}

const char *cause_text(const struct state_cause *c, char *buf, size_t size)
{
	char a[96], b[96], op[40] = "", at[64] = "", peer[80] = "nobody", via[48] = "", ip[48];
	char circle[CAUSE_TEXT - 40];

	if (c->number != NO_NUMBER)
		snprintf(op, sizeof(op), " in operation %" PRIu64, c->number);
	if (c->number != NO_NUMBER && c->step != NONE)
		snprintf(at, sizeof(at), "%s, step %u", op, c->step);
	else
		strcpy(at, op);
	if (c->place.there)
		snprintf(peer, sizeof(peer), "rank %u on %s", c->peer, ip_text(c->place.ip, ip));
	else if (c->peer != NONE)
		snprintf(peer, sizeof(peer), "rank %u", c->peer);
	if (*c->place.port)
		snprintf(via, sizeof(via), " over port %s", c->place.port);
	switch (c->cause) {
	case NPULINK_CAUSE_ABORT:
		snprintf(buf, size, "rank %u aborted it (code %u)", c->rank, c->code);
		break;
	case NPULINK_CAUSE_DEADLINE:
		snprintf(buf, size, "the deadline passed%s: rank %u waited for %s", op, c->rank,
			 peer);
		break;
	case NPULINK_CAUSE_DEATH:
		if (c->code)
			snprintf(buf, size, "rank %u was killed by signal %u", c->rank, c->code);
		else
			snprintf(buf, size, "rank %u ended", c->rank);
		break;
	case NPULINK_CAUSE_LEFT:
		snprintf(buf, size, "%s left, and rank %u needs it%s", peer, c->rank, op);
		break;
	case NPULINK_CAUSE_MISMATCH:
		snprintf(buf, size, "different calls%s: rank %u %s; %s %s", op, c->rank,
			 call_text(&c->calls[0], false, a, sizeof(a)), peer,
			 call_text(&c->calls[1], false, b, sizeof(b)));
		break;
	case NPULINK_CAUSE_LINK:
		snprintf(buf, size, "the link between rank %u and %s%s was lost%s%s%s", c->rank,
			 peer, via, at, c->place.there ? ": " : "",
			 c->place.there ? coll_lost_text(c->code) : "");
		break;
	case NPULINK_CAUSE_DEVICE:
		snprintf(buf, size, "the device of rank %u reported a fault%s (errno %u)", c->rank,
			 op, c->code);
		break;
	case NPULINK_CAUSE_CHECKSUM:
		snprintf(buf, size, "data from %s arrived damaged at rank %u%s%s", peer, c->rank,
			 via, at);
		break;
	case NPULINK_CAUSE_DEADLOCK:
		if (c->circle.known)
			snprintf(buf, size, "processes wait for each other: %s",
				 circle_text(&c->circle, circle, sizeof(circle)));
		else
			snprintf(buf, size, "rank %u and %s wait for each other%s", c->rank, peer,
				 op);
		break;
	case NPULINK_CAUSE_REMOVED:
		snprintf(buf, size, "the device of rank %u was removed", c->rank);
		break;
	default:
		snprintf(buf, size, "cause %u", c->cause);
	}
	return buf;
}

struct json_object *call_json(const struct npulink_call *call, bool p2p)
{
	struct json_object *obj = json_object_new_object();
	char set_id[24];

	put_str(obj, "collective", p2p ? "message" : coll_collective_name(call->collective));
	put_u64(obj, "count", call->count);
	put_str(obj, "dtype", coll_dtype_name(call->dtype));
	put_str(obj, "redop", coll_redop_name(call->redop));
	put_u64(obj, "root", call->root);
	snprintf(set_id, sizeof(set_id), "%016" PRIx64, (uint64_t)call->set_id);
	put_str(obj, "set_id", set_id);
	return obj;
}

static void put_or_null(struct json_object *obj, const char *key, uint64_t value, bool there)
{
	if (there)
		put_u64(obj, key, value);
	else
		json_object_object_add(obj, key, NULL);
}

struct json_object *circle_json(const struct state_circle *circle)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < circle->known; i++) {
		const struct npulink_circle_wait *w = &circle->waits[i];
		struct json_object *obj = json_object_new_object();

		put_u64(obj, "comm", w->comm);
		put_u64(obj, "rank", w->rank);
		put_u64(obj, "peer", w->peer);
		put_or_null(obj, "number", w->number, w->number != NO_NUMBER);
		json_object_array_add(list, obj);
	}
	return list;
}

void place_json(struct json_object *obj, const struct state_place *place)
{
	char ip[48];

	put_str(obj, "machine", place->there ? ip_text(place->ip, ip) : NULL);
	put_str(obj, "port", *place->port ? place->port : NULL);
}

struct json_object *cause_json(const struct state_cause *c)
{
	struct json_object *obj = json_object_new_object(), *calls = json_object_new_array();
	char text[CAUSE_TEXT];

	put_str(obj, "cause", cause_name(c->cause));
	put_str(obj, "text", cause_text(c, text, sizeof(text)));
	put_u64(obj, "errno", c->error);
	put_u64(obj, "rank", c->rank);
	put_or_null(obj, "peer", c->peer, c->peer != NONE);
	put_or_null(obj, "step", c->step, c->step != NONE);
	put_or_null(obj, "number", c->number, c->number != NO_NUMBER);
	put_u64(obj, "code", c->code);
	place_json(obj, &c->place);
	for (unsigned int i = 0; i < c->ncalls; i++)
		json_object_array_add(calls, call_json(&c->calls[i], false));
	json_object_object_add(obj, "calls", calls);
	json_object_object_add(obj, "circle", circle_json(&c->circle));
	return obj;
}

static void put_dev(struct json_object *obj, const char *key, uint32_t dev)
{
	char name[16];

	snprintf(name, sizeof(name), "npu%u", dev);
	put_str(obj, key, dev == NONE ? NULL : name);
}

struct json_object *wait_json(const struct state_wait *w)
{
	struct json_object *obj = json_object_new_object();

	put_str(obj, "for", wait_name(w->kind));
	put_u64(obj, "step", w->step);
	put_or_null(obj, "peer", w->peer, w->peer != NONE);
	put_u64(obj, "since_ns", w->since);
	put_u64(obj, "done", w->done);
	put_u64(obj, "len", w->len);
	put_dev(obj, "from", w->dev);
	put_dev(obj, "to", w->peer_dev);
	put_bool(obj, "posted", w->met);
	put_bool(obj, "remote", w->remote);
	return obj;
}
