// SPDX-License-Identifier: GPL-2.0
/*
 * command.c - tables of commands, and the options that all of them have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"

struct opts opts;

void cmds_print(const struct cmd *cmds)
{
	for (; cmds->name; cmds++)
		printf("  %-10s  %s\n", cmds->name, cmds->help);
}

bool cmd_is_help(const char *word)
{
	return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

const struct cmd *cmd_find(const struct cmd *cmds, const char *word, bool *several)
{
	const struct cmd *cmd, *found = NULL;

	*several = false;
	for (cmd = cmds; cmd->name; cmd++) {
		if (!strcmp(cmd->name, word))
			return cmd;
		if (strncmp(cmd->name, word, strlen(word)) || !*word)
			continue;
		*several = found;
		found = cmd;
	}
	return *several ? NULL : found;
}

/**
 * cmd_run() - carry out the command that the first word names
 * @object: the words before, for messages
 * @cmds: table, ends with an empty row; its first row is what no word means
 * @argc: number of words
 * @argv: words; as in iproute2 a word may be cut short while only one fits
 */
int cmd_run(const char *object, const struct cmd *cmds, int argc, char **argv)
{
	const struct cmd *cmd;
	bool several;

	if (argc && cmd_is_help(argv[0])) {
		printf("Usage: npulink [OPTION]... %s COMMAND [ARGUMENT]...\n\nCommands:\n",
		       object);
		cmds_print(cmds);
		printf("\n\"npulink %s COMMAND --help\" says more; see also npulink-%s(8).\n",
		       object, object);
		return EXIT_SUCCESS;
	}
	if (!argc || argv[0][0] == '-') {
		/* Like main(), fn gets its own name first. */
		char *words[argc + 2];

		words[0] = (char *)cmds->name;
		memcpy(words + 1, argv, argc * sizeof(*argv));
		words[argc + 1] = NULL;
		return cmds->fn(argc + 1, words);
	}
	cmd = cmd_find(cmds, argv[0], &several);
	if (!cmd)
		return usage_error("%s command \"%s\", see: npulink %s help",
				   several ? "ambiguous" : "unknown", argv[0], object);
	return cmd->fn(argc, argv);
}

int cmd_option(int argc, char **argv, const char *letters, const struct option *own,
	       const char *usage)
{
	static const struct option common[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "pretty", no_argument, NULL, 'P' },
		{ "details", no_argument, NULL, 'D' },
		{ "help", no_argument, NULL, 'h' },
	};
	struct option all[64] = { };
	char short_opts[64];
	size_t n = 0;
	int c;

	while (own && own[n].name && n < ARRAY_SIZE(all) - ARRAY_SIZE(common) - 1) {
		all[n] = own[n];
		n++;
	}
	memcpy(all + n, common, sizeof(common));
	snprintf(short_opts, sizeof(short_opts), ":%s%s%s", letters,
		 strchr(letters, 'j') ? "" : "j", strchr(letters, 'h') ? "" : "h");

	for (;;) {
		c = getopt_long(argc, argv, short_opts, all, NULL);
		switch (c) {
		case 'j':
			opts.json = true;
			continue;
		case 'P':
			opts.pretty = true;
			continue;
		case 'D':
			opts.details = true;
			continue;
		case 'h':
			fputs(usage, stdout);
			return 'h';
		case ':':
			usage_error("option %s needs a value", argv[optind - 1]);
			return ':';
		case '?':
			if (optopt)
				usage_error("%s: unknown option -%c, see --help", argv[0], optopt);
			else
				usage_error("%s: unknown option %s, see --help", argv[0],
					    argv[optind - 1]);
			return ':';
		default:
			return c;
		}
	}
}

bool cmd_watch(int argc, char **argv, uint64_t *seconds)
{
	const char *text = optarg;
	uint64_t n;

	/* getopt_long() itself knows only -w5. */
	if (!text && optind < argc && parse_u64(argv[optind], UINT64_MAX, &n))
		text = argv[optind++];
	*seconds = 2;
	if (!text || (parse_u64(text, 3600, seconds) && *seconds))
		return true;
	usage_error("%s: \"%s\" is no whole number of seconds", argv[0], text);
	return false;
}
