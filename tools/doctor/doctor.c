// SPDX-License-Identifier: GPL-2.0
/*
 * doctor.c - npulink doctor: goes through all that collectives need on this
 * node, in the order in which they need it, and says of each thing that is
 * wrong what to do about it. Changes nothing, unless told to (--fix).
 */
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "doctor/doctor.h"

#define DEFAULT_MEMORY	(64ULL << 20)

static const char *const severity_names[] = { "not tested", "ok", "warning", "error" };

static struct {
	struct finding *list;
	size_t n;
} findings;

struct finding *found(enum severity severity, const char *check, const char *format, ...)
{
	struct finding *finding;
	va_list args;

	findings.list = reallocarray(findings.list, findings.n + 1, sizeof(*findings.list));
	if (!findings.list)
		exit(fail("not enough memory"));
	finding = &findings.list[findings.n++];
	memset(finding, 0, sizeof(*finding));
	finding->severity = severity;
	finding->check = check;
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
	return finding;
}

void fix(struct finding *finding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(finding->fix, sizeof(finding->fix), format, args);
	va_end(args);
}

bool read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	bool ok;

	if (!file)
		return false;
	ok = fgets(buf, size, file);
	fclose(file);
	if (ok)
		buf[strcspn(buf, "\n")] = 0;
	return ok;
}

const char *own_name(void)
{
	struct passwd *pw = getpwuid(geteuid());

	return pw ? pw->pw_name : "USER";
}

bool in_initial_userns(void)
{
	unsigned int inside, outside, n;
	char line[64];

	return read_line("/proc/self/uid_map", line, sizeof(line)) &&
	       sscanf(line, "%u %u %u", &inside, &outside, &n) == 3 &&
	       !inside && !outside && n == 0xffffffff;
}

static void print_text(void)
{
	static const char *const colours[] = { "", "\033[32m", "\033[33m", "\033[31m" };
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	size_t count[SEVERITIES] = { };

	for (size_t i = 0; i < findings.n; i++) {
		const struct finding *f = &findings.list[i];

		count[f->severity]++;
		printf("%s%-10s%s %-10s %s\n", colour ? colours[f->severity] : "",
		       severity_names[f->severity], colour ? "\033[0m" : "", f->check, f->text);
		if (*f->fix)
			printf("%-10s %-10s fix: %s\n", "", "", f->fix);
	}
	if (count[ERROR] || count[WARNING])
		printf("%zu error%s, %zu warning%s\n", count[ERROR], count[ERROR] == 1 ? "" : "s",
		       count[WARNING], count[WARNING] == 1 ? "" : "s");
	else
		printf("nothing to fix%s\n",
		       count[UNTESTED] ? " in what was tested" : "");
}

static void print_json(enum severity worst)
{
	struct json_object *root = json_object_new_object(), *array = json_object_new_array(), *obj;

	put_str(root, "version", NPULINK_VERSION);
	put_str(root, "severity", severity_names[worst]);
	for (size_t i = 0; i < findings.n; i++) {
		const struct finding *f = &findings.list[i];

		obj = json_object_new_object();
		put_str(obj, "check", f->check);
		put_str(obj, "severity", severity_names[f->severity]);
		put_str(obj, "text", f->text);
		put_str(obj, "fix", *f->fix ? f->fix : NULL);
		json_object_array_add(array, obj);
	}
	json_object_object_add(root, "findings", array);
	json_print(root);
}

static const char usage[] =
	"Usage: npulink [-j] doctor [-m SIZE] [--fix]\n"
	"\n"
	"Checks all that collectives need on this node: module, devices, access rights, links\n"
	"(by some data that it sends over each), ports, memory limit, versions. Says of each\n"
	"thing that is wrong what to do about it, and of what it could not look at that it is\n"
	"not tested.\n"
	"\n"
	"  -m, --memory SIZE  what all processes of this user will keep in buffers at a\n"
	"                     time, for the memory limit (64M)\n"
	"      --fix          load the module if it is not (root); nothing else is changed\n"
	"  -j, --json         JSON\n"
	"\n"
	"Exit status: 0 nothing to fix, 1 it works but with warnings, 3 it does not work.\n";

int doctor_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "memory", required_argument, NULL, 'm' },
		{ "fix", no_argument, NULL, 'F' },
		CMD_OPTION_END
	};
	static const int status[] = { EXIT_SUCCESS, EXIT_SUCCESS, 1, 3 };
	static const char *const need_module[] = {
		"backend", "devices", "access", "abi", "netlink", "links", "peers", "jobs",
	};
	uint64_t memory = DEFAULT_MEMORY;
	enum severity worst = OK;
	bool repair = false;
	char *words[argc + 2];
	int c;

	words[0] = "doctor";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "m:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		if (c == 'F')
			repair = true;
		else if (!parse_size(optarg, &memory))
			return usage_error("doctor: \"%s\" is no size", optarg);
	}
	if (optind < argc + 1)
		return usage_error("doctor: unknown word \"%s\"", words[optind]);

	if (repair)
		fix_module();
	if (check_module()) {
		check_backends();
		check_devices();
		check_netlink();
		check_links();
		check_peers();
		check_jobs();
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(need_module); i++)
			found(UNTESTED, need_module[i], "the module is not loaded");
	}
	check_signature();
	check_kernel();
	check_iommu();
	check_rdma();
	check_memlock(memory);
	check_cgroup(memory);
	check_library();

	for (size_t i = 0; i < findings.n; i++)
		if (findings.list[i].severity > worst)
			worst = findings.list[i].severity;
	if (opts.json)
		print_json(worst);
	else
		print_text();
	free(findings.list);
	return status[worst];
}
