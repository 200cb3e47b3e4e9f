// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Programs that were built with another version's coll.h, whose structures are shorter or longer.
 */
#include "lib/run/comm.h"
#include "mock_pair.h"

#define MORE	24
#define UNTOUCHED	0x5a

/* As a later version has them. */
struct later_config {
	struct coll_config config;
	unsigned char more[MORE];
};

static int ask_state(void *out)
{
	return coll_comm_status(comms[1], out);
}

static int ask_info(void *out)
{
	return coll_comm_info(comms[1], out);
}

/* A structure that the library fills in: which it is, and how much an earlier version had. */
struct out {
	const char *name;
	int (*ask)(void *out);
	size_t now, before;
};

static const struct out outs[] = {
	{ "coll_state", ask_state, sizeof(struct coll_state),
	  offsetof(struct coll_state, machine) },
	{ "coll_comm_info", ask_info, sizeof(struct coll_comm_info),
	  offsetof(struct coll_comm_info, met) },
};

/* Asks for @size bytes; whether those behind them were left alone. */
static bool asks(const struct out *o, size_t size, unsigned char *buf, size_t buf_size)
{
	memset(buf, UNTOUCHED, buf_size);
	memcpy(buf, &size, sizeof(size));
	if (o->ask(buf) || memcmp(buf, &size, sizeof(size)))
		return false;
	for (size_t i = size; i < buf_size; i++)
		if (buf[i] != UNTOUCHED)
			return false;
	return true;
}

static void test_out(const struct out *o)
{
	static const size_t none[] = { 0, sizeof(size_t), 4097, SIZE_MAX };
	unsigned char now[512], other[512], zero[MORE] = { };
	bool ok;

	ok = asks(o, o->now, now, sizeof(now));
	ksft_test_result(ok && asks(o, o->before, other, sizeof(other)) &&
			 !memcmp(other + sizeof(size_t), now + sizeof(size_t),
				 o->before - sizeof(size_t)),
			 "%s: an older program gets what it knows\n", o->name);
	ksft_test_result(ok && asks(o, o->now + MORE, other, sizeof(other)) &&
			 !memcmp(other + sizeof(size_t), now + sizeof(size_t),
				 o->now - sizeof(size_t)) &&
			 !memcmp(other + o->now, zero, MORE),
			 "%s: a newer program gets zero for the rest\n", o->name);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		memset(other, UNTOUCHED, sizeof(other));
		memcpy(other, &none[i], sizeof(none[i]));
		ok &= o->ask(other) == -EINVAL && other[sizeof(size_t)] == UNTOUCHED &&
		      strstr(coll_comm_last_error(comms[1]), "_INIT");
	}
	ksft_test_result(ok, "%s: a size that is none is refused\n", o->name);
}

/* Makes a communicator in each way with that configuration; whether all of them give @want. */
static bool makes(struct coll_config *config, int want, const char *words)
{
	struct coll_unique_id id;
	struct coll_comm *comm = NULL;
	char text[512] = "";
	bool ok;
	int rc;

	config->device = "0";
	config->error_text = text;
	config->error_size = sizeof(text);
	coll_get_unique_id(&id);
	rc = coll_comm_init_rank(&comm, 1, &id, 0, config);
	ok = rc == want && !comm == !!rc && (!words || strstr(text, words));
	coll_comm_destroy(comm);
	text[0] = 0;
	rc = coll_comm_init_env(&comm, config);
	/* No launcher has started this. */
	ok &= want ? rc == want && (!words || strstr(text, words)) : rc == -EINVAL;
	rc = coll_comm_shrink(comms[0], &comm, config);
	ok &= want ? rc == want && (!words || strstr(coll_comm_last_error(comms[0]), words)) :
		     rc == -EINVAL && strstr(coll_comm_last_error(comms[0]), "has not failed");
	if (!ok)
		ksft_print_msg("size %zu: not %d \"%s\", but %s\n", config->size, want, words,
			       text);
	return ok;
}

static void test_config(void)
{
	struct later_config later = { .config = COLL_CONFIG_INIT };
	bool ok;

	later.config.size = offsetof(struct coll_config, peer_timeout_ns);
	later.config.peer_timeout_ns = 1;	/* not the program's */
	ksft_test_result(makes(&later.config, 0, NULL), "coll_config: of an older program\n");
	later.config.peer_timeout_ns = 0;
	later.config.size = sizeof(later);
	ksft_test_result(makes(&later.config, 0, NULL),
			 "coll_config: of a newer program that asks for nothing new\n");
	ok = true;
	for (int i = 0; i < MORE; i++) {
		later.more[i] = 1;
		ok &= makes(&later.config, -E2BIG, "newer libcoll");
		later.more[i] = 0;
	}
	ksft_test_result(ok, "coll_config: of one that asks for what is not known\n");
	later.config.size = sizeof(later.config);
	later.config.flags = 1U << 31;
	ok = makes(&later.config, -EINVAL, "flags");
	later.config.flags = 0;
	later.config.size = 0;
	ok &= makes(&later.config, -EINVAL, NULL);
	later.config.size = 4097;
	ksft_test_result(ok & makes(&later.config, -E2BIG, NULL),
			 "coll_config: flags that are not known, and sizes that are none\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(3 * ARRAY_SIZE(outs) + 4);
	unsetenv("RANK");
	unsetenv("PMIX_RANK");
	setup(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(outs); i++)
		test_out(&outs[i]);
	test_config();
	teardown();
	ksft_finished();
}
