// SPDX-License-Identifier: GPL-2.0
/*
 * sim_trace.c - a simulation as a file that Perfetto (ui.perfetto.dev) and Chrome's
 * about:tracing open: a process for each rank, with a thread for what it sends,
 * receives and reduces, arrows from sender to receiver, and a mark for each conflict.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/sim_log.h"

enum { SENDS, RECEIVES, REDUCES };

static void name_rank(FILE *f, uint32_t rank, bool reduces)
{
	static const char *const threads[] = { "sends", "receives", "reduces" };

	fprintf(f, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}},\n"
		"{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"args\":{\"sort_index\":%u}},\n",
		rank, rank, rank, rank);
	for (int t = SENDS; t <= (reduces ? REDUCES : RECEIVES); t++)
		fprintf(f, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%d,"
			"\"args\":{\"name\":\"%s\"}},\n", rank, t, threads[t]);
}

static void slice(FILE *f, uint32_t rank, int thread, double from, double to, const char *what,
		  uint32_t peer, uint32_t step, uint64_t len)
{
	fprintf(f, "{\"ph\":\"X\",\"name\":\"%s %u\",\"pid\":%u,\"tid\":%d,\"ts\":%.6f,\"dur\":%.6f,"
		"\"args\":{\"step\":%u,\"bytes\":%" PRIu64 "}},\n", what, peer, rank, thread,
		from * 1e6, (to - from) * 1e6, step, len);
}

static void arrow(FILE *f, size_t id, const struct coll_sim_message *m)
{
	fprintf(f, "{\"ph\":\"s\",\"cat\":\"message\",\"name\":\"message\",\"id\":%zu,\"pid\":%u,"
		"\"tid\":%d,\"ts\":%.6f},\n", id, m->src, SENDS, m->start * 1e6);
	fprintf(f, "{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"message\",\"name\":\"message\",\"id\":%zu,"
		"\"pid\":%u,\"tid\":%d,\"ts\":%.6f},\n", id, m->dst, RECEIVES, m->start * 1e6);
}

static void conflict(FILE *f, const struct sim_log *log, const struct coll_sim_conflict *c)
{
	char link[COLL_NET_LINK_NAME];

	fprintf(f, "{\"ph\":\"i\",\"s\":\"p\",\"name\":\"conflict: %s\",\"pid\":%u,\"tid\":%d,\"ts\":%.6f,"
		"\"args\":{\"to\":%u,\"taken by\":\"%u -> %u\"}},\n",
		coll_net_link_name(&log->net, c->link, link), c->src, SENDS, c->time * 1e6, c->dst,
		c->by_src, c->by_dst);
}

int sim_log_trace(const struct sim_log *log, const struct query *q, const char *path)
{
	FILE *f = output_open(path);
	char title[240];

	if (!f)
		return EXIT_FAILURE;
	query_title(q, title, sizeof(title));
	fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"what\":\"%s\",\"rule\":\"%s\"},\n"
		"\"traceEvents\":[\n", title, rule_name(log->rule));
	for (uint32_t i = 0; i < log->net.nranks; i++)
		name_rank(f, i, npulink_coll_reduces(q->args.collective));
	for (size_t i = 0; i < log->nmessages; i++) {
		const struct coll_sim_message *m = &log->messages[i];

		slice(f, m->src, SENDS, m->start, m->end, "to", m->dst, m->src_step, m->len);
		slice(f, m->dst, RECEIVES, m->start, m->end, "from", m->src, m->dst_step, m->len);
		if (m->done > m->end)
			slice(f, m->dst, REDUCES, m->end, m->done, "with", m->src, m->dst_step,
			      m->len);
		arrow(f, i, m);
	}
	for (size_t i = 0; i < log->nconflicts; i++)
		conflict(f, log, &log->conflicts[i]);
	/* Without a comma, as JSON wants it. */
	fprintf(f, "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"args\":{\"labels\":\"root %u\"}}\n"
		"]}\n", q->args.root);
	return output_close(f, path, false);
}
