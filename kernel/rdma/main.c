// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - npulink_rdma.ko: which ports are bound to which NPUs, and where calls come in.
 *
 * There is one listener for each network namespace in which a port is bound and calls are to be
 * taken, on all of its devices; who is called over a port that is not bound does not answer.
 */
#include <linux/module.h>
#include <linux/netlink.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include "rdma.h"

unsigned int rdma_peer_timeout = 3000;

static int rdma_peer_timeout_set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, NPULINK_PEER_TIMEOUT_MIN, NPULINK_PEER_TIMEOUT_MAX);
}

static const struct kernel_param_ops rdma_peer_timeout_ops = {
	.set = rdma_peer_timeout_set,
	.get = param_get_uint,
};

module_param_cb(peer_timeout, &rdma_peer_timeout_ops, &rdma_peer_timeout, 0644);
MODULE_PARM_DESC(peer_timeout, "milliseconds until a machine that does not answer is lost, of communicators that say nothing else (3000)");

atomic_t rdma_keys;
atomic_t rdma_nconns;

static int rdma_count_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(kp->arg));
}

static const struct kernel_param_ops rdma_count_ops = { .get = rdma_count_get };

module_param_cb(keys, &rdma_count_ops, &rdma_keys, 0444);
MODULE_PARM_DESC(keys, "memory keys that are valid now (read only)");
module_param_cb(connections, &rdma_count_ops, &rdma_nconns, 0444);
MODULE_PARM_DESC(connections, "connections between ranks (read only)");

DEFINE_MUTEX(rdma_lock);		/* see rdma.h */
struct workqueue_struct *rdma_wq;
static LIST_HEAD(rdma_devices);
static LIST_HEAD(rdma_listeners);
static LIST_HEAD(rdma_ports);
static DEFINE_SPINLOCK(rdma_ports_lock);	/* rdma_ports; handlers look without rdma_lock */

/* ---- listeners ------------------------------------------------------------------------- */

static int rdma_listener_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return 0;
	return rdma_conn_request(id->context, id, event);
}

/* At port @at, if that is free: it may have been told to peers. */
static int rdma_listener_bind(struct rdma_listener *l, __be16 at)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = at };
	int rc;

	rc = rdma_bind_addr(l->id, (struct sockaddr *)&any);
	if (rc != -EADDRINUSE || !at)
		return rc;
	any.sin6_port = 0;
	return rdma_bind_addr(l->id, (struct sockaddr *)&any);
}

static struct rdma_listener *rdma_listener_get(struct net *net, __be16 at)
{
	struct rdma_listener *l;
	int rc;

	lockdep_assert_held(&rdma_lock);
	list_for_each_entry(l, &rdma_listeners, node) {
		if (l->net == net) {
			l->ports++;
			return l;
		}
	}
	l = kzalloc(sizeof(*l), GFP_KERNEL);
	if (!l)
		return ERR_PTR(-ENOMEM);
	l->net = net;
	l->ports = 1;
	l->id = rdma_create_id(net, rdma_listener_event, l, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(l->id)) {
		rc = PTR_ERR(l->id);
		goto err_free;
	}
	/* IPv4 as well. */
	rc = rdma_set_afonly(l->id, 0);
	if (!rc)
		rc = rdma_listener_bind(l, at);
	if (!rc)
		rc = rdma_listen(l->id, 128);
	if (rc)
		goto err_id;
	list_add_tail(&l->node, &rdma_listeners);
	return l;

err_id:
	rdma_destroy_id(l->id);
err_free:
	kfree(l);
	return ERR_PTR(rc);
}

/* Not under rdma_lock, which its handler takes. */
static void rdma_listener_put(struct rdma_listener *l)
{
	bool last;

	mutex_lock(&rdma_lock);
	last = !--l->ports;
	if (last)
		list_del(&l->node);
	mutex_unlock(&rdma_lock);
	if (!last)
		return;
	rdma_destroy_id(l->id);
	kfree(l);
}

/* ---- ports -------------------------------------------------------------------------------- */

/* May connections of @dev, NULL: of any device, go over that port? */
bool rdma_port_allowed(const struct npulink_device *dev, const struct net *net,
		       const struct ib_device *ibdev, u32 num)
{
	const struct rdma_port *p;
	bool found = false;

	spin_lock(&rdma_ports_lock);
	list_for_each_entry(p, &rdma_ports, node)
		found |= (!dev || p->port->dev == dev) && p->port->net == net &&
			 p->ibdev == ibdev && p->num == num;
	spin_unlock(&rdma_ports_lock);
	return found;
}

/*
 * Number @index, modulo their number, which is returned, of the addresses of the ports that @dev,
 * NULL: any device, may use in @net. Several ports may have one.
 */
u32 rdma_own_addr(const struct npulink_device *dev, const struct net *net, u32 index, u8 *ip)
{
	u8 ips[NPULINK_PEER_ADDRS][16];
	const struct rdma_port *p;
	u32 n = 0, i;

	spin_lock(&rdma_ports_lock);
	list_for_each_entry(p, &rdma_ports, node) {
		if ((dev && p->port->dev != dev) || p->port->net != net || !p->ibdev)
			continue;
		for (i = 0; i < n && memcmp(ips[i], p->port->addr.ip, 16); i++)
			;
		if (i == n && n < ARRAY_SIZE(ips))
			memcpy(ips[n++], p->port->addr.ip, 16);
	}
	spin_unlock(&rdma_ports_lock);
	if (n)
		memcpy(ip, ips[index % n], 16);
	return n;
}

/* The first @max devices whose ports @dev may use in @net, each once. Returns how many. */
u32 rdma_own_devices(const struct npulink_device *dev, const struct net *net,
		     struct ib_device **ibdevs, u32 max)
{
	const struct rdma_port *p;
	u32 n = 0, i;

	/* Or they might go when the other one is dropped. */
	lockdep_assert_held(&rdma_lock);
	spin_lock(&rdma_ports_lock);
	list_for_each_entry(p, &rdma_ports, node) {
		if (p->port->dev != dev || p->port->net != net || !p->ibdev)
			continue;
		for (i = 0; i < n && ibdevs[i] != p->ibdev; i++)
			;
		if (i == n && n < max)
			ibdevs[n++] = p->ibdev;
	}
	spin_unlock(&rdma_ports_lock);
	return n;
}

static struct ib_device *rdma_device_find(const char *name)
{
	struct rdma_device *d;

	lockdep_assert_held(&rdma_lock);
	list_for_each_entry(d, &rdma_devices, node)
		if (!strcmp(dev_name(&d->ibdev->dev), name))
			return d->ibdev;
	return NULL;
}

/* The port's IP address: IPv4 if it has one, else the first IPv6 one that is not link-local. */
static int rdma_port_ip(struct ib_device *ibdev, u32 num, u8 *ip)
{
	const struct ib_gid_attr *gid;
	struct ib_port_attr attr;
	int i, rc;

	rc = ib_query_port(ibdev, num, &attr);
	if (rc)
		return rc;
	rc = -EADDRNOTAVAIL;
	for (i = 0; i < attr.gid_tbl_len; i++) {
		const struct in6_addr *in6;
		bool v4;

		gid = rdma_get_gid_attr(ibdev, num, i);
		if (IS_ERR(gid))
			continue;
		in6 = (const struct in6_addr *)gid->gid.raw;
		v4 = ipv6_addr_v4mapped(in6);
		if (v4 || (rc && !(ipv6_addr_type(in6) & IPV6_ADDR_LINKLOCAL))) {
			memcpy(ip, in6, 16);
			rc = 0;
		}
		rdma_put_gid_attr(gid);
		if (v4)
			break;
	}
	return rc;
}

/* Why a port cannot be used, or NULL. */
static const char *rdma_port_unfit(struct ib_device *ibdev, u32 num)
{
	if (!rdma_is_port_valid(ibdev, num))
		return "the RDMA device has no such port";
	if (!rdma_protocol_roce(ibdev, num) && !rdma_protocol_ib(ibdev, num))
		return "the port cannot write with immediate data (iWARP)";
	if (!(ibdev->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS))
		return "the RDMA device has no fast memory registration";
	if (ibdev->attrs.max_fast_reg_page_list_len < RDMA_PAGES + 1)
		return "the RDMA device cannot register enough pages at a time";
	if (ibdev->attrs.max_send_sge < RDMA_SGE_MIN)
		return "the RDMA device takes too few pieces in a request";
	return NULL;
}

static int rdma_port_listen(struct npulink_port *port)
{
	struct rdma_port *p = port->priv;
	const struct sockaddr_in6 *own;
	struct rdma_listener *l;
	int rc = 0;

	if (p->listener)
		return 0;
	mutex_lock(&rdma_lock);
	l = rdma_listener_get(port->net, port->addr.port);
	if (IS_ERR(l)) {
		rc = PTR_ERR(l);
		goto out;
	}
	p->listener = l;
	own = (const struct sockaddr_in6 *)&l->id->route.addr.src_addr;
	port->addr.port = own->sin6_port;
out:
	mutex_unlock(&rdma_lock);
	return rc;
}

static void rdma_port_unlisten(struct npulink_port *port)
{
	struct rdma_port *p = port->priv;

	if (p->listener)
		rdma_listener_put(p->listener);
	p->listener = NULL;
}

static int rdma_bind(struct npulink_port *port, struct netlink_ext_ack *extack)
{
	struct rdma_port *p = kzalloc(sizeof(*p), GFP_KERNEL);
	const char *slash = strchr(port->name, '/');
	const char *unfit;
	int rc;

	if (!p)
		return -ENOMEM;
	p->port = port;
	if (!slash || slash == port->name || kstrtou32(slash + 1, 10, &p->num)) {
		NL_SET_ERR_MSG(extack, "a port is named as in rxe0/1");
		rc = -EINVAL;
		goto err_free;
	}
	memcpy(p->device, port->name, slash - port->name);
	mutex_lock(&rdma_lock);
	p->ibdev = rdma_device_find(p->device);
	rc = -ENODEV;
	if (!p->ibdev) {
		NL_SET_ERR_MSG(extack, "there is no such RDMA device");
		goto err_unlock;
	}
	/* By another name, as in rxe0/01. */
	rc = -EEXIST;
	if (rdma_port_allowed(port->dev, port->net, p->ibdev, p->num)) {
		NL_SET_ERR_MSG(extack, "the port is bound to the device already");
		goto err_unlock;
	}
	unfit = rdma_port_unfit(p->ibdev, p->num);
	if (unfit) {
		if (extack)
			extack->_msg = unfit;
		rc = -EOPNOTSUPP;
		goto err_unlock;
	}
	rc = -EACCES;
	if (!rdma_dev_access_netns(p->ibdev, port->net)) {
		NL_SET_ERR_MSG(extack, "the RDMA device is not in this network namespace");
		goto err_unlock;
	}
	rc = rdma_port_ip(p->ibdev, p->num, port->addr.ip);
	if (rc) {
		NL_SET_ERR_MSG(extack, "the port has no IP address");
		goto err_unlock;
	}
	port->priv = p;
	spin_lock(&rdma_ports_lock);
	list_add_tail(&p->node, &rdma_ports);
	spin_unlock(&rdma_ports_lock);
	mutex_unlock(&rdma_lock);
	return 0;

err_unlock:
	mutex_unlock(&rdma_lock);
err_free:
	kfree(p);
	return rc;
}

static void rdma_unbind(struct npulink_port *port)
{
	struct rdma_port *p = port->priv, *other;
	struct ib_device *ibdev;
	bool last = true;

	mutex_lock(&rdma_lock);
	ibdev = p->ibdev;
	spin_lock(&rdma_ports_lock);
	list_del(&p->node);
	list_for_each_entry(other, &rdma_ports, node)
		last &= other->port->dev != port->dev || other->port->net != port->net;
	spin_unlock(&rdma_ports_lock);
	mutex_unlock(&rdma_lock);
	if (ibdev)
		rdma_conns_break(ibdev, -ENODEV);
	if (last)
		rdma_conns_give_up(port->dev, port->net, -ENODEV);
	rdma_port_unlisten(port);
	kfree(p);
}

/* ---- devices --------------------------------------------------------------------------------- */

static int rdma_add(struct ib_device *ibdev)
{
	struct rdma_device *d = kzalloc(sizeof(*d), GFP_KERNEL);
	struct rdma_port *p;

	if (!d)
		return -ENOMEM;
	d->ibdev = ibdev;
	mutex_lock(&rdma_lock);
	list_add_tail(&d->node, &rdma_devices);
	/* One that was bound, went, and is back. */
	spin_lock(&rdma_ports_lock);
	list_for_each_entry(p, &rdma_ports, node)
		if (!p->ibdev && !strcmp(p->device, dev_name(&ibdev->dev)) &&
		    !rdma_port_unfit(ibdev, p->num))
			p->ibdev = ibdev;
	spin_unlock(&rdma_ports_lock);
	mutex_unlock(&rdma_lock);
	return 0;
}

static void rdma_remove(struct ib_device *ibdev, void *data)
{
	struct rdma_device *d, *next;
	struct rdma_port *p;

	mutex_lock(&rdma_lock);
	list_for_each_entry_safe(d, next, &rdma_devices, node) {
		if (d->ibdev != ibdev)
			continue;
		list_del(&d->node);
		kfree(d);
	}
	spin_lock(&rdma_ports_lock);
	list_for_each_entry(p, &rdma_ports, node)
		if (p->ibdev == ibdev)
			p->ibdev = NULL;
	spin_unlock(&rdma_ports_lock);
	mutex_unlock(&rdma_lock);
	rdma_conns_break(ibdev, -ENODEV);
	mutex_lock(&rdma_lock);
	rdma_uncharge_device(ibdev);
	mutex_unlock(&rdma_lock);
}

static struct ib_client rdma_client = {
	.name = "npulink",
	.add = rdma_add,
	.remove = rdma_remove,
};

static struct npulink_transport rdma_transport = {
	.name = "rdma",
	.kind = NPULINK_PEER_RDMA,
	.owner = THIS_MODULE,
	.bind = rdma_bind,
	.listen = rdma_port_listen,
	.unlisten = rdma_port_unlisten,
	.unbind = rdma_unbind,
	.open = rdma_open,
	.leave = rdma_leave,
	.close = rdma_close,
	.shut = rdma_shut,
	.send = rdma_send,
	.grant = rdma_grant,
	.revoke = rdma_revoke,
	.write = rdma_write,
	.resend = rdma_resend,
	.recycle = rdma_recycle,
	.tag = rdma_auth_tag,
	.probe = rdma_probe,
};

static int __init npulink_rdma_init(void)
{
	int rc;

	rdma_wq = alloc_workqueue("npulink_rdma", WQ_UNBOUND, 0);
	if (!rdma_wq)
		return -ENOMEM;
	rc = ib_register_client(&rdma_client);
	if (!rc)
		rc = npulink_transport_register(&rdma_transport);
	if (rc)
		destroy_workqueue(rdma_wq);
	return rc;
}

/* No port is bound, and no connection is left: both hold the module. */
static void __exit npulink_rdma_exit(void)
{
	npulink_transport_unregister(&rdma_transport);
	ib_unregister_client(&rdma_client);
	destroy_workqueue(rdma_wq);
}

module_init(npulink_rdma_init);
module_exit(npulink_rdma_exit);

MODULE_DESCRIPTION("npulink between machines, over RDMA devices");
MODULE_LICENSE("GPL");
MODULE_ALIAS("npulink-transport-rdma");
NPULINK_IMPORT_NS(NPULINK);
