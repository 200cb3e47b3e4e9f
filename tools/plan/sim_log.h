/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sim_log.h - what happened in a simulation, message by message, for those who want
 * to see it: a picture, a trace.
 */
#ifndef TOOL_SIM_LOG_H
#define TOOL_SIM_LOG_H

#include "lib/simulate/sim.h"
#include "plan/options.h"

/**
 * struct sim_log - a simulation, written down
 * @net: network
 * @rule: COLL_RULE_*
 * @result: outcome
 * @messages: each message
 * @conflicts: each conflict
 * @nmessages: number of @messages
 * @nconflicts: number of @conflicts
 * @messages_cap: allocated
 * @conflicts_cap: allocated
 * @with_messages: they are wanted
 */
struct sim_log {
	struct coll_net net;
	uint32_t rule;
	struct coll_sim_result result;
	struct coll_sim_message *messages;
	struct coll_sim_conflict *conflicts;
	size_t nmessages, nconflicts, messages_cap, conflicts_cap;
	bool with_messages;
};

/* 0 or EXIT_FAILURE. */
int sim_log_svg(const struct sim_log *log, const struct query *q, const char *path);
int sim_log_trace(const struct sim_log *log, const struct query *q, const char *path);

const char *rule_name(uint32_t rule);

#endif /* TOOL_SIM_LOG_H */
