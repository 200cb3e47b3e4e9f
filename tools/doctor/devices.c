// SPDX-License-Identifier: GPL-2.0
/*
 * devices.c - npulink doctor: are there devices, may this user open them,
 * and what do they speak?
 */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "cli/nl.h"
#include "doctor/doctor.h"
#include "lib/run/cause.h"
#include "lib/run/dev.h"
#include "state/state.h"

#define OVERFLOW_GID	65534		/* what a group looks like that is not mapped here */

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
	struct statvfs fs;
	char text[900];

	if (error == EPERM) {
		f = found(ERROR, "access", "%s: this container may not use the device", path);
		fix(f, "docker run --device %s, or allow its major number in the device cgroup",
		    path);
	} else if (error != EACCES) {
		coll_cause_open(-error, path, text, sizeof(text));
		found(ERROR, "access", "%s", text);
	} else if (!statvfs(path, &fs) && fs.f_flag & ST_NODEV) {
		f = found(ERROR, "access", "%s: %s: what is mounted there has the option nodev",
			  path, strerror(error));
		fix(f, "have it mounted without: mount -o remount,dev");
	} else if ((st->st_mode & 0006) == 0006 ||
		   ((st->st_mode & 0060) == 0060 && in_group(st->st_gid))) {
		f = found(ERROR, "access", "%s: %s, although its mode allows it", path,
			  strerror(error));
		fix(f, "look for access lists and security modules: ls -lZ %s; dmesg", path);
	} else if (st->st_gid == OVERFLOW_GID && !in_initial_userns()) {
		f = found(ERROR, "access", "%s is for a group that this container does not have",
			  path);
		fix(f, "podman run --group-add keep-groups, as a user who is in it");
	} else if (!(st->st_mode & 0060) || !st->st_gid) {
		f = found(ERROR, "access", "%s belongs to group %s with mode %04o: for root only",
			  path, group, st->st_mode & 07777);
		fix(f, "install the udev rule (make install), then: udevadm trigger -s npulink");
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
void check_devices(void)
{
	size_t ndevs = 0, nopen = 0, missing = 0;
	uint32_t id, first = ANY_DEV;
	char path[300], first_missing[300] = "", name[64];
	struct dirent *entry;
	struct finding *f;
	bool explained = false;
	struct stat st;
	bool sys = !access("/sys/class", F_OK);
	DIR *dir;

	/* Without sysfs, those that have a node. */
	dir = opendir(sys ? "/sys/class/npulink" : COLL_DEV_DIR);
	if (!dir && errno != ENOENT) {
		found(UNTESTED, "devices", "cannot be listed: %s", strerror(errno));
		found(UNTESTED, "access", "which devices there are is not known");
		found(UNTESTED, "abi", "which devices there are is not known");
		return;
	}
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
	if (!ndevs && !sys) {
		f = found(UNTESTED, "devices", "there is no %s, and no /sys that would say which devices there are",
			  COLL_DEV_DIR);
		fix(f, "in a container: docker run --device, with each node of %s", COLL_DEV_DIR);
		found(UNTESTED, "access", "there are no device nodes");
		found(UNTESTED, "abi", "there are no device nodes");
		return;
	}
	if (!ndevs) {
		f = found(ERROR, "devices", "there are no devices");
		fix(f, "modprobe -r npulink_soft; modprobe npulink_soft ndev=8");
		found(UNTESTED, "access", "there are no devices");
		found(UNTESTED, "abi", "there are no devices");
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
	if (!nopen) {
		if (!explained)
			found(UNTESTED, "access", "there are no device nodes");
		found(UNTESTED, "abi", "there is no device that could be opened");
		return;
	}
	found(OK, "access", "%s may use %zu of them", own_name(), nopen);
	snprintf(name, sizeof(name), "/dev/npulink/npu%u", first);
	check_abi(first, name);
}

void check_netlink(void)
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
	if (rc == -EPERM || rc == -EACCES || rc == -EAFNOSUPPORT || rc == -ENOSYS)
		fix(f, NL_FORBIDDEN);
	else if (rc == -EMFILE)
		fix(f, "raise the limit: ulimit -n");
	else
		fix(f, "dmesg | grep npulink");
}
