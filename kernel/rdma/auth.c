// SPDX-License-Identifier: GPL-2.0
/*
 * auth.c - each side proves that it knows the communicator's secret, by a keyed hash of
 * what both have said, and over which connection; see npulink/wire.h.
 */
#include <crypto/algapi.h>
#include <crypto/blake2s.h>
#include <linux/random.h>
#include "rdma.h"

/* The library's functions need no module, no memory and no certain context. */
static void rdma_hash_begin(struct blake2s_state *state, const u8 *key, size_t len,
			    const char *label)
{
	blake2s_init_key(state, BLAKE2S_HASH_SIZE, key, len);
	blake2s_update(state, label, strlen(label) + 1);
}

/* A MAC of who speaks, which is who @calls or who is called, so far: over what all are. */
static void rdma_mac_begin(struct blake2s_state *state, const u8 *secret, bool calls,
			   const char *label, const struct npulink_wire_ends *ends,
			   const struct npulink_wire_hello *hello)
{
	u8 key[BLAKE2S_KEY_SIZE];

	rdma_hash_begin(state, secret, 16, "npulink key");
	blake2s_update(state, (const u8 *)(calls ? &hello->rank : &hello->peer), 4);
	blake2s_update(state, (const u8 *)(calls ? &hello->peer : &hello->rank), 4);
	blake2s_final(state, key);
	rdma_hash_begin(state, key, sizeof(key), label);
	memzero_explicit(key, sizeof(key));
	blake2s_update(state, (const u8 *)ends, sizeof(*ends));
}

static bool rdma_mac_is(const u8 *mac, const u8 *theirs, size_t len)
{
	return !crypto_memneq(mac, theirs, len);
}

void rdma_auth_tag(const u8 *secret, u8 *tag)
{
	struct blake2s_state state;
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_hash_begin(&state, secret, 16, "npulink tag");
	blake2s_final(&state, mac);
	memcpy(tag, mac, NPULINK_TAG_LEN);
}

/* What the connection of @id is between: queue pair @qp of who calls, and who is called. */
void rdma_auth_ends(struct npulink_wire_ends *ends, struct rdma_cm_id *id, bool caller, u32 qp)
{
	union ib_gid ours, theirs;

	rdma_read_gids(id, &ours, &theirs);
	memcpy(ends->caller, caller ? &ours : &theirs, sizeof(ends->caller));
	memcpy(ends->called, caller ? &theirs : &ours, sizeof(ends->called));
	ends->caller_qp = cpu_to_le32(qp);
	ends->called_qp = 0;
}

/* ---- the hello --------------------------------------------------------------------------- */

static void rdma_hello_mac(const u8 *secret, const struct npulink_wire_ends *ends,
			   const struct npulink_wire_hello *hello, u8 *mac)
{
	struct blake2s_state state;

	rdma_mac_begin(&state, secret, true, "npulink hello", ends, hello);
	blake2s_update(&state, (const u8 *)hello, offsetof(struct npulink_wire_hello, mac));
	blake2s_final(&state, mac);
}

/* Each is later than all before, whoever calls. */
static u64 rdma_hello_when(void)
{
	static DEFINE_SPINLOCK(lock);
	static u64 last;
	u64 now;

	spin_lock(&lock);
	last = max_t(u64, last + 1, ktime_get_ns());
	now = last;
	spin_unlock(&lock);
	return now;
}

/* What the caller says first. */
void rdma_auth_hello(const struct rdma_conn *conn, const struct npulink_wire_ends *ends, u16 flags,
		     struct npulink_wire_hello *hello)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	*hello = (struct npulink_wire_hello) {
		.magic = cpu_to_le32(NPULINK_WIRE_MAGIC),
		.version = cpu_to_le16(NPULINK_WIRE_VERSION),
		.flags = cpu_to_le16(flags | (conn->put->checksum ? NPULINK_WIRE_CHECKSUM : 0)),
		.rank = cpu_to_le32(conn->put->rank),
		.peer = cpu_to_le32(conn->put->peer),
		.when = cpu_to_le64(rdma_hello_when()),
	};
	memcpy(hello->tag, conn->put->tag, NPULINK_TAG_LEN);
	get_random_bytes(hello->nonce, sizeof(hello->nonce));
	rdma_hello_mac(conn->put->secret, ends, hello, mac);
	memcpy(hello->mac, mac, sizeof(hello->mac));
}

/* Do we speak the same version? */
bool rdma_auth_version(const struct npulink_wire_hello *hello)
{
	return le32_to_cpu(hello->magic) == NPULINK_WIRE_MAGIC &&
	       le16_to_cpu(hello->version) == NPULINK_WIRE_VERSION;
}

/* Is @conn what the caller wants? Or what it knocks for. */
bool rdma_auth_means(const struct rdma_conn *conn, const struct npulink_wire_hello *hello)
{
	u16 flags = le16_to_cpu(hello->flags);

	if (flags & NPULINK_WIRE_KNOCK)
		flags &= ~(NPULINK_WIRE_KNOCK | NPULINK_WIRE_LOST);
	return le32_to_cpu(hello->rank) == conn->put->peer &&
	       le32_to_cpu(hello->peer) == conn->put->rank &&
	       flags == (conn->put->checksum ? NPULINK_WIRE_CHECKSUM : 0) &&
	       !crypto_memneq(hello->tag, conn->put->tag, NPULINK_TAG_LEN);
}

/* The tag has gone over the wire in clear: does the caller know the secret? */
bool rdma_auth_check_hello(const u8 *secret, const struct npulink_wire_ends *ends,
			   const struct npulink_wire_hello *hello)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_hello_mac(secret, ends, hello, mac);
	return rdma_mac_is(mac, hello->mac, sizeof(hello->mac));
}

/* ---- the answer -------------------------------------------------------------------------- */

static void rdma_welcome_mac(const struct rdma_lane *lane, u8 *mac)
{
	struct blake2s_state state;

	rdma_mac_begin(&state, lane->conn->put->secret, false, "npulink welcome", &lane->ends,
		       &lane->hello);
	blake2s_update(&state, (const u8 *)&lane->hello, sizeof(lane->hello));
	blake2s_update(&state, (const u8 *)&lane->welcome,
		       offsetof(struct npulink_wire_welcome, mac));
	blake2s_final(&state, mac);
}

/* The answer to lane->hello. */
void rdma_auth_welcome(struct rdma_lane *lane)
{
	lane->welcome = (struct npulink_wire_welcome) {
		.magic = cpu_to_le32(NPULINK_WIRE_MAGIC),
		.version = cpu_to_le16(NPULINK_WIRE_VERSION),
	};
	get_random_bytes(lane->welcome.nonce, sizeof(lane->welcome.nonce));
	rdma_welcome_mac(lane, lane->welcome.mac);
}

bool rdma_auth_check_welcome(const struct rdma_lane *lane)
{
	const struct npulink_wire_welcome *w = &lane->welcome;
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_welcome_mac(lane, mac);
	return le32_to_cpu(w->magic) == NPULINK_WIRE_MAGIC &&
	       le16_to_cpu(w->version) == NPULINK_WIRE_VERSION && !w->reserved &&
	       rdma_mac_is(mac, w->mac, sizeof(w->mac));
}

static void rdma_refusal_mac(const u8 *secret, const struct npulink_wire_ends *ends,
			     const struct npulink_wire_hello *hello,
			     const struct npulink_wire_refusal *refusal, u8 *mac)
{
	struct blake2s_state state;

	rdma_mac_begin(&state, secret, false, "npulink refusal", ends, hello);
	blake2s_update(&state, (const u8 *)hello, sizeof(*hello));
	blake2s_update(&state, (const u8 *)refusal, offsetof(struct npulink_wire_refusal, mac));
	blake2s_final(&state, mac);
}

void rdma_auth_refusal(const u8 *secret, const struct npulink_wire_ends *ends,
		       const struct npulink_wire_hello *hello,
		       struct npulink_wire_refusal *refusal)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_refusal_mac(secret, ends, hello, refusal, mac);
	memcpy(refusal->mac, mac, sizeof(refusal->mac));
}

bool rdma_auth_check_refusal(const u8 *secret, const struct npulink_wire_ends *ends,
			     const struct npulink_wire_hello *hello,
			     const struct npulink_wire_refusal *refusal)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_refusal_mac(secret, ends, hello, refusal, mac);
	return rdma_mac_is(mac, refusal->mac, sizeof(refusal->mac));
}

/* ---- the first messages ------------------------------------------------------------------ */

static void rdma_auth_mac(const struct rdma_lane *lane, bool caller,
			  const struct npulink_wire_place *place, u8 *mac)
{
	struct blake2s_state state;

	rdma_mac_begin(&state, lane->conn->put->secret, caller,
		       caller ? "npulink auth" : "npulink ready", &lane->ends, &lane->hello);
	blake2s_update(&state, (const u8 *)&lane->hello, sizeof(lane->hello));
	blake2s_update(&state, (const u8 *)&lane->welcome,
		       offsetof(struct npulink_wire_welcome, mac));
	blake2s_update(&state, (const u8 *)place, sizeof(*place));
	blake2s_final(&state, mac);
}

/* Our own proof, over auth->place. */
void rdma_auth_make(const struct rdma_lane *lane, struct npulink_wire_auth *auth)
{
	rdma_auth_mac(lane, lane->conn->active, &auth->place, auth->mac);
}

/* The other one's. */
bool rdma_auth_check(const struct rdma_lane *lane, const struct npulink_wire_auth *auth)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_auth_mac(lane, !lane->conn->active, &auth->place, mac);
	return rdma_mac_is(mac, auth->mac, sizeof(mac)) && !auth->place.reserved;
}
