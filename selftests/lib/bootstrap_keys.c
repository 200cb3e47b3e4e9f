// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bootstrap_keys.c - the key by which ranks know each other, where it comes from, and what it is
 * made with: FIPS 180-4's and RFC 4231's examples.
 *
 * npulink-test: timeout=240
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "bootstrap_ranks.h"
#include "lib/bootstrap/sha256.h"

static bool is_hex(const uint8_t digest[32], const char *hex)
{
	char text[65];

	for (int i = 0; i < 32; i++)
		sprintf(text + 2 * i, "%02x", digest[i]);
	return !strcmp(text, hex);
}

static void test_sha256(void)
{
	struct coll_sha256 s;
	struct coll_hmac h;
	uint8_t digest[32], key[131];
	bool ok;

	coll_sha256_init(&s);
	coll_sha256_add(&s, "abc", 3);
	coll_sha256_end(&s, digest);
	ok = is_hex(digest,
		    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ksft_test_result(ok, "sha256\n");
	coll_sha256_init(&s);
	for (int i = 0; i < 1000000; i += 100)
		for (int k = 0; k < 4; k++)
			coll_sha256_add(&s, "aaaaaaaaaaaaaaaaaaaaaaaaa", 25);
	coll_sha256_end(&s, digest);
	ok = is_hex(digest,
		    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	ksft_test_result(ok, "sha256 of a million\n");
	coll_hmac_init(&h, "Jefe", 4);
	coll_sha256_add(&h.inner, "what do ya want for nothing?", 28);
	coll_hmac_end(&h, digest);
	ok = is_hex(digest,
		    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	ksft_test_result(ok, "hmac\n");
	memset(key, 0xaa, sizeof(key));
	coll_hmac_init(&h, key, sizeof(key));
	coll_sha256_add(&h.inner, "Test Using Larger Than Block-Size Key - Hash Key First", 54);
	coll_hmac_end(&h, digest);
	ok = is_hex(digest,
		    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
	ksft_test_result(ok, "hmac with a long key\n");
}

/* Does rank 0 of two, with this file or text, or both, say this? */
static bool key_says(const char *file, const char *key, int rc, const char *words)
{
	static char env[100];

	clean();
	scratch_env[0][0] = "MASTER_ADDR=192.0.2.77";
	snprintf(env, sizeof(env), "COLL_KEY_FILE=%s", file);
	scratch_env[0][1] = env;
	scratch_env[0][2] = key;
	waitpid(start(0, 2), NULL, 0);
	return said(0, rc, words);
}

static void test_keys(void)
{
	/* As Argon2's own library makes it. */
	static const char known[] =
		"1586d81be0e7fbe33bfc742d721e82a78edc798aba03ab29e522b46a386e35cd";
	struct coll_bootstrap b = { .port = 29501 };
	uint8_t random[4097] = "not as random as it should be";
	uint8_t key[COLL_KEY_LEN], *first = key;
	char file[64], env[100];
	bool ok;
	FILE *f;

	setenv("COLL_KEY", "correct horse battery staple", 1);
	ok = !coll_key_read(&b, key) && b.key == first && is_hex(key, known);
	unsetenv("COLL_KEY");
	ksft_test_result(ok, "a text is stretched (%s)\n", b.text);
	ksft_test_result(key_says("", "COLL_KEY=", -ENOKEY,
				  "set COLL_KEY to the same secret text") &&
			 key_says("/", "COLL_KEY=a", -EINVAL, "are both set"),
			 "no key between machines, or two\n");
	snprintf(file, sizeof(file), "/tmp/npulink-key-%d", getpid());
	f = fopen(file, "we");
	if (!f || fwrite(random, 1, 31, f) != 31 || fflush(f) || chmod(file, 0600))
		abort();
	ok = key_says(file, NULL, -EINVAL, "less bytes than 32");
	if (fwrite(random, 1, sizeof(random) - 31, f) != sizeof(random) - 31 || fflush(f))
		abort();
	ok = ok && key_says(file, NULL, -EINVAL, "more bytes than 4096");
	if (ftruncate(fileno(f), 32) || chmod(file, 0640))
		abort();
	ok = ok && key_says(file, NULL, -EACCES, "has mode 0640");
	ok = ok && key_says("/tmp", NULL, -EINVAL, "no regular file");
	ok = ok && key_says("/nonexistent/key", NULL, -ENOENT, "No such file");
	ok = ok && !chmod(file, 0600);
	if (ok && !geteuid())
		ok = !chown(file, 65534, 65534) &&
		     key_says(file, NULL, -EACCES, "belongs to user 65534") && !chown(file, 0, 0);
	ksft_test_result(ok, "key files that are none, or others' too\n");
	clean();
	snprintf(env, sizeof(env), "COLL_KEY_FILE=%s", file);
	for (int i = 0; i < 3; i++)
		scratch_env[i][0] = env;
	ksft_test_result(!run(3, false) && same_secrets(3), "by a key file\n");
	fclose(f);
	unlink(file);
}

int main(void)
{
	ranks_begin();
	ksft_set_plan(4 + 4);
	test_sha256();
	test_keys();
	ksft_finished();
}
