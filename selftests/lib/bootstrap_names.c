// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_names.c - ranks of two machines meet by a name that is not the same on both:
 * network namespaces with a cable between them, and an /etc/hosts in each.
 *
 *	machine 0: 192.0.2.1 and 2001:db8::1	machine 1: 192.0.2.2 and 2001:db8::2
 *
 * Machine 0 drops what comes for 2001:db8:2::1 and says nothing, as a firewall does.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include "lib/run/comm.h"
#include "mock.h"
#include "coll.h"
#include "kselftest.h"
#include "loopback.h"

#define HOST	"node0.test"

/* What a rank's process leaves behind. */
struct outcome {
	int rc;
	char text[600], warning[300];
};

static struct outcome *outcomes;
static char port[8], hosts[2][40];	/* files */
static int machine[2];			/* network namespaces */
static int files[2];			/* mount namespaces */

static bool sh(const char *command)
{
	return !system(command);
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* As root, here or in a user namespace. */
static bool be_root(void)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[32];

	if (!uid)
		return true;
	if (unshare(CLONE_NEWUSER))
		return false;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map);
}

/* The calling process is on a machine of its own from then on. */
static bool leave_for(unsigned int m)
{
	snprintf(hosts[m], sizeof(hosts[m]), "/tmp/npulink-hosts-%d-%u", getpid(), m);
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) || !write_file(hosts[m], "") ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(hosts[m], "/etc/hosts", NULL, MS_BIND, NULL))
		return false;
	machine[m] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	files[m] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	return machine[m] >= 0 && files[m] >= 0;
}

static bool go_to(unsigned int m)
{
	return !setns(machine[m], CLONE_NEWNET) && !setns(files[m], CLONE_NEWNS);
}

/* Why not, or NULL. Stays on machine 0. */
static const char *make_machines(void)
{
	char command[100];

	if (!be_root() || !leave_for(1) || !leave_for(0))
		return "there can be no namespaces here";
	/* The cable is laid from 0, where 1 is known by a process of it. */
	snprintf(command, sizeof(command),
		 "ip link add near type veth peer name far netns /proc/%d/fd/%d", getpid(),
		 machine[1]);
	if (!sh(command) ||
	    !sh("ip link set lo up && ip addr add 192.0.2.1/24 dev near && ip link set near up"))
		return "there can be no network between namespaces here";
	if (!sh("ip -6 addr add 2001:db8::1/64 dev near nodad &&"
		"ip -6 route add blackhole 2001:db8:2::/64"))
		return "there is no IPv6 here";
	if (!go_to(1) ||
	    !sh("ip link set lo up && ip addr add 192.0.2.2/24 dev far && ip link set far up &&"
		"ip -6 addr add 2001:db8::2/64 dev far nodad &&"
		"ip -6 route add default via 2001:db8::1"))
		return "there can be no network between namespaces here";
	return go_to(0) ? NULL : "one cannot go back to a namespace here";
}

/* The file of 1 is where that of 0 lies. */
static void unmake_machines(void)
{
	if (files[0] > 0)
		umount2("/etc/hosts", MNT_DETACH);
	unlink(hosts[0]);
	unlink(hosts[1]);
}

/* ---- ranks, one on each machine */

static void join(unsigned int rank, const char *at, const char *seconds, const char *here)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct outcome *o = &outcomes[rank];
	struct coll_comm *comm;

	setenv("RANK", rank ? "1" : "0", 1);
	setenv("WORLD_SIZE", "2", 1);
	setenv("LOCAL_WORLD_SIZE", here, 1);
	setenv("MASTER_ADDR", at, 1);
	setenv("COLL_PORT", port, 1);
	setenv("COLL_TIMEOUT", seconds, 1);
	setenv("COLL_DEVICE", "0", 1);
	config.error_text = o->text;
	config.error_size = sizeof(o->text);
	o->rc = coll_comm_init_env(&comm, &config);
	if (o->rc)
		return;
	if (coll_comm_warning(comm))
		snprintf(o->warning, sizeof(o->warning), "%s", coll_comm_warning(comm));
	coll_comm_destroy(comm);
}

static pid_t start(unsigned int rank, const char *at, const char *seconds, const char *here)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (rank && !go_to(1))
			abort();
		join(rank, at, seconds, here);
		_exit(0);
	}
	return pid;
}

static void clean(const char *hosts0, const char *hosts1)
{
	memset(outcomes, 0, 2 * sizeof(*outcomes));
	snprintf(port, sizeof(port), "%d", loopback_port());
	if (!write_file(hosts[0], hosts0) || !write_file(hosts[1], hosts1))
		abort();
}

/* Do they meet? */
static bool meet(const char *hosts0, const char *hosts1, const char *seconds)
{
	pid_t pid[2];

	clean(hosts0, hosts1);
	for (int i = 0; i < 2; i++)
		pid[i] = start(i, HOST, seconds, "1");
	for (int i = 0; i < 2; i++) {
		waitpid(pid[i], NULL, 0);
		if (outcomes[i].rc)
			ksft_print_msg("rank %d: %d, %s\n", i, outcomes[i].rc, outcomes[i].text);
	}
	return !outcomes[0].rc && !outcomes[1].rc;
}

#define LOOPBACK	"127.0.1.1 " HOST "\n"
#define IPV4		"192.0.2.1 " HOST "\n"
#define IPV6		"2001:db8::1 " HOST "\n"
#define SILENT		"2001:db8:2::1 " HOST "\n"

static bool refused(unsigned int rank)
{
	return outcomes[rank].rc == -ENOKEY && strstr(outcomes[rank].text, "there is no key");
}

static void test_meeting(void)
{
	ksft_test_result(meet(LOOPBACK, IPV4, "30") &&
			 strstr(outcomes[0].warning, "COLL_KEY") &&
			 strstr(outcomes[1].warning, "COLL_KEY"),
			 "a name that is loopback on its own machine; there is a warning\n");
	ksft_test_result(meet(LOOPBACK, IPV6, "30"), "the same by IPv6\n");
	unsetenv("COLL_KEY");
	ksft_test_result(!meet(LOOPBACK, IPV4, "30") && refused(0) && refused(1),
			 "the same without a key: refused\n");
	setenv("COLL_KEY", "a secret", 1);
	ksft_test_result(meet(LOOPBACK, IPV4, "30") && !outcomes[0].warning[0] &&
			 !outcomes[1].warning[0], "the same with a key: no warning\n");
	setenv("COLL_KEY", "none", 1);
	ksft_test_result(meet(LOOPBACK IPV4, IPV4, "30"), "loopback and another address\n");
	ksft_test_result(meet(IPV6 IPV4, IPV4, "30"), "two addresses, one of which is known\n");
	ksft_test_result(meet(IPV4, SILENT IPV4, "30"), "the first address does not answer\n");
}

/* ---- where rank 0 listens */

static bool listens(const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	inet_pton(AF_INET, address, &a.sin_addr);
	ok = !connect(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
	return ok;
}

static void test_doors(void)
{
	static const struct {
		const char *what, *at, *hosts, *here, *open, *shut;
	} v[] = {
		{ "an address", "192.0.2.1", "", "1", "192.0.2.1", "127.0.0.1" },
		{ "a loopback address", "127.0.1.1", "", "1", "127.0.1.1", "192.0.2.1" },
		{ "localhost", "localhost", "127.0.0.1 localhost\n", "1", "127.0.0.1",
		  "192.0.2.1" },
		{ "a name of one address", HOST, LOOPBACK IPV4, "1", "192.0.2.1", "127.0.1.1" },
		{ "all ranks are there", HOST, LOOPBACK, "2", "127.0.0.1", "192.0.2.1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		bool open = false;
		pid_t pid;

		clean(v[i].hosts, "");
		pid = start(0, v[i].at, "60", v[i].here);
		for (int tries = 0; tries < 3000 && !open; tries++) {
			open = listens(v[i].open);
			usleep(10000);
		}
		ksft_test_result(open && !listens(v[i].shut), "%s: at %s, and not at %s\n",
				 v[i].what, v[i].open, v[i].shut);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

int main(void)
{
	const char *why;

	outcomes = mmap(NULL, 2 * sizeof(*outcomes), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	setenv("COLL_KEY", "none", 1);
	ksft_print_header();
	why = make_machines();
	if (why) {
		unmake_machines();
		ksft_exit_skip("%s\n", why);
	}
	ksft_set_plan(7 + 5);
	test_meeting();
	test_doors();
	unmake_machines();
	ksft_finished();
}
