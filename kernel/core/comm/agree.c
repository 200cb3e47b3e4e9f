// SPDX-License-Identifier: GPL-2.0
/*
 * agree.c - the machines of a failed communicator agree on who goes on, see agree.h, and
 * npulink/wire.h for what they say.
 *
 * Each tries to connect to all others, until it knows of each whether it can, and tells those it
 * can reach whom it cannot. Of those it reaches it picks the most that all reach each other
 * (agree_pick.c), itself among them: who is cut off from many is left out, and not these, and so
 * is who only says so. The first one picked decides: it offers them to go on together. Each
 * accepts what is no fewer than it has picked itself, and nothing else until that was taken back.
 * Nobody offers, nor accepts, half of the machines or fewer, unless a user allows it; half with
 * the first machine is enough. So of several offers at most one comes to hold.
 *
 * An offer holds when all of them have accepted it; the first to know that is who made it, and
 * it tells them (COMMIT). Whoever hears of it tells all the others, before it hangs up: so none
 * is left behind by one that dies while it tells. Only who has heard it from all of them that it
 * reaches tells the rest that they are left out (WITHOUT); one alone is not believed that others
 * go on, if there are enough without him.
 *
 * Who has accepted an offer and loses the one that made it does not know whether it holds. It
 * waits until the others who were to go on have lost that one as well: if one of them has
 * heard that it holds, it says so. Otherwise the next one decides.
 *
 * Whoever keeps others waiting for too long is lost. So all of it ends, whatever others do.
 */
#include <crypto/algapi.h>
#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include "comm/agree.h"
#include "comm/agree_pick.h"
#include "comm/comm.h"
#include "comm/cause.h"
#include "file/account.h"
#include "file/buf.h"
#include "file/file.h"
#include "file/port.h"

/* Of bound_ms: how long it may take until it is known who can be reached; .. */
#define NPULINK_AGREE_SETTLE	2
/* .. how long others may take to say what is needed of them; .. */
#define NPULINK_AGREE_SAY	2
/* .. and to accept, or to commit, which they do not until then; .. */
#define NPULINK_AGREE_ACCEPT	3
/* .. and how long they wait for the one that decides, which may have to wait for all that. */
#define NPULINK_AGREE_DECIDE	8
/* For so long a caller may be told what came of the last call. */
#define NPULINK_AGREE_CALLED	HZ

/* The first place after @i but our own, or agree->nplaces. */
static u32 npulink_agree_next(const struct npulink_agree *agree, u32 i)
{
	return i + 1 == agree->self ? i + 2 : i + 1;
}

#define for_each_other(i, agree) \
	for (i = npulink_agree_next(agree, ~0U); i < (agree)->nplaces; \
	     i = npulink_agree_next(agree, i))

static bool npulink_agree_late(const struct npulink_agree *agree, unsigned int bounds)
{
	return time_after(jiffies, agree->since + msecs_to_jiffies(agree->bound_ms) * bounds);
}

/* Something that others may wait for, or that we wait for, begins. */
static void npulink_agree_phase(struct npulink_agree *agree)
{
	agree->since = jiffies;
}

/* They wait for others: nobody who waits for what workers free is to wait for that. */
static struct workqueue_struct *npulink_agree_wq;

int npulink_agree_init(void)
{
	npulink_agree_wq = alloc_workqueue("npulink_agree", WQ_HIGHPRI | WQ_UNBOUND, 0);
	return npulink_agree_wq ? 0 : -ENOMEM;
}

void npulink_agree_exit(void)
{
	destroy_workqueue(npulink_agree_wq);
}

/* Wait until those that have come to their end have given everything back. */
void npulink_agree_flush(void)
{
	flush_workqueue(npulink_agree_wq);
}

/* Have the worker look, unless it will not any more. */
void npulink_agree_kick(struct npulink_agree *agree)
{
	lockdep_assert_held(&agree->lock);
	if (agree->state == NPULINK_AGREE_RUNNING)
		mod_delayed_work(npulink_agree_wq, &agree->work, 0);
}

/* The first result stays. */
void npulink_agree_end(struct npulink_agree *agree, int result)
{
	lockdep_assert_held(&agree->lock);
	if (agree->ended)
		return;
	agree->ended = true;
	agree->result = result;
}

/* ---- who can be reached ----------------------------------------------------------- */

/* Without that machine from now on. */
void npulink_agree_gone(struct npulink_place *place)
{
	struct npulink_agree *agree = place->agree;

	lockdep_assert_held(&agree->lock);
	if (place->state == NPULINK_PLACE_LOST)
		return;
	place->state = NPULINK_PLACE_LOST;
	npulink_add_place(agree->places[agree->self].dead, place - agree->places);
	agree->changed = true;
	agree->views++;
	npulink_agree_phase(agree);
}

/* The same, and it shall notice. */
void npulink_agree_lose(struct npulink_place *place)
{
	npulink_agree_gone(place);
	if (place->opened)
		place->put.transport->shut(&place->put, NULL, NULL, 0);
}

static bool npulink_agree_settle(struct npulink_agree *agree)
{
	bool late = time_after(jiffies, agree->began + msecs_to_jiffies(agree->bound_ms) *
			       NPULINK_AGREE_SETTLE);
	bool settled = true;
	u32 i;

	for_each_other(i, agree) {
		if (agree->places[i].state != NPULINK_PLACE_CALLING)
			continue;
		if (late)
			npulink_agree_lose(&agree->places[i]);
		else
			settled = false;
	}
	return settled;
}

static void npulink_agree_tell(struct npulink_agree *agree)
{
	u32 i;

	for_each_other(i, agree)
		agree->places[i].want |= NPULINK_WANT(NPULINK_WIRE_ALIVE);
	agree->changed = false;
	npulink_agree_phase(agree);
}

static bool npulink_agree_reaches(const struct npulink_agree *agree, u32 i)
{
	return i == agree->self || agree->places[i].state == NPULINK_PLACE_UP;
}

static bool npulink_agree_lives(const struct npulink_place *place)
{
	return memchr_inv(place->live, 0, sizeof(place->live));
}

static bool npulink_agree_lonely(const struct npulink_agree *agree)
{
	u32 i;

	for_each_other(i, agree)
		if (agree->places[i].state != NPULINK_PLACE_LOST)
			return false;
	return true;
}

/* ---- how many are enough ------------------------------------------------------------ */

/*
 * More than half of the machines, or half with the first: no others can be as many. Who is known
 * to have nobody left is none of them.
 */
static bool npulink_agree_quorum(const struct npulink_agree *agree, const u8 *places)
{
	u32 all = 0, in = 0, first = agree->nplaces, i;

	for (i = 0; i < agree->nplaces; i++) {
		if (i == agree->empty)
			continue;
		first = min(first, i);
		all++;
		in += npulink_has_place(places, i);
	}
	return 2 * in > all || (2 * in == all && npulink_has_place(places, first));
}

static bool npulink_agree_enough(const struct npulink_agree *agree, const u8 *places)
{
	return agree->minority || npulink_agree_quorum(agree, places);
}

/* Do so many say that others go on without us that it may be so? */
static bool npulink_agree_left_out(const struct npulink_agree *agree)
{
	u8 rest[NPULINK_PLACE_BYTES] = {};
	u32 say = 0, silent = 0, i;

	npulink_add_place(rest, agree->self);
	for_each_other(i, agree) {
		if (agree->places[i].without) {
			say++;
		} else if (npulink_agree_reaches(agree, i)) {
			npulink_add_place(rest, i);
			silent++;
		}
	}
	return say && (agree->minority ? say > silent : !npulink_agree_quorum(agree, rest));
}

/* ---- who is picked ------------------------------------------------------------------- */

static bool npulink_agree_candidate(const struct npulink_agree *agree, u32 i)
{
	const struct npulink_place *place = &agree->places[i];

	return npulink_agree_reaches(agree, i) && !place->without && place->said &&
	       npulink_agree_lives(place);
}

/* Whom machine @i cannot reach, as npulink_pick() wants it. Returns how many it can. */
static u32 npulink_agree_view(const struct npulink_agree *agree, u32 i, unsigned long *row)
{
	const u8 *dead = agree->places[i].dead;
	u32 reaches = agree->nplaces, k;

	for (k = 0; k < DIV_ROUND_UP(agree->nplaces, 8); k++) {
		row[k / sizeof(*row)] |= (unsigned long)dead[k] << 8 * (k % sizeof(*row));
		reaches -= hweight8(dead[k]);
	}
	return reaches;
}

/* Pick, with room for the views of all, and one set more. Takes long: not under the lock. */
static void npulink_agree_pick(struct npulink_agree *agree, unsigned long *cut, u32 *cuts)
{
	u32 n = agree->nplaces, words = npulink_pick_words(n), widest = 0, views, left, i;
	unsigned long *set = cut + (size_t)n * words;

	spin_lock_irq(&agree->lock);
	views = agree->views;
	spin_unlock_irq(&agree->lock);
	for (i = 0; i < n; i++) {
		spin_lock_irq(&agree->lock);
		if (npulink_agree_candidate(agree, i)) {
			npulink_pick_add(set, i);
			widest = max(widest, npulink_agree_view(agree, i,
								cut + (size_t)i * words));
		}
		spin_unlock_irq(&agree->lock);
		cond_resched();
	}
	left = npulink_pick(cut, cuts, n, set);
	spin_lock_irq(&agree->lock);
	/* If there is news already, the worker comes again. */
	if (views == agree->views) {
		agree->picked_views = views;
		agree->npicked = left;
		agree->widest = widest;
		memset(agree->picked, 0, sizeof(agree->picked));
		for (i = 0; i < n; i++)
			if (npulink_picked(set, i))
				npulink_add_place(agree->picked, i);
	}
	spin_unlock_irq(&agree->lock);
}

static void npulink_agree_choose(struct npulink_agree *agree)
{
	u32 n = agree->nplaces;
	unsigned long *cut;
	u32 *cuts;

	cut = kvcalloc(n + 1, npulink_pick_words(n) * sizeof(*cut), GFP_KERNEL_ACCOUNT);
	cuts = kvmalloc_array(n, sizeof(*cuts), GFP_KERNEL_ACCOUNT);
	if (cut && cuts) {
		npulink_agree_pick(agree, cut, cuts);
	} else {
		spin_lock_irq(&agree->lock);
		npulink_agree_end(agree, -ENOMEM);
		spin_unlock_irq(&agree->lock);
	}
	kvfree(cut);
	kvfree(cuts);
}

/* ---- what is accepted -------------------------------------------------------------- */

static bool npulink_agree_last_is(const struct npulink_agree *agree, u32 decider, u32 number)
{
	return agree->accepted.decider == decider && agree->accepted.number == number;
}

static void npulink_agree_accept(struct npulink_agree *agree, struct npulink_offer_of *offer)
{
	u8 secret[16];
	u32 i;

	/* What others have said to hold is another one. */
	if (!npulink_agree_last_is(agree, offer->decider, offer->number))
		for_each_other(i, agree)
			agree->places[i].committed = false;
	offer->taken = true;
	agree->accepted = *offer;
	npulink_heir_secret(agree, offer, secret);
	npulink_heir_tags(agree, secret, agree->heir_secret, agree->heir_tag);
	npulink_tag_set(&agree->heir_name, agree->comm, agree->heir_tag);
	memzero_explicit(secret, sizeof(secret));
}

/* What we have accepted holds: all who go on are to hear of it. */
static void npulink_agree_holds(struct npulink_agree *agree)
{
	u32 i;

	agree->committed = true;
	for_each_other(i, agree)
		if (npulink_has_place(agree->accepted.places, i))
			agree->places[i].want |= NPULINK_WANT(NPULINK_WIRE_COMMIT);
	npulink_agree_phase(agree);
}

/*
 * Place @from says that an offer holds. It does if we have accepted it, for it needs us; false:
 * we have not.
 */
bool npulink_agree_commit(struct npulink_agree *agree, struct npulink_place *from, u32 decider,
			  u32 number)
{
	struct npulink_offer_of *offer;

	lockdep_assert_held(&agree->lock);
	/* Who has made it knows it first. */
	if (decider >= agree->nplaces || (decider == agree->self && !agree->committed))
		return false;
	offer = agree->committed ? &agree->accepted : &agree->places[decider].offer;
	if (!number || offer->decider != decider || offer->number != number || !offer->taken ||
	    !npulink_has_place(offer->places, from - agree->places))
		return false;
	/* Another one is believed when who has made it is lost, and could not say so itself. */
	if (!agree->committed && from != &agree->places[decider] &&
	    npulink_agree_reaches(agree, decider)) {
		from->committed = npulink_agree_last_is(agree, decider, number);
		return from->committed;
	}
	if (!agree->committed) {
		/* It may not be the last one. */
		npulink_agree_accept(agree, offer);
		npulink_agree_holds(agree);
	}
	from->committed = true;
	return true;
}

/* Have we lost who made the offer, but not before others had heard that it holds? */
static bool npulink_agree_heard_of(const struct npulink_agree *agree)
{
	const struct npulink_offer_of *last = &agree->accepted;
	u32 i;

	if (!last->number || npulink_agree_reaches(agree, last->decider))
		return false;
	for_each_other(i, agree)
		if (agree->places[i].committed)
			return true;
	return false;
}

/* It is over when those of them that we reach have heard of it: nobody can undo it then. */
static void npulink_agree_confirm(struct npulink_agree *agree)
{
	bool late = npulink_agree_late(agree, NPULINK_AGREE_ACCEPT);
	bool all = true;
	u32 i;

	for_each_other(i, agree) {
		struct npulink_place *place = &agree->places[i];

		if (!npulink_has_place(agree->accepted.places, i) || place->committed ||
		    !npulink_agree_reaches(agree, i))
			continue;
		if (late)
			npulink_agree_lose(place);
		else
			all = false;
	}
	if (all)
		npulink_agree_end(agree, 0);
}

/* Does machine @i yet have to say that it has lost who made the offer that we have accepted? */
static bool npulink_agree_owes(const struct npulink_agree *agree, u32 i)
{
	const struct npulink_offer_of *last = &agree->accepted;

	return last->number && !npulink_agree_reaches(agree, last->decider) &&
	       npulink_has_place(last->places, i) && npulink_agree_reaches(agree, i) &&
	       !(agree->places[i].said && npulink_has_place(agree->places[i].dead, last->decider));
}

/* Is it what we have picked, or as many, that we all reach? */
static bool npulink_agree_suits(const struct npulink_agree *agree,
				const struct npulink_offer_of *offer)
{
	u32 n = 1, i;

	if (!npulink_has_place(offer->places, agree->self) ||
	    !npulink_agree_enough(agree, offer->places))
		return false;
	/* Whom we cannot reach, it will have heard by now, or will hear of those we do not know. */
	for_each_other(i, agree) {
		if (!npulink_has_place(offer->places, i))
			continue;
		if (!npulink_agree_candidate(agree, i))
			return false;
		n++;
	}
	return n >= agree->npicked;
}

/* We wait for what @decider wants. */
static void npulink_agree_follow(struct npulink_agree *agree, u32 decider)
{
	struct npulink_place *place = &agree->places[decider];
	struct npulink_offer_of *offer = &place->offer;

	if (npulink_agree_late(agree, NPULINK_AGREE_DECIDE)) {
		npulink_agree_lose(place);
		return;
	}
	if (!offer->number || offer->taken || !npulink_agree_suits(agree, offer))
		return;
	npulink_agree_accept(agree, offer);
	place->want |= NPULINK_WANT(NPULINK_WIRE_ACCEPT);
	npulink_agree_phase(agree);
}

/* ---- who decides ------------------------------------------------------------------- */

/* Whoever does not say what is needed of it, in time, is lost. Returns whether all have. */
static bool npulink_agree_heard(struct npulink_agree *agree)
{
	bool late = npulink_agree_late(agree, NPULINK_AGREE_SAY);
	bool heard = true;
	u32 i;

	for_each_other(i, agree) {
		struct npulink_place *place = &agree->places[i];

		if (place->state != NPULINK_PLACE_UP ||
		    (place->said && !npulink_agree_owes(agree, i)))
			continue;
		if (late)
			npulink_agree_lose(place);
		heard = false;
	}
	return heard;
}

/* Offer @places, or with none, take back what we have offered. */
static void npulink_agree_offer(struct npulink_agree *agree, const u8 *places)
{
	struct npulink_offer_of *ours = &agree->places[agree->self].offer;
	u32 i;

	for_each_other(i, agree)
		if (npulink_has_place(places, i) || npulink_has_place(ours->places, i))
			agree->places[i].want |= NPULINK_WANT(NPULINK_WIRE_OFFER);
	ours->decider = agree->self;
	ours->number++;
	memcpy(ours->places, places, sizeof(ours->places));
	get_random_bytes(ours->nonce, sizeof(ours->nonce));
	npulink_agree_phase(agree);
}

static void npulink_agree_take_back(struct npulink_agree *agree)
{
	static const u8 none[NPULINK_PLACE_BYTES];
	const struct npulink_offer_of *ours = &agree->places[agree->self].offer;

	if (!memchr_inv(ours->places, 0, sizeof(ours->places)))
		return;
	npulink_agree_offer(agree, none);
	if (agree->accepted.decider == agree->self)
		agree->accepted.number = 0;
}

/* Have all accepted it? Who has not, in time, is lost. */
static bool npulink_agree_accepted(struct npulink_agree *agree)
{
	const struct npulink_offer_of *ours = &agree->places[agree->self].offer;
	bool late = npulink_agree_late(agree, NPULINK_AGREE_ACCEPT);
	bool all = true;
	u32 i;

	for_each_other(i, agree) {
		if (!npulink_has_place(ours->places, i) ||
		    agree->places[i].agreed == ours->number)
			continue;
		if (late)
			npulink_agree_lose(&agree->places[i]);
		all = false;
	}
	return all;
}

static void npulink_agree_decide(struct npulink_agree *agree)
{
	struct npulink_offer_of *ours = &agree->places[agree->self].offer;

	if (memcmp(ours->places, agree->picked, sizeof(agree->picked))) {
		npulink_agree_offer(agree, agree->picked);
		npulink_agree_accept(agree, ours);
	}
	if (npulink_agree_accepted(agree))
		npulink_agree_holds(agree);
}

/*
 * Too few are picked: we cannot go on, but we do not end before that is certain, or it is known
 * that others have gone on.
 */
static void npulink_agree_too_few(struct npulink_agree *agree)
{
	/* Might others go on that one reaches whom we do? */
	bool wait = 2 * (agree->widest - 1) >= agree->nplaces - (agree->empty < agree->nplaces);
	bool lost = false;
	u32 i;

	npulink_agree_take_back(agree);
	if (wait && !npulink_agree_lonely(agree) &&
	    !npulink_agree_late(agree, NPULINK_AGREE_DECIDE))
		return;
	for (i = 0; i < agree->nplaces; i++)
		lost |= agree->places[i].without;
	npulink_agree_end(agree, lost ? -ESHUTDOWN : -ENOLINK);
}

/* The first one picked decides. */
static void npulink_agree_go_on(struct npulink_agree *agree)
{
	const struct npulink_offer_of *last = &agree->accepted;
	u32 decider = 0;

	while (!npulink_has_place(agree->picked, decider))
		decider++;
	if (decider != agree->self)
		npulink_agree_take_back(agree);
	/* That of another one may yet hold, until that one has taken it back. */
	if (last->number && last->decider != decider &&
	    npulink_agree_reaches(agree, last->decider)) {
		if (npulink_agree_late(agree, NPULINK_AGREE_DECIDE))
			npulink_agree_lose(&agree->places[last->decider]);
	} else if (decider == agree->self) {
		npulink_agree_decide(agree);
	} else {
		npulink_agree_follow(agree, decider);
	}
}

/* ---- the worker -------------------------------------------------------------------- */

/* All that comes before it is known who is picked. False: not yet. */
static bool npulink_agree_look(struct npulink_agree *agree)
{
	lockdep_assert_held(&agree->lock);
	/* A call alone may come from anybody: nothing is said before a member has. */
	if (!agree->asked) {
		if (npulink_agree_late(agree, NPULINK_AGREE_DECIDE) || npulink_agree_lonely(agree))
			npulink_agree_end(agree, -EAGAIN);
		return false;
	}
	if (!agree->committed && npulink_agree_heard_of(agree))
		npulink_agree_holds(agree);
	if (agree->committed)
		return false;
	if (!agree->counted || !npulink_agree_settle(agree))
		return false;
	if (agree->changed)
		npulink_agree_tell(agree);
	if (npulink_agree_left_out(agree)) {
		npulink_agree_end(agree, -ESHUTDOWN);
		return false;
	}
	return npulink_agree_heard(agree);
}

static void npulink_agree_step(struct npulink_agree *agree)
{
	u32 i;

	lockdep_assert_held(&agree->lock);
	if (npulink_agree_look(agree)) {
		if (agree->picked_views == agree->views) {
			if (npulink_agree_enough(agree, agree->picked))
				npulink_agree_go_on(agree);
			else
				npulink_agree_too_few(agree);
		}
		/* Whom that has cost us, or what has been heard meanwhile. */
		if (agree->changed || agree->picked_views != agree->views)
			npulink_agree_kick(agree);
	}
	if (agree->committed)
		npulink_agree_confirm(agree);
	for_each_other(i, agree)
		npulink_agree_pump(&agree->places[i]);
}

static unsigned long npulink_agree_tick(const struct npulink_agree *agree)
{
	return max(1UL, msecs_to_jiffies(min_t(u32, agree->bound_ms / 12, NPULINK_TICK_MS)));
}

/* Who does not answer any more shall be noticed. */
static void npulink_agree_probe(struct npulink_agree *agree)
{
	u32 i;

	if (time_before(jiffies, agree->probed + npulink_agree_tick(agree)))
		return;
	agree->probed = jiffies;
	for_each_other(i, agree)
		if (agree->places[i].state == NPULINK_PLACE_UP)
			agree->places[i].put.transport->probe(&agree->places[i].put);
}

/* Who was alone on its machine, and has died: there is nobody there that might go on. */
static void npulink_agree_find_empty(struct npulink_agree *agree)
{
	const struct npulink_comm *comm = agree->comm;
	u32 at;

	agree->empty = agree->nplaces;
	/* Pairs with npulink_comm_record(). */
	if (!smp_load_acquire(&comm->failed) || comm->cause.cause != NPULINK_CAUSE_DEATH)
		return;
	at = agree->place_of[comm->cause.rank];
	if (at != agree->self && agree->places[at].nranks == 1)
		agree->empty = at;
}

/* Which of our own ranks live; from then on, for this agreement, they do. */
static void npulink_agree_take_stock(struct npulink_agree *agree)
{
	struct npulink_place *self = &agree->places[agree->self];
	u32 i, k = 0;

	/* Nobody looks at it before it is counted. */
	mutex_lock(&npulink_comms_lock);
	for (i = 0; i < agree->comm->nranks; i++) {
		if (agree->place_of[i] != agree->self)
			continue;
		if (npulink_comm_alive(agree->comm, i))
			npulink_add_place(self->live, k);
		k++;
	}
	mutex_unlock(&npulink_comms_lock);
	spin_lock_irq(&agree->lock);
	self->said = true;
	agree->counted = true;
	agree->changed = true;
	agree->views++;
	npulink_agree_find_empty(agree);
	if (!npulink_agree_lives(self))
		npulink_agree_end(agree, -EOWNERDEAD);
	spin_unlock_irq(&agree->lock);
}

/* ---- connections ------------------------------------------------------------------- */

static int npulink_agree_open_one(struct npulink_place *place)
{
	struct npulink_agree *agree = place->agree;
	struct npulink_put *put = &place->put;
	int rc;

	*put = (struct npulink_put) {
		.transport = agree->transport, .events = &npulink_agree_events,
		.net = agree->net,
		.secret = agree->comm->agree_secret, .tag = agree->comm->agree_tag,
		.rank = agree->places[agree->self].first, .peer = place->first, .agree = true,
		.timeout_ms = agree->rank->peer_timeout_ms, .addr = place->at.addrs[0],
		.naddrs = place->at.naddrs,
	};
	memcpy(put->addrs, place->at.addrs, sizeof(put->addrs));
	put->buf = npulink_buf_alloc_pages(agree->rank->file, NPULINK_MESSAGE_BYTES + PAGE_SIZE,
					   false);
	if (IS_ERR(put->buf)) {
		rc = PTR_ERR(put->buf);
		put->buf = NULL;
		return rc;
	}
	spin_lock_irq(&agree->lock);
	place->state = NPULINK_PLACE_CALLING;
	spin_unlock_irq(&agree->lock);
	rc = npulink_quota_take_session(agree->rank->file);
	if (!rc) {
		rc = put->transport->open(put);
		if (rc)
			npulink_quota_give_session(agree->rank->file);
	}
	spin_lock_irq(&agree->lock);
	place->opened = !rc;
	agree->bound_ms = max(agree->bound_ms, put->timeout_ms);
	spin_unlock_irq(&agree->lock);
	return rc;
}

static void npulink_agree_open(struct npulink_agree *agree)
{
	const struct npulink_transport *transport = NULL;
	struct npulink_port *port;
	int rc = 0;
	u32 i;

	mutex_lock(&npulink_ports_lock);
	port = npulink_port_at(agree->rank->dev, 0, agree->net);
	if (port && try_module_get(port->transport->owner))
		transport = port->transport;
	mutex_unlock(&npulink_ports_lock);
	agree->transport = transport;
	/* Without a port there is no telling others from the dead. */
	if (!transport)
		rc = -EHOSTUNREACH;
	for_each_other(i, agree) {
		if (!rc)
			rc = npulink_agree_open_one(&agree->places[i]);
	}
	agree->opened = true;
	if (!rc)
		return;
	spin_lock_irq(&agree->lock);
	npulink_agree_end(agree, rc);
	spin_unlock_irq(&agree->lock);
}

static u8 npulink_agree_verdict(const struct npulink_place *place)
{
	const struct npulink_agree *agree = place->agree;

	return npulink_has_place(agree->accepted.places, place - agree->places) ?
	       NPULINK_WIRE_COMMIT : NPULINK_WIRE_WITHOUT;
}

/* Say what we have agreed on once more, as the last message: it is waited for. */
static void npulink_agree_leave(struct npulink_place *place)
{
	struct npulink_agree *agree = place->agree;
	struct npulink_wire_msg msg;
	bool up;

	if (!place->opened)
		return;
	spin_lock_irq(&agree->lock);
	up = place->state == NPULINK_PLACE_UP && !agree->result;
	if (up)
		npulink_agree_last(place, &msg, npulink_agree_verdict(place));
	place->full = true;
	spin_unlock_irq(&agree->lock);
	place->put.transport->leave(&place->put, up ? &msg : NULL);
}

/* Say what we have agreed on to all, then hang up, as soon as it has arrived. */
static void npulink_agree_close(struct npulink_agree *agree)
{
	u32 i;

	spin_lock_irq(&agree->lock);
	for_each_other(i, agree) {
		struct npulink_place *place = &agree->places[i];

		if (agree->result)
			place->want = 0;
		else if (npulink_agree_verdict(place) == NPULINK_WIRE_WITHOUT)
			place->want |= NPULINK_WANT(NPULINK_WIRE_WITHOUT);
		npulink_agree_pump(place);
	}
	spin_unlock_irq(&agree->lock);
	/* All at a time, as those who do not answer are waited for. */
	for_each_other(i, agree)
		npulink_agree_leave(&agree->places[i]);
	for_each_other(i, agree) {
		struct npulink_place *place = &agree->places[i];

		if (place->opened) {
			place->put.transport->close(&place->put);
			npulink_quota_give_session(agree->rank->file);
		}
		place->opened = false;
		if (place->put.buf) {
			npulink_buf_drop_base(place->put.buf);
			npulink_object_put(&place->put.buf->obj);
			place->put.buf = NULL;
		}
	}
	if (agree->transport)
		module_put(agree->transport->owner);
}

/* As it was before the first call, so that it can begin again. */
static void npulink_agree_reset(struct npulink_agree *agree)
{
	u32 i;

	for (i = 0; i < agree->nplaces; i++) {
		struct npulink_place *place = &agree->places[i];

		place->state = NPULINK_PLACE_NEW;
		place->full = false;
		place->without = false;
		place->committed = false;
		place->offered = false;
		place->said = false;
		place->want = 0;
		place->tx_seq = 0;
		place->rx_seq = 0;
		place->agreed = 0;
		memset(place->dead, 0, sizeof(place->dead));
		memset(place->live, 0, sizeof(place->live));
		memset(&place->offer, 0, sizeof(place->offer));
	}
	memset(&agree->accepted, 0, sizeof(agree->accepted));
}

/* ---- from its begin to its end ------------------------------------------------------ */

/* As @rank, a member of this machine: a rank of it asks, or another machine has called. */
void npulink_agree_start(struct npulink_agree *agree, struct npulink_rank *rank, bool asked,
			 bool minority)
{
	spin_lock_irq(&agree->lock);
	if (asked)
		agree->asked = true;
	if (agree->state == NPULINK_AGREE_RUNNING) {
		/* The others are to know. */
		agree->changed |= minority && !agree->minority;
		agree->minority |= minority;
		npulink_agree_kick(agree);
	} else if (agree->state == NPULINK_AGREE_IDLE) {
		agree->state = NPULINK_AGREE_RUNNING;
		agree->asked = asked;
		agree->minority = minority;
		agree->committed = false;
		agree->ended = false;
		agree->changed = false;
		agree->counted = false;
		agree->opened = false;
		agree->known = false;
		agree->result = 0;
		agree->bound_ms = NPULINK_PEER_TIMEOUT_MIN;
		agree->began = jiffies;
		agree->probed = jiffies;
		agree->views = 1;
		agree->picked_views = 0;
		npulink_agree_phase(agree);
		agree->rank = npulink_rank_get(rank);
		kref_get(&agree->comm->kref);
		npulink_agree_kick(agree);
	}
	spin_unlock_irq(&agree->lock);
}

/* It is known what comes of it. Nothing is said to us any more. */
static void npulink_agree_finish(struct npulink_agree *agree)
{
	struct npulink_comm *comm = agree->comm;
	struct npulink_rank *rank = agree->rank;
	bool again;
	int rc;

	cancel_delayed_work(&agree->work);
	rc = agree->result;
	/* Before anybody is told, who would look for it here. */
	if (!rc)
		rc = npulink_agree_heir(agree);
	spin_lock_irq(&agree->lock);
	agree->result = rc;
	agree->known = true;
	wake_up_all(&agree->wq);
	spin_unlock_irq(&agree->lock);
	/* What was agreed on holds; what did not come to that may be tried again. */
	again = rc && rc != -ESHUTDOWN;
	npulink_agree_close(agree);
	if (again)
		npulink_agree_reset(agree);
	spin_lock_irq(&agree->lock);
	agree->rank = NULL;
	agree->state = again ? NPULINK_AGREE_IDLE : NPULINK_AGREE_OVER;
	wake_up_all(&agree->wq);
	spin_unlock_irq(&agree->lock);
	npulink_rank_put(rank);
	npulink_comm_put(comm);
}

/* What a worker allocates is at the expense of @rank's process, which wants to go on, or may. */
struct npulink_agree_payer {
	struct mem_cgroup *memcg, *old;
};

static struct npulink_agree_payer npulink_agree_pay(const struct npulink_rank *rank)
{
	struct npulink_agree_payer payer;

	payer.memcg = get_mem_cgroup_from_mm(rank->file->mm);
	payer.old = set_active_memcg(payer.memcg);
	return payer;
}

static void npulink_agree_paid(const struct npulink_agree_payer *payer)
{
	set_active_memcg(payer->old);
	mem_cgroup_put(payer->memcg);
}

void npulink_agree_work(struct npulink_agree *agree)
{
	struct npulink_agree_payer payer = npulink_agree_pay(agree->rank);
	bool stock, choose, ended;

	if (!agree->opened)
		npulink_agree_open(agree);
	spin_lock_irq(&agree->lock);
	stock = agree->asked && !agree->counted;
	spin_unlock_irq(&agree->lock);
	if (stock)
		npulink_agree_take_stock(agree);
	spin_lock_irq(&agree->lock);
	choose = !agree->ended && npulink_agree_look(agree) &&
		 agree->picked_views != agree->views;
	spin_unlock_irq(&agree->lock);
	if (choose)
		npulink_agree_choose(agree);
	spin_lock_irq(&agree->lock);
	if (!agree->ended) {
		npulink_agree_step(agree);
		npulink_agree_probe(agree);
	}
	ended = agree->ended;
	if (ended)
		agree->state = NPULINK_AGREE_ENDING;
	else
		queue_delayed_work(npulink_agree_wq, &agree->work, npulink_agree_tick(agree));
	spin_unlock_irq(&agree->lock);
	if (ended)
		npulink_agree_finish(agree);
	npulink_agree_paid(&payer);
}

/* ---- what others want to know -------------------------------------------------------- */

/* Has it come to nothing, but not to its end? Another one begins after that. */
static bool npulink_agree_fails(struct npulink_agree *agree)
{
	bool fails;

	spin_lock_irq(&agree->lock);
	fails = agree->state == NPULINK_AGREE_ENDING && agree->result &&
		agree->result != -ESHUTDOWN;
	spin_unlock_irq(&agree->lock);
	return fails;
}

static bool npulink_agree_known(struct npulink_agree *agree, int *result)
{
	bool known;

	spin_lock_irq(&agree->lock);
	known = agree->known;
	*result = agree->result;
	spin_unlock_irq(&agree->lock);
	return known;
}

/* A rank wants to go on: wait until it is known with whom. 0: npulink_comm.child. */
int npulink_agree_ask(struct npulink_rank *rank, bool minority)
{
	struct npulink_agree *agree;
	struct npulink_rank *by;
	int rc, result;

	/* This rank may not have been told where others are. */
	by = READ_ONCE(rank->net) ? npulink_rank_get(rank) : npulink_comm_survivor(rank->comm);
	if (!by)
		return -EHOSTUNREACH;
	npulink_note_limit(rank->file);
	agree = npulink_agree_get(rank->comm, by);
	rc = PTR_ERR_OR_ZERO(agree);
	if (rc)
		goto out;
	do {
		rc = wait_event_interruptible(agree->wq, !npulink_agree_fails(agree));
		if (rc)
			break;
		npulink_agree_start(agree, by, true, minority);
		/* It goes on if we are interrupted; who asks again waits for the same. */
		rc = wait_event_interruptible(agree->wq, npulink_agree_known(agree, &result));
	} while (!rc && result == -EAGAIN);
	rc = rc ?: result;
out:
	npulink_rank_put(by);
	return rc;
}

/* All ranks of this machine have left: none of them will go on any more. */
void npulink_agree_left(struct npulink_comm *comm)
{
	struct npulink_agree *agree = READ_ONCE(comm->agree);
	struct npulink_comm *heir = agree ? xchg(&agree->heir, NULL) : NULL;

	if (heir)
		npulink_comm_put(heir);
}

/* Another machine has called: that may need an agreement, which takes time to make. */
struct npulink_agree_call {
	struct work_struct work;
	struct npulink_comm *comm;
	const struct net *net;		/* only compared */
};

static void npulink_agree_call_work(struct work_struct *work)
{
	struct npulink_agree_call *call = container_of(work, struct npulink_agree_call, work);
	struct npulink_rank *rank = npulink_comm_survivor(call->comm);
	struct npulink_agree *agree = ERR_PTR(-ENOENT);
	struct npulink_agree_payer payer;
	int rc;

	if (rank && READ_ONCE(rank->net) == call->net) {
		payer = npulink_agree_pay(rank);
		agree = npulink_agree_get(call->comm, rank);
		npulink_agree_paid(&payer);
	}
	if (!IS_ERR(agree))
		npulink_agree_start(agree, rank, false, false);
	if (rank)
		npulink_rank_put(rank);
	rc = PTR_ERR_OR_ZERO(agree);
	WRITE_ONCE(call->comm->agree_called_net, call->net);
	WRITE_ONCE(call->comm->agree_called_at, jiffies);
	/* Pairs with npulink_agree_called(). */
	smp_store_release(&call->comm->agree_call, rc == -ENOMEM ? 0 : rc);
	npulink_comm_put(call->comm);
	kfree(call);
}

/*
 * Who calls for an agreement is to come back when it has begun, or hears then that it will not:
 * the connection manager, and all who are called by it, are not kept waiting until that is known.
 */
static int npulink_agree_called(struct npulink_comm *comm, const struct net *net)
{
	struct npulink_agree_call *call;
	unsigned long end;
	bool good;
	int rc;

	/* Pairs with npulink_agree_call_work(). */
	rc = smp_load_acquire(&comm->agree_call);
	if (rc > 0)
		return 0;
	/* It is said once, soon, and to who is there; who calls later has it looked at again. */
	if (rc < 0) {
		end = READ_ONCE(comm->agree_called_at) + NPULINK_AGREE_CALLED;
		good = READ_ONCE(comm->agree_called_net) == net && time_before(jiffies, end);
		if (cmpxchg(&comm->agree_call, rc, 0) != rc)
			return 0;
		if (good)
			return rc;
	}
	call = kzalloc(sizeof(*call), GFP_KERNEL);
	if (!call)
		return 0;
	if (cmpxchg(&comm->agree_call, 0, 1)) {
		kfree(call);
		return 0;
	}
	kref_get(&comm->kref);
	call->comm = comm;
	call->net = net;
	INIT_WORK(&call->work, npulink_agree_call_work);
	queue_work(npulink_agree_wq, &call->work);
	return 0;
}

/* Somebody calls, and names the communicator by @tag: see npulink_put_expected(). May sleep. */
int npulink_agree_expects(struct npulink_comm *comm, const struct net *net, const u8 *tag,
			  u8 *secret, bool *known)
{
	/* Pairs with npulink_agree_get(). */
	struct npulink_agree *agree = smp_load_acquire(&comm->agree);
	bool heir = false;
	int result = -ENOENT;
	u8 state = NPULINK_AGREE_IDLE;

	if (agree) {
		spin_lock_irq(&agree->lock);
		state = agree->state;
		if (state == NPULINK_AGREE_OVER)
			result = agree->result;
		else
			heir = agree->accepted.number &&
			       !crypto_memneq(agree->heir_tag, tag, sizeof(agree->heir_tag));
		if (heir)
			memcpy(secret, agree->heir_secret, sizeof(agree->heir_secret));
		spin_unlock_irq(&agree->lock);
	}
	/* Of the communicator that there will be in a moment. */
	if (heir) {
		*known = true;
		return 0;
	}
	if (crypto_memneq(comm->agree_tag, tag, sizeof(comm->agree_tag)))
		return -ENOENT;
	memcpy(secret, comm->agree_secret, sizeof(comm->agree_secret));
	*known = true;
	/* We have gone on without the caller, or others have, without both. */
	if (state == NPULINK_AGREE_OVER)
		return result ? -ENOENT : -ECONNABORTED;
	if (state != NPULINK_AGREE_IDLE)
		return 0;
	return npulink_agree_called(comm, net);
}

/* Will rank @index, of this machine, yet take its place among those who go on? May sleep. */
bool npulink_agree_awaits(struct npulink_comm *comm, const struct net *net, u32 index)
{
	/* Pairs with npulink_agree_get(). */
	struct npulink_agree *agree = smp_load_acquire(&comm->agree);
	bool alive;

	if (!agree || !comm->map || agree->net != net ||
	    agree->place_of[index] != agree->self)
		return false;
	mutex_lock(&npulink_comms_lock);
	alive = npulink_comm_alive(comm, index);
	mutex_unlock(&npulink_comms_lock);
	return alive;
}
