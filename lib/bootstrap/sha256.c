// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sha256.c - SHA-256 (FIPS 180-4) and HMAC (RFC 2104), to authenticate the bootstrap.
 *
 * A hundred lines instead of a dependency: the kernel's own (AF_ALG) is often
 * switched off in containers, and a crypto library is larger than libcoll.
 * selftests/lib/bootstrap.c has the standards' test vectors.
 */
#include <endian.h>
#include <string.h>
#include "bootstrap/sha256.h"

static const uint32_t K[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5,
	0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
	0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
	0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void block(uint32_t state[8], const uint8_t *data)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++) {
		memcpy(&w[i], data + 4 * i, 4);
		w[i] = be32toh(w[i]);
	}
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + w[i - 7] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) +
		       (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
	}
	memcpy(v, state, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t t1 = v[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) +
			      ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
		uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) +
			      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		state[i] += v[i];
	/* It may have been a key. */
	explicit_bzero(w, sizeof(w));
	explicit_bzero(v, sizeof(v));
}

void coll_sha256_init(struct coll_sha256 *s)
{
	*s = (struct coll_sha256) {
		.state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
			   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 },
	};
}

void coll_sha256_add(struct coll_sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		size_t at = s->len % 64, n = len < 64 - at ? len : 64 - at;

		memcpy(s->block + at, p, n);
		s->len += n;
		p += n;
		len -= n;
		if (s->len % 64 == 0)
			block(s->state, s->block);
	}
}

void coll_sha256_end(struct coll_sha256 *s, uint8_t out[32])
{
	uint64_t bits = htobe64(s->len * 8);

	coll_sha256_add(s, "\x80", 1);
	while (s->len % 64 != 56)
		coll_sha256_add(s, "", 1);
	coll_sha256_add(s, &bits, sizeof(bits));
	for (int i = 0; i < 8; i++) {
		uint32_t word = htobe32(s->state[i]);

		memcpy(out + 4 * i, &word, 4);
	}
	explicit_bzero(s, sizeof(*s));
}

/* Then coll_sha256_add() to h->inner. */
void coll_hmac_init(struct coll_hmac *h, const void *key, size_t len)
{
	uint8_t inner[64] = { }, outer[64] = { };

	if (len > sizeof(inner)) {
		coll_sha256_init(&h->inner);
		coll_sha256_add(&h->inner, key, len);
		coll_sha256_end(&h->inner, inner);
	} else if (len) {
		memcpy(inner, key, len);
	}
	memcpy(outer, inner, sizeof(outer));
	for (int i = 0; i < 64; i++) {
		inner[i] ^= 0x36;
		outer[i] ^= 0x5c;
	}
	coll_sha256_init(&h->inner);
	coll_sha256_add(&h->inner, inner, sizeof(inner));
	coll_sha256_init(&h->outer);
	coll_sha256_add(&h->outer, outer, sizeof(outer));
	explicit_bzero(inner, sizeof(inner));
	explicit_bzero(outer, sizeof(outer));
}

void coll_hmac_end(struct coll_hmac *h, uint8_t out[32])
{
	uint8_t digest[32];

	coll_sha256_end(&h->inner, digest);
	coll_sha256_add(&h->outer, digest, sizeof(digest));
	coll_sha256_end(&h->outer, out);
	explicit_bzero(digest, sizeof(digest));
}
