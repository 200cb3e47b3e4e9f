// SPDX-License-Identifier: GPL-2.0
/*
 * nl.c - reads devices and links over the generic netlink family "npulink"
 * (linux/npulink_genl.h).
 */
#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/netlink.h>
#include <linux/npulink_genl.h>
#include "nl.h"
#include "npulink.h"

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

static int parse_dev_attrs(struct nlattr **attrs, void *item)
{
	struct dev *dev = item;

	if (!attrs[NPULINK_A_DEV_ID])
		return -EPROTO;
	dev->id = get_u32(attrs, NPULINK_A_DEV_ID);
	get_str(attrs, NPULINK_A_DEV_NAME, dev->name, sizeof(dev->name));
	get_str(attrs, NPULINK_A_DEV_BACKEND, dev->backend, sizeof(dev->backend));
	get_str(attrs, NPULINK_A_DEV_ENGINE, dev->engine, sizeof(dev->engine));
	dev->dtypes = get_u32(attrs, NPULINK_A_DEV_DTYPES);
	dev->redops = get_u32(attrs, NPULINK_A_DEV_REDOPS);
	dev->slice = get_u32(attrs, NPULINK_A_DEV_SLICE);
	dev->inline_max = get_u32(attrs, NPULINK_A_DEV_INLINE_MAX);
	dev->doorbells = get_u32(attrs, NPULINK_A_DEV_DOORBELLS);
	dev->requests = get_u64(attrs, NPULINK_A_DEV_REQUESTS);
	dev->inline_done = get_u64(attrs, NPULINK_A_DEV_INLINE_DONE);
	dev->interrupts = get_u64(attrs, NPULINK_A_DEV_INTERRUPTS);
	dev->bytes_read = get_u64(attrs, NPULINK_A_DEV_BYTES_READ);
	dev->bytes_written = get_u64(attrs, NPULINK_A_DEV_BYTES_WRITTEN);
	return 0;
}

static int parse_link_attrs(struct nlattr **attrs, void *item)
{
	struct link *link = item;

	if (!attrs[NPULINK_A_LINK_DEV] || !attrs[NPULINK_A_LINK_PEER])
		return -EPROTO;
	link->dev = get_u32(attrs, NPULINK_A_LINK_DEV);
	link->peer = get_u32(attrs, NPULINK_A_LINK_PEER);
	link->steps = get_u64(attrs, NPULINK_A_LINK_STEPS);
	link->bytes = get_u64(attrs, NPULINK_A_LINK_BYTES);
	link->doorbells = get_u64(attrs, NPULINK_A_LINK_DOORBELLS);
	link->inline_bells = get_u64(attrs, NPULINK_A_LINK_INLINE_BELLS);
	link->damaged = get_u64(attrs, NPULINK_A_LINK_DAMAGED);
	return 0;
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

/* libnl has codes of its own; only those that mean something here. */
int nle_to_errno(int nle)
{
	switch (-nle) {
	case 0:			return 0;
	case NLE_NODEV:		return -ENODEV;
	case NLE_NOMEM:		return -ENOMEM;
	case NLE_PERM:
	case NLE_NOACCESS:	return -EPERM;
	case NLE_OBJ_NOTFOUND:	return -ENOPROTOOPT;
	case NLE_OPNOTSUPP:	return -EOPNOTSUPP;
	case NLE_DUMP_INTR:	return -EAGAIN;
	default:		return -EIO;
	}
}

int nl_request(int cmd, int attr, uint32_t id, bool dump, struct list *list)
{
	struct nl_sock *sock = nl_socket_alloc();
	struct nl_msg *msg = NULL;
	int family, rc;

	if (!sock)
		return -ENOMEM;
	rc = genl_connect(sock);
	if (rc < 0)
		goto out;
	/* Replies of a dump are as large as the reader allows. */
	nl_socket_set_msg_buf_size(sock, 64 * 1024);
	family = genl_ctrl_resolve(sock, NPULINK_GENL_NAME);
	if (family < 0) {
		rc = family;
		goto out;
	}
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, on_message, list);
	msg = nlmsg_alloc();
	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0,
				 dump ? NLM_F_DUMP : 0, cmd, NPULINK_GENL_VERSION) ||
	    (id != ANY_DEV && nla_put_u32(msg, attr, id))) {
		rc = -NLE_NOMEM;
		goto out;
	}
	rc = nl_send_auto(sock, msg);
	if (rc >= 0)
		rc = nl_recvmsgs_default(sock);
	/* A single reply is followed by an ACK. */
	if (rc >= 0 && !dump)
		rc = nl_wait_for_ack(sock);
out:
	nlmsg_free(msg);
	nl_socket_free(sock);
	rc = nle_to_errno(rc < 0 ? rc : 0);
	return rc ? rc : list->error;
}

static int parse_port_attrs(struct nlattr **attrs, void *item)
{
	struct port *port = item;

	if (!attrs[NPULINK_A_PORT_DEV] || !attrs[NPULINK_A_PORT_IP] ||
	    nla_len(attrs[NPULINK_A_PORT_IP]) != sizeof(port->ip))
		return -EPROTO;
	port->dev = get_u32(attrs, NPULINK_A_PORT_DEV);
	get_str(attrs, NPULINK_A_PORT_KIND, port->kind, sizeof(port->kind));
	get_str(attrs, NPULINK_A_PORT_NAME, port->name, sizeof(port->name));
	memcpy(port->ip, nla_data(attrs[NPULINK_A_PORT_IP]), sizeof(port->ip));
	if (attrs[NPULINK_A_PORT_CM])
		port->cm = nla_get_u16(attrs[NPULINK_A_PORT_CM]);
	return 0;
}

int nl_ports(struct port **ports, size_t *nports)
{
	struct list list = {
		.size = sizeof(struct port),
		.parse = parse_port_attrs,
		.maxattr = NPULINK_A_PORT_MAX,
	};
	int rc;

	rc = nl_request(NPULINK_GENL_CMD_PORT_GET, 0, ANY_DEV, true, &list);
	if (rc) {
		free(list.items);
		return rc;
	}
	*ports = list.items;
	*nports = list.n;
	return 0;
}

/* What the kernel says against a request: errno, and a text if it has one. */
struct refusal {
	int error;
	char text[160];
};

static int on_error(struct sockaddr_nl *who, struct nlmsgerr *err, void *arg)
{
	struct nlmsghdr *nlh = (struct nlmsghdr *)((char *)err - NLMSG_HDRLEN);
	struct nlattr *attrs[NLMSGERR_ATTR_MAX + 1];
	struct refusal *refusal = arg;
	size_t skip = sizeof(*err);

	refusal->error = err->error;
	if (!(nlh->nlmsg_flags & NLM_F_CAPPED))
		skip += err->msg.nlmsg_len - NLMSG_HDRLEN;
	skip = NLMSG_ALIGN(skip);
	if (nlh->nlmsg_flags & NLM_F_ACK_TLVS && nlh->nlmsg_len >= NLMSG_HDRLEN + skip &&
	    !nla_parse(attrs, NLMSGERR_ATTR_MAX, (struct nlattr *)((char *)err + skip),
		       nlh->nlmsg_len - NLMSG_HDRLEN - skip, NULL) &&
	    attrs[NLMSGERR_ATTR_MSG])
		nla_strlcpy(refusal->text, attrs[NLMSGERR_ATTR_MSG], sizeof(refusal->text));
	return NL_STOP;
}

/* Bind a port to a device, or undo it. -errno, and why, if the kernel says so. */
int nl_port(bool add, uint32_t dev, const char *kind, const char *name, char *why, size_t size)
{
	struct nl_sock *sock = nl_socket_alloc();
	struct refusal refusal = { };
	struct nl_msg *msg = NULL;
	int family, rc, on = 1;

	if (!sock)
		return -ENOMEM;
	rc = genl_connect(sock);
	if (rc < 0)
		goto out;
	setsockopt(nl_socket_get_fd(sock), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
	family = genl_ctrl_resolve(sock, NPULINK_GENL_NAME);
	if (family < 0) {
		rc = family;
		goto out;
	}
	nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, on_error, &refusal);
	msg = nlmsg_alloc();
	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, NLM_F_ACK,
				 add ? NPULINK_GENL_CMD_PORT_ADD : NPULINK_GENL_CMD_PORT_DEL,
				 NPULINK_GENL_VERSION) ||
	    nla_put_u32(msg, NPULINK_A_PORT_DEV, dev) ||
	    nla_put_string(msg, NPULINK_A_PORT_KIND, kind) ||
	    nla_put_string(msg, NPULINK_A_PORT_NAME, name)) {
		rc = -NLE_NOMEM;
		goto out;
	}
	rc = nl_send_auto(sock, msg);
	if (rc >= 0)
		rc = nl_recvmsgs_default(sock);
out:
	nlmsg_free(msg);
	nl_socket_free(sock);
	snprintf(why, size, "%s", refusal.text);
	return refusal.error ? refusal.error : nle_to_errno(rc < 0 ? rc : 0);
}

int nl_devs(uint32_t id, struct dev **devs, size_t *ndevs)
{
	struct list list = {
		.size = sizeof(struct dev),
		.parse = parse_dev_attrs,
		.maxattr = NPULINK_A_DEV_MAX,
	};
	int rc;

	rc = nl_request(NPULINK_GENL_CMD_DEV_GET, NPULINK_A_DEV_ID, id, id == ANY_DEV, &list);
	if (rc) {
		free(list.items);
		return rc;
	}
	*devs = list.items;
	*ndevs = list.n;
	return 0;
}

int nl_links(uint32_t id, struct link **links, size_t *nlinks)
{
	struct list list = {
		.size = sizeof(struct link),
		.parse = parse_link_attrs,
		.maxattr = NPULINK_A_LINK_MAX,
	};
	int rc;

	rc = nl_request(NPULINK_GENL_CMD_LINK_GET, NPULINK_A_LINK_DEV, id, true, &list);
	if (rc) {
		free(list.items);
		return rc;
	}
	*links = list.items;
	*nlinks = list.n;
	return 0;
}

int nl_fail(int rc, uint32_t id)
{
	switch (rc) {
	case -ENOPROTOOPT:
		return fail("the kernel module is not loaded; try: modprobe npulink_soft, "
			    "or: npulink doctor");
	case -ENODEV:
		return fail("there is no device npu%u; see: npulink dev show", id);
	default:
		return fail("cannot read from the kernel over netlink: %s", strerror(-rc));
	}
}
