// SPDX-License-Identifier: GPL-2.0
/*
 * port.c - npulink link add, del, ports: over which RDMA ports a device reaches other
 * machines. Ports are found by libibverbs; whether one is fit for it is decided by the
 * kernel when it is bound, and what can be said before is said here.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"

static const char add_usage[] =
	"Usage: npulink link add DEV rdma PORT\n"
	"\n"
	"Binds an RDMA port, as in rxe0/1, to a device: its ranks then reach ranks on other\n"
	"machines over it, and are reached there. If it has several, and one is lost, they go\n"
	"on over another one. Whoever uses them must be in the network\n"
	"namespace in which this was called. Needs CAP_NET_ADMIN. See: npulink link ports\n";

static const char del_usage[] =
	"Usage: npulink link del DEV rdma PORT\n"
	"\n"
	"Undoes \"npulink link add\". Communicators that use the port go on over another one,\n"
	"or fail if there is none.\n";

static int port_change(bool add, int argc, char **argv)
{
	const char *name = add ? "add" : "del";
	bool answered;
	char why[160];
	uint32_t id;
	int c, rc;

	while ((c = cmd_option(argc, argv, "", NULL, add ? add_usage : del_usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "dev")) {
		argc--;
		argv++;
	}
	if (argc != 3)
		return usage_error("link %s: give a device, \"rdma\", and a port such as rxe0/1",
				   name);
	if (!parse_dev(argv[0], &id))
		return no_dev(add ? "link add" : "link del", argv[0]);
	rc = nl_port(add, id, argv[1], argv[2], &answered, why, sizeof(why));
	if (!rc)
		return EXIT_SUCCESS;
	if (!answered)
		return nl_fail(rc, id);
	if (rc == -EPERM)
		return fail("link %s: only who has CAP_NET_ADMIN may do that; try: sudo", name);
	if (rc == -EOPNOTSUPP && !strcmp(argv[1], "rdma"))
		return fail("link %s: the module for such links is not loaded; try: modprobe npulink_rdma",
			    name);
	return fail("link %s: %s %s: %s", name, argv[1], argv[2], *why ? why : strerror(-rc));
}

int link_add(int argc, char **argv)
{
	return port_change(true, argc, argv);
}

int link_del(int argc, char **argv)
{
	return port_change(false, argc, argv);
}

/* Has the port an IP address? As the kernel looks for one. */
static bool has_address(struct ibv_context *ctx, uint8_t num, int ngids)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	for (int i = 0; i < ngids; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(ctx, num, i, &gid))
			continue;
		if (!memcmp(gid.raw, mapped, sizeof(mapped)))
			return true;
		if (!gid.raw[0] && !gid.raw[15])
			continue;
		if (gid.raw[0] != 0xfe || (gid.raw[1] & 0xc0) != 0x80)
			return true;
	}
	return false;
}

/* What speaks against a port, or NULL. */
const char *port_unfit(struct ibv_context *ctx, const struct ibv_device_attr *dev, uint8_t num)
{
	struct ibv_port_attr attr;

	if (ctx->device->transport_type == IBV_TRANSPORT_IWARP)
		return "cannot write with immediate data (iWARP)";
	if (!(dev->device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS))
		return "no fast memory registration";
	if (ibv_query_port(ctx, num, &attr))
		return "cannot be queried";
	if (attr.state != IBV_PORT_ACTIVE)
		return "link is down";
	if (!has_address(ctx, num, attr.gid_tbl_len))
		return "no IP address";
	return NULL;
}

struct listing {
	struct json_object *array;
	const struct port *bound;
	size_t nbound;
	bool any;
};

static void show_port(struct listing *l, const char *name, const char *why)
{
	struct json_object *obj, *devs;
	char text[48] = "-";
	char users[128] = "";

	for (size_t i = 0; i < l->nbound; i++) {
		size_t used = strlen(users);

		if (strcmp(l->bound[i].name, name))
			continue;
		ip_text(l->bound[i].ip, text);
		snprintf(users + used, sizeof(users) - used, "%snpu%u", used ? "," : "",
			 l->bound[i].dev);
	}
	if (l->array) {
		obj = json_object_new_object();
		devs = json_object_new_array();
		put_str(obj, "port", name);
		put_str(obj, "kind", "rdma");
		for (size_t i = 0; i < l->nbound; i++) {
			char dev[16];

			if (strcmp(l->bound[i].name, name))
				continue;
			snprintf(dev, sizeof(dev), "npu%u", l->bound[i].dev);
			json_object_array_add(devs, json_object_new_string(dev));
		}
		json_object_object_add(obj, "devs", devs);
		put_str(obj, "rejected", why ? why : "");
		json_object_array_add(l->array, obj);
		return;
	}
	if (!l->any)
		printf("%-14s %-24s %-20s %s\n", "PORT", "DEVICES", "ADDRESS", "STATE");
	l->any = true;
	printf("%-14s %-24s %-20s %s\n", name, *users ? users : "-", text,
	       why ? why : *users ? "bound" : "usable");
}

static void show_device(struct listing *l, struct ibv_device *dev)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	struct ibv_device_attr attr;
	char name[80];

	if (!ctx || ibv_query_device(ctx, &attr)) {
		snprintf(name, sizeof(name), "%s/1", ibv_get_device_name(dev));
		show_port(l, name, "cannot be opened");
	} else {
		for (unsigned int num = 1; num <= attr.phys_port_cnt; num++) {
			snprintf(name, sizeof(name), "%s/%u", ibv_get_device_name(dev), num);
			show_port(l, name, port_unfit(ctx, &attr, num));
		}
	}
	if (ctx)
		ibv_close_device(ctx);
}

static const char ports_usage[] =
	"Usage: npulink [-j] link ports\n"
	"\n"
	"Shows the RDMA ports of this machine, the devices that each is bound to, and what\n"
	"speaks against using the others.\n"
	"\n"
	"  -j, --json  JSON\n";

int link_ports(int argc, char **argv)
{
	struct port *bound = NULL;
	struct ibv_device **devs;
	struct listing l = { };
	int c, n, rc;

	while ((c = cmd_option(argc, argv, "", NULL, ports_usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	if (argc > optind)
		return usage_error("link ports: unknown word \"%s\"", argv[optind]);
	rc = nl_ports(&bound, &l.nbound);
	if (rc)
		return nl_fail(rc, ANY_DEV);
	l.bound = bound;
	if (opts.json)
		l.array = json_object_new_array();
	devs = ibv_get_device_list(&n);
	for (int i = 0; devs && i < n; i++)
		show_device(&l, devs[i]);
	if (!opts.json && (!devs || !n))
		printf("this machine has no RDMA ports; a software one: rdma link add rxe0 type rxe netdev eth0\n");
	if (devs)
		ibv_free_device_list(devs);
	if (l.array)
		json_print(l.array);
	free(bound);
	return EXIT_SUCCESS;
}
