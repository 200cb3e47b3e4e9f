/* SPDX-License-Identifier: GPL-2.0 */
/*
 * seq.pml - Promela model of how ranks meet and wake each other (seq.c, run.c, wait.c).
 *
 * Two ranks on two processors, and an interrupt that may deliver any bell: rank 0
 * sends SLICES slices, rank 1 takes them and gives credit, each in its own process,
 * which sleeps in POST when it has nothing to do. Modelled step by step are
 *
 *   - npulink_op_connect(): both publish, then look for the other under its lock;
 *   - npulink_bell(): one event per step, queued once until it has been looked at;
 *   - npulink_rank_kick() and npulink_rank_run(): RANK_SCHED, the inbox, the lock;
 *   - what an interrupt leaves of the inbox to a worker, at any moment;
 *   - npulink_op_wait() and npulink_file_wake_ready(): payload is done by the waiter.
 *
 * Checked: no invalid end state (that is, nobody sleeps for ever), payload of a slice
 * is moved once and in order, and the sender is done only when all was taken.
 *
 *	spin -search -O2 -safety kernel/core/seq.pml
 */
#define SLICES	2

#define SEND	0
#define RECV	1

/* What the kernel does in one instruction is one step here, and no more. */
bool published[2];	/* the operation is in its rank's table */
bool peer[2];		/* op->streams[].peer is set */
bool started[2];
byte avail;		/* cells[].avail: slices offered */
byte taken;		/* cells[].taken */
byte moved;		/* slices through the engine */
bool pending[2];	/* cells[].ev.pending */
byte inbox[2];		/* events in rank->inbox */
byte flying[2];		/* events on their way through an interrupt */
bool sched[2];		/* RANK_SCHED */
bool work[2];		/* rank->resume_work is queued */
bool lock[2];		/* rank->lock */
bool flock[2];		/* file->lock */
byte ready[2];		/* file->ready */
bool busy[2];		/* a request of the rank is with somebody */
bool waiting[2];	/* on file->waiters */
bool woken[2];		/* its wake-up, as set by wake_up_process() */
bool done[2];		/* op->done */

inline take(l) { atomic { !l -> l = true } }
inline drop(l) { l = false }

/* wake_up_process() of whoever waits in POST; a task that runs keeps the wake-up. */
inline wake(r)
{
	if
	:: waiting[r] -> woken[r] = true
	:: else
	fi
}

inline file_ready(r)
{
	take(flock[r]);
	ready[r]++;
	wake(r);
	drop(flock[r])
}

inline deliver(r)
{
	take(flock[r]);
	done[r] = true;
	wake(r);
	drop(flock[r])
}

/* npulink_unit_advance() under rank->lock; rings the other rank by "ring". */
inline advance(r)
{
	if
	:: r == RECV && started[r] && peer[r] && !busy[r] && moved < avail ->
		busy[r] = true;
		file_ready(r)
	:: r == SEND && started[r] && !done[r] && taken == SLICES ->
		deliver(r)
	:: else
	fi
}

/* Leaves the event in the inbox (inline), or to the interrupt. */
inline bell(to)
{
	if
	:: peer[1 - to] ->
		atomic { old = pending[to]; pending[to] = true };
		if
		:: old
		:: else ->
			if
			:: inbox[to]++; kick(to)
			:: flying[to]++
			fi
		fi
	:: else
	fi
}

/* "mine" and "old" are the calling process's own. */
inline kick(r)
{
	atomic { old = sched[r]; sched[r] = true };
	if
	:: old
	:: else -> mine[r] = true
	fi
}

/* npulink_rank_run(): the loop and its way out. An interrupt leaves some to a worker. */
inline rank_run(r)
{
	take(lock[r]);
	more = true;
	do
	:: true ->
		do
		:: more && inbox[r] > 0 ->
			inbox[r]--;
			pending[r] = false;
			advance(r)
		:: more && inbox[r] > 0 && irq -> more = false
		:: else -> break
		od;
		sched[r] = false;
		if
		:: inbox[r] == 0 || !more -> break
		:: else ->
			atomic { old = sched[r]; sched[r] = true };
			if
			:: old -> break
			:: else
			fi
		fi
	od;
	if
	:: !more -> work[r] = true
	:: else
	fi;
	drop(lock[r])
}

inline run_all()
{
	do
	:: mine[0] -> mine[0] = false; rank_run(0)
	:: mine[1] -> mine[1] = false; rank_run(1)
	:: else -> break
	od
}

/* npulink_op_connect_peer(): the later of the two gives both a pointer. */
inline connect(r)
{
	take(lock[1 - r]);
	found = published[1 - r];
	if
	:: found -> peer[1 - r] = true
	:: else
	fi;
	drop(lock[1 - r]);
	if
	:: found ->
		take(lock[r]);
		peer[r] = true;
		drop(lock[r])
	:: else
	fi
}

/* A request of rank RECV: move a slice, then npulink_req_complete(). */
inline run_request()
{
	assert(moved < avail);
	moved++;
	take(lock[RECV]);
	busy[RECV] = false;
	taken = moved;
	bell(SEND);
	if
	:: moved == SLICES -> deliver(RECV)
	:: else -> advance(RECV)
	fi;
	drop(lock[RECV])
}

proctype rank(byte me)
{
	bool mine[2], old, found, got, more, irq;
	byte n;

	/* POST: publish, connect, start. */
	take(lock[me]);
	published[me] = true;
	drop(lock[me]);
	connect(me);
	take(lock[me]);
	started[me] = true;
	if
	:: me == SEND ->
		n = 1;
		do
		:: n <= SLICES -> avail = n; bell(RECV); n++
		:: else -> break
		od
	:: else -> advance(RECV)
	fi;
	drop(lock[me]);
	run_all();

	/* npulink_op_wait() */
	take(flock[me]);
	waiting[me] = true;
	do
	:: true ->
		woken[me] = false;	/* set_current_state() */
		if
		:: done[me] -> break
		:: else
		fi;
		got = ready[me] > 0;
		if
		:: got ->
			ready[me]--;
			drop(flock[me]);
			run_request();
			run_all();
			take(flock[me])
		:: else ->
			drop(flock[me]);
			woken[me];	/* schedule() */
			take(flock[me])
		fi
	od;
	waiting[me] = false;
	drop(flock[me]);
	assert(done[me]);
	assert(me != SEND || taken == SLICES);
	assert(me != RECV || moved == SLICES)
}

/* Interrupts, or a backend's worker: deliver what flies, at any time, on a third context. */
proctype interrupt()
{
	bool mine[2], old, more, irq = true;

end:	do
	:: atomic { flying[0] > 0 -> flying[0]-- }; inbox[0]++; kick(0); run_all()
	:: atomic { flying[1] > 0 -> flying[1]-- }; inbox[1]++; kick(1); run_all()
	od
}

/* npulink_rank_resume_work(): what interrupts have left. */
proctype worker()
{
	bool mine[2], old, more, irq;

end:	do
	:: atomic { work[0] -> work[0] = false }; kick(0); run_all()
	:: atomic { work[1] -> work[1] = false }; kick(1); run_all()
	od
}

init {
	atomic {
		run rank(SEND);
		run rank(RECV);
		run interrupt();
		run worker()
	}
}
