// SPDX-License-Identifier: GPL-2.0
/*
 * agree_node.c - which rank of a communicator is on which machine: from what its members were
 * told of each other (COMM_PEERS), or from the communicator that it comes from. And
 * what machines make of what they have agreed on: the secret, and the new communicator.
 */
#include <crypto/blake2s.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include "comm/agree.h"
#include "comm/comm.h"
#include "file/port.h"

/* ---- secrets ---------------------------------------------------------------------- */

static void npulink_agree_hash(struct blake2s_state *state, const u8 *secret, const char *label)
{
	blake2s_init_key(state, BLAKE2S_HASH_SIZE, secret, 16);
	blake2s_update(state, label, strlen(label) + 1);
}

static void npulink_agree_hashed(struct blake2s_state *state, u8 *out)
{
	u8 hash[BLAKE2S_HASH_SIZE];

	blake2s_final(state, hash);
	memcpy(out, hash, 16);
	memzero_explicit(hash, sizeof(hash));
}

/* What machines prove to know when they agree: a hash of the communicator's secret. */
void npulink_agree_secret(const u8 *secret, u8 *out)
{
	struct blake2s_state state;

	npulink_agree_hash(&state, secret, "npulink agree");
	npulink_agree_hashed(&state, out);
}

/*
 * Of those who go on by @offer. Nobody computes it who does not know the old one, nor without
 * the nonce, which only they are told; and who believes that others go on has another one.
 */
void npulink_heir_secret(const struct npulink_agree *agree, const struct npulink_offer_of *offer,
			 u8 *secret)
{
	struct blake2s_state state;
	u32 i;

	npulink_agree_hash(&state, agree->comm->secret, "npulink heir");
	blake2s_update(&state, offer->nonce, sizeof(offer->nonce));
	blake2s_update(&state, offer->places, sizeof(offer->places));
	for (i = 0; i < agree->nplaces; i++)
		if (npulink_has_place(offer->places, i))
			blake2s_update(&state, agree->places[i].live,
				       DIV_ROUND_UP(agree->places[i].nranks, 8));
	npulink_agree_hashed(&state, secret);
}

void npulink_heir_tags(const struct npulink_agree *agree, const u8 *secret, u8 *agree_secret,
		       u8 *agree_tag)
{
	npulink_agree_secret(secret, agree_secret);
	agree->transport->tag(agree_secret, agree_tag);
}

/* ---- places ----------------------------------------------------------------------- */

static void npulink_agree_work_fn(struct work_struct *work)
{
	npulink_agree_work(container_of(to_delayed_work(work), struct npulink_agree, work));
}

static struct npulink_agree *npulink_agree_new(struct npulink_comm *comm, u32 nplaces)
{
	struct npulink_agree *agree;
	u32 i;

	agree = kvzalloc(struct_size(agree, places, nplaces), GFP_KERNEL_ACCOUNT);
	if (!agree)
		return NULL;
	agree->place_of = kvmalloc_array(comm->nranks, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (!agree->place_of) {
		kvfree(agree);
		return NULL;
	}
	agree->comm = comm;
	agree->nplaces = nplaces;
	spin_lock_init(&agree->lock);
	init_waitqueue_head(&agree->wq);
	INIT_DELAYED_WORK(&agree->work, npulink_agree_work_fn);
	for (i = 0; i < nplaces; i++)
		agree->places[i].agree = agree;
	return agree;
}

/* With its communicator: nothing is going on. */
void npulink_agree_free(struct npulink_agree *agree)
{
	if (!agree)
		return;
	npulink_tag_del(&agree->heir_name);
	if (agree->net)
		put_net(agree->net);
	kvfree(agree->place_of);
	kvfree_sensitive(agree, struct_size(agree, places, agree->nplaces));
}

/* Once each rank has its place: the hash, and how many there are. */
static void npulink_agree_count(struct npulink_agree *agree)
{
	static const siphash_key_t key;
	u32 i;

	for (i = 0; i < agree->comm->nranks; i++) {
		struct npulink_place *place = &agree->places[agree->place_of[i]];

		agree->hash = siphash_2u64(agree->hash, agree->place_of[i], &key);
		if (!place->nranks++)
			place->first = i;
		if (!(i & 0xfff))
			cond_resched();
	}
}

/*
 * Machines by their ids, while it is found out which rank is where: users say these ids, and how
 * many there are, so none is looked for among all.
 * @heads: by hash, the place + 1 of the last one that has it, or 0; behind them our own one's
 * @next: the same of the one before
 * @at: what says where it is, NULL: it is our own
 */
struct npulink_place_table {
	siphash_key_t key;
	u32 nplaces;
	u32 heads[NPULINK_WIRE_PLACES + 1];
	u32 next[NPULINK_WIRE_PLACES];
	u32 nranks[NPULINK_WIRE_PLACES];
	const struct npulink_conn *at[NPULINK_WIRE_PLACES];
};

/* The place of one more rank, which is where @conn says, or with NULL, here. ~0U: too many. */
static u32 npulink_place_count(struct npulink_place_table *t, const struct npulink_conn *conn)
{
	u32 hash = NPULINK_WIRE_PLACES, at;

	if (conn)
		hash = siphash(conn->at.node, sizeof(conn->at.node), &t->key) %
		       NPULINK_WIRE_PLACES;
	for (at = t->heads[hash]; at; at = t->next[at - 1])
		if (!conn || !memcmp(t->at[at - 1]->at.node, conn->at.node, sizeof(conn->at.node)))
			break;
	if (!at) {
		if (t->nplaces == NPULINK_WIRE_PLACES)
			return ~0U;
		t->at[t->nplaces] = conn;
		t->next[t->nplaces] = t->heads[hash];
		at = ++t->nplaces;
		t->heads[hash] = at;
	}
	return t->nranks[at - 1]++ < NPULINK_WIRE_PLACES ? at - 1 : ~0U;
}

/* Find the place of each rank, as @rank was told. */
static int npulink_place_all(struct npulink_place_table *t, u32 *place_of, u32 nranks,
			     struct npulink_rank *rank)
{
	u32 i;

	get_random_bytes(&t->key, sizeof(t->key));
	for (i = 0; i < nranks; i++) {
		const struct npulink_conn *conn = xa_load(&rank->conns, i);

		place_of[i] = npulink_place_count(t, conn && conn->far ? conn : NULL);
		if (place_of[i] == ~0U)
			return -EOPNOTSUPP;
		if (i & 0xff)
			continue;
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* As @rank was told. */
static struct npulink_agree *npulink_agree_build(struct npulink_comm *comm,
						 struct npulink_rank *rank)
{
	struct npulink_agree *agree = NULL;
	struct npulink_place_table *t;
	int rc = -ENOMEM;
	u32 *place_of, i;

	place_of = kvmalloc_array(comm->nranks, sizeof(u32), GFP_KERNEL_ACCOUNT);
	t = kvzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);
	if (!place_of || !t)
		goto out;
	rc = npulink_place_all(t, place_of, comm->nranks, rank);
	if (rc)
		goto out;
	agree = npulink_agree_new(comm, t->nplaces);
	if (!agree) {
		rc = -ENOMEM;
		goto out;
	}
	memcpy(agree->place_of, place_of, comm->nranks * sizeof(u32));
	agree->self = place_of[rank->rank];
	agree->net = get_net(rank->net);
	for (i = 0; i < t->nplaces; i++)
		if (t->at[i])
			agree->places[i].at = t->at[i]->at;
	npulink_agree_count(agree);
out:
	kvfree(place_of);
	kvfree(t);
	return rc ? ERR_PTR(rc) : agree;
}

/* That of the communicator, made as @rank, a member of this machine, sees it. May sleep. */
struct npulink_agree *npulink_agree_get(struct npulink_comm *comm, struct npulink_rank *rank)
{
	/* Pairs with the store below. */
	struct npulink_agree *agree = smp_load_acquire(&comm->agree);

	if (agree)
		return agree;
	/* Of one that was shrunk, it was made with it. */
	if (WARN_ON_ONCE(comm->map || rank->comm != comm || !rank->net))
		return ERR_PTR(-EINVAL);
	agree = npulink_agree_build(comm, rank);
	if (IS_ERR(agree))
		return agree;
	mutex_lock(&comm->mutex);
	if (comm->agree) {
		npulink_agree_free(agree);
		agree = comm->agree;
	} else {
		/* Whoever sees it sees all of it. */
		smp_store_release(&comm->agree, agree);
	}
	mutex_unlock(&comm->mutex);
	return agree;
}

/* ---- what comes after ------------------------------------------------------------- */

/* The places of those who go on in @heir, whose ranks have been @map[]. */
struct npulink_agree *npulink_agree_inherit(struct npulink_agree *from, struct npulink_comm *heir,
					    const u32 *map)
{
	struct npulink_agree *agree;
	u32 *at, n = 0, i;

	at = kvmalloc_array(from->nplaces, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (!at)
		return NULL;
	/* Machines keep their order, since their ranks do; but the first ranks may have gone. */
	for (i = 0; i < from->nplaces; i++)
		at[i] = ~0U;
	for (i = 0; i < heir->nranks; i++)
		if (at[from->place_of[map[i]]] == ~0U)
			at[from->place_of[map[i]]] = n++;
	agree = npulink_agree_new(heir, n);
	if (!agree)
		goto out;
	for (i = 0; i < heir->nranks; i++)
		agree->place_of[i] = at[from->place_of[map[i]]];
	for (i = 0; i < from->nplaces; i++) {
		if (at[i] == ~0U)
			continue;
		agree->places[at[i]].at = from->places[i].at;
	}
	agree->self = at[from->self];
	agree->net = get_net(from->net);
	npulink_agree_count(agree);
out:
	kvfree(at);
	return agree;
}

/* Make the communicator of those who go on by what was agreed. The worker's. */
int npulink_agree_heir(struct npulink_agree *agree)
{
	const struct npulink_offer_of *offer = &agree->accepted;
	u32 *map, *seen, n = 0, i;
	u8 secret[16];
	int rc = -ENOMEM;

	map = kvmalloc_array(agree->comm->nranks, sizeof(u32), GFP_KERNEL_ACCOUNT);
	seen = kvcalloc(agree->nplaces, sizeof(u32), GFP_KERNEL_ACCOUNT);
	if (!map || !seen)
		goto out;
	for (i = 0; i < agree->comm->nranks; i++) {
		u32 at = agree->place_of[i], k = seen[at]++;

		if (npulink_has_place(offer->places, at) &&
		    npulink_has_place(agree->places[at].live, k))
			map[n++] = i;
		if (!(i & 0xfff))
			cond_resched();
	}
	npulink_heir_secret(agree, offer, secret);
	rc = npulink_comm_make_heir(agree->comm, secret, map, n);
	if (!rc)
		map = NULL;
	memzero_explicit(secret, sizeof(secret));
out:
	kvfree(map);
	kvfree(seen);
	return rc;
}

/* Tell a rank that goes on, as @old was told, where the others are. */
int npulink_agree_introduce(struct npulink_rank *rank, struct npulink_rank *old)
{
	const struct npulink_comm *comm = rank->comm;
	const struct npulink_agree *agree = comm->agree;
	int rc;
	u32 i;

	if (!agree)
		return 0;
	rc = npulink_port_use(rank->file, agree->net);
	if (rc)
		return rc;
	rank->net = get_net(agree->net);
	for (i = 0; i < comm->nranks; i++) {
		struct npulink_conn *was = xa_load(&old->conns, comm->map[i]), *conn;

		if (!was || !was->far)
			continue;
		conn = npulink_conn_get(rank, i, &was->at);
		if (IS_ERR(conn))
			return PTR_ERR(conn);
		if (!(i & 0xff))
			cond_resched();
	}
	return 0;
}
