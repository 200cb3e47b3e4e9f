/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * rxe.h - modules, and an RDMA port of npu0 that is on this machine only: rxe8/1, on a dummy
 * interface. For programs with modules=none.
 */
#ifndef SELFTESTS_RXE_H
#define SELFTESTS_RXE_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "raw.h"

#define RXE_PARAMETERS	"/sys/module/npulink_rdma/parameters/"

static inline int sh(const char *command)
{
	return system(command);
}

/* Two devices; npu0 has the port, at address @ip. Returns 0 or what to say. */
static inline const char *rxe_set_up(const char *ip)
{
	char address[128];

	snprintf(address, sizeof(address), "ip addr add %s/24 dev dummy8 2>/dev/null; "
		 "ip link set dummy8 up", ip);
	if (sh("modprobe rdma_rxe") ||
	    sh("modprobe dummy 2>/dev/null; ip link add dummy8 type dummy 2>/dev/null; true") ||
	    sh(address) ||
	    sh("rdma link show rxe8/1 >/dev/null 2>&1 || "
	       "rdma link add rxe8 type rxe netdev dummy8") ||
	    sh("tools/vm/modules load ndev=2") ||
	    sh("tools/vm/modules insert npulink_rdma peer_timeout=20000"))
		return "cannot set up links";
	/* The address takes a moment until it is known to rxe. */
	for (int tries = 0; tries < 50; tries++) {
		if (!sh("build/tools/npulink link add npu0 rdma rxe8/1 2>/dev/null"))
			return NULL;
		raw_sleep_ms(100);
	}
	return "no port";
}

/* The same, and the port at which the kernel listens, big endian. */
static inline const char *rxe_set_up_port(const char *ip, uint16_t *port)
{
	struct npulink_port_info info = { .size = sizeof(info) };
	const char *why = rxe_set_up(ip);
	int fd;

	if (why)
		return why;
	fd = raw_open(0);
	if (raw_ioctl(fd, NPULINK_PORT_INFO, &info))
		why = "no port";
	*port = info.out_addr.port;
	close(fd);
	return why;
}

static inline void rxe_take_down(void)
{
	sh("rdma link delete rxe8; ip link delete dummy8");
}

/*
 * The test proper is what follows, in a process of its own: libibverbs keeps the device open as
 * long as a process lives, and it is to be taken down at the end.
 */
static inline void rxe_apart(void)
{
	int status;

	if (!fork())
		return;
	wait(&status);
	rxe_take_down();
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

/* Does the module hold nothing any more? */
static inline bool rxe_nothing_left(void)
{
	return RAW_EVENTUALLY(raw_read(RXE_PARAMETERS "keys") == 0 &&
			      raw_read(RXE_PARAMETERS "connections") == 0);
}

/* A peer that is said to be at @ip and @port of another machine. */
static inline int rxe_peer(struct npulink_peer *peer, int fd, const char *ip, uint16_t port)
{
	struct npulink_device_info info;

	if (raw_info(fd, &info))
		return -1;
	memset(peer, 0, sizeof(*peer));
	peer->kind = NPULINK_PEER_RDMA;
	memcpy(peer->node_id, info.out_node_id, sizeof(peer->node_id));
	peer->node_id[0] ^= 1;
	peer->addr.ip[10] = 0xff;
	peer->addr.ip[11] = 0xff;
	inet_pton(AF_INET, ip, peer->addr.ip + 12);
	peer->addr.port = port;
	return 0;
}

#endif /* SELFTESTS_RXE_H */
