// SPDX-License-Identifier: GPL-2.0
/*
 * exec_net.c - calls of a program on the generic netlink family.
 */
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "exec.h"
#include "raw.h"

static int genl_family(int sock)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genlh;
		struct nlattr attr;
		char name[8];
	} rq = {
		.nlh = { .nlmsg_len = sizeof(rq), .nlmsg_type = GENL_ID_CTRL,
			 .nlmsg_flags = NLM_F_REQUEST },
		.genlh = { .cmd = CTRL_CMD_GETFAMILY, .version = 1 },
		.attr = { .nla_len = NLA_HDRLEN + 8, .nla_type = CTRL_ATTR_FAMILY_NAME },
		.name = NPULINK_GENL_NAME,
	};
	char reply[2048];
	ssize_t len, at;

	if (send(sock, &rq, sizeof(rq), 0) < 0)
		return -1;
	len = recv(sock, reply, sizeof(reply), 0);
	for (at = NLMSG_HDRLEN + GENL_HDRLEN; at + NLA_HDRLEN <= len;) {
		struct nlattr *attr = (void *)(reply + at);

		if (attr->nla_type == CTRL_ATTR_FAMILY_ID)
			return *(uint16_t *)(attr + 1);
		if (attr->nla_len < NLA_HDRLEN)
			break;
		at += NLA_ALIGN(attr->nla_len);
	}
	return -1;
}

void exec_genl(struct rnd *r, uint8_t bend)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genlh;
		uint32_t attrs[64];
	} rq = {};
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), tries, family;
	struct timeval tv = { .tv_usec = 50000 };
	struct nlattr *attr = (void *)rq.attrs;
	char reply[512];

	if (sock < 0)
		return;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	family = genl_family(sock);
	if (family < 0)
		goto out;
	rq.nlh.nlmsg_type = family;
	rq.nlh.nlmsg_flags = NLM_F_REQUEST | (rnd_one_in(r, 2) ? NLM_F_DUMP : 0) |
			     (rnd_one_in(r, 3) ? NLM_F_ACK : 0);
	rq.nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
	rq.genlh.cmd = 1 + rnd_below(r, 2);
	rq.genlh.version = 1;
	if (rnd_one_in(r, 2)) {
		attr->nla_len = NLA_HDRLEN + 4;
		attr->nla_type = rnd_below(r, 5);
		rq.attrs[1] = rnd_one_in(r, 3) ? rnd_odd(r) : rnd_below(r, 9);
		rq.nlh.nlmsg_len += 8;
	}
	while (bend && !rnd_one_in(r, 3)) {
		if (rnd_one_in(r, 2))
			gen_bend_bytes(r, &rq, rq.nlh.nlmsg_len);
		else
			rq.genlh.cmd = rnd_below(r, 12);
		if (rq.nlh.nlmsg_len > sizeof(rq))
			rq.nlh.nlmsg_len = sizeof(rq);
	}
	/* A small buffer: dumps take several messages, and may be left in the middle. */
	if (send(sock, &rq, rq.nlh.nlmsg_len, 0) > 0)
		for (tries = rnd_below(r, 6); tries; tries--)
			if (recv(sock, reply, sizeof(reply), MSG_DONTWAIT) < 0)
				break;
out:
	close(sock);
}
