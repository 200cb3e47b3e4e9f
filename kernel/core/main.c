// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - npulink.ko comes and goes.
 */
#include "core.h"
#include "flight.h"
#include "pass.h"
#include "tombstone.h"

static int __init npulink_init(void)
{
	int rc;

	npulink_quota_init();
	npulink_pass_init();
	rc = npulink_cdev_init();
	if (rc)
		return rc;
	rc = npulink_board_init();
	if (rc)
		goto err_cdev;
	rc = npulink_buf_init();
	if (rc)
		goto err_board;
	rc = npulink_comm_init();
	if (rc)
		goto err_buf;
	rc = npulink_run_init();
	if (rc)
		goto err_comm;
	rc = npulink_worker_init();
	if (rc)
		goto err_run;
	rc = npulink_agree_init();
	if (rc)
		goto err_worker;
	rc = npulink_port_init();
	if (rc)
		goto err_agree;
	rc = npulink_device_init();
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
err_comm:
	npulink_comm_exit();
err_buf:
	npulink_buf_exit();
err_board:
	npulink_board_exit();
err_cdev:
	npulink_cdev_exit();
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
	npulink_comm_exit();
	npulink_tombstone_exit();
	npulink_flight_exit();
	npulink_ops_exit();
	npulink_buf_exit();
	rcu_barrier();
	npulink_board_exit();
	npulink_pass_exit();
	npulink_cdev_exit();
}

module_init(npulink_init);
module_exit(npulink_exit);

MODULE_DESCRIPTION("Collectives of NPUs, sequenced by the kernel");
MODULE_LICENSE("GPL");
MODULE_VERSION(NPULINK_VERSION);
