/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.pml - Promela model of the board: ranks that meet without a system call, or post
 * (linux/npulink_board.h, board.c, board_wait.c, lib/run/board.c).
 *
 * Each rank makes the same calls, one after the other; for one of them it may be that nobody has to
 * wait for the others. For each it tries the board or posts at once, and at the board it looks,
 * gives up and posts, or sleeps. Who posts may do so with all that follows, as a group, before he
 * waits: one rank here. What is not in the model is the timer: nobody who sleeps wakes by
 * himself, so a lost wake-up is a deadlock here. Steps are in the order that the barriers give them.
 *
 * Checked: an operation is met by all ranks or posted by all; who has met finds in each slot
 * what belongs to this operation, and so does who is told the result; nobody sleeps or waits for ever.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/board.pml
 */
#define RANKS	3
#define OPS	3	/* more than slots: these are used again */
#define SLOTS	2

#define SLOT(n)	((n) % SLOTS)
#define SEEN(q, n)	(flag[(q) * SLOTS + SLOT(n)] == (n) + 1)
#define ALL(n)	(SEEN(0, n) && SEEN(1, n) && SEEN(2, n))
#define POSTED(n)	(off[SLOT(n)] > (n))
#define OVER(n)	(POSTED(n) || ALL(n))
#define DONE(q, n)	(next[q] >= (n) || posted[q] >= (n))

#define MET	1
#define OFF	2

/* What ranks write: by rank and slot; the number of the operation, + 1. */
byte data[RANKS * SLOTS];
byte flag[RANKS * SLOTS];
byte next[RANKS];
byte result[RANKS * SLOTS];	/* it has worked it out for all */

/* What the kernel writes. */
byte off[SLOTS];
bool met[SLOTS];
bool refused[OPS];	/* there it is of as many numbers as can be in flight */
byte posted[RANKS];
bool lock;

/* Who sleeps, and for what. */
byte sleeps[RANKS];	/* number + 1 */
byte waiting;
byte by[RANKS];		/* 1 + who has woken it, having worked out the result */

byte outcome[OPS];
byte started[OPS];	/* that have posted it as one of all ranks */
bool easy[OPS];		/* is posted, and nobody waits for the others */

/* npulink_board_wake(): all for whom it is over. */
inline wake_over(who)
{
	atomic {
		w = 0;
		do
		:: w < RANKS ->
			if
			:: sleeps[w] && OVER(sleeps[w] - 1) ->
				sleeps[w] = 0;
				by[w] = who;
				waiting--
			:: else
			fi;
			w++
		:: else -> break
		od;
		w = 0
	}
}

inline ends(how)
{
	assert(!outcome[n] || outcome[n] == how);
	outcome[n] = how
}

/* take(): one slot after the other. */
inline take()
{
	ends(MET);
	do
	:: q < RANKS -> assert(data[q * SLOTS + SLOT(n)] == n + 1); q++
	:: else -> break
	od;
	q = 0;
	next[me] = n + 1
}

proctype rank(byte me)
{
	byte n, q, w, used[SLOTS];
	bool verdict, group;

	do
	:: n == OPS -> break
	:: else ->
		if
		:: easy[n] -> goto post
		:: !easy[n] -> goto post
		:: !easy[n] && !group -> next[me] = (next[me] > n -> next[me] : n)
		fi;
		if
		:: POSTED(n) -> goto post
		:: else
		fi;
		if
		:: DONE(0, used[SLOT(n)]) && DONE(1, used[SLOT(n)]) && DONE(2, used[SLOT(n)])
		:: else -> goto post
		fi;
		data[me * SLOTS + SLOT(n)] = n + 1;
		used[SLOT(n)] = n + 1;
		flag[me * SLOTS + SLOT(n)] = n + 1;	/* and a barrier */
		if
		:: atomic { waiting && ALL(n) && !POSTED(n) ->	/* share(), which nobody sees yet */
			ends(MET);
			assert(data[0 * SLOTS + SLOT(n)] == n + 1);
			assert(data[1 * SLOTS + SLOT(n)] == n + 1);
			assert(data[2 * SLOTS + SLOT(n)] == n + 1);
			result[me * SLOTS + SLOT(n)] = n + 1;
			next[me] = n + 1
		   };
			wake_over(me + 1);
			goto ended
		:: else
		fi;
look:
		if
		:: ALL(n) -> goto all_seen
		:: goto post				/* has had enough */
		:: atomic { !ALL(n) ->
			sleeps[me] = n + 1;
			by[me] = 0;
			waiting++
		   };
		   /* Set, then looked at: npulink_board_begin(). */
		   if
		   :: atomic { OVER(n) -> waiting = waiting - (sleeps[me] -> 1 : 0); sleeps[me] = 0 }
		   :: else -> !sleeps[me]
		   fi;
		   if
		   :: POSTED(n) -> goto post
		   :: atomic { !POSTED(n) && by[me] && result[(by[me] - 1) * SLOTS + SLOT(n)] == n + 1 ->
			ends(MET)
		      };
		      atomic {
			assert(result[(by[me] - 1) * SLOTS + SLOT(n)] == n + 1);
			next[me] = n + 1
		      };
			goto ended
		   :: else -> goto look
		   fi
		fi;
all_seen:
		if
		:: POSTED(n) -> goto post
		:: else -> take(); goto ended
		fi;
post:
		/* npulink_board_met(), under comm->lock. */
		atomic { !lock -> lock = true };
		if
		:: off[SLOT(n)] == n + 1 -> verdict = met[SLOT(n)]
		:: off[SLOT(n)] > n + 1 -> verdict = ALL(n) && !refused[n]
		:: else ->
			off[SLOT(n)] = n + 1;		/* and a barrier */
			wake_over(0);
			verdict = true;
			do
			:: q < RANKS -> verdict = verdict && SEEN(q, n); q++
			:: else -> break
			od;
			q = 0;
			met[SLOT(n)] = verdict;
			refused[n] = !verdict
		fi;
		lock = false;
		if
		:: verdict -> take()
		:: else ->
			ends(OFF);
			posted[me] = n + 1;
			started[n]++;
			if
			:: started[n] == RANKS || easy[n]
			:: me == 0 -> group = true
			fi
		fi;
ended:
		skip;
		/* Of no number that is to come; that is for the sake of fewer states. */
		d_step {
			by[me] = 0;
			if
			:: DONE(0, n + 1) && DONE(1, n + 1) && DONE(2, n + 1) ->
				result[0 * SLOTS + SLOT(n)] = 0;
				result[1 * SLOTS + SLOT(n)] = 0;
				result[2 * SLOTS + SLOT(n)] = 0
			:: else
			fi
		};
		n++
	od
}

init {
	atomic {
		if
		:: easy[1] = true
		:: skip
		fi;
		run rank(0);
		run rank(1);
		run rank(2)
	}
}
