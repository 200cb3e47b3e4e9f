/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cm.pml - Promela model of a connection's making and breaking (cm.c, and what of the core
 * it meets in remote.c).
 *
 * The rank that is called, as its peer may do what it likes at any time: call, prove that it
 * knows the secret, go away, call again. There is one pair of ports; see session.pml for
 * several. Meanwhile the first plan that needs the connection
 * is made, the communicator fails or not, the core sends what it has as soon as the
 * connection is up, and at last the rank leaves. Modelled are
 *
 *   - npulink_remote_resolve() with rdma_open();
 *   - npulink_remote_abort() with rdma_shut(); npulink_remote_close() with rdma_close();
 *   - rdma_answer(), rdma_lane_first(), rdma_lane_begin(), npulink_put_up(), rdma_send();
 *   - rdma_conn_fail(), rdma_conn_work(), rdma_lane_teardown(), npulink_put_down().
 *
 * The connection is up in the handler of the first message, as it is where we have called. Who was
 * called leaves that to the worker, which is one of the orders that are searched.
 *
 * Checked: what is not there is not touched (a connection before it is made, a queue pair after
 * it was destroyed), the core is told of the end of what it was told was up, once, nobody
 * waits for ever.
 *
 *	spin -search -O2 -safety -m1000000 kernel/rdma/cm.pml
 */
#define CALLS	2

#define NEW	0
#define CONNECTING 1
#define UP	2
#define DOWN	3

#define IDLE	0
#define OPEN	1
#define RESET	2
#define FAILED	3
#define CLOSED	4

/* The core's side, under the rank's lock. */
byte remote;		/* remote->state */
bool published;		/* conn->remote */
bool opened;		/* remote->opened_once */
bool shut;
bool failed;		/* comm->failed */

/* The transport's. */
bool priv;		/* put->priv */
bool setup;		/* conn->setup */
byte conn;		/* conn->state */
bool failing;
bool final;
bool up;
bool qp;		/* there is a queue pair .. */
bool broken;		/* .. in its error state */
bool queued;		/* conn->work */
bool working;
byte told;
byte calls;

inline take(l) { atomic { !l -> l = true } }
inline drop(l) { l = false }

/* rdma_conn_fail() */
inline conn_fail()
{
	failing = true;		/* under conn->lock */
	queued = true
}

/* rdma_shut() without a last message, under the rank's lock */
inline transport_shut()
{
	assert(priv);
	final = true;
	failing = true;
	queued = true
}

/* npulink_remote_abort() */
inline abort()
{
	atomic {
		if
		:: published && !shut && remote == UP -> shut = true; transport_shut()
		:: published && !shut && remote == CONNECTING && opened ->
			shut = true;
			transport_shut()
		:: else
		fi
	}
}

/* npulink_put_down() */
inline tell()
{
	if
	:: (conn == FAILED || conn == CLOSED) && !told ->
		atomic { remote = DOWN };
		told++
	:: else
	fi
}

/* rdma_lane_teardown() */
inline teardown()
{
	if
	:: qp ->
		broken = true;
		!handling;		/* ib_drain_qp() */
		tell();
		up = false;
		qp = false;
		broken = false
	:: else
	fi
}

bool handling;		/* a completion handler is at work */

/* rdma_lane_first_done(), rdma_lane_begin(), npulink_put_up() */
proctype softirq()
{
	bool ok;

end:	do
	:: atomic { qp && !broken && !up -> handling = true };
		/* under conn->lock */
		atomic { ok = !failing; up = ok };
		if
		:: ok ->
			atomic {
				if
				:: remote == CONNECTING -> remote = UP
				:: else
				fi
			};
			if
			:: failed -> abort()
			:: else
			fi
		:: else
		fi;
		handling = false
	od
}

/* npulink_remote_pump(): whoever has something to send */
proctype pump()
{
end:	do
	:: atomic { remote == UP && !shut -> assert(qp && priv) }; break
	od
}

/* rdma_answer(), and what goes wrong later */
proctype peer()
{
end:	do
	:: calls < CALLS && priv ->
		take(setup);
		if
		:: conn == IDLE && !failing -> calls++; conn = OPEN; qp = true
		:: else
		fi;
		drop(setup)
	:: conn == OPEN -> conn_fail()
	od
}

/* rdma_conn_work() */
proctype worker()
{
end:	do
	:: atomic { queued && conn != CLOSED -> queued = false; working = true };
		take(setup);
		if
		:: conn >= FAILED || !failing -> drop(setup)
		:: else ->
			conn = (up || final -> FAILED : RESET);
			drop(setup);
			teardown();
			tell();
			take(setup);
			if
			:: conn == RESET ->
				failing = false;
				conn = IDLE;
				if
				:: final -> conn_fail()
				:: else
				fi
			:: else
			fi;
			drop(setup)
		fi;
		working = false
	od
}

proctype failer()
{
	if
	:: failed = true; abort()
	:: true
	fi
}

proctype rank()
{
	/* npulink_remote_resolve() */
	atomic { remote = CONNECTING; published = true };
	priv = true;		/* rdma_open() */
	opened = true;
	if
	:: failed -> abort()
	:: else
	fi;

	/* npulink_remote_close(), when nothing is in flight any more */
	if
	:: failed -> abort()
	:: else
	fi;
	shut = true;
	take(setup);		/* rdma_close() */
	conn = CLOSED;
	drop(setup);
	!working;		/* cancel_delayed_work_sync() */
	teardown();
	tell();
	assert(told == 1 && remote == DOWN && !qp)
}

init {
	atomic {
		run rank();
		run failer();
		run peer();
		run softirq();
		run pump();
		run worker()
	}
}
