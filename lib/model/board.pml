/* SPDX-License-Identifier: GPL-2.0 */
/*
 * board.pml - Promela model of the board: ranks that meet without a system call, or post
 * (lib/run/board.c, board_layout.h).
 *
 * Each rank makes the same calls, one after the other, some of which a root leads; for one of them it may be that nobody has to
 * wait for the others, and for one that a rank calls something else. For each it tries the board or
 * posts at once, and at the board it looks, gives up and posts, or sleeps. What is not in the model
 * is the time: nobody who sleeps wakes by itself, so a lost wake-up is a deadlock here. Nor is it
 * that ranks may be woken later, as that is done by whoever has to sleep or to post next; nor that a
 * rank has several operations there at a time, as groups and requests have.
 *
 * Checked: an operation is met by all ranks or posted by all, and posted if the calls differ; who
 * has met finds in each slot what belongs to this operation; nobody adds itself to the word of
 * another operation; nobody sleeps or waits for ever.
 *
 *	spin -search -O2 -safety -m1000000 lib/model/board.pml
 *
 * Of three ranks, 57 million states were searched without a finding, which are not all.
 */
#define RANKS	2
#define OPS	3	/* more than slots: these are used again */
#define SLOTS	2

#define S		(n % SLOTS)
#if RANKS == 2
#define DONE(l)		(done[0] >= (l) && done[1] >= (l))
#else
#define DONE(l)		(done[0] >= (l) && done[1] >= (l) && done[2] >= (l))
#endif
#define OPEN(s)		(num[s] == n + 1 && !fallen[s] && !bound[s] && count[s] <= RANKS)
#define ALL_MET(s)	(num[s] == n + 1 && !fallen[s] && (bound[s] || count[s] > RANKS))
/* For who waits for the root, the word may be older. */
#define WAITING(s)	(OPEN(s) || (num[s] <= n && fell[s] <= n))
#define SAME(s)		(num[s] == wn && fallen[s] == wf && bound[s] == wb && count[s] == wc)

#define MET	1
#define OFF	2

/* The words of slots: number + 1, FELL, BOUND, count. */
byte num[SLOTS];
bool fallen[SLOTS];
bool bound[SLOTS];
byte count[SLOTS];

byte fell[SLOTS];	/* 1 + number */
byte sleepers[SLOTS];
byte data[RANKS * SLOTS];
byte done[RANKS];
byte asleep[RANKS];	/* 1 + slot */

byte outcome[OPS];
byte started[OPS];	/* that have posted it */
bool easy[OPS];		/* is posted, and nobody waits for the others */
bool differs[OPS];	/* not all call the same */
bool led[OPS];		/* its root is rank 0, which waits for nobody */

inline ends(how)
{
	assert(!outcome[n] || outcome[n] == how);
	outcome[n] = how
}

/* The local copy of the word. */
inline load()
{
	atomic { wn = num[S]; wf = fallen[S]; wb = bound[S]; wc = count[S] }
}

inline wake()
{
	if
	:: sleepers[S] ->
		d_step {
			q = 0;
			do
			:: q < RANKS ->
				if
				:: asleep[q] == S + 1 -> asleep[q] = 0; sleepers[S]--
				:: else
				fi;
				q++
			:: else -> break
			od;
			q = 0
		}
	:: else
	fi
}

/* decide(): it falls, unless all have met. */
inline decide()
{
	if
	:: atomic { OPEN(S) -> fallen[S] = true }; wake(); met = false
	:: atomic { !OPEN(S) -> met = ALL_MET(S) }
	fi
}

proctype rank(byte me)
{
	byte n, q, wn, wc, used[SLOTS];
	bool wf, wb, met;

	do
	:: n == OPS -> break
	:: else ->
		met = false;
		if
		:: easy[n] -> goto leave
		:: !easy[n] -> goto leave
		:: !easy[n] -> done[me] = (done[me] > n -> done[me] : n)
		fi;
		/* put() */
		load();
		if
		:: wn == n + 1 && wb -> met = true; goto decided
		:: wn > n + 1 || fell[S] > n || (wn == n + 1 && wf) -> goto leave
		:: else -> if :: led[n] && me -> goto look :: else fi
		fi;
		if
		:: DONE(used[S]) && (wn > n || DONE(wn))
		:: else -> goto leave
		fi;
		data[me * SLOTS + S] = n + 1;
		used[S] = n + 1;
		if
		:: wn <= n ->			/* begin() */
			if
			:: atomic { SAME(S) ->
				num[S] = n + 1; fallen[S] = false; bound[S] = false; count[S] = 1
			   };
				if
				:: fell[S] > n -> decide(); goto decided
				:: else
				fi;
				if
				:: !led[n] -> goto look
				:: else
				fi;
				if		/* bind() */
				:: atomic { OPEN(S) -> bound[S] = true; met = true };
					wake()
				:: !OPEN(S) -> decide()
				fi;
				goto decided
			:: else -> load()
			fi
		:: else
		fi;
		if
		:: wn == n + 1 && !wf && !led[n]
		:: else -> goto leave
		fi;
		if				/* arrive() */
		:: wc + 1 < RANKS ->
			atomic {
				load();
				assert(num[S] == n + 1);
				count[S]++
			};
			if
			:: wf -> goto decided
			:: !wf && wc + 1 < RANKS -> goto look
			:: else
			fi;
			if
			:: differs[n] -> decide()
			:: else ->
				atomic { met = !fallen[S]; count[S]++ };
				wake()
			fi
		:: else ->
			if
			:: differs[n] -> decide()
			:: atomic { !differs[n] && !fallen[S] -> count[S] = count[S] + 2; met = true };
				wake()
			:: !differs[n] && fallen[S] -> met = false
			fi
		fi;
		goto decided;
look:
		if
		:: atomic { !WAITING(S) -> met = ALL_MET(S) }; goto decided
		:: goto leave			/* has had enough */
		:: WAITING(S) ->		/* sleep_once() */
			load();
			if
			:: wn > n && (wn != n + 1 || wf || wb || wc > RANKS) -> goto look
			:: else
			fi;
			sleepers[S]++;
			if
			:: wn <= n && fell[S] > n -> sleepers[S]--; goto look
			:: else
			fi;
			if
			:: atomic { SAME(S) -> asleep[me] = S + 1 };
				!asleep[me]
			:: atomic { else -> sleepers[S]-- }
			fi;
			goto look
		fi;
leave:
		done[me] = (done[me] > n -> done[me] : n);
		fell[S] = (fell[S] > n + 1 -> fell[S] : n + 1);
		load();
		if
		:: wn <= n && sleepers[S] && DONE(wn) ->
			if
			:: atomic { SAME(S) -> num[S] = n + 1; fallen[S] = true; bound[S] = false };
				wake()
			:: atomic { else -> skip }
			fi
		:: else
		fi;
		decide();
decided:
		if
		:: met ->			/* take(): one slot after the other */
			ends(MET);
			assert(!differs[n]);
			q = 0;
			do
			:: q < RANKS && (!led[n] || !q) -> assert(data[q * SLOTS + S] == n + 1); q++
			:: else -> break
			od;
			q = 0;
			done[me] = n + 1;
			goto ended
		:: else -> done[me] = n + 1
		fi;
post:
		ends(OFF);
		started[n]++;
		started[n] == RANKS || easy[n];
ended:
		n++
	od
}

init {
	atomic {
		if
		:: easy[1] = true
		:: differs[1] = true
		:: led[0] = true; led[2] = true
		:: led[1] = true; led[2] = true
		:: skip
		fi;
		run rank(0);
		run rank(1);
		if
		:: RANKS == 3 -> run rank(2)
		:: else
		fi
	}
}
