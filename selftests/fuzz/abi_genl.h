/* SPDX-License-Identifier: GPL-2.0 */
/*
 * abi_genl.h - the generic netlink family as tables, for exec_net.c: what each command
 * takes, and what every attribute of uapi/linux/npulink_genl.h is.
 */
#ifndef FUZZ_ABI_GENL_H
#define FUZZ_ABI_GENL_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/npulink_genl.h>

enum genl_set {
	SET_NONE, SET_DEV, SET_LINK, SET_FLIGHT, SET_PORT, SET_CALL, SET_CAUSE, SET_COMM, SET_RANK,
	SET_OP, SET_WAIT, SET_CONN, SET_STATUS, SET_FILE, SET_BUF, SET_FAILURE, SET_STAT, SET_EVENT,
	SET_CIRCLE,
	SETS
};

/* What an attribute holds. From KIND_NEST on: attributes of that enum genl_set. */
enum genl_kind {
	KIND_NONE, KIND_PAD, KIND_FLAG, KIND_U16, KIND_U32, KIND_U64, KIND_STRING, KIND_BINARY,
	KIND_NEST,
};

/* What is sensible in an attribute of a request. */
enum genl_value {
	VALUE_NONE, VALUE_DEV, VALUE_COMM, VALUE_FILE, VALUE_FLIGHT, VALUE_PORT_KIND,
	VALUE_PORT_NAME,
};

struct genl_command {
	const char *name;
	uint8_t set;
	bool one, dump;			/* may be asked so */
	bool admin;
	struct {
		uint8_t attr, value;
	} takes[3];
	/* In answers: the ids of what is told, and whose it is. */
	uint8_t comm, file, uid;
};

/* By NPULINK_GENL_CMD_*, up to NPULINK_GENL_CMD_MAX. */
extern const struct genl_command genl_commands[];

/* Kinds by number of the attribute. */
extern const struct genl_attrs {
	const uint8_t *kinds;
	uint32_t n;
} genl_sets[SETS];

#endif /* FUZZ_ABI_GENL_H */
