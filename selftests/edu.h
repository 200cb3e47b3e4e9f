/* SPDX-License-Identifier: GPL-2.0 */
/*
 * edu.h - tests of two edu devices (kernel/edu): what a program sees of them is the same
 * everywhere, whatever lies between a device and memory. EDU_BITS: of their addresses.
 * EDU_BOUNCES: they reach less than there is.
 */
#include "backends.h"

static const size_t lens[] = { 1, 8, 4097, 9000 };

static bool insert(unsigned int bits)
{
	char what[64];

	snprintf(what, sizeof(what), "insert npulink_edu dma_bits=%u", bits);
	return !modules(what);
}

/* The first number that @command prints. */
static long number(const char *command)
{
	FILE *file = popen(command, "r");
	long n = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%ld", &n) != 1)
		n = -1;
	pclose(file);
	return n;
}

/* Bytes that wait in bounce buffers, in pieces of the kernel's. */
static long bounces(void)
{
	return number("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug; "
		      "cat /sys/kernel/debug/swiotlb/io_tlb_used");
}

/* A rank that sends to the other one, whose memory stays registered. */
struct sender {
	int fd, plan, buf;
	uint8_t *mem;
};

static bool sender_begin(struct sender *s, const uint8_t *secret, int rank)
{
	int comm;

	s->fd = raw_open(rank);
	comm = raw_comm(s->fd, secret, rank, RANKS);
	s->plan = plan_of(s->fd, comm, rank, 4096, NPULINK_STEP_RECV);
	s->mem = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(s->mem, 50 + rank, 4096);
	s->buf = raw_register(s->fd, s->mem, 8192, 0);
	return comm > 0 && s->plan > 0 && s->buf > 0;
}

static int sender_post(struct sender *s, struct npulink_post *post)
{
	*post = raw_post_cmd(s->plan, NPULINK_POST_HELD);
	raw_bind(post, s->buf, 0, 4096);
	raw_bind(post, s->buf, 4096, 4096);
	return raw_ioctl(s->fd, NPULINK_POST, post);
}

static void sender_end(struct sender *s)
{
	close(s->fd);
	munmap(s->mem, 8192);
}

/*
 * A buffer is mapped once for each device that uses it, here two, and until it goes. What was
 * written after it was mapped arrives all the same.
 */
static bool is_mapped_once(void)
{
	const char *devices = "$NPULINK_TREE/build/tools/npulink -j -d buf show | "
			      "jq '[.[].bufs[].devices] | add'";
	struct npulink_result result;
	struct npulink_post post[RANKS];
	struct sender s[RANKS];
	uint8_t secret[16];
	long before = bounces();
	bool good = true;
	int r, turn;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++)
		good = sender_begin(&s[r], secret, r) && good;
	good = good && number(devices) == 0;
	for (turn = 0; good && turn < 3; turn++) {
		for (r = 0; r < RANKS; r++) {
			memset(s[r].mem, 7 * turn + r, 4096);
			good = !sender_post(&s[r], &post[r]) && good;
		}
		for (r = 0; good && r < RANKS; r++)
			good = !raw_wait(s[r].fd, post[r].out_seq, &result) && !result.status;
		for (r = 0; good && r < RANKS; r++)
			good = s[r].mem[4096] == 7 * turn + !r &&
			       !memcmp(s[r].mem + 4096, s[!r].mem, 4096);
		good = good && number(devices) == 2 * RANKS;
	}
	if (good && EDU_BOUNCES)
		good = bounces() > before;
	for (r = 0; r < RANKS; r++)
		sender_end(&s[r]);
	/* Workers give it back. */
	for (turn = 0; good && bounces() != before && turn < 1000; turn++)
		usleep(10000);
	return good && turn < 1000;
}

/* It goes while memory is mapped and requests run: they end, and so does the module. */
static bool goes_while_it_works(void)
{
	struct npulink_post post[RANKS];
	struct sender s[RANKS];
	uint8_t secret[16];
	bool good = true;
	int r;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++)
		good = sender_begin(&s[r], secret, r) && good;
	for (r = 0; good && r < RANKS; r++)
		good = !sender_post(&s[r], &post[r]);
	good = !system("rmmod npulink_edu") && good;
	for (r = 0; good && r < RANKS; r++)
		good = sender_post(&s[r], &post[r]) == -ENODEV;
	for (r = 0; r < RANKS; r++)
		sender_end(&s[r]);
	return good;
}

/* Memory that is only read: the other one's device reads it, too. */
static bool reads_what_it_may_not_write(void)
{
	struct npulink_slot slots[] = { { .min_len = 4096, .access = NPULINK_SLOT_READ } };
	struct npulink_slot in[] = { { .min_len = 4096, .access = NPULINK_SLOT_WRITE } };
	struct npulink_step send = raw_step(NPULINK_STEP_SEND, 4096);
	struct npulink_step recv = raw_step(NPULINK_STEP_RECV, 4096);
	struct npulink_post post[RANKS];
	struct npulink_result result;
	struct sender s[RANKS];
	uint8_t secret[16];
	bool good = true;
	int r, comm;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		s[r].fd = raw_open(r);
		comm = raw_comm(s[r].fd, secret, r, RANKS);
		send.send_peer = 1;
		recv.recv_peer = 0;
		s[r].plan = raw_plan(s[r].fd, comm, r ? in : slots, 1, r ? &recv : &send, 1);
		s[r].mem = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0);
		memset(s[r].mem, 90 + r, 4096);
		s[r].buf = raw_register(s[r].fd, s[r].mem, 4096, r ? 0 : NPULINK_BUF_READONLY);
		post[r] = raw_post_cmd(s[r].plan, NPULINK_POST_HELD);
		raw_bind(&post[r], s[r].buf, 0, 4096);
		good = good && !raw_ioctl(s[r].fd, NPULINK_POST, &post[r]);
	}
	for (r = 0; good && r < RANKS; r++)
		good = !raw_wait(s[r].fd, post[r].out_seq, &result) && !result.status;
	good = good && !memcmp(s[0].mem, s[1].mem, 4096);
	for (r = 0; r < RANKS; r++)
		sender_end(&s[r]);
	return good;
}

static bool too_few_bits_are_refused(void)
{
	bool good = insert(20) && access("/dev/npulink/npu0", F_OK);

	return !system("rmmod npulink_edu") && good;
}

int main(void)
{
	size_t i;

	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(lens) + 6 + EDU_BOUNCES);
	if (EDU_BOUNCES)
		ksft_test_result(too_few_bits_are_refused(), "too few bits are refused\n");
	ksft_test_result(insert(EDU_BITS), "it is loaded\n");
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		ksft_test_result(exchange(lens[i]), "%zu bytes are exchanged\n", lens[i]);
	ksft_test_result(is_mapped_once(), "a buffer is mapped once for each device\n");
	ksft_test_result(reads_what_it_may_not_write(), "memory that is only read is sent\n");
	ksft_test_result(libcoll_runs(), "libcoll runs on it\n");
	ksft_test_result(goes_while_it_works(), "it goes while it works\n");
	ksft_test_result(!modules("unload"), "the core goes\n");
	ksft_finished();
}
