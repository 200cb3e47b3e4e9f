/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wire.h - what two machines say to each other over one reliable connection between
 * two ranks of a communicator.
 *
 * Connection. The lower rank connects, with struct npulink_wire_hello as private data.
 * The other one answers with struct npulink_wire_welcome; the first message each way is
 * struct npulink_wire_auth, the caller's before the other one's. All have a MAC, which proves that
 * their sender knows the communicator's secret. The tag that says which communicator is meant is a
 * hash of the secret: who knows no more than that gets nothing.
 * A call is refused with struct npulink_wire_refusal, which says why. Without a right MAC that
 * ends nothing: the caller tries again until its time is over. Who has not heard of the other one
 * for long calls with NPULINK_WIRE_KNOCK, in either direction: that is always refused, but by a
 * machine that is alive, and the refusal says how the rank is.
 *
 * MACs are keyed BLAKE2s. Each direction has a key of its own: keyed BLAKE2s with the 128-bit
 * secret as key, over the label "npulink key", the rank that speaks, and the one that it speaks to
 * (32 bits each). A MAC is over its label (with the 0 behind it, as all labels), over struct
 * npulink_wire_ends, so that it is good for this connection only, and over all that was said
 * before it in the handshake: the hello, the welcome without its MAC, the place. Those of 16 bytes
 * are the first 16.
 *
 * Going on. Where a rank has several ports, a connection that is lost is followed by another
 * one over other ports. In the first message each side says how many messages it has taken, and
 * which of its grants the peer had not filled. Messages that it has not taken are repeated, with
 * their numbers; those grants are worth nothing, and granted anew, with NPULINK_WIRE_RENEWED and
 * a new number, before anything else of their steps is.
 *
 * Messages. All that follows is struct npulink_wire_msg, with payload if it is DATA, or
 * ABORT's cause. A step is named by the operation (number, point-to-point or not), the channel,
 * and its place among those of this pair of ranks on that channel. A step of at most
 * NPULINK_WIRE_EAGER bytes is sent as DATA as soon as the sender has it, if it has a credit
 * for one of the receiver's slots. Of a larger one the receiver GRANTs chunks, when it has come to
 * that step: each is a memory key for that range only, which the sender fills by RDMA
 * writes, the last one with the grant's number as immediate; then the key is
 * revoked, then the data used. A receiver that has no grants left for a step says OPEN:
 * from then on the sender tells it by REQ which steps of the operation have data, and by that
 * alone if a step has no bytes and there is no credit for DATA; again when a step has filled all
 * that it was granted, and has more. The last grant is kept for those who say so. A rank
 * that has waited for long ASKs how its peer is, and is told by STATUS.
 *
 * Checksums, if the hello says so. DATA carries the CRC32C of its payload, and a SUM follows
 * the last write of each grant. The sender keeps what it sent until the receiver says
 * GOOD. What arrived damaged is asked for once more: DATA by AGAIN, a chunk by a GRANT with
 * NPULINK_WIRE_TWICE, and the answer has that flag, too.
 *
 * Agreement. Machines that go on without some ranks of a failed communicator (COMM_SHRINK)
 * agree on who is left over connections of another kind, one between any two of them. A
 * machine is called by the lowest rank that is said to be on it, and has a place: machines are
 * counted in the order of these ranks. Tag and MACs are made from a hash of the secret (keyed
 * BLAKE2s with the secret as key, over the label "npulink agree"; its first 16 bytes), so
 * that nothing said on one kind of connection is of use on the other. Who is called and has gone
 * on without the caller refuses with NPULINK_WIRE_FAILED. When it knows which of the others
 * it can reach, each machine tells them by ALIVE, again whenever that changes. From that each
 * picks the most that all reach each other (core/comm/agree_pick.h); the first one of them decides:
 * it makes all of them an OFFER, each ACCEPTs, then it says COMMIT, which each passes on to all the
 * others. An OFFER without the one that it is sent to takes the one before it back. Who is left
 * out is told so by WITHOUT, by each that has heard COMMIT from all that it reaches: none is left
 * out by who then dies. The new secret is a hash of the old one, of the nonce of
 * the OFFER, and of which ranks go on, so it is not sent.
 */
#ifndef NPULINK_WIRE_H
#define NPULINK_WIRE_H

#include <linux/types.h>

#define NPULINK_WIRE_MAGIC	0x6b6c706eU	/* "nplk" */
#define NPULINK_WIRE_VERSION	5	/* and what the limits below are */
#define NPULINK_WIRE_SLOT	4096U		/* one message with its payload */
#define NPULINK_WIRE_EAGER	(NPULINK_WIRE_SLOT - 128U)
#define NPULINK_WIRE_CHUNK	(128U << 10)	/* largest grant */
#define NPULINK_WIRE_GRANTS	8U		/* per connection and direction */
#define NPULINK_WIRE_CREDITS	8U		/* slots for DATA per direction */

/**
 * struct npulink_wire_ends - what a connection is between; not sent
 * @caller: GID of the port that calls; of RoCE, that is its IP address, IPv4 in its mapped form
 * @called: of the one that is called, the same
 * @caller_qp: number of the queue pair of who calls, 0 of a knock
 * @called_qp: of who is called, 0 as long as that has not answered, and in refusals
 */
struct npulink_wire_ends {
	__u8 caller[16];
	__u8 called[16];
	__le32 caller_qp;
	__le32 called_qp;
} __packed;

/**
 * struct npulink_wire_hello - private data of the connection request
 * @magic: NPULINK_WIRE_MAGIC
 * @version: NPULINK_WIRE_VERSION
 * @flags: NPULINK_WIRE_CHECKSUM, NPULINK_WIRE_KNOCK, with that NPULINK_WIRE_LOST
 * @rank: of the sender
 * @peer: rank that is called
 * @tag: which communicator
 * @when: more than in any hello that the sender has sent to this rank before; what has not is old
 * @nonce: random
 * @mac: over "npulink hello", and this up to here
 */
struct npulink_wire_hello {
	__le32 magic;
	__le16 version;
	__le16 flags;
	__le32 rank;
	__le32 peer;
	__u8 tag[8];
	__le64 when;
	__u8 nonce[8];
	__u8 mac[16];
} __packed;

#define NPULINK_WIRE_CHECKSUM	1
#define NPULINK_WIRE_KNOCK	2
#define NPULINK_WIRE_LOST	4	/* that is lost: see whether it is */

/**
 * struct npulink_wire_welcome - private data of the answer
 * @magic: NPULINK_WIRE_MAGIC
 * @version: NPULINK_WIRE_VERSION
 * @reserved: 0
 * @nonce: random
 * @mac: over "npulink welcome", the hello, and this up to here
 */
struct npulink_wire_welcome {
	__le32 magic;
	__le16 version;
	__le16 reserved;
	__u8 nonce[16];
	__u8 mac[32];
} __packed;

/**
 * struct npulink_wire_refusal - private data of the refusal
 * @reason: NPULINK_WIRE_LATER ..
 * @reserved: 0
 * @mac: over "npulink refusal", the hello, and this up to here; 0 if who is called does not know
 *	 the communicator, or the hello's MAC is wrong
 */
struct npulink_wire_refusal {
	__u8 reason;
	__u8 reserved[3];
	__u8 mac[16];
} __packed;

/* Why a connection was refused. */
#define NPULINK_WIRE_LATER	1	/* not now: the rank is here, but not ready */
#define NPULINK_WIRE_VERSIONS	2	/* version does not fit */
#define NPULINK_WIRE_NOBODY	3	/* the rank is not here: has not come, or has gone */
#define NPULINK_WIRE_FAILED	4	/* its communicator has failed */

/**
 * struct npulink_wire_place - where a rank is in what the other one sends
 * @seq: messages that it has taken
 * @out: bit i: grant i has not been filled
 * @reserved: 0
 * @generation: upper half of the number that grant i had last
 */
struct npulink_wire_place {
	__le32 seq;
	__le16 out;
	__le16 reserved;
	__le16 generation[NPULINK_WIRE_GRANTS];
} __packed;

/**
 * struct npulink_wire_auth - first message of each side
 * @place: where it is
 * @mac: over "npulink auth", of who was called "npulink ready", the hello, the welcome without
 *	 its MAC, and @place
 */
struct npulink_wire_auth {
	struct npulink_wire_place place;
	__u8 mac[32];
} __packed;

#define NPULINK_WIRE_DATA	1
#define NPULINK_WIRE_GRANT	2
#define NPULINK_WIRE_OPEN	3
#define NPULINK_WIRE_REQ	4
#define NPULINK_WIRE_GOOD	5
#define NPULINK_WIRE_AGAIN	6
#define NPULINK_WIRE_SUM	7
#define NPULINK_WIRE_CREDIT	8
#define NPULINK_WIRE_ABORT	9
#define NPULINK_WIRE_BYE	10
#define NPULINK_WIRE_ASK	11
#define NPULINK_WIRE_STATUS	12
#define NPULINK_WIRE_TYPES	13

/* Of an agreement. */
#define NPULINK_WIRE_ALIVE	32
#define NPULINK_WIRE_OFFER	33
#define NPULINK_WIRE_ACCEPT	34
#define NPULINK_WIRE_COMMIT	35
#define NPULINK_WIRE_WITHOUT	36
#define NPULINK_WIRE_AGREES	37

#define NPULINK_WIRE_PLACES	8192U	/* machines of an agreement, and ranks of each */

#define NPULINK_WIRE_P2P	1
#define NPULINK_WIRE_SENDS	2
#define NPULINK_WIRE_TWICE	4
#define NPULINK_WIRE_RENEWED	8

#define NPULINK_WIRE_NOT_CALLED	0
#define NPULINK_WIRE_RUNNING	1
#define NPULINK_WIRE_OVER	2

/**
 * struct npulink_wire_call - struct npulink_call
 * @collective: see there
 * @dtype: see there
 * @redop: see there
 * @root: see there
 * @count: see there
 * @set_id: see there
 */
struct npulink_wire_call {
	__le32 collective;
	__le32 dtype;
	__le32 redop;
	__le32 root;
	__le64 count;
	__le64 set_id;
} __packed;

/**
 * struct npulink_wire_status - what a rank does; in STATUS, and in ASK with @since only
 * @next: number of its next collective
 * @since: ns for which it has waited for what @kind says
 * @done: bytes of that step that are done
 * @len: bytes of it
 * @peer: rank that it waits for, NPULINK_NO_PEER: none
 * @step: step of its plan
 * @called: the operation that was asked for: NPULINK_WIRE_NOT_CALLED ..
 * @kind: NPULINK_WAIT_* if that is running, 0: nothing
 * @task: state of its process, a letter as ps has it
 * @reserved: 0
 */
struct npulink_wire_status {
	__le64 next;
	__le64 since;
	__le64 done;
	__le64 len;
	__le32 peer;
	__le32 step;
	__u8 called;
	__u8 kind;
	__u8 task;
	__u8 reserved[69];
} __packed;

/**
 * struct npulink_wire_agree - of an agreement
 * @decider: OFFER, ACCEPT, COMMIT: place of the machine that made the offer, which
 *	     numbers its offers by @number of struct npulink_wire_msg, from 1
 * @size: ALIVE, OFFER: bytes of payload
 * @nonce: OFFER: random
 * @flags: ALIVE: NPULINK_WIRE_MINORITY: a rank has asked for NPULINK_SHRINK_MINORITY
 * @reserved: 0
 */
struct npulink_wire_agree {
	__le32 decider;
	__le32 size;
	__u8 nonce[16];
	__le32 flags;
	__u8 reserved[84];
} __packed;

#define NPULINK_WIRE_MINORITY	1

/**
 * struct npulink_wire_msg - header of every message
 * @type: NPULINK_WIRE_DATA ..
 * @flags: NPULINK_WIRE_P2P: @number counts point-to-point operations of this pair;
 *	   NPULINK_WIRE_SENDS: ASK, STATUS: of which it is the asking rank that sends;
 *	   NPULINK_WIRE_TWICE: DATA, GRANT: for the second time, as it came damaged;
 *	   NPULINK_WIRE_RENEWED: GRANT: it was not filled when a connection was lost
 * @credits: slots for DATA that have become free again
 * @seq: messages of this direction are counted from 0
 * @number: operation
 * @call: what it is
 * @len: bytes of the step
 * @off: GRANT: first byte of the chunk; GOOD: bytes of the step that have arrived undamaged
 * @addr: GRANT: where to write it
 * @size: GRANT: bytes of the chunk; DATA, ABORT: bytes of payload
 * @rkey: GRANT: key
 * @imm: GRANT: immediate of the last write; SUM: the same
 * @pos: place of the step in its stream
 * @channel: its channel
 * @sum: SUM: CRC32C of the chunk; DATA: of the payload
 * @reserved: 0
 * @status: ASK, STATUS: instead of all from @call on
 * @agree: ALIVE, OFFER, ACCEPT, COMMIT, WITHOUT: the same
 *
 * Members that a type does not use are 0.
 */
struct npulink_wire_msg {
	__u8 type;
	__u8 flags;
	__le16 credits;
	__le32 seq;
	__le64 number;
	union {
		struct npulink_wire_agree agree;
		struct {
			struct npulink_wire_call call;
			__le64 len;
			__le64 off;
			__le64 addr;
			__le32 size;
			__le32 rkey;
			__le32 imm;
			__le32 pos;
			__le16 channel;
			__le32 sum;
			__u8 reserved[34];
		} __packed;
		struct npulink_wire_status status;
	};
} __packed;

static_assert(sizeof(struct npulink_wire_msg) == NPULINK_WIRE_SLOT - NPULINK_WIRE_EAGER);
/* All that a connection request has room for. */
static_assert(sizeof(struct npulink_wire_hello) == 56);

/**
 * struct npulink_wire_cause - payload of ABORT: why the communicator has failed
 * @cause: NPULINK_CAUSE_*
 * @rank: as in struct npulink_result
 * @peer: the same
 * @step: the same
 * @number: the same
 * @code: as in struct npulink_comm_status
 * @reserved: 0
 * @calls: the same
 * @ip: the same, 0: does not apply
 * @port: the same, with zeros behind it
 */
struct npulink_wire_cause {
	__le32 cause;
	__le32 rank;
	__le32 peer;
	__le32 step;
	__le64 number;
	__le32 code;
	__le32 reserved;
	struct npulink_wire_call calls[2];
	__u8 ip[16];
	__u8 port[32];
} __packed;

/**
 * struct npulink_wire_alive - payload of ALIVE
 * @cause: why the communicator has failed
 * @places: a hash of which rank is where
 * @nplaces: number of machines
 * @nranks: ranks that are said to be on the sender's machine
 * @dead: machines that it cannot reach, by place, the first in the lowest bit; never fewer
 *	  than before
 * @live: which of those ranks live, in their order; always the same
 */
struct npulink_wire_alive {
	struct npulink_wire_cause cause;
	__le64 places;
	__le32 nplaces;
	__le32 nranks;
	__u8 dead[NPULINK_WIRE_PLACES / 8];
	__u8 live[NPULINK_WIRE_PLACES / 8];
} __packed;

static_assert(sizeof(struct npulink_wire_alive) <= NPULINK_WIRE_EAGER);

/**
 * struct npulink_wire_offer - payload of OFFER
 * @places: machines that are to go on; the sender and the receiver among them, or if there was
 *	    an offer before, not the receiver, or none
 */
struct npulink_wire_offer {
	__u8 places[NPULINK_WIRE_PLACES / 8];
} __packed;

#endif /* NPULINK_WIRE_H */
