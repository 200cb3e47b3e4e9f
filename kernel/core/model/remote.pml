/* SPDX-License-Identifier: GPL-2.0 */
/*
 * remote.pml - Promela model of a link between two machines (remote*.c, rdma/).
 *
 * Rank SEND sends one step of CHUNKS chunks to rank RECV, which grants it memory through
 * GRANTS keys, straight into the operation's buffers. Either of them may post its operation
 * late or never, leave in good order, or have its communicator fail at any time; the cable
 * may be pulled at any time, after which nothing arrives and only those notice who wait for
 * an acknowledgement. What the core does under the rank's lock is one step here, as
 * nothing else can come between; what devices do, and what is done without the lock, is
 * interleaved. A connection that is followed by another one is session.pml's. Modelled are
 *
 *   - npulink_remote_pump(): npulink_recv_step(), rdma_grant(), npulink_send_write(),
 *     rdma_write();
 *   - what the transport says: npulink_put_recv(), _arrived(), _revoked(), _written(), _lost()
 *     and _down(), and when: rdma_recv_done(), rdma_revoke_done(), rdma_write_done();
 *   - npulink_op_publish() with npulink_remote_op_connect(), npulink_comm_flood() with
 *     npulink_remote_abort() and npulink_op_fail(), npulink_remote_op_finish();
 *   - npulink_remote_leave() and _close(), rdma_leave(), rdma_close(); rdma_conn_work(),
 *     rdma_lane_teardown();
 *   - who notices a lost peer: retries that are used up, npulink_remote_tick(), the
 *     connection manager's message.
 *
 * Checked: who leaves in good order fails nobody; no byte is written through a key that was taken back, or into a buffer that its
 * operation has let go of; no key is mapped when that happens; a number is not granted while
 * it is in use; every operation ends, exactly once, and every rank can leave.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/remote.pml
 *
 * -DCHUNKS=2, with which a key is used for the second time, takes minutes and gigabytes.
 */
#ifndef CHUNKS
#define CHUNKS	1
#endif
#define GRANTS	1

#define SEND	0
#define RECV	1

#define NEW	0
#define RUNNING	1
#define FAILING	2
#define DONE	3
#define REFUSED	4

#define UP	0
#define LEFT	1
#define DOWN	2

#define FREE	0
#define OUT	1
#define REVOKING 2

mtype = { GRANT, WRITE, ABORT, BYE };

/* The ranks' sides of the core: by rank, under its lock. */
byte op[2];
byte inflight[2];
byte ended[2];
byte state[2];		/* remote->state */
bool isfull[2];
bool shut[2];
bool left[2];		/* the peer has left */
bool closed[2];		/* the rank is leaving */
bool failed[2];		/* comm->failed */
bool flooded[2];

byte grant[GRANTS];	/* the receiver's */
byte granted;		/* chunks */
byte shown;
bool offer[GRANTS];	/* the sender's */
byte sent;
byte acked;

/* The devices. */
bool cut;
bool qp[2] = true;	/* the queue pair is not in its error state */
chan wire[2] = [GRANTS + 3] of { mtype, byte, byte };	/* by sender, not acknowledged */
chan cqe[2] = [GRANTS + 3] of { mtype, byte, byte };	/* by receiver, not handled */
bool key[GRANTS];	/* mapped, and good for writing */
bool inval[GRANTS];	/* IB_WR_LOCAL_INV is under way */
byte write[CHUNKS];	/* 1: under way; 2: there, its acknowledgement is under way */
bool goodbye[2];	/* the connection manager's message to that rank is under way */

/* Connections, by rank. */
bool failing[2];	/* rdma_conn_fail() */
bool hungup[2];		/* with -ECONNRESET */
bool expires[2];	/* rdma_shut()'s last message, or its 200 ms */
bool closing[2];	/* rdma_close() */
bool told[2];
bool hasty[2];		/* it has left before its last message was acknowledged */

/* What happens. */
bool posts[2] = true;
bool aborts[2];
bool frail;		/* the cable may be pulled */

byte i, k;		/* only within a step */

/* Nothing that a rank has begun is under way, or waits for a handler. */
#define FLUSHED(e)	(e == SEND -> !write[0] && !write[CHUNKS - 1] : !inval[0])
#define DRAINED(e)	(FLUSHED(e) && empty(cqe[e]))

/* npulink_op_finish(): the buffers may be unpinned, and be somebody else's. */
inline finish(e)
{
	assert(inflight[e] == 0);
	assert(op[e] == RUNNING || op[e] == FAILING);
	op[e] = DONE;
	ended[e]++;
	assert(ended[e] == 1);
	if
	:: e == RECV ->
		for (k : 0 .. GRANTS - 1) {
			assert(grant[k] == FREE && !key[k])
		}
	:: e == SEND ->
		for (k : 0 .. GRANTS - 1) {
			offer[k] = false
		}
	fi
}

/* npulink_remote_op_less(), then what the sequencer does when it is rung. */
inline op_less(e)
{
	inflight[e]--;
	if
	:: op[e] == FAILING && inflight[e] == 0 -> finish(e)
	:: else
	fi
}

inline advance(e)
{
	if
	:: op[e] == RUNNING && (e == SEND -> acked : shown) == CHUNKS -> finish(e)
	:: else
	fi
}

/* npulink_remote_pump(): rx, then tx. */
inline pump(e)
{
	if
	:: state[e] == UP && !isfull[e] && op[e] == RUNNING && e == RECV ->
		for (i : 0 .. GRANTS - 1) {
			if
			:: grant[i] == FREE && granted < CHUNKS ->
				assert(!key[i] && !inval[i]);
				key[i] = true;
				grant[i] = OUT;
				granted++;
				inflight[e]++;
				wire[e] ! GRANT(i, 0)
			:: else
			fi
		}
	:: state[e] == UP && !isfull[e] && op[e] == RUNNING && e == SEND ->
		for (i : 0 .. GRANTS - 1) {
			if
			:: offer[i] ->
				offer[i] = false;
				write[sent] = 1;
				wire[e] ! WRITE(i, sent);
				sent++;
				inflight[e]++
			:: else
			fi
		}
	:: else
	fi
}

/* npulink_remote_fail_missed() */
inline fail_missed(e)
{
	if
	:: op[e] == RUNNING && e == SEND && sent < CHUNKS -> failed[e] = true
	:: op[e] == RUNNING && e == RECV && shown < CHUNKS ->
		if
		:: granted < CHUNKS || state[e] == DOWN -> failed[e] = true
		:: else ->
			for (k : 0 .. GRANTS - 1) {
				if
				:: grant[k] == OUT -> failed[e] = true
				:: else
				fi
			}
		fi
	:: else
	fi
}

/* npulink_put_lost(), npulink_remote_lost(): after rdma_shut() it has failed already. */
inline lost(e)
{
	if
	:: state[e] != DOWN && state[e] != LEFT && !closed[e] && !failed[e] ->
		failed[e] = true;
		/* Whoever leaves in good order does no harm. */
		assert(cut || failed[1 - e] || hasty[1 - e])
	:: else
	fi;
	isfull[e] = true;
	shut[e] = true
}

/* ---- what completion handlers do ------------------------------------------------------- */

/* npulink_put_written() */
inline written(ok)
{
	if
	:: ok -> acked++
	:: !ok && left[SEND] && sent == CHUNKS && FLUSHED(SEND) -> acked = CHUNKS
	:: else
	fi;
	op_less(SEND);
	advance(SEND);
	pump(SEND)
}

/* npulink_put_revoked() */
inline revoked(g)
{
	if
	:: grant[g] == REVOKING ->
		grant[g] = FREE;
		shown++;
		op_less(RECV);
		advance(RECV)
	:: else
	fi;
	pump(RECV)
}

/* What the device does by itself. */
inline arrive(e)
{
	wire[1 - e] ? what(g, c);
	cqe[e] ! what(g, c);
	if
	:: what == WRITE ->
		assert(key[g] && (op[e] == RUNNING || op[e] == FAILING));
		if
		:: write[c] == 1 -> write[c] = 2
		:: else
		fi
	:: else
	fi;
	g = 0;
	c = 0
}

/* A message, or the immediate of a write: npulink_put_recv(), npulink_put_arrived(). */
inline received(e)
{
	cqe[e] ? what(g, c);
	if
	:: what == WRITE ->
		if
		:: state[e] == UP ->
			assert(grant[g] == OUT);
			grant[g] = REVOKING;
			inval[g] = true
		:: else
		fi
	:: what != WRITE && (state[e] != UP || shut[e])
	:: what == GRANT && state[e] == UP && !shut[e] ->
		assert(!offer[g]);
		if
		:: op[e] == NEW || op[e] == RUNNING -> offer[g] = true
		:: else
		fi;
		pump(e)
	:: what == ABORT && state[e] == UP && !shut[e] -> failed[e] = true
	:: what == BYE && state[e] == UP && !shut[e] ->
		state[e] = LEFT;
		left[e] = true;
		fail_missed(e)
	fi;
	g = 0;
	c = 0
}

/* The completion queue of a rank, whose handlers come one after the other. */
proctype cq(byte e)
{
	mtype what = GRANT;
	byte g, c;

end:	do
	:: atomic { qp[e] && !cut && nempty(wire[1 - e]) -> arrive(e) }
	:: atomic { nempty(cqe[e]) -> received(e) }
	/* It was under way when the peer's queue pair broke. */
	:: atomic { !qp[1 - e] && nempty(wire[1 - e]) -> wire[1 - e] ? what(g, c); g = 0; c = 0 }
	:: atomic { e == RECV && inval[0] && (qp[e] || empty(cqe[e])) ->
		inval[0] = false;
		if
		:: qp[e] -> key[0] = false; revoked(0)
		:: else
		fi }
	/* One queue for both directions: what had come is in front of what is flushed. */
	:: atomic { e == SEND && write[0] && ((qp[e] && write[0] == 2 && !cut) ||
					     (!qp[e] && empty(cqe[e]))) ->
		write[0] = 0; written(qp[e]) }
#if CHUNKS > 1
	:: atomic { e == SEND && write[1] && !write[0] &&
		    ((qp[e] && write[1] == 2 && !cut) || (!qp[e] && empty(cqe[e]))) ->
		write[1] = 0; written(qp[e]) }
#endif
	od
}

/* ---- the connection's worker -------------------------------------------------------------- */

/* rdma_keys_unmap() */
inline unmap()
{
	for (k : 0 .. GRANTS - 1) {
		key[k] = false
	}
}

/* npulink_put_down() */
inline down(e)
{
	state[e] = DOWN;
	/* npulink_remote_land() */
	for (i : 0 .. GRANTS - 1) {
		if
		:: left[e] && e == RECV && grant[i] == REVOKING ->
			grant[i] = FREE; shown++; op_less(RECV); advance(RECV)
		:: else
		fi
	}
	/* Who has left, and has written all, is not missed. */
	assert(!left[e] || e == SEND || op[e] != RUNNING || granted < CHUNKS || grant[0] == OUT);
	for (i : 0 .. GRANTS - 1) {
		if
		:: e == SEND -> offer[i] = false
		:: e == RECV && grant[i] != FREE -> grant[i] = FREE; op_less(RECV)
		:: else
		fi
	}
	if
	:: left[e] && !closed[e] -> fail_missed(e)
	:: else
	fi
}

/* rdma_conn_work(), or rdma_close(), with rdma_lane_teardown() */
proctype worker(byte e)
{
	failing[e] || closing[e];
	if
	:: failing[e] && !hungup[e] -> atomic { lost(e) }
	:: else
	fi;
	atomic {			/* rdma_disconnect(), ib_drain_qp() */
		qp[e] = false;
		goodbye[1 - e] = !cut
	}
	DRAINED(e);
	atomic { lost(e) };
	DRAINED(e);
	if
	:: e == RECV -> atomic { unmap() }
	:: else
	fi;
	atomic { down(e) };
	atomic { told[e] = true; failing[e] = false; hungup[e] = false; expires[e] = false }
}

/* ---- the ranks ---------------------------------------------------------------------------- */

/* npulink_remote_abort() */
inline abort(e)
{
	if
	:: shut[e]
	:: !shut[e] && state[e] == UP ->
		shut[e] = true;
		isfull[e] = true;
		wire[e] ! ABORT(0, 0);
		expires[e] = true
	:: !shut[e] && state[e] == LEFT -> shut[e] = true; failing[e] = true
	:: else
	fi
}

proctype rank(byte e)
{
	/* npulink_op_publish(), npulink_remote_op_connect(); or never */
	if
	:: atomic { posts[e] ->
		if
		:: failed[e] -> op[e] = REFUSED
		:: else ->
			op[e] = RUNNING;
			if
			:: state[e] == DOWN && !left[e] -> failed[e] = true
			:: left[e] -> fail_missed(e)
			:: else -> pump(e)
			fi
		fi }
	:: !posts[e] -> op[e] = REFUSED
	fi;
	op[e] == DONE || op[e] == REFUSED;

	/* npulink_remote_leave(), npulink_remote_close(); what is sent last may take a second. */
	atomic {
		closed[e] = true;
		if
		:: failed[e] -> abort(e)
		:: !failed[e] && state[e] == UP -> wire[e] ! BYE(0, 0)
		:: else
		fi;
		isfull[e] = true;
		shut[e] = true
	}
	if
	:: empty(wire[e])
	:: (cut || !qp[1 - e]) && nempty(wire[e]) -> hasty[e] = true
	fi;
	closing[e] = true;
	told[e]
}

/* npulink_comm_flood(); npulink_comm_fail() or _fail_now() by somebody of the own machine. */
proctype failer(byte e)
{
	if
	:: aborts[e] -> failed[e] = true
	:: !aborts[e]
	fi;
end:	failed[e];
	atomic {
		abort(e);
		if
		:: op[e] == RUNNING ->
			op[e] = FAILING;
			if
			:: inflight[e] == 0 -> finish(e)
			:: else
			fi
		:: else
		fi
	}
}

/* ---- who notices what ---------------------------------------------------------------------- */

/* That takes seconds: what has arrived was handled long before. */
#define SILENT(e)	((cut || !qp[1 - e]) && empty(cqe[e]))
#define UNACKED(e)	(nempty(wire[e]) || (e == SEND && (write[0] || write[CHUNKS - 1])))
#define LOOKS(e)	(state[e] == UP && !shut[e] && (op[e] == RUNNING || op[e] == FAILING))

proctype net()
{
end:	do
	:: frail -> frail = false; cut = true
	:: atomic { goodbye[0] && !cut && qp[0] -> goodbye[0] = false; hungup[0] = !failing[0]; failing[0] = true }
	:: atomic { goodbye[1] && !cut && qp[1] -> goodbye[1] = false; hungup[1] = !failing[1]; failing[1] = true }
	:: !failing[0] && qp[0] && SILENT(0) && (UNACKED(0) || LOOKS(0)) -> failing[0] = true
	:: !failing[1] && qp[1] && SILENT(1) && (UNACKED(1) || LOOKS(1)) -> failing[1] = true
	:: expires[0] && !failing[0] -> failing[0] = true
	:: expires[1] && !failing[1] -> failing[1] = true
	od
}

init {
	atomic {
		if
		:: aborts[SEND] = true
		:: aborts[RECV] = true
		:: posts[SEND] = false; frail = true
		:: posts[RECV] = false; frail = true
		:: frail = true
		fi;
		run rank(SEND);
		run rank(RECV);
		run cq(SEND);
		run cq(RECV);
		run worker(SEND);
		run worker(RECV);
		run failer(SEND);
		run failer(RECV);
		run net()
	}
}
