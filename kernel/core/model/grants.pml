/* SPDX-License-Identifier: GPL-2.0 */
/*
 * grants.pml - Promela model of who gets the grants of a connection (remote_recv.c,
 * remote_send.c).
 *
 * A ring goes over two connections, and round STEPS times over each: what a step sends over
 * one of them has come by the step before it over the other one; the first steps have all
 * their data. A step has CHUNKS chunks, and a connection GRANTS grants, which a receiver gives
 * to any step that wants some, in any order, as several operations in flight would have it;
 * but the last one only to a step that needs it. GRANT and REQ are on their way for any time.
 * Modelled are npulink_recv_grant(), npulink_remote_requested(), npulink_remote_offer() and
 * npulink_send_step().
 *
 * Checked: all chunks arrive.
 *
 *	spin -search -O2 -safety kernel/core/grants.pml
 */
#define STEPS	3
#define CHUNKS	2
#define GRANTS	2
#define ALL	6	/* 2 * STEPS; step s of connection k is number k * STEPS + s */

byte granted[ALL];	/* chunks */
byte coming[ALL];	/* GRANTs on their way to the sender */
byte open[ALL];		/* those that it has, and has not filled */
byte arrived[ALL];	/* chunks; to send one and to see it arrive is one step here */
bool asked[ALL];	/* the sender has, since its last grant */
bool req[ALL];		/* REQ is on its way */
bool needs[ALL];
byte used[2];		/* grants of a connection */

proctype receiver(byte i)
{
	byte k = i / STEPS;

	do
	:: atomic { granted[i] < CHUNKS && (used[k] < GRANTS - 1 || (needs[i] && used[k] < GRANTS)) ->
		granted[i]++;
		used[k]++;
		coming[i]++;
		needs[i] = false }
	:: atomic { req[i] ->
		req[i] = false;
		needs[i] = granted[i] == arrived[i] }
	:: atomic { arrived[i] == CHUNKS && !req[i] -> break }
	od
}

proctype sender(byte i)
{
	byte k = i / STEPS, before = (i < STEPS -> i + STEPS - 1 : i - STEPS - 1);
	bool first = i % STEPS == 0;

	do
	:: atomic { coming[i] > 0 ->
		coming[i]--;
		open[i]++;
		asked[i] = false }
	/* It does not overtake what was said before. */
	:: atomic { open[i] > 0 && !req[i] && (first || arrived[before] > arrived[i]) && arrived[i] < CHUNKS ->
		open[i]--;
		arrived[i]++;
		used[k]-- }
	:: atomic { (first || arrived[before] > arrived[i]) && arrived[i] < CHUNKS && !open[i] && !asked[i] ->
		asked[i] = true;
		req[i] = true }
	:: atomic { arrived[i] == CHUNKS -> break }
	od
}

init {
	byte i;

	atomic {
		for (i : 0 .. ALL - 1) {
			run receiver(i);
			run sender(i)
		}
	}
}
