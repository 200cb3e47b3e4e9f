// SPDX-License-Identifier: GPL-2.0
/*
 * steps.c - what a step costs in the kernel: the time of plans that are long chains, by their
 * length. On a machine with one processor, whose clock advances by 1 ns an instruction, that is
 * a number of instructions. Prints lines "KIND BYTES RANKS NUMBER".
 *
 * step-inline: a copy on the own device, done at once; step-interrupt: the same, ended by a
 * completion interrupt. hop-inline, hop-interrupt: a message between two ranks of one process,
 * which is a step of each; with interrupts each rank has a thread, and they take turns.
 *
 * Usage: steps, as root on a machine with npulink_soft and two devices.
 */
#include <pthread.h>
#include <raw.h>

#define SHORT	200U
#define LONG	2200U
#define TRIES	3

static void die(const char *what, int rc)
{
	fprintf(stderr, "steps: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static int must(const char *what, int rc)
{
	if (rc < 0)
		die(what, rc);
	return rc;
}

/* Step @i of rank @r: each waits for the one before. */
static struct npulink_step chained(uint32_t i, uint32_t r, uint32_t nranks)
{
	bool sends = (i + r) % 2 == 0;
	struct npulink_step st;

	if (nranks == 1) {
		st = raw_step(NPULINK_STEP_COPY, 8);
		st.dst_off = 8;
	} else {
		st = raw_step(sends ? NPULINK_STEP_SEND : NPULINK_STEP_RECV, 8);
		if (sends)
			st.send_peer = !r;
		else
			st.recv_peer = !r;
	}
	st.dep[0] = i ? 1 : 0;
	return st;
}

struct rank {
	pthread_t thread;
	int fd;
	struct npulink_post post;
};

static void *run(void *arg)
{
	struct rank *rank = arg;

	must("POST", raw_ioctl(rank->fd, NPULINK_POST, &rank->post));
	must("the operation", rank->post.out_result.status);
	return NULL;
}

/*
 * Nanoseconds for one chain. The first rank only registers, unless each has a thread: then
 * the last one's system call carries both to their end.
 */
static double chain(uint32_t nsteps, uint32_t nranks, bool threads)
{
	struct npulink_slot slot = {
		.min_len = 16, .access = NPULINK_SLOT_READ | NPULINK_SLOT_WRITE,
	};
	struct npulink_step *steps = calloc(nsteps, sizeof(*steps));
	struct npulink_result result;
	struct rank ranks[2];
	uint8_t secret[16];
	uint64_t off;
	double t;

	if (!steps)
		die("memory", -ENOMEM);
	raw_secret(secret);
	for (uint32_t r = 0; r < nranks; r++) {
		struct rank *rank = &ranks[r];
		bool waits = threads || r == nranks - 1;
		int comm, plan;

		for (uint32_t i = 0; i < nsteps; i++)
			steps[i] = chained(i, r, nranks);
		rank->fd = raw_open(r);
		if (rank->fd < 0)
			die("/dev/npulink/npu*", -errno);
		comm = must("COMM_CREATE", raw_comm(rank->fd, secret, r, nranks));
		plan = must("PLAN_CREATE", raw_plan(rank->fd, comm, &slot, 1, steps, nsteps));
		rank->post = raw_post_cmd(plan, waits ? NPULINK_POST_WAIT : NPULINK_POST_HELD);
		raw_bind(&rank->post, must("BUF_ALLOC", raw_buf_alloc(rank->fd, 16, &off)), 0, 16);
	}
	t = raw_now();
	for (uint32_t r = 0; r < nranks; r++) {
		if (threads)
			must("thread", -pthread_create(&ranks[r].thread, NULL, run, &ranks[r]));
		else if (r < nranks - 1)
			must("POST", raw_ioctl(ranks[r].fd, NPULINK_POST, &ranks[r].post));
		else
			run(&ranks[r]);
	}
	for (uint32_t r = 0; threads && r < nranks; r++)
		pthread_join(ranks[r].thread, NULL);
	t = raw_now() - t;
	for (uint32_t r = 0; r < nranks; r++) {
		if (!threads && r < nranks - 1) {
			must("WAIT", raw_wait(ranks[r].fd, ranks[r].post.out_seq, &result));
			must("the operation", result.status);
		}
		close(ranks[r].fd);
	}
	free(steps);
	return t;
}

static void count(const char *kind, uint32_t nranks, bool threads)
{
	double least[2] = { 1e300, 1e300 };

	/* Now and then an interrupt of the machine's own gets in. */
	for (int i = 0; i < 2 * TRIES; i++) {
		double t = chain(i % 2 ? LONG : SHORT, nranks, threads);

		least[i % 2] = t < least[i % 2] ? t : least[i % 2];
	}
	printf("%s 8 %u %.0f\n", kind, nranks, (least[1] - least[0]) / (LONG - SHORT));
}

int main(void)
{
	long long inline_max = raw_read(RAW_INLINE_MAX);
	char text[32];

	count("step-inline", 1, false);
	count("hop-inline", 2, false);
	must(RAW_INLINE_MAX, raw_write(RAW_INLINE_MAX, "0"));
	count("step-interrupt", 1, false);
	count("hop-interrupt", 2, true);
	snprintf(text, sizeof(text), "%lld", inline_max);
	must(RAW_INLINE_MAX, raw_write(RAW_INLINE_MAX, text));
	return 0;
}
