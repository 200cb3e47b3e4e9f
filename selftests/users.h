/* SPDX-License-Identifier: GPL-2.0 */
/*
 * users.h - processes of other users on the same devices, and how they talk to the test.
 */
#ifndef SELFTESTS_USERS_H
#define SELFTESTS_USERS_H

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "raw.h"

#define ALICE	60001
#define BOB	60002

static inline gid_t node_group(void)
{
	struct stat st;

	RAW_CHECK(!stat("/dev/npulink/npu0", &st));
	return st.st_gid;
}

/* Become an ordinary user who may open the devices. */
static inline void become(uid_t uid)
{
	gid_t gid = node_group();

	RAW_CHECK(!setgroups(0, NULL));
	RAW_CHECK(!setresgid(gid, gid, gid));
	RAW_CHECK(!setresuid(uid, uid, uid));
	RAW_CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
}

/* The ids of a process that has made a user namespace. */
static inline void write_maps(pid_t pid, const char *uids)
{
	char path[64], gids[32];

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	RAW_CHECK(!raw_write(path, uids));
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	snprintf(gids, sizeof(gids), "0 %u 1", node_group());
	RAW_CHECK(!raw_write(path, gids));
}

/* As much locked memory as one likes; before become(). */
static inline void unlimit_memlock(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	RAW_CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
}

static inline void tell(int sk, int word)
{
	RAW_CHECK(send(sk, &word, sizeof(word), 0) == sizeof(word));
}

static inline int hear(int sk)
{
	int word = -1;

	RAW_CHECK(recv(sk, &word, sizeof(word), 0) == sizeof(word));
	return word;
}

#endif /* SELFTESTS_USERS_H */
