// SPDX-License-Identifier: GPL-2.0
/*
 * shrink.c - COMM_SHRINK: the survivors of a failed communicator go on in a new one.
 *
 * Who they are is decided once, by the first who asks, so all of them agree. The new
 * communicator remembers the old one: a survivor that dies or leaves before it has
 * asked, too, is missed there, and fails it.
 */
#include <linux/bsearch.h>
#include <linux/random.h>
#include "core.h"

/* Might that rank still come and take part? Under npulink_comms_lock. */
static bool npulink_comm_alive(struct npulink_comm *comm, u32 i)
{
	struct npulink_rank *rank;
	bool known, alive = false;

	lockdep_assert_held(&npulink_comms_lock);
	for (;;) {
		rcu_read_lock();
		rank = rcu_dereference(comm->ranks[i]);
		known = rank || test_bit(i, comm->left);
		if (rank)
			alive = !READ_ONCE(rank->file->dead);
		rcu_read_unlock();
		/* Has not joined: it is what it is in the one before. */
		if (known || !comm->parent)
			return alive;
		i = comm->map[i];
		comm = comm->parent;
	}
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

static struct npulink_comm *npulink_comm_make_child(struct npulink_comm *comm)
{
	struct npulink_cause cause = {
		.cause = NPULINK_CAUSE_DEATH, .step = ~0U, .number = ~0ULL,
	};
	struct npulink_comm *child;
	u8 secret[16];
	u32 i, n = 0;
	u32 *map;

	map = kvmalloc_array(comm->nranks, sizeof(*map), GFP_KERNEL_ACCOUNT);
	if (!map)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < comm->nranks; i++) {
		if (npulink_comm_alive(comm, i))
			map[n++] = i;
		if (!(i & 0xfff))
			cond_resched();
	}
	/* It is not in the table, so nobody joins it by its secret. */
	get_random_bytes(secret, sizeof(secret));
	child = n ? npulink_comm_new(secret, n, npulink_comm_flags(comm)) : NULL;
	if (!child) {
		kvfree(map);
		return ERR_PTR(n ? -ENOMEM : -EOWNERDEAD);
	}
	child->map = map;
	kref_get(&comm->kref);
	child->parent = comm;
	WRITE_ONCE(comm->child, child);
	smp_mb();	/* pairs with npulink_file_kill() */
	for (i = 0; i < n && !cause.status; i++) {
		if (npulink_comm_alive(comm, map[i]))
			continue;
		cause.rank = i;
		cause.peer = i;
		cause.status = -EOWNERDEAD;
	}
	if (cause.status)
		npulink_comm_fail_now(child, &cause);
	return child;
}

/* A rank of @comm has gone, and will not join what the communicator was shrunk to. */
void npulink_comm_fail_heirs(struct npulink_comm *comm, u32 rank, const struct npulink_cause *why)
{
	struct npulink_comm *child;
	bool absent;

	mutex_lock(&npulink_comms_lock);
	for (; (child = comm->child) && npulink_comm_heir(child, rank, &rank); comm = child) {
		struct npulink_cause cause = *why;

		mutex_lock(&child->mutex);
		absent = !rcu_access_pointer(child->ranks[rank]) && !test_bit(rank, child->left);
		mutex_unlock(&child->mutex);
		cause.rank = rank;
		cause.peer = rank;
		cause.number = ~0ULL;
		if (absent)
			npulink_comm_fail_now(child, &cause);
	}
	mutex_unlock(&npulink_comms_lock);
}

/*
 * Find, or make, the communicator of those who are left: rank->comm and rank->rank.
 * -ESHUTDOWN: without this one.
 */
static int npulink_comm_find_child(struct npulink_rank *rank, struct npulink_rank *old)
{
	struct npulink_comm *child = old->comm->child;

	lockdep_assert_held(&npulink_comms_lock);
	if (child) {
		kref_get(&child->kref);
	} else {
		child = npulink_comm_make_child(old->comm);
		if (IS_ERR(child))
			return PTR_ERR(child);
	}
	rank->comm = child;
	return npulink_comm_heir(child, old->rank, &rank->rank) ? 0 : -ESHUTDOWN;
}

static int npulink_comm_join_child(struct npulink_rank *rank, void *unused)
{
	struct npulink_comm *child = rank->comm;
	int rc = 0;

	lockdep_assert_held(&npulink_comms_lock);
	mutex_lock(&child->mutex);
	if (rcu_access_pointer(child->ranks[rank->rank]) || test_bit(rank->rank, child->left))
		rc = -EEXIST;
	if (!rc) {
		child->joined++;
		rcu_assign_pointer(child->ranks[rank->rank], rank);
	}
	mutex_unlock(&child->mutex);
	return rc;
}

int npulink_comm_shrink_ioctl(struct npulink_ucmd *ucmd)
{
	struct npulink_comm_shrink *cmd = ucmd->cmd;
	struct npulink_file *file = ucmd->file;
	struct npulink_rank *rank, *old;
	int rc;

	if (cmd->flags)
		return -EOPNOTSUPP;
	old = npulink_rank_lookup(file, cmd->comm_id);
	if (IS_ERR(old))
		return PTR_ERR(old);
	rc = -EINVAL;
	/* Pairs with npulink_comm_record(). */
	if (!smp_load_acquire(&old->comm->failed))
		goto out_old;
	/* Who lives elsewhere is not known here. */
	rc = -EOPNOTSUPP;
	if (READ_ONCE(old->comm->far))
		goto out_old;
	rank = npulink_rank_new(file);
	rc = PTR_ERR_OR_ZERO(rank);
	if (rc)
		goto out_old;
	rank->peer_timeout_ms = old->peer_timeout_ms;
	rc = npulink_lock(&npulink_comms_lock);
	if (rc)
		goto err_abort;
	rc = npulink_comm_find_child(rank, old);
	mutex_unlock(&npulink_comms_lock);
	if (rc)
		goto err_abort;
	/* Before it joins: leaving again would be seen, and could not be undone. */
	cmd->out_id = rank->obj.id;
	cmd->out_rank = rank->rank;
	cmd->out_nranks = rank->comm->nranks;
	rc = npulink_ucmd_respond(ucmd, sizeof(*cmd));
	if (rc)
		goto err_abort;
	rc = npulink_rank_join(rank, npulink_comm_join_child, NULL);
	if (rc)
		goto err_abort;
	npulink_rank_put(old);
	return 0;

err_abort:
	npulink_object_abort(file, &rank->obj);
out_old:
	npulink_rank_put(old);
	return rc;
}
