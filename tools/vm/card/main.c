// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - the process that plays NPU cards for a virtual machine: see README.md.
 *
 *	vm-card FOLDER CARDS MEMORY-MIB [RESULTS]
 *
 * FOLDER gets a socket for ivshmem-doorbell (card.sock) and the machine's memory (card.ram, a link). It
 * ends when the machine leaves. In RESULTS, it takes orders (card.do) and answers (card.done), and
 * leaves its counts (card.log).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
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
static struct card cards[CARD_MAX];
static unsigned int ncards;

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

static void lay_out(void)
{
	struct card_header *header = (void *)memory.window;
	unsigned int i;

	*header = (struct card_header) {
		.magic = CARD_MAGIC, .version = CARD_VERSION, .cards = ncards, .entries = ENTRIES,
		.max_len = MAX_LEN, .dtypes = card_dtypes(), .redops = card_redops(),
		.area_off = AREA_OFF, .area_len = AREA_LEN, .sq_off = AREA_SQ, .cq_off = AREA_CQ,
		.mem_off = RINGS_LEN, .mem_len = WINDOW_LEN - RINGS_LEN,
	};
	for (i = 0; i < ncards; i++) {
		uint8_t *area = memory.window + AREA_OFF + i * AREA_LEN;

		cards[i] = (struct card) {
			.index = i, .mem = &memory, .header = header, .regs = (void *)area,
			.sq = (void *)(area + AREA_SQ), .cq = (void *)(area + AREA_CQ),
			.entries = ENTRIES, .doorbell = eventfd(0, EFD_CLOEXEC), .interrupt = -1,
		};
		if (cards[i].doorbell < 0)
			die("eventfd");
	}
}

static void counts(FILE *file)
{
	unsigned int i;

	for (i = 0; i < ncards; i++)
		fprintf(file, "card %u doorbells %llu interrupts %llu requests %llu bytes %llu\n", i,
			(unsigned long long)cards[i].regs->doorbells,
			(unsigned long long)cards[i].regs->interrupts,
			(unsigned long long)cards[i].regs->requests,
			(unsigned long long)cards[i].regs->bytes);
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

/* An order is a knob and a card; its answer is the counts. */
static void obey(const char *folder)
{
	static const char *const names[] = {
		[KNOB_NONE] = "none", [KNOB_HANG] = "hang", [KNOB_TAG] = "tag",
		[KNOB_INDEX] = "index", [KNOB_STATUS] = "status", [KNOB_SILENT] = "silent",
		[KNOB_NOISE] = "noise",
	};
	char path[4096], name[16] = "";
	unsigned int card = 0, i;
	FILE *file;

	snprintf(path, sizeof(path), "%s/card.do", folder);
	file = fopen(path, "r");
	if (!file)
		return;
	if (fscanf(file, "%15s %u", name, &card) == 2 && card < ncards) {
		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (!strcmp(names[i], name))
				cards[card].knob = i;
	}
	fclose(file);
	unlink(path);
	write_counts(folder, "card.done");
}

int main(int argc, char **argv)
{
	int ram, window, listener, sock, own[CARD_MAX], its[CARD_MAX];
	char path[4096], target[64];
	struct pollfd poller;
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
	if (sock < 0)
		die("accept");
	for (i = 0; i < ncards; i++) {
		own[i] = cards[i].doorbell;
		its[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (its[i] < 0)
			die("eventfd");
		cards[i].interrupt = its[i];
		if (pthread_create(&cards[i].thread, NULL, card_engine, &cards[i]))
			die("thread");
	}
	if (server_welcome(sock, MACHINE, window, own, its, ncards))
		die("the machine");
	poller = (struct pollfd) { .fd = sock, .events = POLLIN };
	for (;;) {
		char byte;

		if (poll(&poller, 1, argc > 4 ? 50 : -1) > 0 && read(sock, &byte, 1) <= 0)
			break;
		if (argc > 4)
			obey(argv[4]);
	}
	if (argc > 4)
		write_counts(argv[4], "card.log");
	return 0;
}
