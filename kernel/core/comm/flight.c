// SPDX-License-Identifier: GPL-2.0
/*
 * flight.c - flight recorders: made when a rank joins, filled by the sequencer
 * (flight_record.c), and kept for a while when the rank has gone, for those who want to know
 * what it was about when it died. genl_flight.c reads them.
 *
 * The memory of a recorder is that of its process's cgroup, and is bounded: two rings
 * and a record for each peer. What is kept is bounded for the node.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "file/file.h"

#define NPULINK_FLIGHT_MAX_STEPS	0x100000U

static unsigned int npulink_flight_steps = 512;
module_param_named(flight_steps, npulink_flight_steps, uint, 0644);
MODULE_PARM_DESC(flight_steps, "steps that the flight recorder of a rank remembers, 0: has none; taken when a rank joins");

static unsigned int npulink_flight_keep = 8192;
module_param_named(flight_keep, npulink_flight_keep, uint, 0644);
MODULE_PARM_DESC(flight_keep, "KiB of flight recorders that are kept when their ranks have gone");

/* Protects the list of those kept, and flight->rank; whoever is in the index has a reference. */
static DEFINE_MUTEX(npulink_flights_lock);
static DEFINE_XARRAY_ALLOC1(npulink_flights);
static u32 npulink_flights_next;
static LIST_HEAD(npulink_flights_kept);
static size_t npulink_flights_bytes;

/* ---- life -------------------------------------------------------------------------- */

static void npulink_flight_release(struct kref *kref)
{
	struct npulink_flight *flight = container_of(kref, struct npulink_flight, kref);
	struct npulink_flight_peer *peer;
	unsigned long i;

	xa_for_each(&flight->peers, i, peer)
		kfree(peer);
	xa_destroy(&flight->peers);
	kvfree(flight->ops);
	kvfree(flight->steps);
	kfree(flight);
}

/* May sleep. */
void npulink_flight_put(struct npulink_flight *flight)
{
	if (flight)
		kref_put(&flight->kref, npulink_flight_release);
}

static void npulink_flight_note_process(struct npulink_flight *flight,
					const struct npulink_file *file)
{
	u32 i;

	flight->uid = file->cred->uid;
	flight->euid = file->cred->euid;
	flight->suid = file->cred->suid;
	get_task_comm(flight->task, current);
	flight->npids = file->tgid->level + 1;
	for (i = 0; i < flight->npids; i++) {
		flight->pids[i].ns = file->tgid->numbers[i].ns->ns.inum;
		flight->pids[i].nr = file->tgid->numbers[i].nr;
	}
}

/* The process as the reader sees it, or 0. */
pid_t npulink_flight_pid(const struct npulink_flight *flight)
{
	unsigned int ns = task_active_pid_ns(current)->ns.inum;
	u32 i;

	for (i = 0; i < flight->npids; i++)
		if (flight->pids[i].ns == ns)
			return flight->pids[i].nr;
	return 0;
}

/* For a rank that is about to join; NULL if there shall be none. May sleep. */
struct npulink_flight *npulink_flight_new(struct npulink_file *file)
{
	u32 nsteps = READ_ONCE(npulink_flight_steps), nops;
	struct npulink_flight *flight;
	int rc = -ENOMEM;

	if (!nsteps)
		return NULL;
	nsteps = roundup_pow_of_two(clamp(nsteps, 16U, NPULINK_FLIGHT_MAX_STEPS));
	nops = max(nsteps / 8, 16U);
	flight = kzalloc(struct_size(flight, pids, file->tgid->level + 1), GFP_KERNEL_ACCOUNT);
	if (!flight)
		return ERR_PTR(-ENOMEM);
	kref_init(&flight->kref);
	INIT_LIST_HEAD(&flight->kept);
	xa_init(&flight->peers);
	npulink_flight_note_process(flight, file);
	flight->ops_mask = nops - 1;
	flight->steps_mask = nsteps - 1;
	flight->ops = kvcalloc(nops, sizeof(*flight->ops), GFP_KERNEL_ACCOUNT);
	flight->steps = kvcalloc(nsteps, sizeof(*flight->steps), GFP_KERNEL_ACCOUNT);
	if (!flight->ops || !flight->steps)
		goto err_put;
	flight->bytes = sizeof(*flight) + nops * sizeof(*flight->ops) +
			nsteps * sizeof(*flight->steps);
	/* Only reserve the number, so that joining cannot fail. Not charged, see npulink_open(). */
	mutex_lock(&npulink_flights_lock);
	rc = xa_alloc_cyclic(&npulink_flights, &flight->id, NULL, xa_limit_31b,
			     &npulink_flights_next, GFP_KERNEL);
	mutex_unlock(&npulink_flights_lock);
	if (rc >= 0)
		return flight;
err_put:
	npulink_flight_put(flight);
	return ERR_PTR(rc);
}

/* Room for what is recorded of one peer, once for each. May sleep. */
struct npulink_flight_peer *npulink_flight_peer(struct npulink_flight *flight, u32 peer)
{
	struct npulink_flight_peer *p = xa_load(&flight->peers, peer), *old;

	if (p)
		return p;
	p = kzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);
	if (!p)
		return ERR_PTR(-ENOMEM);
	p->peer = peer;
	p->dev = NPULINK_NO_PEER;
	old = xa_cmpxchg(&flight->peers, peer, NULL, p, GFP_KERNEL_ACCOUNT);
	if (old) {
		kfree(p);
		return xa_is_err(old) ? ERR_PTR(xa_err(old)) : old;
	}
	return p;
}

/* The rank is in its communicator: from here on the recorder can be read. May sleep. */
void npulink_flight_joined(struct npulink_rank *rank)
{
	struct npulink_flight *flight = rank->flight;

	if (!flight)
		return;
	flight->rank = rank;
	flight->comm = rank->comm->serial;
	flight->nranks = rank->comm->nranks;
	flight->number = rank->rank;
	flight->dev = rank->dev->id;
	flight->joined_ns = npulink_clock();
	mutex_lock(&npulink_flights_lock);
	xa_store(&npulink_flights, flight->id, flight, GFP_KERNEL_ACCOUNT);
	mutex_unlock(&npulink_flights_lock);
}

static void npulink_flight_forget(struct npulink_flight *flight)
{
	lockdep_assert_held(&npulink_flights_lock);
	list_del(&flight->kept);
	xa_erase(&npulink_flights, flight->id);
	npulink_flights_bytes -= flight->bytes;
	npulink_flight_put(flight);
}

/* Nobody can drive out more than half of what others have. */
static void npulink_flight_make_room(const struct npulink_flight *newest)
{
	struct npulink_flight *f, *oldest = NULL;
	size_t mine = 0;

	lockdep_assert_held(&npulink_flights_lock);
	list_for_each_entry(f, &npulink_flights_kept, kept) {
		if (!uid_eq(f->euid, newest->euid))
			continue;
		oldest = oldest ?: f;
		mine += f->bytes;
	}
	if (mine <= npulink_flights_bytes / 2)
		oldest = list_first_entry(&npulink_flights_kept, struct npulink_flight, kept);
	npulink_flight_forget(oldest);
}

/* The rank is freed, after its process has died or has left. May sleep. */
void npulink_flight_left(struct npulink_rank *rank)
{
	struct npulink_flight *flight = rank->flight;
	struct npulink_flight_peer *peer;
	unsigned long i;

	if (!flight)
		return;
	rank->flight = NULL;
	if (!flight->joined_ns) {
		xa_erase(&npulink_flights, flight->id);
		npulink_flight_put(flight);
		return;
	}
	xa_for_each(&flight->peers, i, peer)
		flight->bytes += sizeof(*peer);
	/* It may be the one that makes room. */
	kref_get(&flight->kref);
	mutex_lock(&npulink_flights_lock);
	flight->rank = NULL;
	flight->left_ns = npulink_clock();
	list_add_tail(&flight->kept, &npulink_flights_kept);
	npulink_flights_bytes += flight->bytes;
	while (npulink_flights_bytes > (size_t)READ_ONCE(npulink_flight_keep) << 10)
		npulink_flight_make_room(flight);
	mutex_unlock(&npulink_flights_lock);
	npulink_flight_put(flight);
}

/* The first recorder with an id of at least *id, referenced, or NULL. May sleep. */
struct npulink_flight *npulink_flight_next(unsigned long *id)
{
	struct npulink_flight *flight;

	mutex_lock(&npulink_flights_lock);
	flight = xa_find(&npulink_flights, id, ULONG_MAX, XA_PRESENT);
	if (flight)
		kref_get(&flight->kref);
	mutex_unlock(&npulink_flights_lock);
	return flight;
}

/* Its rank, referenced, or NULL if it has gone. May sleep. */
struct npulink_rank *npulink_flight_rank(struct npulink_flight *flight)
{
	struct npulink_rank *rank;

	mutex_lock(&npulink_flights_lock);
	rank = flight->rank;
	if (rank && !kref_get_unless_zero(&rank->obj.kref))
		rank = NULL;
	mutex_unlock(&npulink_flights_lock);
	return rank;
}

/* There are no ranks any more. */
void npulink_flight_exit(void)
{
	struct npulink_flight *flight, *next;

	mutex_lock(&npulink_flights_lock);
	list_for_each_entry_safe(flight, next, &npulink_flights_kept, kept)
		npulink_flight_forget(flight);
	mutex_unlock(&npulink_flights_lock);
	xa_destroy(&npulink_flights);
}

/* ---- reading ---------------------------------------------------------------------- */

/*
 * Copy @n entries of @size bytes (a multiple of 4) from number *pos on out of a ring that
 * may be written meanwhile. *pos is moved to the first that is still there. Returns how
 * many were copied, those after *pos.
 */
u32 npulink_flight_read(const void *ring, u32 mask, const u64 *written, size_t size, u64 *pos,
			void *to, u32 n)
{
	u64 end, first;
	u32 i, k;

	/* Pairs with the release of who writes them. */
	end = smp_load_acquire(written);

	first = end > mask + 1 ? end - mask - 1 : 0;
	*pos = max(*pos, first);
	n = min_t(u64, n, end - *pos);
	for (i = 0; i < n; i++) {
		const u32 *from = ring + ((*pos + i) & mask) * size;

		for (k = 0; k < size / 4; k++)
			((u32 *)(to + i * size))[k] = READ_ONCE(from[k]);
	}
	/* Pairs with the barriers of npulink_flight_step(). */
	smp_rmb();
	end = READ_ONCE(*written);
	/* One more than are gone is being overwritten. */
	first = end > mask ? end - mask : 0;
	if (*pos >= first)
		return n;
	k = min_t(u64, first - *pos, n);
	*pos += k;
	memmove(to, to + k * size, (n - k) * size);
	return n - k;
}
