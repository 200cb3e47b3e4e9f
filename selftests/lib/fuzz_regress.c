// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz_regress.c - runs each fuzz target on the inputs that are kept in fuzz/corpus/,
 * those that once failed among them, and on some thousand changes of its own.
 */
#include <dirent.h>
#include <limits.h>
#include <string.h>
#include "kselftest.h"
#include "fuzz.h"
#include "gen.h"

#define LARGEST	65536
#define CHANGES		4000

static const struct target {
	const char *name;
	void (*fn)(const uint8_t *data, size_t size);
	size_t (*mutate)(uint8_t *data, size_t size, size_t max, unsigned int seed);
} targets[] = {
	{ "verify", fuzz_verify, fuzz_mutate_verify },
	{ "plan_text", fuzz_plan_text, NULL },
	{ "plan_file", fuzz_plan_file, fuzz_mutate_plan_file },
	{ "override", fuzz_override, NULL },
	{ "calibration", fuzz_calibration, NULL },
	{ "network", fuzz_network, NULL },
};

#define NTARGETS	(sizeof(targets) / sizeof(targets[0]))

static size_t read_input(const char *path, uint8_t *data)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(data, 1, LARGEST, f) : 0;

	if (f)
		fclose(f);
	return n;
}

/* Bytes are flipped, cut out and repeated. */
static size_t change_text(struct rnd *r, uint8_t *data, size_t size, size_t max)
{
	size_t at = rnd_below(r, size), n = rnd_below(r, 8);

	if (!size)
		return 0;
	if (n > size - at)
		n = size - at;
	switch (rnd_below(r, 3)) {
	case 0:
		data[at] = rnd_one_in(r, 2) ? data[at] ^ 1 << rnd_below(r, 8) :
			   " \n0189,=+:;-#"[rnd_below(r, 13)];
		return size;
	case 1:
		memmove(data + at, data + at + n, size - at - n);
		return size - n;
	default:
		if (size + n > max)
			return size;
		memmove(data + at + n, data + at, size - at);
		return size + n;
	}
}

static void run_target(const struct target *t, const char *tree)
{
	static uint8_t data[LARGEST];
	struct rnd r = { 20 };
	char path[PATH_MAX];
	struct dirent *entry;
	unsigned int n = 0, i;
	size_t size = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/selftests/fuzz/corpus/%s", tree, t->name);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/selftests/fuzz/corpus/%s/%s", tree, t->name,
			 entry->d_name);
		size = read_input(path, data);
		t->fn(data, size);
		for (i = 0; i < 20; i++) {
			size = t->mutate ? t->mutate(data, size, 5200, rnd_next(&r)) :
			       change_text(&r, data, size, LARGEST);
			t->fn(data, size);
		}
		n++;
	}
	if (dir)
		closedir(dir);
	for (i = 0; i < CHANGES && t->mutate; i++) {
		size = t->mutate(data, size, 5200, rnd_next(&r));
		t->fn(data, size);
	}
	/* What is wrong aborts, and says why. */
	ksft_test_result(n, "%s: %u kept inputs\n", t->name, n);
}

int main(void)
{
	const char *tree = getenv("NPULINK_TREE");
	size_t i;

	ksft_print_header();
	ksft_set_plan(NTARGETS);
	for (i = 0; i < NTARGETS; i++)
		run_target(&targets[i], tree ? tree : ".");
	ksft_finished();
}
