// SPDX-License-Identifier: GPL-2.0
/*
 * monitor.c - npulink monitor: events as they happen, a line each, in text or JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <linux/npulink_genl.h>
#include "state/state.h"

struct monitor {
	uint64_t left;		/* events to print; 0: no end */
	uint64_t serial;	/* of the last event */
};

/* The words that people look for. */
static const char *event_name(const struct state_event *e)
{
	switch (e->type) {
	case NPULINK_EVENT_DEV_ADD:	return "device-add";
	case NPULINK_EVENT_DEV_DEL:	return "device-del";
	case NPULINK_EVENT_LINK_UP:	return "link-up";
	case NPULINK_EVENT_LINK_DOWN:	return "link-down";
	case NPULINK_EVENT_SLOW:	return "slow";
	case NPULINK_EVENT_SLOW_END:	return "slow-end";
	case NPULINK_EVENT_SUSPECT:	return "suspected";
	case NPULINK_EVENT_PORT_LOST:	return "port-lost";
	case NPULINK_EVENT_PORT_NEXT:	return "port-next";
	case NPULINK_EVENT_FAIL:
		return e->cause == NPULINK_CAUSE_DEADLINE ? "stuck" : cause_name(e->cause);
	default:
		return "unknown";
	}
}

static void event_text(const struct state_event *e)
{
	struct state_cause cause = {
		.cause = e->cause, .rank = e->rank, .peer = e->peer, .step = e->step,
		.code = e->code, .number = e->number, .place = e->place, .circle = e->circle,
	};
	time_t seconds = e->time / 1000000000;
	char when[32], text[CAUSE_TEXT], a[24], b[24], ip[48];
	struct tm tm;

	localtime_r(&seconds, &tm);
	strftime(when, sizeof(when), "%H:%M:%S", &tm);
	printf("%s.%03u %-10s ", when, (unsigned int)(e->time / 1000000 % 1000), event_name(e));
	switch (e->type) {
	case NPULINK_EVENT_DEV_ADD:
	case NPULINK_EVENT_DEV_DEL:
		printf("npu%u\n", e->dev);
		break;
	case NPULINK_EVENT_LINK_UP:
	case NPULINK_EVENT_LINK_DOWN:
		printf("npu%u -> npu%u\n", e->dev, e->peer_dev);
		break;
	case NPULINK_EVENT_PORT_LOST:
		printf("comm %u: rank %u has lost rank %u on %s over port %s, and tries others\n",
		       e->comm, e->rank, e->peer, ip_text(e->place.ip, ip), e->place.port);
		break;
	case NPULINK_EVENT_PORT_NEXT:
		printf("comm %u: rank %u goes on with rank %u on %s over port %s\n", e->comm,
		       e->rank, e->peer, ip_text(e->place.ip, ip), e->place.port);
		break;
	case NPULINK_EVENT_SLOW:
		printf("comm %u: operation %" PRIu64 " of rank %u takes %s, expected at most %s",
		       e->comm, e->number, e->rank, human_ns(e->age, a), human_ns(e->limit, b));
		if (e->peer != NONE)
			printf("; waits for rank %u", e->peer);
		printf("\n");
		break;
	case NPULINK_EVENT_SLOW_END:
		printf("comm %u: operation %" PRIu64 " of rank %u has ended after %s, expected at most %s\n",
		       e->comm, e->number, e->rank, human_ns(e->age, a), human_ns(e->limit, b));
		break;
	case NPULINK_EVENT_SUSPECT:
		printf("processes wait for each other, and will hang unless another of their threads goes on: %s\n",
		       circle_text(&e->circle, text, sizeof(text)));
		break;
	case NPULINK_EVENT_FAIL:
		/* What they have called is for their owner only. */
		if (e->cause == NPULINK_CAUSE_MISMATCH && e->peer != NONE)
			printf("comm %u: ranks %u and %u called different things as operation %llu, see: npulink comm show %u\n",
			       e->comm, e->rank, e->peer, (unsigned long long)e->number,
			       e->comm);
		else
			printf("comm %u: %s\n", e->comm, cause_text(&cause, text, sizeof(text)));
		break;
	default:
		printf("type %u\n", e->type);
	}
}

static void put_if(struct json_object *obj, const char *key, uint32_t value)
{
	if (value != NONE)
		put_u64(obj, key, value);
}

static void event_json(const struct state_event *e)
{
	struct json_object *obj = json_object_new_object();

	put_str(obj, "event", event_name(e));
	put_u64(obj, "serial", e->serial);
	put_u64(obj, "time_ns", e->time);
	put_u64(obj, "lost", e->lost);
	put_if(obj, "dev", e->dev);
	put_if(obj, "peer_dev", e->peer_dev);
	put_if(obj, "comm", e->comm);
	put_if(obj, "rank", e->rank);
	put_if(obj, "peer", e->peer);
	put_if(obj, "step", e->step);
	if (e->number != NO_NUMBER)
		put_u64(obj, "number", e->number);
	if (e->type == NPULINK_EVENT_FAIL)
		put_u64(obj, "code", e->code);
	if (e->type == NPULINK_EVENT_SLOW || e->type == NPULINK_EVENT_SLOW_END) {
		put_u64(obj, "age_ns", e->age);
		put_u64(obj, "limit_ns", e->limit);
	}
	if (e->place.there)
		place_json(obj, &e->place);
	if (e->circle.n)
		json_object_object_add(obj, "circle", circle_json(&e->circle));
	/* A line each, so that programs can read them as they come. */
	printf("%s\n", json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PLAIN));
	json_object_put(obj);
}

static bool on_event(const struct state_event *e, void *arg)
{
	struct monitor *m = arg;

	if (!e) {
		if (!opts.json)
			printf("listening\n");
		return !fflush(stdout);
	}
	if (m->serial && e->serial > m->serial + 1 && !opts.json)
		printf("... %" PRIu64 " events were missed here\n", e->serial - m->serial - 1);
	m->serial = e->serial;
	if (opts.json)
		event_json(e);
	else
		event_text(e);
	if (fflush(stdout))
		return false;
	return !m->left || --m->left;
}

static const char usage[] =
	"Usage: npulink [-j] monitor [-n N]\n"
	"\n"
	"Prints events as they happen: devices that come and go, links that go down and up,\n"
	"operations that are slow or stuck, connections to other machines that go on over\n"
	"another port, and communicators that fail: death of a rank, mismatch, abort, ...\n"
	"No privilege is needed.\n"
	"\n"
	"  -n, --count N  stop after N events\n"
	"  -j, --json     JSON, one object a line\n";

int monitor_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "count", required_argument, NULL, 'n' },
		CMD_OPTION_END
	};
	struct monitor m = { };
	char *words[argc + 2];
	int c, rc;

	words[0] = "monitor";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "n:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (!parse_u64(optarg, UINT64_MAX, &m.left) || !m.left)
			return usage_error("monitor: \"%s\" is no number of events", optarg);
	}
	if (optind < argc + 1)
		return usage_error("monitor: unknown word \"%s\"", words[optind]);
	rc = state_events(on_event, &m);
	return rc ? state_fail(rc, "", 0) : EXIT_SUCCESS;
}
