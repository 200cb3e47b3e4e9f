// SPDX-License-Identifier: GPL-2.0
/*
 * starve.c - does a process that others wait for get a processor and memory, or do the scheduler
 * and its cgroup hold it up? Two looks at /proc and the files of its cgroups, a moment apart: what
 * counts is what happens now.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "state/state.h"

#define MOMENT_US	150000	/* a period of cpu.max is mostly 100 ms */
#define THREADS		64	/* of a process that are looked at */

static FILE *group_open(const char *group, const char *file)
{
	char path[600];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, file);
	return fopen(path, "re");
}

/* The number behind @key in a file of a cgroup, or its first number if that is NULL; "max": ~0. */
static uint64_t group_value(const char *group, const char *file, const char *key, uint64_t none)
{
	FILE *f = group_open(group, file);
	char line[256], word[64], text[32];
	uint64_t value = none;

	while (f && value == none && fgets(line, sizeof(line), f)) {
		if (key && (sscanf(line, "%63s %31s", word, text) != 2 || strcmp(word, key)))
			continue;
		if (!key && sscanf(line, "%31s", text) != 1)
			continue;
		value = strcmp(text, "max") ? strtoull(text, NULL, 10) : ~0ULL;
	}
	if (f)
		fclose(f);
	return value;
}

/* One look at the cgroup and those above it: the first that has such a limit. */
static void look_at_groups(const char *group, struct starve_look *look)
{
	char path[sizeof(look->cpu_group)];
	uint64_t high;
	char *end;

	*look->cpu_group = *look->memory_group = '\0';
	snprintf(path, sizeof(path), "%s", group);
	for (end = strrchr(path, '/'); end && end[1]; end = strrchr(path, '/')) {
		if (!*look->cpu_group && group_value(path, "cpu.max", NULL, ~0ULL) != ~0ULL) {
			strcpy(look->cpu_group, path);
			look->throttled = group_value(path, "cpu.stat", "nr_throttled", 0);
			look->throttled_us = group_value(path, "cpu.stat", "throttled_usec", 0);
		}
		high = group_value(path, "memory.high", NULL, ~0ULL);
		if (!*look->memory_group && high != ~0ULL &&
		    group_value(path, "memory.current", NULL, 0) >= high / 10 * 9) {
			strcpy(look->memory_group, path);
			look->high = group_value(path, "memory.events", "high", 0);
		}
		*end = '\0';
	}
}

/* What a thread has run, and waited for a processor; false: it has gone. */
static bool look_at_thread(uint32_t tid, struct starve_look *look)
{
	unsigned long long ran, delayed;
	char path[64], line[512], *c;
	FILE *f;
	bool known;

	snprintf(path, sizeof(path), "/proc/%u/schedstat", tid);
	f = fopen(path, "re");
	known = f && fscanf(f, "%llu %llu", &ran, &delayed) == 2;
	if (f)
		fclose(f);
	if (!known)
		return false;
	look->ran += ran;
	look->delayed += delayed;
	snprintf(path, sizeof(path), "/proc/%u/stat", tid);
	f = fopen(path, "re");
	/* A name may have blanks and brackets. */
	c = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (c && c[1] && c[2] == 'R')
		look->ready++;
	if (f)
		fclose(f);
	return true;
}

static void look_at(const struct starve *s, struct starve_look *look)
{
	struct timespec now;
	unsigned int n = 0;
	struct dirent *d;
	char path[64];
	DIR *dir;

	*look = (struct starve_look) { };
	clock_gettime(CLOCK_MONOTONIC, &now);
	look->time = now.tv_sec * 1000000000ULL + now.tv_nsec;
	look_at_groups(s->group, look);
	if (s->tid && look_at_thread(s->tid, look))
		return;
	snprintf(path, sizeof(path), "/proc/%u/task", s->pid);
	dir = opendir(path);
	while (dir && n < THREADS && (d = readdir(dir)))
		n += strtoul(d->d_name, NULL, 10) &&
		     look_at_thread(strtoul(d->d_name, NULL, 10), look);
	if (dir)
		closedir(dir);
}

/* The processors' time, in all and what a hypervisor has given to others. */
static void look_at_steal(uint64_t *all, uint64_t *stolen)
{
	unsigned long long v[8] = { };
	FILE *f = fopen("/proc/stat", "re");

	if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
			&v[3], &v[4], &v[5], &v[6], &v[7]) == 8) {
		*stolen = v[7];
		for (unsigned int i = 0; i < ARRAY_SIZE(v); i++)
			*all += v[i];
	}
	if (f)
		fclose(f);
}

/* What was seen between the two looks. */
static void judge(struct starve *s, const struct starve_look *a, const struct starve_look *b)
{
	struct proc proc;
	bool waits;

	s->ns = b->time - a->time;
	s->ran = b->ran > a->ran ? b->ran - a->ran : 0;
	s->delayed = b->delayed > a->delayed ? b->delayed - a->delayed : 0;
	/* Who never gets one is ready all the time, and its delay is not counted before it ends. */
	if (a->ready && b->ready && s->ran + s->delayed < s->ns)
		s->delayed = s->ns - s->ran;
	waits = s->delayed > s->ns / 2 && s->ran < s->ns / 2;
	proc_read(s->tid ? s->tid : s->pid, &proc);
	s->policy = sched_getscheduler(s->tid ? s->tid : s->pid);
	if (strstr(proc.wchan, "over_high") ||
	    (*b->memory_group && b->high > a->high && s->ran < s->ns / 2)) {
		s->why = "memory-high";
		strcpy(s->limit, b->memory_group);
	} else if (*b->cpu_group && (b->throttled > a->throttled ||
				     b->throttled_us > a->throttled_us || waits)) {
		s->why = "throttled";
		strcpy(s->limit, b->cpu_group);
	} else if (waits) {
		s->why = s->stolen > 50 ? "stolen" : "starved";
	}
}

void starve_find(struct starve *s, size_t n)
{
	struct starve_look *looks = calloc(2 * n + 1, sizeof(*looks));
	uint64_t all[2] = { }, stolen[2] = { };

	if (!looks || !n) {
		free(looks);
		return;
	}
	look_at_steal(&all[0], &stolen[0]);
	for (size_t i = 0; i < n; i++) {
		proc_group(s[i].pid, s[i].group, sizeof(s[i].group));
		look_at(&s[i], &looks[2 * i]);
	}
	usleep(MOMENT_US);
	for (size_t i = 0; i < n; i++)
		look_at(&s[i], &looks[2 * i + 1]);
	look_at_steal(&all[1], &stolen[1]);
	for (size_t i = 0; i < n; i++) {
		if (all[1] > all[0])
			s[i].stolen = 100 * (stolen[1] - stolen[0]) / (all[1] - all[0]);
		judge(&s[i], &looks[2 * i], &looks[2 * i + 1]);
		clean_text(s[i].limit);
	}
	free(looks);
}

const char *starve_why(const char *why)
{
	static const char *const texts[][2] = {
		{ "throttled", "its process gets no processor beyond its cgroup's cpu.max" },
		{ "starved", "its process gets no processor, others have them" },
		{ "stolen", "its process gets no processor, the host has them" },
		{ "memory-high", "its process is held up by its cgroup's memory.high" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(texts[i][0], why))
			return texts[i][1];
	return why;
}

static const char *policy_text(int policy)
{
	switch (policy) {
	case SCHED_IDLE:	return ", with SCHED_IDLE";
	case SCHED_BATCH:	return ", with SCHED_BATCH";
	default:		return "";
	}
}

/* What it did in the moment that was looked at, for people. */
const char *starve_text(const struct starve *s, char *buf, size_t size)
{
	size_t n = 0;

	*buf = '\0';
	if (!s->ns)
		return buf;
	n = snprintf(buf, size, "in %.0f ms it ran %.0f ms and waited %.0f ms for a processor%s",
		     s->ns / 1e6, s->ran / 1e6, s->delayed / 1e6, policy_text(s->policy));
	if (*s->limit && n < size)
		n += snprintf(buf + n, size - n, "; its limit is of cgroup %s", s->limit);
	if (s->stolen && n < size)
		snprintf(buf + n, size - n, "; %u %% of all processors' time were taken by the host",
			 s->stolen);
	return buf;
}

void starve_json(struct json_object *obj, const struct starve *s)
{
	struct json_object *o = json_object_new_object();

	if (!s->ns) {
		json_object_put(o);
		return;
	}
	put_u64(o, "ns", s->ns);
	put_u64(o, "ran_ns", s->ran);
	put_u64(o, "delayed_ns", s->delayed);
	put_u64(o, "stolen_percent", s->stolen);
	put_bool(o, "idle_class", s->policy == SCHED_IDLE);
	put_str(o, "held_by", s->why);
	put_str(o, "cgroup", *s->limit ? s->limit : NULL);
	json_object_object_add(obj, "processor", o);
}
