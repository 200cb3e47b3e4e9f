// SPDX-License-Identifier: GPL-2.0
/*
 * no_alloc - once a plan has run, posting it again allocates nothing: the kernel's own
 * allocation tracepoints, with stacks, see no allocation by npulink.ko, inline or
 * through interrupts, but for the deadlock detector's and for a new worker's. Creating a plan
 * is seen, so the net has no hole.
 *
 * npulink-test: probes timeout=120
 */
#include <pthread.h>
#include <sys/stat.h>
#include "raw.h"
#include "harness.h"

#define TRACEFS "/sys/kernel/tracing/"
#define ROUNDS 50

static int trace_write(const char *file, const char *text)
{
	char path[128];
	int fd, rc;

	snprintf(path, sizeof(path), TRACEFS "%s", file);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0)
		return -errno;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int trace_all(const char *on)
{
	static const char * const events[] = {
		"kmalloc", "kmalloc_node", "kmem_cache_alloc", "kmem_cache_alloc_node",
		"mm_page_alloc",
	};
	unsigned int i;
	int rc = 0, n = 0;
	char file[64];

	for (i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		snprintf(file, sizeof(file), "events/kmem/%s/enable", events[i]);
		rc = trace_write(file, on);
		if (rc && rc != -ENOENT)
			return rc;
		n += !rc;
	}
	return n ? 0 : -ENOENT;
}

/*
 * Whose allocation it is, by its stack, which is an event of its own, the innermost frame
 * first. Where an interrupt came while npulink.ko ran, what is above it is not ours; our
 * own interrupt handlers are above the interrupt's entry.
 */
struct stack {
	char text[4096];
	size_t len;
	bool ours;
	bool interrupt;
	bool other;
};

static void stack_frame(struct stack *st, const char *line)
{
	st->interrupt |= strstr(line, "=> asm_sysvec_") || strstr(line, "=> el1h_64_irq") ||
			 strstr(line, "=> asm_common_interrupt");
	st->ours |= !st->interrupt && strstr(line, "=> npulink_");
	/* It runs now and then beside operations that last, has room and gives it back. */
	st->other |= !!strstr(line, "npulink_deadlock_work_fn");
	/* A worker that had nothing to do for a second has ended; on a slow host that happens. */
	st->other |= !!strstr(line, "=> npulink_worker_start");
	if (st->len < sizeof(st->text))
		st->len += snprintf(st->text + st->len, sizeof(st->text) - st->len, "# %s", line);
}

/* Allocations by npulink.ko; the first ones are printed. -1: some events were lost. */
static int trace_count(void)
{
	FILE *f = fopen(TRACEFS "trace", "r");
	unsigned long kept = 0, written = 0;
	struct stack st = { .len = 0 };
	char line[512];
	bool more;
	int n = 0;

	if (!f)
		return -errno;
	do {
		more = fgets(line, sizeof(line), f);
		if (more && sscanf(line, "# entries-in-buffer/entries-written: %lu/%lu", &kept,
				   &written) == 2 && kept != written)
			n = -1;
		if (more && !strncmp(line, " => ", 4)) {
			stack_frame(&st, line);
			continue;
		}
		if (st.ours && !st.other && n >= 0 && n++ < 4)
			fputs(st.text, stdout);
		memset(&st, 0, sizeof(st));
	} while (more);
	fclose(f);
	fflush(stdout);	/* a test ends with _exit() */
	return n;
}

struct rank {
	pthread_t thread;
	int fd, rank, comm, plan, in, out;
	size_t len;
	int *src, *dst;
	int errors;
};

static int rank_plan(struct rank *r)
{
	struct npulink_slot slots[] = {
		{ .min_len = r->len, .access = NPULINK_SLOT_READ },
		{ .min_len = r->len, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step steps[2] = {
		raw_step(NPULINK_STEP_SEND, r->len),
		raw_step(NPULINK_STEP_RECV | NPULINK_STEP_REDUCE, r->len),
	};

	steps[0].send_peer = !r->rank;
	steps[1].recv_peer = !r->rank;
	steps[1].dst_slot = 1;
	return raw_plan(r->fd, r->comm, slots, 2, steps, 2);
}

static void *rank_rounds(void *arg)
{
	struct rank *r = arg;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		struct npulink_post post = raw_post_cmd(r->plan, NPULINK_POST_WAIT);

		raw_bind(&post, r->in, 0, r->len);
		raw_bind(&post, r->out, 0, r->len);
		if (raw_ioctl(r->fd, NPULINK_POST, &post) || post.out_result.status)
			r->errors++;
	}
	return NULL;
}

static int both_ranks(struct rank *ranks)
{
	int i, errors = 0;

	for (i = 0; i < 2; i++)
		pthread_create(&ranks[i].thread, NULL, rank_rounds, &ranks[i]);
	for (i = 0; i < 2; i++) {
		pthread_join(ranks[i].thread, NULL);
		errors += ranks[i].errors;
	}
	return errors;
}

FIXTURE(no_alloc) {
	struct rank ranks[2];
};

FIXTURE_VARIANT(no_alloc) {
	size_t len;
};

FIXTURE_VARIANT_ADD(no_alloc, inlined) { .len = 1024 };
FIXTURE_VARIANT_ADD(no_alloc, interrupts) { .len = 512 << 10 };

FIXTURE_SETUP(no_alloc)
{
	uint8_t secret[16];
	int i;

	raw_secret(secret);
	for (i = 0; i < 2; i++) {
		struct rank *r = &self->ranks[i];

		memset(r, 0, sizeof(*r));
		r->rank = i;
		r->len = variant->len;
		r->fd = raw_open(i);
		ASSERT_GE(r->fd, 0);
		r->comm = raw_comm(r->fd, secret, i, 2);
		ASSERT_GT(r->comm, 0);
		r->src = calloc(1, r->len);
		r->dst = calloc(1, r->len);
		r->in = raw_register(r->fd, r->src, r->len, NPULINK_BUF_READONLY);
		ASSERT_GT(r->in, 0);
		r->out = raw_register(r->fd, r->dst, r->len, 0);
		ASSERT_GT(r->out, 0);
		r->plan = rank_plan(r);
		ASSERT_GT(r->plan, 0);
	}
}

FIXTURE_TEARDOWN(no_alloc)
{
	int i;

	for (i = 0; i < 2; i++) {
		close(self->ranks[i].fd);
		free(self->ranks[i].src);
		free(self->ranks[i].dst);
	}
}

TEST_F(no_alloc, posting_again_allocates_nothing)
{
	int try, n;

	if (access(TRACEFS "trace", W_OK))
		SKIP(return, "tracefs is not there or not ours");
	ASSERT_EQ(0, both_ranks(self->ranks));
	ASSERT_EQ(0, trace_write("options/stacktrace", "1"));
	/*
	 * Names of tasks are recorded by patching the scheduler's code, in which an emulated
	 * processor has once been caught for ever by a breakpoint that was gone.
	 */
	trace_write("options/record-cmd", "0");
	/* If there was more to record than there is room for: once more. */
	for (try = 0, n = -1; try < 4 && n < 0; try++) {
		ASSERT_EQ(0, trace_write("trace", ""));
		ASSERT_EQ(0, trace_all("1"));
		EXPECT_EQ(0, both_ranks(self->ranks));
		ASSERT_EQ(0, trace_all("0"));
		n = trace_count();
	}
	EXPECT_EQ(0, n);

	/* The control: this does allocate. */
	ASSERT_EQ(0, trace_write("trace", ""));
	ASSERT_EQ(0, trace_all("1"));
	EXPECT_GT(rank_plan(&self->ranks[0]), 0);
	ASSERT_EQ(0, trace_all("0"));
	EXPECT_GT(trace_count(), 0);
	trace_write("options/stacktrace", "0");
	trace_write("options/record-cmd", "1");
	trace_write("trace", "");
}

TEST_HARNESS_MAIN
