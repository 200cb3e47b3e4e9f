// SPDX-License-Identifier: GPL-2.0
/*
 * exec_plan.c - calls of a program that make plans: any ones, and those of a team, which
 * are ranks of one communicator that can run a collective together.
 */
#include "lib/algorithm/algorithms.h"
#include "lib/plan/plan.h"
#include "exec.h"
#include "raw.h"

/* One that libcoll makes, of a few ranks. */
static bool make_plan(struct rnd r, uint32_t nranks, uint32_t rank, struct coll_plan *plan)
{
	static const uint32_t lens[] = { 0, 1, 2, 7, 64, 1000, 4096, 40000 };
	uint64_t counts[TEAM] = { 5, 0, 130, 1000 }, back[TEAM];
	const struct coll_algorithm *alg = NULL;
	struct coll_args args = {
		.collective = rnd_below(&r, NPULINK_COLLS), .nranks = nranks, .rank = rank,
		.count = lens[rnd_below(&r, sizeof(lens) / sizeof(lens[0]))],
		.dtype = rnd_below(&r, NPULINK_DTYPES), .root = rnd_below(&r, nranks),
		.redop = rnd_below(&r, NPULINK_CALL_AVG + 1),
		.in_place = rnd_one_in(&r, 2), .counts = counts,
	};
	uint32_t which = rnd_below(&r, 8), i;

	if (args.collective == NPULINK_COLL_P2P) {
		if (rank > 1)
			return false;
		args.peer = !rank;
		args.send = !rank;
	}
	if (args.collective == NPULINK_COLL_ALLTOALLV) {
		for (i = 0; i < TEAM; i++)
			back[i] = counts[rank];
		args.rcounts = back;
	}
	do {
		alg = coll_algorithm_next(args.collective, alg);
	} while (which-- && alg);
	if (!alg)
		alg = coll_algorithm_next(args.collective, NULL);
	return !coll_plan_make(alg, &args, plan);
}

static void record_plan(int fd, const struct npulink_plan_create *cmd,
			const struct npulink_slot *slots)
{
	struct thing *t = exec_add(ex.plans, &ex.nplans, fd, cmd->out_id);
	uint32_t i;

	t->len = cmd->nslots;
	t->comm = cmd->comm_id;
	for (i = 0; i < cmd->nslots && i < NPULINK_MAX_SLOTS; i++)
		t->min_len[i] = slots[i].min_len;
}

/* Mostly one that may be: printable, without blanks, padded with zeros. */
static void name_algorithm(struct rnd *r, char algorithm[NPULINK_ALGORITHM_LEN])
{
	static const char * const names[] = { "", "ring", "rhd", "a-name-of-23-characters" };
	uint32_t i;

	if (rnd_one_in(r, 8)) {
		for (i = 0; i < NPULINK_ALGORITHM_LEN; i++)
			algorithm[i] = rnd_one_in(r, 6) ? rnd_next(r) : 'a';
	} else {
		strncpy(algorithm, names[rnd_below(r, ARRAY_SIZE(names))],
			NPULINK_ALGORITHM_LEN - 1);
	}
}

void exec_plan(struct rnd *r, uint8_t bend)
{
	struct thing comm = exec_pick(r, ex.comms, ex.ncomms);
	struct npulink_slot slots[NPULINK_MAX_SLOTS];
	struct npulink_step *steps;
	struct npulink_plan_create cmd = {
		.size = sizeof(cmd), .comm_id = comm.id, .nslots = 1 + rnd_below(r, 4),
		.slots = (uintptr_t)slots, .flags = rnd_one_in(r, 4) ? NPULINK_PLAN_CHECK_RACES : 0,
	};
	uint32_t nranks = comm.comm >> 16, rank = comm.comm & 0xffff, i;
	struct coll_plan plan;

	if (nranks && nranks <= TEAM && rank < nranks && rnd_one_in(r, 2) &&
	    make_plan(*r, nranks, rank, &plan)) {
		cmd.call = plan.call;
		cmd.nslots = plan.nslots;
		memcpy(slots, plan.slots, sizeof(slots));
		cmd.nsteps = plan.nsteps;
		steps = plan.steps;
	} else {
		if (!nranks)
			nranks = 2;
		if (rnd_one_in(r, 8))
			cmd.nslots = rnd_below(r, NPULINK_MAX_SLOTS + 1);
		gen_call(r, &cmd.call, nranks);
		cmd.call.set_id = rnd_one_in(r, 2) ? rnd_below(r, 3) : rnd_odd(r);
		gen_slots(r, slots, cmd.nslots);
		cmd.nsteps = rnd_below(r, rnd_one_in(r, 8) ? 200 : 12);
		if (rnd_one_in(r, 64))	/* beyond what is always searched for races */
			cmd.nsteps = 4090 + rnd_below(r, 20);
		steps = calloc(cmd.nsteps + 1, sizeof(*steps));
		for (i = 0; steps && i < cmd.nsteps; i++)
			gen_step(r, &cmd.call, nranks, rank, slots, cmd.nslots, i,
				 i ? &steps[i - 1] : NULL, &steps[i]);
	}
	if (bend & 1 && cmd.nsteps && steps)
		for (i = 0; i < 1U + bend % 3; i++)
			gen_bend_step(r, &steps[rnd_below(r, cmd.nsteps)]);
	if (bend & 2)
		gen_bend_call(r, &cmd.call);
	cmd.steps = (uintptr_t)steps;
	name_algorithm(r, cmd.algorithm);
	if (!CALL(r, comm.fd, NPULINK_PLAN_CREATE, cmd, bend & 4 ? bend : 0))
		record_plan(comm.fd, &cmd, slots);
	free(steps);
}

/* ---- teams */

static uint64_t team_bytes(uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < ex.team_nslots; i++)
		sum += (ex.team_len[rank][i] + 63) / 64 * 64;
	return sum ? sum : 64;
}

static void team_buffer(struct rnd *r, uint32_t k)
{
	uint64_t len = team_bytes(k), offset;
	int id;

	switch (rnd_below(r, 3)) {
	case 0:		/* the arena */
		mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, ex.team_fd[k],
		     NPULINK_MMAP_ARENA);
		id = 0;
		break;
	case 1:
		id = raw_buf_alloc(ex.team_fd[k], len, &offset);
		break;
	default:
		id = raw_register(ex.team_fd[k], raw_anon(len), len, 0);
	}
	ex.team_buf[k] = id < 0 ? 0 : id;
	exec_add(ex.bufs, &ex.nbufs, ex.team_fd[k], ex.team_buf[k])->len = len;
}

/* @here: so many of its @n ranks are on this machine. */
static void make_team(struct rnd *r, uint32_t n, uint32_t here)
{
	struct npulink_comm_create create = { .size = sizeof(create), .nranks = n };
	struct rnd same = { rnd_next(r) };
	struct coll_plan plan;
	uint32_t k, i;

	ex.n = 0;
	raw_secret(create.secret);
	create.secret[15] = rnd_next(r);
	create.flags = rnd_below(r, 8) & (NPULINK_COMM_ANY_UID | NPULINK_COMM_CHECKSUM);
	for (k = 0; k < here; k++) {
		int fd = raw_open(rnd_below(r, ex.env->ndev));
		struct npulink_plan_create cmd;

		if (fd < 0)
			return;
		ex.files[k % FILES] = fd;
		create.rank = k;
		if (CALL(r, fd, NPULINK_COMM_CREATE, create, 0))
			return;
		exec_add(ex.comms, &ex.ncomms, fd, create.out_id)->comm = n << 16 | k;
		ex.team_fd[k] = fd;
		ex.team_comm[k] = create.out_id;
		if (here < n && exec_describe(r, fd, create.out_id, here, n))
			return;
		if (!make_plan(same, n, k, &plan))
			return;
		cmd = raw_plan_cmd(create.out_id, plan.slots, plan.nslots, plan.steps, plan.nsteps);
		cmd.call = plan.call;
		strcpy(cmd.algorithm, "team");
		ex.team_nslots = plan.nslots;
		for (i = 0; i < plan.nslots; i++)
			ex.team_len[k][i] = plan.slots[i].min_len;
		if (!CALL(r, fd, NPULINK_PLAN_CREATE, cmd, 0))
			record_plan(fd, &cmd, plan.slots);
		ex.team_plan[k] = cmd.out_id;
		coll_plan_free(&plan);
		team_buffer(r, k);
	}
	ex.far = here < n;
	ex.n = here;
}

void exec_team(struct rnd *r, uint8_t bend)
{
	uint32_t n = 1 + rnd_below(r, TEAM);

	make_team(r, n, n);
}

void exec_remote(struct rnd *r, uint8_t bend)
{
	uint32_t n = 2 + rnd_below(r, TEAM - 1);

	make_team(r, n, 1 + rnd_below(r, n - 1));
}
