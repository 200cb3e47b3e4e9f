// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz_ioctl.c - random programs of ioctl, mmap, netlink and memory calls by several
 * threads and processes (fuzz/prog.h), half of them of ordinary users. On a kernel with
 * KCOV, what reaches new code in the modules is kept and changed further; elsewhere it is
 * a smoke test.
 *
 * NPULINK_FUZZ_SEED=N repeats a run, as far as threads allow; NPULINK_FUZZ_SECONDS=N
 * sets the time; NPULINK_FUZZ_PROG=HEX runs one program. What was learned is written to
 * $NPULINK_RESULTS/fuzz_ioctl.txt, which may replace fuzz/corpus/ioctl.txt.
 *
 * npulink-test: mem=3072 timeout=2100
 */
#include <signal.h>
#include "kselftest.h"
#include "fuzz/abi_genl.h"
#include "fuzz/cov.h"
#include "fuzz/host.h"
#include "fuzz/prog.h"
#include "raw.h"

#define NDEV		4
#define MAX_CORPUS	4096

/* ---- the corpus */

static struct kept {
	struct prog prog;
	uint32_t *places, nplaces;
} corpus[MAX_CORPUS];
static uint32_t ncorpus;

static void keep(const struct prog *p, const uint32_t *places, uint32_t nplaces)
{
	struct kept *k = &corpus[ncorpus];

	if (ncorpus == MAX_CORPUS)
		return;
	k->prog = *p;
	k->nplaces = nplaces;
	k->places = malloc((nplaces + 1) * sizeof(*places));
	if (!k->places)
		return;
	memcpy(k->places, places, nplaces * sizeof(*places));
	ncorpus++;
}

/* The fewest programs, roughly, that reach everything that was reached. */
static void write_corpus(void)
{
	const char *dir = getenv("NPULINK_RESULTS");
	uint8_t *covered = calloc(cov_places() + 1, 1);
	char path[256], text[PROG_TEXT];
	uint32_t i, k, best, gain, most, n = 0;
	FILE *f;

	if (!dir || !cov_places() || !covered)
		return;
	snprintf(path, sizeof(path), "%s/fuzz_ioctl.txt", dir);
	f = fopen(path, "we");
	if (!f)
		return;
	for (;;) {
		for (i = 0, best = 0, most = 0; i < ncorpus; i++) {
			for (k = 0, gain = 0; k < corpus[i].nplaces; k++)
				gain += !covered[corpus[i].places[k]];
			if (gain > most) {
				most = gain;
				best = i;
			}
		}
		if (!most)
			break;
		for (k = 0; k < corpus[best].nplaces; k++)
			covered[corpus[best].places[k]] = 1;
		prog_print(&corpus[best].prog, text);
		fprintf(f, "%s\n", text);
		n++;
	}
	fclose(f);
	free(covered);
	ksft_print_msg("%u programs in %s\n", n, path);
}

/* ---- what the kernel says */

static int kmsg = -1;

static void kmsg_open(void)
{
	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (kmsg >= 0)
		lseek(kmsg, 0, SEEK_END);
}

/* tools/vm/klog knows more words, and has the last one. */
static bool kernel_complains(void)
{
	static const char * const words[] = {
		"WARNING: ", "BUG: ", "BUG at ", "KASAN: ", "UBSAN: ", "ODEBUG: ", "Oops",
		"possible circular", "possible recursive", "inconsistent lock", "refcount_t: ",
		"blocked for more", "general protection", "suspicious RCU", "list_del corruption",
		"list_add corruption", "Bad page",
	};
	char line[2048];
	bool bad = false;
	ssize_t len;
	size_t i;

	while (kmsg >= 0 && (len = read(kmsg, line, sizeof(line) - 1)) > 0) {
		line[len] = 0;
		for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strstr(line, words[i])) {
				ksft_print_msg("kernel: %s", strchr(line, ';') + 1);
				bad = true;
			}
	}
	return bad;
}

/* ---- running programs */

static struct exec_env env = { .thread_begin = cov_begin };
static uint64_t executions, calls, killed, crashed, stuck, longest, by_users;

static uint64_t patience_ns(void)
{
	return getenv("NPULINK_SLOW") || cov_places() ? 300000000000ULL : 60000000000ULL;
}

/* Wait for it; it kills itself, and whoever cannot die is a bug. */
static bool reap(pid_t pid)
{
	uint64_t until = raw_now() + patience_ns();
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (raw_now() > until) {
			kill(pid, SIGKILL);
			stuck++;
			return false;
		}
		usleep(raw_now() + patience_ns() - until > 5000000 ? 2000 : 200);
	}
	if (WIFSIGNALED(status)) {
		killed += WTERMSIG(status) == SIGALRM;
		crashed += WTERMSIG(status) != SIGALRM;
	}
	return true;
}

/* Processors count for themselves first. */
static long pages_pinned(void)
{
	raw_read("/proc/sys/vm/stat_refresh");
	return raw_pages_pinned();
}

/* Who left pages pinned? Workers let go of them, so they get some time. */
static void check_pins(long before, const char *text)
{
	unsigned int tries = 200;
	long now;

	while ((now = pages_pinned()) > before && --tries)
		raw_sleep_ms(10);
	if (now > before)
		ksft_print_msg("%ld more pages pinned after program %s\n", now - before, text);
}

/* False if the kernel did not like it. */
static bool run(const struct prog *p)
{
	const char *wrong = NULL;
	char text[PROG_TEXT];
	uint64_t begin, took;
	long pinned;
	pid_t pid;
	bool ok;

	fflush(stdout);
	host_before(p);
	pinned = pages_pinned();
	begin = raw_now();
	pid = fork();
	if (!pid) {
		host_forget();
		exec_prog(p, &env);
	}
	if (pid < 0)
		return true;
	ok = reap(pid);
	took = raw_now() - begin;
	executions++;
	calls += p->n;
	by_users += p->as != AS_ROOT;
	prog_print(p, text);
	if (ok)
		wrong = host_after(p);
	if (env.root)
		check_pins(pinned, text);
	if (took > longest) {
		longest = took;
		if (took > patience_ns() / 8)
			ksft_print_msg("%llu ms for program %s\n",
				       (unsigned long long)took / 1000000, text);
	}
	if (ok && !wrong && !kernel_complains())
		return true;
	ksft_print_msg("%s after program %s\n",
		       !ok ? "does not end" : wrong ? wrong : "the kernel complains", text);
	return false;
}

static bool run_and_learn(const struct prog *p)
{
	uint32_t *places, nplaces;
	bool ok = run(p);

	if (cov_collect(&places, &nplaces))
		keep(p, places, nplaces);
	return ok;
}

static bool replay(const char *path, bool (*fn)(const struct prog *p), uint64_t until)
{
	FILE *f = fopen(path, "re");
	char line[PROG_TEXT + 2];
	struct prog p;
	bool ok = true;

	while (ok && f && raw_now() < until && fgets(line, sizeof(line), f))
		if (prog_scan(&p, line))
			ok = fn(&p);
	if (f)
		fclose(f);
	return ok;
}

static bool explore(uint64_t seed, uint64_t until)
{
	struct rnd r = { seed };
	uint64_t next = raw_now() + 60000000000ULL;
	struct prog p, other;
	bool ok = true;

	while (ok && raw_now() < until) {
		if (!ncorpus || rnd_one_in(&r, 4)) {
			prog_generate(&r, &p);
		} else {
			/* The newest ones more often. */
			uint32_t k = rnd_one_in(&r, 2) && ncorpus > 32 ?
				     ncorpus - 1 - rnd_below(&r, 32) : rnd_below(&r, ncorpus);

			p = corpus[k].prog;
			other = corpus[rnd_below(&r, ncorpus)].prog;
			prog_mutate(&r, &p, &other);
		}
		ok = run_and_learn(&p);
		if (raw_now() > next) {
			next += 60000000000ULL;
			ksft_print_msg("%llu programs, %u places, %u kept\n",
				       (unsigned long long)executions, cov_reached(), ncorpus);
			fflush(stdout);
		}
	}
	return ok;
}

/* ---- what was tried */

static void report_counts(const char *name, const uint32_t n[2][2])
{
	ksft_print_msg("%-12s of root: %u accepted, %u refused; of others: %u, %u\n", name,
		       n[0][0], n[0][1], n[1][0], n[1][1]);
}

/* Of those that were not spoiled. */
static void report(void)
{
	static const char * const ioctls[] = {
		"DEVICE_INFO", "BUF_REGISTER", "BUF_ALLOC", "BUF_IMPORT", "BUF_EXPORT",
		"COMM_CREATE", "COMM_PEERS", "COMM_ABORT", "COMM_STATUS", "PLAN_CREATE", "POST",
		"POST_BATCH", "WAIT", "RING_SETUP", "DESTROY", "COMM_SHRINK", "PORT_INFO",
	};
	uint32_t i;

	ksft_print_msg("%u times there were connections\n", env.shared->connected);
	for (i = 0; i < OPS; i++)
		ksft_print_msg("%u calls of %s\n", env.shared->ops[i], prog_names[i]);
	for (i = 0; i < exec_ioctls(); i++)
		report_counts(i < ARRAY_SIZE(ioctls) ? ioctls[i] : "?", env.shared->ioctls[i]);
	for (i = 1; i <= NPULINK_GENL_CMD_MAX; i++)
		report_counts(genl_commands[i].name, env.shared->genl[i]);
}

/* Has the kernel an ioctl that no program makes? The first such number, or -1. */
static int unknown_ioctl(void)
{
	uint32_t size = 0, i;
	int fd = raw_open(0);

	for (i = 0; i < 256; i++) {
		bool known = i < exec_ioctls();

		if (known != (raw_ioctl(fd, _IO(NPULINK_TYPE, i), &size) != -ENOTTY))
			break;
	}
	close(fd);
	return i < 256 ? (int)i : -1;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Allocations that may sleep can fail, too, and nobody needs to hear of it. */
static void allow_faults(void)
{
	static const char * const attrs[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	char path[128];
	size_t i;

	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", attrs[i]);
		raw_write(path, "0");
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/ignore-gfp-wait", attrs[i]);
		raw_write(path, "N");
	}
	raw_write("/sys/kernel/debug/fail_page_alloc/min-order", "0");
}

int main(void)
{
	uint64_t seed = number("NPULINK_FUZZ_SEED", raw_now() ^ getpid()), begin, until;
	uint64_t limit = number("NPULINK_LIMIT", 20), seconds;
	const char *one = getenv("NPULINK_FUZZ_PROG"), *tree = getenv("NPULINK_TREE");
	long pinned, users;
	char path[512];
	struct prog p;
	bool ok;

	seconds = number("NPULINK_FUZZ_SECONDS", getenv("NPULINK_SOAK") ? 1800 : limit / 2);
	ksft_print_header();
	if (access("/dev/npulink/npu3", F_OK))
		ksft_exit_skip("no devices\n");
	tree = tree ? tree : ".";
	host_open(&env, NDEV, tree);
	allow_faults();
	cov_open(tree);
	kmsg_open();
	pinned = pages_pinned();
	users = raw_read("/sys/module/npulink/refcnt");
	begin = raw_now();
	until = begin + seconds * 1000000000ULL;

	if (one) {
		ksft_set_plan(1);
		ok = prog_scan(&p, one);
		while (ok && raw_now() < until)
			ok = run(&p);
		ksft_test_result(ok, "one program, %llu times\n", (unsigned long long)executions);
		host_close(tree);
		return ok ? ksft_exit_pass() : ksft_exit_fail();
	}

	ksft_set_plan(4);
	ksft_test_result(unknown_ioctl() < 0, "all %u ioctls are tried; %d\n", exec_ioctls(),
			 unknown_ioctl());
	snprintf(path, sizeof(path), "%s/selftests/fuzz/corpus/ioctl.txt", tree);
	/* At most half of the time, but all of it where that is what is wanted. */
	ok = replay(path, run_and_learn, begin + seconds * 500000000ULL);
	ksft_test_result(ok, "kept programs: %llu\n", (unsigned long long)executions);

	if (ok)
		ok = explore(1, begin + seconds * 750000000ULL) && explore(seed, until);
	ksft_test_result(ok, "random programs, seed %llu: %llu of %llu calls in %llu s\n",
			 (unsigned long long)seed, (unsigned long long)executions,
			 (unsigned long long)calls,
			 (unsigned long long)(raw_now() - begin) / 1000000000);
	ksft_print_msg("%llu ran as ordinary users, %llu ran out of time, %llu crashed themselves, %llu did not end, the longest took %llu ms\n",
		       (unsigned long long)by_users, (unsigned long long)killed,
		       (unsigned long long)crashed, (unsigned long long)stuck,
		       (unsigned long long)longest / 1000000);
	report();
	cov_report();
	write_corpus();

	host_close(tree);
	ok = RAW_EVENTUALLY(pages_pinned() <= pinned &&
			    raw_read("/sys/module/npulink/refcnt") <= users);
	ksft_test_result(ok && !kernel_complains(),
			 "nothing is left: %ld pages pinned (%ld before), %lld users (%ld)\n",
			 pages_pinned(), pinned, raw_read("/sys/module/npulink/refcnt"), users);
	ksft_finished();
}
