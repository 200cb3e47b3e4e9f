// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz_netlink.c - two users and root ask the netlink family and read and write /sys, at random
 * and at the same time (fuzz/see.c), while communicators of each of them come, work, fail and die
 * (fuzz/traffic.c), and root sets parameters to nonsense and takes devices away.
 *
 * No user is told of another's communicators, or changes anything; collectives are right; what
 * root has changed can be put back; and in the end nothing is left. NPULINK_SEED repeats the
 * choices, though not who comes first; NPULINK_SECONDS sets the time. NPULINK_BESIDE=1: others
 * change parameters and devices as well, fuzz_ioctl perhaps.
 *
 * npulink-test: timeout=120
 */
#include <signal.h>
#include <sys/stat.h>
#include "kselftest.h"
#include "fuzz/abi_genl.h"
#include "fuzz/host.h"
#include "fuzz/see.h"
#include "nl.h"
#include "users.h"

#define FILES_MAX	700
#define SLOTS		ARRAY_SIZE(slots)

static struct exec_env env;
static bool beside;
static char files[FILES_MAX][256], values[FILES_MAX][256];
static uint32_t nfiles;
static uint64_t children, killed, moments, replaced;

/* ---- processes, one of each at a time */

static struct slot {
	const char *name;
	enum owner who;
	uid_t uid;
	uint32_t first, ranks;		/* of traffic; no ranks: looks at everything */
	pid_t pid;
	uint64_t times;
	bool killed;
} slots[] = {
	{ .name = "looks as user A", .who = OF_A, .uid = USER_A },
	{ .name = "looks as user B", .who = OF_B, .uid = USER_B },
	{ .name = "looks as root", .who = OF_ROOT },
	{ .name = "has ranks of user A", .who = OF_A, .uid = USER_A, .ranks = SEE_RANKS(OF_A) },
	{ .name = "has ranks of user B", .who = OF_B, .uid = USER_B, .ranks = SEE_RANKS(OF_B) },
	{ .name = "has ranks of root", .who = OF_ROOT, .ranks = SEE_RANKS(OF_ROOT) },
	{ .name = "has ranks of A beside B", .who = OF_BOTH, .uid = USER_A, .ranks = 2 },
	{ .name = "has ranks of B beside A", .who = OF_BOTH, .uid = USER_B, .first = 2,
	  .ranks = SEE_RANKS(OF_BOTH) - 2 },
};

static void begin(struct slot *s)
{
	struct rnd r = { see->seed + 1000003 * (s - slots) + s->times++ };

	fflush(stdout);
	s->killed = false;
	s->pid = fork();
	if (s->pid)
		return;
	/* A hang is a signal that nobody has sent. */
	alarm(getenv("NPULINK_SLOW") ? 600 : 60);
	if (s->uid)
		become(s->uid);
	if (s->ranks)
		traffic(&r, s->who, s->first, s->ranks);
	else
		see_all(&r, s->who, &env);
	_exit(0);
}

/* Those that have ended begin again. False if something was wrong. */
static bool reap(bool again)
{
	bool ok = true;
	int status;
	pid_t pid;
	size_t i;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (i = 0; i < SLOTS && slots[i].pid != pid; i++)
			;
		if (i == SLOTS)
			continue;
		children++;
		slots[i].pid = 0;
		/* Traffic dies at times; who looks is killed by nobody else. */
		if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
				(slots[i].killed || slots[i].ranks))) {
			ksft_print_msg("process %llu that %s ends with %#x: %s%s\n",
				       (unsigned long long)slots[i].times, slots[i].name, status,
				       see->wrong, env.shared->complaint);
			ok = false;
		}
	}
	for (i = 0; again && i < SLOTS; i++)
		if (!slots[i].pid)
			begin(&slots[i]);
	return ok;
}

static bool end_all(void)
{
	bool ok = true;
	size_t i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].pid > 0) {
			slots[i].killed = true;
			kill(slots[i].pid, SIGKILL);
		}
	for (i = 0; i < SLOTS; i++)
		while (slots[i].pid > 0) {
			ok &= reap(false);
			usleep(1000);
		}
	return ok;
}

/* ---- what root does */

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

static bool is_value(const char *path)
{
	struct stat st;

	return strstr(path, "/parameters/") && !stat(path, &st) && st.st_mode & 0200;
}

static void take_values(void)
{
	uint32_t i;

	nfiles = see_files(files, FILES_MAX);
	for (i = 0; i < nfiles; i++)
		if (is_value(files[i]))
			read_text(files[i], values[i], sizeof(values[i]));
}

/* How many parameters are not what they were. */
static uint32_t changed_values(void)
{
	uint32_t n = 0, i;
	char text[256];

	for (i = 0; i < nfiles; i++) {
		if (!values[i][0])
			continue;
		read_text(files[i], text, sizeof(text));
		if (!strcmp(text, values[i]))
			continue;
		ksft_print_msg("%s was %s, and is %s", files[i], values[i], text);
		n++;
	}
	return n;
}

/* Nonsense in some file, and then what was there. */
static void set_something(struct rnd *r)
{
	uint32_t i = rnd_below(r, nfiles), tries = 20;
	char text[200];
	struct stat st;

	while (--tries && (stat(files[i], &st) || !(st.st_mode & 0200)))
		i = rnd_below(r, nfiles);
	see_nonsense(r, text, sizeof(text));
	/* One device less is not nonsense, and no module is to be told to go. */
	if (!tries || strstr(files[i], "_device"))
		return;
	raw_write(files[i], text);
	usleep(rnd_below(r, 20000));
	if (values[i][0])
		raw_write(files[i], values[i]);
}

/* Users may open it as before. */
static bool give_device(const char *path)
{
	return !chown(path, -1, 65534) && !chmod(path, 0660);
}

static bool replace_device(struct rnd *r)
{
	char path[64], name[16];
	uint32_t tries = 100;

	snprintf(name, sizeof(name), "npu%u", SEE_DEVICES + rnd_below(r, SEE_DEVICES));
	snprintf(path, sizeof(path), "/dev/npulink/%s", name);
	replaced++;
	raw_write(RAW_SOFT "/del_device", name);
	usleep(rnd_below(r, 5000));
	/* The lowest number that is free; fuzz_ioctl may make one, too. */
	if (access(path, F_OK))
		raw_write(RAW_SOFT "/new_device", "1");
	while (access(path, F_OK) && --tries)
		usleep(10000);
	return give_device(path);
}

static bool moment(struct rnd *r)
{
	struct slot *s;

	moments++;
	switch (rnd_below(r, 12)) {
	case 0:
		s = &slots[rnd_below(r, SLOTS)];
		if (s->pid <= 0)
			break;
		s->killed = true;
		kill(s->pid, SIGKILL);
		killed++;
		break;
	case 1:
		if (rnd_one_in(r, 6) && !replace_device(r)) {
			ksft_print_msg("a device does not come again\n");
			return false;
		}
		break;
	case 2:
	case 3:
	case 4:
		set_something(r);
		break;
	}
	return true;
}

/* ---- what is left */

/* Objects of both users, and with NPULINK_BESIDE not set of anybody. */
static int left(int cmd, int uid_attr)
{
	static struct nl_reply reply;
	struct nlattr *a[NL_ATTRS];
	struct nl_request rq;
	int sock = nl_open(), n = 0, rc;
	size_t off = 0;

	nl_begin(&rq, env.family, cmd, NLM_F_DUMP);
	rc = nl_talk(sock, &rq, &reply, 32768);
	close(sock);
	while (!rc && nl_next(&reply, &off, a)) {
		uint32_t uid = a[uid_attr] ? nl_u32(a[uid_attr]) : 0;

		n += !beside || uid == USER_A || uid == USER_B;
	}
	return rc ? rc : reply.error ? reply.error : n;
}

static int ports(void)
{
	return nl_count(env.family, NPULINK_GENL_CMD_PORT_GET);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void report(void)
{
	uint32_t i;

	ksft_print_msg("%llu processes, %llu killed; %llu requests, %llu dumps held, %llu answers read\n",
		       (unsigned long long)children, (unsigned long long)killed,
		       (unsigned long long)see->sent, (unsigned long long)see->held,
		       (unsigned long long)see->said);
	ksft_print_msg("%llu reads and %llu writes of files, %llu messages to groups, %llu moments of root, %llu devices replaced\n",
		       (unsigned long long)see->reads, (unsigned long long)see->writes,
		       (unsigned long long)see->refused, (unsigned long long)moments,
		       (unsigned long long)replaced);
	for (i = 1; i <= NPULINK_GENL_CMD_MAX; i++)
		ksft_print_msg("%-12s told %llu and %llu; root: %u accepted, %u refused; users: %u, %u\n",
			       genl_commands[i].name, (unsigned long long)see->told[0][i],
			       (unsigned long long)see->told[1][i],
			       env.shared->genl[i][0][0], env.shared->genl[i][0][1],
			       env.shared->genl[i][1][0], env.shared->genl[i][1][1]);
}

static bool seen(void)
{
	static const uint8_t all[] = {
		NPULINK_GENL_CMD_COMM_GET, NPULINK_GENL_CMD_RANK_GET, NPULINK_GENL_CMD_FILE_GET,
		NPULINK_GENL_CMD_BUF_GET, NPULINK_GENL_CMD_FLIGHT_GET,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++)
		if (!see->told[0][all[i]] || !see->told[1][all[i]])
			return false;
	return true;
}

/* Until the time is over, or something is wrong. */
static bool run(uint64_t until)
{
	uint64_t next = raw_now() + 60000000000ULL;
	struct rnd r = { see->seed };
	bool ok = true;
	size_t i;

	for (i = 0; i < SLOTS; i++)
		begin(&slots[i]);
	while (ok && raw_now() < until) {
		usleep(rnd_below(&r, 20000));
		ok = moment(&r) && reap(true);
		if (raw_now() < next)
			continue;
		next += 60000000000ULL;
		ksft_print_msg("%llu processes, %llu requests, %llu operations\n",
			       (unsigned long long)children, (unsigned long long)see->sent,
			       (unsigned long long)see->right);
		fflush(stdout);
	}
	return end_all() && ok;
}

int main(void)
{
	uint64_t seconds = number("NPULINK_SECONDS", getenv("NPULINK_SOAK") ? 600 :
				  getenv("NPULINK_SLOW") ? 24 : 8), begun;
	const char *tree = getenv("NPULINK_TREE");
	uint32_t i, changed, comms, nports;
	long pinned;
	char path[64];
	bool ok;

	ksft_print_header();
	if (access("/dev/npulink/npu7", F_OK) || geteuid())
		ksft_exit_skip("no eight devices, or not root\n");
	see = mmap(NULL, sizeof(*see), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (see == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	see->seed = number("NPULINK_SEED", raw_now() ^ getpid());
	beside = getenv("NPULINK_BESIDE");
	unlimit_memlock();
	host_open(&env, 2 * SEE_DEVICES, tree ? tree : ".");
	/* Where somebody else has made it. */
	if (beside && !env.port[0])
		env.port = "rxe9/1";
	for (i = SEE_DEVICES; i < 2 * SEE_DEVICES; i++) {
		snprintf(path, sizeof(path), "/dev/npulink/npu%u", i);
		give_device(path);
	}
	take_values();
	pinned = raw_pages_pinned();
	comms = left(NPULINK_GENL_CMD_COMM_GET, NPULINK_A_COMM_UID);

	ksft_set_plan(4);
	begun = raw_now();
	ok = run(begun + seconds * 1000000000ULL);
	ksft_test_result(ok, "seed %llu: users see what is theirs, and change nothing, in %llu s\n",
			 (unsigned long long)see->seed,
			 (unsigned long long)(raw_now() - begun) / 1000000000);
	report();
	ksft_test_result(!ok || seen(), "both have seen it\n");
	ksft_test_result(see->right > 0, "collectives are right: %llu, %llu failed; %llu begun by a part, %llu aborted, %llu deaths\n",
			 (unsigned long long)see->right, (unsigned long long)see->failed,
			 (unsigned long long)see->parts, (unsigned long long)see->aborts,
			 (unsigned long long)see->deaths);
	changed = beside ? 0 : changed_values();
	host_close(tree ? tree : ".");
	ok = RAW_EVENTUALLY(left(NPULINK_GENL_CMD_FILE_GET, NPULINK_A_FILE_UID) == 0 &&
			    left(NPULINK_GENL_CMD_COMM_GET, NPULINK_A_COMM_UID) <= (int)comms &&
			    (beside || raw_pages_pinned() <= pinned));
	nports = beside ? 0 : ports();
	ksft_test_result(ok && !changed && !nports,
			 "nothing is left: %d files, %d communicators, %ld pages (%ld before), %u values changed, %u ports\n",
			 left(NPULINK_GENL_CMD_FILE_GET, NPULINK_A_FILE_UID),
			 left(NPULINK_GENL_CMD_COMM_GET, NPULINK_A_COMM_UID), raw_pages_pinned(),
			 pinned, changed, nports);
	ksft_finished();
}
