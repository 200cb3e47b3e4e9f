// SPDX-License-Identifier: GPL-2.0
/*
 * host.c - the machine that programs run on.
 *
 * Programs of root take devices and ports away and make devices fail: after each, all are
 * there again and behave. Programs of others run beside two ranks of root's, whose
 * collectives they must not disturb. Where npulink_rdma can be loaded, there is a port of
 * the software RDMA device, so that this machine can be its own peer.
 */
#include <sys/stat.h>
#include "exec.h"
#include "host.h"
#include "kselftest.h"
#include "nl.h"
#include "raw.h"
#include "team.h"

#define USER		60001
#define GROUP		65534	/* as selftests/run has it */
#define PORT		"rxe9/1"
#define IP		"10.88.0.1"
#define QUOTA		"/sys/module/npulink/parameters/max_user_objects"
#define MAX_DEVICES	64
#define MODPROBE	"/proc/sys/kernel/modprobe"

static struct exec_env *env;
static bool there[MAX_DEVICES], rdma;
static char params[EXEC_PARAMS][32], modprobe[128];
static struct team bystander;
static uint32_t rounds;

static int sh(const char *tree, const char *command)
{
	char line[600];

	snprintf(line, sizeof(line), "cd '%s' && { %s; } >/dev/null 2>&1", tree, command);
	return system(line);
}

static void read_line(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");

	if (!f || !fgets(text, size, f))
		text[0] = 0;
	text[strcspn(text, "\n")] = 0;
	if (f)
		fclose(f);
}

/* ---- devices and their knobs */

static bool device_path(char *path, size_t size, uint32_t n)
{
	snprintf(path, size, "/dev/npulink/npu%u", n);
	return !access(path, F_OK);
}

/* Those that were there, and no others; ordinary users may use them. */
static void restore_devices(void)
{
	char path[64], name[16];
	uint32_t i;

	for (i = 0; i < MAX_DEVICES; i++) {
		bool is = device_path(path, sizeof(path), i);

		snprintf(name, sizeof(name), "npu%u", i);
		if (is && !there[i])
			raw_write(RAW_SOFT "/del_device", name);
		if (!is && there[i])	/* the lowest number that is free */
			raw_write(RAW_SOFT "/new_device", "1");
		if (there[i] && (chown(path, -1, GROUP) || chmod(path, 0660)))
			ksft_print_msg("%s is missing\n", path);
	}
}

static void restore_params(void)
{
	uint32_t i;

	for (i = 0; i < EXEC_PARAMS; i++)
		raw_write(exec_params[i].path, params[i]);
}

static void restore_knobs(void)
{
	char path[128];
	uint32_t i;

	raw_knobs_reset(env->ndev);
	for (i = 0; i < env->ndev; i++) {
		snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/timing", i);
		raw_write(path, "all 0 0 0");
		snprintf(path, sizeof(path), RAW_KNOBS "/npu%u/link", i);
		raw_write(path, "all up");
	}
	raw_write(RAW_KNOBS "/engine", "auto");
	restore_params();
}

/* ---- the port */

static int port(int cmd, uint32_t dev)
{
	static struct nl_request rq;
	static struct nl_reply reply;
	int sock = nl_open(), rc;

	nl_begin(&rq, env->family, cmd, 0);
	nl_put_u32(&rq, NPULINK_A_PORT_DEV, dev);
	nl_put(&rq, NPULINK_A_PORT_KIND, "rdma", 5);
	nl_put(&rq, NPULINK_A_PORT_NAME, PORT, sizeof(PORT));
	rc = nl_talk(sock, &rq, &reply, 4096);
	close(sock);
	return rc ? rc : reply.error;
}

/* Half of the devices have it, so that programs can bind it to others. */
static void restore_ports(void)
{
	uint32_t i;

	for (i = 0; rdma && i < env->ndev; i++)
		port(i % 2 ? NPULINK_GENL_CMD_PORT_DEL : NPULINK_GENL_CMD_PORT_ADD, i);
}

static bool rdma_open(const char *tree)
{
	uint32_t tries = 600;

	/* A peer that does not answer is given up before the program is. */
	if (sh(tree, "modprobe rdma_rxe &&"
	       "tools/vm/modules insert npulink_rdma peer_timeout=500") ||
	    sh(tree, "modprobe dummy; ip link add fuzz0 type dummy;"
	       "ip addr add " IP "/24 dev fuzz0; ip link set fuzz0 up &&"
	       "rdma link add rxe9 type rxe netdev fuzz0"))
		return false;
	/* Its address comes a moment later, or on a host that has no time for us a minute. */
	while (port(NPULINK_GENL_CMD_PORT_ADD, 0) && --tries)
		raw_sleep_ms(100);
	return tries;
}

static void rdma_close(const char *tree)
{
	uint32_t i;

	for (i = 0; i < env->ndev; i++)
		port(NPULINK_GENL_CMD_PORT_DEL, i);
	if (sh(tree, "rdma link delete rxe9; ip link delete fuzz0; rmmod npulink_rdma"))
		ksft_print_msg("npulink_rdma cannot be removed\n");
}

/* ---- somebody else */

static void bystander_leave(void)
{
	uint32_t i;

	for (i = 0; i < bystander.n; i++)
		if (bystander.m[i].send) {
			close(bystander.m[i].fd);
			munmap(bystander.m[i].send, 2 * bystander.m[i].len + 1);
		}
	memset(&bystander, 0, sizeof(bystander));
}

static void bystander_join(void)
{
	long rc;

	if (bystander.n && !team_allreduce(&bystander, rounds++))
		return;
	bystander_leave();
	rc = team_open(&bystander, 2, 2, 4096);
	if (!rc)
		rc = team_allreduce(&bystander, rounds++);
	if (rc)
		ksft_print_msg("no bystander: %ld\n", rc);
}

/* ---- around programs */

/* It takes longer than many a program. */
static void restore(const struct prog *p)
{
	bool knobs = false, devices = false, ports = false;
	uint32_t i;

	for (i = 0; i < p->n; i++) {
		knobs |= p->calls[i].op == OP_KNOB;
		devices |= p->calls[i].op == OP_DEVICE;
		ports |= p->calls[i].op == OP_GENL;
	}
	if (devices)
		restore_devices();
	if (knobs)
		restore_knobs();
	if (ports || devices)
		restore_ports();
}

void host_open(struct exec_env *e, uint32_t ndev, const char *tree)
{
	char path[64];
	uint32_t i;
	int sock;

	env = e;
	env->ndev = ndev;
	env->root = !geteuid();
	env->uid = USER;
	env->gid = GROUP;
	env->port = "";
	/*
	 * Programs do not open it themselves: where an allocation fails, 9p forgets to tell
	 * the host that it has closed a file, and later cannot open others.
	 */
	env->disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	env->shared = mmap(NULL, sizeof(*env->shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (env->shared == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	sock = nl_open();
	env->family = nl_family(sock, &env->group);
	close(sock);
	if (!env->root)
		return;
	for (i = 0; i < MAX_DEVICES; i++)
		there[i] = device_path(path, sizeof(path), i);
	for (i = 0; i < EXEC_PARAMS; i++)
		read_line(exec_params[i].path, params[i], sizeof(params[i]));
	restore_devices();
	restore_knobs();
	rdma = rdma_open(tree);
	if (rdma)
		env->port = PORT;
	else
		ksft_print_msg("no RDMA port: not on this kernel\n");
	/* Kinds of ports that nobody has need not be looked for each time. */
	read_line(MODPROBE, modprobe, sizeof(modprobe));
	raw_write(MODPROBE, "\n");
}

void host_close(const char *tree)
{
	bystander_leave();
	if (rdma)
		rdma_close(tree);
	if (modprobe[0])
		raw_write(MODPROBE, modprobe);
}

void host_before(const struct prog *p)
{
	uint32_t seed = p->calls[0].seed;
	char quota[16];

	env->shared->complaint[0] = 0;
	if (!env->root || p->as == AS_ROOT)
		return;
	bystander_join();
	if (seed & 0x100) {
		snprintf(quota, sizeof(quota), "%u", seed % 40);
		raw_write(QUOTA, quota);
	}
}

void host_forget(void)
{
	uint32_t i;

	for (i = 0; i < bystander.n; i++)
		if (bystander.m[i].send)
			close(bystander.m[i].fd);
}

const char *host_after(const struct prog *p)
{
	static char text[200];
	long rc;

	if (!env->root)
		return NULL;
	if (p->as == AS_ROOT)
		restore(p);
	else
		restore_params();
	if (env->shared->complaint[0])
		return env->shared->complaint;
	if (p->as == AS_ROOT)
		return NULL;
	rc = team_allreduce(&bystander, rounds++);
	if (!rc)
		return NULL;
	snprintf(text, sizeof(text), "a user has disturbed another: %ld", rc);
	return text;
}
