// SPDX-License-Identifier: GPL-2.0
/*
 * slot.c - what a card is plugged into: it goes on when the card's firmware (engine.c) hangs or
 * dies, and resets it. Each card is a process of its own, so that to kill it is to be sure
 * that it writes nowhere any more.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "machine.h"

void slot_kill(struct card *card)
{
	if (!card->process)
		return;
	kill(card->process, SIGKILL);
	while (waitpid(card->process, NULL, 0) != card->process)
		;
	card->process = 0;
}

static void power_on(struct card *card)
{
	pid_t slot = getpid(), process;

	card->running = false;
	card->head = 0;
	card->tail = 0;
	store(&card->regs->cq_tail, 0);
	store(&card->regs->started, 0);
	store(&card->regs->error, 0);
	process = fork();
	if (process < 0) {
		perror("vm-card: fork");
		exit(1);
	}
	if (process) {
		card->process = process;
		return;
	}
	/* Nothing writes when the slot is gone, either. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != slot)
		_exit(1);
	card_engine(card);
	_exit(1);
}

/* Has the process died, or is it to be reset? */
void slot_look(struct card *card)
{
	uint32_t reset = load(&card->regs->reset);

	if (card->process && waitpid(card->process, NULL, WNOHANG) == card->process) {
		card->process = 0;
		store(&card->regs->error, CARD_ERR_DIED);
		card_interrupt(card);
	}
	if (reset == card->quiet)
		return;
	slot_kill(card);
	power_on(card);
	card->quiet = reset;
	header_write();
	store(&card->regs->quiet, reset);
}
