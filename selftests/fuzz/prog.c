// SPDX-License-Identifier: GPL-2.0
/*
 * prog.c - programs of calls: made at random, changed, and as text.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "prog.h"

const char * const prog_names[OPS] = {
	"team", "team-post", "open", "close", "info", "register", "alloc", "import", "export",
	"comm", "peers", "abort", "status", "plan", "post", "batch", "wait", "ring", "destroy",
	"shrink", "mmap", "memory", "tail", "poll", "raw", "fork", "kill", "signal", "genl",
	"knob", "fail-nth", "nap", "port-info", "remote", "policy", "events", "device",
	"board", "scribble",
};
static_assert(sizeof(prog_names) / sizeof(prog_names[0]) == OPS, "a name for each");

/* How often each is taken. */
static const uint8_t weights[OPS] = {
	[OP_TEAM] = 6, [OP_TEAM_POST] = 20, [OP_OPEN] = 4, [OP_CLOSE] = 3, [OP_INFO] = 1,
	[OP_REGISTER] = 6, [OP_ALLOC] = 4, [OP_IMPORT] = 3, [OP_EXPORT] = 3, [OP_COMM] = 6,
	[OP_PEERS] = 3, [OP_ABORT] = 3, [OP_STATUS] = 3, [OP_PLAN] = 12, [OP_POST] = 16,
	[OP_BATCH] = 6, [OP_WAIT] = 8, [OP_RING] = 4, [OP_DESTROY] = 8, [OP_SHRINK] = 6,
	[OP_MMAP] = 6, [OP_MEMORY] = 6, [OP_TAIL] = 3, [OP_POLL] = 2, [OP_RAW] = 3,
	[OP_FORK] = 1, [OP_KILL] = 2, [OP_SIGNAL] = 3, [OP_GENL] = 12, [OP_KNOB] = 5,
	[OP_FAIL_NTH] = 5, [OP_NAP] = 1, [OP_PORT_INFO] = 2, [OP_REMOTE] = 2, [OP_POLICY] = 1,
	[OP_EVENTS] = 2, [OP_DEVICE] = 2, [OP_BOARD] = 6, [OP_SCRIBBLE] = 12,
};

static uint8_t anybody(struct rnd *r)
{
	return rnd_one_in(r, 2) ? AS_ROOT : rnd_one_in(r, 4) ? AS_NAMESPACE : AS_USER;
}

static struct call any_call(struct rnd *r, uint32_t threads)
{
	uint32_t sum = 0, i;
	struct call c = { .thread = rnd_below(r, threads), .seed = rnd_next(r) };

	for (i = 0; i < OPS; i++)
		sum += weights[i];
	sum = rnd_below(r, sum);
	for (i = 0; sum >= weights[i]; i++)
		sum -= weights[i];
	c.op = i;
	if (rnd_one_in(r, 4))
		c.bend = 1 + rnd_below(r, 255);
	return c;
}

void prog_generate(struct rnd *r, struct prog *p)
{
	uint32_t threads = rnd_one_in(r, 2) ? 1 : 1 + rnd_below(r, PROG_THREADS), i;

	memset(p, 0, sizeof(*p));
	p->as = anybody(r);
	p->n = 4 + rnd_below(r, PROG_CALLS - 4);
	for (i = 0; i < p->n; i++)
		p->calls[i] = any_call(r, threads);
	if (!rnd_one_in(r, 4))
		p->calls[0] = (struct call) { .op = OP_TEAM, .seed = rnd_next(r) };
	/* Its first numbers may be any, before it has posted what they ought to be. */
	if (rnd_one_in(r, 4)) {
		p->calls[1] = (struct call) { .op = OP_BOARD, .seed = rnd_next(r) };
		p->calls[2] = (struct call) { .op = OP_SCRIBBLE, .seed = rnd_next(r) };
	}
}

void prog_mutate(struct rnd *r, struct prog *p, const struct prog *other)
{
	uint32_t times = 1 + rnd_below(r, 4), i, n;

	/* Often anew: half of what runs must be ordinary users', whatever was kept. */
	if (rnd_one_in(r, 2))
		p->as = anybody(r);
	while (times--) {
		i = rnd_below(r, p->n);
		switch (rnd_below(r, 8)) {
		case 0:
		case 1:		/* insert */
			if (p->n == PROG_CALLS)
				break;
			memmove(&p->calls[i + 1], &p->calls[i], (p->n - i) * sizeof(p->calls[0]));
			p->calls[i] = any_call(r, PROG_THREADS);
			p->n++;
			break;
		case 2:		/* remove */
			if (p->n < 2)
				break;
			p->n--;
			memmove(&p->calls[i], &p->calls[i + 1], (p->n - i) * sizeof(p->calls[0]));
			break;
		case 3:		/* another's end */
			n = rnd_below(r, other->n);
			if (i + n > PROG_CALLS)
				n = PROG_CALLS - i;
			memcpy(&p->calls[i], &other->calls[other->n - n], n * sizeof(p->calls[0]));
			if (i + n > p->n)
				p->n = i + n;
			break;
		case 4:
			p->calls[i].seed = rnd_next(r);
			break;
		case 5:
			p->calls[i].bend = rnd_one_in(r, 2) ? 0 : rnd_below(r, 256);
			break;
		case 6:
			p->calls[i].thread = rnd_below(r, PROG_THREADS);
			break;
		default:	/* twice */
			p->calls[rnd_below(r, p->n)] = p->calls[i];
		}
	}
}

/* By enum prog_as; none in front is root. None is a hexadecimal digit. */
static const char letters[] = "run";

void prog_print(const struct prog *p, char *text)
{
	uint32_t i;

	if (p->as != AS_ROOT)
		*text++ = letters[p->as];
	for (i = 0; i < p->n; i++, text += 16)
		sprintf(text, "%02x%02x%02x%02x%08x", p->calls[i].op, p->calls[i].thread,
			p->calls[i].bend, 0, p->calls[i].seed);
	*text = 0;
}

bool prog_scan(struct prog *p, const char *text)
{
	unsigned int op, thread, bend, pad, seed;
	const char *who = *text ? strchr(letters, *text) : NULL;

	memset(p, 0, sizeof(*p));
	if (who) {
		p->as = who - letters;
		text++;
	}
	while (p->n < PROG_CALLS &&
	       sscanf(text, "%2x%2x%2x%2x%8x", &op, &thread, &bend, &pad, &seed) == 5) {
		p->calls[p->n++] = (struct call) {
			.op = op % OPS, .thread = thread % PROG_THREADS, .bend = bend,
			.seed = seed,
		};
		text += 16;
	}
	return p->n;
}
