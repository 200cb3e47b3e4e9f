/* SPDX-License-Identifier: GPL-2.0 */
/*
 * session.pml - Promela model of a session that goes on over another connection when the one that
 * it goes over is lost (remote_resume.c, rdma/lane.c, rdma/cm.c).
 *
 * Rank SEND has DATAS messages and CHUNKS chunks for rank RECV, which grants memory for each chunk
 * by a message, and which is called. Either of them may lose its end of the connection at any time,
 * BREAKS times in all, also while nothing else is wrong: what is under way goes on
 * arriving at the other end as long as that is alive. Which of the messages and writes that
 * had arrived were acknowledged is anybody's guess. Modelled are
 *
 *   - the numbers of messages and who keeps them until when: npulink_remote_post(), rdma_tx_done(),
 *     npulink_resume_messages(), rdma_resend();
 *   - grants and what is written to them: npulink_remote_grant_send(), npulink_send_write(),
 *     npulink_put_arrived() with _revoked(), npulink_put_written();
 *   - npulink_put_broken(), _halted(), _where() and _up(), npulink_send_rewind(), and in which order
 *     they come: rdma_conn_work(), rdma_lane_teardown(), rdma_lane_first(), rdma_lane_up().
 *
 * Checked: each message is taken once, and in its order; each chunk is used once, when it is as it
 * was sent; nothing is written to one that was used; no bytes are sent that the sender has let go
 * of; what one rank lacks the other one has; in the end all has arrived, and the sender knows it of
 * what was written.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/session.pml
 */
#define DATAS	1
#define CHUNKS	2
#define BREAKS	2
#define LANES	(BREAKS + 1)

#define SEND	0
#define RECV	1

#define UP	0
#define BROKEN	1	/* nothing more is begun, what has come is still handled */
#define HALTED	2

#define NONE	0
#define OUT	1
#define RENEW	2
#define USED	3

mtype = { DATA, WRITE, GRANT, BLANK };

/* Devices: connection number l of each rank. */
bool alive[2 * LANES];		/* rank * LANES + l: its queue pair takes and sends */
chan wire[2 * LANES] = [7] of { mtype, byte, byte };	/* from that rank: number, or chunk */
chan cqe[2] = [8] of { mtype, byte, byte };		/* has come, to be handled */
chan ack[2] = [8] of { mtype, byte };			/* the same, of what was sent */

/* Both ranks. */
byte state[2];
byte lane[2];
byte sent[2];			/* messages */
byte kept[2];			/* of these, the first that is not known to have arrived */
byte taken[2];			/* of the other one's */
byte breaks;

/* The sender. */
bool offer[CHUNKS];
byte key[CHUNKS];		/* of an offer: the connection it is good for */
byte written;			/* chunks handed to the device */
byte released;			/* chunks that may be overwritten */

/* The receiver. */
byte grant[CHUNKS];
byte granted;
bool whole[CHUNKS];		/* the memory holds what was sent */

/* First messages: the connection, messages taken; and chunks that are not there. */
chan call = [1] of { byte, byte };
chan ready = [1] of { byte, byte, bool, bool };
bool called;

byte i;				/* only within a step */

#define ALIVE(r)	alive[(r) * LANES + lane[r]]
#define WIRE(r)		wire[(r) * LANES + lane[r]]

/* ---- the sender --------------------------------------------------------------------------- */

inline release(c)
{
	if
	:: released <= c -> released = c + 1
	:: else
	fi
}

inline sender_handle()
{
	cqe[SEND] ? what(n, c);
	assert(n == taken[SEND]);
	taken[SEND]++;
	if
	:: what == GRANT && state[SEND] == UP ->
		/* npulink_send_may_renew(), npulink_send_rewind() */
		assert(c >= released);
		offer[c] = true;
		key[c] = lane[SEND];
		if
		:: c < written -> written = c
		:: else
		fi
	/* That of a connection that is lost is worth nothing. */
	:: else
	fi;
	n = 0;
	c = 0
}

inline sender_acked()
{
	ack[SEND] ? what(n);
	if
	:: what == WRITE -> release(n)
	:: else -> kept[SEND] = n + 1
	fi;
	n = 0
}

/* npulink_put_up(): @n messages of ours are taken, chunk 0 or 1 is not there. */
inline sender_up()
{
	ready ? lane[SEND], n, out0, out1;
	/* What it lacks is still here. */
	assert(n >= kept[SEND] && n <= sent[SEND]);
	if
	:: written > 0 && !out0 -> release(0)
	:: else
	fi;
	if
	:: written > 1 && !out1 -> release(1)
	:: else
	fi;
	kept[SEND] = n;
	for (i : n .. DATAS) {
		if
		:: i < sent[SEND] -> WIRE(SEND) ! DATA(i, 0)
		:: else
		fi
	}
	state[SEND] = UP;
	n = 0;
	out0 = false;
	out1 = false
}

proctype sender()
{
	mtype what = DATA;
	byte n, c;
	bool out0, out1;

end:	do
	:: atomic { state[SEND] == UP && sent[SEND] < DATAS ->
		WIRE(SEND) ! DATA(sent[SEND], 0);
		sent[SEND]++ }
	:: atomic { state[SEND] == UP && written < CHUNKS && offer[written] ->
		offer[written] = false;
		assert(written >= released);
		WIRE(SEND) ! WRITE(written, key[written]);
		written++ }
	:: atomic { nempty(cqe[SEND]) -> sender_handle() }
	:: atomic { nempty(ack[SEND]) -> sender_acked() }
	/* npulink_put_halted(), then rdma_conn_call(), rdma_lane_up() */
	:: atomic { state[SEND] == BROKEN && empty(cqe[SEND]) && empty(ack[SEND]) ->
		state[SEND] = HALTED;
		offer[0] = false;
		offer[1] = false;
		alive[lane[SEND] + 1] = true;
		call ! lane[SEND] + 1, taken[SEND] }
	:: atomic { nempty(ready) -> sender_up() }
	od
}

/* ---- the receiver --------------------------------------------------------------------------- */

inline say_grant(c)
{
	WIRE(RECV) ! GRANT(sent[RECV], c);
	sent[RECV]++;
	grant[c] = OUT
}

inline receiver_handle()
{
	cqe[RECV] ? what(n, c);
	if
	:: what == WRITE ->
		/* Shown to the sequencer. */
		assert(grant[n] == OUT && whole[n]);
		grant[n] = USED
	:: else ->
		assert(n == taken[RECV]);
		taken[RECV]++
	fi;
	n = 0;
	c = 0
}

/* npulink_put_where(), npulink_put_up(): the caller has taken @n messages of ours. */
inline receiver_up()
{
	call ? lane[RECV], n;
	assert(n >= kept[RECV] && n <= sent[RECV]);
	alive[LANES + lane[RECV]] = true;
	ready ! lane[RECV], taken[RECV], grant[0] == RENEW, grant[1] == RENEW;
	kept[RECV] = n;
	/* Grants have gone with their keys: they are repeated as what says nothing. */
	for (i : n .. CHUNKS * LANES) {
		if
		:: i < sent[RECV] -> WIRE(RECV) ! BLANK(i, 0)
		:: else
		fi
	}
	/* npulink_remote_renew() */
	for (i : 0 .. CHUNKS - 1) {
		if
		:: grant[i] == RENEW -> say_grant(i)
		:: else
		fi
	}
	state[RECV] = UP;
	n = 0
}

proctype receiver()
{
	mtype what = DATA;
	byte n, c;

end:	do
	:: atomic { state[RECV] == UP && granted < CHUNKS -> say_grant(granted); granted++ }
	:: atomic { nempty(cqe[RECV]) -> receiver_handle() }
	:: atomic { nempty(ack[RECV]) -> ack[RECV] ? what(n); kept[RECV] = n + 1; n = 0 }
	/* rdma_lane_first(): the caller has lost it, if we have not. */
	:: atomic { state[RECV] == UP && nempty(call) ->
		state[RECV] = BROKEN;
		ALIVE(RECV) = false }
	:: atomic { state[RECV] == BROKEN && empty(cqe[RECV]) && empty(ack[RECV]) ->
		state[RECV] = HALTED;
		for (i : 0 .. CHUNKS - 1) {
			if
			:: grant[i] == OUT -> grant[i] = RENEW
			:: else
			fi
		} }
	:: atomic { state[RECV] == HALTED && nempty(call) -> receiver_up() }
	od
}

/* ---- what devices do ------------------------------------------------------------------------- */

/* Connection @l, what rank @r has sent: arrives, and is acknowledged if it still is there. */
inline deliver(r, l)
{
	wire[r * LANES + l] ? what(n, c);
	if
	:: what == WRITE ->
		/* The key is one of that connection, and the memory as it is sent now. */
		assert(c == l && grant[n] != USED);
		whole[n] = n >= released;
		cqe[1 - r] ! WRITE(n, 0)
	:: else -> cqe[1 - r] ! what(n, c)
	fi;
	if
	:: alive[r * LANES + l] -> ack[r] ! what(n)
	/* Or it is lost with the connection; or that of a message was not asked for. */
	:: alive[r * LANES + l] && (what != WRITE || breaks > l) -> skip
	:: !alive[r * LANES + l]
	fi;
	n = 0;
	c = 0
}

/* The first message comes before all others. */
#define CAN(r, l) (alive[(1 - (r)) * LANES + (l)] && nempty(wire[(r) * LANES + (l)]) && \
		   ((r) == SEND || empty(ready)))

proctype device(byte r)
{
	mtype what = DATA;
	byte n, c, l;

end:	do
	:: atomic { CAN(r, 0) -> l = 0; deliver(r, l) }
	:: atomic { CAN(r, 1) -> l = 1; deliver(r, l) }
	:: atomic { CAN(r, 2) -> l = 2; deliver(r, l) }
	od
}

/* A rank loses its end; the other one may notice, or is called. */
proctype trouble()
{
end:	do
	:: atomic { breaks < BREAKS && state[SEND] == UP && breaks == lane[SEND] ->
		breaks++; state[SEND] = BROKEN; ALIVE(SEND) = false }
	:: atomic { breaks < BREAKS && state[RECV] == UP && breaks == lane[RECV] ->
		breaks++; state[RECV] = BROKEN; ALIVE(RECV) = false }
	/* Nothing that it sends arrives any more; or it is told. */
	:: atomic { state[SEND] == UP && !alive[LANES + lane[SEND]] && state[RECV] != UP ->
		state[SEND] = BROKEN; ALIVE(SEND) = false }
	:: atomic { state[RECV] == UP && !alive[lane[RECV]] ->
		state[RECV] = BROKEN; ALIVE(RECV) = false }
	od
}

/* Nothing goes on any more: then all of it has arrived. */
proctype end_of_it()
{
	timeout;
	assert(state[SEND] == UP && state[RECV] == UP);
	assert(taken[RECV] == DATAS && taken[SEND] == sent[RECV]);
	assert(grant[0] == USED && grant[1] == USED);
	assert(released == CHUNKS)
}

init {
	atomic {
		alive[0] = true;
		alive[LANES] = true;
		run sender();
		run receiver();
		run device(SEND);
		run device(RECV);
		run trouble();
		run end_of_it()
	}
}
