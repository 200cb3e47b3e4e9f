// SPDX-License-Identifier: GPL-2.0
/*
 * nl.c - requests over the generic netlink family "npulink" (linux/npulink_genl.h), and
 * lists of what comes back. What the objects are is known to nl_dev.c and state_nl.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/nl.h"
#include "cli/npulink.h"

static void *list_add(struct list *list)
{
	void *items;

	if (list->n == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		items = reallocarray(list->items, list->cap, list->size);
		if (!items)
			return NULL;
		list->items = items;
	}
	return memset((char *)list->items + list->n++ * list->size, 0, list->size);
}

uint32_t get_u32(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u32(attrs[attr]) : 0;
}

uint64_t get_u64(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u64(attrs[attr]) : 0;
}

void get_str(struct nlattr **attrs, int attr, char *buf, size_t size)
{
	if (attrs[attr])
		nla_strlcpy(buf, attrs[attr], size);
}

static int on_message(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[64];
	struct list *list = arg;
	void *item;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, attrs, list->maxattr, NULL) < 0) {
		list->error = -EPROTO;
		return NL_SKIP;
	}
	item = list_add(list);
	if (!item)
		list->error = -ENOMEM;
	else if (!list->error)
		list->error = list->parse_all ? list->parse_all(nlmsg_hdr(msg), attrs, item) :
						list->parse(attrs, item);
	return NL_OK;
}

/*
 * libnl has codes of its own, which stand for many an errno. @error: what the kernel has answered;
 * else what a system call said; else one of those that mean something here.
 */
int nl_errno(int nle, int error)
{
	if (error || nle >= 0)
		return error;
	if (errno)
		return -errno;
	switch (-nle) {
	case NLE_NODEV:		return -ENODEV;
	case NLE_NOMEM:		return -ENOMEM;
	case NLE_PERM:
	case NLE_NOACCESS:	return -EPERM;
	case NLE_OBJ_NOTFOUND:	return -ENOENT;
	case NLE_OPNOTSUPP:	return -EOPNOTSUPP;
	case NLE_DUMP_INTR:	return -EAGAIN;
	default:		return -EIO;
	}
}

int nl_open(struct nl_sock **sock)
{
	int rc;

	*sock = nl_socket_alloc();
	if (!*sock)
		return -ENOMEM;
	errno = 0;
	rc = genl_connect(*sock);
	if (rc < 0)
		return nl_errno(rc, 0);
	/* Replies of a dump are as large as the reader allows. */
	nl_socket_set_msg_buf_size(*sock, 64 * 1024);
	errno = 0;
	rc = genl_ctrl_resolve(*sock, NPULINK_GENL_NAME);
	/* It calls any failure that: then a system call has failed. */
	return rc == -NLE_OBJ_NOTFOUND && !errno ? -ENOPROTOOPT : rc < 0 ? nl_errno(rc, 0) : rc;
}

static int on_error(struct sockaddr_nl *who, struct nlmsgerr *err, void *arg)
{
	*(int *)arg = err->error;
	return NL_STOP;
}

int nl_ask(int cmd, int attr, uint32_t value, bool dump, nl_recvmsg_msg_cb_t fn, void *arg)
{
	struct nl_msg *msg = nlmsg_alloc();
	struct nl_sock *sock;
	int rc = nl_open(&sock), error = 0;

	if (rc < 0)
		goto out;
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, fn, arg);
	nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, on_error, &error);
	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, rc, 0, dump ? NLM_F_DUMP : 0,
				 cmd, NPULINK_GENL_VERSION) ||
	    (attr && nla_put_u32(msg, attr, value))) {
		rc = -ENOMEM;
		goto out;
	}
	errno = 0;
	rc = nl_send_auto(sock, msg);
	if (rc >= 0)
		rc = nl_recvmsgs_default(sock);
	/* A single reply is followed by an ACK. */
	if (rc >= 0 && !error && !dump)
		rc = nl_wait_for_ack(sock);
	rc = nl_errno(rc, error);
out:
	nlmsg_free(msg);
	nl_socket_free(sock);
	return rc;
}

int nl_list(int cmd, int attr, uint32_t id, bool dump, struct list *list, void **items, size_t *n)
{
	int rc = nl_ask(cmd, id == ANY_DEV ? 0 : attr, id, dump, on_message, list);

	rc = rc ? rc : list->error;
	if (rc) {
		free(list->items);
		return rc;
	}
	*items = list->items;
	*n = list->n;
	return 0;
}

int nl_fail(int rc, uint32_t id)
{
	switch (rc) {
	case -ENOPROTOOPT:
		if (!access("/sys/module/npulink", F_OK))
			return fail("npulink is loaded, but its netlink family is not there: is it just being loaded, or removed? See: npulink doctor");
		return fail("the kernel module is not loaded; try: modprobe npulink_soft, "
			    "or: npulink doctor");
	case -EPERM:
	case -EACCES:
	case -EAFNOSUPPORT:
	case -ENOSYS:
		return fail("cannot use netlink: %s: " NL_FORBIDDEN, strerror(-rc));
	case -EMFILE:
		return fail("cannot use netlink: %s: raise the limit (ulimit -n)", strerror(-rc));
	case -ENODEV:
		return fail("there is no device npu%u; see: npulink dev show", id);
	default:
		return fail("cannot read from the kernel over netlink: %s", strerror(-rc));
	}
}
