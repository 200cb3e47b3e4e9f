/* SPDX-License-Identifier: GPL-2.0 */
/*
 * agree.pml - Promela model of how machines agree on who goes on (agree.c).
 *
 * Three machines, from the moment at which each knows whom it can reach; or from the one at which
 * a fourth has died that had made an offer, which all have accepted, and some may have heard, or
 * hear yet, that it holds. In the first case one machine dies, or a cable is cut, at any time; what
 * was on its way is then lost, or not. Modelled are
 *
 *   - npulink_agree_told(), npulink_agree_lose(), and npulink_agree_step() after them;
 *   - npulink_agree_decide(), npulink_agree_follow() and what they call;
 *   - npulink_agree_commit(), npulink_agree_confirm(), npulink_agree_close().
 *
 * Two of the three are enough; number 0 does not count. Nobody is too late: who waits, waits for
 * what comes, but where too few are picked. Checked: all that live end; as long as no cable is cut
 * and one at most has died, all who live go on; whatever is cut, all that go on go on together;
 * nobody is left out but by one that lives and goes on; nobody says what another one takes for a
 * lie.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/agree.pml
 */
#ifndef FAULTS
#define FAULTS	1	/* machines that die, cables that are cut; 2 take a minute and 8 GB */
#endif

#define N	4	/* number 0 is the one that has died */
#define SELF(i)	(1 << (i))
#define AT(i, j) ((i) * N + (j))
#define NOBODY	N

#define ALIVE	0	/* dead */
#define OFFER	1	/* number, places */
#define ACCEPT	2	/* number */
#define COMMIT	3	/* decider, number */
#define WITHOUT	4

#define AGREED	1
#define LEFT	2
#define FEW	3

chan c[N * N] = [7] of { byte, byte, byte, byte };	/* type, decider, number, mask */

byte crashed, faults;
bool cuts, late;
byte cut[N * N];
byte up[N], dead[N], said[N], without[N];
byte p_dead[N * N];				/* what another one has said */
byte o_number[N * N], o_places[N * N];			/* its last offer, and the own one */
bool o_taken[N * N];
byte agreed[N * N];
byte a_decider[N], a_number[N], a_places[N];		/* accepted */
bool committed[N];
byte heard[N];					/* who has said that it holds */
bool news[N], few[N];
byte ended[N], result[N];

byte k, decider, picked, m_type, m_d, m_n, m_p;	/* within an atomic step only */

inline say(from, to, type, whose, number, mask)
{
	assert(nfull(c[AT(from, to)]));
	c[AT(from, to)]!type, whose, number, mask
}

inline forget(from, to)
{
	do
	:: c[AT(from, to)]?_, _, _, _
	:: empty(c[AT(from, to)]) -> break
	od
}

/* Machine @me says so to those of @whom that it reaches. */
inline say_all(me, whom, what, whose, which, places)
{
	k = 0;
	do
	:: k == N -> break
	:: k < N && k != me && (up[me] & (whom) & SELF(k)) ->
		say(me, k, what, whose, which, places);
		k++
	:: k < N && !(k != me && (up[me] & (whom) & SELF(k))) -> k++
	od;
	k = 0
}

/* npulink_agree_end(), npulink_agree_close() */
inline finish(i, how)
{
	if
	:: how == AGREED -> say_all(i, 15 - a_places[i], WITHOUT, 0, 0, 0)
	:: else
	fi;
	ended[i] = how;
	result[i] = a_places[i]
}

inline accept(me, whose)
{
	if
	:: a_decider[me] == whose && a_number[me] == o_number[AT(me, whose)]
	:: else -> heard[me] = 0
	fi;
	o_taken[AT(me, whose)] = true;
	a_decider[me] = whose;
	a_number[me] = o_number[AT(me, whose)];
	a_places[me] = o_places[AT(me, whose)]
}

/* npulink_agree_holds() */
inline holds(i)
{
	committed[i] = true;
	say_all(i, a_places[i], COMMIT, a_decider[i], a_number[i], 0)
}

/* What it has offered does not hold any more. */
inline void(i, j)
{
	if
	:: !committed[i] && a_decider[i] == j -> a_number[i] = 0
	:: else
	fi
}

inline told(i, j)
{
	c[AT(j, i)]?m_type, m_d, m_n, m_p;
	if
	:: m_type == ALIVE ->
		if
		:: m_p & a_places[i] -> void(i, j)
		:: else
		fi;
		said[i] = said[i] | SELF(j);
		p_dead[AT(i, j)] = m_p
	:: m_type == OFFER ->
		assert((said[i] & SELF(j)) && m_n > o_number[AT(i, j)]);
		assert(!m_p || (m_p & SELF(j)));
		assert(o_number[AT(i, j)] || (m_p & SELF(i)));
		void(i, j);
		o_number[AT(i, j)] = m_n;
		o_places[AT(i, j)] = m_p;
		o_taken[AT(i, j)] = false
	:: m_type == ACCEPT ->
		assert(m_n && m_n <= o_number[AT(i, i)]);
		if
		:: m_n == o_number[AT(i, i)] && (o_places[AT(i, i)] & SELF(j)) ->
			agreed[AT(i, j)] = m_n
		:: else
		fi
	:: m_type == COMMIT && committed[i] ->
		assert(m_d == a_decider[i] && m_n == a_number[i] && (a_places[i] & SELF(j)));
		heard[i] = heard[i] | SELF(j)
	:: m_type == COMMIT && !committed[i] ->
		assert(m_n && m_d != i && o_number[AT(i, m_d)] == m_n && o_taken[AT(i, m_d)] &&
		       (o_places[AT(i, m_d)] & SELF(j)));
		if
		:: j != m_d && (up[i] & SELF(m_d)) ->
			assert(m_d == a_decider[i] && m_n == a_number[i])
		:: else -> accept(i, m_d); holds(i)
		fi;
		heard[i] = heard[i] | SELF(j)
	:: m_type == WITHOUT ->
		assert(said[i] & SELF(j));
		without[i] = without[i] | SELF(j)
	fi;
	news[i] = true;
	m_type = 0; m_d = 0; m_n = 0; m_p = 0
}

inline gone(i, j)
{
	up[i] = up[i] & ~SELF(j);
	dead[i] = dead[i] | SELF(j);
	forget(j, i);
	say_all(i, 15, ALIVE, 0, 0, dead[i]);
	news[i] = true
}

#define SIZE(p)		(((p) & 1) + ((p) >> 1 & 1) + ((p) >> 2 & 1) + ((p) >> 3 & 1))
#define QUORUM(p)	(SIZE((p) & 14) >= 2)
/* npulink_agree_left_out() */
#define LEFT_OUT(i)	(without[i] && !QUORUM(SELF(i) | (up[i] & ~without[i])))
/* npulink_agree_owes() */
#define LOST(i)		(a_number[i] && !(up[i] & SELF(a_decider[i])))
#define OWES(i, j)	((j) != (i) && (a_places[i] & up[i] & SELF(j)) && \
			 !((said[i] & SELF(j)) && (p_dead[AT(i, j)] & SELF(a_decider[i]))))
/* npulink_agree_heard() */
#define HEARD(i)	((up[i] & ~said[i]) == 0 && \
			 !(LOST(i) && (OWES(i, 1) || OWES(i, 2) || OWES(i, 3))))
/* npulink_pick(), of three: of two that do not reach each other the last one is left out. */
#define CANDIDATES(i)	(SELF(i) | (up[i] & said[i] & ~without[i]))
#define APART(i, j, k)	((p_dead[AT(i, j)] & SELF(k)) || (p_dead[AT(i, k)] & SELF(j)))
/* Might others go on that @j reaches? */
#define REACHES(i, j)	((CANDIDATES(i) & SELF(j)) && !(p_dead[AT(i, j)] & 14))
#define HOPES(i)	(!(dead[i] & 14) || REACHES(i, 1) || REACHES(i, 2) || REACHES(i, 3))
#define FIRST(p)	(((p) & 1) -> 0 : (((p) & 2) -> 1 : (((p) & 4) -> 2 : 3)))
#define HAS(i, j)	((j) == (i) || !(o_places[AT(i, i)] & SELF(j)) || \
			 agreed[AT(i, j)] == o_number[AT(i, i)])
#define ACCEPTED(i)	(o_number[AT(i, i)] && HAS(i, 1) && HAS(i, 2) && HAS(i, 3))
/* npulink_agree_suits() */
#define SUITS(i, p)	(((p) & SELF(i)) && QUORUM(p) && ((p) & ~CANDIDATES(i)) == 0 && \
			 SIZE(p) >= SIZE(picked))
/* npulink_agree_go_on(): what it has accepted of another one may yet hold. */
#define BOUND(i)	(a_number[i] && a_decider[i] != decider && (up[i] & SELF(a_decider[i])))
#define CONFIRMED(i)	((a_places[i] & up[i] & ~heard[i] & ~SELF(i)) == 0)

inline pick(i)
{
	picked = CANDIDATES(i);
	if
	:: i == 1 && (picked & 12) == 12 && APART(i, 2, 3) -> picked = picked & ~SELF(3)
	:: i == 2 && (picked & 10) == 10 && APART(i, 1, 3) -> picked = picked & ~SELF(3)
	:: i == 3 && (picked & 6) == 6 && APART(i, 1, 2) -> picked = picked & ~SELF(2)
	:: else
	fi
}

inline offer(i, whom)
{
	o_number[AT(i, i)]++;
	say_all(i, whom | o_places[AT(i, i)], OFFER, i, o_number[AT(i, i)], whom);
	o_places[AT(i, i)] = whom
}

inline take_back(i)
{
	if
	:: o_places[AT(i, i)] ->
		offer(i, 0);
		if
		:: a_decider[i] == i -> a_number[i] = 0
		:: else
		fi
	:: else
	fi
}

inline decide(i)
{
	if
	:: o_places[AT(i, i)] != picked -> offer(i, picked); accept(i, i)
	:: else
	fi;
	if
	:: ACCEPTED(i) -> holds(i)
	:: else
	fi
}

inline go_on(i)
{
	decider = FIRST(picked);
	if
	:: decider != i -> take_back(i)
	:: else
	fi;
	if
	:: BOUND(i)
	:: !BOUND(i) && decider == i -> decide(i)
	:: !BOUND(i) && decider != i && o_number[AT(i, decider)] && !o_taken[AT(i, decider)] &&
	   SUITS(i, o_places[AT(i, decider)]) ->
		accept(i, decider);
		say(i, decider, ACCEPT, decider, o_number[AT(i, decider)], 0)
	:: else
	fi;
	decider = 0
}

/* npulink_agree_step() */
inline step(i)
{
	news[i] = false;
	few[i] = false;
	if
	:: !committed[i] && LOST(i) && heard[i] -> holds(i)
	:: else
	fi;
	if
	:: committed[i]
	:: !committed[i] && LEFT_OUT(i) -> finish(i, LEFT)
	:: !committed[i] && !LEFT_OUT(i) && HEARD(i) ->
		pick(i);
		if
		:: QUORUM(picked) -> go_on(i)
		:: else ->
			take_back(i);
			if
			:: !HOPES(i) || !up[i] -> finish(i, FEW)
			:: else -> few[i] = true
			fi
		fi;
		picked = 0
	:: else
	fi;
	if
	:: committed[i] && CONFIRMED(i) -> finish(i, AGREED)
	:: else
	fi
}

#define LIVES(i)	(!(crashed & SELF(i)) && !ended[i])
#define BROKEN(i, j)	((crashed & SELF(j)) || cut[AT(i, j)] || \
			 (ended[j] && empty(c[AT(j, i)])))

#define HEARS(i, j)	((up[i] & SELF(j)) && nempty(c[AT(j, i)]))
#define LOSES(i, j)	((up[i] & SELF(j)) && BROKEN(i, j))

proctype machine(byte i)
{
	byte j;

	atomic { say_all(i, 15, ALIVE, 0, 0, dead[i]); news[i] = true };
	do
	:: atomic { !LIVES(i) -> break }
	/* What was said is heard, or never. */
	:: atomic { LIVES(i) && HEARS(i, (i + 1) % N) -> j = (i + 1) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && HEARS(i, (i + 2) % N) -> j = (i + 2) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && HEARS(i, (i + 3) % N) -> j = (i + 3) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 1) % N) -> j = (i + 1) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 2) % N) -> j = (i + 2) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 3) % N) -> j = (i + 3) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && news[i] -> step(i) }
	:: atomic { timeout && LIVES(i) && few[i] -> finish(i, FEW) }
	od
}

#define CUT(a, b)	cut[AT(a, b)] = 1; cut[AT(b, a)] = 1; cuts = true

proctype fate()
{
	do
	:: atomic { faults < FAULTS && !(crashed & 2) -> faults++; crashed = crashed | 2 }
	:: atomic { faults < FAULTS && !(crashed & 4) -> faults++; crashed = crashed | 4 }
	:: atomic { faults < FAULTS && !(crashed & 8) -> faults++; crashed = crashed | 8 }
	:: atomic { faults < FAULTS && !late && !cut[AT(1, 2)] -> faults++; CUT(1, 2) }
	:: atomic { faults < FAULTS && !late && !cut[AT(1, 3)] -> faults++; CUT(1, 3) }
	:: atomic { faults < FAULTS && !late && !cut[AT(2, 3)] -> faults++; CUT(2, 3) }
	/* No more of it. */
	:: break
	od
}

#define GOES_ON(i)	(!(crashed & SELF(i)) && ended[i] == AGREED)
#define OVER(i)		((crashed & SELF(i)) || ended[i])
#define SAME(i, j)	(a_decider[i] == a_decider[j] && a_number[i] == a_number[j] && \
			 result[i] == result[j])
#define TOGETHER(i, j)	(!(GOES_ON(i) && GOES_ON(j)) || SAME(i, j))
#define ANY_GOES_ON	(GOES_ON(1) || GOES_ON(2) || GOES_ON(3))
/* With whom it was left out may have died since; then none of them is left. */
#define IS_LEFT(i)	(!(crashed & SELF(i)) && ended[i] == LEFT)
#define ALL_GO_ON(i)	((crashed & SELF(i)) || ended[i] == AGREED)

proctype judge()
{
	atomic {
		OVER(1) && OVER(2) && OVER(3);
		assert(TOGETHER(1, 2) && TOGETHER(1, 3) && TOGETHER(2, 3));
		if
		:: !cuts && SIZE(crashed) <= 2 -> assert(ALL_GO_ON(1) && ALL_GO_ON(2) && ALL_GO_ON(3))
		:: else
		fi;
		if
		:: IS_LEFT(1) || IS_LEFT(2) || IS_LEFT(3) -> assert(ANY_GOES_ON)
		:: else
		fi
	}
}

/* Machine @i has accepted the offer of the one that has died. */
inline had_accepted(i)
{
	up[i] = 15;
	dead[i] = 0;
	said[i] = 15;
	o_number[AT(i, 0)] = 1;
	o_places[AT(i, 0)] = 15;
	accept(i, 0);
	if
	:: say(0, i, COMMIT, 0, 1, 0)
	:: true
	fi
}

init {
	atomic {
		crashed = 1;
		up[1] = 14; up[2] = 14; up[3] = 14;
		dead[1] = 1; dead[2] = 1; dead[3] = 1;
		said[1] = 2; said[2] = 4; said[3] = 8;
		if
		:: true
		:: had_accepted(1);
		   had_accepted(2);
		   had_accepted(3);
		   late = true;
		   faults = FAULTS
		fi;
		run machine(1);
		run machine(2);
		run machine(3);
		run fate();
		run judge()
	}
}
