// SPDX-License-Identifier: GPL-2.0
/*
 * processes.c - npulink hang: what only /proc and cgroups know. Why does a process not come to
 * call, and who holds a device whose process is dead?
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/npulink_genl.h>
#include "hang/hang.h"

static const char *const starving[] = {
	"never-called", "blocked", "not-run", "engine", "link", "late",
};

static bool may_starve(const struct culprit *c)
{
	if (!c->at || !c->at->known || !c->at->pid)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(starving); i++)
		if (!strcmp(c->why, starving[i]))
			return true;
	return false;
}

/* One look for all of them, which takes a moment. */
void find_starved(struct report *reps, size_t n)
{
	struct starve *looks;
	size_t nlooks = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < reps[i].nculprits && k < MAX_CULPRITS; k++)
			nlooks += may_starve(&reps[i].culprits[k]);
	looks = calloc(nlooks + 1, sizeof(*looks));
	nlooks = 0;
	for (size_t i = 0; looks && i < n; i++)
		for (size_t k = 0; k < reps[i].nculprits && k < MAX_CULPRITS; k++) {
			struct culprit *c = &reps[i].culprits[k];

			if (!may_starve(c))
				continue;
			c->starve = &looks[nlooks++];
			c->starve->pid = c->at->pid;
			/* What its engine does may also be another thread's work. */
			c->starve->tid = c->wait ? 0 : c->at->tid;
		}
	if (looks)
		starve_find(looks, nlooks);
	for (size_t i = 0; looks && i < n; i++)
		for (size_t k = 0; k < reps[i].nculprits && k < MAX_CULPRITS; k++) {
			struct culprit *c = &reps[i].culprits[k];

			/* A disk is no matter of processors, nor is now a deadline that is over. */
			if (c->starve && c->starve->why && strcmp(c->why, "late") &&
			    (strcmp(c->why, "blocked") || !strcmp(c->starve->why, "memory-high")))
				c->why = c->starve->why;
		}
	all.looks = looks;
}

/* ---- who holds what the dead had */

/* Has it a device of its own? Then that is what it has open. */
static bool has_file(uint32_t pid)
{
	for (size_t i = 0; i < all.nfiles; i++)
		if (all.files[i].pid == pid)
			return true;
	return false;
}

static bool has_open(uint32_t pid, uint32_t dev)
{
	char path[64], to[64], name[32];
	struct dirent *d;
	bool found = false;
	ssize_t n;
	DIR *dir;

	snprintf(name, sizeof(name), "/dev/npulink/npu%u", dev);
	snprintf(path, sizeof(path), "/proc/%u/fd", pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir))) {
		n = readlinkat(dirfd(dir), d->d_name, to, sizeof(to) - 1);
		to[n < 0 ? 0 : n] = '\0';
		found = !strcmp(to, name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* The kernel knows it of ranks, and of thousands that is quicker. */
static bool is_orphan(const struct state_file *f)
{
	const struct state_rank *r = rank_of_file(f);

	return r ? r->state == NPULINK_RANK_STATE_DEAD : proc_dead(f->pid);
}

void find_holders(void)
{
	struct dirent *d;
	DIR *dir = NULL;

	for (size_t i = 0; i < all.nfiles && all.nholders < MAX_CULPRITS; i++) {
		const struct state_file *f = &all.files[i];

		if (!is_orphan(f))
			continue;
		if (dir)
			rewinddir(dir);
		else
			dir = opendir("/proc");
		while (dir && all.nholders < MAX_CULPRITS && (d = readdir(dir))) {
			uint32_t pid = strtoul(d->d_name, NULL, 10);

			if (pid && !has_file(pid) && has_open(pid, f->dev))
				all.holders[all.nholders++] = (struct holder) { pid, f };
		}
	}
	if (dir)
		closedir(dir);
}
