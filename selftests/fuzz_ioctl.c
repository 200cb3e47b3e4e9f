// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz_ioctl.c - random programs of ioctl, mmap, netlink and memory calls by several
 * threads and processes (fuzz/prog.h). On a kernel with KCOV, what reaches new code in
 * npulink.ko is kept and changed further; elsewhere it is a smoke test.
 *
 * NPULINK_FUZZ_SEED=N repeats a run, as far as threads allow; NPULINK_FUZZ_SECONDS=N
 * sets the time; NPULINK_FUZZ_PROG=HEX runs one program. What was learned is written to
 * $NPULINK_RESULTS/fuzz_ioctl.txt, which may replace fuzz/corpus/ioctl.txt.
 *
 * npulink-test: mem=3072 timeout=2100
 */
#include <linux/kcov.h>
#include <signal.h>
#include <sys/stat.h>
#include "kselftest.h"
#include "fuzz/prog.h"
#include "raw.h"

#define NDEV		4
#define KCOV_WORDS	(256 * 1024)
#define MAX_TEXT	(1 << 20)	/* bytes of the module's code */
#define MAX_CORPUS	4096
#define MAX_SYMBOLS	2048

/* ---- coverage of the module, by byte of its code */

static struct {
	int fd[PROG_THREADS];
	unsigned long *area[PROG_THREADS];
	bool on;
	unsigned long text, len;
	uint8_t seen[MAX_TEXT];
	uint32_t npcs;
} cov;

static struct symbol {
	unsigned long addr;
	char name[56];
} symbols[MAX_SYMBOLS];
static uint32_t nsymbols;

static int by_addr(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void read_symbols(void)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[256], type, module[32];
	struct symbol s;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx %c %55s [%31[^]]", &s.addr, &type, s.name, module) != 4 ||
		    strcmp(module, "npulink") || !strchr("tT", type) ||
		    !strncmp(s.name, "_sub_", 5) ||	/* KASAN's */
		    s.addr < cov.text || s.addr >= cov.text + cov.len || nsymbols == MAX_SYMBOLS)
			continue;
		symbols[nsymbols++] = s;
	}
	if (f)
		fclose(f);
	qsort(symbols, nsymbols, sizeof(symbols[0]), by_addr);
}

static unsigned long module_size(void)
{
	unsigned long size = 0;
	FILE *f = fopen("/proc/modules", "re");
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "npulink %lu", &size) == 1)
			break;
	if (f)
		fclose(f);
	return size;
}

static void cov_open(void)
{
	FILE *f = fopen("/sys/module/npulink/sections/.text", "re");
	uint32_t i;

	if (!f)
		return;
	if (fscanf(f, "%lx", &cov.text) != 1)
		cov.text = 0;
	fclose(f);
	cov.len = module_size();
	if (!cov.text || cov.len > MAX_TEXT)
		return;
	for (i = 0; i < PROG_THREADS; i++) {
		cov.fd[i] = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (cov.fd[i] < 0 || ioctl(cov.fd[i], KCOV_INIT_TRACE, KCOV_WORDS))
			return;
		cov.area[i] = mmap(NULL, KCOV_WORDS * sizeof(long), PROT_READ | PROT_WRITE,
				   MAP_SHARED, cov.fd[i], 0);
		if (cov.area[i] == MAP_FAILED)
			return;
	}
	cov.on = true;
	read_symbols();
}

/* In the process that runs a program. */
static void cov_begin(uint32_t thread)
{
	if (!cov.on)
		return;
	__atomic_store_n(cov.area[thread], 0, __ATOMIC_RELAXED);
	ioctl(cov.fd[thread], KCOV_ENABLE, KCOV_TRACE_PC);
}

/* Adds what the last program reached: how many places nobody had been at before. */
static uint32_t cov_collect(uint32_t **pcs, uint32_t *npcs)
{
	static uint8_t mine[MAX_TEXT];
	static uint32_t list[65536];
	uint32_t fresh = 0, n = 0, t;

	for (t = 0; t < PROG_THREADS && cov.on; t++) {
		unsigned long i, words = cov.area[t][0];

		for (i = 1; i <= words && i < KCOV_WORDS; i++) {
			unsigned long at = cov.area[t][i] - cov.text;

			if (at >= cov.len || mine[at] || n == 65536)
				continue;
			mine[at] = 1;
			list[n++] = at;
			if (!cov.seen[at]) {
				cov.seen[at] = 1;
				fresh++;
			}
		}
		cov.area[t][0] = 0;
	}
	for (t = 0; t < n; t++)
		mine[list[t]] = 0;
	cov.npcs += fresh;
	*pcs = list;
	*npcs = n;
	return fresh;
}

static bool reached(uint32_t i)
{
	unsigned long at = symbols[i].addr, end = i + 1 < nsymbols ? symbols[i + 1].addr :
						   cov.text + cov.len;

	for (; at < end; at++)
		if (cov.seen[at - cov.text])
			return true;
	return false;
}

static void cov_report(void)
{
	uint32_t i, n = 0;

	if (!cov.on)
		return;
	for (i = 0; i < nsymbols; i++)
		n += reached(i);
	ksft_print_msg("coverage: %u places in npulink.ko, %u of %u functions (%u %%)\n",
		       cov.npcs, n, nsymbols, nsymbols ? 100 * n / nsymbols : 0);
	for (i = 0; i < nsymbols; i++)
		if (!reached(i))
			ksft_print_msg("not reached: %s\n", symbols[i].name);
}

/* ---- the corpus */

static struct kept {
	struct prog prog;
	uint32_t *pcs, npcs;
} corpus[MAX_CORPUS];
static uint32_t ncorpus;

static void keep(const struct prog *p, const uint32_t *pcs, uint32_t npcs)
{
	struct kept *k = &corpus[ncorpus];

	if (ncorpus == MAX_CORPUS)
		return;
	k->prog = *p;
	k->npcs = npcs;
	k->pcs = malloc((npcs + 1) * sizeof(*pcs));
	if (!k->pcs)
		return;
	memcpy(k->pcs, pcs, npcs * sizeof(*pcs));
	ncorpus++;
}

/* The fewest programs, roughly, that reach everything that was reached. */
static void write_corpus(void)
{
	const char *dir = getenv("NPULINK_RESULTS");
	static uint8_t covered[MAX_TEXT];
	char path[256], text[PROG_TEXT];
	uint32_t i, k, best, gain, most, n = 0;
	FILE *f;

	if (!dir || !cov.on)
		return;
	snprintf(path, sizeof(path), "%s/fuzz_ioctl.txt", dir);
	f = fopen(path, "we");
	if (!f)
		return;
	for (;;) {
		for (i = 0, best = 0, most = 0; i < ncorpus; i++) {
			for (k = 0, gain = 0; k < corpus[i].npcs; k++)
				gain += !covered[corpus[i].pcs[k]];
			if (gain > most) {
				most = gain;
				best = i;
			}
		}
		if (!most)
			break;
		for (k = 0; k < corpus[best].npcs; k++)
			covered[corpus[best].pcs[k]] = 1;
		prog_print(&corpus[best].prog, text);
		fprintf(f, "%s\n", text);
		n++;
	}
	fclose(f);
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

static struct exec_env env = { .ndev = NDEV, .thread_begin = cov_begin };
static uint64_t executions, calls, killed, crashed, stuck, longest;

static uint64_t patience_ns(void)
{
	return getenv("NPULINK_SLOW") || cov.on ? 60000000000ULL : 10000000000ULL;
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
static void check_pins(const char *text)
{
	static long known;
	unsigned int tries = 200;
	long now;

	while ((now = pages_pinned()) > known && --tries)
		raw_sleep_ms(10);
	if (now > known)
		ksft_print_msg("%ld more pages pinned after program %s\n", now - known, text);
	known = now;
}

/* False if the kernel did not like it. */
static bool run(const struct prog *p)
{
	uint64_t begin = raw_now(), took;
	char text[PROG_TEXT];
	pid_t pid;
	bool ok;

	fflush(stdout);
	pid = fork();
	if (!pid)
		exec_prog(p, &env);
	if (pid < 0)
		return true;
	ok = reap(pid);
	took = raw_now() - begin;
	executions++;
	calls += p->n;
	if (env.root)
		raw_knobs_reset(NDEV);
	prog_print(p, text);
	if (env.root)
		check_pins(text);
	if (took > longest) {
		longest = took;
		if (took > patience_ns() / 8)
			ksft_print_msg("%llu ms for program %s\n",
				       (unsigned long long)took / 1000000, text);
	}
	if (ok && !kernel_complains())
		return true;
	ksft_print_msg("%s after program %s\n", ok ? "the kernel complains" : "does not end",
		       text);
	return false;
}

static bool run_and_learn(const struct prog *p)
{
	uint32_t *pcs, npcs;
	bool ok = run(p);

	if (cov_collect(&pcs, &npcs))
		keep(p, pcs, npcs);
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
				       (unsigned long long)executions, cov.npcs, ncorpus);
			fflush(stdout);
		}
	}
	return ok;
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
	uint64_t seed = number("NPULINK_FUZZ_SEED", raw_now() ^ getpid()), begin = raw_now();
	uint64_t seconds = number("NPULINK_FUZZ_SECONDS", getenv("NPULINK_SOAK") ? 1800 : 10);
	uint64_t until = begin + seconds * 1000000000ULL;
	const char *one = getenv("NPULINK_FUZZ_PROG"), *tree = getenv("NPULINK_TREE");
	long pinned, users;
	char path[512];
	struct prog p;
	bool ok;

	ksft_print_header();
	if (access("/dev/npulink/npu3", F_OK))
		ksft_exit_skip("no devices\n");
	env.root = !geteuid();
	allow_faults();
	cov_open();
	kmsg_open();
	pinned = pages_pinned();
	users = raw_read("/sys/module/npulink/refcnt");

	if (one) {
		ksft_set_plan(1);
		ok = prog_scan(&p, one);
		while (ok && raw_now() < until)
			ok = run(&p);
		ksft_test_result(ok, "one program, %llu times\n", (unsigned long long)executions);
		return ok ? ksft_exit_pass() : ksft_exit_fail();
	}

	ksft_set_plan(3);
	snprintf(path, sizeof(path), "%s/selftests/fuzz/corpus/ioctl.txt", tree ? tree : ".");
	/* At most half of the time, but all of it where that is what is wanted. */
	ok = replay(path, run_and_learn, begin + seconds * 500000000ULL);
	ksft_test_result(ok, "kept programs: %llu\n", (unsigned long long)executions);

	if (ok)
		ok = explore(1, begin + seconds * 750000000ULL) && explore(seed, until);
	ksft_test_result(ok, "random programs, seed %llu: %llu of %llu calls in %llu s\n",
			 (unsigned long long)seed, (unsigned long long)executions,
			 (unsigned long long)calls,
			 (unsigned long long)(raw_now() - begin) / 1000000000);
	ksft_print_msg("%llu ran out of time, %llu crashed themselves, %llu did not end, the longest took %llu ms\n",
		       (unsigned long long)killed, (unsigned long long)crashed,
		       (unsigned long long)stuck, (unsigned long long)longest / 1000000);

	ok = RAW_EVENTUALLY(pages_pinned() <= pinned &&
			    raw_read("/sys/module/npulink/refcnt") <= users);
	ksft_test_result(ok && !kernel_complains(),
			 "nothing is left: %ld pages pinned (%ld before), %lld users (%ld)\n",
			 pages_pinned(), pinned, raw_read("/sys/module/npulink/refcnt"), users);
	cov_report();
	write_corpus();
	ksft_finished();
}
