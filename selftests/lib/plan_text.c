// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * plan_text.c - the text and binary forms of plans: every algorithm's plans come
 * back the same, mistakes are named with their line, and garbage does no harm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kselftest.h"
#include "lib/algorithm/algorithms.h"
#include "lib/base/base.h"
#include "lib/plan/text.h"

static uint64_t counts[64], back[64];

/* A call of each collective that has something to do on every rank. */
static struct coll_args call_of(const struct coll_algorithm *alg, uint32_t p, uint32_t rank)
{
	struct coll_args args = {
		.collective = alg->collective, .dtype = NPULINK_FLOAT32,
		.redop = NPULINK_CALL_AVG, .root = p / 2, .nranks = p, .rank = rank,
		.count = 1000, .counts = counts, .rcounts = back, .send = !rank, .peer = !rank,
		.in_place = rank & 1,
	};
	uint32_t i;

	for (i = 0; i < p; i++) {
		counts[i] = 3 * i;
		back[i] = 3 * rank;
	}
	if (args.collective != NPULINK_COLL_ALLTOALLV)
		args.rcounts = NULL;
	return args;
}

static bool same_plan(const struct coll_plan *a, const struct coll_plan *b)
{
	return !memcmp(&a->call, &b->call, sizeof(a->call)) && a->nranks == b->nranks &&
	       a->rank == b->rank && a->nslots == b->nslots && a->nsteps == b->nsteps &&
	       !memcmp(a->slots, b->slots, sizeof(a->slots)) &&
	       (!a->nsteps || !memcmp(a->steps, b->steps, a->nsteps * sizeof(*a->steps)));
}

static bool round_trip(const struct coll_algorithm *alg, uint32_t p, uint32_t rank)
{
	struct coll_args args = call_of(alg, p, rank);
	struct coll_text_error error;
	struct coll_plan plan, loaded;
	struct coll_text parsed;
	const char *at;
	char *text;
	void *data;
	size_t len;
	uint32_t line = 0;
	bool ok;

	if (alg->supports && alg->supports(&args))
		return true;
	if (coll_plan_make(alg, &args, &plan))
		return false;
	if (coll_plan_format(&args, alg->name, &plan, &text))
		return false;
	at = text;
	len = strlen(text);
	if (coll_plan_parse(&at, &len, &line, &parsed, &error)) {
		ksft_print_msg("line %u: %s\n%s", error.line, error.text, text);
		return false;
	}
	ok = same_plan(&plan, &parsed.plan) && !len && !strcmp(parsed.algorithm, alg->name);
	if (!ok)
		ksft_print_msg("differs:\n%s", text);
	coll_text_free(&parsed);
	free(text);

	if (coll_plan_save(&plan, &data, &len) || coll_plan_load(data, len, &loaded, &error))
		return false;
	ok = ok && same_plan(&plan, &loaded);
	free(data);
	coll_plan_free(&loaded);
	coll_plan_free(&plan);
	return ok;
}

static void test_round_trip(void)
{
	const struct coll_algorithm *alg = NULL;
	bool ok = true;
	uint32_t p, r;

	while ((alg = coll_algorithm_next(~0U, alg)))
		for (p = 2; p <= 17; p += p < 9 ? 1 : 4)
			for (r = 0; r < p && (r < 2 || alg->collective != NPULINK_COLL_P2P); r++)
				ok = ok && round_trip(alg, p, r);
	ksft_test_result(ok, "plans come back the same from text and from bytes\n");
}

#define HEAD	"plan allreduce\nranks 2\nrank 0\ncount 4\ndtype int8\n"

static void test_err_lines(void)
{
	static const struct {
		uint32_t line;
		const char *text, *error;
	} cases[] = {
		{ 1, "plan", "the collective is missing" },
		{ 2, "# x\nplain allreduce\n", "a plan must begin with 'plan COLLECTIVE'" },
		{ 1, "plan all\n", "'all' is no collective" },
		{ 2, "plan barrier\nranks 0\nrank 0\nend\n", NULL },
		{ 2, "plan barrier\nranks -1\n", "'-1' is not a number" },
		{ 2, "plan barrier\nranks 18446744073709551617\n",
		  "'18446744073709551617' is not a number" },
		{ 2, "plan barrier\nranks 5000000\n", "5000000 is too large, at most 1048576" },
		{ 6, HEAD "0 send to=1", "'end' is missing" },
		{ 6, HEAD "0 send src=recv+0 len=4\nend", "send needs to=" },
		{ 6, HEAD "0 send to=1 dst=recv+0 src=recv len=4\nend", "send takes no dst=" },
		{ 6, HEAD "0 send to=1 src=recv+0\nend", "send without len= takes no src=" },
		{ 6, HEAD "0 nop len=4\nend", "nop takes no len=" },
		{ 7, HEAD "0 nop\n1 nop after=1\nend",
		  "after=1: there is no step of that number above" },
		{ 7, HEAD "3 nop\n3 nop\nend", "steps must be numbered upwards" },
		{ 6, HEAD "0 nop after=\nend", "'' is not a number" },
		{ 10, HEAD "nop\n0 nop\n1 nop\n2 nop\n3 nop after=0,1,2,0\nend",
		  "more than 3 numbers in after=; let some meet in a nop" },
		{ 6, HEAD "0 sent to=1\nend", "unknown word 'sent'" },
		{ 6, HEAD "0 recv from=1 dst=17+0 len=4\nend",
		  "'17' is no slot: send, recv, scratch, or below 16" },
		{ 6, HEAD "counts 1\nend", "a number is missing" },
		{ 6, HEAD "ranks 3\nend", "the number of ranks was given before" },
		{ 2, "plan allgatherv\ncounts 1 2\n", "the number of ranks must come first" },
		{ 4, "plan reduce\nranks 2\nrank 2\nend\n",
		  "the rank is not below the number of ranks" },
		{ 5, "plan reduce\nranks 2\nroot 2\nrank 0\nend\n",
		  "the root is not below the number of ranks" },
		{ 6, HEAD "end now\n", "unexpected word 'now'" },
		{ 6, HEAD "in-place yes\n", "unexpected word 'yes'" },
	};
	bool ok = true;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct coll_text_error error;
		struct coll_text parsed;
		const char *at = cases[i].text;
		size_t len = strlen(at);
		uint32_t line = 0;
		int rc = coll_plan_parse(&at, &len, &line, &parsed, &error);

		if (!rc)
			coll_text_free(&parsed);
		if (rc == -EINVAL && !cases[i].error)
			continue;
		if (rc == -EINVAL && error.line == cases[i].line &&
		    !strcmp(error.text, cases[i].error))
			continue;
		ksft_print_msg("case %zu: %d line %u: %s\n", i, rc, error.line, error.text);
		ok = false;
	}
	ksft_test_result(ok, "mistakes are named with their line\n");
}

static void test_edited(void)
{
	static const char text[] =
		"# two ranks, by hand\n"
		"plan broadcast\nranks 2\nrank 1\nroot 0\ncount 8\ndtype int32\n\n"
		"recv from=0 dst=scratch len=32   # no number\n"
		"7 nop drain\n"
		"10 copy src=scratch+0 dst=recv+0 len=32 after=7\n"
		"end\n"
		"plan barrier\nranks 2\nrank 0\nend\n# that was all\n";
	const char *at = text;
	size_t len = strlen(text);
	struct coll_text_error error;
	struct npulink_verdict v;
	struct npulink_plan_desc d;
	struct coll_text a, b;
	uint32_t line = 0;
	bool ok;

	if (coll_plan_parse(&at, &len, &line, &a, &error)) {
		ksft_test_result_fail("line %u: %s\n", error.line, error.text);
		return;
	}
	d = coll_plan_desc(&a.plan);
	ok = a.plan.nsteps == 3 && a.plan.nslots == 3 && a.plan.slots[2].min_len == 32 &&
	     !npulink_verify(&d, &v) && !npulink_verify_races(&d, &v);
	ok = ok && !coll_plan_parse(&at, &len, &line, &b, &error) && line == 16;
	ok = ok && b.args.collective == NPULINK_COLL_BARRIER;
	coll_text_free(&b);
	ok = ok && coll_plan_parse(&at, &len, &line, &b, &error) == -ENOENT;
	coll_text_free(&a);
	ksft_test_result(ok, "hand-written plans in one file, without slots and with few numbers\n");
}

/* Changed at random: read or refused, and never a byte beyond the end. */
static void test_garbage(void)
{
	static const char bits[] = " \n\t=+,#0129abcdefx\0\xff";
	struct coll_args args;
	struct coll_plan plan;
	struct coll_text_error error;
	uint32_t i, k, accepted = 0;
	size_t len, datalen;
	void *data;
	char *text;

	srandom(1);
	args = call_of(coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "ring"), 5, 2);
	if (coll_plan_make(coll_algorithm_find(NPULINK_COLL_ALLREDUCE, "ring"), &args, &plan) ||
	    coll_plan_format(&args, "ring", &plan, &text) ||
	    coll_plan_save(&plan, &data, &datalen)) {
		ksft_test_result_fail("no plan\n");
		return;
	}
	len = strlen(text);
	for (i = 0; i < 20000; i++) {
		size_t n = random() % 8 ? len : random() % len;
		char *copy = malloc(n + 1);	/* exact, for the address sanitizer */
		const char *at = copy;
		struct coll_text parsed;
		uint32_t line = 0;

		memcpy(copy, text, n);
		for (k = random() % 4; k-- > 0 && n;)
			copy[random() % n] = bits[random() % (sizeof(bits) - 1)];
		if (!coll_plan_parse(&at, &n, &line, &parsed, &error)) {
			struct npulink_plan_desc d = coll_plan_desc(&parsed.plan);
			struct npulink_verdict v;

			accepted++;
			if (!npulink_verify(&d, &v))
				npulink_verify_races(&d, &v);
			coll_text_free(&parsed);
		}
		free(copy);
	}
	for (i = 0; i < 20000; i++) {
		size_t n = random() % 4 ? datalen : random() % datalen;
		unsigned char *copy = malloc(n + 1);
		struct coll_plan loaded;

		memcpy(copy, data, n);
		for (k = random() % 4; k-- > 0 && n;)
			copy[random() % n] = random();
		if (!coll_plan_load(copy, n, &loaded, &error)) {
			struct npulink_plan_desc d = coll_plan_desc(&loaded);
			struct npulink_verdict v;

			if (!npulink_verify(&d, &v))
				npulink_verify_races(&d, &v);
			coll_plan_free(&loaded);
		}
		free(copy);
	}
	free(text);
	free(data);
	coll_plan_free(&plan);
	ksft_test_result(accepted, "40000 damaged plans: %u texts still read\n", accepted);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4);
	test_round_trip();
	test_err_lines();
	test_edited();
	test_garbage();
	ksft_finished();
}
