// SPDX-License-Identifier: GPL-2.0
/*
 * nl_dev.c - reads devices, links between them and ports over the generic netlink family
 * "npulink", and binds ports.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/netlink.h>
#include "cli/nl.h"
#include "cli/npulink.h"

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
	dev->memory = get_u64(attrs, NPULINK_A_DEV_MEMORY);
	dev->memory_used = get_u64(attrs, NPULINK_A_DEV_MEMORY_USED);
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
	link->errors = get_u64(attrs, NPULINK_A_LINK_ERRORS);
	link->moves = get_u64(attrs, NPULINK_A_LINK_MOVES);
	link->move_bytes = get_u64(attrs, NPULINK_A_LINK_MOVE_BYTES);
	link->move_ns = get_u64(attrs, NPULINK_A_LINK_MOVE_NS);
	link->down = get_u32(attrs, NPULINK_A_LINK_STATE) == NPULINK_LINK_STATE_DOWN;
	get_str(attrs, NPULINK_A_LINK_TYPE, link->type, sizeof(link->type));
	return 0;
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

int nl_devs(uint32_t id, struct dev **devs, size_t *ndevs)
{
	struct list list = {
		.size = sizeof(**devs), .parse = parse_dev_attrs, .maxattr = NPULINK_A_DEV_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_DEV_GET, NPULINK_A_DEV_ID, id, id == ANY_DEV, &list,
		       (void **)devs, ndevs);
}

int nl_links(uint32_t id, struct link **links, size_t *nlinks)
{
	struct list list = {
		.size = sizeof(**links), .parse = parse_link_attrs, .maxattr = NPULINK_A_LINK_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_LINK_GET, NPULINK_A_LINK_DEV, id, true, &list,
		       (void **)links, nlinks);
}

int nl_ports(struct port **ports, size_t *nports)
{
	struct list list = {
		.size = sizeof(**ports), .parse = parse_port_attrs, .maxattr = NPULINK_A_PORT_MAX,
	};

	return nl_list(NPULINK_GENL_CMD_PORT_GET, 0, ANY_DEV, true, &list, (void **)ports, nports);
}

/* ---- binding ports */

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
int nl_port(bool add, uint32_t dev, const char *kind, const char *name, bool *answered, char *why,
	    size_t size)
{
	struct nl_msg *msg = nlmsg_alloc();
	struct refusal refusal = { };
	struct nl_sock *sock;
	int rc, on = 1;

	rc = nl_open(&sock);
	if (rc < 0)
		goto out;
	setsockopt(nl_socket_get_fd(sock), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
	nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, on_error, &refusal);
	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, rc, 0, NLM_F_ACK,
				 add ? NPULINK_GENL_CMD_PORT_ADD : NPULINK_GENL_CMD_PORT_DEL,
				 NPULINK_GENL_VERSION) ||
	    nla_put_u32(msg, NPULINK_A_PORT_DEV, dev) ||
	    nla_put_string(msg, NPULINK_A_PORT_KIND, kind) ||
	    nla_put_string(msg, NPULINK_A_PORT_NAME, name)) {
		rc = -ENOMEM;
		goto out;
	}
	errno = 0;
	rc = nl_send_auto(sock, msg);
	if (rc >= 0)
		rc = nl_recvmsgs_default(sock);
	rc = nl_errno(rc, 0);
out:
	nlmsg_free(msg);
	nl_socket_free(sock);
	*answered = refusal.error;
	snprintf(why, size, "%s", refusal.text);
	return refusal.error ? refusal.error : rc;
}
