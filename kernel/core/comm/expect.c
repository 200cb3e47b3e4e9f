// SPDX-License-Identifier: GPL-2.0
/*
 * expect.c - somebody calls from another machine, maybe a stranger: whom does he mean? He names
 * a communicator by a tag, see npulink/wire.h. That costs one look into a table, however many
 * communicators there are.
 */
#include <crypto/algapi.h>
#include <linux/hashtable.h>
#include <linux/siphash.h>
#include <npulink/compat.h>
#include "comm/agree.h"
#include "comm/comm.h"

static DEFINE_HASHTABLE(npulink_tags, 10);
static DEFINE_SPINLOCK(npulink_tags_lock);	/* npulink_tags; within an agreement's lock */

/* Users choose secrets, and so tags, but not which of them share a chain. */
static u64 npulink_tag_hash(const u8 *tag)
{
	static siphash_key_t key __aligned(8);

	get_random_once(&key, sizeof(key));
	return siphash(tag, NPULINK_TAG_LEN, &key);
}

/* Forget the one that @t was, if it was one. */
void npulink_tag_del(struct npulink_tag *t)
{
	unsigned long flags;

	spin_lock_irqsave(&npulink_tags_lock, flags);
	hash_del(&t->node);
	spin_unlock_irqrestore(&npulink_tags_lock, flags);
}

/* From now on @tag, and nothing that @t was before, names @comm, which has not been freed. */
void npulink_tag_set(struct npulink_tag *t, struct npulink_comm *comm, const u8 *tag)
{
	unsigned long flags;

	spin_lock_irqsave(&npulink_tags_lock, flags);
	hash_del(&t->node);
	t->comm = comm;
	memcpy(t->tag, tag, sizeof(t->tag));
	hash_add(npulink_tags, &t->node, npulink_tag_hash(tag));
	spin_unlock_irqrestore(&npulink_tags_lock, flags);
}

/* It has its tags: other machines may call. */
void npulink_comm_name(struct npulink_comm *comm)
{
	npulink_tag_set(&comm->tags[0], comm, comm->tag);
	npulink_tag_set(&comm->tags[1], comm, comm->agree_tag);
}

/* Number @index of the communicators that @tag names, referenced: one, and which it came from. */
static struct npulink_comm *npulink_tag_find(const u8 *tag, u32 index)
{
	struct npulink_comm *found = NULL;
	struct npulink_tag *t;
	unsigned long flags;

	spin_lock_irqsave(&npulink_tags_lock, flags);
	hash_for_each_possible(npulink_tags, t, node, npulink_tag_hash(tag)) {
		if (crypto_memneq(t->tag, tag, sizeof(t->tag)) || index--)
			continue;
		if (kref_get_unless_zero(&t->comm->kref)) {
			found = t->comm;
			break;
		}
		index = 0;	/* That one is being freed: the next one. */
	}
	spin_unlock_irqrestore(&npulink_tags_lock, flags);
	return found;
}

static int npulink_comm_expects(struct npulink_comm *comm, const struct net *net, const u8 *tag,
				u32 index, u8 *secret, bool *known)
{
	const struct npulink_rank *rank;
	bool here;

	if (index >= comm->nranks)
		return -ENOENT;
	if (crypto_memneq(comm->tag, tag, sizeof(comm->tag)))
		return npulink_agree_expects(comm, net, tag, secret, known);
	memcpy(secret, comm->secret, sizeof(comm->secret));
	*known = true;
	if (READ_ONCE(comm->failed))
		return -ECONNABORTED;
	rcu_read_lock();
	rank = rcu_dereference(comm->ranks[index]);
	here = rank && READ_ONCE(rank->net) == net;
	rcu_read_unlock();
	return here || npulink_agree_awaits(comm, net, index) ? 0 : -ENOENT;
}

int npulink_put_expected(const struct net *net, const u8 *tag, u32 rank, u8 secret[16],
			 bool *known)
{
	struct npulink_comm *comm;
	int rc = -ENOENT;
	u32 i;

	*known = false;
	for (i = 0; rc == -ENOENT && (comm = npulink_tag_find(tag, i)); i++) {
		rc = npulink_comm_expects(comm, net, tag, rank, secret, known);
		npulink_comm_put(comm);
	}
	return rc;
}
EXPORT_SYMBOL_NPULINK(npulink_put_expected);
