/* SPDX-License-Identifier: GPL-2.0 */
/*
 * nl.h - the generic netlink family by hand, for tests of the kernel itself.
 */
#ifndef SELFTESTS_NL_H
#define SELFTESTS_NL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>

#define NL_ATTRS	64

struct nl_request {
	struct nlmsghdr nlh;
	struct genlmsghdr genlh;
	char attrs[256];
};

/* What came back: messages one after the other, and the final error. */
struct nl_reply {
	char data[65536];
	size_t len;
	unsigned int nmessages, nreads;
	int error;		/* of the ACK, or of the end of the dump */
	char text[128];		/* extended ACK */
	uint16_t bad_attr;	/* offset that it points to */
};

static inline void nl_begin(struct nl_request *rq, int family, int cmd, int flags)
{
	memset(rq, 0, sizeof(*rq));
	rq->nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
	rq->nlh.nlmsg_type = family;
	rq->nlh.nlmsg_flags = NLM_F_REQUEST | flags;
	rq->nlh.nlmsg_seq = 1;
	rq->genlh.cmd = cmd;
	rq->genlh.version = 1;
}

static inline void nl_put(struct nl_request *rq, int type, const void *data, size_t len)
{
	struct nlattr *attr = (void *)((char *)rq + NLMSG_ALIGN(rq->nlh.nlmsg_len));

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	memcpy((char *)attr + NLA_HDRLEN, data, len);
	rq->nlh.nlmsg_len = NLMSG_ALIGN(rq->nlh.nlmsg_len) + NLA_ALIGN(attr->nla_len);
}

static inline void nl_put_u32(struct nl_request *rq, int type, uint32_t value)
{
	nl_put(rq, type, &value, sizeof(value));
}

static inline void nl_parse(char *data, size_t len, struct nlattr *attrs[NL_ATTRS])
{
	memset(attrs, 0, NL_ATTRS * sizeof(*attrs));
	while (len >= NLA_HDRLEN) {
		struct nlattr *attr = (void *)data;
		size_t step = NLA_ALIGN(attr->nla_len);

		if (attr->nla_len < NLA_HDRLEN || attr->nla_len > len)
			return;
		if ((attr->nla_type & NLA_TYPE_MASK) < NL_ATTRS)
			attrs[attr->nla_type & NLA_TYPE_MASK] = attr;
		data += step;
		len -= step < len ? step : len;
	}
}

static inline void *nl_value(struct nlattr *attr)
{
	return (char *)attr + NLA_HDRLEN;
}

static inline uint32_t nl_u32(struct nlattr *attr)
{
	return *(uint32_t *)nl_value(attr);
}

static inline void nl_note_error(struct nl_reply *reply, struct nlmsghdr *nlh, int error,
				 size_t skip)
{
	struct nlattr *attrs[NL_ATTRS];

	reply->error = error;
	if (!(nlh->nlmsg_flags & NLM_F_ACK_TLVS))
		return;
	nl_parse((char *)nlh + NLMSG_HDRLEN + skip, nlh->nlmsg_len - NLMSG_HDRLEN - skip, attrs);
	if (attrs[NLMSGERR_ATTR_MSG])
		snprintf(reply->text, sizeof(reply->text), "%s",
			 (char *)nl_value(attrs[NLMSGERR_ATTR_MSG]));
	if (attrs[NLMSGERR_ATTR_OFFS])
		reply->bad_attr = nl_u32(attrs[NLMSGERR_ATTR_OFFS]);
}

static inline int nl_open(void)
{
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), one = 1;
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK };

	if (sock >= 0) {
		/* Without an address it hears no events. */
		bind(sock, (struct sockaddr *)&addr, sizeof(addr));
		setsockopt(sock, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
		setsockopt(sock, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	}
	return sock;
}

/* Send it, collect all that comes back, @buf_size bytes at most in one read. */
static inline int nl_talk(int sock, struct nl_request *rq, struct nl_reply *reply, size_t buf_size)
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
				nl_note_error(reply, nlh, error, sizeof(struct nlmsgerr));
				return 0;
			}
			if (nlh->nlmsg_type == NLMSG_DONE) {
				nl_note_error(reply, nlh, error, sizeof(int));
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

/* Dump, and only count what comes; -errno if it fails. */
static inline int nl_count(int family, int cmd)
{
	int sock = nl_open(), n = 0;
	struct nl_request rq;
	static char buf[65536];
	ssize_t len;

	nl_begin(&rq, family, cmd, NLM_F_DUMP);
	if (send(sock, &rq, rq.nlh.nlmsg_len, 0) < 0)
		n = -errno;
	while (n >= 0 && (len = recv(sock, buf, sizeof(buf), 0)) > 0) {
		struct nlmsghdr *nlh = (void *)buf;

		for (; NLMSG_OK(nlh, len); nlh = NLMSG_NEXT(nlh, len)) {
			if (nlh->nlmsg_type == NLMSG_DONE || nlh->nlmsg_type == NLMSG_ERROR) {
				int error = *(int *)NLMSG_DATA(nlh);

				close(sock);
				return error < 0 ? error : n;
			}
			n++;
		}
	}
	close(sock);
	return n < 0 ? n : -EIO;
}

/* Attributes of the message at *off, which is moved on. */
static inline bool nl_next(struct nl_reply *reply, size_t *off, struct nlattr *attrs[NL_ATTRS])
{
	struct nlmsghdr *nlh = (void *)(reply->data + *off);

	if (*off >= reply->len)
		return false;
	nl_parse((char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN,
		 nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
	*off += NLMSG_ALIGN(nlh->nlmsg_len);
	return true;
}

static inline uint64_t nl_u64(struct nlattr *attr)
{
	uint64_t value;

	memcpy(&value, nl_value(attr), sizeof(value));
	return value;
}

/* The id of the family, or -errno; *group: of its multicast group. */
static inline int nl_family(int sock, uint32_t *group)
{
	struct nlattr *attrs[NL_ATTRS], *groups[NL_ATTRS], *one[NL_ATTRS], *attr;
	static struct nl_request rq;
	static struct nl_reply reply;
	size_t off = 0;
	int rc;

	nl_begin(&rq, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	nl_put(&rq, CTRL_ATTR_FAMILY_NAME, NPULINK_GENL_NAME, sizeof(NPULINK_GENL_NAME));
	rc = nl_talk(sock, &rq, &reply, 32768);
	if (rc || reply.error || !nl_next(&reply, &off, attrs))
		return rc ? rc : reply.error ? reply.error : -ENOENT;
	attr = attrs[CTRL_ATTR_MCAST_GROUPS];
	if (group && attr) {
		nl_parse(nl_value(attr), attr->nla_len - NLA_HDRLEN, groups);
		nl_parse(nl_value(groups[1]), groups[1]->nla_len - NLA_HDRLEN, one);
		*group = nl_u32(one[CTRL_ATTR_MCAST_GRP_ID]);
	}
	return *(uint16_t *)nl_value(attrs[CTRL_ATTR_FAMILY_ID]);
}

/* Communicators that there are, or -errno. */
static inline int nl_comms(void)
{
	int sock = nl_open(), family = nl_family(sock, NULL);

	close(sock);
	return family < 0 ? family : nl_count(family, NPULINK_GENL_CMD_COMM_GET);
}

#endif /* SELFTESTS_NL_H */
