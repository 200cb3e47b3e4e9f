// SPDX-License-Identifier: GPL-2.0
/*
 * link_show.c - npulink link show: a line for each direction of each link, between devices
 * of this machine and to other machines, with what went over it, how fast that was, and
 * what is calibrated. Connections of ranks to other machines are added up by device,
 * address and port.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/npulink_genl.h>
#include "state/calibration.h"
#include "state/state.h"

/* One direction of a link, or of all connections of a device to a machine over a port. */
struct row {
	char from[48], to[48];
	struct link link;	/* to another machine: steps, bytes, down */
	char via[32];
	uint32_t conns;		/* 0: between devices of this machine */
	uint32_t switches;	/* times that they went on over another port */
	double rate;		/* bytes per second since the last time, -1: not known */
};

struct rows {
	struct row *v;
	size_t n;
	double when;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* ---- collecting */

static void add_link(struct rows *rows, const struct link *link)
{
	struct row *row = &rows->v[rows->n++];

	*row = (struct row) { .link = *link, .rate = -1 };
	snprintf(row->from, sizeof(row->from), "npu%u", link->dev);
	snprintf(row->to, sizeof(row->to), "npu%u", link->peer);
}

static void add_remote(struct rows *rows, const struct state_conn *conn, bool out)
{
	char dev[16], ip[48], *from = out ? dev : ip, *to = out ? ip : dev;
	struct row *row = NULL;

	snprintf(dev, sizeof(dev), "npu%u", conn->dev);
	ip_text(conn->ip, ip);
	for (size_t i = 0; i < rows->n && !row; i++)
		if (rows->v[i].conns && !strcmp(rows->v[i].from, from) &&
		    !strcmp(rows->v[i].to, to) && !strcmp(rows->v[i].via, conn->via))
			row = &rows->v[i];
	if (!row) {
		row = &rows->v[rows->n++];
		*row = (struct row) { .rate = -1, .link.down = true };
		strcpy(row->from, from);
		strcpy(row->to, to);
		memcpy(row->via, conn->via, sizeof(row->via));
		memcpy(row->link.type, conn->kind, sizeof(row->link.type));
	}
	row->conns++;
	row->switches += conn->switches;
	row->link.steps += out ? conn->sent_steps : conn->steps;
	row->link.bytes += out ? conn->sent_bytes : conn->bytes;
	row->link.errors += conn->state == NPULINK_CONN_STATE_DOWN;
	/* It is up as long as one of them is. */
	row->link.down &= conn->state == NPULINK_CONN_STATE_DOWN;
}

static int collect(uint32_t id, struct rows *rows)
{
	struct state_conn *conns = NULL;
	struct link *links = NULL;
	size_t nlinks = 0, nconns = 0;
	int rc = nl_links(id, &links, &nlinks);

	if (!rc)
		rc = state_conns(ANY_DEV, &conns, &nconns);
	*rows = (struct rows) { .when = now() };
	if (!rc) {
		rows->v = calloc(nlinks + 2 * nconns + 1, sizeof(*rows->v));
		rc = rows->v ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !rc && i < nlinks; i++)
		add_link(rows, &links[i]);
	for (size_t i = 0; !rc && i < nconns; i++) {
		if (!conns[i].remote || !conns[i].state ||
		    (id != ANY_DEV && conns[i].dev != id))
			continue;
		add_remote(rows, &conns[i], true);
		if (id == ANY_DEV)
			add_remote(rows, &conns[i], false);
	}
	free(links);
	free(conns);
	return rc;
}

static void find_rates(struct rows *rows, const struct rows *last)
{
	size_t k = 0;

	for (size_t i = 0; i < rows->n; i++) {
		struct row *row = &rows->v[i];

		/* They come in one order; some may be new, or gone. */
		for (size_t tries = 0; tries < last->n; tries++, k++) {
			const struct row *old = &last->v[k % last->n];

			if (strcmp(old->from, row->from) || strcmp(old->to, row->to) ||
			    strcmp(old->via, row->via))
				continue;
			if (row->link.bytes >= old->link.bytes)
				row->rate = (row->link.bytes - old->link.bytes) /
					    (rows->when - last->when);
			break;
		}
	}
}

/* ---- telling */

static void put_number(struct json_object *obj, const char *key, double value, bool known)
{
	if (known)
		put_double(obj, key, value);
	else
		json_object_object_add(obj, key, NULL);
}

static struct json_object *row_json(const struct row *row, const struct calibration *cal)
{
	struct json_object *obj = json_object_new_object();
	const struct link *link = &row->link;
	bool local = !row->conns;

	put_str(obj, "dev", row->from);
	put_str(obj, "peer", row->to);
	put_str(obj, "type", link->type);
	put_str(obj, "state", link->down ? "down" : "up");
	put_u64(obj, "steps", link->steps);
	put_u64(obj, "bytes", link->bytes);
	put_number(obj, "bytes_per_second", row->rate, row->rate >= 0);
	put_u64(obj, "errors", link->errors);
	if (local) {
		put_u64(obj, "doorbells", link->doorbells);
		put_u64(obj, "inline_bells", link->inline_bells);
		put_u64(obj, "damaged", link->damaged);
		put_u64(obj, "moves", link->moves);
		put_u64(obj, "move_bytes", link->move_bytes);
		put_u64(obj, "move_ns", link->move_ns);
	} else {
		put_str(obj, "via", row->via);
		put_u64(obj, "connections", row->conns);
		put_u64(obj, "switches", row->switches);
	}
	put_number(obj, "alpha_s", cal->alpha, local && cal->file);
	put_number(obj, "beta_s_per_byte", cal->beta, local && cal->file);
	return obj;
}

static void row_text(const struct row *row)
{
	char bytes[16], rate[24] = "-", speed[24] = "-";
	const struct link *link = &row->link;

	if (row->rate >= 0) {
		human_bytes(row->rate, bytes);
		snprintf(rate, sizeof(rate), "%s/s", bytes);
	}
	if (link->move_bytes && link->move_ns)
		human_speed(link->move_ns / 1e9 / link->move_bytes, speed);
	printf("%-8s -> %-15s %-5s %-5s %10" PRIu64 " %8s %9s %10s %6" PRIu64 " %7" PRIu64,
	       row->from, row->to, link->type, link->down ? "DOWN" : "up", link->steps,
	       human_bytes(link->bytes, bytes), rate, speed, link->errors, link->damaged);
	if (opts.details && !row->conns)
		printf(" %9" PRIu64 " %9" PRIu64, link->doorbells, link->inline_bells);
	printf("%s%s", *row->via ? " " : "", row->via);
	if (row->switches)
		printf(", port changed %ux", row->switches);
	putchar('\n');
}

static void rows_text(const struct rows *rows, const struct calibration *cal)
{
	char time[16], speed[24];

	if (!rows->n)
		return;
	printf("%-8s    %-15s %-5s %-5s %10s %8s %9s %10s %6s %7s%s\n", "FROM", "TO", "TYPE",
	       "STATE", "STEPS", "BYTES", "RATE", "SPEED", "ERRORS", "DAMAGED",
	       opts.details ? " DOORBELLS    INLINE" : "");
	for (size_t i = 0; i < rows->n; i++)
		row_text(&rows->v[i]);
	if (cal->file)
		printf("calibrated: a message takes %s (alpha) and moves %s (1/beta): %s\n",
		       human_time(cal->alpha, time), human_speed(cal->beta, speed), cal->file);
	else if (*cal->bad)
		printf("%s\n", cal->bad);
	else
		printf("alpha and beta are not calibrated, see: npulink tune\n");
}

static void rows_print(const struct rows *rows)
{
	struct json_object *array;
	struct calibration cal;

	calibration_get(&cal);
	if (!opts.json) {
		rows_text(rows, &cal);
		return;
	}
	array = json_object_new_array();
	for (size_t i = 0; i < rows->n; i++)
		json_object_array_add(array, row_json(&rows->v[i], &cal));
	json_print(array);
}

static int show(uint32_t id, uint64_t watch)
{
	struct rows rows, last = { };
	int rc;

	for (;;) {
		rc = collect(id, &rows);
		if (rc)
			break;
		find_rates(&rows, &last);
		if (watch && !opts.json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		rows_print(&rows);
		free(last.v);
		last = rows;
		if (!watch || fflush(stdout) || ferror(stdout))
			break;
		sleep(watch);
	}
	free(last.v);
	return rc ? nl_fail(rc, id) : EXIT_SUCCESS;
}

static const char usage[] =
	"Usage: npulink [-j] [-d] link show [[dev] DEV] [-w [SECONDS]]\n"
	"\n"
	"Shows every direction of every link, or those that leave DEV: to a device of this\n"
	"machine, or over a port to another machine. Steps and bytes that came over it, bytes\n"
	"per second since the last time (with -w), speed of the engines at work on them,\n"
	"times that it was lost, payloads whose checksum was wrong.\n"
	"Links exist from the first plan that uses them; those to other machines as long as\n"
	"ranks use them, and are shown to whom these ranks belong, and to root.\n"
	"\n"
	"  -d, --details    also doorbells rung, and events told without (inline)\n"
	"  -w, --watch [S]  again every S seconds (2)\n"
	"  -j, --json       JSON\n";

int link_show(int argc, char **argv)
{
	static const struct option options[] = {
		{ "watch", optional_argument, NULL, 'w' },
		CMD_OPTION_END
	};
	uint32_t id = ANY_DEV;
	uint64_t watch = 0;
	int c;

	while ((c = cmd_option(argc, argv, "w::d", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (c == 'd') {
			opts.details = true;
			continue;
		}
		if (!cmd_watch(argc, argv, &watch))
			return EXIT_USAGE;
	}
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "dev")) {
		argc--;
		argv++;
		if (!argc)
			return usage_error("link show: dev needs a device");
	}
	if (argc > 1)
		return usage_error("link show: unknown word \"%s\"", argv[1]);
	if (argc && !parse_dev(argv[0], &id))
		return no_dev("link show", argv[0]);
	return show(id, watch);
}

/* For "link matrix -j". */
int link_show_all(void)
{
	return show(ANY_DEV, 0);
}
