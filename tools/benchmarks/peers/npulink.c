// SPDX-License-Identifier: GPL-2.0
/*
 * npulink.c - measure.c's adaptor for libcoll.
 */
#include <coll.h>
#include <string.h>
#include "lib/run/comm.h"
#include "lib/run/request.h"
#include "measure.h"

const bool lib_forks = true;
const bool lib_binds_buffers;

static struct coll_comm *comm;
static struct coll_request *request, *again;
static struct bench_call prepared;

static void must(int rc)
{
	if (rc)
		bench_die("%s", comm ? coll_comm_last_error(comm) : coll_strerror(rc));
}

void lib_prepare(unsigned char id[BENCH_ID_MAX], int size)
{
	must(coll_get_unique_id((struct coll_unique_id *)id));
}

void lib_init(const unsigned char id[BENCH_ID_MAX], int *rank, int *size)
{
	struct coll_config config = COLL_CONFIG_INIT;
	char text[400] = "";
	int rc;

	config.error_text = text;
	config.error_size = sizeof(text);
	rc = coll_comm_init_rank(&comm, *size, (const struct coll_unique_id *)id, *rank, &config);
	if (rc)
		bench_die("%s", text);
}

void lib_setup(const struct bench_call *call)
{
}

bool lib_keeps_input(const struct bench_call *call)
{
	return true;
}

static int start(const struct bench_call *c, struct coll_request **req)
{
	enum coll_dtype type = c->is_float ? COLL_FLOAT32 : COLL_INT32;

	switch (c->kind) {
	case BENCH_ALLREDUCE:
		if (req)
			return coll_iallreduce(comm, c->send, c->recv, c->count, type, COLL_SUM,
					       req);
		return coll_allreduce(comm, c->send, c->recv, c->count, type, COLL_SUM);
	case BENCH_REDUCE_SCATTER:
		return coll_reduce_scatter(comm, c->send, c->recv, c->count, type, COLL_SUM);
	case BENCH_ALLGATHER:
		return coll_allgather(comm, c->send, c->recv, c->count, type);
	case BENCH_ALLTOALL:
		return coll_alltoall(comm, c->send, c->recv, c->count, type);
	case BENCH_BROADCAST:
		return coll_broadcast(comm, COLL_IN_PLACE, c->recv, c->count, type, 0);
	default:
		return coll_barrier(comm);
	}
}

void lib_run(const struct bench_call *call)
{
	must(start(call, NULL));
}

void lib_run_batch(const struct bench_call *call)
{
	int i;

	must(coll_group_start(comm));
	for (i = 0; i < BATCH; i++)
		must(start(call, NULL));
	must(coll_group_end(comm));
}

bool lib_start(const struct bench_call *call)
{
	if (call)
		must(start(call, &request));
	return true;
}

void lib_wait(void)
{
	must(coll_wait(&request));
}

static bool is_prepared(const struct bench_call *c)
{
	return again && prepared.kind == c->kind && prepared.count == c->count &&
	       prepared.is_float == c->is_float && prepared.recv == c->recv;
}

bool lib_start_again(const struct bench_call *c)
{
	if (!c)
		return true;
	if (c->kind != BENCH_ALLREDUCE)
		bench_die("not a collective that is prepared here");
	if (!is_prepared(c)) {
		must(coll_request_free(&again));
		must(coll_allreduce_init(comm, c->send, c->recv, c->count,
					 c->is_float ? COLL_FLOAT32 : COLL_INT32, COLL_SUM,
					 &again));
		prepared = *c;
	}
	must(coll_start(again));
	return true;
}

void lib_wait_again(void)
{
	must(coll_wait(&again));
}

void lib_exit(void)
{
	coll_request_free(&again);
	coll_comm_destroy(comm);
}
