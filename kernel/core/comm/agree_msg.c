// SPDX-License-Identifier: GPL-2.0
/*
 * agree_msg.c - what machines say to each other that agree on who goes on, and what the
 * transport says of their connections. Nothing of it is believed before it was checked, and who
 * says what it may not say is lost to us.
 */
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/cause.h"
#include "file/buf.h"

#define to_place(p) container_of(p, struct npulink_place, put)

/* ---- what we say ------------------------------------------------------------------ */

static struct npulink_place *npulink_agree_self(struct npulink_agree *agree)
{
	return &agree->places[agree->self];
}

static void npulink_agree_stamp(struct npulink_place *place, struct npulink_wire_msg *msg, u8 type)
{
	*msg = (struct npulink_wire_msg) {
		.type = type, .seq = cpu_to_le32(place->tx_seq),
	};
}

static u32 npulink_agree_alive(struct npulink_agree *agree, struct npulink_wire_alive *body)
{
	struct npulink_place *self = npulink_agree_self(agree);

	npulink_cause_to_wire(&body->cause, &agree->comm->cause);
	body->places = cpu_to_le64(agree->hash);
	body->nplaces = cpu_to_le32(agree->nplaces);
	body->nranks = cpu_to_le32(self->nranks);
	memcpy(body->dead, self->dead, sizeof(body->dead));
	memcpy(body->live, self->live, sizeof(body->live));
	return sizeof(*body);
}

/* Which offer @type is about. */
static const struct npulink_offer_of *npulink_agree_which(struct npulink_place *place, u8 type)
{
	switch (type) {
	case NPULINK_WIRE_OFFER:
		return &npulink_agree_self(place->agree)->offer;
	case NPULINK_WIRE_ACCEPT:
		return &place->offer;
	default:
		return &place->agree->accepted;
	}
}

static u32 npulink_agree_fill(struct npulink_place *place, struct npulink_wire_msg *msg, void *body)
{
	const struct npulink_offer_of *offer = npulink_agree_which(place, msg->type);
	struct npulink_agree *agree = place->agree;

	switch (msg->type) {
	case NPULINK_WIRE_ALIVE:
		msg->agree.flags = cpu_to_le32(agree->minority ? NPULINK_WIRE_MINORITY : 0);
		return npulink_agree_alive(agree, body);
	case NPULINK_WIRE_WITHOUT:
		return 0;
	}
	msg->number = cpu_to_le64(offer->number);
	msg->agree.decider = cpu_to_le32(offer->decider);
	if (msg->type != NPULINK_WIRE_OFFER)
		return 0;
	memcpy(msg->agree.nonce, offer->nonce, sizeof(msg->agree.nonce));
	memcpy(body, offer->places, sizeof(offer->places));
	return sizeof(struct npulink_wire_offer);
}

/* Is there no use in it any more? */
static bool npulink_agree_stale(const struct npulink_place *place, u8 type)
{
	const struct npulink_agree *agree = place->agree;
	const u8 *ours = agree->places[agree->self].offer.places;

	/* Nothing is taken back that it was not told. */
	if (type == NPULINK_WIRE_OFFER)
		return !place->offered && !npulink_has_place(ours, place - agree->places);
	return type == NPULINK_WIRE_ACCEPT && !place->offer.taken;
}

/* Say what is due, in the order of the types. */
void npulink_agree_pump(struct npulink_place *place)
{
	struct npulink_operand body = { .buf = place->put.buf, .off = NPULINK_MESSAGE_BYTES };
	struct npulink_wire_msg msg;
	u32 len;

	lockdep_assert_held(&place->agree->lock);
	while (place->want && place->state == NPULINK_PLACE_UP && !place->full) {
		u8 what = __ffs(place->want);

		if (npulink_agree_stale(place, NPULINK_WIRE_ALIVE + what)) {
			place->want &= ~BIT(what);
			continue;
		}
		npulink_agree_stamp(place, &msg, NPULINK_WIRE_ALIVE + what);
		len = npulink_agree_fill(place, &msg, npulink_operand_va(&body));
		msg.agree.size = cpu_to_le32(len);
		if (place->put.transport->send(&place->put, &msg, &body, len)) {
			place->full = true;
			return;
		}
		place->tx_seq++;
		place->want &= ~BIT(what);
		if (msg.type == NPULINK_WIRE_OFFER)
			place->offered = true;
	}
}

/* The message that a connection is closed with: COMMIT, WITHOUT. */
void npulink_agree_last(struct npulink_place *place, struct npulink_wire_msg *msg, u8 type)
{
	lockdep_assert_held(&place->agree->lock);
	npulink_agree_stamp(place, msg, type);
	npulink_agree_fill(place, msg, NULL);
}

/* ---- what is said to us ----------------------------------------------------------- */

/* What it says has changed: may what it has offered still come to hold? */
static void npulink_agree_told_views(struct npulink_place *place, const u8 *dead)
{
	struct npulink_agree *agree = place->agree;
	struct npulink_offer_of *last = &agree->accepted;

	if (place->said && !memcmp(place->dead, dead, sizeof(place->dead)))
		return;
	memcpy(place->dead, dead, sizeof(place->dead));
	agree->views++;
	/* It would have said so before. */
	if (!agree->committed && last->number && last->decider == place - agree->places &&
	    npulink_places_meet(last->places, dead))
		last->number = 0;
}

static const char *npulink_agree_told_alive(struct npulink_place *place,
					    const struct npulink_wire_msg *msg,
					    const struct npulink_wire_alive *body)
{
	struct npulink_agree *agree = place->agree;
	struct npulink_cause cause;
	const char *wrong;
	u32 i;

	wrong = npulink_cause_from_wire(&cause, &body->cause, agree->comm->nranks);
	if (wrong)
		return wrong;
	if (le64_to_cpu(body->places) != agree->hash ||
	    le32_to_cpu(body->nplaces) != agree->nplaces ||
	    le32_to_cpu(body->nranks) != place->nranks)
		return "where ranks are";
	if (npulink_places_beyond(body->dead, agree->nplaces) ||
	    npulink_places_beyond(body->live, place->nranks))
		return "a machine or rank that is not there";
	if (npulink_has_place(body->dead, agree->self))
		return "that it cannot reach us";
	if (place->said && memcmp(place->live, body->live, sizeof(place->live)))
		return "other ranks than before";
	for (i = 0; i < sizeof(place->dead); i++)
		if (place->dead[i] & ~body->dead[i])
			return "that a machine is back";
	npulink_agree_told_views(place, body->dead);
	place->said = true;
	if (le32_to_cpu(msg->agree.flags) & NPULINK_WIRE_MINORITY)
		agree->minority = true;
	memcpy(place->live, body->live, sizeof(place->live));
	/* It may have failed for a reason that nobody here has met with. */
	npulink_comm_fail(agree->comm, &cause);
	agree->asked = true;
	return NULL;
}

static const char *npulink_agree_told_offer(struct npulink_place *place,
					    const struct npulink_wire_msg *msg,
					    const struct npulink_wire_offer *body)
{
	struct npulink_agree *agree = place->agree;
	u64 number = le64_to_cpu(msg->number);
	u32 at = place - agree->places;
	bool none;

	if (!place->said || number <= place->offer.number || number > U32_MAX)
		return "number of an offer";
	none = !memchr_inv(body->places, 0, sizeof(body->places));
	if (le32_to_cpu(msg->agree.decider) != at ||
	    npulink_places_beyond(body->places, agree->nplaces) ||
	    (!none && !npulink_has_place(body->places, at)) ||
	    (!place->offer.number && !npulink_has_place(body->places, agree->self)))
		return "machines of an offer";
	/* It does not count on the one before any more. */
	if (!agree->committed && agree->accepted.decider == at)
		agree->accepted.number = 0;
	place->offer = (struct npulink_offer_of) { .decider = at, .number = number };
	memcpy(place->offer.nonce, msg->agree.nonce, sizeof(place->offer.nonce));
	memcpy(place->offer.places, body->places, sizeof(place->offer.places));
	return NULL;
}

static const char *npulink_agree_told_accept(struct npulink_place *place,
					     const struct npulink_wire_msg *msg)
{
	struct npulink_agree *agree = place->agree;
	const struct npulink_offer_of *offer = &npulink_agree_self(agree)->offer;
	u64 number = le64_to_cpu(msg->number);

	if (le32_to_cpu(msg->agree.decider) != agree->self || !number || number > offer->number)
		return "an offer that was not made";
	/* An earlier one is worth nothing any more. */
	if (number == offer->number && npulink_has_place(offer->places, place - agree->places))
		place->agreed = number;
	return NULL;
}

static u32 npulink_agree_size(u8 type)
{
	return type == NPULINK_WIRE_ALIVE ? sizeof(struct npulink_wire_alive) :
	       type == NPULINK_WIRE_OFFER ? sizeof(struct npulink_wire_offer) : 0;
}

/* Returns what is wrong with it, or NULL. */
static const char *npulink_agree_told(struct npulink_place *place, const void *bytes, u32 len)
{
	struct npulink_wire_msg msg;

	if (len < sizeof(msg) || len > NPULINK_WIRE_SLOT)
		return "size";
	memcpy(&msg, bytes, sizeof(msg));
	bytes += sizeof(msg);
	len -= sizeof(msg);
	if (msg.type < NPULINK_WIRE_ALIVE || msg.type >= NPULINK_WIRE_AGREES)
		return "type";
	if (le32_to_cpu(msg.seq) != place->rx_seq)
		return "sequence number";
	if (len != npulink_agree_size(msg.type) || le32_to_cpu(msg.agree.size) != len)
		return "payload";
	if (msg.flags || msg.credits ||
	    le32_to_cpu(msg.agree.flags) &
	    ~(msg.type == NPULINK_WIRE_ALIVE ? NPULINK_WIRE_MINORITY : 0) ||
	    memchr_inv(msg.agree.reserved, 0, sizeof(msg.agree.reserved)) ||
	    (msg.type != NPULINK_WIRE_OFFER &&
	     memchr_inv(msg.agree.nonce, 0, sizeof(msg.agree.nonce))))
		return "unused members";
	if ((msg.type == NPULINK_WIRE_ALIVE || msg.type == NPULINK_WIRE_WITHOUT) &&
	    (msg.number || msg.agree.decider))
		return "unused members";
	place->rx_seq++;
	switch (msg.type) {
	case NPULINK_WIRE_ALIVE:
		return npulink_agree_told_alive(place, &msg, bytes);
	case NPULINK_WIRE_OFFER:
		return npulink_agree_told_offer(place, &msg, bytes);
	case NPULINK_WIRE_ACCEPT:
		return npulink_agree_told_accept(place, &msg);
	case NPULINK_WIRE_COMMIT:
		if (le64_to_cpu(msg.number) <= U32_MAX &&
		    npulink_agree_commit(place->agree, place, le32_to_cpu(msg.agree.decider),
					 le64_to_cpu(msg.number)))
			return NULL;
		return "an offer that was not accepted";
	}
	/* WITHOUT. Only who has agreed says so; what it means depends on how many do. */
	if (!place->said)
		return "that we are left out, too early";
	place->without = true;
	place->agree->views++;
	return NULL;
}

/* ---- what the transport says ------------------------------------------------------ */

static bool npulink_agree_recv(struct npulink_put *put, u32 slot, u32 len)
{
	struct npulink_operand at = { .buf = put->buf, .off = slot * NPULINK_WIRE_SLOT };
	struct npulink_place *place = to_place(put);
	struct npulink_agree *agree = place->agree;
	const char *wrong;
	unsigned long flags;

	spin_lock_irqsave(&agree->lock, flags);
	/* It may come before npulink_put_up() has. */
	if (place->state == NPULINK_PLACE_CALLING)
		place->state = NPULINK_PLACE_UP;
	if (place->state == NPULINK_PLACE_UP && !agree->ended) {
		wrong = npulink_agree_told(place, npulink_operand_va(&at), len);
		if (wrong) {
			dev_warn_ratelimited(&agree->rank->dev->dev,
					     "the machine of rank %u at %pI6c broke the protocol: %s\n",
					     place->first, place->at.addrs[0].ip, wrong);
			npulink_agree_lose(place);
		}
		npulink_agree_kick(agree);
	}
	spin_unlock_irqrestore(&agree->lock, flags);
	return false;
}

static void npulink_agree_up(struct npulink_put *put, const struct npulink_wire_place *at)
{
	struct npulink_place *place = to_place(put);
	unsigned long flags;

	spin_lock_irqsave(&place->agree->lock, flags);
	if (place->state == NPULINK_PLACE_CALLING)
		place->state = NPULINK_PLACE_UP;
	/* There is nothing to repeat, but who was called answers. */
	put->transport->resend(put, 0);
	npulink_agree_kick(place->agree);
	spin_unlock_irqrestore(&place->agree->lock, flags);
}

static void npulink_agree_room(struct npulink_put *put)
{
	struct npulink_place *place = to_place(put);
	unsigned long flags;

	spin_lock_irqsave(&place->agree->lock, flags);
	place->full = false;
	npulink_agree_pump(place);
	spin_unlock_irqrestore(&place->agree->lock, flags);
}

static void npulink_agree_lost(struct npulink_put *put, int status)
{
	struct npulink_place *place = to_place(put);
	struct npulink_agree *agree = place->agree;
	unsigned long flags;

	spin_lock_irqsave(&agree->lock, flags);
	/* It says that it has agreed with others, and we were not there; anybody may say that. */
	if (status == -ECONNABORTED && place->state == NPULINK_PLACE_CALLING)
		place->without = true;
	npulink_agree_gone(place);
	npulink_agree_kick(agree);
	spin_unlock_irqrestore(&agree->lock, flags);
}

/* It is begun anew, and not gone on with over another connection: nothing is ever repeated. */
static void npulink_agree_where(struct npulink_put *put, struct npulink_wire_place *at)
{
	memset(at, 0, sizeof(*at));
}

static bool npulink_agree_broken(struct npulink_put *put, int status)
{
	return false;
}

static void npulink_agree_halted(struct npulink_put *put)
{
}

static bool npulink_agree_needed(struct npulink_put *put)
{
	return true;
}

/* No memory is granted, and nothing written. */
static void npulink_agree_arrived(struct npulink_put *put, u32 imm)
{
	npulink_agree_lost(put, -EPROTO);
}

static void npulink_agree_revoked(struct npulink_put *put, u32 grant)
{
}

static void npulink_agree_written(struct npulink_put *put, void *cookie, u32 len)
{
}

const struct npulink_put_events npulink_agree_events = {
	.needed = npulink_agree_needed,
	.where = npulink_agree_where,
	.up = npulink_agree_up,
	.broken = npulink_agree_broken,
	.halted = npulink_agree_halted,
	.recv = npulink_agree_recv,
	.arrived = npulink_agree_arrived,
	.revoked = npulink_agree_revoked,
	.written = npulink_agree_written,
	.room = npulink_agree_room,
	.lost = npulink_agree_lost,
	.down = npulink_agree_lost,
};
