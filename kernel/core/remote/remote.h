/* SPDX-License-Identifier: GPL-2.0 */
/*
 * remote.h - ranks on other machines.
 *
 * To the sequencer such a rank looks like any other: its operation is played by a
 * mirror (one for all remote peers of an operation) that has a cell for each step. What
 * the own rank publishes, and takes from the mirror's cells, ends up here as a bell
 * (npulink_remote_bell()) and becomes messages and writes; what comes in is published in
 * the mirror's cells. All of it is protected by the rank's lock.
 */
#ifndef NPULINK_REMOTE_H
#define NPULINK_REMOTE_H

#include <npulink/transport.h>
#include "comm/cause.h"
#include "run/run.h"

#define NPULINK_TICK_AGAIN	4	/* of the oldest of these it is said again */
#define NPULINK_LANDINGS	4	/* of one connection, of NPULINK_WIRE_CHUNK bytes */
#define NPULINK_RX_LOOKS	64	/* steps that wait, and are looked at each time */
#define NPULINK_LANDING_BYTES	(NPULINK_LANDINGS * NPULINK_WIRE_CHUNK)

enum npulink_remote_state {
	NPULINK_REMOTE_NEW,
	NPULINK_REMOTE_CONNECTING,
	NPULINK_REMOTE_UP,
	NPULINK_REMOTE_RESUMING,	/* its connection is lost, another one is being made */
	NPULINK_REMOTE_LEFT,		/* the peer has said goodbye */
	NPULINK_REMOTE_DOWN,
};

/*
 * struct npulink_remote_step - what a step of ours and its remote peers have done
 * @tx_node: on remote->tx: there may be something to send; on tx_credit: it waits for credits
 * @rx_node: on remote->rx: wants chunks; on rx_idle: so do many before it
 * @sent: bytes handed to the transport
 * @acked: bytes that are in the peer's memory, and are not sent again
 * @granted: bytes that the peer has been granted
 * @shown: bytes that the sequencer has been shown, in the mirror's cell
 * @grant: the grant that it is shown, if they landed beside their destination
 * @slot: the message that it is shown
 * @direct: the peer writes to dst itself, there is nothing for the engine to do
 * @done: all has been handed to the transport
 * @requested: the peer has asked for grants
 * @needs: it has data, and no grant to put it into
 * @idle: on rx_idle
 * @asked: we have asked the peer for grants
 * @reqed: ever: it is not sent as a message any more
 * @writes: under way
 * @crc: with checksums and a window, of the bytes of a chunk up to @acked
 * @said: the peer has said that the first @good bytes are good
 * @twice: it was sent for the second time
 * @kept: what was sent is kept until the peer has said that it is good
 */
struct npulink_remote_step {
	struct list_head tx_node;
	struct list_head rx_node;
	struct npulink_op *op;
	u32 step;
	u64 sent;
	u64 acked;
	u64 granted;
	u64 shown;
	s16 grant;
	s16 slot;
	bool direct;
	bool done;
	bool requested;
	bool needs;
	bool idle;
	bool asked;
	bool reqed;
	bool twice;
	bool kept;
	bool said;
	u32 writes;
	u32 crc;
	u64 good;
};

/* What an operation with remote peers has besides. */
struct npulink_far {
	struct npulink_op *mirror;
	struct npulink_remote_step steps[];
};

enum npulink_grant_state {
	NPULINK_GRANT_FREE,
	NPULINK_GRANT_OUT,	/* the peer may write */
	NPULINK_GRANT_REVOKING,	/* it has written, and the key is being revoked */
	NPULINK_GRANT_LANDED,	/* the bytes wait for the engine, or before that, for their sum */
	NPULINK_GRANT_AGAIN,	/* they were damaged: to be granted once more */
	NPULINK_GRANT_RENEW,	/* the connection was lost: to be granted over the next one */
};

/*
 * Memory that the peer may fill. Holds op->inflight while the key is valid, or may be. With
 * checksums:
 * @summed: @sum is known; @good: it is that of what has landed; @twice: for the second time.
 */
struct npulink_grant {
	u8 state;
	s8 landing;		/* -1: straight to dst */
	bool requested;
	bool summed;
	bool good;
	bool twice;
	u16 generation;
	u32 sum;
	struct npulink_remote_step *step;
	u64 off;
	u32 len;
};

enum npulink_offer_state {
	NPULINK_OFFER_FREE,
	NPULINK_OFFER_HELD,	/* waits for the operation, or its data */
};

/*
 * A grant of the peer; free again as soon as the last write to it was posted, and its sum if
 * there are checksums. @twice: what it is for was sent before.
 */
struct npulink_offer {
	u8 state;
	bool p2p;
	bool twice;
	u16 channel;
	u32 pos;
	u32 imm;
	u32 rkey;
	u32 len;
	u32 sent;
	u32 crc;		/* of what was sent */
	u64 number;
	u64 addr;
	u64 off;
	u64 step_len;
	struct npulink_call call;
	struct npulink_remote_step *step;
};

/*
 * A write that the transport has, or that was under way when the connection was lost, @unsure: it
 * is not known whether it has arrived. @step: NULL: free; @end: byte of the step behind it;
 * @imm: the grant's; @last: of the grant; @crc: with checksums, of the chunk up to @end.
 */
struct npulink_write {
	struct npulink_remote_step *step;
	u64 end;
	u32 len;
	u32 imm;
	u32 crc;
	bool last;
	bool unsure;
};

/* The last operation of each place in a table of those in flight of which something is known. */
struct npulink_marks {
	DECLARE_BITMAP(used, NPULINK_MAX_INFLIGHT);
	u64 number[NPULINK_MAX_INFLIGHT];
};

static inline bool npulink_marks_have(const struct npulink_marks *marks, u64 number)
{
	u32 at = number % NPULINK_MAX_INFLIGHT;

	return test_bit(at, marks->used) && marks->number[at] == number;
}

/* Is a later one known in its place? */
static inline bool npulink_marks_passed(const struct npulink_marks *marks, u64 number)
{
	u32 at = number % NPULINK_MAX_INFLIGHT;

	return test_bit(at, marks->used) && npulink_number_before(number, marks->number[at]);
}

static inline void npulink_marks_set(struct npulink_marks *marks, u64 number)
{
	u32 at = number % NPULINK_MAX_INFLIGHT;

	__set_bit(at, marks->used);
	marks->number[at] = number;
}

static inline __le64 npulink_number_to_wire(u64 number)
{
	return cpu_to_le64(npulink_told(number));
}

static inline u64 npulink_number_from_wire(__le64 number)
{
	return npulink_number(le64_to_cpu(number));
}

/* A message that is kept: DATA, until it has been taken. */
struct npulink_held {
	bool used;
	u32 size;
	u64 len;
	u64 number;
	u32 pos;
	u16 channel;
	bool p2p;
	struct npulink_call call;
	struct npulink_remote_step *step;
};

/*
 * struct npulink_remote - the session between a rank here and one elsewhere
 * @put: the transport's view
 * @link: counters
 * @credits: DATA messages that we may send
 * @owed: credits to give back
 * @held_count: slots that the peer's DATA occupies
 * @answer: what the peer has said last of what it does
 * @answered_ns: when that was, 0: never
 * @asked: what the peer has asked last
 * @asked_ns: when that was, 0: never
 * @sent_steps: steps that are in the peer's memory
 * @sent_bytes: their bytes
 * @opened: operations for which the peer wants to be asked, [1]: point-to-point
 * @opened_ns: when all steps of theirs were last looked at for that
 * @full: the transport has refused something, and will say when it has room
 * @left: the peer has said goodbye
 * @shut: it has had its last message
 * @opened_once: the transport knows it: it is to be left, and closed
 * @leaving: it was opened, and has had our goodbye: it is to be closed
 * @not_opened: the transport had no memory for it, say: the next call tries again
 * @check: with checksums
 * @answers: messages about them that are due, @nanswers
 * @writes: that are not known to have arrived
 * @lost_ip: where the peer was when the connection was lost, while RESUMING
 * @lost_port: our port, the same
 * @switches: how often it has gone on over another one
 * @renew: grants are to be renewed
 * @tick: looks after operations that take long
 * @told: when it has last told the peer what we wait for, in jiffies
 */
struct npulink_remote {
	struct npulink_put put;
	struct npulink_rank *rank;
	struct npulink_conn *conn;
	struct npulink_link link;
	struct delayed_work tick;
	unsigned long told;
	u8 state;
	bool full;
	bool shut;
	bool left;
	bool opened_once;
	bool leaving;
	bool not_opened;
	bool check;
	bool renew;
	u32 nanswers;
	u32 tx_seq;
	u32 rx_seq;
	u32 credits;
	u32 owed;
	u32 held_count;
	u32 landings;			/* mask of those in use */
	struct npulink_wire_msg answer;
	u64 answered_ns;
	struct npulink_wire_msg asked;
	u64 asked_ns;
	u64 sent_steps;
	u64 sent_bytes;
	u8 lost_ip[16];
	char lost_port[32];
	u32 switches;
	struct list_head tx;
	struct list_head tx_credit;
	struct list_head rx;
	struct list_head rx_idle;
	struct npulink_grant grants[NPULINK_WIRE_GRANTS];
	struct npulink_offer offers[NPULINK_WIRE_GRANTS];
	struct npulink_write writes[NPULINK_PUT_WRITES];
	struct npulink_held held[NPULINK_PUT_RX];
	struct npulink_marks opened[2];
	u64 opened_ns[2][NPULINK_MAX_INFLIGHT];
	struct npulink_marks open_sent[2];	/* operations that OPEN was sent for */
	struct npulink_wire_msg answers[NPULINK_WIRE_CREDITS + NPULINK_WIRE_GRANTS];
};

#define to_remote(p) container_of(p, struct npulink_remote, put)

/* what the rest of the core gets to call, see remote_op.c */
extern const struct npulink_remote_ops npulink_remote_op_ops;
extern const struct npulink_conn_events npulink_remote_conn_events;
int npulink_remote_resolve(struct npulink_rank *rank, struct npulink_conn *conn);
void npulink_remote_leave(struct npulink_conn *conn);
void npulink_remote_close(struct npulink_conn *conn);
void npulink_remote_free(struct npulink_conn *conn);
int npulink_remote_plan(struct npulink_plan *plan);
void npulink_remote_plan_free(struct npulink_plan *plan);
int npulink_remote_op_alloc(struct npulink_op *op, const struct npulink_plan *plan);
void npulink_remote_op_reset(struct npulink_op *op);
void npulink_remote_op_free(struct npulink_op *op);
int npulink_remote_op_connect(struct npulink_op *op, u32 index, struct npulink_cause *cause);
int npulink_remote_op_strangers(struct npulink_op *op, struct npulink_cause *cause);
bool npulink_remote_has_called(const struct npulink_op *op, const struct npulink_conn *conn);
bool npulink_remote_waits_for(const struct npulink_op *op, u32 *peer, u32 *step);
void npulink_remote_op_finish(struct npulink_op *op, struct npulink_run *run);
void npulink_remote_abort(struct npulink_rank *rank);
void npulink_remote_bell(struct npulink_op *op, u32 step, bool credit, struct npulink_run *run);
void npulink_remote_want(struct npulink_op *op, u32 unit, struct npulink_run *run);
void npulink_remote_want_next(struct npulink_op *op, u32 unit, struct npulink_run *run);
bool npulink_remote_landed(const struct npulink_op *op, u32 unit);
bool npulink_remote_operand(struct npulink_op *op, u32 step, u64 done,
			    struct npulink_operand *o);
int npulink_remote_describe(struct npulink_rank *rank, u32 peer, const struct npulink_where *at);

/* remote.c */
void npulink_remote_set_state(struct npulink_remote *remote, u8 state);
void npulink_remote_look(struct npulink_remote *remote);
void npulink_remote_fail(struct npulink_remote *remote, u32 code);
void npulink_remote_place(const struct npulink_remote *remote, struct npulink_cause *cause);
void npulink_remote_violation(struct npulink_remote *remote, const char *what);
void npulink_remote_mismatch(struct npulink_remote *remote, u64 number, u32 step,
			     const struct npulink_call *ours, const struct npulink_call *theirs);
void npulink_remote_ring(struct npulink_remote_step *rs, struct npulink_run *run);
void npulink_remote_op_less(struct npulink_op *op, struct npulink_run *run);
struct npulink_remote *npulink_remote_of(const struct npulink_op *op, u32 step, bool send);

/* remote_msg.c */
void npulink_remote_stamp(struct npulink_remote *remote, struct npulink_wire_msg *msg);
void npulink_remote_pump(struct npulink_remote *remote, struct npulink_run *run);
int npulink_remote_post_grant(struct npulink_remote *remote, u32 grant,
			      const struct npulink_operand *to, u32 len,
			      struct npulink_wire_msg *msg);
int npulink_remote_post(struct npulink_remote *remote, struct npulink_wire_msg *msg,
			const struct npulink_operand *from, u32 len);
void npulink_remote_msg(struct npulink_remote *remote, struct npulink_wire_msg *msg, u8 type,
			const struct npulink_remote_step *rs, bool send);
bool npulink_remote_put_recv(struct npulink_put *put, u32 slot, u32 len);

/* remote_ask.c */
void npulink_remote_ask(struct npulink_remote *remote, const struct npulink_op *op);
void npulink_remote_asked(struct npulink_remote *remote, const struct npulink_wire_msg *msg);
void npulink_remote_answered(struct npulink_remote *remote, const struct npulink_wire_msg *msg);
const char *npulink_remote_check_ask(const struct npulink_remote *remote,
				     const struct npulink_wire_msg *msg);

/* remote_op.c */
bool npulink_remote_missed(const struct npulink_remote *remote, struct npulink_op *op);
void npulink_remote_fail_missed(struct npulink_remote *remote);
void npulink_remote_unlist(struct npulink_remote *remote);
struct npulink_remote_step *npulink_remote_find(struct npulink_remote *remote, bool p2p,
						u64 number, u16 channel, u32 pos, u64 len,
						const struct npulink_call *call, bool send,
						bool *later, bool *bad);

/* remote_send.c */
void npulink_remote_tx(struct npulink_remote *remote, struct npulink_run *run);
void npulink_remote_offer(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			  const struct npulink_call *call, struct npulink_run *run);
void npulink_remote_send_show(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      struct npulink_run *run);
void npulink_remote_send_acked(struct npulink_remote *remote, struct npulink_remote_step *rs,
			       u64 bytes, struct npulink_run *run);
void npulink_remote_write_arrived(struct npulink_remote *remote, struct npulink_write *w,
				  struct npulink_run *run);
void npulink_remote_writes_down(struct npulink_remote *remote, struct npulink_run *run);
void npulink_remote_put_written(struct npulink_put *put, void *cookie, u32 len);

/* remote_recv.c */
void npulink_remote_rx(struct npulink_remote *remote, struct npulink_run *run);
bool npulink_remote_has_told(const struct npulink_remote *remote, const struct npulink_op *op);
int npulink_remote_open(struct npulink_remote *remote, struct npulink_op *op);
bool npulink_recv_granted(const struct npulink_remote *remote,
			  const struct npulink_remote_step *rs);
void npulink_remote_wake_idle(struct npulink_remote *remote, struct npulink_remote_step *rs);
void npulink_remote_want_step(struct npulink_op *op, u32 step, struct npulink_run *run);
void npulink_remote_taken(struct npulink_remote *remote, struct npulink_remote_step *rs,
			  struct npulink_run *run);
void npulink_remote_arrived_empty(struct npulink_remote *remote, struct npulink_remote_step *rs,
				  struct npulink_run *run);
bool npulink_remote_data(struct npulink_remote *remote, u32 slot,
			 const struct npulink_wire_msg *msg, const struct npulink_call *call,
			 struct npulink_run *run);
void npulink_remote_grant_free(struct npulink_remote *remote, struct npulink_grant *grant);
void npulink_remote_slot_free(struct npulink_remote *remote, u32 slot);
void npulink_remote_recv_next(struct npulink_remote *remote, struct npulink_remote_step *rs,
			      struct npulink_run *run);
int npulink_remote_grant_send(struct npulink_remote *remote, struct npulink_grant *grant);
void npulink_remote_grant_landed(struct npulink_remote *remote, struct npulink_grant *grant,
				 struct npulink_run *run);
void npulink_remote_put_arrived(struct npulink_put *put, u32 imm);
void npulink_remote_put_revoked(struct npulink_put *put, u32 index);

/* Chunk @landing of the connection, where bytes lie beside their destination. */
static inline struct npulink_operand npulink_landing(const struct npulink_remote *remote,
						     int landing)
{
	return (struct npulink_operand) {
		.buf = remote->put.buf,
		.off = NPULINK_MESSAGE_BYTES + (u64)landing * NPULINK_WIRE_CHUNK,
	};
}

/* remote_resume.c */
bool npulink_remote_renew(struct npulink_remote *remote);
void npulink_remote_land(struct npulink_remote *remote, struct npulink_run *run);
void npulink_remote_released(struct npulink_remote *remote);
void npulink_remote_put_where(struct npulink_put *put, struct npulink_wire_place *place);
void npulink_remote_put_up(struct npulink_put *put, const struct npulink_wire_place *place);
bool npulink_remote_put_broken(struct npulink_put *put, int status);
void npulink_remote_put_halted(struct npulink_put *put);

/* remote_check.c */
void npulink_check_good(struct npulink_remote *remote, const struct npulink_remote_step *rs);
bool npulink_check_pump(struct npulink_remote *remote);
bool npulink_check_data(struct npulink_remote *remote, u32 slot,
			const struct npulink_wire_msg *msg, const struct npulink_remote_step *rs);
void npulink_check_chunk(struct npulink_remote *remote, struct npulink_grant *grant,
			 struct npulink_run *run);
void npulink_check_sum(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
		       struct npulink_run *run);
int npulink_check_send_sum(struct npulink_remote *remote, const struct npulink_offer *offer);
void npulink_check_lost(struct npulink_remote *remote, u64 number);
void npulink_check_settle(struct npulink_remote *remote, struct npulink_remote_step *rs,
			  struct npulink_run *run);
void npulink_check_was_good(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			    const struct npulink_call *call, struct npulink_run *run);
void npulink_check_was_bad(struct npulink_remote *remote, const struct npulink_wire_msg *msg,
			   const struct npulink_call *call);
void npulink_check_bye(struct npulink_remote *remote, struct npulink_run *run);

#endif /* NPULINK_REMOTE_H */
