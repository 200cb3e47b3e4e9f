// SPDX-License-Identifier: GPL-2.0
/*
 * doctor.c - npulink doctor: goes through all that collectives need on this
 * node, in the order in which they need it, and says of each thing that is
 * wrong what to do about it. Changes nothing, unless told to (--fix).
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libkmod.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <infiniband/verbs.h>
#include <coll.h>
#include "doctor.h"
#include "see.h"

#define DEFAULT_MEMORY	(64ULL << 20)
#define LONG		5000000000ULL	/* ns in flight, from which on an operation is told of */

static const char *const severity_names[] = { "not tested", "ok", "warning", "error" };

static struct {
	struct finding *list;
	size_t n;
} findings;

struct finding *found(enum severity severity, const char *check, const char *format, ...)
{
	struct finding *finding;
	va_list args;

	findings.list = reallocarray(findings.list, findings.n + 1, sizeof(*findings.list));
	if (!findings.list)
		exit(fail("not enough memory"));
	finding = &findings.list[findings.n++];
	memset(finding, 0, sizeof(*finding));
	finding->severity = severity;
	finding->check = check;
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
	return finding;
}

void fix(struct finding *finding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(finding->fix, sizeof(finding->fix), format, args);
	va_end(args);
}

/* First line of a file, without its end; false if it cannot be read. */
static bool read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	bool ok;

	if (!file)
		return false;
	ok = fgets(buf, size, file);
	fclose(file);
	if (ok)
		buf[strcspn(buf, "\n")] = 0;
	return ok;
}

static const char *own_name(void)
{
	struct passwd *pw = getpwuid(geteuid());

	return pw ? pw->pw_name : "USER";
}

/* ---- the module */

/* The value of @key in the information that a module file carries. */
static bool module_info(struct kmod_module *mod, const char *key, char *buf, size_t size)
{
	struct kmod_list *list = NULL, *item;
	bool ok = false;

	if (kmod_module_get_info(mod, &list) < 0)
		return false;
	kmod_list_foreach(item, list) {
		if (strcmp(kmod_module_info_get_key(item), key))
			continue;
		snprintf(buf, size, "%s", kmod_module_info_get_value(item));
		ok = true;
	}
	kmod_module_info_free_list(list);
	return ok;
}

/* Kernels for which a module is installed, other than the running one. */
static void other_kernels(const char *release, char *buf, size_t size)
{
	static const char *const patterns[] = {
		"/lib/modules/*/updates/dkms/npulink.ko*",
		"/lib/modules/*/updates/npulink.ko*",
		"/lib/modules/*/extra/npulink.ko*",
		"/lib/modules/*/updates/*/npulink.ko*",
		"/lib/modules/*/extra/*/npulink.ko*",
	};
	size_t len = 0;
	glob_t paths;

	*buf = 0;
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		if (glob(patterns[i], 0, NULL, &paths))
			continue;
		for (size_t j = 0; j < paths.gl_pathc; j++) {
			const char *name = paths.gl_pathv[j] + strlen("/lib/modules/");
			int n = strcspn(name, "/");

			if ((int)strlen(release) == n && !strncmp(name, release, n))
				continue;
			if (len < size)
				len += snprintf(buf + len, size - len, "%s%.*s", len ? ", " : "",
						n, name);
		}
		globfree(&paths);
	}
}

static void check_installed(struct kmod_module *mod, const char *release, bool loaded)
{
	char vermagic[128], others[200], on_disk[64], in_kernel[64], *magic;
	const char *path = kmod_module_get_path(mod);
	struct finding *f;

	if (!path) {
		other_kernels(release, others, sizeof(others));
		f = found(loaded ? WARNING : ERROR, "installed",
			  "npulink is not installed for the running kernel %s%s%s", release,
			  *others ? ", but for " : "", others);
		if (*others)
			fix(f, "install linux-headers-%s, then: dkms autoinstall, or: make install",
			    release);
		else
			fix(f, "in npulink's source tree: make install");
		return;
	}
	if (!module_info(mod, "vermagic", vermagic, sizeof(vermagic))) {
		f = found(ERROR, "installed", "%s cannot be read as a module", path);
		fix(f, "in npulink's source tree: make install");
		return;
	}
	magic = strchr(vermagic, ' ');
	if (magic)
		*magic = 0;
	if (strcmp(vermagic, release)) {
		f = found(ERROR, "installed", "%s was built for kernel %s, this is %s", path,
			  vermagic, release);
		fix(f, "in npulink's source tree: make install KDIR=/lib/modules/%s/build",
		    release);
		return;
	}
	if (loaded && module_info(mod, "srcversion", on_disk, sizeof(on_disk)) &&
	    read_line("/sys/module/npulink/srcversion", in_kernel, sizeof(in_kernel)) &&
	    strcmp(on_disk, in_kernel)) {
		f = found(WARNING, "installed", "the module that is loaded is not the one in %s",
			  path);
		fix(f, "when nothing uses it: rmmod npulink_soft npulink; modprobe npulink_soft");
		return;
	}
	found(OK, "installed", "%s", path);
}

static bool check_module(void)
{
	struct kmod_module *mod = NULL;
	struct kmod_ctx *ctx;
	struct utsname uts;
	char version[64] = "?";
	bool loaded = false;
	struct finding *f;
	int state;

	uname(&uts);
	ctx = kmod_new(NULL, NULL);
	if (!ctx || kmod_module_new_from_name(ctx, "npulink", &mod) < 0) {
		found(ERROR, "module", "libkmod cannot look for the module");
		goto out;
	}
	state = kmod_module_get_initstate(mod);
	loaded = state == KMOD_MODULE_LIVE || state == KMOD_MODULE_BUILTIN;
	if (loaded) {
		read_line("/sys/module/npulink/version", version, sizeof(version));
		if (strcmp(version, NPULINK_VERSION)) {
			f = found(WARNING, "module", "npulink %s is loaded, this program is %s",
				  version, NPULINK_VERSION);
			fix(f, "install both from the same source, then load the module anew");
		} else {
			found(OK, "module", "npulink %s is loaded", version);
		}
	} else if (state == KMOD_MODULE_COMING || state == KMOD_MODULE_GOING) {
		f = found(ERROR, "module", "npulink is just being %s",
			  state == KMOD_MODULE_COMING ? "loaded" : "removed");
		fix(f, "look at: dmesg | grep npulink");
	} else {
		f = found(ERROR, "module", "npulink is not loaded");
		fix(f, "%smodprobe npulink_soft",
		    kmod_module_get_path(mod) ? "" : "when it is installed (see below): ");
	}
	check_installed(mod, uts.release, loaded);
out:
	if (mod)
		kmod_module_unref(mod);
	if (ctx)
		kmod_unref(ctx);
	return loaded;
}

/* Modules that nobody signed are refused where the kernel insists. */
static void check_signature(void)
{
	char enforce[8] = "", lockdown[64] = "", signer[128];
	struct kmod_module *mod = NULL;
	struct kmod_ctx *ctx = kmod_new(NULL, NULL);
	bool wanted, is_signed = false;
	struct finding *f;

	read_line("/sys/module/module/parameters/sig_enforce", enforce, sizeof(enforce));
	read_line("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown));
	wanted = enforce[0] == 'Y' || (*lockdown && !strstr(lockdown, "[none]"));
	if (ctx && kmod_module_new_from_name(ctx, "npulink", &mod) >= 0 &&
	    kmod_module_get_path(mod))
		is_signed = module_info(mod, "signer", signer, sizeof(signer));
	if (mod)
		kmod_module_unref(mod);
	if (ctx)
		kmod_unref(ctx);
	if (!wanted) {
		found(OK, "signature", "the kernel takes modules that are not signed");
		return;
	}
	if (is_signed) {
		found(OK, "signature", "the kernel wants signed modules; npulink is signed by %s",
		      signer);
		return;
	}
	f = found(WARNING, "signature", "the kernel wants signed modules, and npulink is not");
	fix(f, "sign it with a key that the machine trusts (mokutil, dkms), or turn secure boot off");
}

static void check_backends(void)
{
	static const char *const names[] = { "soft", "rdma", "pci" };
	char path[64], list[64] = "";
	struct finding *f;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "/sys/module/npulink_%s", names[i]);
		if (access(path, F_OK))
			continue;
		strcat(list, " npulink_");
		strcat(list, names[i]);
	}
	if (*list) {
		found(OK, "backend", "loaded:%s", list);
		return;
	}
	f = found(ERROR, "backend", "no module is loaded that provides devices");
	fix(f, "modprobe npulink_soft ndev=8");
}

/* ---- device nodes */

static bool in_group(gid_t gid)
{
	gid_t groups[1024];
	int n = getgroups(ARRAY_SIZE(groups), groups);

	if (getegid() == gid)
		return true;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* In the group by /etc/group, whatever this session was started with. */
static bool listed_in_group(gid_t gid)
{
	struct passwd *pw = getpwuid(geteuid());
	gid_t groups[1024];
	int n = ARRAY_SIZE(groups);

	if (!pw || getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
		return false;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

static void explain_denied(const char *path, const struct stat *st, int error)
{
	struct group *gr = getgrgid(st->st_gid);
	const char *group = gr ? gr->gr_name : "?";
	struct finding *f;

	if (error == EPERM) {
		f = found(ERROR, "access", "%s: this container may not use the device", path);
		fix(f, "docker run --device %s, or allow its major number in the device cgroup",
		    path);
	} else if (!(st->st_mode & 0060) || !st->st_gid) {
		f = found(ERROR, "access", "%s belongs to group %s with mode %04o: for root only",
			  path, group, st->st_mode & 07777);
		fix(f, "install the udev rule (make install), then: udevadm trigger -s npulink");
	} else if (in_group(st->st_gid)) {
		f = found(ERROR, "access", "%s: %s, although you are in group %s", path,
			  strerror(error), group);
		fix(f, "look at the node's mode and for security modules: ls -lZ %s; dmesg", path);
	} else if (listed_in_group(st->st_gid)) {
		f = found(ERROR, "access", "you are in group %s, but not in this session", group);
		fix(f, "log out and in again, or: newgrp %s", group);
	} else {
		f = found(ERROR, "access", "%s is for group %s, and you (%s) are not in it", path,
			  group, own_name());
		fix(f, "as root: usermod -aG %s %s; then log in again", group, own_name());
	}
}

static void check_abi(uint32_t id, const char *path)
{
	struct npulink_device_info info;
	struct finding *f;
	int rc = dev_info(id, &info);

	if (rc) {
		f = found(ERROR, "abi", "%s does not answer: %s", path, strerror(-rc));
		fix(f, "dmesg | grep npulink; is the module of the same version as this program?");
	} else if (info.out_abi_version != NPULINK_ABI_VERSION) {
		f = found(ERROR, "abi", "the module speaks ABI %u, this program and its libcoll %u",
			  info.out_abi_version, NPULINK_ABI_VERSION);
		fix(f, "install module and library from the same source");
	} else {
		found(OK, "abi", "module and program speak ABI %u", NPULINK_ABI_VERSION);
	}
}

/* Which devices sysfs has, and whether their nodes can be used. */
static void check_devices(void)
{
	size_t ndevs = 0, nopen = 0, missing = 0;
	uint32_t id, first = ANY_DEV;
	char path[300], first_missing[300] = "", name[64];
	struct dirent *entry;
	struct finding *f;
	bool explained = false;
	struct stat st;
	DIR *dir;

	dir = opendir("/sys/class/npulink");
	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "npu", 3) || !parse_dev(entry->d_name, &id))
			continue;
		ndevs++;
		snprintf(path, sizeof(path), "/dev/npulink/%s", entry->d_name);
		if (stat(path, &st)) {
			if (!missing++)
				strcpy(first_missing, path);
			continue;
		}
		int fd = dev_open(id);

		if (fd < 0) {
			if (!explained)
				explain_denied(path, &st, -fd);
			explained = true;
			continue;
		}
		close(fd);
		nopen++;
		if (id < first)
			first = id;
	}
	if (dir)
		closedir(dir);
	if (!ndevs) {
		f = found(ERROR, "devices", "there are no devices");
		fix(f, "modprobe -r npulink_soft; modprobe npulink_soft ndev=8");
		return;
	}
	if (missing) {
		f = found(ERROR, "devices", "%zu of %zu device nodes are missing: %s", missing,
			  ndevs, first_missing);
		fix(f, "in a container: docker run --device %s; else: udevadm trigger -s npulink",
		    first_missing);
	} else {
		found(OK, "devices", "%zu device%s below /dev/npulink", ndevs,
		      ndevs > 1 ? "s" : "");
	}
	if (!nopen)
		return;
	found(OK, "access", "%s may use %zu of them", own_name(), nopen);
	snprintf(name, sizeof(name), "/dev/npulink/npu%u", first);
	check_abi(first, name);
}

static void check_netlink(void)
{
	struct dev *devs = NULL;
	size_t n = 0;
	int rc = nl_devs(ANY_DEV, &devs, &n);
	struct finding *f;

	free(devs);
	if (!rc) {
		found(OK, "netlink", "family npulink answers");
		return;
	}
	f = found(WARNING, "netlink", "family npulink does not answer: %s",
		  rc == -ENOPROTOOPT ? "not there" : strerror(-rc));
	fix(f, "npulink dev and link need it; in a container: share the host's user namespace");
}

/* ---- the kernel, IOMMU, RDMA */

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

static void check_kernel(void)
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

static void check_iommu(void)
{
	struct dirent *entry;
	unsigned int n = 0;
	DIR *dir = opendir("/sys/class/iommu");

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

	snprintf(name, sizeof(name), "%s/%u", ibv_get_device_name(ctx->device), port);
	if (ibv_query_port(ctx, port, &attr)) {
		found(WARNING, "rdma", "%s does not answer: %s", name, strerror(errno));
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

static void check_rdma(void)
{
	struct ibv_device **devs;
	struct port *ports = NULL;
	size_t nports = 0;
	int n = 0;

	devs = ibv_get_device_list(&n);
	if (!devs || !n) {
		found(UNTESTED, "rdma", "no RDMA devices: ranks on this machine only");
		if (devs)
			ibv_free_device_list(devs);
		return;
	}
	nl_ports(&ports, &nports);
	for (int i = 0; i < n; i++) {
		struct ibv_context *ctx = ibv_open_device(devs[i]);
		struct ibv_device_attr attr;

		if (!ctx || ibv_query_device(ctx, &attr)) {
			found(WARNING, "rdma", "%s cannot be opened: %s",
			      ibv_get_device_name(devs[i]), strerror(errno));
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

/* ---- limits */

/* Has somebody gone on with the ranks that were left of it? */
static bool is_shrunk(const struct see_comm *comm, const struct see_comm *comms, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (comms[i].parent == comm->id)
			return true;
	return false;
}

/* Its processes are there yet, whether they know it or not. */
static void check_failed(void)
{
	struct see_comm *comms = NULL;
	char text[CAUSE_TEXT];
	struct finding *f;
	size_t n = 0;

	if (see_comms(&comms, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		if (!comms[i].failed || is_shrunk(&comms[i], comms, n))
			continue;
		f = found(WARNING, "jobs", "communicator %u (%u ranks) has failed: %s",
			  comms[i].id, comms[i].nranks,
			  cause_text(&comms[i].cause, text, sizeof(text)));
		fix(f, "npulink comm show %u", comms[i].id);
	}
	free(comms);
}

/* What goes on now: the oldest operation of each communicator, if it is old. */
static void check_jobs(void)
{
	struct see_op *ops = NULL;
	struct finding *f;
	size_t n = 0, k;
	char age[24];

	/* They come ordered by communicator. */
	if (see_ops(ANY_DEV, &ops, &n))
		return;
	for (size_t i = 0; i < n; i = k) {
		const struct see_op *old = &ops[i];

		for (k = i + 1; k < n && ops[k].comm == old->comm; k++)
			if (ops[k].age > old->age)
				old = &ops[k];
		if (old->age < LONG)
			continue;
		f = found(WARNING, "jobs", "an operation of communicator %u is in flight for %s",
			  old->comm, human_ns(old->age, age));
		fix(f, "npulink hang %u", old->comm);
	}
	free(ops);
}

/* Buffers of the kernel are charged to the memory cgroup, too. */
static void check_cgroup(uint64_t need)
{
	char line[512], path[600], limit[64], a[16], b[16];
	unsigned long long bytes;
	struct finding *f;

	if (!read_line("/proc/self/cgroup", line, sizeof(line)) || strncmp(line, "0::", 3))
		return;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
	if (!read_line(path, limit, sizeof(limit)) || sscanf(limit, "%llu", &bytes) != 1) {
		found(OK, "cgroup", "no limit of memory");
		return;
	}
	if (bytes >= need) {
		found(OK, "cgroup", "up to %s of memory", human_bytes(bytes, a));
		return;
	}
	f = found(WARNING, "cgroup", "%s allows %s of memory, %s are wanted for buffers alone",
		  line + 3, human_bytes(bytes, a), human_bytes(need, b));
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

static void check_memlock(uint64_t need)
{
	struct rlimit limit;
	struct finding *f;
	char a[16], b[16];

	if (has_ipc_lock()) {
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

/* ---- the library that programs will find */

static void check_library(void)
{
	const char *(*version_string)(void);
	struct finding *f;
	void *lib;

	/* The program has libcoll inside; applications look for it. */
	lib = dlopen("libcoll.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		f = found(WARNING, "library", "the dynamic linker finds no libcoll.so.0");
		fix(f, "make install; ldconfig; or set LD_LIBRARY_PATH");
		return;
	}
	version_string = (const char *(*)(void))dlsym(lib, "coll_version_string");
	if (!version_string) {
		f = found(WARNING, "library", "libcoll.so.0 is not npulink's");
		fix(f, "look at LD_LIBRARY_PATH, and: ldconfig -p | grep libcoll");
	} else if (strcmp(version_string(), COLL_VERSION_STRING)) {
		f = found(WARNING, "library", "libcoll.so.0 is %s, this program is %s",
			  version_string(), COLL_VERSION_STRING);
		fix(f, "install both from the same source; ldconfig");
	} else {
		found(OK, "library", "libcoll.so.0 is %s", version_string());
	}
	dlclose(lib);
}

/* ---- output */

static void print_text(void)
{
	static const char *const colours[] = { "", "\033[32m", "\033[33m", "\033[31m" };
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	size_t count[SEVERITIES] = { };

	for (size_t i = 0; i < findings.n; i++) {
		const struct finding *f = &findings.list[i];

		count[f->severity]++;
		printf("%s%-10s%s %-10s %s\n", colour ? colours[f->severity] : "",
		       severity_names[f->severity], colour ? "\033[0m" : "", f->check, f->text);
		if (*f->fix)
			printf("%-10s %-10s fix: %s\n", "", "", f->fix);
	}
	if (count[ERROR] || count[WARNING])
		printf("%zu error%s, %zu warning%s\n", count[ERROR], count[ERROR] == 1 ? "" : "s",
		       count[WARNING], count[WARNING] == 1 ? "" : "s");
	else
		printf("nothing to fix%s\n",
		       count[UNTESTED] ? " in what was tested" : "");
}

static void print_json(enum severity worst)
{
	struct json_object *root = json_object_new_object(), *array = json_object_new_array(), *obj;

	put_str(root, "version", NPULINK_VERSION);
	put_str(root, "severity", severity_names[worst]);
	for (size_t i = 0; i < findings.n; i++) {
		const struct finding *f = &findings.list[i];

		obj = json_object_new_object();
		put_str(obj, "check", f->check);
		put_str(obj, "severity", severity_names[f->severity]);
		put_str(obj, "text", f->text);
		put_str(obj, "fix", *f->fix ? f->fix : NULL);
		json_object_array_add(array, obj);
	}
	json_object_object_add(root, "findings", array);
	json_print(root);
}

/* What can be put right without asking: load the module. */
static void fix_module(void)
{
	struct kmod_module *mod = NULL;
	struct kmod_ctx *ctx = kmod_new(NULL, NULL);
	struct finding *f;
	int rc = -ENOENT;

	if (!access("/sys/module/npulink_soft", F_OK)) {
		kmod_unref(ctx);
		return;
	}
	/* What it says is said below. */
	if (ctx)
		kmod_set_log_priority(ctx, 0);
	if (ctx && kmod_module_new_from_name(ctx, "npulink_soft", &mod) >= 0)
		rc = kmod_module_probe_insert_module(mod, KMOD_PROBE_APPLY_BLACKLIST, NULL, NULL,
						     NULL, NULL);
	if (mod)
		kmod_module_unref(mod);
	if (ctx)
		kmod_unref(ctx);
	if (!rc) {
		found(OK, "fix", "loaded npulink_soft");
		return;
	}
	f = found(WARNING, "fix", "npulink_soft cannot be loaded: %s", strerror(rc < 0 ? -rc : rc));
	fix(f, geteuid() ? "run it as root" : "see below, and: dmesg | tail");
}

static const char usage[] =
	"Usage: npulink [-j] doctor [-m SIZE] [--fix]\n"
	"\n"
	"Checks all that collectives need on this node: module, devices, access rights, links\n"
	"(by some data that it sends over each), ports, memory limit, versions. Says of each\n"
	"thing that is wrong what to do about it, and of what it could not look at that it is\n"
	"not tested.\n"
	"\n"
	"  -m, --memory SIZE  what all processes of this user will keep in buffers at a\n"
	"                     time, for the memory limit (64M)\n"
	"      --fix          load the module if it is not (root); nothing else is changed\n"
	"  -j, --json         JSON\n"
	"\n"
	"Exit status: 0 nothing to fix, 1 it works but with warnings, 3 it does not work.\n";

int doctor_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "memory", required_argument, NULL, 'm' },
		{ "fix", no_argument, NULL, 'F' },
		CMD_OPTION_END
	};
	static const int status[] = { EXIT_SUCCESS, EXIT_SUCCESS, 1, 3 };
	static const char *const need_module[] = {
		"backend", "devices", "netlink", "links", "peers",
	};
	uint64_t memory = DEFAULT_MEMORY;
	enum severity worst = OK;
	bool repair = false;
	char *words[argc + 2];
	int c;

	words[0] = "doctor";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "m:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (c == 'F')
			repair = true;
		else if (!parse_size(optarg, &memory))
			return usage_error("doctor: \"%s\" is no size", optarg);
	}
	if (optind < argc + 1)
		return usage_error("doctor: unknown word \"%s\"", words[optind]);

	if (repair)
		fix_module();
	if (check_module()) {
		check_backends();
		check_devices();
		check_netlink();
		check_links();
		check_peers();
		check_failed();
		check_jobs();
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(need_module); i++)
			found(UNTESTED, need_module[i], "the module is not loaded");
	}
	check_signature();
	check_kernel();
	check_iommu();
	check_rdma();
	check_memlock(memory);
	check_cgroup(memory);
	check_library();

	for (size_t i = 0; i < findings.n; i++)
		if (findings.list[i].severity > worst)
			worst = findings.list[i].severity;
	if (opts.json)
		print_json(worst);
	else
		print_text();
	free(findings.list);
	return status[worst];
}
