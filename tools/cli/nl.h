/* SPDX-License-Identifier: GPL-2.0 */
/*
 * nl.h - one request over the netlink family, for the files that know what it is about.
 */
#ifndef TOOL_NL_H
#define TOOL_NL_H

#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/npulink_genl.h>

/* A list that grows as replies come in; a reply is read by one of the two. */
struct list {
	void *items;
	size_t n, cap, size;
	int (*parse)(struct nlattr **attrs, void *item);
	int (*parse_all)(struct nlmsghdr *nlh, struct nlattr **attrs, void *item);
	int maxattr;
	int error;
};

/* A socket, to be freed also after an error. The family, or -errno. */
int nl_open(struct nl_sock **sock);
/* Ask, with @attr unless it is 0, and have @fn called with each message. 0 or -errno. */
int nl_ask(int cmd, int attr, uint32_t value, bool dump, nl_recvmsg_msg_cb_t fn, void *arg);
/* Ask for a list; @attr says about what unless @id is ANY_DEV. 0 or -errno. */
int nl_list(int cmd, int attr, uint32_t id, bool dump, struct list *list, void **items, size_t *n);
/* What a system call needs that is refused with EPERM and its like. */
#define NL_FORBIDDEN	"a seccomp profile, or RestrictAddressFamilies= of its service, may forbid it"

/* -errno for what libnl returns, 0 if that is no error; @error: the kernel's answer, else 0. */
int nl_errno(int nle, int error);
uint32_t get_u32(struct nlattr **attrs, int attr);
uint64_t get_u64(struct nlattr **attrs, int attr);
void get_str(struct nlattr **attrs, int attr, char *buf, size_t size);

#endif /* TOOL_NL_H */
