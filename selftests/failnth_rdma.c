// SPDX-License-Identifier: GPL-2.0
/*
 * failnth_rdma - failures injected into calls that have to do with other machines: ports,
 * peers, plans and operations with a peer that is said to be elsewhere, and never comes. The
 * port is one of rxe, on a dummy interface. See failnth.h.
 *
 * npulink-test: debug modules=none timeout=60
 */
#include <sys/wait.h>
#include "failnth.h"
#include "kselftest.h"
#include "rxe.h"

#define IP		"10.88.0.1"

static int run_port(struct scene *s)
{
	struct npulink_port_info info = { .size = sizeof(info) };
	int rc = raw_ioctl(s->fd[0], NPULINK_PORT_INFO, &info);

	return rc ? rc : strcmp(info.out_name, "rxe8/1") ? -EBADE : 0;
}

static int run_far_peer(struct scene *s)
{
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .comm_id = s->comm[0], .first = 1, .npeers = 1,
		.peers = (uintptr_t)s->mem[0],
	};

	return raw_ioctl(s->fd[0], NPULINK_COMM_PEERS, &cmd);
}

/* Rank 0 alone: its peer has another node's id, and a port where nobody answers. */
static void prepare_far_peer(struct scene *s)
{
	s->comm[0] = raw_comm(s->fd[0], s->secret, 0, 2);
	RAW_CHECK(s->comm[0] > 0 && !rxe_peer((void *)s->mem[0], s->fd[0], IP, htons(1)));
}

static void prepare_far_plan(struct scene *s)
{
	prepare_far_peer(s);
	RAW_CHECK(!run_far_peer(s));
}

static void prepare_far_plan_checked(struct scene *s)
{
	struct npulink_comm_create cmd = {
		.size = sizeof(cmd), .flags = NPULINK_COMM_CHECKSUM, .nranks = 2,
	};

	prepare_far_peer(s);
	RAW_CHECK(!raw_destroy(s->fd[0], s->comm[0]));
	raw_secret(cmd.secret);
	RAW_CHECK(!raw_ioctl(s->fd[0], NPULINK_COMM_CREATE, &cmd));
	s->comm[0] = cmd.out_id;
	RAW_CHECK(!run_far_peer(s));
}

static int run_plan(struct scene *s)
{
	s->plan[0] = plan_exchange(s->fd[0], s->comm[0], 0, LEN);
	return s->plan[0] < 0 ? s->plan[0] : 0;
}

static void prepare_far_post(struct scene *s)
{
	prepare_far_plan(s);
	RAW_CHECK(!run_plan(s));
	s->buf[0] = raw_register(s->fd[0], s->mem[0], 2 * LEN, 0);
	RAW_CHECK(s->buf[0] > 0);
	s->post[0] = exchange_cmd(s, 0, false, NPULINK_POST_HELD);
}

static int run_post(struct scene *s)
{
	int rc = s->post[0].out_seq ? 0 : raw_ioctl(s->fd[0], NPULINK_POST, &s->post[0]);

	if (rc)
		s->post[0].out_seq = 0;
	return rc;
}

/* It can be ended, though nobody is there. */
static void check_far_post(struct scene *s)
{
	struct npulink_result res;

	RAW_CHECK(!raw_abort(s->fd[0], s->comm[0], 5));
	RAW_CHECK(!raw_wait(s->fd[0], s->post[0].out_seq, &res) && res.status == -ECANCELED);
}

static int run_destroy_comm(struct scene *s)
{
	int rc = s->plan[0] ? raw_destroy(s->fd[0], s->plan[0]) : 0;

	s->plan[0] = rc ? s->plan[0] : 0;
	return rc ? rc : raw_destroy(s->fd[0], s->comm[0]);
}

static const struct call far[] = {
	{ "PORT_INFO", NPULINK_PORT_INFO, FILES, NULL, run_port, NULL },
	{ "COMM_PEERS far", NPULINK_COMM_PEERS, FILES, prepare_far_peer, run_far_peer, NULL },
	{ "PLAN_CREATE far", NPULINK_PLAN_CREATE, FILES, prepare_far_plan, run_plan, NULL },
	{ "PLAN_CREATE far, checked", NPULINK_PLAN_CREATE, FILES, prepare_far_plan_checked,
	  run_plan, NULL },
	{ "POST far", NPULINK_POST, FILES, prepare_far_post, run_post, check_far_post },
	{ "DESTROY communicator far", NPULINK_DESTROY, FILES, prepare_far_post, run_destroy_comm,
	  NULL },
};

int main(void)
{
	const char *why;
	unsigned int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	why = rxe_set_up(IP);
	if (why)
		ksft_exit_fail_msg("%s\n", why);
	if (nth_init())
		ksft_exit_skip("the kernel cannot inject failures\n");
	ksft_set_plan(ARRAY_SIZE(far) + 3);
	for (i = 0; i < ARRAY_SIZE(far); i++)
		ksft_test_result(!sweep_apart(&far[i]), "%s\n", far[i].name);
	ksft_test_result(HAS(far, NPULINK_CMD_PORT_INFO) == 1 &&
			 where[NPULINK_CMD_PORT_INFO] == RDMA, "PORT_INFO is here\n");
	ksft_test_result(rxe_nothing_left(), "no key and no connection is left\n");
	ksft_test_result(!sh("tools/vm/modules unload"), "the modules can be removed\n");
	rxe_take_down();
	ksft_finished();
}
