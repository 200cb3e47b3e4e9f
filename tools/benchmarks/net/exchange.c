// SPDX-License-Identifier: GPL-2.0
/*
 * exchange.c - what an allreduce of two machines takes by verbs alone, from user space: both
 * send a few bytes at the same time, and go on when the other's have come. ib_send_lat has one
 * of the two send at a time, and halves the round trip.
 *
 * Usage: net-exchange [-e] [-n ITERATIONS] [ADDRESS]; without one it waits to be called. -e: sleeps
 * until an event comes, else polls. The caller prints microseconds for each exchange.
 */
#include <err.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PORT	"18621"
#define BYTES	8
#define SLOTS	64	/* receives posted ahead */
#define SIGNAL	8	/* one send in so many is told of */

static char landing[SLOTS][BYTES], payload[BYTES];
static struct ibv_mr *mr;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

static struct rdma_cm_id *joined(const char *address)
{
	struct rdma_addrinfo *info, hints = {
		.ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE,
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2 * SIGNAL, .max_recv_wr = SLOTS, .max_send_sge = 1,
			 .max_recv_sge = 1, .max_inline_data = BYTES },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *listening, *id;

	if (rdma_getaddrinfo(address, PORT, &hints, &info))
		err(1, "rdma_getaddrinfo");
	if (address) {
		if (rdma_create_ep(&id, info, NULL, &attr))
			err(1, "rdma_create_ep");
	} else {
		if (rdma_create_ep(&listening, info, NULL, &attr) || rdma_listen(listening, 1) ||
		    rdma_get_request(listening, &id))
			err(1, "waiting for the other machine");
	}
	rdma_freeaddrinfo(info);
	mr = rdma_reg_msgs(id, landing, sizeof(landing));
	if (!mr)
		err(1, "rdma_reg_msgs");
	for (int i = 0; i < SLOTS; i++)
		if (rdma_post_recv(id, NULL, landing[i], BYTES, mr))
			err(1, "rdma_post_recv");
	if (address ? rdma_connect(id, NULL) : rdma_accept(id, NULL))
		err(1, "connecting");
	return id;
}

/* Wait for the next completion of @cq. */
static void wait_for(struct ibv_cq *cq, bool sleeps)
{
	struct ibv_comp_channel *channel = cq->channel;
	struct ibv_cq *told;
	struct ibv_wc wc;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc))) {
		if (!sleeps)
			continue;
		if (ibv_req_notify_cq(cq, 0))
			err(1, "ibv_req_notify_cq");
		n = ibv_poll_cq(cq, 1, &wc);
		if (n)
			break;
		if (ibv_get_cq_event(channel, &told, &context))
			err(1, "ibv_get_cq_event");
		ibv_ack_cq_events(told, 1);
	}
	if (n < 0 || wc.status)
		errx(1, "%s", n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
}

static void exchange(struct rdma_cm_id *id, unsigned int i, bool sleeps)
{
	bool told = i % SIGNAL == SIGNAL - 1;

	if (rdma_post_send(id, NULL, payload, BYTES, NULL,
			   IBV_SEND_INLINE | (told ? IBV_SEND_SIGNALED : 0)))
		err(1, "rdma_post_send");
	wait_for(id->recv_cq, sleeps);
	if (rdma_post_recv(id, NULL, landing[i % SLOTS], BYTES, mr))
		err(1, "rdma_post_recv");
	/* Long since there: the other one has answered. */
	if (told)
		wait_for(id->send_cq, sleeps);
}

int main(int argc, char **argv)
{
	unsigned int n = 1000, warm;
	struct rdma_cm_id *id;
	bool sleeps = false;
	double start;
	int opt;

	while ((opt = getopt(argc, argv, "en:")) != -1) {
		if (opt == 'e')
			sleeps = true;
		else if (opt == 'n')
			n = atoi(optarg);
		else
			return 2;
	}
	warm = n / 10 + 1;
	id = joined(argv[optind]);
	for (unsigned int i = 0; i < warm; i++)
		exchange(id, i, sleeps);
	start = now();
	for (unsigned int i = warm; i < warm + n; i++)
		exchange(id, i, sleeps);
	if (argv[optind])
		printf("%.2f\n", (now() - start) / n);
	/* The other one's last message may still be under way. */
	sleep(1);
	rdma_disconnect(id);
	return 0;
}
