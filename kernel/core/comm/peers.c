// SPDX-License-Identifier: GPL-2.0
/*
 * peers.c - where the ranks of a communicator are, as their processes have told each other
 * (COMM_PEERS). A peer on another machine has an address for each port that it is reached over.
 */
#include <linux/uaccess.h>
#include "comm/comm.h"
#include "device/device_core.h"
#include "file/file.h"

/* A peer's address, and the @nmore behind it: take out those that are not there. */
static int npulink_peer_addrs(struct npulink_addr *addrs, u32 nmore, u32 *n)
{
	u32 i, k;

	*n = 1;
	for (i = 0; i <= nmore; i++) {
		if (memchr_inv(addrs[i].reserved, 0, sizeof(addrs[i].reserved)))
			return -EOPNOTSUPP;
		if (!i || !memchr_inv(&addrs[i], 0, sizeof(addrs[i])))
			continue;
		/* Several ports may have one address. */
		for (k = 0; k < *n && memcmp(&addrs[k], &addrs[i], sizeof(addrs[i])); k++)
			;
		if (k == *n)
			addrs[(*n)++] = addrs[i];
	}
	memset(&addrs[*n], 0, (NPULINK_PEER_ADDRS - *n) * sizeof(*addrs));
	return 0;
}

static int npulink_comm_peer(struct npulink_rank *rank, u32 index,
			     const struct npulink_peer *peer, struct npulink_where *at, u32 nmore)
{
	bool here = !memcmp(peer->node_id, npulink_node_id, sizeof(peer->node_id));
	bool local = peer->kind == NPULINK_PEER_LOCAL;
	struct npulink_conn *conn;
	int rc;

	if (peer->kind > NPULINK_PEER_RDMA || peer->reserved)
		return -EOPNOTSUPP;
	rc = npulink_peer_addrs(at->addrs, nmore, &at->naddrs);
	if (rc)
		return rc;
	if (here != local)
		return -EADDRNOTAVAIL;
	if (!here)
		return npulink_conn_events->describe(rank, index, at);
	if (memchr_inv(at->addrs, 0, at->naddrs * sizeof(*at->addrs)))
		return -EOPNOTSUPP;
	/* It needs no record: ranks of one node meet by themselves. */
	conn = xa_load(&rank->conns, index);
	return conn && conn->far ? -EBUSY : 0;
}

/* Number @i of those that @cmd describes. */
static int npulink_comm_peer_get(struct npulink_rank *rank, const struct npulink_comm_peers *cmd,
				 u32 i)
{
	struct npulink_peer __user *user = u64_to_user_ptr(cmd->peers);
	struct npulink_addr __user *more = u64_to_user_ptr(cmd->more);
	struct npulink_where at = { };
	struct npulink_peer peer;

	if (copy_from_user(&peer, &user[i], sizeof(peer)) ||
	    copy_from_user(&at.addrs[1], &more[(u64)i * cmd->nmore], cmd->nmore * sizeof(*more)))
		return -EFAULT;
	at.addrs[0] = peer.addr;
	memcpy(at.node, peer.node_id, sizeof(at.node));
	return npulink_comm_peer(rank, cmd->first + i, &peer, &at, cmd->nmore);
}

int npulink_comm_peers_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_peers *cmd = ucmd->cmd;
	struct npulink_rank *rank;
	u32 i, last;
	int rc = 0;

	if (cmd->flags || cmd->reserved || cmd->reserved2)
		return -EOPNOTSUPP;
	if (cmd->nmore >= NPULINK_PEER_ADDRS)
		return -EINVAL;
	rank = npulink_rank_lookup(ucmd->file, cmd->comm_id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	if (check_add_overflow(cmd->first, cmd->npeers, &last) || last > rank->comm->nranks)
		rc = -EINVAL;
	for (i = 0; !rc && i < cmd->npeers; i++) {
		rc = npulink_comm_peer_get(rank, cmd, i);
		if (!(i & 0xfff)) {
			cond_resched();
			if (fatal_signal_pending(current))
				rc = rc ?: -EINTR;
		}
	}
	npulink_rank_put(rank);
	return rc;
}
