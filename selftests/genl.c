// SPDX-License-Identifier: GPL-2.0
/*
 * genl.c - the generic netlink family, by hand: what it answers, what it refuses,
 * dumps that need several messages, other users and network namespaces.
 *
 * npulink-test: ndev=40
 */
#include <errno.h>
#include <linux/npulink_genl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness.h"
#include "nl.h"

#define NDEV		40

FIXTURE(genl) {
	int sock;
	int family;
	struct nl_request rq;
	struct nl_reply reply;
	struct nlattr *family_attrs[NL_ATTRS];
};

FIXTURE_SETUP(genl)
{
	size_t off = 0;

	self->sock = nl_open();
	ASSERT_LE(0, self->sock);
	nl_begin(&self->rq, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	nl_put(&self->rq, CTRL_ATTR_FAMILY_NAME, NPULINK_GENL_NAME, sizeof(NPULINK_GENL_NAME));
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	ASSERT_EQ(0, self->reply.error);
	ASSERT_TRUE(nl_next(&self->reply, &off, self->family_attrs));
	self->family = *(uint16_t *)nl_value(self->family_attrs[CTRL_ATTR_FAMILY_ID]);
}

FIXTURE_TEARDOWN(genl)
{
	close(self->sock);
}

/* The kernel sends as much at once as the largest buffer that a socket has read into. */
static void reopen(FIXTURE_DATA(genl) *self)
{
	close(self->sock);
	self->sock = nl_open();
}

TEST_F(genl, family)
{
	struct nlattr *groups[NL_ATTRS], *group[NL_ATTRS], *attr;

	EXPECT_EQ(NPULINK_GENL_VERSION, nl_u32(self->family_attrs[CTRL_ATTR_VERSION]));
	attr = self->family_attrs[CTRL_ATTR_MCAST_GROUPS];
	ASSERT_NE(NULL, attr);
	nl_parse(nl_value(attr), attr->nla_len - NLA_HDRLEN, groups);
	ASSERT_NE(NULL, groups[1]);
	nl_parse(nl_value(groups[1]), groups[1]->nla_len - NLA_HDRLEN, group);
	EXPECT_STREQ(NPULINK_GENL_GROUP_EVENTS, nl_value(group[CTRL_ATTR_MCAST_GRP_NAME]));
}

TEST_F(genl, device)
{
	struct nlattr *attrs[NL_ATTRS];
	size_t off = 0;

	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_ID, 7);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(0, self->reply.error);
	ASSERT_EQ(1, self->reply.nmessages);
	ASSERT_TRUE(nl_next(&self->reply, &off, attrs));
	for (int i = NPULINK_A_DEV_ID; i <= NPULINK_A_DEV_MAX; i++)
		EXPECT_NE(NULL, attrs[i]);
	EXPECT_EQ(7, nl_u32(attrs[NPULINK_A_DEV_ID]));
	EXPECT_STREQ("npu7", nl_value(attrs[NPULINK_A_DEV_NAME]));
	EXPECT_STREQ("soft", nl_value(attrs[NPULINK_A_DEV_BACKEND]));
}

/* However small the reader's buffer is: every device once, in order. */
TEST_F(genl, device_dump)
{
	static const size_t sizes[] = { 32768, 8192, 4096 };

	for (int i = 0; i < 3; i++) {
		struct nlattr *attrs[NL_ATTRS];
		uint32_t expected = 0;
		size_t off = 0;

		nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
		reopen(self);
		ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, sizes[i]));
		EXPECT_EQ(0, self->reply.error);
		EXPECT_EQ(NDEV, self->reply.nmessages);
		while (nl_next(&self->reply, &off, attrs))
			EXPECT_EQ(expected++, nl_u32(attrs[NPULINK_A_DEV_ID]));
		if (sizes[i] == 4096)
			EXPECT_LT(2, self->reply.nreads);
	}
}

TEST_F(genl, links)
{
	char *tree = getenv("NPULINK_TREE"), command[512];
	struct nlattr *attrs[NL_ATTRS];
	unsigned int nlinks = 0;
	uint64_t bytes = 0;
	long last = -1;
	size_t off = 0;

	/* Traffic, so that there are links: 12 devices, all to all. */
	snprintf(command, sizeof(command),
		 "%s/build/tools/npulink bench alltoall -a pairwise -p 12 -b 48K -e 48K -n 1 -c 0 >/dev/null",
		 tree ?: ".");
	ASSERT_EQ(0, system(command));
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	reopen(self);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 4096));
	EXPECT_EQ(0, self->reply.error);
	EXPECT_LT(2, self->reply.nreads);
	while (nl_next(&self->reply, &off, attrs)) {
		for (int i = NPULINK_A_LINK_DEV; i <= NPULINK_A_LINK_MAX; i++)
			ASSERT_NE(NULL, attrs[i]);
		long key = nl_u32(attrs[NPULINK_A_LINK_DEV]) * 1000L +
			   nl_u32(attrs[NPULINK_A_LINK_PEER]);

		EXPECT_LT(last, key);
		last = key;
		EXPECT_NE(nl_u32(attrs[NPULINK_A_LINK_DEV]), nl_u32(attrs[NPULINK_A_LINK_PEER]));
		bytes += *(uint64_t *)nl_value(attrs[NPULINK_A_LINK_BYTES]);
		nlinks++;
	}
	EXPECT_LE(12 * 11, nlinks);
	/* Every rank sent 4 KiB to each of the others. */
	EXPECT_LE(12 * 11 * 4096, bytes);

	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	nl_put_u32(&self->rq, NPULINK_A_LINK_DEV, 5);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(0, self->reply.error);
	EXPECT_LE(11, self->reply.nmessages);
	for (off = 0; nl_next(&self->reply, &off, attrs);)
		EXPECT_EQ(5, nl_u32(attrs[NPULINK_A_LINK_DEV]));
}

TEST_F(genl, err_no_such_device)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_ID, 4000000000U);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-ENODEV, self->reply.error);
	EXPECT_STREQ("no such device", self->reply.text);
	EXPECT_EQ(NLMSG_HDRLEN + GENL_HDRLEN, self->reply.bad_attr);

	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	nl_put_u32(&self->rq, NPULINK_A_LINK_DEV, NDEV);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-ENODEV, self->reply.error);
}

TEST_F(genl, err_attribute_missing)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_attribute_unknown)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_MAX + 1, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	/* Known, but only in answers. */
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	nl_put_u32(&self->rq, NPULINK_A_DEV_SLICE, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_attribute_of_wrong_size)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put(&self->rq, NPULINK_A_DEV_ID, "\0\0\0\0\0\0\0", 8);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	nl_put(&self->rq, NPULINK_A_DEV_ID, "\0\0", 2);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_dump_of_one_device)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
	nl_put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	/* 6.1 has nowhere to put a text when a dump starts. */
	if (*self->reply.text)
		EXPECT_STREQ("a dump is of all devices", self->reply.text);
}

TEST_F(genl, err_unknown_command)
{
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_MAX + 1, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->reply.error);
	/* Links have no do. */
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->reply.error);
}

static void put_port(struct nl_request *rq, uint32_t dev, const char *kind, const char *name)
{
	nl_put_u32(rq, NPULINK_A_PORT_DEV, dev);
	nl_put(rq, NPULINK_A_PORT_KIND, kind, strlen(kind) + 1);
	nl_put(rq, NPULINK_A_PORT_NAME, name, strlen(name) + 1);
}

TEST_F(genl, err_port)
{
	static const struct {
		uint32_t dev;
		const char *kind, *name;
		int cmd, error;
	} tries[] = {
		{ NDEV, "rdma", "rxe0/1", NPULINK_GENL_CMD_PORT_ADD, -ENODEV },
		{ 0, "pigeon", "rxe0/1", NPULINK_GENL_CMD_PORT_ADD, -EOPNOTSUPP },
		{ 0, "a-kind-with-a-long-name", "x/1", NPULINK_GENL_CMD_PORT_ADD, -EINVAL },
		{ 0, "rdma", "a-name-of-a-port-that-is-too-long/1", NPULINK_GENL_CMD_PORT_ADD,
		  -EINVAL },
		{ NDEV, "rdma", "rxe0/1", NPULINK_GENL_CMD_PORT_DEL, -ENODEV },
		{ 0, "rdma", "rxe0/1", NPULINK_GENL_CMD_PORT_DEL, -ENOENT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		nl_begin(&self->rq, self->family, tries[i].cmd, 0);
		put_port(&self->rq, tries[i].dev, tries[i].kind, tries[i].name);
		ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
		EXPECT_EQ(tries[i].error, self->reply.error) {
			TH_LOG("try %zu", i);
		}
	}
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_ADD, 0);
	nl_put_u32(&self->rq, NPULINK_A_PORT_DEV, 0);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_GET, NLM_F_DUMP);
	ASSERT_EQ(0, nl_talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(0, self->reply.error);
	EXPECT_EQ(0, self->reply.nmessages);
}

TEST_F(genl, err_port_unprivileged)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int sock;

		if (setgid(65534) || setuid(65534))
			_exit(1);
		sock = nl_open();
		nl_begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_ADD, 0);
		put_port(&self->rq, 0, "rdma", "rxe0/1");
		if (nl_talk(sock, &self->rq, &self->reply, 32768))
			_exit(2);
		_exit(self->reply.error == -EPERM ? 0 : 3);
	}
	waitpid(pid, &status, 0);
	EXPECT_EQ(0, status);
}

/* In a child, which changes who and where it is. Returns the number of devices. */
static int dump_elsewhere(int family, bool other_net, bool other_user)
{
	static struct nl_request rq;
	static struct nl_reply reply;
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int sock;

		if (other_net && unshare(CLONE_NEWNET))
			_exit(200);
		if (other_user && (setgid(65534) || setuid(65534)))
			_exit(201);
		sock = nl_open();
		nl_begin(&rq, family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
		if (nl_talk(sock, &rq, &reply, 32768) || reply.error)
			_exit(202);
		_exit(reply.nmessages);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(genl, other_network_namespace)
{
	int ndevs = dump_elsewhere(self->family, true, false);

	if (ndevs == 200)
		SKIP(return, "no network namespaces here");
	EXPECT_EQ(NDEV, ndevs);
}

TEST_F(genl, other_user)
{
	EXPECT_EQ(NDEV, dump_elsewhere(self->family, false, true));
}

TEST_HARNESS_MAIN
