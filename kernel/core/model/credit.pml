/* SPDX-License-Identifier: GPL-2.0 */
/*
 * credit.pml - Promela model of steps that are sent as messages to another machine
 * (remote_send.c, remote_recv.c, remote_msg.c, npulink_remote_tick()).
 *
 * The sender has posted OPS operations, which are independent of each other, in any order, of
 * one small step each, with bytes or without any. The receiver posts them in an order of its
 * own, and each only when the one before it has ended, as a program does that makes blocking
 * calls. There are CREDITS slots for messages. Modelled are npulink_send_step() with credits,
 * OPEN, REQ and GRANT, npulink_remote_data(), npulink_remote_catch_up(),
 * npulink_remote_opened(), npulink_remote_requested() and the credits that come back.
 *
 * Checked: no more messages are kept than there are slots, each step arrives exactly once, and
 * every operation ends.
 *
 *	spin -search -O2 -safety kernel/core/credit.pml
 */
#define OPS	3
#define CREDITS	2

mtype = { DATA, REQ, OPEN, GRANT, PUT, CREDIT };

bool bytes[OPS];	/* the step has any */

/* The sender. */
bool posted[OPS];
byte credits = CREDITS;
bool opened[OPS];
bool asked[OPS];
bool reqed[OPS];
bool done[OPS];

/* The receiver. */
bool wanted[OPS];	/* posted */
bool held[OPS];		/* its message came before that */
bool granted[OPS];
byte got[OPS];
byte nheld;
byte owed;
byte opens[OPS];	/* OPENs that were said, which goes on for ever in life */

chan to = [OPS + CREDITS] of { mtype, byte };
chan back = [3 * OPS + 2] of { mtype, byte, byte };	/* with credits */

byte i;			/* only within a step */

/* npulink_remote_tx(): all that can be sent */
inline tx()
{
	for (i : 0 .. OPS - 1) {
		if
		:: !posted[i] || done[i]
		:: posted[i] && !done[i] && !reqed[i] && credits > 0 ->
			credits--;
			done[i] = true;
			to ! DATA(i)
		:: posted[i] && !done[i] && (reqed[i] || !credits) && opened[i] && !asked[i] ->
			asked[i] = true;
			reqed[i] = true;
			done[i] = !bytes[i];
			to ! REQ(i)
		:: else
		fi
	}
}

proctype sender()
{
	byte o, c;

end:	do
	:: atomic { !posted[0] -> posted[0] = true; tx() }
	:: atomic { !posted[1] -> posted[1] = true; tx() }
	:: atomic { !posted[2] -> posted[2] = true; tx() }
	:: atomic { back ? OPEN(o, c) ->
		credits = credits + c;
		assert(credits <= CREDITS);
		opened[o] = true;
		asked[o] = false;
		tx() }
	:: atomic { back ? GRANT(o, c) ->
		credits = credits + c;
		assert(posted[o] && !done[o]);
		done[o] = true;
		to ! PUT(o);
		tx() }
	:: atomic { back ? CREDIT(o, c) -> credits = credits + c; tx() }
	od
}

/* npulink_remote_post() */
inline say(what, o)
{
	back ! what(o, owed);
	owed = 0
}

inline arrive(o)
{
	got[o]++;
	assert(got[o] == 1)
}

/* npulink_remote_slot_free(), and what npulink_remote_pump() does about it */
inline slot_free()
{
	owed++;
	if
	:: owed >= CREDITS / 2 -> say(CREDIT, 0)
	:: else
	fi
}

/* npulink_op_publish(), npulink_remote_catch_up() */
inline want(o)
{
	wanted[o] = true;
	if
	:: held[o] -> held[o] = false; nheld--; arrive(o); slot_free()
	:: else
	fi
}

#define IDLE	(wanted[0] == got[0] && wanted[1] == got[1] && wanted[2] == got[2])
#define STUCK(o) (wanted[o] && !got[o] && opens[o] < 2)

proctype receiver()
{
	byte o;

	do
	:: atomic { IDLE && !wanted[0] -> want(0) }
	:: atomic { IDLE && !wanted[1] -> want(1) }
	:: atomic { IDLE && !wanted[2] -> want(2) }
	:: atomic { to ? DATA(o) ->
		assert(nheld < CREDITS && !granted[o] && !held[o]);
		if
		:: wanted[o] -> arrive(o); slot_free()
		:: else -> held[o] = true; nheld++
		fi }
	:: atomic { to ? REQ(o) ->
		if
		:: wanted[o] && !bytes[o] -> arrive(o)
		:: wanted[o] && bytes[o] && !granted[o] -> granted[o] = true; say(GRANT, o)
		:: else
		fi }
	:: atomic { to ? PUT(o) -> arrive(o) }
	/* npulink_remote_tick() */
	:: atomic { STUCK(0) -> opens[0]++; say(OPEN, 0) }
	:: atomic { STUCK(1) -> opens[1]++; say(OPEN, 1) }
	:: atomic { STUCK(2) -> opens[2]++; say(OPEN, 2) }
	:: got[0] && got[1] && got[2] -> break
	od
}

init {
	atomic {
		for (i : 0 .. OPS - 1) {
			if
			:: bytes[i] = true
			:: bytes[i] = false
			fi
		}
		run sender();
		run receiver()
	}
}
