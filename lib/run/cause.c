// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * cause.c - why a device cannot be had: what open(), the first ioctl() and mmap() say, and
 * what that may come from. A cause is named where it was looked for, and no other.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/capability.h>
#include "base/base.h"
#include "run/cause.h"

#define SYS_DIR		"/sys/class/npulink"

/* Does sysfs have a device of that path's name (NULL: any)? */
static bool sysfs_has(const char *path)
{
	char name[128];
	const char *slash = path ? strrchr(path, '/') : NULL;
	struct dirent *entry;
	bool has = false;
	DIR *dir;

	if (slash) {
		snprintf(name, sizeof(name), SYS_DIR "/%s", slash + 1);
		return slash[1] && !access(name, F_OK);
	}
	dir = opendir(SYS_DIR);
	while (dir && !has && (entry = readdir(dir)))
		has = !strncmp(entry->d_name, "npu", 3);
	if (dir)
		closedir(dir);
	return has;
}

/* There is no node. */
static int missing_text(int rc, const char *path, char *text, size_t size)
{
	bool any = strchr(path, '*');

	if (sysfs_has(any ? NULL : path))
		return coll_text(text, size, rc,
				 "there is no %s, although the machine has such a device: in a container, pass the node in (docker run --device), else: udevadm trigger -s npulink",
				 path);
	if (sysfs_has(NULL))
		return coll_text(text, size, rc,
				 "there is no %s: see \"npulink dev show\" for those that there are (COLL_DEVICE, or device in struct coll_config, names one)",
				 path);
	if (access("/sys/module", F_OK))
		return coll_text(text, size, rc,
				 "there is no %s: load a backend (modprobe npulink_soft), or in a container, pass the node in (docker run --device); which of these it is cannot be told without /sys",
				 path);
	return coll_text(text, size, rc,
			 "there is no %s: %s (modprobe npulink_soft), and see \"npulink doctor\"",
			 path, access(SYS_DIR, F_OK) ? "npulink is not loaded: load a backend" :
			 "npulink is loaded, but provides no device: load a backend");
}

/* The permissions of the node, or something else that has the same errno. */
static int denied_text(int rc, const char *path, char *text, size_t size)
{
	struct statvfs fs;

	if (!statvfs(path, &fs) && fs.f_flag & ST_NODEV)
		return coll_text(text, size, rc,
				 "no permission to open %s: what is mounted there has the option nodev (%s)",
				 path, strerror(-rc));
	if (!faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS))
		return coll_text(text, size, rc,
				 "no permission to open %s, although its mode allows it: a security module forbids it (%s)",
				 path, strerror(-rc));
	return coll_text(text, size, rc,
			 "no permission to open %s: add the user to group npulink (usermod -aG npulink USER) and log in again; \"npulink doctor\" says more (%s)",
			 path, strerror(-rc));
}

/* Why, where that and the path are all there is to say. */
static const char *open_format(int rc)
{
	static const struct {
		const char *format;
		int rc;
	} formats[] = {
		{
			"there is a node %s, but no device behind it: see \"npulink dev show\" for those that there are (%s)",
			-ENODEV,
		},
		{
			"this container or service may not open %s: allow the device (docker run --device, DeviceAllow=) (%s)",
			-EPERM,
		},
		{
			"%s is not for programs of 32 bits: build this one for 64 (%s)",
			-EOPNOTSUPP,
		},
		{
			"cannot open %s: %s: raise the limit of the machine (sysctl fs.file-max)",
			-ENFILE,
		},
		{
			"cannot open %s: this user has too many files and objects of npulink open (%s): let communicators share a device (coll_config.share), or raise npulink.max_user_objects",
			-EDQUOT,
		},
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].rc == rc)
			return formats[i].format;
	return "cannot open %s: %s";
}

int coll_cause_open(int rc, const char *path, char *text, size_t size)
{
	struct rlimit limit;

	if (rc == -ENOENT)
		return missing_text(rc, path, text, size);
	if (rc == -EACCES)
		return denied_text(rc, path, text, size);
	if (rc == -EMFILE && !getrlimit(RLIMIT_NOFILE, &limit))
		return coll_text(text, size, rc,
				 "cannot open %s: %s: this process may have %ju files (RLIMIT_NOFILE): raise that (ulimit -n, LimitNOFILE= of the service), or let communicators share a device (coll_config.share)",
				 path, strerror(-rc), (uintmax_t)limit.rlim_cur);
	return coll_text(text, size, rc, open_format(rc == -ENXIO ? -ENODEV : rc), path,
			 strerror(-rc));
}

/* What was opened does not say what it is. */
int coll_cause_info(int rc, const char *path, char *text, size_t size)
{
	switch (rc) {
	case -ENOTTY:
		return coll_text(text, size, rc,
				 "%s is not an npulink device, or its module is too old (%s)",
				 path, strerror(-rc));
	case -ENODEV:
		return coll_text(text, size, rc, "%s has just gone (%s)", path, strerror(-rc));
	case -EPERM:
	case -EACCES:
	case -ENOSYS:
		return coll_text(text, size, rc,
				 "%s is open, but this process may not use ioctl() there: its seccomp filter or a security module forbids it (%s)",
				 path, strerror(-rc));
	}
	return coll_text(text, size, rc, "%s does not say what it is: %s", path, strerror(-rc));
}

/* Is that capability one of the machine, and not of a container? Limits do not count then. */
static bool has_ipc_lock(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { };
	unsigned int inside, outside, n = 0;
	FILE *map;

	if (syscall(SYS_capget, &header, data) || !(data[0].effective & 1U << CAP_IPC_LOCK))
		return false;
	map = fopen("/proc/self/uid_map", "re");
	if (!map)
		return false;
	if (fscanf(map, "%u %u %u", &inside, &outside, &n) != 3)
		n = 0;
	fclose(map);
	return n == UINT32_MAX && !inside && !outside;
}

/* 0 if none counts. */
static uintmax_t memlock_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || has_ipc_lock())
		return 0;
	return limit.rlim_cur;
}

/* @len bytes that would be pinned. */
int coll_cause_memory(int rc, size_t len, const char *what, char *text, size_t size)
{
	uintmax_t limit = memlock_limit(), kib = len / 1024 + !!(len % 1024);

	if (rc == -ENOMEM && limit)
		return coll_text(text, size, rc,
				 "%sneeds %ju KiB of pinned memory, RLIMIT_MEMLOCK is %ju KiB for all processes of this user: raise it (ulimit -l, LimitMEMLOCK= of the service, --ulimit memlock= of the container), or use less of it",
				 what, kib, limit / 1024);
	if (rc == -ENOMEM)
		return coll_text(text, size, rc,
				 "%sneeds %ju KiB of memory: %s: see the limits of its cgroup (memory.max) and of its address space (ulimit -v)",
				 what, kib, strerror(-rc));
	return coll_text(text, size, rc, "%scannot have %ju KiB of memory that is pinned: %s", what,
			 kib, strerror(-rc));
}
