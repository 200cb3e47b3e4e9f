// SPDX-License-Identifier: GPL-2.0
/*
 * link_probe.c - npulink link test: messages over each link between the devices that the user
 * may open: did they arrive as they were sent, and what did one message and one byte take?
 *
 * One process plays both ends, each with an open file of its own, as two ranks would.
 */
#include <coll.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "state/link_probe.h"

#define LARGE		(128 << 10)
#define ALL_PAIRS	16		/* with more devices only neighbours */
#define SMALL_ROUNDS	20
#define LARGE_ROUNDS	4
#define DEADLINE_NS	10000000000ULL
#define MAX_FAILURES	3		/* each may take until its deadline */

/* The two ends of a link. */
struct pair {
	struct coll_comm *comm[2];	/* ranks 0 and 1 */
	uint8_t *out, *in;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Send @len bytes from rank @from to the other one. */
static int transfer(struct pair *p, unsigned int from, size_t len, double *seconds)
{
	struct coll_request *requests[2] = { };
	double start = now();
	int rc, other;

	rc = coll_irecv(p->comm[!from], p->in, len, COLL_UINT8, from, &requests[0]);
	if (!rc)
		rc = coll_isend(p->comm[from], p->out, len, COLL_UINT8, !from, &requests[1]);
	for (int i = 0; i < 2; i++) {
		other = requests[i] ? coll_wait(&requests[i]) : 0;
		rc = rc ? rc : other;
	}
	*seconds = now() - start;
	return rc;
}

static void fill(struct pair *p, uint32_t seed)
{
	for (size_t i = 0; i < LARGE; i += 4) {
		seed = seed * 1664525 + 1013904223;
		memcpy(p->out + i, &seed, 4);
	}
	memset(p->in, 0, LARGE);
}

static uint64_t compare(const struct pair *p)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < LARGE; i++)
		wrong += p->out[i] != p->in[i];
	return wrong;
}

static void fail_result(struct link_result *r, int rc, const char *text)
{
	r->error = rc;
	snprintf(r->text, sizeof(r->text), "%s", text);
}

static void measure(struct pair *p, unsigned int from, struct link_result *r)
{
	double seconds, small = 1e9, large = 1e9;
	int rc = 0;

	for (int i = 0; !rc && i < SMALL_ROUNDS; i++) {
		rc = transfer(p, from, 8, &seconds);
		small = seconds < small ? seconds : small;
	}
	for (int i = 0; !rc && i < LARGE_ROUNDS; i++) {
		fill(p, r->from << 16 | r->to << 8 | i);
		rc = transfer(p, from, LARGE, &seconds);
		large = seconds < large ? seconds : large;
		if (!rc)
			r->wrong += compare(p);
	}
	if (rc) {
		fail_result(r, rc, coll_comm_last_error(p->comm[from]));
		return;
	}
	r->alpha = small;
	r->beta = large > small ? (large - small) / LARGE : 0;
}

/* Both directions between two open devices; results[0] and [1]. */
static void test_pair(struct coll_comm *base[2], uint8_t *out, uint8_t *in,
		      struct link_result *results)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct pair p = { .out = out, .in = in };
	struct coll_unique_id id;
	char text[300] = "";
	int rc = coll_get_unique_id(&id);

	config.deadline_ns = DEADLINE_NS;
	config.error_text = text;
	config.error_size = sizeof(text);
	for (int i = 0; !rc && i < 2; i++) {
		config.share = base[i];
		rc = coll_comm_init_rank(&p.comm[i], 2, &id, i, &config);
	}
	for (int i = 0; i < 2; i++) {
		if (rc)
			fail_result(&results[i], rc, text);
		else
			measure(&p, i, &results[i]);
	}
	for (int i = 0; i < 2; i++) {
		if (!p.comm[i])
			continue;
		/* What has failed may still be on its way, and would be waited for. */
		if (results[0].error || results[1].error)
			coll_comm_abort(p.comm[i], 0);
		coll_comm_destroy(p.comm[i]);
	}
}

/* Ids of devices that can be opened, ascending. */
static int open_devices(uint32_t **ids, size_t *n)
{
	struct dev *devs = NULL;
	size_t ndevs = 0;
	int rc = nl_devs(ANY_DEV, &devs, &ndevs);

	*n = 0;
	*ids = rc ? NULL : calloc(ndevs + 1, sizeof(**ids));
	for (size_t i = 0; *ids && !rc && i < ndevs; i++) {
		int fd = dev_open(devs[i].id);

		switch (fd < 0 ? fd : 0) {
		case 0:
			close(fd);
			(*ids)[(*n)++] = devs[i].id;
			break;
		case -EACCES:
		case -EPERM:
		case -ENOENT:
		case -ENXIO:
		case -ENODEV:
			break;		/* not for this user, or gone */
		default:
			rc = fd;
		}
	}
	free(devs);
	return rc || *ids ? rc : -ENOMEM;
}

static int open_base(uint32_t dev, struct coll_comm **base)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_unique_id id;
	char name[16];
	int rc = coll_get_unique_id(&id);

	snprintf(name, sizeof(name), "npu%u", dev);
	config.device = name;
	return rc ? rc : coll_comm_init_rank(base, 1, &id, 0, &config);
}

/*
 * Signals that end the command wait until its ranks have left: else they would be deaths, which
 * somebody would look into. One pair takes a moment, or until its deadline.
 */
static void hold_signals(sigset_t *held, sigset_t *before)
{
	static const int ending[] = { SIGHUP, SIGINT, SIGTERM };

	sigemptyset(held);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		sigaddset(held, ending[i]);
	sigprocmask(SIG_BLOCK, held, before);
}

static bool interrupted(const sigset_t *held)
{
	sigset_t now;

	sigpending(&now);
	sigandset(&now, &now, held);
	return !sigisemptyset(&now);
}

int link_test(uint32_t only, struct link_result **results, size_t *nresults)
{
	size_t n, failures = 0, max;
	uint32_t *ids;
	int rc = open_devices(&ids, &n);
	struct coll_comm **base = calloc(n + 1, sizeof(*base));
	uint8_t *mem = aligned_alloc(4096, 2 * LARGE);
	sigset_t held, before;
	char task[16] = "";

	hold_signals(&held, &before);
	*nresults = 0;
	max = n <= ALL_PAIRS ? n * n : 2 * n;
	*results = calloc(max + 1, sizeof(**results));
	if (!rc && (!base || !mem || !*results))
		rc = -ENOMEM;
	/* Flight recorders keep that name: what is done here is nobody's work. */
	prctl(PR_GET_NAME, task);
	prctl(PR_SET_NAME, PROBE_TASK);
	for (size_t i = 0; !rc && i < n; i++)
		rc = open_base(ids[i], &base[i]);
	for (size_t i = 0; !rc && i < n; i++) {
		for (size_t k = i + 1; k < n; k++) {
			struct link_result *r = *results + *nresults;

			if ((n > ALL_PAIRS && k > i + 1) || interrupted(&held))
				break;
			if ((only != ANY_DEV && ids[i] != only && ids[k] != only) ||
			    failures >= MAX_FAILURES)
				continue;
			r[0] = (struct link_result) { .from = ids[i], .to = ids[k] };
			r[1] = (struct link_result) { .from = ids[k], .to = ids[i] };
			test_pair((struct coll_comm *[]) { base[i], base[k] }, mem, mem + LARGE, r);
			failures += r[0].error || r[1].error;
			*nresults += 2;
		}
	}
	for (size_t i = 0; base && i < n; i++)
		coll_comm_destroy(base[i]);
	prctl(PR_SET_NAME, task);
	sigprocmask(SIG_SETMASK, &before, NULL);
	free(base);
	free(ids);
	free(mem);
	return rc;
}

static struct json_object *result_json(const struct link_result *r)
{
	struct json_object *obj = json_object_new_object();
	char name[16];

	snprintf(name, sizeof(name), "npu%u", r->from);
	put_str(obj, "dev", name);
	snprintf(name, sizeof(name), "npu%u", r->to);
	put_str(obj, "peer", name);
	put_bool(obj, "ok", !r->error && !r->wrong);
	put_str(obj, "error", r->error ? r->text : NULL);
	put_u64(obj, "wrong_bytes", r->wrong);
	if (!r->error) {
		put_double(obj, "alpha_s", r->alpha);
		put_double(obj, "beta_s_per_byte", r->beta);
	}
	return obj;
}

static void result_text(const struct link_result *r)
{
	char time[16], speed[24];

	printf("npu%-5u -> npu%-5u ", r->from, r->to);
	if (r->error)
		printf("FAILED: %s\n", r->text);
	else if (r->wrong)
		printf("WRONG: %llu bytes are not what was sent\n", (unsigned long long)r->wrong);
	else
		printf("%10s %12s\n", human_time(r->alpha, time), human_speed(r->beta, speed));
}

static const char usage[] =
	"Usage: npulink [-j] link test [[dev] DEV]\n"
	"\n"
	"Sends messages over each link between the devices that you may open, or those of\n"
	"DEV, in both directions, compares what arrives, and says what the quickest message of\n"
	"8 bytes took and how fast 128 KiB went. Of more than 16 devices only neighbours.\n"
	"\n"
	"  -j, --json  JSON\n"
	"\n"
	"Exit status: 0 all data came as it was sent, 1 not, or there was nothing to test.\n";

int link_test_cmd(int argc, char **argv)
{
	struct json_object *array = NULL;
	struct link_result *results;
	struct dev *devs = NULL;
	uint32_t id = ANY_DEV;
	bool bad = false;
	size_t n;
	int c, rc;

	while ((c = cmd_option(argc, argv, "", NULL, usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	argc -= optind;
	argv += optind;
	if (argc > 1 && !strcmp(argv[0], "dev")) {
		argc--;
		argv++;
	}
	if (argc > 1)
		return usage_error("link test: unknown word \"%s\"", argv[1]);
	if (argc && !parse_dev(argv[0], &id))
		return no_dev("link test", argv[0]);
	rc = nl_devs(id, &devs, &n);
	free(devs);
	if (rc)
		return nl_fail(rc, id);
	rc = link_test(id, &results, &n);
	if (!rc && !n) {
		free(results);
		return fail("there are no two devices that you may open; see: npulink doctor");
	}
	if (rc) {
		free(results);
		return fail("links cannot be tested: %s; see: npulink doctor", strerror(-rc));
	}
	if (opts.json)
		array = json_object_new_array();
	else
		printf("%-8s    %-8s %10s %12s\n", "FROM", "TO", "8 BYTES", "SPEED");
	for (size_t i = 0; i < n; i++) {
		bad |= results[i].error || results[i].wrong;
		if (array)
			json_object_array_add(array, result_json(&results[i]));
		else
			result_text(&results[i]);
	}
	free(results);
	if (array)
		json_print(array);
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
