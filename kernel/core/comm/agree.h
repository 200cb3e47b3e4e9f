/* SPDX-License-Identifier: GPL-2.0 */
/*
 * agree.h - the machines of a communicator that has failed agree on who goes on (COMM_SHRINK).
 *
 * Each machine has a place (npulink/wire.h), and takes part as one: it answers for the ranks
 * that it has. The agreement begins with the first rank that asks, anywhere; on other machines
 * with the first call. It ends once, and what was agreed on holds for good.
 *
 *   agree.c        who is alive, who decides, what is accepted
 *   agree_pick.c   which machines all reach each other
 *   agree_msg.c    what is said, and what the transport says
 *   agree_place.c  which rank is on which machine, here and in what comes after
 *
 * The model is agree.pml.
 */
#ifndef NPULINK_AGREE_H
#define NPULINK_AGREE_H

#include <npulink/transport.h>
#include "comm/comm.h"

#define NPULINK_PLACE_BYTES	(NPULINK_WIRE_PLACES / 8)

enum npulink_agree_state {
	NPULINK_AGREE_IDLE,
	NPULINK_AGREE_RUNNING,
	NPULINK_AGREE_ENDING,		/* connections are being closed */
	NPULINK_AGREE_OVER,
};

enum npulink_place_state {
	NPULINK_PLACE_NEW,
	NPULINK_PLACE_CALLING,
	NPULINK_PLACE_UP,
	NPULINK_PLACE_LOST,
};

/*
 * An offer: the machines that are to go on.
 * @number: of the machine that made it; 0: there is none
 * @taken: we have accepted it
 */
struct npulink_offer_of {
	u32 decider;
	u32 number;
	bool taken;
	u8 nonce[16];
	u8 places[NPULINK_PLACE_BYTES];
};

/*
 * struct npulink_place - a machine
 * @first: the lowest rank that is said to be there
 * @nranks: how many are
 * @at: where it is
 * @opened: the transport knows the connection: it is to be closed
 * @full: the transport has refused something, and will say when it has room
 * @want: what it is to be told, a mask of message types from ALIVE on
 * @without: it says that others go on without us, or it has refused our call for that
 * @committed: it says that what we have agreed on holds
 * @offered: it has been told an offer of ours
 * @said: it has told us who is alive:
 * @dead: machines that it cannot reach
 * @live: its ranks that live, see npulink/wire.h
 * @agreed: the number of our last offer that it has accepted
 * @offer: its own last one
 */
struct npulink_place {
	struct npulink_put put;
	struct npulink_agree *agree;
	u32 first;
	u32 nranks;
	struct npulink_where at;
	u8 state;
	bool opened;
	bool full;
	bool without;
	bool committed;
	bool offered;
	bool said;
	u8 want;
	u32 tx_seq;
	u32 rx_seq;
	u8 dead[NPULINK_PLACE_BYTES];
	u8 live[NPULINK_PLACE_BYTES];
	u32 agreed;
	struct npulink_offer_of offer;
};

/*
 * struct npulink_agree - an agreement, of one communicator
 * @lock: all that follows, and each place; taken with interrupts off
 * @asked: a rank here wants it, or a member elsewhere has told us
 * @minority: a rank, here or elsewhere, wants to go on with half of the machines, or fewer
 * @committed: @accepted holds; the others are to hear of it before it has ended
 * @ended: @result is what comes of it: 0: @accepted holds; -ESHUTDOWN: without us; -ENOLINK:
 *	   too few reach each other
 * @changed: there is news for the others of whom we cannot reach
 * @counted: it is known which of our ranks live
 * @opened: the worker has tried to connect to all others
 * @known: what comes of it, and if that is a communicator, there it is
 * @began: in jiffies; like @since, when what is waited for now began, and @probed
 * @bound_ms: how long who does not answer is waited for
 * @accepted: a copy of the offer that was accepted last
 * @empty: a machine whose only rank has died, or @nplaces
 * @views: counts what is learnt of who reaches whom
 * @picked: whom we would go on with, by what was known when @views was @picked_views
 * @npicked: how many these are
 * @widest: how many the one reaches that reaches most, of those that we reach
 * @heir_tag: of the communicator that @accepted would make, for an agreement of its own
 * @heir_name: the same; @heir_secret: what it proves to know
 * @rank: as whom we use ports and memory, as long as it runs
 * @heir: the communicator of those who go on; held until the last rank has left this one
 */
struct npulink_agree {
	struct npulink_comm *comm;
	struct net *net;
	u32 nplaces;
	u32 self;
	u32 *place_of;			/* by rank */
	u64 hash;			/* of place_of */
	wait_queue_head_t wq;
	struct delayed_work work;

	spinlock_t lock;		/* see above */
	u8 state;
	bool asked;
	bool minority;
	bool committed;
	bool ended;
	bool changed;
	bool counted;
	bool opened;
	bool known;
	int result;
	unsigned long began;
	unsigned long since;
	unsigned long probed;
	u32 bound_ms;
	struct npulink_offer_of accepted;
	u32 empty;
	u32 views;
	u32 picked_views;
	u8 picked[NPULINK_PLACE_BYTES];
	u32 npicked;
	u32 widest;
	u8 heir_tag[NPULINK_TAG_LEN];
	struct npulink_tag heir_name;
	u8 heir_secret[16];
	struct npulink_rank *rank;
	const struct npulink_transport *transport;
	struct npulink_comm *heir;
	struct npulink_place places[];
};

static inline bool npulink_has_place(const u8 *places, u32 i)
{
	return places[i / 8] >> (i % 8) & 1;
}

static inline void npulink_add_place(u8 *places, u32 i)
{
	places[i / 8] |= 1 << (i % 8);
}

/* Does @places name one that is not below @n? */
static inline bool npulink_places_beyond(const u8 *places, u32 n)
{
	for (; n % 8; n++)
		if (npulink_has_place(places, n))
			return true;
	return memchr_inv(places + n / 8, 0, NPULINK_PLACE_BYTES - n / 8);
}

/* Do @a and @b have one in common? */
static inline bool npulink_places_meet(const u8 *a, const u8 *b)
{
	u32 i;

	for (i = 0; i < NPULINK_PLACE_BYTES; i++)
		if (a[i] & b[i])
			return true;
	return false;
}

/* agree.c */
int npulink_agree_ask(struct npulink_rank *rank, bool minority);
int npulink_agree_init(void);
void npulink_agree_exit(void);
void npulink_agree_flush(void);
void npulink_agree_left(struct npulink_comm *comm);
void npulink_agree_free(struct npulink_agree *agree);
int npulink_agree_introduce(struct npulink_rank *rank, struct npulink_rank *old);
void npulink_agree_start(struct npulink_agree *agree, struct npulink_rank *rank, bool asked,
			 bool minority);
void npulink_agree_kick(struct npulink_agree *agree);
void npulink_agree_work(struct npulink_agree *agree);
void npulink_agree_gone(struct npulink_place *place);
void npulink_agree_lose(struct npulink_place *place);
void npulink_agree_end(struct npulink_agree *agree, int result);
bool npulink_agree_commit(struct npulink_agree *agree, struct npulink_place *from, u32 decider,
			  u32 number);
int npulink_agree_expects(struct npulink_comm *comm, const struct net *net, const u8 *tag,
			  u8 *secret, bool *known);
bool npulink_agree_awaits(struct npulink_comm *comm, const struct net *net, u32 index);

/* agree_msg.c */
#define NPULINK_WANT(type)	BIT((type) - NPULINK_WIRE_ALIVE)

void npulink_agree_pump(struct npulink_place *place);
void npulink_agree_last(struct npulink_place *place, struct npulink_wire_msg *msg, u8 type);
extern const struct npulink_put_events npulink_agree_events;

/* agree_place.c */
void npulink_agree_secret(const u8 *secret, u8 *out);
struct npulink_agree *npulink_agree_get(struct npulink_comm *comm, struct npulink_rank *rank);
struct npulink_agree *npulink_agree_inherit(struct npulink_agree *from, struct npulink_comm *heir,
					    const u32 *map);
void npulink_heir_secret(const struct npulink_agree *agree, const struct npulink_offer_of *offer,
			 u8 *secret);
void npulink_heir_tags(const struct npulink_agree *agree, const u8 *secret, u8 *agree_secret,
		       u8 *agree_tag);
int npulink_agree_heir(struct npulink_agree *agree);

#endif /* NPULINK_AGREE_H */
