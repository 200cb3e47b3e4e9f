// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - npulink.ko comes and goes.
 */
#include <linux/module.h>
#include "base/notify.h"
#include "base/queue.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "comm/tombstone.h"
#include "device/device_core.h"
#include "file/account.h"
#include "file/buf.h"
#include "file/devmem.h"
#include "file/file.h"
#include "file/mapping.h"
#include "file/free.h"
#include "file/port.h"
#include "observe/deadlock.h"
#include "observe/genl.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/board.h"
#include "run/failure.h"
#include "run/graph.h"
#include "run/op.h"
#include "run/run.h"
#include "run/slow.h"
#include "run/worker.h"
#include "ioctl.h"

/* ---- what devices and links that change mean for the rest --------------------------- */

static void npulink_device_added(struct npulink_device *dev)
{
	npulink_notify_dev(dev, true);
}

static void npulink_device_removed(struct npulink_device *dev)
{
	npulink_ports_drop(dev);
	npulink_notify_dev(dev, false);
}

static void npulink_failures_flush(void)
{
	/* What has ended meanwhile is given back, too. */
	npulink_run_flush();
	npulink_queue_flush();
	npulink_free_flush();
}

static void npulink_device_drained(void)
{
	npulink_agree_flush();
	npulink_failures_flush();
}

static void npulink_device_unmap(struct npulink_device *dev)
{
	npulink_device_unmap_devmem(dev);
	npulink_device_unmap_dma(dev);
}

static const struct npulink_device_events npulink_events = {
	.fops = &npulink_fops,
	.added = npulink_device_added,
	.removed = npulink_device_removed,
	.fail = npulink_device_fail_work,
	.flush = npulink_failures_flush,
	.drained = npulink_device_drained,
	.unmap = npulink_device_unmap,
	.special = npulink_board_special,
	.link_changed = npulink_notify_link,
	.link_lost = npulink_link_fail_work,
};

/* ---- what ranks and plans mean for those who run them -------------------------------- */

static const struct npulink_comm_events npulink_run_comm_events = {
	.rank_reserve = npulink_worker_reserve,
	.rank_abort = npulink_worker_unreserve,
	.rank_new = npulink_run_rank_new,
	.missed = npulink_rank_is_missed,
	.failed = npulink_board_failed,
	.flood = npulink_comm_flood,
	.free = npulink_board_drop,
};

static int npulink_plan_made(struct npulink_plan *plan)
{
	/* An operation has a part for its remote peers. */
	int rc = npulink_remote_plan(plan);

	return rc ?: npulink_plan_make_spares(plan);
}

static void npulink_plan_gone(struct npulink_plan *plan)
{
	npulink_plan_free_spares(plan);
	npulink_remote_plan_free(plan);
	npulink_graph_put(plan->graph);
}

static const struct npulink_plan_events npulink_run_plan_events = {
	.made = npulink_plan_made,
	.free = npulink_plan_gone,
};

/* ---- the module ---------------------------------------------------------------------- */

static int __init npulink_init(void)
{
	int rc;

	npulink_notify_init(npulink_genl_multicast);
	npulink_quota_init();
	rc = npulink_queue_init();
	if (rc)
		return rc;
	rc = npulink_free_init();
	if (rc)
		goto err_queue;
	rc = npulink_board_init();
	if (rc)
		goto err_free;
	rc = npulink_buf_init();
	if (rc)
		goto err_board;
	npulink_comm_init(&npulink_run_comm_events, &npulink_remote_conn_events);
	npulink_plan_init(&npulink_run_plan_events);
	rc = npulink_run_init(&npulink_remote_op_ops, npulink_deadlock_waits);
	if (rc)
		goto err_buf;
	rc = npulink_worker_init();
	if (rc)
		goto err_run;
	rc = npulink_agree_init();
	if (rc)
		goto err_worker;
	rc = npulink_port_init();
	if (rc)
		goto err_agree;
	rc = npulink_device_init(&npulink_events);
	if (rc)
		goto err_port;
	rc = npulink_genl_init();
	if (rc)
		goto err_device;
	npulink_slow_init();
	return 0;

err_device:
	npulink_device_exit();
err_port:
	npulink_port_exit();
err_agree:
	npulink_agree_exit();
err_worker:
	npulink_worker_exit();
err_run:
	npulink_run_exit();
err_buf:
	npulink_buf_exit();
err_board:
	npulink_board_exit();
err_free:
	npulink_free_exit();
err_queue:
	npulink_queue_exit();
	return rc;
}

/* No file is open and no backend is loaded: both hold the module. */
static void __exit npulink_exit(void)
{
	npulink_deadlock_exit();
	npulink_slow_exit();
	npulink_notify_exit();
	npulink_genl_exit();
	npulink_device_exit();
	npulink_port_exit();
	npulink_agree_exit();
	/* The last address space that was watched has gone: no more work for the workers below. */
	mmu_notifier_synchronize();
	npulink_worker_exit();
	/* Objects free each other in workers: ranks, then operations, then buffers. */
	npulink_run_exit();
	/* What has failed lets go of plans, these of ranks, and a rank leads to no failure. */
	npulink_queue_exit();
	npulink_free_exit();
	npulink_comm_exit();
	npulink_tombstone_exit();
	npulink_flight_exit();
	npulink_ops_exit();
	npulink_buf_exit();
	rcu_barrier();
	npulink_board_exit();
	npulink_files_exit();
}

module_init(npulink_init);
module_exit(npulink_exit);

MODULE_DESCRIPTION("Collectives of NPUs, sequenced by the kernel");
MODULE_LICENSE("GPL");
MODULE_VERSION(NPULINK_VERSION);
