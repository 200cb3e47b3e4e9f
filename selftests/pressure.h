/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * pressure.h - a machine whose memory is short as long as a test lasts, and what the kernel has of
 * it for itself. Two processes see to that: one takes memory and gives some back when there is too
 * little, since who is killed for want of memory takes none; the other one reads files, whose pages
 * the kernel then has to find room for.
 */
#ifndef SELFTESTS_PRESSURE_H
#define SELFTESTS_PRESSURE_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A number that follows a word in one of the kernel's tables, or -1. */
static inline long pressure_count(const char *table, const char *word)
{
	char name[64], line[256];
	long found = -1, value;
	FILE *f = fopen(table, "re");

	while (f && found < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63[^: ]%*[: ]%ld", name, &value) == 2 && !strcmp(name, word))
			found = value;
	if (f)
		fclose(f);
	return found;
}

static inline bool pressure_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) >= 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

/* How many pages the kernel has looked at because it wanted some. */
static inline long pressure_scanned(void)
{
	return pressure_count("/proc/vmstat", "pgscan_kswapd") +
	       pressure_count("/proc/vmstat", "pgscan_direct");
}

/* ---- who makes it short */

#define PRESSURE_LOW	(36 << 10)	/* KiB that are to be had */
#define PRESSURE_HIGH	(42 << 10)
#define PRESSURE_PIECE	(1UL << 20)

static inline void pressure_hog(void)
{
	void *pieces[4096];
	unsigned int n = 0;
	long left;

	for (;;) {
		left = pressure_count("/proc/meminfo", "MemAvailable");
		for (; left < PRESSURE_LOW && n; left += PRESSURE_PIECE >> 10)
			munmap(pieces[--n], PRESSURE_PIECE);
		if (left < PRESSURE_HIGH || n == 4096) {
			usleep(20000);
			continue;
		}
		pieces[n] = mmap(NULL, PRESSURE_PIECE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		n += pieces[n] != MAP_FAILED;
	}
}

/* One piece after the other, with a pause: it is memory that is to be short, not time. */
static inline void pressure_reader(void)
{
	execlp("sh", "sh", "-c", "while :; do find /usr/lib /usr/bin -type f -size +200k | "
	       "while read -r file; do cat $file >/dev/null; sleep 0.2; done; done", NULL);
}

/*
 * Returns when memory is short; both end with this process. The others are not killed for want
 * of memory.
 */
static inline bool pressure_start(pid_t pids[2])
{
	void (*const parts[2])(void) = { pressure_hog, pressure_reader };

	pressure_write("/proc/self/oom_score_adj", "-1000");
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pressure_write("/proc/self/oom_score_adj", "1000");
		parts[i]();
		_exit(1);
	}
	for (int i = 0; i < 1200; i++) {
		if (pressure_scanned())
			return true;
		usleep(100000);
	}
	return false;
}

static inline void pressure_signal(const pid_t pids[2], int sig)
{
	for (int i = 0; i < 2; i++)
		kill(-pids[i], sig);
}

/* ---- what the kernel has */

/*
 * Without it, what is counted is not what is used: processors keep some of each kind, and files
 * whose contents are in memory keep theirs.
 */
static inline void pressure_settle(void)
{
	DIR *dir = opendir("/sys/kernel/slab");
	struct dirent *entry;
	char path[512];

	pressure_write("/proc/sys/vm/drop_caches", "3");
	while (dir && (entry = readdir(dir))) {
		/* Others are names for the same. */
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", entry->d_name);
		pressure_write(path, "1");
	}
	if (dir)
		closedir(dir);
	pressure_write("/proc/sys/vm/stat_refresh", "1");
}

/* KiB of objects that are in use in all caches whose names begin so. */
static inline long pressure_slab(const char *begin)
{
	unsigned long objects, size, sum = 0;
	char name[64], line[512];
	FILE *f = fopen("/proc/slabinfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %lu %*u %lu", name, &objects, &size) == 3 &&
		    !strncmp(name, begin, strlen(begin)))
			sum += objects * size;
	if (f)
		fclose(f);
	return sum >> 10;
}

static inline long pressure_pinned(void)
{
	return pressure_count("/proc/vmstat", "nr_foll_pin_acquired") -
	       pressure_count("/proc/vmstat", "nr_foll_pin_released");
}

#endif /* SELFTESTS_PRESSURE_H */
