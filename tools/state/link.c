// SPDX-License-Identifier: GPL-2.0
/*
 * link.c - npulink link: its commands, and what went over the links between devices as a
 * square of senders and receivers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"

/* The counters that "link matrix" knows. */
static const struct counter {
	const char *name;
	size_t offset;
	bool bytes;
} counters[] = {
	{ "bytes",		offsetof(struct link, bytes), true },
	{ "steps",		offsetof(struct link, steps), false },
	{ "doorbells",		offsetof(struct link, doorbells), false },
	{ "inline_bells",	offsetof(struct link, inline_bells), false },
	{ "damaged",		offsetof(struct link, damaged), false },
};

static uint64_t counter_get(const struct counter *counter, const struct link *link)
{
	return *(const uint64_t *)((const char *)link + counter->offset);
}

static int id_cmp(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Ids of all devices at either end of a link, ascending. */
static uint32_t *link_ids(const struct link *links, size_t nlinks, size_t *nids)
{
	uint32_t *ids = calloc(2 * nlinks + 1, sizeof(*ids));
	size_t n = 0;

	if (!ids)
		return NULL;
	for (size_t i = 0; i < nlinks; i++) {
		ids[n++] = links[i].dev;
		ids[n++] = links[i].peer;
	}
	qsort(ids, n, sizeof(*ids), id_cmp);
	*nids = 0;
	for (size_t i = 0; i < n; i++)
		if (!i || ids[i] != ids[i - 1])
			ids[(*nids)++] = ids[i];
	return ids;
}

static void matrix_text(const struct counter *counter, const struct link *links, size_t nlinks,
			const uint32_t *ids, size_t nids)
{
	size_t next = 0;
	char text[24];

	snprintf(text, sizeof(text), "%s", counter->name);
	printf("%-10s", text);
	for (size_t j = 0; j < nids; j++) {
		snprintf(text, sizeof(text), ">npu%u", ids[j]);
		printf(" %8s", text);
	}
	putchar('\n');
	for (size_t i = 0; i < nids; i++) {
		printf("npu%-7u", ids[i]);
		/* Links come ordered by device, then by peer. */
		for (size_t j = 0; j < nids; j++) {
			if (next < nlinks && links[next].dev == ids[i] &&
			    links[next].peer == ids[j]) {
				uint64_t value = counter_get(counter, &links[next++]);

				if (counter->bytes)
					human_bytes(value, text);
				else
					snprintf(text, sizeof(text), "%" PRIu64, value);
			} else {
				strcpy(text, "-");
			}
			printf(" %8s", text);
		}
		putchar('\n');
	}
}

static const char matrix_usage[] =
	"Usage: npulink [-j] link matrix [bytes | steps | doorbells | inline_bells | damaged]\n"
	"\n"
	"Shows one counter (bytes if none is named) of all links as a square: a row for\n"
	"each device that sends, a column for each that receives.\n"
	"\n"
	"  -j, --json  JSON, as \"link show\" gives it\n";

static int link_matrix(int argc, char **argv)
{
	const struct counter *counter = &counters[0];
	struct link *links = NULL;
	size_t nlinks = 0, nids;
	uint32_t *ids;
	int c, rc;

	while ((c = cmd_option(argc, argv, "", NULL, matrix_usage)) != -1)
		return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
	argc -= optind;
	argv += optind;
	if (argc) {
		for (counter = NULL, c = 0; c < (int)ARRAY_SIZE(counters); c++)
			if (!strcmp(counters[c].name, argv[0]))
				counter = &counters[c];
		if (!counter)
			return usage_error("link matrix: unknown counter \"%s\"", argv[0]);
	}
	if (argc > 1)
		return usage_error("link matrix: unknown word \"%s\"", argv[1]);

	if (opts.json)
		return link_show_all();
	rc = nl_links(ANY_DEV, &links, &nlinks);
	if (rc)
		return nl_fail(rc, ANY_DEV);
	if (nlinks) {
		ids = link_ids(links, nlinks, &nids);
		if (ids)
			matrix_text(counter, links, nlinks, ids, nids);
		free(ids);
	}
	free(links);
	return EXIT_SUCCESS;
}

static const struct cmd cmds[] = {
	{ "show",	link_show,	"[DEV]: every direction of every link" },
	{ "matrix",	link_matrix,	"[COUNTER]: one counter of all links, as a square" },
	{ "test",	link_test_cmd,	"[DEV]: send data over them, compare, measure" },
	{ "add",	link_add,	"DEV rdma PORT: reach other machines over this port" },
	{ "del",	link_del,	"DEV rdma PORT: undo that" },
	{ "ports",	link_ports,	"ports to other machines, and which are in use" },
	{ }
};

int link_cmd(int argc, char **argv)
{
	return cmd_run("link", cmds, argc, argv);
}
