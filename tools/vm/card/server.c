// SPDX-License-Identifier: GPL-2.0
/*
 * server.c - QEMU's ivshmem protocol: numbers of 8 bytes over a socket, some with a descriptor.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "machine.h"

int server_listen(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path) >=
	    (int)sizeof(addr.sun_path))
		return -1;
	if (sock < 0 || bind(sock, (void *)&addr, sizeof(addr)) || listen(sock, 1))
		return -1;
	return sock;
}

static int tell(int sock, int64_t number, int fd)
{
	struct iovec iov = { &number, sizeof(number) };
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.space;
		msg.msg_controllen = sizeof(control.space);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == sizeof(number) ? 0 : -1;
}

/* Version, its number, the window, the cards' doorbells and that of resets, its own interrupts. */
int server_welcome(int sock, int id, int window, const struct card *cards, unsigned int ncards,
		   int reset)
{
	unsigned int i;
	int rc = tell(sock, 0, -1) | tell(sock, id, -1) | tell(sock, -1, window);

	for (i = 0; i < ncards; i++)
		rc |= tell(sock, CARD_PEER, cards[i].doorbell);
	rc |= tell(sock, CARD_PEER, reset);
	for (i = 0; i < ncards; i++)
		rc |= tell(sock, id, cards[i].interrupt);
	return rc;
}
