// SPDX-License-Identifier: GPL-2.0
/*
 * many_ranks - hundreds of ranks in one process (1,000 in make soak), each with an open
 * file of its own, on 8 devices: a ring allreduce with an element per rank; then one of
 * them dies.
 *
 * npulink-test: mem=2048 timeout=300
 */
#include <sys/resource.h>
#include "team.h"
#include "harness.h"

FIXTURE(many) {
	struct member *m;
	uint64_t *seq;
	uint32_t n;
};

#define TRIES	4	/* of a death: a busy machine may hold it up, though not each time */

static void join_all(struct __test_metadata *_metadata, struct _test_data_many *self)
{
	uint64_t begin = raw_now();
	uint8_t secret[16];
	uint32_t r;

	raw_secret(secret);
	for (r = 0; r < self->n; r++)
		ASSERT_EQ(0, member_join(&self->m[r], r % 8, secret, r, self->n, 4 * self->n));
	TH_LOG("%u ranks have joined after %llu ms", self->n,
	       (unsigned long long)(raw_now() - begin) / 1000000);
}

FIXTURE_SETUP(many)
{
	struct rlimit files = { 4096, 4096 };

	self->n = getenv("NPULINK_SLOW") ? 60 : getenv("NPULINK_SOAK") ? 1000 : 400;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
	self->m = calloc(self->n, sizeof(*self->m));
	self->seq = calloc(self->n, sizeof(*self->seq));
	join_all(_metadata, self);
}

FIXTURE_TEARDOWN(many)
{
	uint64_t begin = raw_now();
	uint32_t r;

	for (r = 0; r < self->n; r++)
		member_leave(&self->m[r]);
	TH_LOG("%u files were closed in %llu ms", self->n,
	       (unsigned long long)(raw_now() - begin) / 1000000);
}

/* One file of many is closed: all others know. Returns how long that took, in ns. */
static uint64_t all_but_one(struct __test_metadata *_metadata, struct _test_data_many *self)
{
	struct npulink_result res;
	uint64_t begin, worst;
	uint32_t r, dead = self->n / 3;

	for (r = 0; r < self->n; r++)
		if (r != dead)
			ASSERT_EQ(0, member_start(&self->m[r], 0, &self->seq[r]));
	begin = raw_now();
	close(self->m[dead].fd);
	self->m[dead].fd = -1;
	for (r = 0; r < self->n; r++) {
		if (r == dead)
			continue;
		ASSERT_EQ(0, raw_wait(self->m[r].fd, self->seq[r], &res));
		ASSERT_EQ(-EOWNERDEAD, res.status);
		ASSERT_EQ(dead, res.peer);
	}
	worst = raw_now() - begin;
	TH_LOG("all were told within %llu ms", (unsigned long long)worst / 1000000);
	return worst;
}

TEST_F(many, allreduce_and_death)
{
	uint64_t bound = 1000000000ULL * (getenv("NPULINK_SLOW") ? 20 : 1), took;
	struct npulink_result res;
	uint32_t r, round, try;

	for (round = 0; round < 2; round++) {
		uint64_t begin = raw_now();

		for (r = 0; r < self->n; r++) {
			member_fill(&self->m[r], round);
			ASSERT_EQ(0, member_start(&self->m[r], 0, &self->seq[r]));
		}
		for (r = 0; r < self->n; r++) {
			ASSERT_EQ(0, raw_wait(self->m[r].fd, self->seq[r], &res));
			ASSERT_EQ(0, res.status);
		}
		TH_LOG("allreduce of %u ranks, %u steps each: %llu ms", self->n, 2 * self->n - 1,
		       (unsigned long long)(raw_now() - begin) / 1000000);
		for (r = 0; r < self->n; r++)
			ASSERT_EQ(0, member_wrong(&self->m[r], round));
	}
	took = all_but_one(_metadata, self);
	for (try = 1; try < TRIES && took >= bound; try++) {
		for (r = 0; r < self->n; r++)
			member_leave(&self->m[r]);
		join_all(_metadata, self);
		took = all_but_one(_metadata, self);
	}
	EXPECT_LT(took, bound);
}

TEST_HARNESS_MAIN
