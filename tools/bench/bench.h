/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bench.h - the parts of npulink bench: bench.c (options), run.c (starts and
 * watches the ranks), rank.c (what one rank does), data.c (what it
 * sends and expects), report.c (table and JSON).
 */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <coll.h>
#include <json-c/json.h>
#include "cli/peers_join.h"

#define BENCH_SENDRECV	100	/* not one of NPULINK_COLL_*: a ring of send and recv */
#define BENCH_MAX_RANKS	4096

/**
 * struct bench_coll - a collective, as nccl-tests measures it
 * @name: on the command line
 * @id: NPULINK_COLL_*, or BENCH_SENDRECV
 * @reduces: has an operation
 * @rooted: has a root
 * @shards: the size is that of all ranks' shards together
 * @in_place: has an in-place form
 * @factor: bus bandwidth = factor * algorithm bandwidth, for n ranks
 */
struct bench_coll {
	const char *name;
	uint32_t id;
	bool reduces, rooted, shards, in_place;
	double (*factor)(double n);
};

/* One line of the table. */
struct bench_row {
	uint64_t bytes;		/* as printed */
	uint64_t count;		/* elements, as given to libcoll */
};

/* What is measured; constant once the ranks run. */
struct bench {
	const struct bench_coll *coll;
	uint64_t min_bytes, max_bytes, step_bytes, step_factor;
	uint32_t iters, warmup, check;
	bool per_iter;
	bool device;		/* buffers in the memory of the devices */
	enum coll_dtype dtype;
	enum coll_op op;
	uint32_t root, nranks;
	uint32_t nnodes, node;	/* machines, and which of them this is */
	uint32_t first, local;	/* its ranks */
	struct meeting at;	/* with several: where node 0 is */
	const char *algorithm;
	const char *override;	/* the same, as libcoll wants it */
	double timeout;		/* seconds for one operation, negative: libcoll's default */
	const char *json_path;
	struct bench_row *rows;
	uint32_t nrows;
	uint32_t *devices;	/* device of each rank of this machine */
};

/* out of place, in place */
#define BENCH_MODES	2

/* What libcoll chose for a row, as rank 0 sees it; equal on all ranks. */
struct bench_choice {
	char algorithm[32];
	double predicted;	/* seconds, 0 if unknown */
};

/* One rank's result of one mode of one row. */
struct bench_result {
	double seconds;		/* of one operation, mean */
	uint64_t wrong;
};

/* Who a rank is; all machines get that of all. */
struct bench_who {
	int32_t pid;
	uint32_t device;
	char host[64];
	char engine[32];
	char backend[16];
};

/* What the parent knows of a rank; in shared memory. */
struct bench_rank {
	struct bench_who who;
	pid_t pid;		/* of a rank of this machine */
	bool failed;		/* error and where are valid */
	int error;
	uint32_t row, mode;
	char text[400];
};

/* Shared by all processes. Choices, results and times follow it. */
struct bench_shared {
	struct coll_unique_id id;
	atomic_uint arrived, round, stop;	/* barrier */
	struct bench_rank ranks[BENCH_MAX_RANKS];
};

struct bench_map {
	struct bench_shared *shared;
	struct bench_choice *choices;	/* [row] */
	struct bench_result *results;	/* [row][mode][rank] */
	double *times;			/* [row][mode][rank][iter], with per_iter */
};

static inline struct bench_result *bench_result(const struct bench *b, const struct bench_map *map,
						uint32_t row, uint32_t mode, uint32_t rank)
{
	return &map->results[((size_t)row * BENCH_MODES + mode) * b->nranks + rank];
}

static inline double *bench_times(const struct bench *b, const struct bench_map *map,
				  uint32_t row, uint32_t mode, uint32_t rank)
{
	size_t index = ((size_t)row * BENCH_MODES + mode) * b->nranks + rank;

	return map->times ? &map->times[index * b->iters] : NULL;
}

/* The parent's side of a running benchmark. */
struct bench_run {
	const struct bench *b;
	struct bench_map map;
	struct pollfd *fds;	/* [0] the pipe, [1 + i] pidfds of this machine's ranks */
	uint32_t alive;
	uint32_t nfailed;
	int *status;		/* of waitpid(), [i] */
	double kill_at;		/* when patience ends; 0: nobody has failed */
	bool impatient;		/* it has ended */
	int interrupted;	/* signal */
	uint64_t bytes_in;	/* from the pipe */
	uint32_t rows_shown;
	uint64_t wrong;
	double busbw_sum;
	uint32_t nbusbw;
	struct json_object *json_rows;
};

/* run.c: returns the exit status */
int bench_start(const struct bench *b, struct json_object *root);

/* report.c */
struct json_object *bench_json(const struct bench *b, int argc, char **argv);
void bench_show_header(const struct bench *b, const struct bench_map *map);
void bench_show_row(struct bench_run *run, uint32_t row);
/* Prints what is left to say and adds it to @root. Returns the exit status. */
int bench_conclude(struct bench_run *run, struct json_object *root);

/* Seconds that ranks get to report a peer's failure. */
#define BENCH_GRACE	3.0

/* rank.c: life of one rank; writes a byte to @fd after each row. */
int bench_rank_run(const struct bench *b, const struct bench_map *map, uint32_t rank, int fd);

/* data.c */
struct bench_data;

struct bench_data *bench_data_new(const struct bench *b, uint32_t rank);
void bench_data_free(struct bench_data *data);
/* Writes what @rank's send buffer holds, elements @first .. @first + @count - 1. */
void bench_data_fill(struct bench_data *data, uint32_t rank, uint64_t shift, void *buf,
		     uint64_t first, uint64_t count);
/* Number of elements that are not what bench_data_fill() writes, .. */
uint64_t bench_data_check(struct bench_data *data, uint32_t rank, uint64_t shift, const void *buf,
			  uint64_t first, uint64_t count);
/* .. or not the reduction over all ranks of that. */
uint64_t bench_data_check_reduced(struct bench_data *data, uint64_t shift, const void *buf,
				  uint64_t first, uint64_t count);

#endif /* TOOL_BENCH_H */
