/* SPDX-License-Identifier: GPL-2.0 */
/*
 * probes.h - what the kernel says of itself while a test runs: tracepoints, and probes at
 * functions that have none (not on the debug kernel, which has no kprobes).
 */
#ifndef SELFTESTS_PROBES_H
#define SELFTESTS_PROBES_H

#include <sys/mount.h>
#include "raw.h"

#define PROBES	"/sys/kernel/tracing"

/* One line of the trace. */
struct probe_hit {
	const char *task;
	pid_t pid;
	bool hardirq, softirq;
	double at;		/* seconds */
	char name[32];
	const char *fields;
};

static inline int probes_mount(void)
{
	if (access(PROBES "/trace", F_OK))
		mount("none", PROBES, "tracefs", 0, NULL);
	return access(PROBES "/trace", F_OK) ? -errno : 0;
}

static inline bool probes_possible(void)
{
	return !access(PROBES "/kprobe_events", F_OK);
}

/* The symbol of a module's function, which compilers lengthen for parts and copies of it. */
static inline bool probe_symbol(const char *function, char symbol[128])
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[256], name[128], module[64];
	size_t len = strlen(function);
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*c %127s [%63[^]]", name, module) != 2 ||
		    strncmp(name, function, len) || (name[len] && name[len] != '.') ||
		    strstr(name, ".cold"))
			continue;
		snprintf(symbol, 128, "%.60s:%.60s", module, name);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* Have "@name @fetch" recorded whenever @function is called ('p') or returns ('r'). */
static inline int probe_add_at(char where, const char *name, const char *function,
			       const char *fetch)
{
	char symbol[128], text[256];
	int rc;

	if (!probe_symbol(function, symbol))
		return -ENOENT;
	snprintf(text, sizeof(text), "%c:npulink_test/%s %s %s", where, name, symbol,
		 fetch);
	rc = raw_write(PROBES "/kprobe_events", text);
	if (rc)
		return rc;
	snprintf(text, sizeof(text), PROBES "/events/npulink_test/%s/enable", name);
	return raw_write(text, "1");
}

static inline int probe_add(const char *name, const char *function, const char *fetch)
{
	return probe_add_at('p', name, function, fetch);
}

static inline int probe_event(const char *event, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), PROBES "/events/%s/enable", event);
	return raw_write(path, value);
}

static inline void probes_start(void)
{
	int fd;

	raw_write(PROBES "/tracing_on", "0");
	fd = open(PROBES "/trace", O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	raw_write(PROBES "/buffer_size_kb", "8192");
	raw_write(PROBES "/tracing_on", "1");
}

static inline void probes_stop(void)
{
	raw_write(PROBES "/tracing_on", "0");
}

/* Undo all of it. */
static inline void probes_reset(void)
{
	int fd;

	raw_write(PROBES "/events/enable", "0");
	/* As it is without us. */
	raw_write(PROBES "/tracing_on", "1");
	if (!probes_possible())
		return;
	fd = open(PROBES "/kprobe_events", O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
}

/* "  properties-142     [001] d.h2.    12.345678: name: (...) fields" */
static inline bool probe_parse(char *line, struct probe_hit *hit)
{
	char *cpu = strstr(line, " ["), *dash, flags[16];

	*hit = (struct probe_hit) {};
	if (*line == '#' || !cpu)
		return false;
	*cpu = 0;
	dash = strrchr(line, '-');
	if (!dash || sscanf(cpu + 1, "[%*d] %15s %lf: %31[^:]", flags, &hit->at, hit->name) != 3)
		return false;
	hit->pid = atoi(dash + 1);
	*dash = 0;
	hit->task = line + strspn(line, " ");
	/* The rt kernel gives each interrupt a thread. */
	hit->hardirq = strchr("hHzZ", flags[2]) || !strncmp(hit->task, "irq/", 4);
	hit->softirq = strchr("sH", flags[2]);
	hit->fields = strstr(cpu + 1, hit->name) + strlen(hit->name);
	return true;
}

/* The next line of @f (PROBES "/trace") in @line that is an event. */
static inline bool probe_next(FILE *f, char line[1024], struct probe_hit *hit)
{
	while (fgets(line, 1024, f))
		if (probe_parse(line, hit))
			return true;
	return false;
}

/* A number behind @key, as "status=-130"; 0 if there is none. */
static inline long long probe_field(const struct probe_hit *hit, const char *key)
{
	const char *at = strstr(hit->fields, key);

	/* Addresses of the kernel are beyond LLONG_MAX. */
	return at ? (long long)strtoull(at + strlen(key), NULL, 0) : 0;
}

#endif /* SELFTESTS_PROBES_H */
