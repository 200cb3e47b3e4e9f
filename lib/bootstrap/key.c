// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * key.c - the key that the ranks of a job share: 32 bytes, made of what COLL_KEY or
 * COLL_KEY_FILE has.
 *
 * Whoever answers at rank 0's port, or listens on the way to it, can try keys at home. That is
 * hopeless for a file of random bytes; of a text that somebody made up, each try costs what
 * Argon2 costs (RFC 9106; 19 MiB, two passes). The library for that is opened when there is
 * such a text: programs whose ranks are on one machine do without.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/sha256.h"

#define LIBRARY		"libargon2.so.1"
#define PASSES		2
#define KIBIBYTES	19456
#define FILE_MIN	COLL_KEY_LEN
#define FILE_MAX	4096

static void hash(const char *what, const void *data, size_t len, uint8_t out[COLL_KEY_LEN])
{
	struct coll_sha256 s;

	coll_sha256_init(&s);
	coll_sha256_add(&s, what, strlen(what) + 1);
	coll_sha256_add(&s, data, len);
	coll_sha256_end(&s, out);
}

/* Random bytes need no more than to be of one length. */
void coll_key_of(const void *random, size_t len, uint8_t key[COLL_KEY_LEN])
{
	hash("npulink random key", random, len, key);
}

static int stretch(struct coll_bootstrap *b, const char *text, const uint8_t salt[COLL_KEY_LEN],
		   uint8_t key[COLL_KEY_LEN])
{
	int (*argon2)(uint32_t passes, uint32_t kibibytes, uint32_t lanes, const void *text,
		      size_t len, const void *salt, size_t salt_len, void *out, size_t out_len);
	void *library = dlopen(LIBRARY, RTLD_NOW);
	int rc = -ELIBACC;

	*(void **)&argon2 = library ? dlsym(library, "argon2id_hash_raw") : NULL;
	if (!argon2)
		coll_text(b->text, sizeof(b->text), rc,
			  "COLL_KEY needs " LIBRARY ", which cannot be used (%s): install libargon2-1, or put 32 random bytes into a COLL_KEY_FILE",
			  dlerror());
	else if (argon2(PASSES, KIBIBYTES, 1, text, strlen(text), salt, COLL_KEY_LEN, key,
			COLL_KEY_LEN))
		rc = coll_text(b->text, sizeof(b->text), -ENOMEM,
			       "COLL_KEY: no memory for Argon2, which needs 19 MiB for a moment");
	else
		rc = 0;
	if (library)
		dlclose(library);
	return rc;
}

/* Once in each process, as long as text and port stay the same. */
static int from_text(struct coll_bootstrap *b, const char *text, uint8_t key[COLL_KEY_LEN])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint8_t last[COLL_KEY_LEN], last_key[COLL_KEY_LEN];
	static bool known;
	uint8_t salt[COLL_KEY_LEN], id[COLL_KEY_LEN];
	struct coll_hmac h;
	int rc = 0;

	hash("npulink COLL_KEY", &b->port, sizeof(b->port), salt);
	coll_hmac_init(&h, salt, sizeof(salt));
	coll_sha256_add(&h.inner, text, strlen(text));
	coll_hmac_end(&h, id);
	pthread_mutex_lock(&lock);
	if (!known || memcmp(id, last, sizeof(id))) {
		rc = stretch(b, text, salt, last_key);
		known = !rc;
		memcpy(last, id, sizeof(id));
	}
	if (known)
		memcpy(key, last_key, sizeof(last_key));
	pthread_mutex_unlock(&lock);
	explicit_bzero(id, sizeof(id));
	return rc;
}

static int from_file(struct coll_bootstrap *b, const char *path, uint8_t key[COLL_KEY_LEN])
{
	char *text = b->text;
	size_t size = sizeof(b->text);
	uint8_t data[FILE_MAX + 1];
	struct stat st;
	ssize_t n = 0;
	int rc = 0, fd;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st))
		rc = coll_text(text, size, -errno, "COLL_KEY_FILE=\"%s\": %s", path,
			       strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = coll_text(text, size, -EINVAL, "COLL_KEY_FILE=\"%s\" is no regular file",
			       path);
	else if (st.st_uid != geteuid())
		rc = coll_text(text, size, -EACCES,
			       "COLL_KEY_FILE=\"%s\" belongs to user %u, and not to the one who runs this: chown it",
			       path, st.st_uid);
	else if (st.st_mode & 077)
		rc = coll_text(text, size, -EACCES,
			       "COLL_KEY_FILE=\"%s\" has mode %04o, so others may get to know the key: chmod it to 0600",
			       path, st.st_mode & 07777);
	if (!rc) {
		n = read(fd, data, sizeof(data));
		if (n < 0)
			rc = coll_text(text, size, -errno, "COLL_KEY_FILE=\"%s\": %s", path,
				       strerror(errno));
		else if (n < FILE_MIN || n > FILE_MAX)
			rc = coll_text(text, size, -EINVAL,
				       "COLL_KEY_FILE=\"%s\" has %s bytes than %d: make it with head -c 32 /dev/urandom",
				       path, n < FILE_MIN ? "less" : "more",
				       n < FILE_MIN ? FILE_MIN : FILE_MAX);
	}
	if (!rc)
		coll_key_of(data, n, key);
	explicit_bzero(data, sizeof(data));
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Makes @key that of @b, if the environment says one. */
int coll_key_read(struct coll_bootstrap *b, uint8_t key[COLL_KEY_LEN])
{
	const char *text = secure_getenv("COLL_KEY"), *path = secure_getenv("COLL_KEY_FILE");
	bool file = path && *path;
	int rc;

	b->key_is = file ? "COLL_KEY_FILE" : "COLL_KEY";
	if (!text || !*text)
		text = NULL;
	if (text && file)
		return coll_text(b->text, sizeof(b->text), -EINVAL,
				 "COLL_KEY and COLL_KEY_FILE are both set: set one of them");
	b->no_key = text && !strcmp(text, "none");
	if ((!text && !file) || b->no_key)
		return 0;
	rc = file ? from_file(b, path, key) : from_text(b, text, key);
	if (!rc)
		b->key = key;
	return rc;
}
