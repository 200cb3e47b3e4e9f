/* SPDX-License-Identifier: GPL-2.0 */
/*
 * meet.pml - Promela model of meetings (meet.c).
 *
 * RANKS ranks post one collective, each with the common script or (one of them, maybe) without;
 * somebody dissolves the meeting at any time, and the communicator fails at any time, or not.
 * Modelled step by step are npulink_meet_arrive(), npulink_meet_go(), npulink_meet_leave(),
 * npulink_meet_dissolve() and npulink_op_fail(). The usual way of an operation is abridged:
 * once all ranks have started on it, each ends.
 *
 * Checked: no invalid end state (nobody waits for ever), every operation ends exactly once,
 * and the script runs once at most, with all operations in hand and none of them started.
 *
 *	spin -search -O2 -safety kernel/core/meet.pml
 *
 * It holds for three ranks as well, which takes a minute and a gigabyte.
 */
#define RANKS	2

#define NEW	0
#define RUNNING	1
#define FAILING	2
#define DONE	3

#define NOT	0
#define LISTED	1
#define GATHERED 2

byte state[RANKS];
byte inflight[RANKS];
byte met[RANKS];	/* op->meet.state */
bool listed[RANKS];	/* on m->first */
bool raw[RANKS];
bool started[RANKS];	/* the usual way */
byte ended[RANKS];
bool refused[RANKS];	/* POST has failed */
bool lock[RANKS];	/* rank->lock */
bool clock;		/* comm->lock */
bool failed;		/* comm->failed */
bool odd;		/* rank 0 has no script */
byte nstarted;
byte count;
bool broken;
byte runs;

inline take(l) { atomic { !l -> l = true } }
inline drop(l) { l = false }

inline finish(r)
{
	assert(inflight[r] == 0);
	assert(state[r] == RUNNING || state[r] == FAILING);
	assert(!listed[r]);
	state[r] = DONE;
	ended[r]++;
	assert(ended[r] == 1)
}

/* npulink_meet_leave(), under the rank's lock. */
inline leave(r, gathered)
{
	take(clock);
	gathered = met[r] == GATHERED;
	met[r] = NOT;
	listed[r] = false;
	drop(clock)
}

/* npulink_meet_break(), under comm->lock: who has waited goes into others[]. */
inline break_up()
{
	d_step {
		broken = true;
		b = 0;
		do
		:: b < RANKS ->
			if
			:: listed[b] && met[b] == GATHERED -> met[b] = LISTED; others[b] = true
			:: else
			fi;
			b++
		:: else -> break
		od;
		b = 0
	}
}

/* The usual way. The last to start finds all the others, and they end. */
inline start(r)
{
	d_step {
		assert(!raw[r] && !started[r]);
		started[r] = true;
		nstarted++
	}
}

/* npulink_meet_release(), then the start. */
inline release(r)
{
	take(lock[r]);
	inflight[r]--;
	if
	:: failed && state[r] == RUNNING ->
		state[r] = FAILING;
		leave(r, gathered);
		assert(!gathered)
	:: else
	fi;
	if
	:: state[r] == RUNNING -> raw[r] = false; drop(lock[r]); start(r)
	:: else -> finish(r); drop(lock[r])
	fi
}

inline release_all()
{
	i = 0;
	do
	:: i < RANKS ->
		if
		:: others[i] -> others[i] = false; release(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

proctype rank(byte me)
{
	bool others[RANKS], mine[RANKS], ran, gathered;
	byte i, b, n;
	byte verdict;	/* 0 start, 1 wait, 2 run, 3 make */

	/* npulink_op_publish() */
	take(lock[me]);
	if
	:: failed -> refused[me] = true; drop(lock[me]); goto out
	:: else
	fi;
	state[me] = RUNNING;
	raw[me] = true;
	take(clock);
	if
	:: count == 0 && !broken -> broken = (odd && me == 0)
	:: else
	fi;
	if
	:: !broken && odd && me == 0 -> break_up()
	:: else
	fi;
	d_step {
		listed[me] = true;
		count++;
		if
		:: broken -> met[me] = LISTED
		:: else -> met[me] = GATHERED; inflight[me]++; verdict = 1
		fi;
		if
		:: count == RANKS ->
			verdict = (broken -> 3 : 2);
			b = 0;
			do
			:: b < RANKS ->
				mine[b] = listed[b];
				n = n + listed[b];
				listed[b] = false;
				met[b] = NOT;
				b++
			:: else -> break
			od;
			b = 0
		:: else
		fi
	}
	drop(clock);
	drop(lock[me]);

	/* npulink_meet_go() */
	release_all();
	if
	:: verdict == 1 -> goto wait
	:: verdict == 2 ->
		if
		:: n == RANKS && !failed ->
			runs++;
			assert(runs == 1);
			i = 0;
			do
			:: i < RANKS ->
				assert(mine[i] && raw[i] && !started[i] && inflight[i] == 1);
				i++
			:: else -> break
			od;
			ran = true
		:: else
		fi;
		i = 0;
		do
		:: i < RANKS && mine[i] && ran ->
			take(lock[i]);
			inflight[i]--;
			finish(i);
			drop(lock[i]);
			i++
		:: i < RANKS && mine[i] && !ran -> release(i); i++
		:: i < RANKS && !mine[i] -> i++
		:: i == RANKS -> break
		od;
		i = 0;
		goto wait
	:: else
	fi;
	take(lock[me]);
	if
	:: state[me] == RUNNING -> raw[me] = false
	:: else
	fi;
	drop(lock[me]);
	if
	:: !raw[me] -> start(me)
	:: else
	fi;
wait:
	/* Either way of ending is somebody's; the usual one is ours, when all have started. */
	do
	:: state[me] == DONE -> break
	:: nstarted == RANKS && state[me] == RUNNING ->
		take(lock[me]);
		if
		:: state[me] == RUNNING -> finish(me)
		:: else
		fi;
		drop(lock[me])
	od;
out:
	skip
}

proctype dissolver()
{
	bool others[RANKS], gathered;
	byte i, b;

	take(clock);
	if
	:: count > 0 && count < RANKS && !broken -> break_up()
	:: else
	fi;
	drop(clock);
	release_all()
}

/* npulink_comm_record(), then npulink_op_fail() for each rank. */
proctype failer()
{
	byte i;
	bool gathered;

	if
	:: failed = true
	:: goto out
	fi;
	do
	:: i < RANKS ->
		take(lock[i]);
		if
		:: state[i] == RUNNING ->
			state[i] = FAILING;
			leave(i, gathered);
			if
			:: gathered -> inflight[i]--
			:: else
			fi;
			if
			:: inflight[i] == 0 -> finish(i)
			:: else
			fi
		:: else
		fi;
		drop(lock[i]);
		i++
	:: else -> break
	od;
out:
	skip
}

init {
	byte next;

	atomic {
		if
		:: odd = true
		:: odd = false
		fi;
		do
		:: next < RANKS -> run rank(next); next++
		:: else -> break
		od;
		run dissolver();
		run failer()
	}
}
