// SPDX-License-Identifier: GPL-2.0
/*
 * report.c - npulink report: what a bug report needs, as one JSON object: the answers of
 * this program's own commands, module parameters, and the kernel's messages about npulink.
 * Nothing secret: no environment, no command lines, no host name, no contents of memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/npulink.h"

#define LOG_READ_ALL	3
#define LOG_SIZE	(1 << 20)

/* What "npulink -j WORDS" says, or null. */
static struct json_object *ask(const char *const *words)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *obj = NULL;
	char buf[16384];
	int fds[2];
	ssize_t n;
	pid_t pid;

	if (!tok || pipe2(fds, O_CLOEXEC))
		goto out;
	pid = fork();
	if (!pid) {
		char *argv[6] = { "npulink", "-j" };

		for (int i = 0; words[i]; i++)
			argv[2 + i] = (char *)words[i];
		dup2(fds[1], STDOUT_FILENO);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	close(fds[1]);
	while (pid > 0 && (n = read(fds[0], buf, sizeof(buf))) > 0)
		if (!obj)
			obj = json_tokener_parse_ex(tok, buf, n);
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
out:
	if (tok)
		json_tokener_free(tok);
	return obj;
}

static struct json_object *parameters(void)
{
	struct json_object *obj = json_object_new_object();
	glob_t paths;

	if (glob("/sys/module/npulink*/parameters/*", 0, NULL, &paths))
		return obj;
	for (size_t i = 0; i < paths.gl_pathc; i++) {
		const char *name = paths.gl_pathv[i] + strlen("/sys/module/");
		FILE *file = fopen(paths.gl_pathv[i], "re");
		char line[128];

		if (file && fgets(line, sizeof(line), file)) {
			line[strcspn(line, "\n")] = 0;
			put_str(obj, name, line);
		}
		if (file)
			fclose(file);
	}
	globfree(&paths);
	return obj;
}

static struct json_object *kernel_log(void)
{
	struct json_object *array = json_object_new_array();
	char *log = malloc(LOG_SIZE + 1);
	int n = log ? klogctl(LOG_READ_ALL, log, LOG_SIZE) : -1;

	if (n > 0) {
		log[n] = 0;
		for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"))
			if (strstr(line, "npulink"))
				json_object_array_add(array, json_object_new_string(line));
	}
	free(log);
	return array;
}

static struct json_object *collect(void)
{
	static const char *const asked[][4] = {
		{ "doctor" }, { "dev", "show" }, { "link", "show" }, { "comm", "show" },
		{ "op", "show" }, { "buf", "show" }, { "stat", "show" }, { "hang" },
	};
	struct json_object *root = json_object_new_object(), *kernel = json_object_new_object();
	struct utsname uts;

	uname(&uts);
	put_str(root, "version", NPULINK_VERSION);
	put_u64(root, "abi", NPULINK_ABI_VERSION);
	put_str(kernel, "release", uts.release);
	put_str(kernel, "version", uts.version);
	put_str(kernel, "machine", uts.machine);
	json_object_object_add(root, "kernel", kernel);
	json_object_object_add(root, "parameters", parameters());
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		json_object_object_add(root, asked[i][0], ask(asked[i]));
	json_object_object_add(root, "log", kernel_log());
	return root;
}

static const char usage[] =
	"Usage: npulink report [-o FILE]\n"
	"\n"
	"Puts into one JSON object what a bug report needs: what doctor, dev, link, comm, op,\n"
	"buf, stat and hang say, parameters, kernel messages about npulink. No secrets.\n"
	"Run it as root while the trouble is there.\n"
	"\n"
	"  -o, --output FILE  write it there instead of to standard output\n";

int report_cmd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		CMD_OPTION_END
	};
	struct json_object *root;
	const char *path = NULL;
	char *words[argc + 2];
	FILE *out = stdout;
	int c, fd, rc, error;
	struct stat st;

	words[0] = "report";
	memcpy(words + 1, argv, argc * sizeof(*argv));
	words[argc + 1] = NULL;
	while ((c = cmd_option(argc + 1, words, "o:", options, usage)) != -1) {
		if (c == 'h')
			return EXIT_SUCCESS;
		if (c == ':')
			return EXIT_USAGE;
		path = optarg;
	}
	if (optind < argc + 1)
		return usage_error("report: unknown word \"%s\"; a file is given by -o FILE",
				   words[optind]);
	/* It takes a while: who is interrupted meanwhile shall not find an empty file. */
	if (path && !lstat(path, &st))
		return fail("cannot write %s: %s", path, strerror(EEXIST));
	root = collect();
	if (path) {
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		out = fd < 0 ? NULL : fdopen(fd, "w");
		if (!out)
			return fail("cannot write %s: %m", path);
	}
	errno = 0;
	fprintf(out, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
	json_object_put(root);
	if (!path)
		return EXIT_SUCCESS;
	rc = fflush(out) || ferror(out);
	error = errno;
	if (fclose(out) && !rc) {
		rc = 1;
		error = errno;
	}
	/* Half of it is none, and in the way of the next. */
	if (rc)
		unlink(path);
	return rc ? fail("cannot write %s: %s; nothing is left of it", path, strerror(error)) :
		    EXIT_SUCCESS;
}
