/* SPDX-License-Identifier: GPL-2.0 */
/*
 * chains.pml - Promela model of how chains that receive from several remote peers share the
 * landings of each (remote_recv.c).
 *
 * Each of CHAINS chains takes CHUNKS times a chunk of each of PEERS peers, all at once; what
 * has come stays in its landing until then. A peer has LANDINGS, which it gives to any chain
 * in any order, with data or without; but the last one only to a chain whose peer has data
 * and nowhere to put it, and which has of all peers what it needs, but for those after this
 * one, which have data, too. The chunks of some peers exist only when other chains have taken
 * theirs, in any order that is none in circles. Modelled are npulink_recv_grant() and
 * npulink_recv_last(), with the wake-up of npulink_event_handle(): a chain looks again when
 * anything of it has come.
 *
 * Checked: all chains get to their end.
 *
 *	spin -search -O2 -safety kernel/core/chains.pml
 */
#define CHAINS	3
#define CHUNKS	2
#define PEERS	2
#define LANDINGS 2
#define AT(c, k) ((c) * PEERS + (k))

byte taken[4];		/* chunks; one more than there are chains */
byte used[PEERS];	/* landings */
bool out[8];		/* CHAINS * PEERS: granted, nothing in it */
bool here[8];
byte after[8];		/* the data exist when this chain is at its end; CHAINS: they do now */

#define DATA(c, k)	(after[AT(c, k)] == CHAINS || taken[after[AT(c, k)]] == CHUNKS)
#define NEEDS(c, k)	(!out[AT(c, k)] && !here[AT(c, k)] && DATA(c, k))

proctype chain(byte c)
{
	do
	/* Either may be the first, and what is not the last may go to whoever has no data yet. */
	:: atomic { !out[AT(c, 0)] && !here[AT(c, 0)] && taken[c] < CHUNKS &&
		    (used[0] < LANDINGS - 1 ||
		     (used[0] < LANDINGS && NEEDS(c, 0) && (here[AT(c, 1)] || NEEDS(c, 1)))) ->
		out[AT(c, 0)] = true; used[0]++ }
	:: atomic { !out[AT(c, 1)] && !here[AT(c, 1)] && taken[c] < CHUNKS &&
		    (used[1] < LANDINGS - 1 ||
		     (used[1] < LANDINGS && NEEDS(c, 1) && here[AT(c, 0)])) ->
		out[AT(c, 1)] = true; used[1]++ }
	:: atomic { out[AT(c, 0)] && DATA(c, 0) -> out[AT(c, 0)] = false; here[AT(c, 0)] = true }
	:: atomic { out[AT(c, 1)] && DATA(c, 1) -> out[AT(c, 1)] = false; here[AT(c, 1)] = true }
	:: atomic { here[AT(c, 0)] && here[AT(c, 1)] ->
		here[AT(c, 0)] = false; here[AT(c, 1)] = false;
		used[0]--; used[1]--; taken[c]++ }
	:: atomic { taken[c] == CHUNKS -> break }
	od
}

init {
	byte i, dep;

	atomic {
		for (i : 0 .. CHAINS * PEERS - 1) {
			/* Only after a chain with a smaller number. */
			select (dep : 0 .. CHAINS);
			if
			:: dep < i / PEERS -> after[i] = dep
			:: else -> after[i] = CHAINS
			fi
		}
		for (i : 0 .. CHAINS - 1) {
			run chain(i)
		}
	}
}
