/* SPDX-License-Identifier: GPL-2.0 */
/*
 * agree.pml - Promela model of how machines agree on who goes on (agree.c).
 *
 * Three machines, from the moment at which each knows whom it can reach; or from the one at which
 * a fourth has died that had made an offer, which all have accepted, and some may have heard, or
 * hear yet, that it holds. Machines die, and in the first case cables are cut, at any time; what
 * was on its way is then lost, or not. Modelled are
 *
 *   - npulink_agree_tell(), npulink_agree_told();
 *   - npulink_agree_follow(), npulink_agree_decide() and what they call;
 *   - npulink_agree_commit(), npulink_agree_close(), npulink_agree_gone().
 *
 * Nobody is too late: who waits, waits for what comes. Checked: all that live end; as long as no
 * cable is cut, all who live go on, and together; whatever is cut, two that go on and count each
 * other go on together; nobody says what another one takes for a lie.
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

chan c[N * N] = [5] of { byte, byte, byte, byte };	/* type, decider, number, mask */

byte crashed, faults;
bool cuts, late;
byte cut[N * N];
byte up[N], dead[N], said[N];
byte p_dead[N * N];				/* what another one has said */
byte o_number[N * N], o_places[N * N];			/* its last offer, and the own one */
bool o_taken[N * N];
byte agreed[N * N];
byte a_decider[N], a_number[N], a_places[N];		/* accepted */
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

/* npulink_agree_end(), npulink_agree_close() */
inline finish(i, how)
{
	ended[i] = how;
	result[i] = a_places[i];
	k = 0;
	do
	:: k == N -> break
	:: k < N && how == AGREED && k != i && (up[i] & SELF(k)) ->
		if
		:: a_places[i] & SELF(k) -> say(i, k, COMMIT, a_decider[i], a_number[i], 0)
		:: else -> say(i, k, WITHOUT, 0, 0, 0)
		fi;
		k++
	:: k < N && !(how == AGREED && k != i && (up[i] & SELF(k))) -> k++
	od;
	k = 0
}

inline accept(me, whose)
{
	o_taken[AT(me, whose)] = true;
	a_decider[me] = whose;
	a_number[me] = o_number[AT(me, whose)];
	a_places[me] = o_places[AT(me, whose)]
}

inline told(i, j)
{
	c[AT(j, i)]?m_type, m_d, m_n, m_p;
	if
	:: m_type == ALIVE ->
		said[i] = said[i] | SELF(j);
		p_dead[AT(i, j)] = m_p
	:: m_type == OFFER ->
		assert((said[i] & SELF(j)) && m_n > o_number[AT(i, j)]);
		assert((m_p & SELF(i)) && (m_p & SELF(j)));
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
	:: m_type == COMMIT ->
		assert(m_n && o_number[AT(i, m_d)] == m_n && o_taken[AT(i, m_d)] &&
		       (o_places[AT(i, m_d)] & SELF(j)));
		accept(i, m_d);
		finish(i, AGREED)
	:: m_type == WITHOUT ->
		assert(said[i] & SELF(j));
		finish(i, LEFT)
	fi;
	m_type = 0; m_d = 0; m_n = 0; m_p = 0
}

inline tell(i)
{
	k = 0;
	do
	:: k == N -> break
	:: k < N && (up[i] & SELF(k)) && k != i ->
		say(i, k, ALIVE, 0, 0, dead[i]);
		k++
	:: k < N && !((up[i] & SELF(k)) && k != i) -> k++
	od;
	k = 0
}

inline gone(i, j)
{
	up[i] = up[i] & ~SELF(j);
	dead[i] = dead[i] | SELF(j);
	forget(j, i);
	tell(i)
}

#define LOST(i)		(a_number[i] && !(up[i] & SELF(a_decider[i])))
/* npulink_agree_unclear(): of j */
#define GIVEN_UP(i, j)	((said[i] & SELF(j)) && (p_dead[AT(i, j)] & SELF(a_decider[i])))
#define UNCLEAR(i, j)	((j) != (i) && (a_places[i] & SELF(j)) && (up[i] & SELF(j)) && \
			 !GIVEN_UP(i, j))
#define IS_UNCLEAR(i)	(LOST(i) && (UNCLEAR(i, 1) || UNCLEAR(i, 2) || UNCLEAR(i, 3)))
/* npulink_agree_pick(): can j, who is reached, be with those in p? */
#define FITS(i, j, p)	((up[i] & SELF(j)) && !(p_dead[AT(i, j)] & (p)) && \
			 !((p & SELF(1)) && 1 != (i) && (p_dead[AT(i, 1)] & SELF(j))) && \
			 !((p & SELF(2)) && 2 != (i) && (p_dead[AT(i, 2)] & SELF(j))) && \
			 !((p & SELF(3)) && 3 != (i) && (p_dead[AT(i, 3)] & SELF(j))))
#define HAS(i, j)	((j) == (i) || !(o_places[AT(i, i)] & SELF(j)) || \
			 agreed[AT(i, j)] == o_number[AT(i, i)])
#define FIRST(i)	((up[i] & 1) -> 0 : ((up[i] & 2) -> 1 : ((up[i] & 4) -> 2 : 3)))

/* Would npulink_agree_follow() accept? */
#define MAY_FOLLOW(i)	(FIRST(i) != (i) && o_number[AT(i, FIRST(i))] && \
			 !o_taken[AT(i, FIRST(i))] && !IS_UNCLEAR(i) && \
			 (o_places[AT(i, FIRST(i))] & ~up[i]) == 0 && \
			 (o_places[AT(i, FIRST(i))] & ~said[i]) == 0)
/* Would npulink_agree_decide() get beyond npulink_agree_heard()? */
#define MAY_DECIDE(i)	(FIRST(i) == (i) && (up[i] & ~said[i]) == 0 && !IS_UNCLEAR(i))

inline follow(i)
{
	decider = FIRST(i);
	accept(i, decider);
	say(i, decider, ACCEPT, decider, o_number[AT(i, decider)], 0);
	decider = 0
}

inline pick(i)
{
	picked = SELF(i);
	k = 0;
	do
	:: k == N -> break
	:: k < N && k != i && FITS(i, k, picked) -> picked = picked | SELF(k); k++
	:: k < N && !(k != i && FITS(i, k, picked)) -> k++
	od;
	k = 0
}

inline offer(i)
{
	o_number[AT(i, i)]++;
	o_places[AT(i, i)] = picked;
	accept(i, i);
	k = 0;
	do
	:: k == N -> break
	:: k < N && k != i && (picked & SELF(k)) ->
		say(i, k, OFFER, i, o_number[AT(i, i)], picked);
		k++
	:: k < N && !(k != i && (picked & SELF(k))) -> k++
	od;
	k = 0
}

#define ACCEPTED(i)	(o_number[AT(i, i)] && HAS(i, 1) && HAS(i, 2) && HAS(i, 3))
#define LIVES(i)	(!(crashed & SELF(i)) && !ended[i])
#define BROKEN(i, j)	((crashed & SELF(j)) || cut[AT(i, j)] || \
			 (ended[j] && empty(c[AT(j, i)])))

#define HEARS(i, j)	((up[i] & SELF(j)) && nempty(c[AT(j, i)]))
#define LOSES(i, j)	((up[i] & SELF(j)) && BROKEN(i, j))
#define NEWS(i, j)	(HEARS(i, j) || LOSES(i, j))

proctype machine(byte i)
{
	byte j;

	atomic { tell(i) };
	do
	:: atomic { !LIVES(i) -> break }
	/* What was said is heard, or never. */
	:: atomic { LIVES(i) && HEARS(i, (i + 1) % N) -> j = (i + 1) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && HEARS(i, (i + 2) % N) -> j = (i + 2) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && HEARS(i, (i + 3) % N) -> j = (i + 3) % N; told(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 1) % N) -> j = (i + 1) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 2) % N) -> j = (i + 2) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && LOSES(i, (i + 3) % N) -> j = (i + 3) % N; gone(i, j); j = 0 }
	:: atomic { LIVES(i) && MAY_FOLLOW(i) -> follow(i) }
	:: atomic { LIVES(i) && MAY_DECIDE(i) ->
		    pick(i);
		    if
		    :: o_number[AT(i, i)] == 0 || o_places[AT(i, i)] != picked -> offer(i)
		    :: else
		    fi;
		    picked = 0;
		    if
		    :: ACCEPTED(i) -> finish(i, AGREED)
		    /* Nothing more to do until something is heard. */
		    :: else -> !LIVES(i) || NEWS(i, (i + 1) % N) || NEWS(i, (i + 2) % N) ||
			       NEWS(i, (i + 3) % N)
		    fi }
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
#define TOGETHER(i, j)	(!(GOES_ON(i) && GOES_ON(j)) || SAME(i, j) || \
			 (cuts && !((result[i] & SELF(j)) && (result[j] & SELF(i)))))

proctype judge()
{
	atomic {
		OVER(1) && OVER(2) && OVER(3);
		assert(TOGETHER(1, 2) && TOGETHER(1, 3) && TOGETHER(2, 3));
		if
		:: !cuts -> assert(ended[1] != LEFT && ended[2] != LEFT && ended[3] != LEFT)
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
		   late = true
		fi;
		run machine(1);
		run machine(2);
		run machine(3);
		run fate();
		run judge()
	}
}
