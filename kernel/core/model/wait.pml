/* SPDX-License-Identifier: GPL-2.0 */
/*
 * wait.pml - Promela model of who runs the requests of a file, and how its operations end
 * when all goes wrong (wait.c, event.c, op.c, seq.c, run.c, comm.c, cdev.c).
 *
 * One rank of one file, two operations, of which each has bytes to move as they arrive. Two
 * tasks post one each and wait for it, as long as they like or until they have had enough;
 * the second may be of another process, which runs nothing. The worker of the file runs what
 * nobody waits for. Interrupts, on a processor of their own, say what has arrived and what
 * the engine has done, or lose that. At any time, or never, the communicator fails (an
 * abort, a deadline, a dead peer), the process is killed, and when its tasks are out of the
 * kernel the file is closed with whatever is in flight. Modelled step by step are
 *
 *   - npulink_op_publish(), against npulink_comm_record() and npulink_comm_flood();
 *   - npulink_op_wait(), npulink_file_wake_ready(), npulink_worker();
 *   - npulink_req_ready(), npulink_ready_pop(), npulink_req_run(), npulink_req_complete();
 *   - npulink_op_fail() and the device's cancel, npulink_op_finish(), npulink_op_deliver();
 *   - npulink_file_kill() and npulink_release(): nothing of a file is touched after it.
 *
 * Checked: nobody sleeps for ever, each operation that was posted ends exactly once, with
 * nothing of it in flight, no request is run or reported twice or after that.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/wait.pml
 */
#ifndef SLICES
#define SLICES	1	/* requests of the first operation; the second has one */
#endif

#define NEW	0
#define RUNNING	1
#define FAILING	2
#define DONE	3

#define FREE	0
#define READY	1	/* on file->ready */
#define BUSY	2	/* NPULINK_REQ_RUNNING: with a task or the device */

#define NOT	0
#define PARKED	1	/* with the device, which may be told to let go */
#define RAISED	2	/* an interrupt will report it */

#define WORKER	2	/* the third of the tasks */

/* Operations, and the one request that each has at a time. Under the rank's lock. */
byte op[2];
byte moved[2];
byte slices[2];
byte ended[2];
bool inflight[2];	/* the request is not free */
byte req[2];
byte device[2];		/* where the device has it */
bool cancelled[2];
bool done[2];		/* op->done */

/* The rank. */
bool lock;
byte coming[2];		/* slices that peers have still to send */
byte avail[2];		/* slices that have come */

/* The file. */
byte finflight;
bool waiting[2];	/* on file->waiters */
bool helper[2] = true;
bool woken[2];		/* w.woken */
bool awake[3];		/* the task's wake-up, as of wake_up_process() */
bool stop, stopped;	/* kthread_stop() */
bool freed;

/* The communicator. */
bool failed;

/* What happens to whom. */
bool loses;		/* the device loses interrupts; then there is a deadline */
bool aborted;		/* there will be an abort or deadline */
bool killed;		/* a signal for both tasks */
bool limited;		/* the second task waits as long as it likes */
bool patient;		/* who closes the file has first seen that all is over */
bool gone[2];		/* out of the kernel */

/*
 * What is done under the file's lock, and what is done under the rank's with no more than one
 * such part in it, is one step: nobody can see it half done.
 */
inline take(l) { atomic { !l -> l = true } }
inline drop(l) { l = false }

/* npulink_file_wake_ready(), under the file's lock: tasks only ever set their own state. */
inline wake_ready(waits)
{
	assert(!freed);
	if
	:: waiting[0] && helper[0] && !woken[0] -> woken[0] = true; awake[0] = true
	:: else ->
		if
		:: waiting[1] && helper[1] && !woken[1] -> woken[1] = true; awake[1] = true
		:: else ->
			if
			:: (waiting[0] && helper[0]) || (waiting[1] && helper[1]) || waits
			:: else -> awake[WORKER] = true
			fi
		fi
	fi
}

/* npulink_req_ready(); "waits" is the process's own, run->waits. */
inline req_ready(i)
{
	assert(req[i] != READY);
	req[i] = READY;
	wake_ready(waits)
}

/* npulink_unit_advance() */
inline advance(i)
{
	if
	:: op[i] == RUNNING && !inflight[i] && moved[i] < avail[i] ->
		inflight[i] = true;
		req_ready(i)
	:: else
	fi
}

/* npulink_op_finish() with npulink_op_deliver() */
inline finish(i)
{
	assert(!inflight[i] && device[i] == NOT && req[i] == FREE);
	assert(op[i] == RUNNING || op[i] == FAILING);
	op[i] = DONE;
	ended[i]++;
	assert(ended[i] == 1);
	assert(!freed);
	finflight--;
	done[i] = true;
	coming[i] = 0;
	cancelled[i] = false;
	if
	:: waiting[i] -> awake[i] = true
	:: else
	fi
}

/* npulink_req_complete() */
inline complete(i)
{
	assert(req[i] == BUSY && device[i] == NOT && inflight[i]);
	req[i] = FREE;
	inflight[i] = false;
	if
	:: op[i] == FAILING -> finish(i)
	:: op[i] == RUNNING ->
		moved[i]++;
		if
		:: moved[i] == slices[i] -> finish(i)
		:: else -> advance(i)
		fi
	fi
}

/* npulink_req_run() of request "i": what the device does with it, then its completion. */
inline req_run(i)
{
	assert(!freed && req[i] == BUSY && inflight[i]);
	assert(op[i] == RUNNING || op[i] == FAILING);
	atomic {
		assert(device[i] == NOT);
		if
		:: now = true
		:: !cancelled[i] -> device[i] = (loses -> PARKED : RAISED); now = false
		fi
	}
	if
	:: now -> atomic { !lock -> now = false; complete(i) }
	:: else
	fi
}

/* npulink_ready_pop(), under the file's lock: of two, either may be the first. */
inline ready_pop()
{
	got = 2;
	if
	:: req[0] == READY -> got = 0
	:: req[1] == READY -> got = 1
	:: req[0] != READY && req[1] != READY
	fi;
	if
	:: got < 2 -> req[got] = BUSY
	:: else
	fi
}

/* npulink_op_fail() */
inline op_fail(i)
{
	if
	:: op[i] == RUNNING ->
		atomic {
			op[i] = FAILING;
			ours = false;
			if
			:: req[i] == READY -> req[i] = FREE; ours = true
			:: else
			fi
		}
		if
		:: !ours && req[i] == BUSY ->
			cancelled[i] = true;
			atomic {
				if
				:: device[i] == PARKED -> device[i] = NOT; ours = true
				:: else
				fi
			}
		:: else
		fi;
		atomic {
			if
			:: ours -> req[i] = FREE; inflight[i] = false
			:: else
			fi;
			if
			:: !inflight[i] -> finish(i)
			:: else
			fi
		}
	:: else
	fi
}

/*
 * npulink_comm_record() and npulink_comm_flood(). Others may come to that as well, but one
 * after the other, and those that come later find nothing left to do.
 */
inline fail_now()
{
	if
	:: !failed ->
		failed = true;
		take(lock);
		op_fail(0);
		op_fail(1);
		drop(lock)
	:: else
	fi
}

proctype task(byte me)
{
	bool now, waits;
	byte got;

	/* npulink_slot_take(), npulink_op_publish(), npulink_op_start() */
	atomic {
		!lock;
		finflight++;
		if
		:: failed -> finflight--; goto out
		:: else
		fi;
		op[me] = RUNNING;
		waits = helper[me];
		advance(me);
		waits = false
	}

	/* npulink_op_wait() */
	atomic {
		if
		:: done[me] || (limited && me == 1) ->
			/* npulink_hand_over() */
			if
			:: req[0] == READY || req[1] == READY -> wake_ready(false)
			:: else
			fi;
			goto out
		:: !done[me] -> waiting[me] = true
		fi
	}
	do
	:: atomic { true ->
		awake[me] = false;	/* set_current_state() */
		if
		:: done[me] -> goto leave
		:: else
		fi;
		woken[me] = false;
		got = 2;
		if
		:: helper[me] -> ready_pop()
		:: else
		fi;
		if
		:: got < 2 -> woken[me] = true
		:: else ->
			if
			:: killed && helper[me] -> goto leave
			:: else
			fi
		fi }
		if
		:: got < 2 -> req_run(got); got = 0
		:: got == 2 ->
			if	/* schedule(), until the limit if there is one */
			:: awake[me] || (killed && helper[me])
			:: me == 1 && limited -> goto leave
			fi
		fi;
		if
		:: killed && helper[me] -> goto leave
		:: else
		fi
	od;
leave:
	atomic {
		waiting[me] = false;
		if
		:: req[0] == READY || req[1] == READY -> wake_ready(false)
		:: else
		fi
	}
out:
	gone[me] = true
}

/* npulink_worker() */
proctype worker()
{
	bool now, waits;
	byte got;

	do
	:: true ->
		awake[WORKER] = false;
		if
		:: stop -> break
		:: else
		fi;
		atomic { ready_pop() }
		if
		:: got < 2 -> req_run(got); got = 0
		:: else -> awake[WORKER]
		fi
	od;
	stopped = true
}

/*
 * What peers send, and what the engine has done: npulink_event_handle(). How such events
 * come to be handled, each by one of several processors, is in seq.pml.
 */
proctype interrupt()
{
	bool waits;

end:	do
	:: atomic { coming[0] > 0 && !lock -> coming[0]--; avail[0]++; advance(0) }
	:: atomic { coming[1] > 0 && !lock -> coming[1]--; avail[1]++; advance(1) }
	:: atomic { device[0] == RAISED && !lock -> device[0] = NOT; complete(0) }
	:: atomic { device[1] == RAISED && !lock -> device[1] = NOT; complete(1) }
	od
}

/*
 * An abort, a deadline or the death of another rank at any time, or a signal for all tasks, or
 * none of it; then npulink_release() when they have let go of the file.
 */
proctype closer()
{
	bool ours;

	if
	:: aborted -> fail_now()
	:: !aborted && !patient -> killed = true
	:: !aborted
	fi;
	gone[0] && (gone[1] || !helper[1]);
	if
	:: patient -> finflight == 0
	:: else
	fi;
	fail_now();		/* npulink_mm_release() */
	gone[1];
	finflight == 0;		/* wait_event() */
	stop = true;
	awake[WORKER] = true;
	stopped;
	freed = true;
	assert(op[0] != RUNNING && op[0] != FAILING && op[1] != RUNNING && op[1] != FAILING);
	assert(device[0] == NOT && device[1] == NOT);
	assert(req[0] == FREE && req[1] == FREE)
}

init {
	atomic {
		slices[0] = SLICES;
		slices[1] = 1;
		coming[0] = SLICES;
		coming[1] = 1;
		if
		:: patient = true
		:: patient = true; limited = true
		:: patient = true; helper[1] = false
		:: aborted = true; loses = true
		:: helper[1] = false	/* a signal, or none of it */
		fi;
		run task(0);
		run task(1);
		run worker();
		run interrupt();
		run closer()
	}
}
