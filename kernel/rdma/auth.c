// SPDX-License-Identifier: GPL-2.0
/*
 * auth.c - each side proves that it knows the communicator's secret, by a keyed hash of
 * what both have said; see npulink/wire.h.
 */
#include <crypto/algapi.h>
#include <crypto/blake2s.h>
#include <linux/random.h>
#include "rdma.h"

/* The library's function needs no module, no memory and no certain context. */
static void rdma_mac(const u8 *secret, const char *label, const struct rdma_lane *lane,
		     const struct npulink_wire_place *place, u8 *mac)
{
	struct blake2s_state state;

	blake2s_init_key(&state, BLAKE2S_HASH_SIZE, secret, 16);
	blake2s_update(&state, label, strlen(label) + 1);
	if (lane) {
		blake2s_update(&state, (const u8 *)&lane->hello, sizeof(lane->hello));
		blake2s_update(&state, (const u8 *)&lane->welcome,
			       offsetof(struct npulink_wire_welcome, mac));
	}
	if (place)
		blake2s_update(&state, (const u8 *)place, sizeof(*place));
	blake2s_final(&state, mac);
}

void rdma_auth_tag(const u8 *secret, u8 *tag)
{
	u8 mac[BLAKE2S_HASH_SIZE];

	rdma_mac(secret, "npulink tag", NULL, NULL, mac);
	memcpy(tag, mac, NPULINK_TAG_LEN);
}

/* What the caller says first. */
void rdma_auth_hello(const struct rdma_conn *conn, struct npulink_wire_hello *hello)
{
	*hello = (struct npulink_wire_hello) {
		.magic = cpu_to_le32(NPULINK_WIRE_MAGIC),
		.version = cpu_to_le16(NPULINK_WIRE_VERSION),
		.credits = cpu_to_le16(NPULINK_WIRE_CREDITS),
		.rank = cpu_to_le32(conn->put->rank),
		.peer = cpu_to_le32(conn->put->peer),
		.chunk = cpu_to_le32(NPULINK_WIRE_CHUNK),
		.slot = cpu_to_le32(NPULINK_WIRE_SLOT),
		.flags = cpu_to_le32(conn->put->checksum ? NPULINK_WIRE_CHECKSUM : 0),
	};
	memcpy(hello->tag, conn->put->tag, NPULINK_TAG_LEN);
	get_random_bytes(hello->nonce, sizeof(hello->nonce));
}

/* Do we speak the same version, with the same limits? */
bool rdma_auth_limits(const struct npulink_wire_hello *hello)
{
	return le32_to_cpu(hello->magic) == NPULINK_WIRE_MAGIC &&
	       le16_to_cpu(hello->version) == NPULINK_WIRE_VERSION &&
	       le16_to_cpu(hello->credits) == NPULINK_WIRE_CREDITS &&
	       le32_to_cpu(hello->chunk) == NPULINK_WIRE_CHUNK &&
	       le32_to_cpu(hello->slot) == NPULINK_WIRE_SLOT;
}

/* Is @conn what the caller wants? Or what it knocks for. */
bool rdma_auth_check_hello(const struct rdma_conn *conn, const struct npulink_wire_hello *hello)
{
	u32 flags = le32_to_cpu(hello->flags);

	if (flags & NPULINK_WIRE_KNOCK)
		flags &= ~(NPULINK_WIRE_KNOCK | NPULINK_WIRE_LOST);
	return le32_to_cpu(hello->rank) == conn->put->peer &&
	       le32_to_cpu(hello->peer) == conn->put->rank &&
	       flags == (conn->put->checksum ? NPULINK_WIRE_CHECKSUM : 0) &&
	       !crypto_memneq(hello->tag, conn->put->tag, NPULINK_TAG_LEN);
}

/* The answer to lane->hello. */
void rdma_auth_welcome(struct rdma_lane *lane)
{
	lane->welcome = (struct npulink_wire_welcome) {
		.magic = cpu_to_le32(NPULINK_WIRE_MAGIC),
		.version = cpu_to_le16(NPULINK_WIRE_VERSION),
		.credits = cpu_to_le16(NPULINK_WIRE_CREDITS),
		.chunk = cpu_to_le32(NPULINK_WIRE_CHUNK),
		.slot = cpu_to_le32(NPULINK_WIRE_SLOT),
	};
	get_random_bytes(lane->welcome.nonce, sizeof(lane->welcome.nonce));
	rdma_mac(lane->conn->put->secret, "npulink welcome", lane, NULL, lane->welcome.mac);
}

bool rdma_auth_check_welcome(const struct rdma_lane *lane)
{
	const struct npulink_wire_welcome *w = &lane->welcome;
	u8 mac[32];

	rdma_mac(lane->conn->put->secret, "npulink welcome", lane, NULL, mac);
	return le32_to_cpu(w->magic) == NPULINK_WIRE_MAGIC &&
	       le16_to_cpu(w->version) == NPULINK_WIRE_VERSION &&
	       le16_to_cpu(w->credits) == NPULINK_WIRE_CREDITS &&
	       le32_to_cpu(w->chunk) == NPULINK_WIRE_CHUNK &&
	       le32_to_cpu(w->slot) == NPULINK_WIRE_SLOT &&
	       !crypto_memneq(mac, w->mac, sizeof(mac));
}

static const char *rdma_auth_label(bool caller)
{
	return caller ? "npulink auth" : "npulink ready";
}

/* Our own proof, over auth->place. */
void rdma_auth_make(const struct rdma_lane *lane, struct npulink_wire_auth *auth)
{
	rdma_mac(lane->conn->put->secret, rdma_auth_label(lane->conn->active), lane, &auth->place,
		 auth->mac);
}

/* The other one's. */
bool rdma_auth_check(const struct rdma_lane *lane, const struct npulink_wire_auth *auth)
{
	u8 mac[32];

	rdma_mac(lane->conn->put->secret, rdma_auth_label(!lane->conn->active), lane,
		 &auth->place, mac);
	return !crypto_memneq(mac, auth->mac, sizeof(mac)) && !auth->place.reserved;
}
