/* SPDX-License-Identifier: GPL-2.0 */
/*
 * round.pml - Promela model of rounds, and of the states of operations in them (round.c, op.c).
 *
 * RANKS ranks post one collective, each with the common graph or (rank 0, maybe) without; the
 * communicator fails at any time, or not. A round that is full is run by the last rank's task, or in
 * BLOCKS blocks by the tasks of all, each of which may put its part back after any block; rank 0 has
 * two tasks, its waiter and its worker. Modelled step by step are npulink_round_arrive(), _go(),
 * _leave(), _run(), _share(), _part() and _close(), npulink_op_set_up() and npulink_op_fail().
 * Operations that run by themselves are abridged: once all ranks have started, each ends.
 *
 * Checked: no invalid end state (nobody waits for ever); every operation ends exactly once, none
 * while a block is being worked on, none of a round with success unless all blocks were; a round
 * is run once at most, with all operations in hand and none of them started.
 *
 *	spin -search -O2 -safety kernel/core/model/round.pml
 */
#define RANKS	2
#define BLOCKS	2

#define NEW	0	/* op->state */
#define GATHERED 1
#define STARTING 2
#define RUNNING	3
#define FAILING	4
#define DONE	5

#define GATHERS	0	/* round->state */
#define APART	1
#define FULL	2

#define ALONE	0	/* arrival->kind */
#define LINKS	1
#define WAITS	2
#define RUNS	3

#define NONE	0	/* op->part */
#define READY	1
#define TAKEN	2

byte state[RANKS];
byte inflight[RANKS];
byte part[RANKS];
bool lock[RANKS];	/* rank->lock */
bool refused[RANKS];	/* POST has failed */
byte ended;
byte nstarted;
bool failed;		/* comm->failed */
bool odd;		/* rank 0 has no graph */
bool shared;		/* the graph has items */

/* The round; comm->lock is held for one step at a time. */
bool begun;
byte round;
bool ops[RANKS];
byte count;
bool bad;
byte next;
byte left;
byte runs;
byte working;		/* on blocks, now */
byte worked;		/* blocks */

inline take(l) { atomic { !l -> l = true } }
inline drop(l) { l = false }

/* npulink_round_leave() */
inline leave(r, was)
{
	d_step {
		was = ops[r] && round != FULL;
		if
		:: was -> ops[r] = false; count--
		:: else
		fi
	}
}

/* npulink_op_finish(), under the rank's lock. */
inline finish(r)
{
	d_step {
		assert(inflight[r] == 0 && part[r] == NONE);
		assert(state[r] == RUNNING || state[r] == FAILING ||
		       (state[r] == GATHERED && worked == BLOCKS));
		assert(working == 0);
		if
		:: ops[r] && round != FULL -> ops[r] = false; count--
		:: else
		fi;
		state[r] = DONE;
		ended++
	}
}

/* npulink_op_fail(), under the rank's lock. */
inline fail(r)
{
	if
	:: state[r] == GATHERED ->
		leave(r, was);
		if
		:: was -> inflight[r]--; state[r] = FAILING
		:: else
		fi
	:: state[r] == STARTING || state[r] == RUNNING -> state[r] = FAILING
	:: else
	fi;
	if
	:: state[r] == FAILING && inflight[r] == 0 -> finish(r)
	:: else
	fi
}

/* npulink_part_withdraw(), under the rank's lock. */
inline withdraw(r)
{
	d_step {
		if
		:: part[r] == READY -> part[r] = NONE; inflight[r]--
		:: else
		fi
	}
}

/* npulink_op_set_up(), and the start if it is not over. */
inline set_up(r)
{
	take(lock[r]);
	if
	:: state[r] == GATHERED ->
		state[r] = STARTING;
		inflight[r]--;
		withdraw(r);
		if
		:: failed -> fail(r)
		:: else
		fi
	:: else
	fi;
	starts = (state[r] == STARTING);
	drop(lock[r]);
	take(lock[r]);
	if
	:: starts && state[r] == STARTING ->
		assert(part[r] == NONE && inflight[r] == 0);
		state[r] = RUNNING;
		nstarted++
	:: else
	fi;
	drop(lock[r])
}

/* npulink_round_close() */
inline close()
{
	i = 0;
	do
	:: i < RANKS && !bad ->
		ops[i] = false;
		take(lock[i]);
		inflight[i]--;
		withdraw(i);
		if
		:: inflight[i] == 0 -> finish(i)
		:: else
		fi;
		drop(lock[i]);
		i++
	:: i < RANKS && bad -> ops[i] = false; i++
	:: else -> break
	od;
	i = 0;
	count = 0;
	do
	:: i < RANKS && bad -> set_up(i); i++
	:: else -> break
	od;
	i = 0
}

proctype rank(byte me)
{
	bool others[RANKS], starts, was;
	byte i, kind;

	/* npulink_op_publish(), npulink_round_arrive() */
	take(lock[me]);
	if
	:: failed -> refused[me] = true; drop(lock[me]); goto out
	:: else
	fi;
	d_step {
		if
		:: !begun -> begun = true; round = (odd && me == 0 -> APART : GATHERS)
		:: else
		fi;
		if
		:: round == GATHERS && odd && me == 0 ->
			round = APART;
			do
			:: i < RANKS -> others[i] = (ops[i] && state[i] == GATHERED); i++
			:: else -> break
			od;
			i = 0
		:: else
		fi;
		ops[me] = true;
		count++;
		if
		:: count == RANKS -> kind = (round == GATHERS -> RUNS : LINKS); round = FULL
		:: else -> kind = (round == GATHERS -> WAITS : ALONE)
		fi;
		if
		:: kind == WAITS || kind == RUNS -> state[me] = GATHERED; inflight[me]++
		:: else -> state[me] = STARTING
		fi
	}
	drop(lock[me]);

	/* npulink_round_go() */
	do
	:: i < RANKS ->
		if
		:: others[i] -> set_up(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: kind == WAITS -> goto wait
	:: kind == RUNS ->
		d_step {
			runs++;
			assert(runs == 1);
			do
			:: i < RANKS ->
				assert(ops[i] && state[i] == GATHERED && inflight[i] == 1);
				i++
			:: else -> break
			od;
			i = 0
		}
		if
		:: !shared ->
			if
			:: failed -> bad = true
			:: else -> worked = BLOCKS
			fi;
			close()
		:: else ->
			d_step { left = BLOCKS + 1; next = 0 };
			do
			:: i < RANKS ->
				take(lock[i]);
				inflight[i]++;
				part[i] = READY;
				drop(lock[i]);
				i++
			:: else -> break
			od;
			i = 0;
			d_step { left--; was = (left == 0) };
			if
			:: was -> close()
			:: else
			fi
		fi;
		goto wait
	:: else
	fi;
	set_up(me);
	if
	:: kind == LINKS ->	/* npulink_round_link() */
		do
		:: i < RANKS -> ops[i] = false; i++
		:: else -> break
		od;
		count = 0
	:: else
	fi;
wait:
	/* Either way of ending is somebody's; that of a running one is ours, when all have started. */
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

/* npulink_round_part(), by whoever gets what is ready. */
proctype task(byte me)
{
	bool starts, was, enough, last, got;
	byte i;

	do
	:: atomic { part[me] == READY && !lock[me] -> part[me] = TAKEN };
		do
		:: !last && !enough ->
			d_step {
				got = (next < BLOCKS);
				if
				:: got -> next++; working++
				:: else
				fi
			};
			if
			:: !got -> break
			:: got && failed -> bad = true
			:: got && !failed -> worked++
			fi;
			atomic {
				working--;
				left--;
				last = (left == 0);
				if
				:: enough = true
				:: skip
				fi
			}
		:: else -> break
		od;
		take(lock[me]);
		if
		:: enough && !last && left -> part[me] = READY
		:: else ->
			part[me] = NONE;
			inflight[me]--;
			if
			:: inflight[me] == 0 -> finish(me)
			:: else
			fi
		fi;
		drop(lock[me]);
		if
		:: last -> close()
		:: else
		fi;
		d_step { enough = false; last = false; got = false }
	:: state[me] == DONE || refused[me] -> break
	od
}

/* npulink_comm_record(), npulink_comm_flood() */
proctype failer()
{
	bool was;
	byte i;

	if
	:: failed = true
	:: goto out
	fi;
	do
	:: i < RANKS ->
		take(lock[i]);
		fail(i);
		drop(lock[i]);
		i++
	:: else -> break
	od;
out:
	skip
}

init {
	byte k;

	atomic {
		if
		:: odd = true
		:: shared = true
		:: skip
		fi;
		do
		:: k < RANKS -> run rank(k); run task(k); k++
		:: else -> break
		od;
		run task(0);
		run failer()
	}
}
