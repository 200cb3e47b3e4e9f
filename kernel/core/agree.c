// SPDX-License-Identifier: GPL-2.0
/*
 * agree.c - the machines of a failed communicator agree on who goes on, see agree.h, and
 * npulink/wire.h for what they say.
 *
 * Each tries to connect to all others, until it knows of each whether it can, and tells those it
 * can reach whom it cannot. The first of those that a machine can reach decides for it.
 * Who decides picks machines, in their order, that can all reach each other, and offers them to
 * go on together. An offer holds when all of them have accepted it; the first to know that
 * is who made it, and it tells them (COMMIT). Whoever hears of it tells all the others, before it
 * hangs up: so none is left behind by one that dies while it tells.
 *
 * Who has accepted an offer and loses the one that made it does not know whether it holds. It
 * waits until the others who were to go on have lost that one as well: if one of them has
 * heard that it holds, it says so. Otherwise the next one decides.
 *
 * Whoever keeps others waiting for too long is lost. So all of it ends, whatever others do.
 */
#include <linux/memcontrol.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <crypto/algapi.h>
#include "agree.h"
#include "remote.h"

/* Of bound_ms: how long who decides waits for what others say, and for what they accept; .. */
#define NPULINK_AGREE_SAY	2
#define NPULINK_AGREE_ACCEPT	1
/* .. how long it may take until it is known who can be reached; .. */
#define NPULINK_AGREE_SETTLE	2
/* .. and how long others wait for the one that decides, which may have to wait for all that. */
#define NPULINK_AGREE_DECIDE	6
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

static u32 npulink_agree_decider(const struct npulink_agree *agree)
{
	u32 i = 0;

	while (!npulink_agree_reaches(agree, i))
		i++;
	return i;
}

/* ---- what is accepted -------------------------------------------------------------- */

static void npulink_agree_accept(struct npulink_agree *agree, struct npulink_offer_of *offer)
{
	u8 secret[16];

	offer->taken = true;
	agree->accepted = *offer;
	npulink_heir_secret(agree, offer, secret);
	npulink_heir_tags(agree, secret, agree->heir_secret, agree->heir_tag);
	npulink_tag_set(&agree->heir_name, agree->comm, agree->heir_tag);
	memzero_explicit(secret, sizeof(secret));
}

/*
 * Place @from says that an offer holds. It does if we have accepted it, for it needs us; false:
 * we have not.
 */
bool npulink_agree_commit(struct npulink_agree *agree, const struct npulink_place *from,
			  u32 decider, u32 number)
{
	struct npulink_offer_of *offer;

	lockdep_assert_held(&agree->lock);
	if (decider >= agree->nplaces)
		return false;
	offer = &agree->places[decider].offer;
	if (!number || offer->number != number || !offer->taken ||
	    !npulink_has_place(offer->places, from - agree->places))
		return false;
	/* It may not be the last one. */
	npulink_agree_accept(agree, offer);
	npulink_agree_end(agree, 0);
	return true;
}

/*
 * May an offer still hold that we have accepted, though we have lost who made it? As long as
 * one who was to go on with us has not lost that one, it may yet hear so.
 */
static bool npulink_agree_unclear(const struct npulink_agree *agree)
{
	const struct npulink_offer_of *last = &agree->accepted;
	u32 i;

	if (!last->number || npulink_agree_reaches(agree, last->decider))
		return false;
	for_each_other(i, agree)
		if (npulink_has_place(last->places, i) && npulink_agree_reaches(agree, i) &&
		    !(agree->places[i].said &&
		      npulink_has_place(agree->places[i].dead, last->decider)))
			return true;
	return false;
}

/* We wait for what @decider wants. */
static void npulink_agree_follow(struct npulink_agree *agree, u32 decider)
{
	struct npulink_place *place = &agree->places[decider];
	struct npulink_offer_of *offer = &place->offer;
	u32 i;

	if (npulink_agree_late(agree, NPULINK_AGREE_DECIDE)) {
		npulink_agree_lose(place);
		return;
	}
	if (!offer->number || offer->taken || npulink_agree_unclear(agree))
		return;
	/* Whom we cannot reach, it will have heard by now, or will hear of those we do not know. */
	for_each_other(i, agree)
		if (npulink_has_place(offer->places, i) &&
		    (!npulink_agree_reaches(agree, i) || !agree->places[i].said))
			return;
	npulink_agree_accept(agree, offer);
	place->want |= NPULINK_WANT(NPULINK_WIRE_ACCEPT);
	npulink_agree_phase(agree);
}

/* ---- who decides ------------------------------------------------------------------- */

static bool npulink_agree_lives(const struct npulink_place *place)
{
	return memchr_inv(place->live, 0, sizeof(place->live));
}

/* We, and of the others, in their order, who can reach all that have been picked, and back. */
static void npulink_agree_pick(struct npulink_agree *agree)
{
	u8 *picked = agree->picked;
	u32 i, k;

	memset(picked, 0, sizeof(agree->picked));
	npulink_add_place(picked, agree->self);
	for_each_other(i, agree) {
		const struct npulink_place *place = &agree->places[i];
		bool ok = npulink_agree_reaches(agree, i) && npulink_agree_lives(place);

		for (k = 0; ok && k < agree->nplaces; k++)
			ok = !npulink_has_place(picked, k) ||
			     (!npulink_has_place(place->dead, k) &&
			      !npulink_has_place(agree->places[k].dead, i));
		if (ok)
			npulink_add_place(picked, i);
	}
}

/* Whoever does not say what is needed of it, in time, is lost. Returns whether all have. */
static bool npulink_agree_heard(struct npulink_agree *agree)
{
	bool late = npulink_agree_late(agree, NPULINK_AGREE_SAY);
	const struct npulink_offer_of *last = &agree->accepted;
	bool lost = last->number && !npulink_agree_reaches(agree, last->decider);
	bool heard = true;
	u32 i;

	for_each_other(i, agree) {
		struct npulink_place *place = &agree->places[i];

		if (place->state != NPULINK_PLACE_UP)
			continue;
		if (place->said && !(lost && npulink_has_place(last->places, i) &&
				     !npulink_has_place(place->dead, last->decider)))
			continue;
		if (late)
			npulink_agree_lose(place);
		heard = false;
	}
	return heard;
}

static void npulink_agree_offer(struct npulink_agree *agree)
{
	struct npulink_offer_of *ours = &agree->places[agree->self].offer;
	u32 i;

	ours->decider = agree->self;
	ours->number++;
	memcpy(ours->places, agree->picked, sizeof(ours->places));
	get_random_bytes(ours->nonce, sizeof(ours->nonce));
	npulink_agree_accept(agree, ours);
	for_each_other(i, agree)
		if (npulink_has_place(agree->picked, i))
			agree->places[i].want |= NPULINK_WANT(NPULINK_WIRE_OFFER);
	npulink_agree_phase(agree);
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
	const struct npulink_offer_of *ours = &agree->places[agree->self].offer;

	if (!npulink_agree_heard(agree))
		return;
	npulink_agree_pick(agree);
	if (!ours->number || memcmp(ours->places, agree->picked, sizeof(agree->picked)))
		npulink_agree_offer(agree);
	if (npulink_agree_accepted(agree))
		npulink_agree_end(agree, 0);
}

/* ---- the worker -------------------------------------------------------------------- */

static bool npulink_agree_lonely(const struct npulink_agree *agree)
{
	u32 i;

	for_each_other(i, agree)
		if (agree->places[i].state != NPULINK_PLACE_LOST)
			return false;
	return true;
}

static void npulink_agree_step(struct npulink_agree *agree)
{
	u32 decider, i;

	lockdep_assert_held(&agree->lock);
	/* A call alone may come from anybody: nothing is said before a member has. */
	if (!agree->asked) {
		if (npulink_agree_late(agree, NPULINK_AGREE_DECIDE) || npulink_agree_lonely(agree))
			npulink_agree_end(agree, -EAGAIN);
		return;
	}
	if (!agree->counted || !npulink_agree_settle(agree))
		return;
	if (agree->changed)
		npulink_agree_tell(agree);
	decider = npulink_agree_decider(agree);
	if (decider == agree->self)
		npulink_agree_decide(agree);
	else
		npulink_agree_follow(agree, decider);
	/* Whom that has cost us. */
	if (agree->changed)
		npulink_agree_kick(agree);
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

		place->want &= NPULINK_WANT(NPULINK_WIRE_ALIVE);
		if (!agree->result)
			place->want |= NPULINK_WANT(npulink_agree_verdict(place));
		else
			place->want = 0;
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
void npulink_agree_start(struct npulink_agree *agree, struct npulink_rank *rank, bool asked)
{
	spin_lock_irq(&agree->lock);
	if (asked)
		agree->asked = true;
	if (agree->state == NPULINK_AGREE_RUNNING) {
		npulink_agree_kick(agree);
	} else if (agree->state == NPULINK_AGREE_IDLE) {
		agree->state = NPULINK_AGREE_RUNNING;
		agree->asked = asked;
		agree->ended = false;
		agree->changed = false;
		agree->counted = false;
		agree->opened = false;
		agree->known = false;
		agree->result = 0;
		agree->bound_ms = NPULINK_PEER_TIMEOUT_MIN;
		agree->began = jiffies;
		agree->probed = jiffies;
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
	bool stock, ended;

	if (!agree->opened)
		npulink_agree_open(agree);
	spin_lock_irq(&agree->lock);
	stock = agree->asked && !agree->counted;
	spin_unlock_irq(&agree->lock);
	if (stock)
		npulink_agree_take_stock(agree);
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

static bool npulink_agree_known(struct npulink_agree *agree, int *result)
{
	bool known;

	spin_lock_irq(&agree->lock);
	/* One that nobody had asked for ends before another one begins. */
	known = agree->known &&
		(agree->result != -EAGAIN || agree->state != NPULINK_AGREE_ENDING);
	*result = agree->result;
	spin_unlock_irq(&agree->lock);
	return known;
}

/* A rank wants to go on: wait until it is known with whom. 0: npulink_comm.child. */
int npulink_agree_ask(struct npulink_rank *rank)
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
		npulink_agree_start(agree, by, true);
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
		npulink_agree_start(agree, rank, false);
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
