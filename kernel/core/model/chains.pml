/* SPDX-License-Identifier: GPL-2.0 */
/*
 * chains.pml - Promela model of how chains that receive from several remote peers share the
 * landings of each (remote_recv.c), and of who looks when (seq.c).
 *
 * Each of CHAINS chains takes CHUNKS times a chunk of each of PEERS peers, all at once; what
 * has come stays in its landing until then. A peer has LANDINGS, of which all but the last one
 * may be held by others until these chains are at their end. It gives them to any chain in any
 * order, with data or without; but the last one only to a chain that has none, whose peer has
 * data and nowhere to put it, and which has of all peers what it needs, but for those after
 * this one, which have data, too. What chain 1 gets of some peers exists only when chain 0 is
 * at its end. The members of chain 0 are in the order of their peers, those of chain 1 in this
 * one or the other way round; that decides for which of them it waits.
 *
 * Nobody looks whether a landing may be given but at what the code does it at: a chain begins,
 * a request comes, something has landed, its event is handled (of what the chain waits for, or
 * of something else), the engine has taken a chunk. All of these may be late. Modelled are
 * npulink_remote_pump() as far as it receives, npulink_remote_want(), _want_next() and
 * _want_step(), npulink_recv_grant(), _last() and _in_turn(), npulink_event_handle(),
 * npulink_unit_avail() and npulink_req_complete().
 *
 * Not in it: the tick, which looks at everything, and would hide a look that is missing; the
 * looks that go with other messages; requests and grants that cross each other, and all grants
 * in use (grants.pml); windows, checksums, and very many chains (rx_idle).
 *
 * Checked: all chains get to their end.
 *
 *	spin -search -O2 -safety -m1000000 kernel/core/chains.pml
 */
#define CHAINS	2
#define CHUNKS	2
#define PEERS	3
#define LANDINGS 2
#define AT(c, k) ((c) * PEERS + (k))
#define STEPS	6	/* CHAINS * PEERS; AT(c, k) is what chain c receives from peer k */

mtype = { WAITING, ACTIVE, BUSY, DONE };

mtype phase[CHAINS] = WAITING;
byte taken[CHAINS];	/* chunks */
byte waits[CHAINS];	/* members before it have come .. */
bool missing[CHAINS];	/* .. and this one has not */
byte used[PEERS];	/* landings */

byte granted[STEPS];	/* chunks .. */
byte written[STEPS];
byte landed[STEPS];
byte freed[STEPS];	/* .. that have left their landing */
bool needs[STEPS];
bool rung[STEPS];	/* its event is in the inbox */
bool turned;		/* the first member of chain 1 receives from the last peer */
bool late[STEPS];	/* its data exist when chain 0 is at its end */

#define DATA(i)		(!late[i] || phase[0] == DONE)
#define SHOWN(i)	(landed[i] > freed[i] -> freed[i] + 1 : freed[i])
#define PEER(c, m)	(turned && (c) == 1 -> PEERS - 1 - (m) : (m))	/* of member m */
#define LISTED(c, k)	((phase[c] == ACTIVE || phase[c] == BUSY) && granted[AT(c, k)] < CHUNKS)

/* npulink_recv_in_turn() */
#define TURN(c, k, j)	(SHOWN(AT(c, j)) > granted[AT(c, k)] || (needs[AT(c, j)] && (j) > (k)))
#define IN_TURN(c, k)	(TURN(c, k, ((k) + 1) % PEERS) && TURN(c, k, ((k) + 2) % PEERS))

/* npulink_recv_last(), npulink_recv_grant() */
#define LAST(c, k)	(needs[AT(c, k)] && IN_TURN(c, k))
#define HAS(c, k)	(granted[AT(c, k)] > freed[AT(c, k)])
#define MAY(c, k)	(used[k] < LANDINGS - 1 || \
			 (used[k] < LANDINGS && !HAS(c, k) && LAST(c, k)))

byte i, m, n, p;	/* only within a step */

/* npulink_recv_step() */
inline look(c, k)
{
	do
	:: LISTED(c, k) && MAY(c, k) ->
		granted[AT(c, k)]++;
		used[k]++;
		needs[AT(c, k)] = false
	:: else -> break
	od
}

/* npulink_remote_pump(): the list is in any order */
inline pump(k)
{
	if
	:: true -> look(0, k); look(1, k)
	:: LISTED(0, k) && LISTED(1, k) -> look(1, k); look(0, k)
	fi
}

/* npulink_remote_want_next() */
inline want_next(c)
{
	n = 0;
	do
	:: n < PEERS && !(needs[AT(c, n)] && granted[AT(c, n)] <= taken[c]) -> n++
	:: else -> break
	od;
	if
	:: n < PEERS -> pump(n)
	:: else
	fi;
	n = 0
}

/* npulink_remote_want(), npulink_recv_want() */
inline want(c, first)
{
	n = 0;
	do
	:: n < PEERS ->
		if
		:: granted[AT(c, PEER(c, n))] < CHUNKS && (first || needs[AT(c, PEER(c, n))]) ->
			pump(PEER(c, n))
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* npulink_unit_advance(), npulink_unit_avail() */
inline advance(c, first)
{
	if
	:: taken[c] == CHUNKS -> phase[c] = DONE
	:: else ->
		missing[c] = true;
		do
		:: waits[c] < PEERS && SHOWN(AT(c, PEER(c, waits[c]))) > taken[c] -> waits[c]++
		:: else -> break
		od;
		if
		:: waits[c] < PEERS -> want(c, first)
		:: else ->
			missing[c] = false;
			waits[c] = 0;
			phase[c] = BUSY
		fi
	fi
}

proctype chain(byte c)
{
	atomic {
		phase[c] == WAITING ->
		phase[c] = ACTIVE;
		advance(c, true)
	}
	do
	/* npulink_req_complete(), npulink_unit_credit(), npulink_remote_taken() */
	:: atomic { phase[c] == BUSY ->
		taken[c]++;
		phase[c] = ACTIVE;
		m = 0;
		do
		:: m < PEERS ->
			p = PEER(c, m);
			freed[AT(c, p)]++;
			used[p]--;
			if
			:: landed[AT(c, p)] > freed[AT(c, p)] -> rung[AT(c, p)] = true
			:: else
			fi;
			pump(p);
			m++
		:: else -> break
		od;
		m = 0; p = 0;
		advance(c, false) }
	:: atomic { phase[c] == DONE -> break }
	od
}

proctype step(byte c, k)
{
end:	do
	/* npulink_send_step(), npulink_remote_requested(), npulink_remote_want_step() */
	:: atomic { DATA(AT(c, k)) && granted[AT(c, k)] == written[AT(c, k)] &&
		    !needs[AT(c, k)] && written[AT(c, k)] < CHUNKS ->
		needs[AT(c, k)] = true;
		if
		:: phase[c] == ACTIVE || phase[c] == BUSY -> pump(k); want_next(c)
		:: else
		fi;
		pump(k) }
	/* npulink_remote_put_arrived() */
	:: atomic { granted[AT(c, k)] > written[AT(c, k)] && DATA(AT(c, k)) ->
		written[AT(c, k)]++ }
	/* npulink_remote_put_revoked() */
	:: atomic { written[AT(c, k)] > landed[AT(c, k)] ->
		landed[AT(c, k)]++;
		if
		:: landed[AT(c, k)] == freed[AT(c, k)] + 1 -> rung[AT(c, k)] = true
		:: else
		fi;
		pump(k) }
	/* npulink_event_handle() */
	:: atomic { rung[AT(c, k)] ->
		rung[AT(c, k)] = false;
		if
		:: phase[c] != ACTIVE
		:: phase[c] == ACTIVE && missing[c] && k != PEER(c, waits[c]) -> want_next(c)
		:: else -> advance(c, false)
		fi }
	od
}

init {
	atomic {
		for (i : 0 .. PEERS - 1) {
			/* What others hold until these are at their end. */
			if
			:: used[i] = LANDINGS - 1
			:: used[i] = 0
			fi;
			if
			:: late[AT(1, i)] = true
			:: late[AT(1, i)] = false
			fi
		}
		if
		:: turned = true
		:: turned = false
		fi;
		for (i : 0 .. CHAINS - 1) {
			run chain(i);
			for (p : 0 .. PEERS - 1) {
				run step(i, p)
			}
		}
		i = 0; p = 0
	}
}
