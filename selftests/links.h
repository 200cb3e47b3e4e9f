/* SPDX-License-Identifier: GPL-2.0 */
/*
 * links.h - what the kernel counts on the links between devices, over generic netlink.
 */
#ifndef SELFTESTS_LINKS_H
#define SELFTESTS_LINKS_H

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS_DEVS	32

struct links {
	uint64_t steps[LINKS_DEVS][LINKS_DEVS];	/* [from][to] */
	uint64_t bytes[LINKS_DEVS][LINKS_DEVS];
	uint64_t damaged[LINKS_DEVS][LINKS_DEVS];
	uint64_t bells;				/* on all links, with and without interrupt */
};

struct links_request {
	struct nlmsghdr nlh;
	struct genlmsghdr genl;
	struct nlattr attr;
	char name[16];
};

static inline const void *links_attr(const struct nlmsghdr *nlh, int type)
{
	const char *at = (const char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN;
	const char *end = (const char *)nlh + nlh->nlmsg_len;

	while (at + NLA_HDRLEN <= end) {
		const struct nlattr *attr = (const void *)at;

		if (attr->nla_type == type)
			return at + NLA_HDRLEN;
		at += NLA_ALIGN(attr->nla_len);
	}
	return NULL;
}

static inline void links_note(const struct nlmsghdr *nlh, struct links *links)
{
	const uint32_t *from = links_attr(nlh, NPULINK_A_LINK_DEV);
	const uint32_t *to = links_attr(nlh, NPULINK_A_LINK_PEER);
	const uint64_t *steps = links_attr(nlh, NPULINK_A_LINK_STEPS);
	const uint64_t *bytes = links_attr(nlh, NPULINK_A_LINK_BYTES);
	const uint64_t *damaged = links_attr(nlh, NPULINK_A_LINK_DAMAGED);
	const void *rung = links_attr(nlh, NPULINK_A_LINK_DOORBELLS);
	const void *spared = links_attr(nlh, NPULINK_A_LINK_INLINE_BELLS);
	uint64_t bells;

	if (!from || !to || !steps || !bytes || !damaged || *from >= LINKS_DEVS ||
	    *to >= LINKS_DEVS)
		return;
	memcpy(&links->steps[*from][*to], steps, sizeof(*steps));
	memcpy(&links->bytes[*from][*to], bytes, sizeof(*bytes));
	memcpy(&links->damaged[*from][*to], damaged, sizeof(*damaged));
	for (int i = 0; i < 2; i++) {
		if (!(i ? rung : spared))
			continue;
		memcpy(&bells, i ? rung : spared, sizeof(bells));
		links->bells += bells;
	}
}

/* Sends one request and reads all answers; the family's id, 0, or -1. */
static inline int links_talk(int sock, const struct links_request *rq, struct links *links)
{
	static char buf[65536];
	int family = 0;

	if (send(sock, rq, rq->nlh.nlmsg_len, 0) < 0)
		return -1;
	for (;;) {
		ssize_t n = recv(sock, buf, sizeof(buf), 0);
		struct nlmsghdr *nlh = (void *)buf;

		if (n <= 0)
			return -1;
		for (; NLMSG_OK(nlh, n); nlh = NLMSG_NEXT(nlh, n)) {
			if (nlh->nlmsg_type == NLMSG_DONE)
				return family;
			if (nlh->nlmsg_type == NLMSG_ERROR)
				return *(int *)NLMSG_DATA(nlh) ? -1 : family;
			if (links)
				links_note(nlh, links);
			else if (links_attr(nlh, CTRL_ATTR_FAMILY_ID))
				family = *(uint16_t *)links_attr(nlh, CTRL_ATTR_FAMILY_ID);
		}
	}
}

/* All counters as they are now; 0 or -1. */
static inline int links_read(struct links *links)
{
	struct links_request rq = {
		.nlh = {
			.nlmsg_len = sizeof(rq), .nlmsg_type = GENL_ID_CTRL,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.genl = { .cmd = CTRL_CMD_GETFAMILY, .version = 1 },
		.attr = { sizeof(rq.attr) + sizeof(rq.name), CTRL_ATTR_FAMILY_NAME },
		.name = NPULINK_GENL_NAME,
	};
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), rc;

	memset(links, 0, sizeof(*links));
	rc = sock < 0 ? -1 : links_talk(sock, &rq, NULL);
	if (rc > 0) {
		rq.nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
		rq.nlh.nlmsg_type = rc;
		rq.nlh.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
		rq.genl.cmd = NPULINK_GENL_CMD_LINK_GET;
		rq.genl.version = NPULINK_GENL_VERSION;
		rc = links_talk(sock, &rq, links);
	}
	if (sock >= 0)
		close(sock);
	return rc;
}

#endif /* SELFTESTS_LINKS_H */
