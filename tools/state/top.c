// SPDX-License-Identifier: GPL-2.0
/*
 * top.c - npulink top: who moves how much over which link now. What each rank has got from
 * each of its peers is read again and again; the difference is what it moves.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink_genl.h>
#include "state/state.h"

struct sample {
	struct state_conn *conns;
	struct state_rank *ranks;
	struct link *links;
	struct state_stat stat;
	size_t nconns, nranks, nlinks;
	double when;
};

/* Bytes between a rank and one peer, in one direction. */
struct flow {
	const struct state_conn *conn;
	bool out;			/* to a peer on another machine; else from the peer */
	double bytes, steps;		/* per second */
};

struct flows {
	struct flow *v;
	size_t n;
	double seconds, bytes, ops;	/* of all users */
};

static int sample_take(struct sample *s)
{
	struct timespec ts;
	int rc;

	*s = (struct sample) { };
	rc = state_conns(ANY_DEV, &s->conns, &s->nconns);
	if (!rc)
		rc = state_ranks(ANY_DEV, &s->ranks, &s->nranks);
	if (!rc)
		rc = nl_links(ANY_DEV, &s->links, &s->nlinks);
	if (!rc)
		rc = state_stat(&s->stat);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	s->when = ts.tv_sec + ts.tv_nsec / 1e9;
	return rc;
}

static void sample_free(struct sample *s)
{
	free(s->conns);
	free(s->ranks);
	free(s->links);
	*s = (struct sample) { };
}

/* ---- what has changed */

static int conn_cmp(const struct state_conn *a, const struct state_conn *b)
{
	if (a->comm != b->comm)
		return a->comm < b->comm ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return (a->peer > b->peer) - (a->peer < b->peer);
}

static void add_flow(struct flows *f, const struct state_conn *conn, bool out, uint64_t bytes,
		     uint64_t steps)
{
	if (!bytes && !steps)
		return;
	f->v[f->n++] = (struct flow) {
		.conn = conn, .out = out, .bytes = bytes / f->seconds, .steps = steps / f->seconds,
	};
}

static int flow_cmp(const void *a, const void *b)
{
	const struct flow *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->steps != y->steps)
		return x->steps > y->steps ? -1 : 1;
	return conn_cmp(x->conn, y->conn);
}

static uint64_t all_bytes(const struct sample *s)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < s->nlinks; i++)
		bytes += s->links[i].bytes;
	return bytes;
}

static int find_flows(const struct sample *old, const struct sample *s, struct flows *f)
{
	uint64_t before = all_bytes(old), after = all_bytes(s);
	size_t k = 0;

	*f = (struct flows) { .seconds = s->when - old->when };
	f->v = calloc(2 * s->nconns + 1, sizeof(*f->v));
	if (!f->v)
		return -ENOMEM;
	/* A device may have gone, with its counters. */
	f->bytes = after > before ? (after - before) / f->seconds : 0;
	f->ops = s->stat.done > old->stat.done ? (s->stat.done - old->stat.done) / f->seconds : 0;
	for (size_t i = 0; i < s->nconns; i++) {
		static const struct state_conn none;
		const struct state_conn *c = &s->conns[i], *o = &none;

		/* Both are in one order, by communicator, rank and peer. */
		while (k < old->nconns && conn_cmp(&old->conns[k], c) < 0)
			k++;
		if (k < old->nconns && !conn_cmp(&old->conns[k], c))
			o = &old->conns[k];
		add_flow(f, c, false, c->bytes - o->bytes, c->steps - o->steps);
		add_flow(f, c, true, c->sent_bytes - o->sent_bytes, c->sent_steps - o->sent_steps);
	}
	qsort(f->v, f->n, sizeof(*f->v), flow_cmp);
	return 0;
}

static const struct state_rank *rank_of(const struct sample *s, const struct state_conn *c)
{
	for (size_t i = 0; i < s->nranks; i++)
		if (s->ranks[i].comm == c->comm && s->ranks[i].rank == c->rank)
			return &s->ranks[i];
	return NULL;
}

/* ---- telling */

static void ends(const struct flow *f, char from[48], char to[48])
{
	const struct state_conn *c = f->conn;
	char *near = f->out ? from : to, *far = f->out ? to : from;

	snprintf(near, 48, "npu%u", c->dev);
	if (c->remote)
		ip_text(c->ip, far);
	else
		snprintf(far, 48, "npu%u", c->peer_dev);
}

static struct json_object *flow_json(const struct sample *s, const struct flow *f)
{
	struct json_object *obj = json_object_new_object();
	const struct state_rank *r = rank_of(s, f->conn);
	char from[48], to[48];
	struct proc proc;

	ends(f, from, to);
	put_u64(obj, "comm", f->conn->comm);
	put_u64(obj, "rank", f->conn->rank);
	put_u64(obj, "peer", f->conn->peer);
	put_str(obj, "from", from);
	put_str(obj, "to", to);
	put_double(obj, "bytes_per_second", f->bytes);
	put_double(obj, "steps_per_second", f->steps);
	if (!r || !r->known)
		return obj;
	proc_read(r->pid, &proc);
	put_u64(obj, "pid", r->pid);
	put_u64(obj, "uid", r->uid);
	put_str(obj, "process", *proc.name ? proc.name : NULL);
	return obj;
}

/* A line each time, so that programs can read them as they come. */
static void top_json(const struct sample *s, const struct flows *f)
{
	struct json_object *obj = json_object_new_object(), *array = json_object_new_array();

	put_double(obj, "seconds", f->seconds);
	put_double(obj, "bytes_per_second", f->bytes);
	put_double(obj, "operations_per_second", f->ops);
	for (size_t i = 0; i < f->n; i++)
		json_object_array_add(array, flow_json(s, &f->v[i]));
	json_object_object_add(obj, "flows", array);
	json_print(obj);
}

static void flow_text(const struct sample *s, const struct flow *f, double all)
{
	const struct state_rank *r = rank_of(s, f->conn);
	char from[48], to[48], link[100], bytes[16], user[16] = "-", pid[16] = "-";
	struct proc proc = { .name = "-" };

	if (r && r->known) {
		user_name(r->uid, user);
		snprintf(pid, sizeof(pid), "%u", r->pid);
		proc_read(r->pid, &proc);
	}
	ends(f, from, to);
	snprintf(link, sizeof(link), "%s -> %s", from, to);
	printf("%7s %-10s %-15s %5u %5u %5u  %-22s %8s/s %9.0f/s %4.0f%%\n", pid, user, proc.name,
	       f->conn->comm, f->conn->rank, f->conn->peer, link, human_bytes(f->bytes, bytes),
	       f->steps, all > 0 ? 100 * f->bytes / all : 0);
}

static void top_text(const struct sample *s, const struct flows *f)
{
	size_t lines = f->n, rows = SIZE_MAX;
	char bytes[16], when[32];
	time_t t = time(NULL);
	struct winsize size;
	double all = 0;

	if (isatty(STDOUT_FILENO)) {
		fputs("\033[H\033[2J", stdout);
		if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row > 4)
			rows = size.ws_row - 4;
	}
	for (size_t i = 0; i < f->n; i++)
		all += f->v[i].bytes;
	strftime(when, sizeof(when), "%H:%M:%S", localtime(&t));
	printf("%s  all users: %s/s over links of this machine, %.0f operations/s; "
	       "%u ranks, %u operations in flight\n\n", when, human_bytes(f->bytes, bytes), f->ops,
	       s->stat.ranks, s->stat.ops);
	printf("%7s %-10s %-15s %5s %5s %5s  %-22s %10s %11s %5s\n", "PID", "USER", "PROCESS",
	       "COMM", "RANK", "PEER", "LINK", "BYTES", "STEPS", "SHARE");
	if (lines > rows)
		lines = rows;
	for (size_t i = 0; i < lines; i++)
		flow_text(s, &f->v[i], all);
	if (!isatty(STDOUT_FILENO))
		printf("\n");
}

static const char usage[] =
	"Usage: npulink [-j] top [-d SECONDS] [-n COUNT]\n"
	"\n"
	"Shows who moves how much over which link now: a line for each rank and each of its\n"
	"peers that it got bytes from (or, on another machine, sent bytes to), the busiest\n"
	"first. Ranks of other users only for root; the first line is about all users.\n"
	"\n"
	"  -d, --delay SECONDS  between two looks (2)\n"
	"  -n, --count COUNT    so many times (until it is interrupted)\n"
	"  -j, --json           JSON, one object each time\n";

static int top(double delay, uint64_t count)
{
	const struct timespec pause = {
		.tv_sec = delay, .tv_nsec = (delay - (time_t)delay) * 1e9,
	};
	struct sample old, s = { };
	struct flows f;
	int rc = sample_take(&old);

	for (uint64_t i = 0; !rc && (!count || i < count); i++) {
		nanosleep(&pause, NULL);
		rc = sample_take(&s);
		rc = rc ? rc : find_flows(&old, &s, &f);
		if (rc)
			break;
		if (opts.json)
			top_json(&s, &f);
		else
			top_text(&s, &f);
		free(f.v);
		sample_free(&old);
		old = s;
		s = (struct sample) { };
		if (fflush(stdout) || ferror(stdout))
			break;
	}
	sample_free(&old);
	sample_free(&s);
	return rc ? nl_fail(rc, ANY_DEV) : EXIT_SUCCESS;
}

int top_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "delay", required_argument, NULL, 'd' },
		{ "count", required_argument, NULL, 'n' },
		CMD_OPTION_END
	};
	char *words[argc + 2], *end;
	uint64_t count = 0;
	double delay = 2;
	int c;

	words[0] = "top";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "d:n:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (c == 'n' && (!parse_u64(optarg, UINT64_MAX, &count) || !count))
			return usage_error("top: \"%s\" is no number of times", optarg);
		if (c == 'n')
			continue;
		delay = strtod(optarg, &end);
		if (end == optarg || *end || !(delay >= 0.01 && delay <= 3600))
			return usage_error("top: \"%s\" is no number of seconds", optarg);
	}
	if (optind < argc + 1)
		return usage_error("top: unknown word \"%s\"", words[optind]);
	return top(delay, count);
}
