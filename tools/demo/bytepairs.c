// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * bytepairs.c - an example of libcoll: which two bytes follow each other most
 * often in a lot of files?
 *
 * Every process counts its share of the bytes into 65,536 counters, one allreduce
 * adds them up, and all processes know the answer. Processes find each other by
 * what started them: torchrun, mpirun, srun --mpi=pmix, or somebody who sets RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT. With -1 one process does everything by
 * itself, to compare with.
 */
#include <coll.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAIRS	65536
#define CHUNK	(1 << 20)

struct file {
	char *path;
	uint64_t first;		/* number of its first byte, all files taken together */
	uint64_t len;
};

struct files {
	struct file *list;
	size_t n;
	uint64_t len;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool is_module(const char *name)
{
	const char *dot = strstr(name, ".ko");

	return dot && (!dot[3] || dot[3] == '.');
}

/* Kernel modules below @paths, in the same order everywhere, up to @limit bytes. */
static int find_files(char **paths, uint64_t limit, struct files *files)
{
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	FTSENT *entry;

	if (!fts)
		return -errno;
	while (files->len < limit && (entry = fts_read(fts))) {
		struct file *file;

		if (entry->fts_info != FTS_F || !is_module(entry->fts_name))
			continue;
		file = reallocarray(files->list, files->n + 1, sizeof(*file));
		if (!file)
			return -ENOMEM;
		files->list = file;
		file += files->n++;
		file->path = strdup(entry->fts_path);
		if (!file->path)
			return -ENOMEM;
		file->first = files->len;
		file->len = entry->fts_statp->st_size;
		files->len += file->len;
	}
	fts_close(fts);
	return 0;
}

/* Count the pairs that begin at bytes @from .. @to - 1 of a file. */
static int count_range(const struct file *file, uint64_t from, uint64_t to, int64_t *counts)
{
	static unsigned char buf[CHUNK + 1];
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (from < to) {
		/* One byte more than begins a pair here. */
		uint64_t want = to - from < CHUNK ? to - from : CHUNK;
		ssize_t n = pread(fd, buf, want + 1, from);

		if (n < 0) {
			int rc = -errno;

			close(fd);
			return rc;
		}
		for (ssize_t i = 0; i + 1 < n; i++)
			counts[buf[i] << 8 | buf[i + 1]]++;
		if ((uint64_t)n <= want)
			break;
		from += want;
	}
	close(fd);
	return 0;
}

/* Count the share of @rank: an equal part of all bytes. */
static int count_share(const struct files *files, unsigned int rank, unsigned int nranks,
		       int64_t *counts)
{
	uint64_t begin = files->len / nranks * rank;
	uint64_t end = rank + 1 == nranks ? files->len : files->len / nranks * (rank + 1);

	for (size_t i = 0; i < files->n; i++) {
		const struct file *file = &files->list[i];
		uint64_t from = begin > file->first ? begin - file->first : 0;
		uint64_t to = end < file->first + file->len ? end - file->first : file->len;
		int rc;

		if (end <= file->first || begin >= file->first + file->len)
			continue;
		rc = count_range(file, from, to, counts);
		if (rc) {
			fprintf(stderr, "bytepairs: %s: %s\n", file->path, strerror(-rc));
			return rc;
		}
	}
	return 0;
}

static void print_byte(unsigned int byte)
{
	if (byte > ' ' && byte < 127)
		printf("'%c' ", byte);
	else
		printf("%02x  ", byte);
}

static void print_top(const int64_t *counts, unsigned int n)
{
	static bool shown[PAIRS];

	printf("   most frequent pairs:\n");
	for (unsigned int i = 0; i < n; i++) {
		unsigned int best = 0;

		for (unsigned int pair = 0; pair < PAIRS; pair++)
			if (!shown[pair] && (shown[best] || counts[pair] > counts[best]))
				best = pair;
		shown[best] = true;
		printf("   %12" PRId64 "  ", counts[best]);
		print_byte(best >> 8);
		print_byte(best & 0xff);
		putchar('\n');
	}
}

static int write_counts(const char *path, const int64_t *counts)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return -errno;
	fwrite(counts, sizeof(*counts), PAIRS, file);
	return fclose(file) ? -errno : 0;
}

static int run(struct coll_comm *comm, const struct files *files, const char *output)
{
	unsigned int rank = comm ? coll_comm_rank(comm) : 0;
	unsigned int nranks = comm ? coll_comm_size(comm) : 1;
	int64_t *counts = calloc(PAIRS, sizeof(*counts)), total = 0, expected = 0;
	double start = now(), counted, added;
	int rc;

	if (!counts)
		return -ENOMEM;
	rc = count_share(files, rank, nranks, counts);
	if (rc)
		return rc;
	counted = now();
	if (comm) {
		rc = coll_allreduce(comm, COLL_IN_PLACE, counts, PAIRS, COLL_INT64, COLL_SUM);
		if (rc) {
			fprintf(stderr, "bytepairs: rank %u: %s\n", rank,
				coll_comm_last_error(comm));
			return rc;
		}
	}
	added = now();

	for (unsigned int pair = 0; pair < PAIRS; pair++)
		total += counts[pair];
	for (size_t i = 0; i < files->n; i++)
		expected += files->list[i].len ? files->list[i].len - 1 : 0;
	if (total != expected) {
		fprintf(stderr, "bytepairs: rank %u: %" PRId64 " pairs instead of %" PRId64 "\n",
			rank, total, expected);
		return -EPROTO;
	}
	if (rank)
		return 0;
	printf("   %u process%s: %zu files, %" PRIu64 " bytes, %" PRId64 " pairs\n", nranks,
	       nranks > 1 ? "es" : "", files->n, files->len, total);
	if (comm) {
		printf("   counted in %.2f s, waited for the others and added up in %.3f s\n",
		       counted - start, added - counted);
		print_top(counts, 10);
	} else {
		printf("   counted in %.2f s\n", counted - start);
	}
	rc = output ? write_counts(output, counts) : 0;
	if (rc)
		fprintf(stderr, "bytepairs: %s: %s\n", output, strerror(-rc));
	free(counts);
	return rc;
}

int main(int argc, char **argv)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *comm = NULL;
	const char *output = NULL;
	struct files files = { };
	uint64_t limit = 64 << 20;
	char text[400] = "";
	bool alone = false;
	int c, rc;

	while ((c = getopt(argc, argv, "1m:o:")) != -1) {
		switch (c) {
		case '1':
			alone = true;
			break;
		case 'm':
			limit = strtoull(optarg, NULL, 0) << 20;
			break;
		case 'o':
			output = optarg;
			break;
		default:
			optind = argc;
		}
	}
	if (optind >= argc) {
		fprintf(stderr, "Usage: bytepairs [-1] [-m MEGABYTES] [-o FILE] DIRECTORY...\n");
		return 2;
	}
	rc = find_files(argv + optind, limit, &files);
	if (rc || !files.n) {
		fprintf(stderr, "bytepairs: %s\n", rc ? strerror(-rc) : "found no kernel modules");
		return EXIT_FAILURE;
	}
	if (!alone) {
		config.error_text = text;
		config.error_size = sizeof(text);
		rc = coll_comm_init_env(&comm, &config);
		if (rc) {
			fprintf(stderr, "bytepairs: %s\n", *text ? text : coll_strerror(rc));
			return EXIT_FAILURE;
		}
	}
	rc = run(comm, &files, output);
	coll_comm_destroy(comm);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
