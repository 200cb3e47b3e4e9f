// SPDX-License-Identifier: GPL-2.0
/*
 * genl.c - the generic netlink family, by hand: what it answers, what it refuses,
 * dumps that need several messages, other users and network namespaces.
 *
 * npulink-test: ndev=40
 */
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kselftest_harness.h"

#define MAX_ATTRS	64
#define NDEV		40

struct request {
	struct nlmsghdr nlh;
	struct genlmsghdr genlh;
	char attrs[256];
};

/* What came back: messages one after the other, and the final error. */
struct reply {
	char data[65536];
	size_t len;
	unsigned int nmessages, nreads;
	int error;		/* of the ACK, or of the end of the dump */
	char text[128];		/* extended ACK */
	uint16_t bad_attr;	/* offset that it points to */
};

static void begin(struct request *rq, int family, int cmd, int flags)
{
	memset(rq, 0, sizeof(*rq));
	rq->nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
	rq->nlh.nlmsg_type = family;
	rq->nlh.nlmsg_flags = NLM_F_REQUEST | flags;
	rq->nlh.nlmsg_seq = 1;
	rq->genlh.cmd = cmd;
	rq->genlh.version = 1;
}

static void put(struct request *rq, int type, const void *data, size_t len)
{
	struct nlattr *attr = (void *)((char *)rq + NLMSG_ALIGN(rq->nlh.nlmsg_len));

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	memcpy((char *)attr + NLA_HDRLEN, data, len);
	rq->nlh.nlmsg_len = NLMSG_ALIGN(rq->nlh.nlmsg_len) + NLA_ALIGN(attr->nla_len);
}

static void put_u32(struct request *rq, int type, uint32_t value)
{
	put(rq, type, &value, sizeof(value));
}

static void parse(char *data, size_t len, struct nlattr *attrs[MAX_ATTRS])
{
	memset(attrs, 0, MAX_ATTRS * sizeof(*attrs));
	while (len >= NLA_HDRLEN) {
		struct nlattr *attr = (void *)data;
		size_t step = NLA_ALIGN(attr->nla_len);

		if (attr->nla_len < NLA_HDRLEN || attr->nla_len > len)
			return;
		if ((attr->nla_type & NLA_TYPE_MASK) < MAX_ATTRS)
			attrs[attr->nla_type & NLA_TYPE_MASK] = attr;
		data += step;
		len -= step < len ? step : len;
	}
}

static void *value(struct nlattr *attr)
{
	return (char *)attr + NLA_HDRLEN;
}

static uint32_t u32(struct nlattr *attr)
{
	return *(uint32_t *)value(attr);
}

static void note_error(struct reply *reply, struct nlmsghdr *nlh, int error, size_t skip)
{
	struct nlattr *attrs[MAX_ATTRS];

	reply->error = error;
	if (!(nlh->nlmsg_flags & NLM_F_ACK_TLVS))
		return;
	parse((char *)nlh + NLMSG_HDRLEN + skip, nlh->nlmsg_len - NLMSG_HDRLEN - skip, attrs);
	if (attrs[NLMSGERR_ATTR_MSG])
		snprintf(reply->text, sizeof(reply->text), "%s",
			 (char *)value(attrs[NLMSGERR_ATTR_MSG]));
	if (attrs[NLMSGERR_ATTR_OFFS])
		reply->bad_attr = u32(attrs[NLMSGERR_ATTR_OFFS]);
}

static int open_netlink(void)
{
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), one = 1;

	if (sock >= 0) {
		setsockopt(sock, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
		setsockopt(sock, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	}
	return sock;
}

/* Send it, collect all that comes back, @buf_size bytes at most in one read. */
static int talk(int sock, struct request *rq, struct reply *reply, size_t buf_size)
{
	bool dump = rq->nlh.nlmsg_flags & NLM_F_DUMP;
	static char buf[65536];

	memset(reply, 0, sizeof(*reply));
	if (!dump)
		rq->nlh.nlmsg_flags |= NLM_F_ACK;
	if (send(sock, rq, rq->nlh.nlmsg_len, 0) < 0)
		return -errno;
	for (;;) {
		ssize_t n = recv(sock, buf, buf_size, 0);
		struct nlmsghdr *nlh = (void *)buf;

		if (n < 0)
			return -errno;
		reply->nreads++;
		for (; NLMSG_OK(nlh, n); nlh = NLMSG_NEXT(nlh, n)) {
			int error = *(int *)NLMSG_DATA(nlh);

			if (nlh->nlmsg_type == NLMSG_ERROR) {
				note_error(reply, nlh, error, sizeof(struct nlmsgerr));
				return 0;
			}
			if (nlh->nlmsg_type == NLMSG_DONE) {
				note_error(reply, nlh, error, sizeof(int));
				return 0;
			}
			if (reply->len + nlh->nlmsg_len > sizeof(reply->data))
				return -EMSGSIZE;
			memcpy(reply->data + reply->len, nlh, nlh->nlmsg_len);
			reply->len += NLMSG_ALIGN(nlh->nlmsg_len);
			reply->nmessages++;
		}
	}
}

/* Attributes of the message at *off, which is moved on. */
static bool next(struct reply *reply, size_t *off, struct nlattr *attrs[MAX_ATTRS])
{
	struct nlmsghdr *nlh = (void *)(reply->data + *off);

	if (*off >= reply->len)
		return false;
	parse((char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN,
	      nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
	*off += NLMSG_ALIGN(nlh->nlmsg_len);
	return true;
}

FIXTURE(genl) {
	int sock;
	int family;
	struct request rq;
	struct reply reply;
	struct nlattr *family_attrs[MAX_ATTRS];
};

FIXTURE_SETUP(genl)
{
	size_t off = 0;

	self->sock = open_netlink();
	ASSERT_LE(0, self->sock);
	begin(&self->rq, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	put(&self->rq, CTRL_ATTR_FAMILY_NAME, NPULINK_GENL_NAME, sizeof(NPULINK_GENL_NAME));
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	ASSERT_EQ(0, self->reply.error);
	ASSERT_TRUE(next(&self->reply, &off, self->family_attrs));
	self->family = *(uint16_t *)value(self->family_attrs[CTRL_ATTR_FAMILY_ID]);
}

FIXTURE_TEARDOWN(genl)
{
	close(self->sock);
}

/* The kernel sends as much at once as the largest buffer that a socket has read into. */
static void reopen(FIXTURE_DATA(genl) *self)
{
	close(self->sock);
	self->sock = open_netlink();
}

TEST_F(genl, family)
{
	struct nlattr *groups[MAX_ATTRS], *group[MAX_ATTRS], *attr;

	EXPECT_EQ(NPULINK_GENL_VERSION, u32(self->family_attrs[CTRL_ATTR_VERSION]));
	attr = self->family_attrs[CTRL_ATTR_MCAST_GROUPS];
	ASSERT_NE(NULL, attr);
	parse(value(attr), attr->nla_len - NLA_HDRLEN, groups);
	ASSERT_NE(NULL, groups[1]);
	parse(value(groups[1]), groups[1]->nla_len - NLA_HDRLEN, group);
	EXPECT_STREQ(NPULINK_GENL_GROUP_EVENTS, value(group[CTRL_ATTR_MCAST_GRP_NAME]));
}

TEST_F(genl, device)
{
	struct nlattr *attrs[MAX_ATTRS];
	size_t off = 0;

	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put_u32(&self->rq, NPULINK_A_DEV_ID, 7);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(0, self->reply.error);
	ASSERT_EQ(1, self->reply.nmessages);
	ASSERT_TRUE(next(&self->reply, &off, attrs));
	for (int i = NPULINK_A_DEV_ID; i <= NPULINK_A_DEV_MAX; i++)
		EXPECT_NE(NULL, attrs[i]);
	EXPECT_EQ(7, u32(attrs[NPULINK_A_DEV_ID]));
	EXPECT_STREQ("npu7", value(attrs[NPULINK_A_DEV_NAME]));
	EXPECT_STREQ("soft", value(attrs[NPULINK_A_DEV_BACKEND]));
}

/* However small the reader's buffer is: every device once, in order. */
TEST_F(genl, device_dump)
{
	static const size_t sizes[] = { 32768, 8192, 4096 };

	for (int i = 0; i < 3; i++) {
		struct nlattr *attrs[MAX_ATTRS];
		uint32_t expected = 0;
		size_t off = 0;

		begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
		reopen(self);
		ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, sizes[i]));
		EXPECT_EQ(0, self->reply.error);
		EXPECT_EQ(NDEV, self->reply.nmessages);
		while (next(&self->reply, &off, attrs))
			EXPECT_EQ(expected++, u32(attrs[NPULINK_A_DEV_ID]));
		if (sizes[i] == 4096)
			EXPECT_LT(2, self->reply.nreads);
	}
}

TEST_F(genl, links)
{
	char *tree = getenv("NPULINK_TREE"), command[512];
	struct nlattr *attrs[MAX_ATTRS];
	unsigned int nlinks = 0;
	uint64_t bytes = 0;
	long last = -1;
	size_t off = 0;

	/* Traffic, so that there are links: 12 devices, all to all. */
	snprintf(command, sizeof(command),
		 "%s/build/tools/npulink bench alltoall -a pairwise -p 12 -b 48K -e 48K -n 1 -c 0 >/dev/null",
		 tree ?: ".");
	ASSERT_EQ(0, system(command));
	begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	reopen(self);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 4096));
	EXPECT_EQ(0, self->reply.error);
	EXPECT_LT(2, self->reply.nreads);
	while (next(&self->reply, &off, attrs)) {
		for (int i = NPULINK_A_LINK_DEV; i <= NPULINK_A_LINK_MAX; i++)
			ASSERT_NE(NULL, attrs[i]);
		long key = u32(attrs[NPULINK_A_LINK_DEV]) * 1000L +
			   u32(attrs[NPULINK_A_LINK_PEER]);

		EXPECT_LT(last, key);
		last = key;
		EXPECT_NE(u32(attrs[NPULINK_A_LINK_DEV]), u32(attrs[NPULINK_A_LINK_PEER]));
		bytes += *(uint64_t *)value(attrs[NPULINK_A_LINK_BYTES]);
		nlinks++;
	}
	EXPECT_LE(12 * 11, nlinks);
	/* Every rank sent 4 KiB to each of the others. */
	EXPECT_LE(12 * 11 * 4096, bytes);

	begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	put_u32(&self->rq, NPULINK_A_LINK_DEV, 5);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(0, self->reply.error);
	EXPECT_LE(11, self->reply.nmessages);
	for (off = 0; next(&self->reply, &off, attrs);)
		EXPECT_EQ(5, u32(attrs[NPULINK_A_LINK_DEV]));
}

TEST_F(genl, err_no_such_device)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put_u32(&self->rq, NPULINK_A_DEV_ID, 4000000000U);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-ENODEV, self->reply.error);
	EXPECT_STREQ("no such device", self->reply.text);
	EXPECT_EQ(NLMSG_HDRLEN + GENL_HDRLEN, self->reply.bad_attr);

	begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, NLM_F_DUMP);
	put_u32(&self->rq, NPULINK_A_LINK_DEV, NDEV);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-ENODEV, self->reply.error);
}

TEST_F(genl, err_attribute_missing)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_attribute_unknown)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	put_u32(&self->rq, NPULINK_A_DEV_MAX + 1, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	/* Known, but only in answers. */
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	put_u32(&self->rq, NPULINK_A_DEV_SLICE, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_attribute_of_wrong_size)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put(&self->rq, NPULINK_A_DEV_ID, "\0\0\0\0\0\0\0", 8);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, 0);
	put(&self->rq, NPULINK_A_DEV_ID, "\0\0", 2);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
}

TEST_F(genl, err_dump_of_one_device)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
	put_u32(&self->rq, NPULINK_A_DEV_ID, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	/* 6.1 has nowhere to put a text when a dump starts. */
	if (*self->reply.text)
		EXPECT_STREQ("a dump is of all devices", self->reply.text);
}

TEST_F(genl, err_unknown_command)
{
	begin(&self->rq, self->family, NPULINK_GENL_CMD_MAX + 1, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->reply.error);
	/* Links have no do. */
	begin(&self->rq, self->family, NPULINK_GENL_CMD_LINK_GET, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EOPNOTSUPP, self->reply.error);
}

static void put_port(struct request *rq, uint32_t dev, const char *kind, const char *name)
{
	put_u32(rq, NPULINK_A_PORT_DEV, dev);
	put(rq, NPULINK_A_PORT_KIND, kind, strlen(kind) + 1);
	put(rq, NPULINK_A_PORT_NAME, name, strlen(name) + 1);
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
		begin(&self->rq, self->family, tries[i].cmd, 0);
		put_port(&self->rq, tries[i].dev, tries[i].kind, tries[i].name);
		ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
		EXPECT_EQ(tries[i].error, self->reply.error) {
			TH_LOG("try %zu", i);
		}
	}
	begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_ADD, 0);
	put_u32(&self->rq, NPULINK_A_PORT_DEV, 0);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
	EXPECT_EQ(-EINVAL, self->reply.error);
	begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_GET, NLM_F_DUMP);
	ASSERT_EQ(0, talk(self->sock, &self->rq, &self->reply, 32768));
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
		sock = open_netlink();
		begin(&self->rq, self->family, NPULINK_GENL_CMD_PORT_ADD, 0);
		put_port(&self->rq, 0, "rdma", "rxe0/1");
		if (talk(sock, &self->rq, &self->reply, 32768))
			_exit(2);
		_exit(self->reply.error == -EPERM ? 0 : 3);
	}
	waitpid(pid, &status, 0);
	EXPECT_EQ(0, status);
}

/* In a child, which changes who and where it is. Returns the number of devices. */
static int dump_elsewhere(int family, bool other_net, bool other_user)
{
	static struct request rq;
	static struct reply reply;
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int sock;

		if (other_net && unshare(CLONE_NEWNET))
			_exit(200);
		if (other_user && (setgid(65534) || setuid(65534)))
			_exit(201);
		sock = open_netlink();
		begin(&rq, family, NPULINK_GENL_CMD_DEV_GET, NLM_F_DUMP);
		if (talk(sock, &rq, &reply, 32768) || reply.error)
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
