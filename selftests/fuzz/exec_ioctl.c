// SPDX-License-Identifier: GPL-2.0
/*
 * exec_ioctl.c - one ioctl of a program, with spoiled arguments if wanted, and those that
 * fit nowhere else.
 */
#include <assert.h>
#include "exec.h"
#include "raw.h"

/* An address at which an argument should not be. */
static void *bad_place(struct rnd *r, const void *arg, size_t size)
{
	size_t part = rnd_below(r, size + 1);

	switch (rnd_below(r, 6)) {
	case 0:
		return (void *)(uintptr_t)rnd_odd(r);
	case 1:		/* the end is missing */
		memcpy(ex.edge + 4096 - part, arg, part);
		return ex.edge + 4096 - part;
	case 2:		/* the answer cannot be written */
		return ex.readonly;
	case 3:
		return (char *)arg + 1;
	case 4:
		return ex.areas[rnd_below(r, AREAS)];
	default:
		return NULL;
	}
}

int exec_ioctl(struct rnd *r, int fd, unsigned long cmd, void *arg, size_t size, uint8_t bend)
{
	char big[512] = {};
	void *p = arg;
	uint32_t k;

	if (!bend) {
		int rc = raw_ioctl(fd, cmd, arg);

		ex.env->shared->ioctls[_IOC_NR(cmd)][ex.prog->as != AS_ROOT][!!rc]++;
		return rc;
	}
	memcpy(big, arg, size);
	for (k = 0; k < 1U + bend % 3; k++) {
		switch (rnd_below(r, 8)) {
		case 0:		/* longer, zero or not behind */
			*(uint32_t *)big = size + rnd_below(r, sizeof(big) - size);
			if (rnd_one_in(r, 2))
				big[size + rnd_below(r, sizeof(big) - size)] = 1;
			break;
		case 1:
			*(uint32_t *)big = rnd_one_in(r, 2) ? rnd_below(r, size + 1) : rnd_odd(r);
			break;
		case 2:
			p = bad_place(r, big, size);
			break;
		case 3:
			gen_bend_bytes(r, big + 4, size - 4);
			break;
		case 4:
		case 5:
			*(uint64_t *)(big + rnd_below(r, size / 8) * 8) = rnd_odd(r);
			break;
		default:
			*(uint32_t *)(big + rnd_below(r, size / 4) * 4) = rnd_odd(r);
		}
	}
	if (p == arg)
		p = big;
	k = raw_ioctl(fd, cmd, p);
	memcpy(arg, big, size);
	return k;
}

void exec_info(struct rnd *r, uint8_t bend)
{
	struct npulink_device_info cmd = { .size = sizeof(cmd) };

	CALL(r, exec_file(r), NPULINK_DEVICE_INFO, cmd, bend);
}

void exec_destroy(struct rnd *r, uint8_t bend)
{
	struct thing t;
	struct npulink_destroy cmd = { .size = sizeof(cmd) };

	switch (rnd_below(r, 4)) {
	case 0:
		t = exec_pick(r, ex.comms, ex.ncomms);
		break;
	case 1:
		t = exec_pick(r, ex.bufs, ex.nbufs);
		break;
	default:
		t = exec_pick(r, ex.plans, ex.nplans);
	}
	cmd.id = t.id;
	CALL(r, t.fd, NPULINK_DESTROY, cmd, bend);
}

/* ---- any ioctl */

/* All of them; main() asks the kernel whether it knows more. */
static const uint16_t sizes[] = {
	[NPULINK_CMD_DEVICE_INFO] = sizeof(struct npulink_device_info),
	[NPULINK_CMD_BUF_REGISTER] = sizeof(struct npulink_buf_register),
	[NPULINK_CMD_BUF_ALLOC] = sizeof(struct npulink_buf_alloc),
	[NPULINK_CMD_BUF_IMPORT] = sizeof(struct npulink_buf_import),
	[NPULINK_CMD_BUF_EXPORT] = sizeof(struct npulink_buf_export),
	[NPULINK_CMD_COMM_CREATE] = sizeof(struct npulink_comm_create),
	[NPULINK_CMD_COMM_PEERS] = sizeof(struct npulink_comm_peers),
	[NPULINK_CMD_COMM_ABORT] = sizeof(struct npulink_comm_abort),
	[NPULINK_CMD_COMM_STATUS] = sizeof(struct npulink_comm_status),
	[NPULINK_CMD_PLAN_CREATE] = sizeof(struct npulink_plan_create),
	[NPULINK_CMD_POST] = sizeof(struct npulink_post),
	[NPULINK_CMD_POST_BATCH] = sizeof(struct npulink_post_batch),
	[NPULINK_CMD_WAIT] = sizeof(struct npulink_wait),
	[NPULINK_CMD_RING_SETUP] = sizeof(struct npulink_ring_setup),
	[NPULINK_CMD_DESTROY] = sizeof(struct npulink_destroy),
	[NPULINK_CMD_COMM_SHRINK] = sizeof(struct npulink_comm_shrink),
	[NPULINK_CMD_PORT_INFO] = sizeof(struct npulink_port_info),
};
static_assert(ARRAY_SIZE(sizes) <= EXEC_IOCTLS, "room to count them");

uint32_t exec_ioctls(void)
{
	return ARRAY_SIZE(sizes);
}

/* Any number, and a structure of its size or of none, full of ids and flags. */
void exec_raw(struct rnd *r, uint8_t bend)
{
	uint32_t nr = rnd_below(r, ARRAY_SIZE(sizes) + 2), i;
	uint32_t buf[128];

	for (i = 0; i < ARRAY_SIZE(buf); i++)
		buf[i] = rnd_one_in(r, 2) ? 0 : rnd_below(r, 16);
	buf[0] = nr < ARRAY_SIZE(sizes) ? sizes[nr] : 64;
	if (rnd_one_in(r, 3))
		buf[0] = rnd_one_in(r, 4) ? rnd_odd(r) : 4 * rnd_below(r, 128);
	if (rnd_one_in(r, 2))
		buf[1] = 0;
	raw_ioctl(exec_file(r), rnd_one_in(r, 8) ? rnd_next(r) : _IO(NPULINK_TYPE, nr), buf);
}
