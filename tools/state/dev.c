// SPDX-License-Identifier: GPL-2.0
/*
 * dev.c - npulink dev: devices. What everybody may know comes over netlink;
 * limits and ABI (-d) come from the device node, for those who may open it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cli/npulink.h"
#include "lib/plan/plan.h"

/* A file of the device, or -errno. */
int dev_open(uint32_t id)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/npulink/npu%u", id);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int dev_info(uint32_t id, struct npulink_device_info *info)
{
	int fd = dev_open(id), rc = 0;

	if (fd < 0)
		return fd;
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	if (ioctl(fd, NPULINK_DEVICE_INFO, info))
		rc = -errno;
	close(fd);
	return rc;
}

static void print_names(const char *label, uint32_t mask, const char *(*name)(uint32_t))
{
	printf("    %s", label);
	for (uint32_t i = 0; i < 32; i++)
		if (mask & 1U << i && name(i))
			printf(" %s", name(i));
	putchar('\n');
}

static struct json_object *json_names(uint32_t mask, const char *(*name)(uint32_t))
{
	struct json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < 32; i++)
		if (mask & 1U << i && name(i))
			json_object_array_add(array, json_object_new_string(name(i)));
	return array;
}

static const char *node_text(const uint8_t node_id[16], char buf[33])
{
	for (int i = 0; i < 16; i++)
		sprintf(buf + 2 * i, "%02x", node_id[i]);
	return buf;
}

static void show_text(const struct dev *dev)
{
	struct npulink_device_info info;
	char a[16], b[16], node[33];
	int rc;

	printf("%s: backend %s engine %s slice %s", dev->name, dev->backend, dev->engine,
	       human_bytes(dev->slice, a));
	printf(" inline_max %s doorbell_pages %u\n", human_bytes(dev->inline_max, a),
	       dev->doorbells);
	printf("    requests %" PRIu64 " inline %" PRIu64 " interrupts %" PRIu64
	       " read %s written %s\n", dev->requests, dev->inline_done, dev->interrupts,
	       human_bytes(dev->bytes_read, a), human_bytes(dev->bytes_written, b));
	if (dev->memory)
		printf("    memory %s used %s\n", human_bytes(dev->memory, a),
		       human_bytes(dev->memory_used, b));
	if (!opts.details)
		return;
	print_names("dtypes", dev->dtypes, coll_dtype_name);
	print_names("redops", dev->redops, coll_redop_name);
	rc = dev_info(dev->id, &info);
	if (rc) {
		printf("    limits unknown: /dev/npulink/%s: %s\n", dev->name, strerror(-rc));
		return;
	}
	printf("    abi %u version %s node %s\n", info.out_abi_version, info.out_version,
	       node_text(info.out_node_id, node));
	if (info.out_processors)
		printf("    work is done by the %u processors of this machine\n",
		       info.out_processors);
	printf("    max_steps %u max_ranks %u max_channels %u max_inflight %u max_arena %s\n",
	       info.out_max_steps, info.out_max_ranks, info.out_max_channels,
	       info.out_max_inflight, human_bytes(info.out_max_arena, a));
}

static struct json_object *show_json(const struct dev *dev)
{
	struct json_object *obj = json_object_new_object();
	struct npulink_device_info info;
	char node[33];

	put_str(obj, "name", dev->name);
	put_u64(obj, "id", dev->id);
	put_str(obj, "backend", dev->backend);
	put_str(obj, "engine", dev->engine);
	put_u64(obj, "slice", dev->slice);
	put_u64(obj, "inline_max", dev->inline_max);
	put_u64(obj, "doorbell_pages", dev->doorbells);
	put_u64(obj, "requests", dev->requests);
	put_u64(obj, "inline_done", dev->inline_done);
	put_u64(obj, "interrupts", dev->interrupts);
	put_u64(obj, "bytes_read", dev->bytes_read);
	put_u64(obj, "bytes_written", dev->bytes_written);
	put_u64(obj, "memory", dev->memory);
	put_u64(obj, "memory_used", dev->memory_used);
	json_object_object_add(obj, "dtypes", json_names(dev->dtypes, coll_dtype_name));
	json_object_object_add(obj, "redops", json_names(dev->redops, coll_redop_name));
	if (!opts.details)
		return obj;
	if (dev_info(dev->id, &info)) {
		json_object_object_add(obj, "limits", NULL);
		return obj;
	}
	put_u64(obj, "abi", info.out_abi_version);
	put_str(obj, "version", info.out_version);
	put_str(obj, "node", node_text(info.out_node_id, node));
	put_u64(obj, "processors", info.out_processors);
	put_u64(obj, "graph_bytes", info.out_graph_bytes);
	json_object_object_add(obj, "gathers",
			       json_names(info.out_gathers, coll_collective_name));
	json_object_object_add(obj, "gathers_large",
			       json_names(info.out_gathers_large, coll_collective_name));

	struct json_object *limits = json_object_new_object();

	put_u64(limits, "max_steps", info.out_max_steps);
	put_u64(limits, "max_ranks", info.out_max_ranks);
	put_u64(limits, "max_channels", info.out_max_channels);
	put_u64(limits, "max_inflight", info.out_max_inflight);
	put_u64(limits, "max_arena", info.out_max_arena);
	json_object_object_add(obj, "limits", limits);
	return obj;
}

static const char show_usage[] =
	"Usage: npulink [-j] [-d] dev show [DEV]\n"
	"\n"
	"Shows one device or all of them: what drives it, and what it did since it\n"
	"was loaded. DEV is npu3, /dev/npulink/npu3 or 3.\n"
	"\n"
	"  -d, --details  also data types, reductions, limits, ABI\n"
	"  -j, --json     JSON\n";

static int dev_show(int argc, char **argv)
{
	struct json_object *array;
	struct dev *devs = NULL;
	uint32_t id = ANY_DEV;
	size_t ndevs = 0;
	int c, rc;

	while ((c = cmd_option(argc, argv, "d", NULL, show_usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		opts.details = true;
	}
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "dev") && argc > 1) {
		argc--;
		argv++;
	}
	if (argc > 1)
		return usage_error("dev show: unknown word \"%s\"", argv[1]);
	if (argc && !parse_dev(argv[0], &id))
		return no_dev("dev show", argv[0]);

	rc = nl_devs(id, &devs, &ndevs);
	if (rc)
		return nl_fail(rc, id);
	if (opts.json) {
		array = json_object_new_array();
		for (size_t i = 0; i < ndevs; i++)
			json_object_array_add(array, show_json(&devs[i]));
		json_print(array);
	} else {
		for (size_t i = 0; i < ndevs; i++)
			show_text(&devs[i]);
	}
	free(devs);
	return EXIT_SUCCESS;
}

static const struct cmd cmds[] = {
	{ "show",	dev_show,	"[DEV]: devices and what they did" },
	{ }
};

int dev_cmd(int argc, char **argv)
{
	return cmd_run("dev", cmds, argc, argv);
}
