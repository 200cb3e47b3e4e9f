// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A program that closes the library's descriptors, as one that becomes a daemon closes all of them,
 * and opens its own in their place: against the mock.
 */
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "mock_pair.h"

#define FIRST	3
#define LAST	40

/* Behind the mock's back, which keeps the files as mappings of theirs would. */
/* What the mock holds for descriptors that were closed behind its back, nobody can give back. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:mock_";
}

static void close_all(void)
{
	for (int fd = FIRST; fd <= LAST; fd++)
		syscall(SYS_close, fd);
}

/* Descriptors of the program, up to that of the last communicator at least. */
static int open_own(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < LAST);
	return fd == LAST ? 0 : -1;
}

/* How many of them are not what they were. */
static int lost(void)
{
	struct stat null, st;
	int n = 0;

	if (stat("/dev/null", &null))
		return -1;
	for (int fd = FIRST; fd <= LAST; fd++)
		n += fstat(fd, &st) || st.st_rdev != null.st_rdev;
	return n;
}

static void test_closed(void)
{
	struct coll_request *req;
	int bad;

	setup(NULL);
	bad = both(BIG) || coll_comm_fd(comms[0]) < FIRST || coll_comm_fd(comms[1]) > LAST;
	bad |= coll_irecv(comms[0], in[0], 4, COLL_INT32, 1, &req);
	close_all();
	bad |= open_own();
	bad |= teardown();
	ksft_test_result(!bad && !lost(), "closed: destroy closes no file of the program\n");
	close_all();
	memset(mock.files, 0, sizeof(mock.files));
}

/* A new communicator has the number of the old one's descriptor, and is on the same device. */
static bool is_taken(void)
{
	int fd = coll_comm_fd(comms[0]);
	struct coll_comm *old = comms[0], *new[1];
	const struct coll_config config = COLL_CONFIG_INIT;
	struct coll_state state = COLL_STATE_INIT;
	void *mem;
	bool ok;

	syscall(SYS_close, fd);
	if (comms_make(new, 1, config) || coll_comm_fd(new[0]) != fd)
		return false;
	ok = !coll_mem_alloc(new[0], COLL_MEMORY_HOST, 4096, &mem) && !coll_comm_destroy(old);
	comms[0] = NULL;
	ok = ok && !coll_comm_status(new[0], &state) && !coll_mem_free(new[0], mem);
	return !comms_free(new, 1) && ok;
}

static void test_taken(void)
{
	int status = -1;
	pid_t pid;

	setup(NULL);
	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(!is_taken());
	waitpid(pid, &status, 0);
	ksft_test_result(!status, "taken: by another communicator, in a child\n");
	ksft_test_result(is_taken(), "taken: by another communicator\n");
	teardown();
}

static void test_child(void)
{
	int status = -1;
	pid_t pid;

	setup(NULL);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close_all();
		_exit(open_own() || teardown() || lost());
	}
	waitpid(pid, &status, 0);
	ksft_test_result(!status && !teardown(), "closed: in a child\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4);
	test_child();
	test_taken();
	test_closed();
	ksft_finished();
}
