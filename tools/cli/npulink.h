/* SPDX-License-Identifier: GPL-2.0 */
/*
 * npulink.h - what the files of the npulink command share: the command table,
 * options, output, and reading devices from the kernel.
 *
 * Exit statuses: 0 it worked, 1 it did not, 2 the command line makes no sense.
 */
#ifndef TOOL_NPULINK_H
#define TOOL_NPULINK_H

#include <getopt.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <linux/npulink.h>

#define EXIT_USAGE	2

#ifndef __printf
#define __printf(f, a)	__attribute__((format(printf, f, a)))
#endif
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/**
 * struct cmd - one word of the grammar and what it does
 * @name: the word
 * @fn: gets the words after it
 * @help: one line for people
 */
struct cmd {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *help;
};

/**
 * struct opts - options that hold for every command
 * @json: -j: JSON instead of text
 * @pretty: -p, --pretty: indented JSON
 * @details: -d, --details: more of it
 */
struct opts {
	bool json;
	bool pretty;
	bool details;
};

extern struct opts opts;

/* command.c */

/* One line for each. */
void cmds_print(const struct cmd *cmds);
bool cmd_is_help(const char *word);
/* Which one is meant by a word that may be cut short; NULL: none, or @several. */
const struct cmd *cmd_find(const struct cmd *cmds, const char *word, bool *several);
int cmd_run(const char *object, const struct cmd *cmds, int argc, char **argv);

/*
 * getopt_long() for a command: handles --help (prints @usage), -j, --pretty by
 * itself and complains in one line. Returns -1 at the end, ':' after a complaint,
 * 'h' after help.
 */
int cmd_option(int argc, char **argv, const char *letters, const struct option *own,
	       const char *usage);
/*
 * After cmd_option() has met -w, whose value may be missing: the seconds, 2 if they are. What
 * comes next is taken for it if it is a number. False after a complaint.
 */
bool cmd_watch(int argc, char **argv, uint64_t *seconds);
#define CMD_OPTION_END	{ NULL, 0, NULL, 0 }

/* output.c: a file, whole or not at all; "-" or NULL: standard output */
FILE *output_open(const char *path);
int output_close(FILE *f, const char *path, bool bad);

/* print.c */
__printf(1, 2) int fail(const char *format, ...);
__printf(1, 2) int usage_error(const char *format, ...);
void json_print(struct json_object *obj);
void put_str(struct json_object *obj, const char *key, const char *value);
void put_u64(struct json_object *obj, const char *key, uint64_t value);
void put_bool(struct json_object *obj, const char *key, bool value);
const char *human_bytes(uint64_t bytes, char buf[16]);
const char *human_time(double seconds, char buf[16]);
/* "64.0 GB/s", from seconds per byte */
const char *human_speed(double per_byte, char buf[24]);
void put_double(struct json_object *obj, const char *key, double value);
bool parse_u64(const char *text, uint64_t max, uint64_t *value);
bool parse_size(const char *text, uint64_t *bytes);
bool parse_dev(const char *text, uint32_t *id);
/* Complains, for a command, about what parse_dev() did not take. */
int no_dev(const char *command, const char *text);
/* IPv6, or IPv4 in its mapped form. */
const char *ip_text(const uint8_t ip[16], char buf[48]);

/* nl_dev.c */

/* What NPULINK_GENL_CMD_DEV_GET tells. */
struct dev {
	uint32_t id;
	char name[32];
	char backend[32];
	char engine[64];
	uint32_t dtypes, redops, slice, inline_max, doorbells;
	uint64_t requests, inline_done, interrupts, bytes_read, bytes_written;
	uint64_t memory, memory_used;
};

/* What NPULINK_GENL_CMD_LINK_GET tells: one direction. */
struct link {
	uint32_t dev, peer;
	uint64_t steps, bytes, doorbells, inline_bells, damaged, errors;
	uint64_t moves, move_bytes, move_ns;	/* those whose time was taken */
	bool down;
	char type[16];
};

#define ANY_DEV		0xffffffffU

/* Arrays to be freed, ordered by id; only of device @id unless it is ANY_DEV. -errno. */
int nl_devs(uint32_t id, struct dev **devs, size_t *ndevs);
/* A port that is bound to a device. */
struct port {
	uint32_t dev;
	char kind[16];
	char name[32];
	uint8_t ip[16];
	uint16_t cm;
};

int nl_ports(struct port **ports, size_t *nports);
/* @answered: by the kernel; else it was not even asked. */
int nl_port(bool add, uint32_t dev, const char *kind, const char *name, bool *answered, char *why,
	    size_t size);
int link_add(int argc, char **argv);
int link_del(int argc, char **argv);
int link_ports(int argc, char **argv);
int link_show(int argc, char **argv);
int link_show_all(void);
int link_test_cmd(int argc, char **argv);

struct ibv_context;
struct ibv_device_attr;

/* state/port.c: what speaks against a port, or NULL. */
const char *port_unfit(struct ibv_context *ctx, const struct ibv_device_attr *dev, uint8_t num);
int nl_links(uint32_t id, struct link **links, size_t *nlinks);
/* nl.c: says what -errno of these means and what to do; returns EXIT_FAILURE. */
int nl_fail(int rc, uint32_t id);

/* state/dev.c */
int dev_cmd(int argc, char **argv);
int dev_open(uint32_t id);
int dev_info(uint32_t id, struct npulink_device_info *info);

/* trace/trace.c, trace/slow.c, trace/replay.c */
int trace_cmd(int argc, char **argv);
int slow_cmd(int argc, char **argv);
int replay_cmd(int argc, char **argv);

/* state/link.c, plan/plan.c, tune/tune.c, bench/bench.c, doctor/doctor.c */
int link_cmd(int argc, char **argv);
int plan_cmd(int argc, char **argv);
int tune_cmd(int argc, char **argv);
int bench_cmd(int argc, char **argv);
int doctor_cmd(int argc, char **argv);

/* state/state.c, hang/hang.c, state/monitor.c */
int comm_cmd(int argc, char **argv);
int op_cmd(int argc, char **argv);
int buf_cmd(int argc, char **argv);
int stat_cmd(int argc, char **argv);
int hang_cmd(int argc, char **argv);
int monitor_cmd(int argc, char **argv);

/* state/top.c */
int top_cmd(int argc, char **argv);

/* state/report.c */
int report_cmd(int argc, char **argv);

#endif /* TOOL_NPULINK_H */
