/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sha256.h - SHA-256 and HMAC.
 */
#ifndef COLL_BOOTSTRAP_SHA256_H
#define COLL_BOOTSTRAP_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct coll_sha256 {
	uint32_t state[8];
	uint64_t len;
	uint8_t block[64];
};

void coll_sha256_init(struct coll_sha256 *s);
void coll_sha256_add(struct coll_sha256 *s, const void *data, size_t len);
void coll_sha256_end(struct coll_sha256 *s, uint8_t out[32]);

struct coll_hmac {
	struct coll_sha256 inner, outer;
};

void coll_hmac_init(struct coll_hmac *h, const void *key, size_t len);
void coll_hmac_end(struct coll_hmac *h, uint8_t out[32]);

#endif /* COLL_BOOTSTRAP_SHA256_H */
