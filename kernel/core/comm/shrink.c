// SPDX-License-Identifier: GPL-2.0
/*
 * shrink.c - COMM_SHRINK: the survivors of a failed communicator go on in a new one.
 *
 * Who they are is decided once, so all of them agree: by the first who asks, or if there are
 * ranks on other machines, together with those (agree.c). The new communicator remembers the
 * old one: a survivor that dies or leaves before it has asked, too, is missed there, and
 * fails it.
 */
#include <linux/bsearch.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include "comm/agree.h"
#include "comm/comm.h"
#include "file/file.h"

/*
 * That rank, or what it is in the communicator before if it has not joined, as long as it is
 * here and may still take part. Under npulink_comms_lock.
 */
static struct npulink_rank *npulink_comm_living(struct npulink_comm *comm, u32 i)
{
	struct npulink_rank *rank;

	for (;;) {
		/* Nobody joins or leaves without the lock. */
		rank = rcu_dereference_protected(comm->ranks[i],
						 lockdep_is_held(&npulink_comms_lock));
		if (rank || test_bit(i, comm->left) || !comm->parent)
			return rank && !READ_ONCE(rank->file->dead) ? rank : NULL;
		i = comm->map[i];
		comm = comm->parent;
	}
}

/*
 * The first rank from @i on that may live. All others want the lock: what is done with it must not
 * take longer the more ranks there are elsewhere, or nowhere, and does not let others run.
 */
static u32 npulink_comm_next_here(const struct npulink_comm *comm, u32 i)
{
	/* Who has not come to a shrunk one may be in the one before it. */
	return comm->parent ? i : find_next_bit(comm->here, comm->nranks, i);
}

/* Might that rank, of this machine, still come and take part? Under npulink_comms_lock. */
bool npulink_comm_alive(struct npulink_comm *comm, u32 i)
{
	return npulink_comm_living(comm, i);
}

/* A rank that might, and that was told of other machines; referenced, or NULL. May sleep. */
struct npulink_rank *npulink_comm_survivor(struct npulink_comm *comm)
{
	struct npulink_rank *rank = NULL;
	u32 i;

	mutex_lock(&npulink_comms_lock);
	for (i = npulink_comm_next_here(comm, 0); i < comm->nranks && !rank;
	     i = npulink_comm_next_here(comm, i + 1)) {
		rank = npulink_comm_living(comm, i);
		if (rank && !READ_ONCE(rank->net))
			rank = NULL;
	}
	if (rank)
		npulink_rank_get(rank);
	mutex_unlock(&npulink_comms_lock);
	return rank;
}

/*
 * Rank @i of a shrunk communicator, as what it is in one before: it has not come, but may.
 * Referenced, or NULL. May sleep.
 */
struct npulink_rank *npulink_comm_awaited(struct npulink_comm *comm, u32 i)
{
	struct npulink_rank *rank = NULL;

	mutex_lock(&npulink_comms_lock);
	/* While there are some, the communicator before is there. */
	if (comm->awaited && !rcu_access_pointer(comm->ranks[i]))
		rank = npulink_comm_living(comm, i);
	if (rank)
		npulink_rank_get(rank);
	mutex_unlock(&npulink_comms_lock);
	return rank;
}

static int npulink_map_cmp(const void *a, const void *b)
{
	return *(const u32 *)a < *(const u32 *)b ? -1 : *(const u32 *)a > *(const u32 *)b;
}

/* The rank in @comm of a rank of the communicator it was shrunk from. */
static bool npulink_comm_heir(const struct npulink_comm *comm, u32 old, u32 *rank)
{
	u32 *found = bsearch(&old, comm->map, comm->nranks, sizeof(u32), npulink_map_cmp);

	if (found)
		*rank = found - comm->map;
	return found;
}

/* Rank @i of @child, which has been rank map[i] of its parent, lives on another machine. */
static bool npulink_comm_elsewhere(const struct npulink_comm *child, u32 i)
{
	return child->agree && child->agree->place_of[i] != child->agree->self;
}

/* Whoever has died since it was decided who goes on is missed in @child from its beginning. */
static void npulink_comm_miss(struct npulink_comm *child)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_DEATH, .step = ~0U, .number = ~0ULL,
	};
	bool missed = false;
	u32 i;

	for (i = 0; i < child->nranks && !missed; i++) {
		missed = !npulink_comm_elsewhere(child, i) && !npulink_comm_alive(child, i);
		cause.rank = i;
		cause.peer = i;
	}
	/* Nobody has joined it yet, so there is nobody to be told. */
	if (missed)
		npulink_comm_fail_now(child, &cause);
}

/* @child, with a map, is what @comm is shrunk to. */
static void npulink_comm_adopt(struct npulink_comm *comm, struct npulink_comm *child)
{
	struct npulink_comm *before = comm->child;
	u32 i;

	lockdep_assert_held(&npulink_comms_lock);
	/* It cannot be told any more when we go. */
	if (before && !before->awaited)
		before->parent = NULL;
	for (i = 0; i < child->nranks; i++)
		child->awaited += !npulink_comm_elsewhere(child, i);
	if (child->awaited)
		kref_get(&comm->kref);
	child->parent = comm;
	WRITE_ONCE(child->parent_serial, comm->serial);
	child->depth = comm->depth + 1;
	npulink_comm_publish(child);
	WRITE_ONCE(comm->child, child);
	smp_mb();	/* pairs with npulink_file_kill() */
	npulink_comm_miss(child);
}

/*
 * For the survivors of @comm, as many as they may be. Before any lock is taken: its memory cgroup
 * may have to reclaim first. It is not in the table, so nobody joins it by its secret.
 */
static struct npulink_comm *npulink_comm_fresh(const struct npulink_comm *comm)
{
	struct npulink_comm *fresh;
	u8 secret[16];

	get_random_bytes(secret, sizeof(secret));
	fresh = npulink_comm_new(secret, comm->nranks, npulink_comm_flags(comm));
	if (!fresh)
		return NULL;
	fresh->map = kvmalloc_array(comm->nranks, sizeof(*fresh->map), GFP_KERNEL_ACCOUNT);
	if (!fresh->map) {
		npulink_comm_put(fresh);
		return NULL;
	}
	return fresh;
}

/* Make @fresh what @comm is shrunk to. */
static int npulink_comm_make_child(struct npulink_comm *comm, struct npulink_comm *fresh)
{
	u32 i, n = 0;

	for (i = npulink_comm_next_here(comm, 0); i < comm->nranks;
	     i = npulink_comm_next_here(comm, i + 1))
		if (npulink_comm_alive(comm, i))
			fresh->map[n++] = i;
	if (!n)
		return -EOWNERDEAD;
	WRITE_ONCE(fresh->nranks, n);
	npulink_comm_adopt(comm, fresh);
	return 0;
}

/* Machines that we have lost since they have accepted are missed, too. */
static void npulink_comm_miss_places(struct npulink_agree *agree, struct npulink_comm *heir)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_LINK, .step = ~0U, .number = ~0ULL, .code = EHOSTDOWN,
	};
	const struct npulink_place *self = &agree->places[agree->self], *place;
	bool missed = false;
	u32 i;

	for (i = 0; i < heir->nranks; i++) {
		u32 at = agree->place_of[heir->map[i]];

		if (at == agree->self)
			cause.rank = i;
		if (missed || !npulink_has_place(self->dead, at))
			continue;
		missed = true;
		place = &agree->places[at];
		cause.peer = i;
		memcpy(cause.ip, place->at.addrs[0].ip, sizeof(cause.ip));
		strscpy(cause.port, place->put.via, sizeof(cause.port));
	}
	if (missed)
		npulink_comm_fail_now(heir, &cause);
}

/*
 * The same for what the machines have agreed on: there it is, and waits for our ranks. @map is
 * taken over if there is no error. Called by a worker.
 */
int npulink_comm_make_heir(struct npulink_comm *comm, const u8 *secret, u32 *map, u32 n)
{
	struct npulink_agree *agree = comm->agree;
	struct npulink_comm *heir;
	u32 i, here = 0;
	int rc = 0;

	heir = npulink_comm_new(secret, n, npulink_comm_flags(comm));
	if (!heir)
		return -ENOMEM;
	heir->uid = comm->uid;
	heir->whose = comm->whose;
	put_user_ns(heir->userns);
	heir->userns = get_user_ns(comm->userns);
	for (i = 0; i < n; i++)
		here += agree->place_of[map[i]] == agree->self;
	if (here < n) {
		heir->agree = npulink_agree_inherit(agree, heir, map);
		if (!heir->agree)
			rc = -ENOMEM;
		agree->transport->tag(heir->secret, heir->tag);
		npulink_heir_tags(agree, heir->secret, heir->agree_secret, heir->agree_tag);
	}
	mutex_lock(&npulink_comms_lock);
	/* If all have left there is nobody to join it. */
	if (!comm->joined)
		rc = rc ?: -ESHUTDOWN;
	if (!rc) {
		heir->map = map;
		npulink_comm_adopt(comm, heir);
		agree->heir = heir;
		npulink_comm_miss_places(agree, heir);
		if (here < n) {
			npulink_comm_name(heir);
			WRITE_ONCE(heir->far, true);
		}
	}
	mutex_unlock(&npulink_comms_lock);
	if (rc)
		npulink_comm_put(heir);
	return rc;
}

/*
 * A rank of @comm has gone, and will not join what the communicator was shrunk to, nor what that
 * was shrunk to. If it has joined it, what it does there will be told there.
 */
void npulink_comm_fail_heirs(struct npulink_comm *comm, u32 rank, const struct npulink_cause *why)
{
	struct npulink_comm *child, *held = NULL;
	struct npulink_cause cause = *why;
	bool absent;

	cause.number = ~0ULL;
	do {
		absent = false;
		mutex_lock(&npulink_comms_lock);
		child = comm->child;
		if (child && npulink_comm_heir(child, rank, &rank)) {
			kref_get(&child->kref);
			/* Who changes these holds this lock, too. */
			absent = !rcu_access_pointer(child->ranks[rank]) &&
				 !test_bit(rank, child->left);
		} else {
			child = NULL;
		}
		mutex_unlock(&npulink_comms_lock);
		cause.rank = rank;
		cause.peer = rank;
		/* Not under the lock: it takes as long as the ranks' requests. */
		if (absent)
			npulink_comm_fail_now(child, &cause);
		if (held)
			npulink_comm_put(held);
		held = child;
		comm = child;
	} while (absent);
	if (held)
		npulink_comm_put(held);
}

/*
 * Find the communicator of those who are left, or make it of *fresh, which is NULL then:
 * rank->comm and rank->rank. -ESHUTDOWN: without this one; -EAGAIN: there is no *fresh.
 */
static int npulink_comm_find_child(struct npulink_rank *rank, struct npulink_rank *old,
				   struct npulink_comm **fresh)
{
	struct npulink_comm *child = old->comm->child;
	int rc;

	lockdep_assert_held(&npulink_comms_lock);
	if (!child && READ_ONCE(old->comm->far))
		return -ESHUTDOWN;
	if (child) {
		kref_get(&child->kref);
	} else if (*fresh) {
		rc = npulink_comm_make_child(old->comm, *fresh);
		if (rc)
			return rc;
		child = *fresh;
		*fresh = NULL;
	} else {
		return -EAGAIN;
	}
	/* Put with the rank, whatever becomes of it. */
	rank->comm = child;
	/* Only who is waited for may come: see npulink_comm_adopt(). */
	if (!npulink_comm_heir(child, old->rank, &rank->rank) ||
	    npulink_comm_elsewhere(child, rank->rank))
		return -ESHUTDOWN;
	return 0;
}

/* The same, whatever it takes. */
static int npulink_comm_get_child(struct npulink_rank *rank, struct npulink_rank *old)
{
	struct npulink_comm *fresh = NULL;
	int rc;

	do {
		if (!fresh && !READ_ONCE(old->comm->child) && !READ_ONCE(old->comm->far)) {
			fresh = npulink_comm_fresh(old->comm);
			if (!fresh)
				return -ENOMEM;
		}
		rc = npulink_lock(&npulink_comms_lock);
		if (rc)
			break;
		rc = npulink_comm_find_child(rank, old, &fresh);
		mutex_unlock(&npulink_comms_lock);
	} while (rc == -EAGAIN);
	if (fresh)
		npulink_comm_put(fresh);
	return rc;
}

/* Sets *parent, to be put, if nobody is looked for there any more. */
static int npulink_comm_join_child(struct npulink_rank *rank, void *data)
{
	struct npulink_comm **parent = data;
	struct npulink_comm *child = rank->comm;
	int rc = 0;

	lockdep_assert_held(&npulink_comms_lock);
	mutex_lock(&child->mutex);
	if (rcu_access_pointer(child->ranks[rank->rank]) || test_bit(rank->rank, child->left))
		rc = -EEXIST;
	if (!rc) {
		child->joined++;
		__set_bit(rank->rank, child->here);
		rcu_assign_pointer(child->ranks[rank->rank], rank);
	}
	mutex_unlock(&child->mutex);
	if (rc)
		return rc;
	/* Pairs with npulink_genl_next_rank(), which holds no lock. */
	WRITE_ONCE(child->awaited, child->awaited - 1);
	if (child->awaited)
		return 0;
	*parent = child->parent;
	child->depth = 0;
	if (child->parent->child != child)
		child->parent = NULL;
	return 0;
}

static int npulink_comm_say_map(const struct npulink_comm *child, u64 to)
{
	if (to && copy_to_user(u64_to_user_ptr(to), child->map,
			       array_size(child->nranks, sizeof(*child->map))))
		return -EFAULT;
	return 0;
}

int npulink_comm_shrink_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_shrink *cmd = ucmd->cmd;
	struct npulink_file *file = ucmd->file;
	struct npulink_comm *parent = NULL;
	struct npulink_rank *rank, *old;
	int rc;

	if (cmd->flags & ~NPULINK_SHRINK_MINORITY)
		return -EOPNOTSUPP;
	old = npulink_rank_lookup(file, cmd->comm_id);
	if (IS_ERR(old))
		return PTR_ERR(old);
	rc = -EINVAL;
	/* Pairs with npulink_comm_record(). */
	if (!smp_load_acquire(&old->comm->failed))
		goto out_old;
	/* Each holds the one before it until all have come, who are looked for there. */
	rc = -EMLINK;
	if (READ_ONCE(old->comm->depth) >= NPULINK_MAX_DEPTH)
		goto out_old;
	/* Who lives elsewhere is to be agreed on. */
	if (READ_ONCE(old->comm->far))
		rc = npulink_agree_ask(old, cmd->flags & NPULINK_SHRINK_MINORITY);
	else
		rc = 0;
	if (rc)
		goto out_old;
	rank = npulink_rank_new(file);
	rc = PTR_ERR_OR_ZERO(rank);
	if (rc)
		goto out_old;
	rank->peer_timeout_ms = old->peer_timeout_ms;
	rc = npulink_comm_get_child(rank, old);
	if (!rc)
		rc = npulink_agree_introduce(rank, old);
	if (rc)
		goto err_abort;
	/* Before it joins: leaving again would be seen, and could not be undone. */
	cmd->out_id = rank->obj.id;
	cmd->out_rank = rank->rank;
	cmd->out_nranks = rank->comm->nranks;
	rc = npulink_comm_say_map(rank->comm, cmd->map);
	if (!rc)
		rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_abort;
	rc = npulink_rank_join(rank, npulink_comm_join_child, &parent);
	if (rc)
		goto err_abort;
	if (parent)
		npulink_comm_put(parent);
	npulink_rank_put(old);
	return 0;

err_abort:
	npulink_object_abort(file, &rank->obj);
out_old:
	npulink_rank_put(old);
	return rc;
}
