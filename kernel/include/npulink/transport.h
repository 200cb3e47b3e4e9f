/* SPDX-License-Identifier: GPL-2.0 */
/*
 * transport.h - what a module implements that makes links to other machines.
 *
 * A device reaches other machines over the ports that an administrator bound to it. Between
 * a local rank and a rank elsewhere there is one session (struct npulink_put), over which
 * messages are sent and bytes are put into the peer's memory. What the messages mean is the
 * core's business (wire.h, remote.c); the transport connects, proves the secret,
 * carries, and says what has happened.
 *
 * A session goes over one connection at a time, between one of our ports and one of the peer's.
 * If that is lost and there are other ports, the transport makes another one, and the core
 * goes on where the two sides are (remote_resume.c).
 */
#ifndef NPULINK_TRANSPORT_H
#define NPULINK_TRANSPORT_H

#include <linux/list.h>
#include <linux/types.h>
#include <net/net_namespace.h>
#include <npulink/device.h>
#include <npulink/wire.h>

struct netlink_ext_ack;
struct npulink_put_events;
struct npulink_transport;

#define NPULINK_PUT_RX		32	/* slots that messages arrive in */
#define NPULINK_PUT_TX		16	/* slots that they are sent from */
#define NPULINK_PUT_WRITES	8	/* writes under way at a time */
#define NPULINK_TAG_LEN		8

/**
 * struct npulink_port - a port that is bound to a device
 * @node: on npulink_device.ports
 * @dev: device
 * @transport: whose port
 * @net: network namespace that it was bound in: only processes in it use it; not held
 * @name: its name, "rxe0/1"
 * @addr: where peers find it, set by bind, its port by listen
 * @priv: for the transport
 */
struct npulink_port {
	struct list_head node;
	struct npulink_device *dev;
	const struct npulink_transport *transport;
	struct net *net;
	char name[32];
	struct npulink_addr addr;
	void *priv;
};

/**
 * struct npulink_put - one session, from a local rank to one elsewhere
 * @transport: who carries it
 * @events: whose it is, and is told of what happens: a rank, or an agreement
 * @dev: the local rank's device; NULL: any port that is bound in @net will do
 * @net: network namespace of the rank's process
 * @secret: the communicator's
 * @tag: what the transport's tag() has made of it
 * @rank: local rank
 * @peer: rank that it leads to; the lower of the two connects
 * @checksum: the communicator's: both ends must agree
 * @agree: for an agreement about who is left (core/comm/agree.c), not a rank's: who is not there
 *	   is not waited for
 * @timeout_ms: how long a peer that does not answer is waited for; 0 until open, if the
 *	user has no wish
 * @addrs: where that one can be reached
 * @naddrs: how many there are
 * @addr: of these, where it was called last; the transport's
 * @tx_free: slots to send from that are free, the others hold a message which the peer's device
 *	is not known to have acknowledged; the transport's
 * @buf: slots: first NPULINK_PUT_RX to receive, then NPULINK_PUT_TX to send, of
 *	 NPULINK_WIRE_SLOT bytes, none of them across a page
 * @opening: the rank left before npulink_put_up() was called: the last message is sent by that
 * @via: name of the port that it goes over, for people; the transport's, its last byte stays 0
 * @priv: for the transport
 */
struct npulink_put {
	const struct npulink_transport *transport;
	const struct npulink_put_events *events;
	struct npulink_device *dev;
	struct net *net;
	const u8 *secret;
	const u8 *tag;
	u32 rank;
	u32 peer;
	bool checksum;
	bool agree;
	u32 timeout_ms;
	struct npulink_addr addrs[NPULINK_PEER_ADDRS];
	u32 naddrs;
	struct npulink_addr addr;
	unsigned long tx_free;
	struct npulink_buf *buf;
	bool opening;
	char via[32];
	void *priv;
};

/**
 * struct npulink_transport - a kind of link to other machines
 * @node: on the list of all
 * @name: "rdma"
 * @kind: NPULINK_PEER_*
 * @owner: module, held by each port and each connection
 *
 * Those callbacks that are called with the rank's lock held (an agreement's, of its
 * connections) do not sleep, and call nothing
 * in the core. What they start ends in one call from the list below, or in
 * npulink_put_down(), after which nothing is in flight any more.
 */
struct npulink_transport {
	struct list_head node;
	const char *name;
	u32 kind;
	struct module *owner;
	/** @bind: find port->name, fill in port->addr. May sleep. */
	int (*bind)(struct npulink_port *port, struct netlink_ext_ack *extack);
	/**
	 * @listen: take calls at port->addr, fill in its port: the same one as before, if that is
	 * free. May sleep, and hold the network namespace.
	 */
	int (*listen)(struct npulink_port *port);
	/** @unlisten: undo listen, if it does. May sleep. Both come one at a time. */
	void (*unlisten)(struct npulink_port *port);
	/** @unbind: break what uses it, unlisten, forget it. May sleep. */
	void (*unbind)(struct npulink_port *port);
	/**
	 * @open: connect, or wait to be connected to. npulink_put_up() or
	 * npulink_put_down() tell how it went. May sleep.
	 */
	int (*open)(struct npulink_put *put);
	/**
	 * @leave: @close will follow. If @msg is not NULL, it is the last message, and sent now, or
	 * as soon as there is a connection again. May sleep, but waits for nobody: who leaves
	 * many waits once, and not for each.
	 */
	void (*leave)(struct npulink_put *put, const struct npulink_wire_msg *msg);
	/**
	 * @close: undo open, after npulink_put_down() if that was not called before. What was sent
	 * as one left, arrives first if possible. May sleep, for a bounded time from then on.
	 */
	void (*close)(struct npulink_put *put);
	/**
	 * @shut: send this as the last message if that is possible, then break the
	 * connection; npulink_put_down() follows. Rank's lock held.
	 */
	void (*shut)(struct npulink_put *put, const struct npulink_wire_msg *msg,
		     const void *payload, u32 len);
	/**
	 * @send: send a message with @len bytes of payload from @from. They may be
	 * overwritten when this returns. -EAGAIN: npulink_put_room() will be called, or
	 * the connection is lost. Rank's lock held.
	 */
	int (*send)(struct npulink_put *put, const struct npulink_wire_msg *msg,
		    const struct npulink_operand *from, u32 len);
	/**
	 * @grant: let the peer write @len bytes at @to: fill in msg->addr and msg->rkey,
	 * and send @msg. -EAGAIN as for send. Rank's lock held.
	 */
	int (*grant)(struct npulink_put *put, u32 grant, const struct npulink_operand *to, u32 len,
		     struct npulink_wire_msg *msg);
	/** @revoke: take the key back; ends in npulink_put_revoked(). Rank's lock held. */
	void (*revoke)(struct npulink_put *put, u32 grant);
	/**
	 * @write: put @len bytes from @from at the peer's @addr; ends in
	 * npulink_put_written() with @cookie, in any case. With @last, the peer is told
	 * @imm. -EAGAIN as for send. Rank's lock held.
	 */
	int (*write)(struct npulink_put *put, void *cookie, const struct npulink_operand *from,
		     u32 len, u64 addr, u32 rkey, bool last, u32 imm);
	/**
	 * @resend: the first thing after npulink_put_up() was called: repeat, from their
	 * slots and in order, the messages from number @seq on, and forget those before. Rank's
	 * lock held.
	 */
	void (*resend)(struct npulink_put *put, u32 seq);
	/** @recycle: the core is done with slot @slot that it had kept. Rank's lock held. */
	void (*recycle)(struct npulink_put *put, u32 slot);
	/** @tag: a hash that names a communicator to those who know its secret. */
	void (*tag)(const u8 *secret, u8 tag[NPULINK_TAG_LEN]);
	/** @probe: find out whether the peer's machine lives. Rank's lock held. */
	void (*probe)(struct npulink_put *put);
};

int npulink_transport_register(struct npulink_transport *transport);
void npulink_transport_unregister(struct npulink_transport *transport);

/*
 * May rank @rank of the communicator that @tag names still take a call in @net? 0: yes;
 * -ENOENT: there is no such rank here (any more); -ECONNABORTED: the communicator has failed.
 * @known: the tag names one, and this is its @secret. May sleep.
 */
int npulink_put_expected(const struct net *net, const u8 *tag, u32 rank, u8 secret[16],
			 bool *known);

/**
 * struct npulink_put_events - what happens to a session, told to whoever it belongs to
 *
 * All of them are there. They are called by the functions of their names below.
 */
struct npulink_put_events {
	/** @needed: is the peer waited for, or will it be? */
	bool (*needed)(struct npulink_put *put);
	/** @where: where we are in what the peer sends: no connection stands. */
	void (*where)(struct npulink_put *put, struct npulink_wire_place *place);
	/**
	 * @up: a connection stands, and the peer has proved that it knows the secret, and is at
	 * @place in what we send. Nothing of an earlier connection is in flight, here or there.
	 */
	void (*up)(struct npulink_put *put, const struct npulink_wire_place *place);
	/**
	 * @broken: the connection is lost, for that reason, but there may be another one. Is it to
	 * be made? Then nothing more is begun, but what comes is still taken. It may say no when it
	 * is asked again.
	 */
	bool (*broken)(struct npulink_put *put, int status);
	/** @halted: nothing is in flight, and no key is worth anything. Task context. */
	void (*halted)(struct npulink_put *put);
	/** @recv: a message is in slot @slot. Returns whether the slot is kept. */
	bool (*recv)(struct npulink_put *put, u32 slot, u32 len);
	/** @arrived: the peer has filled a grant. */
	void (*arrived)(struct npulink_put *put, u32 imm);
	/** @revoked: a key is worth nothing any more. */
	void (*revoked)(struct npulink_put *put, u32 grant);
	/**
	 * @written: what write was given as @cookie has ended; @len bytes are there, or 0 if it
	 * failed: then they may be there or not.
	 */
	void (*written)(struct npulink_put *put, void *cookie, u32 len);
	/** @room: there is room again for what was refused with -EAGAIN. */
	void (*room)(struct npulink_put *put);
	/**
	 * @lost: the session is lost for that reason, and nothing more is begun on it: others may
	 * be told before it is taken down.
	 */
	void (*lost)(struct npulink_put *put, int status);
	/**
	 * @down: the session is no more, for that reason, and nothing is in flight. Task context.
	 */
	void (*down)(struct npulink_put *put, int status);
};

static inline bool npulink_put_needed(struct npulink_put *put)
{
	return put->events->needed(put);
}

static inline void npulink_put_where(struct npulink_put *put, struct npulink_wire_place *place)
{
	put->events->where(put, place);
}

static inline void npulink_put_up(struct npulink_put *put, const struct npulink_wire_place *place)
{
	put->events->up(put, place);
}

static inline bool npulink_put_broken(struct npulink_put *put, int status)
{
	return put->events->broken(put, status);
}

static inline void npulink_put_halted(struct npulink_put *put)
{
	put->events->halted(put);
}

static inline bool npulink_put_recv(struct npulink_put *put, u32 slot, u32 len)
{
	return put->events->recv(put, slot, len);
}

static inline void npulink_put_arrived(struct npulink_put *put, u32 imm)
{
	put->events->arrived(put, imm);
}

static inline void npulink_put_revoked(struct npulink_put *put, u32 grant)
{
	put->events->revoked(put, grant);
}

static inline void npulink_put_written(struct npulink_put *put, void *cookie, u32 len)
{
	put->events->written(put, cookie, len);
}

static inline void npulink_put_room(struct npulink_put *put)
{
	put->events->room(put);
}

static inline void npulink_put_lost(struct npulink_put *put, int status)
{
	put->events->lost(put, status);
}

static inline void npulink_put_down(struct npulink_put *put, int status)
{
	put->events->down(put, status);
}

#endif /* NPULINK_TRANSPORT_H */
