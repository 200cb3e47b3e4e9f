// SPDX-License-Identifier: GPL-2.0
/*
 * slow.c - npulink slow: who kept the others waiting, and which links are slow, from the
 * ledgers of all flight recorders, since each rank joined, or in an interval; and what is in flight
 * for long now. What is typical counts (typical.c): who is late to most collectives, and in the
 * ledgers who is waited for in most steps. What was rare, and long, is told of besides.
 *
 * A rank that is late because it waited itself is not to blame: what it waited for
 * others is taken from what others waited for it. In a ring with one late rank all wait
 * for their neighbour, but only that one has not waited itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "plan/net.h"
#include "state/state.h"
#include "trace/flight.h"
#include "trace/typical.h"

#define BUCKETS	NPULINK_FLIGHT_BUCKETS
#define SHOW	10	/* lines of each table, without --details */
#define READ	(NPULINK_FLIGHT_PEERS | NPULINK_FLIGHT_OPS)
#define FEW_USED	10	/* times less than the busiest link */
#define RARE	20	/* one of so many steps is no habit */
#define RARE_WORTH	100000000	/* ns of those, below which nothing is said of them */
#define LONG	1000000000	/* ns in flight, from which on an operation is told of */

struct blamed {
	uint32_t comm, rank, dev, pid;
	char task[20];
	bool known;			/* its own recorder is there */
	bool left;			/* and the rank has gone */
	uint64_t all;			/* waited in its communicator, for anybody */
	uint64_t steps, waited, own, taken;
	uint64_t late[BUCKETS], own_late[BUCKETS];
	uint64_t rare, rare_steps;	/* of @waited, what is no habit, */
	uint64_t own_rare;		/* and of @own */
	struct typical typical;
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
	uint32_t hidden;		/* communicators that others own */
};

static uint64_t blame(const struct blamed *b)
{
	uint64_t waited = b->waited - b->rare, own = b->own - b->own_rare;

	return waited > own ? waited - own : 0;
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
		to->typical = b->typical;
	}
	if (to->dev == NPULINK_NO_PEER)
		to->dev = b->dev;
	to->steps += b->steps;
	to->waited += b->waited;
	to->own += b->own;
	to->taken += b->taken;
	for (size_t i = 0; i < BUCKETS; i++)
		to->late[i] += b->late[i];
	for (size_t i = 0; i < BUCKETS; i++)
		to->own_late[i] += b->own_late[i];
}

static void add_link(struct slow_link *to, const struct slow_link *l)
{
	to->moves += l->moves;
	to->bytes += l->bytes;
	to->ns += l->ns;
	for (size_t i = 0; i < BUCKETS; i++)
		to->slow[i] += l->slow[i];
}

/*
 * What the longest of @late took, of @waited ns in all: those that are less than one of RARE among
 * @all steps, of which the others were not late. *steps: how many these are.
 */
static uint64_t find_rare(const uint64_t *late, uint64_t waited, uint64_t all, uint64_t *steps)
{
	uint64_t rest = 0, n = 0;
	int i = BUCKETS;

	while (i && (n + late[i - 1]) * RARE <= all)
		n += late[--i];
	*steps = n;
	if (!n)
		return 0;
	/* Half way up the bucket; the longest are what is left of the sum, which is exact. */
	while (i--)
		rest += late[i] * (768ULL << i);
	/* If they are not most of it, the sum is a better measure without an estimate. */
	return waited / 2 > rest ? waited - rest : 0;
}

/* Those of the communicator that begins at @i, which is the base of blame. The next one's begin. */
static size_t add_comm(struct ledger *sum, size_t i)
{
	uint64_t all = 0, most = 0, steps;
	size_t end = i, k;

	for (; end < sum->nranks && sum->ranks[end].comm == sum->ranks[i].comm; end++) {
		all += sum->ranks[end].waited;
		if (sum->ranks[end].steps > most)
			most = sum->ranks[end].steps;
	}
	for (k = i; k < end; k++) {
		struct blamed *b = &sum->ranks[k];

		b->all = all;
		b->rare = find_rare(b->late, b->waited, most, &b->rare_steps);
		b->own_rare = find_rare(b->own_late, b->own, most, &steps);
	}
	return end;
}

/* One line for each rank's peers, and for the rank itself; then equal ones are added. */
static int add_up(const struct flight_log *log, struct ledger *sum)
{
	struct typical *typical = typical_find(log);
	size_t n = log->n, k = 0;

	*sum = (struct ledger){ };
	for (size_t i = 0; i < log->n; i++)
		n += log->v[i].npeers;
	sum->ranks = calloc(n + 1, sizeof(*sum->ranks));
	sum->links = calloc(n + 1, sizeof(*sum->links));
	if (!sum->ranks || !sum->links || !typical) {
		free(typical);
		return fail("not enough memory");
	}
	for (size_t i = 0; i < log->n; i++) {
		const struct flight *f = &log->v[i];
		struct blamed *self = &sum->ranks[sum->nranks++];

		*self = (struct blamed){ .comm = f->comm, .rank = f->rank, .dev = f->dev,
			.pid = f->pid, .known = true, .left = f->left,
			.typical = typical[i] };
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
				self->own_late[h] += peer->late[h];
				l->slow[h] = peer->slow[h];
			}
			self->own += peer->wait_ns;
			sum->waited += peer->wait_ns;
			sum->nlinks += peer->moves && peer->dev != NPULINK_NO_PEER;
		}
	}
	free(typical);
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
	if (typical_is_late(&x->typical) != typical_is_late(&y->typical))
		return typical_is_late(&x->typical) ? -1 : 1;
	if (typical_is_late(&x->typical) && x->typical.median != y->typical.median)
		return x->typical.median > y->typical.median ? -1 : 1;
	if (blame(x) != blame(y))
		return blame(x) > blame(y) ? -1 : 1;
	if (x->waited != y->waited)
		return x->waited > y->waited ? -1 : 1;
	return by_name(a, b);
}

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

static double ns_per_byte(const struct slow_link *l)
{
	return l->bytes ? (double)l->ns / l->bytes : 0;
}

static int by_speed(const void *a, const void *b)
{
	const struct slow_link *x = a, *y = b;
	unsigned int of_x = quantile(x->slow, .5), of_y = quantile(y->slow, .5);

	/* Else a few requests that were held up decided. */
	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	if (ns_per_byte(x) != ns_per_byte(y))
		return ns_per_byte(x) > ns_per_byte(y) ? -1 : 1;
	return by_ends(a, b);
}

/* ---- telling */

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

	printf("%4s %5s %-8s %7s %11s %11s %6s %6s %9s %8s %8s   %s\n", "COMM", "RANK", "DEV",
	       "PID", "WAITED FOR", "SELF", "BLAME", "LAST", "STEPS", "MEDIAN", "P99",
	       "LATE BY 1us .. 1ms .. 0.3s");
	for (size_t i = 0; i < sum->nranks; i++) {
		const struct blamed *b = &sum->ranks[i];
		char dev[16] = "-", pid[16] = "-", share[16] = "-", last[16] = "-";

		if (!b->steps && !b->typical.runs)
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
		if (b->typical.runs)
			snprintf(last, sizeof(last), "%.0f %%",
				 100. * b->typical.last / b->typical.runs);
		late_text(quantile(b->late, .5), median);
		late_text(quantile(b->late, .99), p99);
		/* With --since, of collectives. */
		if (!b->steps) {
			human_time(b->typical.median / 1e9, median);
			human_time(b->typical.worst / 1e9, p99);
		}
		printf("%4u %5u %-8s %7s %11s %11s %6s %6s %9" PRIu64 " %8s %8s  |%s|\n", b->comm,
		       b->rank, dev, pid, human_time(b->waited / 1e9, waited),
		       b->known ? human_time(b->own / 1e9, own) : "-", share, last, b->steps,
		       median, p99, sparkline(b->late, line, sizeof(line)));
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
		if (typical_is_late(&sum->ranks[i].typical) || stands_out(sum, i))
			return &sum->ranks[i];
	return NULL;
}

/* Was it waited for seldom, and then for long? Of those that have gone only if all have. */
static bool was_rare(const struct ledger *sum, const struct blamed *b)
{
	return b->rare >= RARE_WORTH && b->rare >= b->all / 10 &&
	       (!b->left || sum->ranks[0].left);
}

/* Whether the one that is late gets processors, as long as it is there. */
static void look_at_culprit(const struct ledger *sum, struct starve *starve)
{
	const struct blamed *b = culprit(sum);

	if (!b || !b->known || b->left || !b->pid)
		return;
	starve->pid = b->pid;
	starve_find(starve, 1);
}

/*
 * The slowest link, if most are twice as fast: not only on the whole, which a few requests
 * that were held up would do, but also in the middle. Links that are hardly used say nothing, of
 * themselves or others. *usual: one in the middle.
 */
static const struct slow_link *slowest(const struct ledger *sum, const struct slow_link **usual)
{
	const struct slow_link *l = NULL;
	uint64_t busiest = 0;
	size_t n = 0, k = 0;

	for (size_t i = 0; i < sum->nlinks; i++)
		if (sum->links[i].moves > busiest)
			busiest = sum->links[i].moves;
	for (size_t i = 0; i < sum->nlinks; i++) {
		if (sum->links[i].moves * FEW_USED < busiest)
			continue;
		l = l ? l : &sum->links[i];
		n++;
	}
	for (size_t i = 0; i < sum->nlinks; i++)
		if (sum->links[i].moves * FEW_USED >= busiest && k++ == n / 2)
			*usual = &sum->links[i];
	if (n < 3 || ns_per_byte(l) < 2 * ns_per_byte(*usual) ||
	    (ns_per_byte(l) - ns_per_byte(*usual)) * l->bytes < WORTH ||
	    quantile(l->slow, .5) <= quantile((*usual)->slow, .5))
		return NULL;
	return l;
}

static void print_culprit(const struct blamed *b, const struct starve *starve)
{
	const struct typical *t = &b->typical;
	char time[16], period[16], text[512];

	if (!b->known) {
		printf("most of the waiting is for rank %u of communicator %u: %s; whom that one waited for is known on its machine, see npulink slow there\n",
		       b->rank, b->comm, human_time(blame(b) / 1e9, time));
		return;
	}
	printf("rank %u of communicator %u (%s, pid %u) %s the others waiting: ", b->rank, b->comm,
	       b->task, b->pid, b->left ? "has gone; it kept" : "keeps");
	if (typical_is_late(t))
		printf("of the last %llu collectives it called %llu later than most others, %llu as the last of all, mostly %s later, of %s from one to the next\n",
		       (unsigned long long)t->runs, (unsigned long long)t->later,
		       (unsigned long long)t->last, human_time(t->median / 1e9, time),
		       human_time(t->period / 1e9, period));
	else
		printf("%s, all of them together\n", human_time(blame(b) / 1e9, time));
	if (starve->why)
		printf("  %s\n", starve_why(starve->why));
	if (*starve_text(starve, text, sizeof(text)))
		printf("  %s\n", text);
}

static void print_findings(const struct ledger *sum, bool told, const struct starve *starve)
{
	/* What is in flight for long is not counted: who was slow before it is not the answer. */
	const struct blamed *b = told ? NULL : culprit(sum);
	const struct slow_link *usual, *l = slowest(sum, &usual);
	unsigned int n = 0;
	char time[16];

	if (b) {
		print_culprit(b, starve);
		printf("\n");
	}
	for (size_t i = 0; i < sum->nranks && n < SHOW; i++) {
		b = &sum->ranks[i];
		if (!was_rare(sum, b))
			continue;
		n++;
		printf("rank %u of communicator %u was waited for %s in %" PRIu64 " steps, which is rare\n",
		       b->rank, b->comm, human_time(b->rare / 1e9, time), b->rare_steps);
	}
	if (n)
		printf("\n");
	if (l)
		printf("the link from npu%u to npu%u is %.1f times as slow as most\n\n", l->from,
		       l->to, ns_per_byte(l) / ns_per_byte(usual));
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

static struct json_object *rare_json(const struct ledger *sum)
{
	struct json_object *array = json_object_new_array(), *o;

	for (size_t i = 0; i < sum->nranks; i++) {
		const struct blamed *b = &sum->ranks[i];

		if (!was_rare(sum, b))
			continue;
		o = json_object_new_object();
		put_u64(o, "comm", b->comm);
		put_u64(o, "rank", b->rank);
		put_u64(o, "waited_ns", b->rare);
		put_u64(o, "steps", b->rare_steps);
		json_object_array_add(array, o);
	}
	return array;
}

static void print_json(const struct ledger *sum, struct json_object *in_flight,
		       const struct starve *starve)
{
	struct json_object *obj = json_object_new_object(), *ranks = json_object_new_array();
	struct json_object *links = json_object_new_array(), *o;
	const struct blamed *b = culprit(sum);
	const struct slow_link *usual, *l = slowest(sum, &usual);
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
		put_u64(o, "rare_ns", b->rare);
		put_u64(o, "collectives", b->typical.runs);
		put_u64(o, "later", b->typical.later);
		put_u64(o, "last", b->typical.last);
		put_u64(o, "late_ns", b->typical.median);
		put_u64(o, "latest_ns", b->typical.worst);
		put_u64(o, "period_ns", b->typical.period);
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
		put_bool(o, "typical", typical_is_late(&b->typical));
		starve_json(o, starve);
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
	put_u64(obj, "hidden_comms", sum->hidden);
	json_object_object_add(obj, "rare", rare_json(sum));
	json_object_object_add(obj, "in_flight", in_flight);
	json_object_object_add(obj, "ranks", ranks);
	json_object_object_add(obj, "links", links);
	json_print(obj);
}

static const char usage[] =
	"Usage: npulink [-j] slow [OPTION]...\n"
	"\n"
	"Tells which ranks keep others waiting and which links are slow, since the ranks joined\n"
	"(of those that have gone: as long as the kernel remembers). Who is late to most of the\n"
	"collectives that the kernel remembers is named first, with what its process does; who was\n"
	"waited for seldom, but long, besides. Time that a rank waited for others itself is not its\n"
	"fault: BLAME is the rest, as a part of all waiting; LAST, how many collectives it was the\n"
	"last to call. At the end of a line is a histogram, each column twice as much as the one\n"
	"before it, each height four times as many. An operation that is in flight for more than a\n"
	"second is told of first: it is not counted yet. What npulink doctor and link test did is\n"
	"not counted, unless its communicator is asked for.\n"
	"\n"
	"  -c, --comm N        only communicator N\n"
	"  -w, --watch [SECS]  again and again, of what happened in so many seconds (2)\n"
	"  -s, --since SECS    only of collectives that were called in the last SECS seconds, as far\n"
	"                      as the kernel remembers: no steps, no links\n"
	"  -d, --details       all ranks and links, not only the ten worst\n"
	"  -j, --json          JSON\n"
	"\n"
	"Exit status: 4 if there is nothing that may be seen, but there are other users' ranks.\n";

static const struct option own_options[] = {
	{ "comm", required_argument, NULL, 'c' },
	{ "watch", optional_argument, NULL, 'w' },
	{ "since", required_argument, NULL, 's' },
	CMD_OPTION_END
};

struct asked {
	uint64_t comm, watch, since;
};

/* What is in @log; 0 or an error. *hidden: 0 afterwards if there was something to see. */
static int tell(struct flight_log *log, const struct asked *asked, uint32_t *hidden)
{
	struct starve starve = { };
	struct json_object *array;
	struct ledger sum;
	bool told = false;
	size_t probes = 0;
	int rc;

	if (asked->comm == ANY_COMM)
		probes = flight_drop_probes(log);
	rc = add_up(log, &sum);
	if (!rc) {
		sum.probes = probes;
		sum.hidden = *hidden;
		qsort(sum.ranks, sum.nranks, sizeof(*sum.ranks), by_blame);
		qsort(sum.links, sum.nlinks, sizeof(*sum.links), by_speed);
		array = old_ops(asked->comm, &told);
		look_at_culprit(&sum, &starve);
		if (opts.json) {
			print_json(&sum, array, &starve);
		} else if (sum.nranks) {
			print_findings(&sum, told, &starve);
			print_ranks(&sum);
			print_links(&sum);
		} else if (!probes) {
			printf("no rank that you may see has called a collective, or only small ones, which\n"
			       "ranks carry out by themselves (boards in npulink-trace(8)) and are not counted\n");
		}
		if (probes && !opts.json)
			printf("not counted: %zu ranks of npulink doctor and npulink link test\n",
			       probes);
		if (*hidden && !opts.json)
			printf("hidden from you, because others own them: %u communicators; root sees them\n",
			       *hidden);
		if (sum.nranks)
			*hidden = 0;
	}
	free(sum.ranks);
	free(sum.links);
	return rc;
}

static int watch(struct flight_log *log, const struct asked *asked)
{
	struct flight_log before;
	uint32_t hidden = 0;
	int rc;

	for (;;) {
		before = *log;
		sleep(asked->watch);
		rc = flight_read(log, READ, asked->comm);
		if (!rc)
			flight_subtract(log, &before);
		flight_free(&before);
		if (!opts.json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		if (!rc)
			rc = tell(log, asked, &hidden);
		/* What it was subtracted from is the next one's beginning. */
		flight_free(log);
		if (!rc)
			rc = flight_read(log, READ, asked->comm);
		if (rc || fflush(stdout) || ferror(stdout))
			return rc;
	}
}

int slow_cmd(int argc, char **argv)
{
	struct asked asked = { .comm = ANY_COMM };
	char *words[argc + 2];
	struct flight_log log;
	uint32_t hidden = 0;
	int c, rc;

	words[0] = (char *)"slow";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "c:ds:w::", own_options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == 'd')
			opts.details = true;
		else if (c == 'w' && !cmd_watch(argc + 1, words, &asked.watch))
			return EXIT_USAGE;
		else if (c == 's' && (!parse_u64(optarg, 1000000000, &asked.since) || !asked.since))
			return usage_error("slow: \"%s\" is no whole number of seconds", optarg);
		else if (c == 'c' && !parse_u64(optarg, ANY_COMM - 1, &asked.comm))
			return usage_error("slow: \"%s\" is no communicator", optarg);
		else if (c != 'c' && c != 's' && c != 'w')
			return EXIT_USAGE;
	}
	if (words[optind])
		return usage_error("slow: unknown word \"%s\"", words[optind]);
	if (asked.since && asked.watch)
		return usage_error("slow: either --since or --watch");
	rc = flight_read(&log, READ, asked.comm);
	if (rc)
		return rc;
	if (asked.since)
		flight_keep_since(&log, asked.since * 1000000000);
	if (asked.comm == ANY_COMM)
		hidden = state_hidden_comms();
	rc = asked.watch ? watch(&log, &asked) : tell(&log, &asked, &hidden);
	flight_free(&log);
	return rc ? rc : hidden ? EXIT_HIDDEN : EXIT_SUCCESS;
}
