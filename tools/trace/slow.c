// SPDX-License-Identifier: GPL-2.0
/*
 * slow.c - npulink slow: who kept the others waiting, and which links are slow, from the
 * ledgers of all flight recorders, since each rank joined; and what is in flight for long now.
 *
 * A rank that is late because it waited itself is not to blame: what it waited for
 * others is taken from what others waited for it. In a ring with one late rank all wait
 * for their neighbour, but only that one has not waited itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/net.h"
#include "state/state.h"
#include "trace/flight.h"

#define BUCKETS	NPULINK_FLIGHT_BUCKETS
#define SHOW	10	/* lines of each table, without --details */
#define WORTH	10000000	/* ns lost, below which nobody is accused */
#define LONG	1000000000	/* ns in flight, from which on an operation is told of */

struct blamed {
	uint32_t comm, rank, dev, pid;
	char task[20];
	bool known;			/* its own recorder is there */
	bool left;			/* and the rank has gone */
	uint64_t all;			/* waited in its communicator, for anybody */
	uint64_t steps, waited, own, taken;
	uint64_t late[BUCKETS];
};

struct slow_link {
	uint32_t from, to;
	uint64_t moves, bytes, ns;
	uint64_t slow[BUCKETS];
};

struct ledger {
	struct blamed *ranks;
	size_t nranks;
	struct slow_link *links;
	size_t nlinks;
	uint64_t waited;		/* by all */
	size_t probes;			/* ranks that are left out */
};

static uint64_t blame(const struct blamed *b)
{
	return b->waited > b->own ? b->waited - b->own : 0;
}

/* ---- adding up */

static int by_name(const void *a, const void *b)
{
	const struct blamed *x = a, *y = b;

	if (x->comm != y->comm)
		return x->comm < y->comm ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_ends(const void *a, const void *b)
{
	const struct slow_link *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to > y->to) - (x->to < y->to);
}

static void add_rank(struct blamed *to, const struct blamed *b)
{
	if (b->known) {
		to->known = true;
		to->left = b->left;
		to->dev = b->dev;
		to->pid = b->pid;
		memcpy(to->task, b->task, sizeof(to->task));
	}
	if (to->dev == NPULINK_NO_PEER)
		to->dev = b->dev;
	to->steps += b->steps;
	to->waited += b->waited;
	to->own += b->own;
	to->taken += b->taken;
	for (size_t i = 0; i < BUCKETS; i++)
		to->late[i] += b->late[i];
}

static void add_link(struct slow_link *to, const struct slow_link *l)
{
	to->moves += l->moves;
	to->bytes += l->bytes;
	to->ns += l->ns;
	for (size_t i = 0; i < BUCKETS; i++)
		to->slow[i] += l->slow[i];
}

/* Those of the communicator that begins at @i, which is the base of blame. The next one's begin. */
static size_t add_comm(struct ledger *sum, size_t i)
{
	size_t end = i, k;
	uint64_t all = 0;

	for (; end < sum->nranks && sum->ranks[end].comm == sum->ranks[i].comm; end++)
		all += sum->ranks[end].waited;
	for (k = i; k < end; k++)
		sum->ranks[k].all = all;
	return end;
}

/* One line for each rank's peers, and for the rank itself; then equal ones are added. */
static int add_up(const struct flight_log *log, struct ledger *sum)
{
	size_t n = log->n, k = 0;

	*sum = (struct ledger){ };
	for (size_t i = 0; i < log->n; i++)
		n += log->v[i].npeers;
	sum->ranks = calloc(n + 1, sizeof(*sum->ranks));
	sum->links = calloc(n + 1, sizeof(*sum->links));
	if (!sum->ranks || !sum->links)
		return fail("not enough memory");
	for (size_t i = 0; i < log->n; i++) {
		const struct flight *f = &log->v[i];
		struct blamed *self = &sum->ranks[sum->nranks++];

		*self = (struct blamed){ .comm = f->comm, .rank = f->rank, .dev = f->dev,
			.pid = f->pid, .known = true, .left = f->left };
		memcpy(self->task, f->task, sizeof(self->task));
		for (size_t p = 0; p < f->npeers; p++) {
			const struct npulink_flight_peer *peer = &f->peers[p];
			struct blamed *b = &sum->ranks[sum->nranks++];
			struct slow_link *l = &sum->links[sum->nlinks];

			*b = (struct blamed){ .comm = f->comm, .rank = peer->peer,
				.dev = peer->dev, .steps = peer->waits, .waited = peer->wait_ns,
				.taken = peer->take_ns };
			*l = (struct slow_link){ .from = peer->dev, .to = f->dev,
				.moves = peer->moves, .bytes = peer->move_bytes,
				.ns = peer->move_ns };
			for (size_t h = 0; h < BUCKETS; h++) {
				b->late[h] = peer->late[h];
				l->slow[h] = peer->slow[h];
			}
			self->own += peer->wait_ns;
			sum->waited += peer->wait_ns;
			sum->nlinks += peer->moves && peer->dev != NPULINK_NO_PEER;
		}
	}
	qsort(sum->ranks, sum->nranks, sizeof(*sum->ranks), by_name);
	for (size_t i = 0; i < sum->nranks; i++) {
		if (k && !by_name(&sum->ranks[k - 1], &sum->ranks[i]))
			add_rank(&sum->ranks[k - 1], &sum->ranks[i]);
		else
			sum->ranks[k++] = sum->ranks[i];
	}
	sum->nranks = k;
	for (size_t i = 0; i < k; i = add_comm(sum, i))
		;
	qsort(sum->links, sum->nlinks, sizeof(*sum->links), by_ends);
	k = 0;
	for (size_t i = 0; i < sum->nlinks; i++) {
		if (k && !by_ends(&sum->links[k - 1], &sum->links[i]))
			add_link(&sum->links[k - 1], &sum->links[i]);
		else
			sum->links[k++] = sum->links[i];
	}
	sum->nlinks = k;
	return 0;
}

static int by_blame(const void *a, const void *b)
{
	const struct blamed *x = a, *y = b;

	if (x->left != y->left)
		return x->left ? 1 : -1;
	if (blame(x) != blame(y))
		return blame(x) > blame(y) ? -1 : 1;
	if (x->waited != y->waited)
		return x->waited > y->waited ? -1 : 1;
	return by_name(a, b);
}

static double ns_per_byte(const struct slow_link *l)
{
	return l->bytes ? (double)l->ns / l->bytes : 0;
}

static int by_speed(const void *a, const void *b)
{
	const struct slow_link *x = a, *y = b;

	if (ns_per_byte(x) != ns_per_byte(y))
		return ns_per_byte(x) > ns_per_byte(y) ? -1 : 1;
	return by_ends(a, b);
}

/* ---- telling */

/* The bucket below whose upper end so much of all is. */
static unsigned int quantile(const uint64_t *buckets, double part)
{
	uint64_t all = 0, sum = 0;
	unsigned int i;

	for (i = 0; i < BUCKETS; i++)
		all += buckets[i];
	for (i = 0; i < BUCKETS - 1; i++) {
		sum += buckets[i];
		if (sum >= part * all)
			break;
	}
	return i;
}

/* How late bucket @i is at most. */
static const char *late_text(unsigned int i, char buf[16])
{
	static const char *const units[] = { "us", "ms", "s" };
	unsigned int us = 1U << i % 10;

	if (i == BUCKETS - 1)
		snprintf(buf, 16, ">0.2 s");
	else
		snprintf(buf, 16, "<%u %s", us, units[i / 10]);
	return buf;
}

/* A line of as many marks as there are buckets; the height tells the order of magnitude. */
static const char *sparkline(const uint64_t *buckets, char *buf, size_t size)
{
	static const char *const blocks[] = {
		" ", "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84", "\xe2\x96\x85",
		"\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88",
	};
	static const char *const plain[] = { " ", ".", ":", "-", "=", "+", "*", "#", "@" };
	const char *locale = getenv("LC_ALL") ?: getenv("LC_CTYPE") ?: getenv("LANG") ?: "";
	const char *const *marks = strcasestr(locale, "utf") ? blocks : plain;
	size_t n = 0;

	*buf = '\0';
	for (size_t i = 0; i < BUCKETS; i++) {
		uint64_t count = buckets[i];
		unsigned int height = 0;

		/* 1, 4, 16, 64, .. */
		for (; count; count >>= 2)
			height++;
		n += snprintf(buf + n, size - n, "%s", marks[height > 8 ? 8 : height]);
	}
	return buf;
}

static void print_ranks(const struct ledger *sum)
{
	char waited[16], own[16], median[16], p99[16], line[4 * BUCKETS + 1];
	size_t shown = 0;

	printf("%4s %5s %-8s %7s %11s %11s %6s %9s %8s %8s   %s\n", "COMM", "RANK", "DEV", "PID",
	       "WAITED FOR", "SELF", "BLAME", "STEPS", "MEDIAN", "P99",
	       "LATE BY 1us .. 1ms .. 0.3s");
	for (size_t i = 0; i < sum->nranks; i++) {
		const struct blamed *b = &sum->ranks[i];
		char dev[16] = "-", pid[16] = "-", share[16] = "-";

		if (!b->steps)
			continue;
		if (!opts.details && shown == SHOW) {
			printf("and %zu more; see --details\n", sum->nranks - i);
			break;
		}
		shown++;
		if (b->dev != NPULINK_NO_PEER)
			snprintf(dev, sizeof(dev), "npu%u", b->dev);
		/* What one on another machine has waited for itself is only known there. */
		if (b->known) {
			if (b->left)
				strcpy(pid, "gone");
			else
				snprintf(pid, sizeof(pid), "%u", b->pid);
			snprintf(share, sizeof(share), "%.0f %%",
				 b->all ? 100. * blame(b) / b->all : 0);
		}
		printf("%4u %5u %-8s %7s %11s %11s %6s %9" PRIu64 " %8s %8s  |%s|\n", b->comm,
		       b->rank, dev, pid, human_time(b->waited / 1e9, waited),
		       b->known ? human_time(b->own / 1e9, own) : "-", share, b->steps,
		       late_text(quantile(b->late, .5), median),
		       late_text(quantile(b->late, .99), p99),
		       sparkline(b->late, line, sizeof(line)));
	}
}

static void print_links(const struct ledger *sum)
{
	char bytes[16], time[16], speed[24], line[4 * BUCKETS + 1];

	if (!sum->nlinks)
		return;
	printf("\n%-9s    %-9s %10s %9s %11s %12s   %s\n", "FROM", "TO", "REQUESTS", "BYTES",
	       "TIME", "SPEED", "1TB/s .. 1GB/s .. 2MB/s");
	for (size_t i = 0; i < sum->nlinks; i++) {
		const struct slow_link *l = &sum->links[i];

		if (!opts.details && i == SHOW) {
			printf("and %zu more; see --details\n", sum->nlinks - i);
			break;
		}
		printf("npu%-6u -> npu%-6u %10" PRIu64 " %9s %11s %12s  |%s|\n", l->from, l->to,
		       l->moves, human_bytes(l->bytes, bytes), human_time(l->ns / 1e9, time),
		       human_speed(ns_per_byte(l) / 1e9, speed),
		       sparkline(l->slow, line, sizeof(line)));
	}
}

/* Does the rank at @i, by blame, stand out in its communicator? */
static bool stands_out(const struct ledger *sum, size_t i)
{
	const struct blamed *b = &sum->ranks[i];

	if (blame(b) < b->all / 4 || blame(b) < WORTH)
		return false;
	for (size_t k = 0; k < sum->nranks; k++)
		if (k != i && sum->ranks[k].comm == b->comm && blame(&sum->ranks[k]) > blame(b) / 2)
			return false;
	return true;
}

/* Who stands out most, if somebody does; of those that have gone only if there is no other. */
static const struct blamed *culprit(const struct ledger *sum)
{
	/* They come in that order. */
	for (size_t i = 0; i < sum->nranks; i++)
		if (blame(&sum->ranks[i]) >= WORTH && stands_out(sum, i))
			return &sum->ranks[i];
	return NULL;
}

/*
 * The slowest link, if most are twice as fast: not only on the whole, which a few requests
 * that were held up would do, but also in the middle.
 */
static const struct slow_link *slowest(const struct ledger *sum)
{
	const struct slow_link *l = sum->links, *usual = l + sum->nlinks / 2;

	if (sum->nlinks < 3 || ns_per_byte(l) < 2 * ns_per_byte(usual) ||
	    (ns_per_byte(l) - ns_per_byte(usual)) * l->bytes < WORTH ||
	    quantile(l->slow, .5) <= quantile(usual->slow, .5))
		return NULL;
	return l;
}

static void print_findings(const struct ledger *sum, bool told)
{
	/* What is in flight for long is not counted: who was slow before it is not the answer. */
	const struct blamed *b = told ? NULL : culprit(sum);
	const struct slow_link *l = slowest(sum);
	char time[16];

	if (b && b->known)
		printf("rank %u of communicator %u (%s, pid %u) %s the others waiting: %s, all of them together\n\n",
		       b->rank, b->comm, b->task, b->pid, b->left ? "has gone; it kept" : "keeps",
		       human_time(blame(b) / 1e9, time));
	else if (b)
		printf("most of the waiting is for rank %u of communicator %u: %s; whom that one waited for is known on its machine, see npulink slow there\n\n",
		       b->rank, b->comm, human_time(blame(b) / 1e9, time));
	if (l)
		printf("the link from npu%u to npu%u is %.1f times as slow as most\n\n", l->from,
		       l->to, ns_per_byte(l) / ns_per_byte(&sum->links[sum->nlinks / 2]));
}

/* ---- what is going on: the ledgers know only of steps that have ended */

/* The oldest operation of each communicator, if it is old, one after the other. */
static const struct state_op *next_old(const struct state_op *ops, size_t n, uint32_t comm, size_t *i)
{
	const struct state_op *oldest = NULL;

	while (*i < n && (!oldest || ops[*i].comm == oldest->comm)) {
		const struct state_op *op = &ops[(*i)++];

		if (op->age >= LONG && (comm == ANY_COMM || op->comm == comm) &&
		    (!oldest || op->age > oldest->age))
			oldest = op;
	}
	return oldest;
}

/* What a rank waits for: who has not even called it comes first. */
static const struct state_wait *first_wait(const struct state_op *op)
{
	const struct state_wait *found = NULL;

	for (unsigned int k = 0; k < op->nwaits; k++) {
		const struct state_wait *w = &op->waits[k];

		if (w->peer == NONE ||
		    (w->kind != NPULINK_WAIT_RECV && w->kind != NPULINK_WAIT_SEND))
			continue;
		if (!found || (found->met && !w->met))
			found = w;
	}
	return found;
}

static bool same_op(const struct state_op *a, const struct state_op *b)
{
	return a->comm == b->comm && a->p2p == b->p2p && a->number == b->number;
}

static void print_old_op(const struct state_op *ops, size_t n, const struct state_op *old)
{
	char text[128], age[24];
	size_t shown = 0;

	printf("communicator %u: operation %" PRIu64 ", %s%s%s, is in flight for %s and not counted yet, see: npulink hang %u\n",
	       old->comm, old->number, call_text(&old->call, old->p2p, text, sizeof(text)),
	       *old->algorithm ? ", " : "", old->algorithm, human_ns(old->age, age), old->comm);
	for (size_t i = 0; i < n; i++) {
		const struct state_wait *w = first_wait(&ops[i]);

		if (!same_op(&ops[i], old) || !w)
			continue;
		if (!opts.details && shown++ == SHOW) {
			printf("  and more; see --details\n");
			break;
		}
		printf("  rank %u waits for rank %u for %s%s\n", ops[i].rank, w->peer,
		       human_ns(w->since, age), w->met || w->remote ? "" :
		       ", which has not called it");
	}
	printf("\n");
}

static struct json_object *old_op_json(const struct state_op *ops, size_t n,
				       const struct state_op *old)
{
	struct json_object *obj = json_object_new_object(), *waits = json_object_new_array(), *o;

	put_u64(obj, "comm", old->comm);
	put_u64(obj, "number", old->number);
	put_u64(obj, "age_ns", old->age);
	json_object_object_add(obj, "call", call_json(&old->call, old->p2p));
	for (size_t i = 0; i < n; i++) {
		const struct state_wait *w = first_wait(&ops[i]);

		if (!same_op(&ops[i], old) || !w)
			continue;
		o = json_object_new_object();
		put_u64(o, "rank", ops[i].rank);
		put_u64(o, "peer", w->peer);
		put_u64(o, "since_ns", w->since);
		json_object_array_add(waits, o);
	}
	json_object_object_add(obj, "waits", waits);
	return obj;
}

/* Prints them, or returns them; *told: there are some. */
static struct json_object *old_ops(uint32_t comm, bool *told)
{
	struct json_object *array = opts.json ? json_object_new_array() : NULL;
	const struct state_op *old;
	struct state_op *ops = NULL;
	size_t n = 0, i = 0;

	/* They come ordered by communicator. Without them the ledgers are true all the same. */
	if (state_ops(ANY_DEV, &ops, &n))
		return array;
	while (i < n) {
		old = next_old(ops, n, comm, &i);
		*told |= !!old;
		if (old && array)
			json_object_array_add(array, old_op_json(ops, n, old));
		else if (old)
			print_old_op(ops, n, old);
	}
	free(ops);
	return array;
}

static struct json_object *json_buckets(const uint64_t *buckets)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < BUCKETS; i++)
		json_object_array_add(array, json_object_new_uint64(buckets[i]));
	return array;
}

static void print_json(const struct ledger *sum, struct json_object *in_flight)
{
	struct json_object *obj = json_object_new_object(), *ranks = json_object_new_array();
	struct json_object *links = json_object_new_array(), *o;
	const struct blamed *b = culprit(sum);
	const struct slow_link *l = slowest(sum);
	char name[16];

	for (size_t i = 0; i < sum->nranks; i++) {
		b = &sum->ranks[i];
		o = json_object_new_object();
		put_u64(o, "comm", b->comm);
		put_u64(o, "rank", b->rank);
		if (b->dev != NPULINK_NO_PEER) {
			snprintf(name, sizeof(name), "npu%u", b->dev);
			put_str(o, "dev", name);
		}
		if (b->known) {
			put_u64(o, "pid", b->pid);
			put_str(o, "task", b->task);
		}
		put_u64(o, "steps", b->steps);
		put_u64(o, "waited_ns", b->waited);
		put_u64(o, "self_ns", b->own);
		put_u64(o, "blame_ns", blame(b));
		put_u64(o, "taken_ns", b->taken);
		json_object_object_add(o, "late", json_buckets(b->late));
		json_object_array_add(ranks, o);
	}
	for (size_t i = 0; i < sum->nlinks; i++) {
		const struct slow_link *link = &sum->links[i];

		o = json_object_new_object();
		snprintf(name, sizeof(name), "npu%u", link->from);
		put_str(o, "from", name);
		snprintf(name, sizeof(name), "npu%u", link->to);
		put_str(o, "to", name);
		put_u64(o, "requests", link->moves);
		put_u64(o, "bytes", link->bytes);
		put_u64(o, "ns", link->ns);
		json_object_object_add(o, "slow", json_buckets(link->slow));
		json_object_array_add(links, o);
	}
	b = culprit(sum);
	if (b) {
		o = json_object_new_object();
		put_u64(o, "comm", b->comm);
		put_u64(o, "rank", b->rank);
		json_object_object_add(obj, "straggler", o);
	}
	if (l) {
		o = json_object_new_object();
		snprintf(name, sizeof(name), "npu%u", l->from);
		put_str(o, "from", name);
		snprintf(name, sizeof(name), "npu%u", l->to);
		put_str(o, "to", name);
		json_object_object_add(obj, "slow_link", o);
	}
	put_u64(obj, "waited_ns", sum->waited);
	put_u64(obj, "probes", sum->probes);
	json_object_object_add(obj, "in_flight", in_flight);
	json_object_object_add(obj, "ranks", ranks);
	json_object_object_add(obj, "links", links);
	json_print(obj);
}

static const char usage[] =
	"Usage: npulink [-j] slow [OPTION]...\n"
	"\n"
	"Tells which ranks keep others waiting and which links are slow, since the ranks joined\n"
	"(of those that have gone: as long as the kernel remembers). Time that a rank waited for\n"
	"others itself is not its fault: BLAME is the rest, as a part of all waiting. At the end\n"
	"of a line is a histogram, each column twice as much as the one before it, each\n"
	"height four times as many. An operation that is in flight for more than a second\n"
	"is told of first: it is not counted yet. What npulink doctor and link test did is not\n"
	"counted, unless its communicator is asked for.\n"
	"\n"
	"  -c, --comm N   only communicator N\n"
	"  -d, --details  all ranks and links, not only the ten worst\n"
	"  -j, --json     JSON\n";

int slow_cmd(int argc, char **argv)
{
	static const struct option own[] = {
		{ "comm", required_argument, NULL, 'c' },
		CMD_OPTION_END
	};
	struct json_object *array;
	uint64_t comm = ANY_COMM;
	char *words[argc + 2];
	struct flight_log log;
	struct ledger sum;
	bool told = false;
	size_t probes = 0;
	int c, rc;

	words[0] = (char *)"slow";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "c:d", own, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == 'd')
			opts.details = true;
		else if (c != 'c')
			return EXIT_USAGE;
		else if (!parse_u64(optarg, ANY_COMM - 1, &comm))
			return usage_error("slow: \"%s\" is no communicator", optarg);
	}
	if (words[optind])
		return usage_error("slow: unknown word \"%s\"", words[optind]);
	rc = flight_read(&log, NPULINK_FLIGHT_PEERS, comm);
	if (rc)
		return rc;
	if (comm == ANY_COMM)
		probes = flight_drop_probes(&log);
	rc = add_up(&log, &sum);
	if (!rc) {
		sum.probes = probes;
		qsort(sum.ranks, sum.nranks, sizeof(*sum.ranks), by_blame);
		qsort(sum.links, sum.nlinks, sizeof(*sum.links), by_speed);
		array = old_ops(comm, &told);
		if (opts.json) {
			print_json(&sum, array);
		} else if (sum.nranks) {
			print_findings(&sum, told);
			print_ranks(&sum);
			print_links(&sum);
		} else if (!probes) {
			printf("no rank that you may see has called a collective, or only small ones, which\n"
			       "ranks carry out by themselves (boards in npulink-trace(8)) and are not counted\n");
		}
		if (probes && !opts.json)
			printf("not counted: %zu ranks of npulink doctor and npulink link test\n",
			       probes);
	}
	free(sum.ranks);
	free(sum.links);
	flight_free(&log);
	return rc;
}
