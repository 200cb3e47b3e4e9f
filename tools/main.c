// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - npulink OBJECT COMMAND: the table of objects and the options that
 * come before them. Each object is a file with a table of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"

static const struct cmd objects[] = {
	{ "dev",	dev_cmd,	"devices: what they are and what they did" },
	{ "link",	link_cmd,	"links between devices: what went over them" },
	{ "comm",	comm_cmd,	"communicators: ranks, processes, why one failed" },
	{ "op",		op_cmd,		"operations in flight, and what they wait for" },
	{ "buf",	buf_cmd,	"memory that processes have pinned" },
	{ "stat",	stat_cmd,	"totals of the node" },
	{ "top",	top_cmd,	"who moves how much over which link now" },
	{ "hang",	hang_cmd,	"which rank everybody waits for, and why" },
	{ "monitor",	monitor_cmd,	"events as they happen" },
	{ "plan",	plan_cmd,	"plans: show the steps, prove them right" },
	{ "tune",	tune_cmd,	"measure what links cost, for the choice of algorithm" },
	{ "bench",	bench_cmd,	"measure a collective and check its data" },
	{ "trace",	trace_cmd,	"what all ranks did last, step by step, to look at" },
	{ "slow",	slow_cmd,	"who keeps the others waiting, and which links are slow" },
	{ "replay",	replay_cmd,	"what would have been if: a trace with other costs" },
	{ "report",	report_cmd,	"all that a bug report needs, in one file" },
	{ "doctor",	doctor_cmd,	"find out why it does not work, and what to do" },
	{ }
};

static void print_usage(void)
{
	printf("Usage: npulink [OPTION]... OBJECT { COMMAND | help }\n"
	       "\nObjects:\n");
	cmds_print(objects);
	printf("\nOptions:\n"
	       "  -j, --json     JSON instead of text\n"
	       "  -p, --pretty   with -j: indented\n"
	       "  -d, --details  more of it\n"
	       "  -V, --version  version of this program\n"
	       "  -h, --help     this text, or that of the OBJECT or COMMAND before it\n"
	       "\nManual pages: npulink(8), npulink-dev(8), npulink-link(8), ...\n");
}

static int parse_globals(int argc, char **argv)
{
	static const struct option long_opts[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "pretty", no_argument, NULL, 'p' },
		{ "details", no_argument, NULL, 'd' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		CMD_OPTION_END
	};
	int c;

	/* "+": what comes after the object belongs to it. */
	while ((c = getopt_long(argc, argv, "+:jpdVh", long_opts, NULL)) != -1) {
		switch (c) {
		case 'j':
			opts.json = true;
			break;
		case 'p':
			opts.pretty = true;
			break;
		case 'd':
			opts.details = true;
			break;
		case 'V':
			printf("npulink %s, ABI %d\n", NPULINK_VERSION, NPULINK_ABI_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			print_usage();
			return EXIT_SUCCESS;
		default:
			return usage_error("unknown option %s, see: npulink help",
					   argv[optind - 1]);
		}
	}
	return -1;
}

static int run(int argc, char **argv)
{
	const struct cmd *cmd;
	bool several;
	int rc;

	rc = parse_globals(argc, argv);
	if (rc >= 0)
		return rc;
	argc -= optind;
	argv += optind;
	optind = 0;		/* commands have options too; 0 makes glibc start over */
	if (!argc)
		return usage_error("which object? see: npulink help");
	if (cmd_is_help(argv[0])) {
		print_usage();
		return EXIT_SUCCESS;
	}
	cmd = cmd_find(objects, argv[0], &several);
	if (!cmd)
		return usage_error("%s object \"%s\", see: npulink help",
				   several ? "ambiguous" : "unknown", argv[0]);
	/* Objects without commands would take it for one of their arguments. */
	if (argc == 2 && !strcmp(argv[1], "help"))
		argv[1] = "--help";
	return cmd->fn(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int rc = run(argc, argv);

	if (fflush(stdout) || ferror(stdout))
		return fail("cannot write to standard output: %m");
	return rc;
}
