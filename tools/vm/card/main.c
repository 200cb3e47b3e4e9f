// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - the process that plays NPU cards for a virtual machine: see README.md.
 *
 *	vm-card FOLDER CARDS MEMORY-MIB [RESULTS]
 *
 * FOLDER gets a socket for ivshmem-doorbell (card.sock) and the machine's memory (card.ram, a
 * link). It ends when the machine leaves. In RESULTS, it takes orders (card.do) and answers
 * (card.done), and leaves its counts (card.log).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "machine.h"

#define ENTRIES		128U
#define MAX_LEN		(1U << 20)
#define AREA_SQ		4096
#define AREA_CQ		(AREA_SQ + ENTRIES * sizeof(struct card_desc))
#define AREA_LEN	(AREA_CQ + 4096)
#define AREA_OFF	4096
#define RINGS_LEN	(8ULL << 20)
#define WINDOW_LEN	(2ULL << 30)	/* of the host only what is touched */
#define MACHINE		1	/* its number */

/* q35 puts all memory below 4 GiB, or, of 2816 MiB and more, 2 GiB. */
#define LOW_ALL		0xb0000000ULL
#define LOW_PART	0x80000000ULL

_Static_assert(AREA_OFF + CARD_MAX * AREA_LEN <= RINGS_LEN, "the rings fit");
_Static_assert(sizeof(struct card_desc) == 2048, "a request's size");

static struct memory memory;
static struct card *cards;
static unsigned int ncards;
static struct card_header header;
static int resets;

static void die(const char *what)
{
	fprintf(stderr, "vm-card: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint8_t *shared(const char *name, uint64_t len, int *fd)
{
	uint8_t *p;

	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, len))
		die(name);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED)
		die(name);
	return p;
}

/* What of it is the cards'. */
void header_write(void)
{
	memcpy(memory.window, &header, offsetof(struct card_header, window_bus));
}

static int event(int flags)
{
	int fd = eventfd(0, EFD_CLOEXEC | flags);

	if (fd < 0)
		die("eventfd");
	return fd;
}

static void lay_out(void)
{
	unsigned int i;

	header = (struct card_header) {
		.magic = CARD_MAGIC, .version = CARD_VERSION, .cards = ncards, .entries = ENTRIES,
		.max_len = MAX_LEN, .dtypes = card_dtypes(), .redops = card_redops(),
		.area_off = AREA_OFF, .area_len = AREA_LEN, .sq_off = AREA_SQ, .cq_off = AREA_CQ,
		.mem_off = RINGS_LEN, .mem_len = WINDOW_LEN - RINGS_LEN,
	};
	cards = mmap(NULL, ncards * sizeof(*cards), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (cards == MAP_FAILED)
		die("memory");
	for (i = 0; i < ncards; i++) {
		uint8_t *area = memory.window + AREA_OFF + i * AREA_LEN;

		cards[i] = (struct card) {
			.index = i, .mem = &memory, .regs = (void *)area,
			.sq = (void *)(area + AREA_SQ), .cq = (void *)(area + AREA_CQ),
			.entries = ENTRIES, .max_len = MAX_LEN,
			.doorbell = event(0), .interrupt = event(EFD_NONBLOCK),
		};
	}
	resets = event(EFD_NONBLOCK);
	header_write();
}

static void counts(FILE *file)
{
	unsigned int i;

	for (i = 0; i < ncards; i++)
		fprintf(file, "card %u doorbells %llu interrupts %llu requests %llu bytes %llu\n", i,
			(unsigned long long)cards[i].doorbells,
			(unsigned long long)cards[i].interrupts,
			(unsigned long long)cards[i].requests,
			(unsigned long long)cards[i].bytes);
}

static void write_counts(const char *folder, const char *name)
{
	char part[4096], path[4096];
	FILE *file;

	snprintf(part, sizeof(part), "%s/%s.part", folder, name);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(part, "w");
	if (!file)
		return;
	counts(file);
	fclose(file);
	rename(part, path);
}

/* A header of which a word is wrong, until the next reset. */
static void damage(unsigned int word, unsigned int value)
{
	if (word < offsetof(struct card_header, window_bus) / 4)
		store(&((uint32_t *)memory.window)[word], value);
}

/* An order is a word and numbers; its answer is the counts. */
static void obey(const char *results)
{
	static const char *const names[KNOBS] = {
		[KNOB_NONE] = "none", [KNOB_HANG] = "hang", [KNOB_LATE] = "late",
		[KNOB_TAG] = "tag", [KNOB_INDEX] = "index", [KNOB_STATUS] = "status",
		[KNOB_NOISE] = "noise", [KNOB_MAD] = "mad", [KNOB_SILENT] = "silent",
	};
	unsigned int card = 0, value = 0, i;
	char path[4096], name[16] = "";
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "%s/card.do", results);
	file = fopen(path, "r");
	if (!file)
		return;
	n = fscanf(file, "%15s %u %i", name, &card, (int *)&value);
	fclose(file);
	unlink(path);
	for (i = 0; i < KNOBS && n > 1 && card < ncards; i++)
		if (!strcmp(names[i], name))
			cards[card].knob = i;
	if (!strcmp(name, "die") && card < ncards && cards[card].process)
		kill(cards[card].process, SIGKILL);
	else if (!strcmp(name, "header"))
		damage(card, value);
	else if (!strcmp(name, "restore"))
		header_write();
	else if (!strcmp(name, "vanish"))
		exit(0);
	write_counts(results, "card.done");
}

int main(int argc, char **argv)
{
	const char *results = argc > 4 ? argv[4] : NULL;
	char path[4096], target[64];
	int ram, window, listener, sock;
	unsigned int i;

	if (argc < 4)
		return fprintf(stderr, "usage: vm-card FOLDER CARDS MEMORY-MIB [RESULTS]\n"), 2;
	signal(SIGPIPE, SIG_IGN);
	ncards = atoi(argv[2]);
	if (ncards < 1 || ncards > CARD_MAX)
		return fprintf(stderr, "vm-card: 1 to %d cards\n", CARD_MAX), 2;
	memory.ram_len = strtoull(argv[3], NULL, 0) << 20;
	memory.low_len = memory.ram_len >= LOW_ALL ? LOW_PART : memory.ram_len;
	memory.ram = shared("ram", memory.ram_len, &ram);
	memory.window_len = WINDOW_LEN;
	memory.data_off = RINGS_LEN;
	memory.window = shared("window", WINDOW_LEN, &window);
	lay_out();
	snprintf(target, sizeof(target), "/proc/%d/fd/%d", getpid(), ram);
	snprintf(path, sizeof(path), "%s/card.ram", argv[1]);
	if (symlink(target, path))
		die(path);
	snprintf(path, sizeof(path), "%s/card.sock", argv[1]);
	listener = server_listen(path);
	if (listener < 0)
		die(path);
	sock = accept(listener, NULL, NULL);
	if (sock < 0 || server_welcome(sock, MACHINE, window, cards, ncards, resets))
		die("the machine");
	for (;;) {
		struct pollfd pollers[] = {
			{ .fd = sock, .events = POLLIN },
			{ .fd = resets, .events = POLLIN },
		};
		uint64_t rings;
		char byte;

		poll(pollers, 2, 50);
		if (pollers[0].revents && read(sock, &byte, 1) <= 0)
			break;
		if (pollers[1].revents)
			(void)!read(resets, &rings, sizeof(rings));
		for (i = 0; i < ncards; i++)
			slot_look(&cards[i]);
		if (results)
			obey(results);
	}
	for (i = 0; i < ncards; i++)
		slot_kill(&cards[i]);
	if (results)
		write_counts(results, "card.log");
	return 0;
}
