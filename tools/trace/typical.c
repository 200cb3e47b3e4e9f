// SPDX-License-Identifier: GPL-2.0
/*
 * typical.c - who comes late to most collectives: by when each rank has called those that the
 * recorders remember. One that was late once, however long, is not among them; its time would hide
 * in a sum who is late each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include "trace/typical.h"

#define FEW	8		/* collectives, of which nothing is said */

/* When a rank called a collective. */
struct call {
	uint32_t run;
	size_t flight;		/* in the log */
	uint64_t start;
};

static int by_run(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->run != y->run)
		return x->run < y->run ? -1 : 1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->flight > y->flight) - (x->flight < y->flight);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

uint64_t median(uint64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_size);
	return n ? v[n / 2] : 0;
}

/* How many ranks of its communicator are recorded here. */
static uint32_t count_ranks(const struct flight_log *log, size_t i)
{
	size_t first = i, end = i;

	while (first && log->v[first - 1].comm == log->v[i].comm)
		first--;
	while (end < log->n && log->v[end].comm == log->v[i].comm)
		end++;
	return end - first;
}

/* One collective, whose calls are here in order of time: how late was each, after most others? */
static void add_run(const struct call *calls, size_t n, struct typical *v, uint64_t **late)
{
	for (size_t i = 0; i < n; i++) {
		size_t middle = (n - 2) / 2;
		struct typical *t = &v[calls[i].flight];
		uint64_t others = calls[middle + (middle >= i)].start;

		late[calls[i].flight][t->runs++] = calls[i].start > others ?
						   calls[i].start - others : 0;
		t->later += calls[i].start > others;
		t->last += i == n - 1;
	}
}

static uint64_t find_period(const struct flight *f, uint64_t *times)
{
	size_t n = 0;

	for (size_t i = 1; i < f->nops; i++)
		if (f->ops[i].k.start > f->ops[i - 1].k.start)
			times[n++] = f->ops[i].k.start - f->ops[i - 1].k.start;
	return median(times, n);
}

struct typical *typical_find(const struct flight_log *log)
{
	struct typical *v = calloc(log->n + 1, sizeof(*v));
	uint64_t **late = calloc(log->n + 1, sizeof(*late)), *times = NULL;
	struct call *calls = NULL;
	size_t n = 0, k = 0;

	for (size_t i = 0; i < log->n; i++)
		n += log->v[i].nops;
	calls = calloc(n + 1, sizeof(*calls));
	times = calloc(n + 1, sizeof(*times));
	n = 0;
	for (size_t i = 0; v && late && calls && i < log->n; i++) {
		const struct flight *f = &log->v[i];

		late[i] = calloc(f->nops + 1, sizeof(**late));
		v[i].nranks = !i || log->v[i - 1].comm != f->comm ? count_ranks(log, i) :
								    v[i - 1].nranks;
		for (size_t o = 0; o < f->nops; o++)
			if (f->ops[o].run != NO_RUN)
				calls[n++] = (struct call) { f->ops[o].run, i, f->ops[o].k.start };
		if (!late[i])
			n = 0;
	}
	if (!v || !late || !calls || !times)
		goto out;
	qsort(calls, n, sizeof(*calls), by_run);
	for (size_t i = 0; i < n; i = k) {
		for (k = i; k < n && calls[k].run == calls[i].run; k++)
			;
		/* Without those that have not called it yet, or forgotten it, who is late? */
		if (k - i > 1 && k - i == v[calls[i].flight].nranks)
			add_run(calls + i, k - i, v, late);
	}
	for (size_t i = 0; i < log->n; i++) {
		v[i].period = find_period(&log->v[i], times);
		v[i].median = median(late[i], v[i].runs);
		v[i].worst = v[i].runs ? late[i][v[i].runs - 1] : 0;
	}
out:
	for (size_t i = 0; late && i < log->n; i++)
		free(late[i]);
	free(late);
	free(times);
	free(calls);
	return v;
}

/*
 * Later than most others nearly each time, more often the last than by chance, and by what counts
 * beside the time from one collective to the next.
 */
bool typical_is_late(const struct typical *t)
{
	return t->runs >= FEW && 4 * t->later >= 3 * t->runs &&
	       2 * t->nranks * t->last >= 3 * t->runs && 20 * t->median >= t->period &&
	       t->median * t->runs >= WORTH;
}
