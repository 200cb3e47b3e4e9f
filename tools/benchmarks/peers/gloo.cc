// SPDX-License-Identifier: GPL-2.0
/*
 * gloo.cc - measure.c's adaptor for Gloo, over TCP on the loopback interface: the only
 * transport that it has for one machine. The setting "bcube" takes that algorithm for allreduce.
 * Options are made once per point, as they may be reused.
 */
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <gloo/algorithm.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include "measure.h"

const bool lib_forks = true;
const bool lib_binds_buffers = true;

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::AllreduceOptions> allreduce;
static std::unique_ptr<gloo::AllgatherOptions> allgather;
static std::unique_ptr<gloo::AlltoallOptions> alltoall;
static std::unique_ptr<gloo::BroadcastOptions> broadcast;
static std::unique_ptr<gloo::BarrierOptions> barrier;
static std::unique_ptr<gloo::Algorithm> reduce_scatter;

void lib_prepare(unsigned char id[BENCH_ID_MAX], int size)
{
	strcpy(reinterpret_cast<char *>(id), "/tmp/gloo.XXXXXX");
	if (!mkdtemp(reinterpret_cast<char *>(id)))
		bench_die("no directory for Gloo");
}

void lib_init(const unsigned char id[BENCH_ID_MAX], int *rank, int *size)
{
	gloo::transport::tcp::attr attr("127.0.0.1");
	gloo::rendezvous::FileStore store(reinterpret_cast<const char *>(id));
	auto device = gloo::transport::tcp::CreateDevice(attr);

	context = std::make_shared<gloo::rendezvous::Context>(*rank, *size);
	context->connectFullMesh(store, device);
}

template <typename T> static void setup(const struct bench_call *c)
{
	T *send = static_cast<T *>(c->send), *recv = static_cast<T *>(c->recv);
	int size = context->size;

	switch (c->kind) {
	case BENCH_ALLREDUCE:
		allreduce.reset(new gloo::AllreduceOptions(context));
		allreduce->setInput(send, c->count);
		allreduce->setOutput(recv, c->count);
		allreduce->setReduceFunction(static_cast<void (*)(void *, const void *, const void *,
								  size_t)>(&gloo::sum<T>));
		allreduce->setAlgorithm(bench_has("bcube") ?
					gloo::AllreduceOptions::Algorithm::BCUBE :
					gloo::AllreduceOptions::Algorithm::RING);
		break;
	case BENCH_REDUCE_SCATTER: {
		/* In place only: the input is put there once, and then whatever is there. */
		std::vector<T *> ptrs(1, recv);
		std::vector<int> counts(size, c->count);

		memcpy(c->recv, c->send, c->bytes);
		reduce_scatter.reset(new gloo::ReduceScatterHalvingDoubling<T>(
			context, ptrs, c->count * size, counts));
		break;
	}
	case BENCH_ALLGATHER:
		allgather.reset(new gloo::AllgatherOptions(context));
		allgather->setInput(send, c->count);
		allgather->setOutput(recv, c->count * size);
		break;
	case BENCH_ALLTOALL:
		alltoall.reset(new gloo::AlltoallOptions(context));
		alltoall->setInput(send, c->count * size);
		alltoall->setOutput(recv, c->count * size);
		break;
	case BENCH_BROADCAST:
		broadcast.reset(new gloo::BroadcastOptions(context));
		broadcast->setOutput(recv, c->count);
		broadcast->setRoot(0);
		break;
	default:
		barrier.reset(new gloo::BarrierOptions(context));
	}
}

void lib_setup(const struct bench_call *c)
{
	if (c->is_float)
		setup<float>(c);
	else
		setup<int>(c);
}

bool lib_keeps_input(const struct bench_call *c)
{
	return c->kind != BENCH_REDUCE_SCATTER;
}

void lib_run(const struct bench_call *c)
{
	switch (c->kind) {
	case BENCH_ALLREDUCE:
		gloo::allreduce(*allreduce);
		break;
	case BENCH_REDUCE_SCATTER:
		reduce_scatter->run();
		break;
	case BENCH_ALLGATHER:
		gloo::allgather(*allgather);
		break;
	case BENCH_ALLTOALL:
		gloo::alltoall(*alltoall);
		break;
	case BENCH_BROADCAST:
		gloo::broadcast(*broadcast);
		break;
	default:
		gloo::barrier(*barrier);
	}
}

void lib_run_batch(const struct bench_call *c)
{
	for (int i = 0; i < BATCH; i++)
		lib_run(c);
}

/* Gloo has no operations that go on by themselves. */
bool lib_start(const struct bench_call *c)
{
	return false;
}

void lib_wait(void)
{
}

bool lib_start_again(const struct bench_call *call)
{
	return false;
}

void lib_wait_again(void)
{
}

void lib_exit(void)
{
	fflush(stdout);
	/* Its threads see their peers go, which they take for an error. */
	_exit(0);
}
