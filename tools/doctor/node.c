// SPDX-License-Identifier: GPL-2.0
/*
 * node.c - npulink doctor: what the node has and allows: options of the kernel, IOMMU,
 * RDMA ports, pinned and other memory.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <linux/capability.h>
#include <infiniband/verbs.h>
#include "doctor/doctor.h"

/* Value of a kernel option: 'y', 'm', 'n', or '?' if the configuration is not there. */
static char kernel_option(const char *option)
{
	char path[300], line[256];
	struct utsname uts;
	char value = '?';
	FILE *file;

	uname(&uts);
	snprintf(path, sizeof(path), "/boot/config-%s", uts.release);
	file = fopen(path, "re");
	if (!file) {
		snprintf(path, sizeof(path), "/lib/modules/%s/build/.config", uts.release);
		file = fopen(path, "re");
	}
	if (!file)
		return '?';
	value = 'n';
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, option, strlen(option)) && line[strlen(option)] == '=')
			value = line[strlen(option) + 1];
	fclose(file);
	return value;
}

void check_kernel(void)
{
	static const struct {
		const char *option, *why;
		enum severity severity;
	} options[] = {
		{ "CONFIG_MMU_NOTIFIER", "the death of a process is not seen without it", ERROR },
		{ "CONFIG_DMA_SHARED_BUFFER", "no dma-bufs without it", ERROR },
		{ "CONFIG_MEMCG", "memory cannot be charged to cgroups", WARNING },
		{ "CONFIG_INFINIBAND", "no links to other machines without it", WARNING },
	};
	struct finding *f;
	bool bad = false;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		char value = kernel_option(options[i].option);

		if (value == '?') {
			found(UNTESTED, "kernel", "its configuration is not installed");
			return;
		}
		if (value != 'n')
			continue;
		bad = true;
		f = found(options[i].severity, "kernel", "%s is off: %s", options[i].option,
			  options[i].why);
		fix(f, "use a kernel with that option");
	}
	if (!bad)
		found(OK, "kernel", "has all options that are needed");
}

void check_iommu(void)
{
	struct dirent *entry;
	unsigned int n = 0;
	DIR *dir = opendir("/sys/class/iommu");

	if (access("/sys/class", F_OK)) {
		found(UNTESTED, "iommu", "there is no /sys");
		return;
	}
	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	if (n)
		found(OK, "iommu", "%u in use: devices see only what is mapped for them", n);
	else
		found(OK, "iommu", "none in use: devices see all memory");
}

static void check_rdma_port(struct ibv_context *ctx, const struct ibv_device_attr *dev,
			    unsigned int port, const struct port *ports, size_t nports)
{
	struct ibv_port_attr attr;
	char name[64], users[128] = "";
	const char *why;
	struct finding *f;
	size_t len = 0;
	int rc;

	snprintf(name, sizeof(name), "%s/%u", ibv_get_device_name(ctx->device), port);
	rc = ibv_query_port(ctx, port, &attr);
	if (rc) {
		found(WARNING, "rdma", "%s does not answer: %s", name, strerror(rc));
		return;
	}
	for (size_t i = 0; i < nports; i++)
		if (!strcmp(ports[i].name, name) && len < sizeof(users))
			len += snprintf(users + len, sizeof(users) - len, "%snpu%u",
					len ? ", " : "", ports[i].dev);
	if (len && attr.state == IBV_PORT_ACTIVE) {
		found(OK, "rdma", "%s is active and used by %s", name, users);
		return;
	}
	if (len) {
		f = found(ERROR, "rdma", "%s is used by %s, but %s", name, users,
			  ibv_port_state_str(attr.state));
		fix(f, "bring its network interface up: ip link; rdma link show");
		return;
	}
	why = port_unfit(ctx, dev, port);
	if (why) {
		found(OK, "rdma", "%s is not used: %s", name, why);
		return;
	}
	f = found(OK, "rdma", "%s is active, and not used: it is bound to no device", name);
	fix(f, "for ranks on other machines: npulink link add DEV rdma %s", name);
}

void check_rdma(void)
{
	struct ibv_device **devs;
	struct port *ports = NULL;
	size_t nports = 0;
	int n = 0, rc;

	devs = ibv_get_device_list(&n);
	if (!devs || !n) {
		if (access("/sys/class", F_OK))
			found(UNTESTED, "rdma", "there is no /sys, which would say what there is");
		else if (!devs)
			found(UNTESTED, "rdma", "cannot be listed: %s", strerror(errno));
		else
			found(UNTESTED, "rdma", "no RDMA devices: ranks on this machine only");
		if (devs)
			ibv_free_device_list(devs);
		return;
	}
	rc = nl_ports(&ports, &nports);
	/* Without the module, which knows of none, they are what they are. */
	if (rc && rc != -ENOPROTOOPT) {
		found(UNTESTED, "rdma", "which ports are used is not known: %s", strerror(-rc));
		n = 0;
	}
	for (int i = 0; i < n; i++) {
		struct ibv_context *ctx = ibv_open_device(devs[i]);
		struct ibv_device_attr attr;

		rc = ctx ? ibv_query_device(ctx, &attr) : errno;
		if (rc) {
			found(WARNING, "rdma", "%s cannot be opened: %s",
			      ibv_get_device_name(devs[i]), strerror(rc));
		} else {
			for (unsigned int p = 1; p <= attr.phys_port_cnt; p++)
				check_rdma_port(ctx, &attr, p, ports, nports);
		}
		if (ctx)
			ibv_close_device(ctx);
	}
	free(ports);
	ibv_free_device_list(devs);
}

/* The cgroup of version 2 that this process is in, as "/user.slice/x"; false if there is none. */
static bool own_cgroup(char *buf, size_t size)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	bool ok = false;
	char line[512];

	/* Those of version 1, if there are any, come first. */
	while (file && !ok && fgets(line, sizeof(line), file))
		ok = !strncmp(line, "0::/", 4);
	if (file)
		fclose(file);
	if (ok)
		snprintf(buf, size, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	return ok;
}

/* Buffers of the kernel are charged to the memory cgroup, too, and to those that it is in. */
void check_cgroup(uint64_t need)
{
	char group[512], least[512], path[600], limit[64], a[16], b[16];
	unsigned long long bytes, most = ULLONG_MAX;
	struct finding *f;
	bool known;

	if (access("/proc/self", F_OK)) {
		found(UNTESTED, "cgroup", "there is no /proc, which would say in which this is");
		return;
	}
	if (!own_cgroup(group, sizeof(group))) {
		found(UNTESTED, "cgroup", "this process is in none of version 2");
		return;
	}
	/* That of the whole machine has no limit, and no such file. */
	known = !strcmp(group, "/");
	for (; *group; *strrchr(group, '/') = 0) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
		if (!read_line(path, limit, sizeof(limit)))
			continue;
		known = true;
		if (sscanf(limit, "%llu", &bytes) != 1 || bytes >= most)
			continue;
		most = bytes;
		strcpy(least, group);
	}
	if (!known) {
		found(UNTESTED, "cgroup", "no limit of memory can be read below /sys/fs/cgroup");
		return;
	}
	if (most == ULLONG_MAX) {
		found(OK, "cgroup", "no limit of memory");
		return;
	}
	if (most >= need) {
		found(OK, "cgroup", "up to %s of memory", human_bytes(most, a));
		return;
	}
	f = found(WARNING, "cgroup", "%s allows %s of memory, %s are wanted for buffers alone",
		  least, human_bytes(most, a), human_bytes(need, b));
	fix(f, "raise the limit of the container or unit: docker --memory, systemd MemoryMax=");
}

static bool has_ipc_lock(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[0].effective & 1U << CAP_IPC_LOCK;
}

void check_memlock(uint64_t need)
{
	struct rlimit limit;
	struct finding *f;
	char a[16], b[16];

	if (has_ipc_lock() && access("/proc/self", F_OK)) {
		found(UNTESTED, "memlock", "there is no /proc, which would say whether CAP_IPC_LOCK is that of a container");
		return;
	}
	/* That of a container does not count. */
	if (has_ipc_lock() && in_initial_userns()) {
		found(OK, "memlock", "no limit: %s has CAP_IPC_LOCK", own_name());
		return;
	}
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY) {
		found(OK, "memlock", "no limit");
		return;
	}
	if (limit.rlim_cur >= need) {
		found(OK, "memlock", "up to %s of buffers may be in use at a time",
		      human_bytes(limit.rlim_cur, a));
		return;
	}
	f = found(WARNING, "memlock",
		  "all processes of %s together may have %s of buffers in use, %s are wanted; "
		  "beyond that calls fail with ENOMEM",
		  own_name(), human_bytes(limit.rlim_cur, a), human_bytes(need, b));
	if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= need)
		fix(f, "in the shell that starts the job: ulimit -l %llu",
		    (unsigned long long)((need + 1023) / 1024));
	else
		fix(f, "echo '@npulink - memlock unlimited' >/etc/security/limits.d/npulink.conf "
		    "and log in again; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1");
}
