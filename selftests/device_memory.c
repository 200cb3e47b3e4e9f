// SPDX-License-Identifier: GPL-2.0
/*
 * device_memory - buffers in the cards' own memory: as far as they reach, who can see them, what is
 * refused, and that they go with the card.
 *
 * npulink-test: cards=2 modules=none mem=1024 timeout=300
 */
#include <setjmp.h>
#include "backends.h"
#include "vgem.h"

#define LEN	(2 << 20)
#define RW	(PROT_READ | PROT_WRITE)

static uint64_t memory;		/* of a card */

/* Id of a buffer in the device's memory, or -errno; *offset is for mmap(). */
static int alloc_device(int fd, uint64_t len, uint64_t *offset)
{
	struct npulink_buf_alloc cmd = {
		.size = sizeof(cmd), .flags = NPULINK_BUF_DEVICE, .len = len,
	};
	int rc = raw_ioctl(fd, NPULINK_BUF_ALLOC, &cmd);

	*offset = cmd.out_mmap_offset;
	return rc ? rc : (int)cmd.out_id;
}

static uint8_t *map_device(int fd, uint64_t len, int *id)
{
	uint64_t offset;
	void *p;

	*id = alloc_device(fd, len, &offset);
	if (*id < 0)
		return NULL;
	p = mmap(NULL, len, RW, MAP_SHARED, fd, offset);
	return p == MAP_FAILED ? NULL : p;
}

static int export_fd(int fd, uint32_t id)
{
	struct npulink_buf_export cmd = { .size = sizeof(cmd), .id = id };
	int rc = raw_ioctl(fd, NPULINK_BUF_EXPORT, &cmd);

	return rc ? rc : cmd.out_fd;
}

static int import_fd(int fd, int dmabuf)
{
	struct npulink_buf_import cmd = { .size = sizeof(cmd), .fd = dmabuf };
	int rc = raw_ioctl(fd, NPULINK_BUF_IMPORT, &cmd);

	return rc ? rc : (int)cmd.out_id;
}

/* Bytes of npu @n's memory that are in buffers; they come back by a worker. */
static bool comes_to_be_used(int n, uint64_t bytes)
{
	char command[256], text[64] = "";
	int tries;
	FILE *file;

	snprintf(command, sizeof(command),
		 "$NPULINK_TREE/build/tools/npulink -j dev show npu%d | jq '.[].memory_used'", n);
	for (tries = 0; tries < 600; tries++) {
		file = popen(command, "r");
		if (!file || !fgets(text, sizeof(text), file))
			text[0] = 0;
		if (file)
			pclose(file);
		if (text[0] && strtoull(text, NULL, 0) == bytes)
			return true;
		usleep(50000);
	}
	ksft_print_msg("npu%d: %s bytes used, not %llu\n", n, text, (unsigned long long)bytes);
	return false;
}

static bool is_zeroed_and_given_back(void)
{
	int fd = raw_open(0), id, turn;
	bool good = true;
	uint8_t *p;
	size_t i;

	for (turn = 0; good && turn < 2; turn++) {
		p = map_device(fd, LEN, &id);
		good = p && comes_to_be_used(0, LEN);
		for (i = 0; good && i < LEN; i++)
			good = !p[i];
		if (p) {
			memset(p, 0x5a, LEN);
			munmap(p, LEN);
		}
		good = good && !raw_destroy(fd, id) && comes_to_be_used(0, 0);
	}
	close(fd);
	return good;
}

/* No more than there is, and all of it comes back when the file is closed. */
static bool ends_where_memory_does(void)
{
	int fd = raw_open(0), n;
	uint64_t offset, len = memory / 4 & ~4095ULL;
	bool good = alloc_device(fd, memory + 4096, &offset) == -ENOMEM &&
		    alloc_device(fd, UINT64_MAX, &offset) == -EINVAL &&
		    alloc_device(fd, 0, &offset) == -EINVAL;

	for (n = 0; n < 8 && alloc_device(fd, len, &offset) > 0; n++)
		;
	good = good && n == 4 && alloc_device(fd, len, &offset) == -ENOMEM;
	close(fd);
	return comes_to_be_used(0, 0) && good;
}

static bool wrong_mappings_are_refused(void)
{
	int fd = raw_open(0), other = raw_open(0), id, host;
	uint64_t offset, plain;
	bool good;

	id = alloc_device(fd, LEN, &offset);
	host = raw_buf_alloc(fd, LEN, &plain);
	good = id > 0 && host > 0 && offset >> 62 == 1 && plain >> 62 == 0;
	good = good && mmap(NULL, LEN, RW, MAP_PRIVATE, fd, offset) == MAP_FAILED &&
	       errno == EINVAL;
	good = good && mmap(NULL, LEN / 2, RW, MAP_SHARED, fd, offset) == MAP_FAILED &&
	       errno == EINVAL;
	good = good && mmap(NULL, LEN, RW, MAP_SHARED, fd, offset + 4096) == MAP_FAILED &&
	       errno == EINVAL;
	/* Each kind has offsets of its own. */
	good = good && mmap(NULL, LEN, RW, MAP_SHARED, fd, offset & ~(1ULL << 62)) == MAP_FAILED &&
	       errno == EINVAL;
	good = good && mmap(NULL, LEN, RW, MAP_SHARED, fd, plain | 1ULL << 62) == MAP_FAILED &&
	       errno == EINVAL;
	good = good && mmap(NULL, LEN, RW, MAP_SHARED, fd, 1ULL << 62) == MAP_FAILED &&
	       errno == EINVAL;
	good = good && mmap(NULL, LEN, RW, MAP_SHARED, other, offset) == MAP_FAILED &&
	       errno == ENOENT;
	close(fd);
	close(other);
	return good;
}

/* It cannot be pinned, and a child has none of it. */
static bool is_nobodys_page(void)
{
	int fd = raw_open(0), id, status = 0;
	uint8_t *p = map_device(fd, LEN, &id);
	pid_t child;
	bool good;

	good = p && raw_register(fd, p, LEN, 0) == -EOPNOTSUPP;
	child = fork();
	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile uint8_t *)p);
	}
	good = waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGSEGV && good;
	/* Half of a mapping is still one. */
	good = good && !munmap(p, LEN / 2);
	if (good)
		p[LEN - 1] = 1;
	close(fd);
	return good && p[LEN - 1] == 1 && !munmap(p + LEN / 2, LEN / 2);
}

/* Two ranks exchange bytes; each of the four buffers is where @where says, a bit for each. */
static bool exchange_device(unsigned int where)
{
	uint8_t secret[16], *mem[RANKS][2];
	int fd[RANKS], comm[RANKS], plan[RANKS], buf[RANKS][2], r, k;
	bool good = true;
	uint64_t offset;
	size_t i;

	raw_secret(secret);
	for (r = 0; r < RANKS; r++) {
		fd[r] = raw_open(r);
		comm[r] = raw_comm(fd[r], secret, r, RANKS);
		plan[r] = plan_of(fd[r], comm[r], r, LEN - 2, NPULINK_STEP_RECV);
		for (k = 0; k < 2; k++) {
			if (where >> (2 * r + k) & 1) {
				mem[r][k] = map_device(fd[r], LEN, &buf[r][k]);
			} else {
				buf[r][k] = raw_buf_alloc(fd[r], LEN, &offset);
				mem[r][k] = mmap(NULL, LEN, RW, MAP_SHARED, fd[r], offset);
			}
			for (i = 0; mem[r][k] && i < LEN; i++)
				mem[r][k][i] = k ? 0 : (r + 1) * 7 + i * 13;
			good = good && mem[r][k] && buf[r][k] > 0;
		}
		good = good && fd[r] >= 0 && comm[r] > 0 && plan[r] > 0;
	}
	good = good && exchange_bufs(fd, plan, buf, mem, 1, LEN - 2);
	for (r = 0; r < RANKS; r++) {
		close(fd[r]);
		for (k = 0; k < 2; k++)
			munmap(mem[r][k], LEN);
	}
	return good;
}

/* A copy of @len bytes from one buffer to another by the engine of @fd's device: POST's errno. */
static int copy(int fd, int from, int to, uint64_t len, uint32_t flags)
{
	struct npulink_comm_create cmd = { .size = sizeof(cmd), .nranks = 1, .flags = flags };
	struct npulink_slot slots[] = {
		{ .min_len = len, .access = NPULINK_SLOT_READ },
		{ .min_len = len, .access = NPULINK_SLOT_WRITE },
	};
	struct npulink_step step = raw_step(0, len);
	struct npulink_post post;
	struct npulink_result result;
	int plan, rc;

	raw_secret(cmd.secret);
	rc = raw_ioctl(fd, NPULINK_COMM_CREATE, &cmd);
	if (rc)
		return rc;
	step.op = NPULINK_STEP_COPY;
	step.dst_slot = 1;
	plan = raw_plan(fd, cmd.out_id, slots, 2, &step, 1);
	if (plan < 0)
		return plan;
	post = raw_post_cmd(plan, NPULINK_POST_HELD);
	raw_bind(&post, from, 0, len);
	raw_bind(&post, to, 0, len);
	rc = raw_ioctl(fd, NPULINK_POST, &post);
	if (!rc)
		rc = raw_wait(fd, post.out_seq, &result) ?: result.status;
	raw_destroy(fd, plan);
	raw_destroy(fd, cmd.out_id);
	return rc;
}

/* Another file, of the other card, has it by a dma-buf, and it outlives the first one's. */
static bool is_shared_by_dmabuf(void)
{
	int a = raw_open(0), b = raw_open(1), id, to, dmabuf, other;
	uint8_t *p = map_device(a, LEN, &id), *q = map_device(b, LEN, &to);
	bool good = p && q;

	if (!good)
		return false;
	memset(p, 0x42, LEN);
	dmabuf = export_fd(a, id);
	other = import_fd(b, dmabuf);
	munmap(p, LEN);
	close(a);
	good = dmabuf >= 0 && other > 0 &&
	       mmap(NULL, LEN, RW, MAP_SHARED, dmabuf, 0) == MAP_FAILED;
	close(dmabuf);
	good = good && comes_to_be_used(0, LEN) && !copy(b, other, to, LEN, 0);
	good = good && q[0] == 0x42 && !memcmp(q, q + 1, LEN - 1);
	close(b);
	munmap(q, LEN);
	return comes_to_be_used(0, 0) && good;
}

/* What a processor would have to look at, and devices without links to it. */
static bool processors_are_refused(int soft)
{
	int fd = raw_open(0), s = raw_open(soft), id, to, host, dmabuf;
	uint64_t offset;
	bool good;

	id = alloc_device(fd, LEN, &offset);
	to = alloc_device(fd, LEN, &offset);
	host = raw_buf_alloc(fd, LEN, &offset);
	dmabuf = export_fd(fd, id);
	good = id > 0 && to > 0 && dmabuf >= 0 && import_fd(s, dmabuf) == -EOPNOTSUPP &&
	       alloc_device(s, LEN, &offset) == -EOPNOTSUPP;
	good = good && !copy(fd, id, to, LEN, 0) && !copy(fd, host, to, LEN, 0) &&
	       copy(fd, id, host, LEN, NPULINK_COMM_CHECKSUM) == -EOPNOTSUPP;
	close(dmabuf);
	close(s);
	close(fd);
	return good;
}

/* Another driver's, which a card is given without a processor's mapping. */
static bool others_memory_is_attached(void)
{
	int fd = raw_open(0), id, to;
	uint8_t *p, *q;
	struct vgem v;
	bool good;

	if (!vgem_open(&v, LEN)) {
		ksft_print_msg("no vgem\n");
		return true;
	}
	p = mmap(NULL, LEN, RW, MAP_SHARED, v.fd, 0);
	q = map_device(fd, LEN, &to);
	id = import_fd(fd, v.fd);
	good = p != MAP_FAILED && q && id > 0;
	if (good)
		memset(p, 0x77, LEN);
	good = good && !copy(fd, id, to, LEN, 0) && q[0] == 0x77 && !memcmp(q, q + 1, LEN - 1);
	if (good)
		memset(q, 0x11, LEN);
	good = good && !copy(fd, to, id, LEN, 0) && p[LEN - 1] == 0x11;
	close(fd);
	munmap(p, LEN);
	munmap(q, LEN);
	close(v.fd);
	close(v.card);
	return good;
}

static sigjmp_buf back;

static void jump(int sig)
{
	siglongjmp(back, sig);
}

/* Which signal a look at @p raises. */
static int look(const volatile uint8_t *p)
{
	struct sigaction sa = { .sa_handler = jump }, old[2];
	int sig;

	sigaction(SIGBUS, &sa, &old[0]);
	sigaction(SIGSEGV, &sa, &old[1]);
	sig = sigsetjmp(back, 1);
	if (!sig)
		(void)*p;
	sigaction(SIGBUS, &old[0], NULL);
	sigaction(SIGSEGV, &old[1], NULL);
	return sig;
}

/* The driver is taken away while memory is mapped, exported and imported. */
static bool goes_with_the_card(void)
{
	int a = raw_open(0), b = raw_open(1), id, to, dmabuf, other;
	uint8_t *p = map_device(a, LEN, &id), *q = map_device(b, LEN, &to);
	uint64_t offset;
	bool good = p && q;

	if (!good)
		return false;
	p[0] = 1;
	q[LEN - 1] = 1;
	dmabuf = export_fd(a, id);
	other = import_fd(b, dmabuf);
	good = dmabuf >= 0 && other > 0 && !look(p) && !look(q);
	good = !system("rmmod npulink_pci") && good;
	good = good && look(p) == SIGBUS && look(q + LEN - 1) == SIGBUS;
	good = good && alloc_device(a, LEN, &offset) == -ENODEV;
	close(dmabuf);
	munmap(q, LEN);
	close(b);
	close(a);
	good = !modules("insert npulink_pci timeout=120000") && good;
	good = good && comes_to_be_used(0, 0) && look(p) == SIGBUS;
	munmap(p, LEN);
	return good;
}

int main(void)
{
	struct npulink_device_info info;
	int fd, soft = 2;

	ksft_print_header();
	if (modules("insert npulink_pci timeout=120000") || modules("insert npulink_soft ndev=1"))
		ksft_exit_skip("no cards\n");
	ksft_set_plan(13);
	fd = raw_open(0);
	ksft_test_result(!raw_info(fd, &info) && info.out_memory >= 4 << 20 &&
			 !info.out_processors, "there is some\n");
	close(fd);
	memory = info.out_memory;
	ksft_test_result(is_zeroed_and_given_back(), "it is zeroed, and given back\n");
	ksft_test_result(ends_where_memory_does(), "no more than there is\n");
	ksft_test_result(wrong_mappings_are_refused(), "wrong mappings\n");
	ksft_test_result(is_nobodys_page(), "no page for others\n");
	ksft_test_result(exchange_device(0xf), "from device memory to device memory\n");
	ksft_test_result(exchange_device(0x6), "host memory and device memory\n");
	ksft_test_result(exchange_device(0x9), "device memory and host memory\n");
	ksft_test_result(is_shared_by_dmabuf(), "shared by a dma-buf\n");
	ksft_test_result(processors_are_refused(soft), "not for processors\n");
	ksft_test_result(others_memory_is_attached(), "memory of another driver\n");
	ksft_test_result(goes_with_the_card(), "it goes with the card\n");
	/* What was imported is given back by a worker, which has the module until then. */
	ksft_test_result(RAW_EVENTUALLY(!modules("unload 2>/dev/null")), "all goes\n");
	ksft_finished();
}
