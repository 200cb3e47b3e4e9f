// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * causes.c - each call of libcoll into the system is made to fail, with many an errno: it
 * gives that errno, its text has that errno's words, and advice only where it is the cause.
 */
#include <dirent.h>
#include <sys/resource.h>
#include "mock.h"
#include "coll.h"
#include "lib/base/base.h"
#include "lib/run/comm.h"
#include "lib/run/dev.h"
#include "lib/run/request.h"
#include "kselftest.h"

static const int errors[] = {
	EPERM, ENOENT, EIO, ENXIO, E2BIG, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, EEXIST, ENODEV,
	ENOTDIR, EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, EROFS, ELOOP, ENOSYS, EOVERFLOW,
	EOPNOTSUPP, EDQUOT,
};

/* Advice, and whose it is, if anybody's: where @calls is a part of the call's name. */
static const struct {
	const char *words;
	const char *calls;
	int errors[3];
} advice[] = {
	{ "modprobe", "open", { ENOENT } },
	{ "usermod", "open", { EACCES } },
	{ "nodev", "open", { EACCES } },
	{ "device cgroup", "open", { EPERM } },
	{ "docker run", "open", { EPERM, ENOENT } },
	{ "RLIMIT_NOFILE", "open", { EMFILE } },
	{ "fs.file-max", "open", { ENFILE } },
	{ "max_user_objects", "open", { EDQUOT } },
	{ "too old", "DEVICE_INFO", { ENOTTY } },
	{ "seccomp", "DEVICE_INFO", { EPERM, EACCES, ENOSYS } },
	{ "RLIMIT_MEMLOCK", "", { ENOMEM } },
	{ "memory.max", "", { ENOMEM } },
	{ "another number of ranks", "COMM_CREATE", { EINVAL } },
	{ "the rank is taken", "COMM_CREATE", { EEXIST } },
	{ "another user", "COMM_CREATE", { EACCES } },
	{ "had failed before", "COMM_CREATE", { EIO } },
	{ "bug in libcoll", "", { } },
	{ "fork", "", { EPERM } },
	{ "in flight", "", { EBUSY } },
	{ "shared mapping", "BUF_REGISTER", { EOPNOTSUPP } },
};

/* Where an errno of the kernel means one thing, that is said without the system's words for it. */
static const struct {
	int error;
	const char *words;
} own[] = {
	{ ENOENT, "there is no /dev/npulink/npu" },
	{ EPERM, "this process did not make the communicator" },
	{ EINVAL, "another number of ranks" },
	{ EINVAL, "the communicator has not failed" },
	{ EEXIST, "the rank is taken" },
	{ EEXIST, "its place among the survivors before" },
	{ EACCES, "made by another user" },
	{ ENODEV, "npu0 has gone" },
	{ EFAULT, "mapped with the needed access" },
	{ EOPNOTSUPP, "a shared mapping of a file" },
	{ EOVERFLOW, "too large: at most" },
};

/* ---- calls that are no ioctl */

static int fail_opendir, fail_mmap;
static unsigned int maps_before;

DIR *opendir(const char *path)
{
	int fd;

	if (fail_opendir && !strcmp(path, COLL_DEV_DIR)) {
		errno = fail_opendir;
		return NULL;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopendir(fd);
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	long rc;

	if (fail_mmap && fd >= 0 && !maps_before--) {
		errno = fail_mmap;
		return MAP_FAILED;
	}
	rc = syscall(SYS_mmap, addr, len, prot, flags, fd, off);
	return (void *)rc;
}

/* ---- what is said */

/* The text says what this errno is, and not what another one would be. */
static bool is_cause(const char *call, int rc, int error, const char *text)
{
	bool ok = rc == -error, said = strstr(text, strerror(error));

	for (unsigned int i = 0; i < ARRAY_SIZE(own); i++)
		said |= error == own[i].error && strstr(text, own[i].words);
	ok &= said;
	for (unsigned int i = 0; i < ARRAY_SIZE(advice); i++) {
		bool due = false;

		if (!strstr(text, advice[i].words))
			continue;
		for (unsigned int k = 0; k < ARRAY_SIZE(advice[i].errors); k++)
			due |= advice[i].errors[k] == error;
		due &= !!strstr(call, advice[i].calls);
		if (!due)
			ksft_print_msg("%s, %s: not due: %s\n", call, strerror(error),
				       advice[i].words);
		ok &= due;
	}
	if (!ok)
		ksft_print_msg("%s, %s: %d %s\n", call, strerror(error), rc, text);
	return ok;
}

static int init(const char *device, struct coll_comm **comm, char *text, size_t size)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_unique_id id;

	*text = 0;
	config.device = device;
	config.calibration = "";
	config.error_text = text;
	config.error_size = size;
	coll_get_unique_id(&id);
	return coll_comm_init_rank(comm, 2, &id, 0, &config);
}

/* The first communicator of a process: the node, what it says, its memory, joining. */
static void test_init(void)
{
	static const struct {
		const char *call;
		int *fails;
		unsigned long ioctl;
	} calls[] = {
		{ "opendir", &fail_opendir, 0 },
		{ "open", NULL, 0 },
		{ "mmap", &fail_mmap, 0 },
		{ "DEVICE_INFO", NULL, NPULINK_DEVICE_INFO },
		{ "COMM_CREATE", NULL, NPULINK_COMM_CREATE },
	};
	struct coll_comm *comm;
	char text[COLL_TEXT];

	for (unsigned int i = 0; i < ARRAY_SIZE(calls); i++) {
		bool ok = true;

		for (unsigned int k = 0; k < ARRAY_SIZE(errors); k++) {
			int rc;

			/* Memory may be on its way back, which is waited for. */
			if (calls[i].fails == &fail_mmap && errors[k] == EAGAIN)
				continue;
			if (calls[i].fails)
				*calls[i].fails = errors[k];
			else if (calls[i].ioctl)
				mock_fail(calls[i].ioctl, -errors[k], 0, 1, false);
			else
				mock.fail_open = errors[k];
			/* The mock maps what it hands out, too. */
			maps_before = 1;
			rc = init(calls[i].fails == &fail_opendir ? NULL : "0", &comm, text,
				  sizeof(text));
			if (calls[i].fails)
				*calls[i].fails = 0;
			mock.fail_open = 0;
			ok &= is_cause(calls[i].call, rc, errors[k], text);
			if (!rc)
				coll_comm_destroy(comm);
		}
		ksft_test_result(ok, "init: %s\n", calls[i].call);
	}
}

/* Limits are named with their numbers; what is no limit is not. */
static void test_limits(void)
{
	struct rlimit files = { 77, 4096 }, before;
	struct coll_comm *comm;
	char text[COLL_TEXT];

	getrlimit(RLIMIT_NOFILE, &before);
	files.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	mock.fail_open = EMFILE;
	init("0", &comm, text, sizeof(text));
	mock.fail_open = 0;
	setrlimit(RLIMIT_NOFILE, &before);
	ksft_test_result(strstr(text, "may have 77 files (RLIMIT_NOFILE)") &&
			 strstr(text, "coll_config.share"), "no descriptor is left: %s\n", text);
	/* A device that is none: what opens is a file like any other. */
	init("/dev/null", &comm, text, sizeof(text));
	ksft_test_result(!!strstr(text, "/dev/null is not an npulink device"), "no device: %s\n",
			 text);
	init("/", &comm, text, sizeof(text));
	ksft_test_result(!!strstr(text, "cannot open /: Is a directory"), "a directory: %s\n",
			 text);
	init("/dev/null/npu0", &comm, text, sizeof(text));
	ksft_test_result(!!strstr(text, "cannot open /dev/null/npu0: Not a directory"),
			 "a path through a file: %s\n", text);
}

/* What makes no sense in the environment is an error that names the variable; empty is not set. */
static void test_environment(void)
{
	static const struct {
		const char *name, *value;
	} odd[] = {
		{ "COLL_DEADLINE", "5s" }, { "COLL_DEADLINE", "1,5" }, { "COLL_DEADLINE", "nan" },
		{ "COLL_DEADLINE", "-1" }, { "COLL_DEADLINE", " " }, { "COLL_DEADLINE", "1e10" },
		{ "COLL_PEER_TIMEOUT", "5 s" }, { "COLL_PEER_TIMEOUT", "0" },
		{ "COLL_CHECKSUM", "yes" }, { "COLL_CHECKSUM", "1 " },
		{ "COLL_TOPOLOGY", "mesh:1x2x" }, { "COLL_TOPOLOGY", "servers:1," },
		{ "COLL_TOPOLOGY", "mesh" }, { "COLL_TOPOLOGY", "servers:+2" },
		{ "COLL_ALGORITHM", "allreduce" }, { "COLL_ALGORITHM", "ring" },
		{ "COLL_CALIBRATION", "/" },
	};
	static const char *const names[] = {
		"COLL_DEADLINE", "COLL_PEER_TIMEOUT", "COLL_CHECKSUM", "COLL_TOPOLOGY",
		"COLL_ALGORITHM", "COLL_CALIBRATION", "COLL_DEVICE",
	};
	struct coll_config config = COLL_CONFIG_INIT;
	char text[COLL_TEXT];
	struct coll_unique_id id;
	struct coll_comm *comm;
	bool ok = true;
	int rc;

	config.error_text = text;
	config.error_size = sizeof(text);
	config.device = "0";
	coll_get_unique_id(&id);
	for (unsigned int i = 0; i < ARRAY_SIZE(odd); i++) {
		setenv(odd[i].name, odd[i].value, 1);
		rc = coll_comm_init_rank(&comm, 2, &id, 0, &config);
		unsetenv(odd[i].name);
		if ((rc == -EINVAL && strstr(text, odd[i].name)) ||
		    (rc == -EISDIR && !strcmp(odd[i].name, "COLL_CALIBRATION")))
			continue;
		ksft_print_msg("%s=\"%s\": %d %s\n", odd[i].name, odd[i].value, rc, text);
		ok = false;
	}
	ksft_test_result(ok, "environment: values that make no sense\n");
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		setenv(names[i], "", 1);
	rc = coll_comm_init_rank(&comm, 2, &id, 0, &config);
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	ksft_test_result(!rc && !coll_comm_destroy(comm), "environment: empty is not set\n");
}

/* ---- a communicator that works, but for that call */

static struct coll_comm *comms[2];
static char *memory;

static int call_barrier_request(void)
{
	struct coll_request *req;
	int rc = coll_ibarrier(comms[0], &req);

	if (!rc)
		ksft_exit_fail_msg("a request that was to fail\n");
	return rc;
}

static int call_large(void)
{
	return coll_send(comms[0], memory, 1 << 20, COLL_INT8, 1);
}

/* What is only read need not be pinned. */
static int call_receive(void)
{
	return coll_recv(comms[0], memory, 1 << 20, COLL_INT8, 1);
}

static int call_alloc(void)
{
	void *addr;

	return coll_mem_alloc(comms[0], COLL_MEMORY_HOST, 8192, &addr);
}

static int call_register(void)
{
	return coll_register(comms[0], memory, 8192);
}

static int call_status(void)
{
	struct coll_state state = COLL_STATE_INIT;

	return coll_comm_status(comms[0], &state);
}

static int call_abort(void)
{
	return coll_comm_abort(comms[0], 1);
}

static int call_shrink(void)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *shrunk;

	return coll_comm_shrink(comms[0], &shrunk, &config);
}

static void test_calls(void)
{
	static const struct {
		const char *call;
		unsigned long ioctl;
		int (*fn)(void);
	} calls[] = {
		{ "PLAN_CREATE", NPULINK_PLAN_CREATE, call_large },
		{ "RING_SETUP", NPULINK_RING_SETUP, call_barrier_request },
		{ "BUF_REGISTER", NPULINK_BUF_REGISTER, call_receive },
		{ "BUF_REGISTER by coll_register", NPULINK_BUF_REGISTER, call_register },
		{ "BUF_ALLOC", NPULINK_BUF_ALLOC, call_alloc },
		{ "COMM_STATUS", NPULINK_COMM_STATUS, call_status },
		{ "COMM_ABORT", NPULINK_COMM_ABORT, call_abort },
		{ "COMM_SHRINK", NPULINK_COMM_SHRINK, call_shrink },
		{ "POST", NPULINK_POST, call_large },
	};
	char text[COLL_TEXT];
	int rc;

	memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rc = init("0", &comms[0], text, sizeof(text));
	if (rc)
		ksft_exit_fail_msg("%s\n", text);
	for (unsigned int i = 0; i < ARRAY_SIZE(calls); i++) {
		bool ok = true;

		for (unsigned int k = 0; k < ARRAY_SIZE(errors); k++) {
			/* There may be room later, which a blocking call waits for. */
			if (calls[i].ioctl == NPULINK_POST && errors[k] == EBUSY)
				continue;
			/* Lack of memory is tried again. */
			mock_fail(calls[i].ioctl, -errors[k], 0, UINT32_MAX, false);
			rc = calls[i].fn();
			mock_fail(calls[i].ioctl, 0, 0, 0, false);
			ok &= is_cause(calls[i].call, rc, errors[k],
				       coll_comm_last_error(comms[0]));
		}
		ksft_test_result(ok, "%s\n", calls[i].call);
	}
	coll_comm_destroy(comms[0]);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(5 + 4 + 2 + 9);
	test_init();
	test_limits();
	test_environment();
	test_calls();
	ksft_finished();
}
