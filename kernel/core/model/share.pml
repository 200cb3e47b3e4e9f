/* SPDX-License-Identifier: GPL-2.0 */
/*
 * share.pml - Promela model of scripts that all ranks' tasks run together (share.c).
 *
 * All RANKS ranks have met RUNS times for the same script, one meeting maybe while the one before
 * is being run; a rank has one or two tasks (its waiter and its worker), each of which may put its part
 * back after any block; the communicator fails at any time, or not. Modelled step by step are
 * npulink_share_post(), npulink_share_start(), npulink_share_part(), npulink_share_end(), and what
 * npulink_meet_close() and npulink_op_fail() do to operations that have a part.
 *
 * What is done under a rank's lock touches nothing that others touch without it, and is one step here.
 *
 * Checked: no invalid end state (nobody waits for ever), every operation ends exactly once, none while
 * a block of its run is being worked on, and none with success unless all blocks were.
 *
 *	spin -search -O2 -safety kernel/core/share.pml
 */
#define RANKS	2
#define RUNS	2
#define BLOCKS	2
#define OPS	(RANKS * RUNS)
#define OP(nth, rank) ((nth) * RANKS + (rank))

#define RUNNING	0
#define FAILING	1
#define DONE	2

#define NONE	0
#define READY	1
#define TAKEN	2

byte state[OPS];
byte inflight[OPS];
byte part[OPS];		/* op->meet.part and its request's state */
bool over[OPS];
byte ended;		/* operations */
bool failed;		/* comm->failed */

bool busy;		/* share->list */
bool pending[RUNS];	/* share->first .. */
byte which, next;	/* share->next */
byte left;
bool bad;
byte working;		/* on blocks, now */
byte worked[RUNS];	/* blocks */

inline finish(o)
{
	assert(inflight[o] == 0 && part[o] == NONE);
	assert(state[o] == FAILING || (state[o] == RUNNING && worked[(o) / RANKS] == BLOCKS));
	assert(working == 0 || which != (o) / RANKS);
	state[o] = DONE;
	ended++
}

inline give_back(o)
{
	part[o] = NONE;
	inflight[o]--
}

/* npulink_share_start() */
inline start(n)
{
	d_step { bad = false; left = BLOCKS + 1; which = n; next = 0 };
	do
	:: i < RANKS ->
		d_step {
			if
			:: state[OP(n, i)] == RUNNING ->
				inflight[OP(n, i)]++;
				part[OP(n, i)] = READY;
				asked = true
			:: else
			fi;
			i++
		}
	:: else -> break
	od;
	skip;
	d_step {
		i = 0;
		if
		:: asked
		:: else -> bad = true; left = 1
		fi;
		asked = false;
		left--;
		last = left == 0
	}
}

/* npulink_meet_end(), and npulink_meet_release() where the communicator has failed. */
inline close(o, r)
{
	d_step {
	inflight[o]--;
	if
	:: part[o] == READY -> give_back(o)
	:: else
	fi;
	if
	:: bad ->
		assert(failed);
		if
		:: state[o] == RUNNING -> state[o] = FAILING
		:: else
		fi;
		if
		:: inflight[o] == 0 -> finish(o)
		:: else
		fi
	:: !bad && inflight[o] -> over[o] = true
	:: else -> finish(o)
	fi
	}
}

/* npulink_share_end(): as long as @last. */
inline end_runs()
{
	do
	:: last ->
		n = which;
		i = 0;
		do
		:: i < RANKS -> close(OP(n, i), i); i++
		:: else -> break
		od;
		skip;
		d_step {
			i = 0;
			last = false;
			if
			:: pending[1] -> pending[1] = false; n = 1
			:: else -> busy = false; n = RUNS
			fi
		};
		if
		:: n < RUNS -> start(n)
		:: else
		fi;
		n = 0
	:: else -> break
	od
}

/* Meetings are posted in order: the second one may find the first under way, or over. */
proctype poster()
{
	byte i, n;
	bool asked, last, mine;
	byte nth;

	do
	:: nth < RUNS ->
		d_step {
			if
			:: busy -> pending[nth] = true; mine = false
			:: else -> busy = true; mine = true
			fi
		};
		if
		:: mine -> start(nth); end_runs()
		:: else
		fi;
		nth++
	:: else -> break
	od
}

/* npulink_share_part(), by whoever gets what is ready. */
proctype task(byte me)
{
	byte i, n, o;
	bool asked, last, enough, got;

	do
	:: atomic { part[OP(0, me)] == READY -> part[OP(0, me)] = TAKEN; o = OP(0, me) };
		goto work
	:: atomic { part[OP(1, me)] == READY -> part[OP(1, me)] = TAKEN; o = OP(1, me) };
		goto work
	:: ended == OPS -> break;
work:
		do
		:: !last && !enough ->
			d_step {
				got = (which == o / RANKS && next < BLOCKS);
				if
				:: got -> next++; working++
				:: else
				fi
			};
			if
			:: !got -> break
			:: got && failed -> bad = true
			:: got && !failed -> worked[o / RANKS]++
			fi;
			atomic {
				working--;
				left--;
				last = left == 0;
				if
				:: enough = true
				:: skip
				fi
			}
		:: else -> break
		od;
		skip;	/* Spin does not jump into the next one. */
		d_step {
			if
			:: enough && !last && !over[o] -> part[o] = READY
			:: else ->
				give_back(o);
				if
				:: inflight[o] == 0 && (over[o] || state[o] == FAILING) -> finish(o)
				:: else
				fi
			fi;
			enough = false;
			got = false;
			o = 0
		};
		end_runs()
	od
}

/* npulink_comm_record(), then npulink_op_fail() for each operation. */
proctype failer()
{
	byte o;

	if
	:: failed = true
	:: goto out
	fi;
	do
	:: o < OPS ->
		d_step {
			if
			:: state[o] == RUNNING ->
				state[o] = FAILING;
				if
				:: inflight[o] == 0 -> finish(o)
				:: else
				fi
			:: else
			fi;
			o++
		}
	:: else -> break
	od;
out:
	skip
}

init {
	byte k;

	atomic {
		do
		:: k < OPS -> inflight[k] = 1; k++	/* the meetings' */
		:: else -> break
		od;
		which = RUNS;
		k = 0;
		do
		:: k < RANKS -> run task(k); k++
		:: else -> break
		od;
		run task(0);
		run poster();
		run failer()
	}
}
