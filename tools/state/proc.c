// SPDX-License-Identifier: GPL-2.0
/*
 * proc.c - what /proc tells of a process that others wait for: its name, whether it
 * runs, sleeps, is stopped or frozen, where in the kernel, and by whom it is traced.
 */
#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include "state/state.h"

static FILE *proc_open(uint32_t pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, file);
	return fopen(path, "re");
}

static bool group_frozen(const char *group)
{
	char path[600], c = '0';
	FILE *f;

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cgroup.freeze", group);
	f = fopen(path, "re");
	if (f) {
		c = fgetc(f);
		fclose(f);
	}
	return c == '1';
}

void proc_group(uint32_t pid, char *group, size_t size)
{
	FILE *f = proc_open(pid, "cgroup");
	char line[600];

	*group = '\0';
	while (f && !*group && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::/", 4) && strlen(line) - 3 < size)
			strcpy(group, line + 3);
	}
	if (f)
		fclose(f);
}

/*
 * By what was asked for, of its cgroup and those above: whether it has come about is said of all
 * tasks there together, of which some may be the kernel's, and are never frozen.
 */
static bool proc_frozen(uint32_t pid, char *frozen, size_t size)
{
	char group[512], *end;

	proc_group(pid, group, sizeof(group));
	for (end = strrchr(group, '/'); end && end[1]; end = strrchr(group, '/')) {
		if (group_frozen(group)) {
			snprintf(frozen, size, "%s", group);
			return true;
		}
		*end = 0;
	}
	return false;
}

/* A process may call itself anything, and its cgroup: a terminal would obey, JSON be broken. */
void clean_text(char *text)
{
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void read_status(uint32_t pid, struct proc *proc)
{
	FILE *f = pid ? proc_open(pid, "status") : NULL;
	char line[256];

	*proc = (struct proc) { .state = '?', .tid = pid };
	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "Name: %31[^\n]", proc->name);
		sscanf(line, "State: %c", &proc->state);
		sscanf(line, "TracerPid: %u", &proc->tracer);
	}
	if (f)
		fclose(f);
	clean_text(proc->name);
}

static bool has_ended(const struct proc *proc)
{
	return proc->state == 'Z' || proc->state == 'X';
}

/* Of a process whose first thread has ended: another one, if there is one. */
static void read_thread(uint32_t pid, struct proc *proc)
{
	struct proc thread;
	struct dirent *d;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		unsigned long tid = strtoul(d->d_name, NULL, 10);

		if (!tid || tid == pid)
			continue;
		read_status(tid, &thread);
		if (thread.state == '?' || has_ended(&thread))
			continue;
		*proc = thread;
		break;
	}
	if (dir)
		closedir(dir);
}

/* What it waits for, and whether it is frozen. */
static void read_rest(struct proc *proc)
{
	uint32_t pid = proc->tid;
	FILE *f;

	f = pid ? proc_open(pid, "wchan") : NULL;
	if (f) {
		/* "0": it runs, or is not to be known. */
		if (fscanf(f, "%63s", proc->wchan) != 1 || !strcmp(proc->wchan, "0"))
			proc->wchan[0] = 0;
		fclose(f);
	}
	/* To /proc it sleeps. */
	if (proc->state == 'S' && proc_frozen(pid, proc->group, sizeof(proc->group)))
		proc->state = 'F';
	clean_text(proc->group);
}

void proc_read(uint32_t pid, struct proc *proc)
{
	read_status(pid, proc);
	if (has_ended(proc))
		read_thread(pid, proc);
	read_rest(proc);
}

void proc_read_rank(const struct state_rank *r, struct proc *proc)
{
	struct proc process;

	read_status(r->tid, proc);
	if (proc->state == '?' || has_ended(proc)) {
		proc_read(r->known ? r->pid : 0, proc);
		return;
	}
	read_status(r->pid, &process);
	strcpy(proc->name, process.name);
	read_rest(proc);
}

bool proc_dead(uint32_t pid)
{
	struct proc proc;

	read_status(pid, &proc);
	if (has_ended(&proc))
		read_thread(pid, &proc);
	return pid && (proc.state == '?' || has_ended(&proc));
}

const char *proc_state_text(char state)
{
	switch (state) {
	case 'R':	return "running";
	case 'S':	return "sleeping";
	case 'D':	return "blocked in the kernel (D)";
	case 'T':	return "stopped by a signal";
	case 'F':	return "frozen with its cgroup";
	case 't':	return "stopped by a debugger";
	case 'Z':
	case 'X':	return "dead";
	case 'I':	return "idle";
	default:	return "not known";
	}
}

void proc_stack(uint32_t pid, char *buf, size_t size)
{
	FILE *f = pid ? proc_open(pid, "stack") : NULL;
	size_t n = 0;

	if (f) {
		n = fread(buf, 1, size - 1, f);
		fclose(f);
	}
	buf[n] = 0;
}

const char *user_name(uint32_t uid, char buf[16])
{
	static uint32_t last_uid;
	static char last[16];
	struct passwd *pw;

	/* A user may have a hundred thousand of what is listed. */
	if (!*last || uid != last_uid) {
		pw = getpwuid(uid);
		if (pw)
			snprintf(last, sizeof(last), "%s", pw->pw_name);
		else
			snprintf(last, sizeof(last), "%u", uid);
		last_uid = uid;
	}
	strcpy(buf, last);
	return buf;
}
