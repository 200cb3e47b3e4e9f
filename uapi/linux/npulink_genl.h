/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * npulink_genl.h - generic netlink family "npulink": what there is to see.
 *
 * Reading needs no privilege, works in every network namespace, and answers for
 * the whole node. specs/npulink.yaml says the same for programs.
 */
#ifndef _UAPI_LINUX_NPULINK_GENL_H
#define _UAPI_LINUX_NPULINK_GENL_H

#define NPULINK_GENL_NAME		"npulink"
#define NPULINK_GENL_VERSION		1
#define NPULINK_GENL_GROUP_EVENTS	"events"

/**
 * enum npulink_genl_cmd - commands
 * @NPULINK_GENL_CMD_UNSPEC: not used
 * @NPULINK_GENL_CMD_DEV_GET: do: the device with NPULINK_A_DEV_ID. dump: all
 *	devices, no attributes. Errors: ENODEV: no such device
 * @NPULINK_GENL_CMD_LINK_GET: dump: all directed links, or with NPULINK_A_LINK_DEV
 *	those that leave one device
 * @__NPULINK_GENL_CMD_MAX: one more than the last
 * @NPULINK_GENL_CMD_MAX: the last
 */
enum npulink_genl_cmd {
	NPULINK_GENL_CMD_UNSPEC,
	NPULINK_GENL_CMD_DEV_GET,
	NPULINK_GENL_CMD_LINK_GET,
	__NPULINK_GENL_CMD_MAX,
	NPULINK_GENL_CMD_MAX = __NPULINK_GENL_CMD_MAX - 1,
};

/**
 * enum npulink_genl_dev - attributes of a device
 * @NPULINK_A_DEV_UNSPEC: not used
 * @NPULINK_A_DEV_PAD: aligns the 64-bit ones
 * @NPULINK_A_DEV_ID: u32, N of npuN
 * @NPULINK_A_DEV_NAME: string, "npu0"
 * @NPULINK_A_DEV_BACKEND: string, "soft"
 * @NPULINK_A_DEV_ENGINE: string, what moves and reduces the bytes
 * @NPULINK_A_DEV_DTYPES: u32, mask of data types that it reduces (1 << NPULINK_INT8 ..)
 * @NPULINK_A_DEV_REDOPS: u32, mask of reductions (1 << NPULINK_SUM ..)
 * @NPULINK_A_DEV_SLICE: u32, bytes that it handles at a time
 * @NPULINK_A_DEV_INLINE_MAX: u32, steps up to this many bytes need no interrupt
 * @NPULINK_A_DEV_DOORBELLS: u32, doorbell pages for applications
 * @NPULINK_A_DEV_REQUESTS: u64, requests completed
 * @NPULINK_A_DEV_INLINE_DONE: u64, of these without interrupt
 * @NPULINK_A_DEV_INTERRUPTS: u64, completions and doorbells that came by interrupt
 * @NPULINK_A_DEV_BYTES_READ: u64, bytes read by the engine, all inputs counted
 * @NPULINK_A_DEV_BYTES_WRITTEN: u64, bytes written by the engine
 * @__NPULINK_A_DEV_MAX: one more than the last
 * @NPULINK_A_DEV_MAX: the last
 */
enum npulink_genl_dev {
	NPULINK_A_DEV_UNSPEC,
	NPULINK_A_DEV_PAD,
	NPULINK_A_DEV_ID,
	NPULINK_A_DEV_NAME,
	NPULINK_A_DEV_BACKEND,
	NPULINK_A_DEV_ENGINE,
	NPULINK_A_DEV_DTYPES,
	NPULINK_A_DEV_REDOPS,
	NPULINK_A_DEV_SLICE,
	NPULINK_A_DEV_INLINE_MAX,
	NPULINK_A_DEV_DOORBELLS,
	NPULINK_A_DEV_REQUESTS,
	NPULINK_A_DEV_INLINE_DONE,
	NPULINK_A_DEV_INTERRUPTS,
	NPULINK_A_DEV_BYTES_READ,
	NPULINK_A_DEV_BYTES_WRITTEN,
	__NPULINK_A_DEV_MAX,
	NPULINK_A_DEV_MAX = __NPULINK_A_DEV_MAX - 1,
};

/**
 * enum npulink_genl_link - attributes of one direction of a link
 * @NPULINK_A_LINK_UNSPEC: not used
 * @NPULINK_A_LINK_PAD: aligns the 64-bit ones
 * @NPULINK_A_LINK_DEV: u32, id of the device that it leaves
 * @NPULINK_A_LINK_PEER: u32, id of the device that it leads to
 * @NPULINK_A_LINK_STEPS: u64, steps whose payload came over it
 * @NPULINK_A_LINK_BYTES: u64, payload bytes that came over it
 * @NPULINK_A_LINK_DOORBELLS: u64, times the peer's doorbell was rung
 * @NPULINK_A_LINK_INLINE_BELLS: u64, events delivered without a doorbell
 * @__NPULINK_A_LINK_MAX: one more than the last
 * @NPULINK_A_LINK_MAX: the last
 */
enum npulink_genl_link {
	NPULINK_A_LINK_UNSPEC,
	NPULINK_A_LINK_PAD,
	NPULINK_A_LINK_DEV,
	NPULINK_A_LINK_PEER,
	NPULINK_A_LINK_STEPS,
	NPULINK_A_LINK_BYTES,
	NPULINK_A_LINK_DOORBELLS,
	NPULINK_A_LINK_INLINE_BELLS,
	__NPULINK_A_LINK_MAX,
	NPULINK_A_LINK_MAX = __NPULINK_A_LINK_MAX - 1,
};

#endif /* _UAPI_LINUX_NPULINK_GENL_H */
