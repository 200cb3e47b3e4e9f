// SPDX-License-Identifier: GPL-2.0
/*
 * team.c - ranks that measure: processes that go through a list of jobs together,
 * several times. What is compared is measured in turn, and the shortest time counts,
 * so that what else the machine does is the same for all, or none of it.
 */
#include <coll.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <npulink/verify.h>
#include "cli/npulink.h"
#include "lib/run/comm.h"
#include "tune/job.h"

#define MAX_ITERS	4000

struct shared {
	atomic_uint arrived, round, stop;	/* barrier */
	atomic_uint iters;
	_Atomic uint64_t longest_ns;		/* of all ranks */
	char text[TUNE_MAX_RANKS][300];
};

struct team {
	uint32_t nranks, ndevs, njobs;
	struct tune_job *jobs;
	const struct tune_opts *opts;
	struct shared *shared;
	struct coll_unique_id *ids;		/* [job], shared */
	double *seconds;			/* [job], shared */
};

/* The life of one rank. */
struct self {
	struct team *team;
	uint32_t rank;
	struct coll_comm *base;		/* has the open file */
	struct coll_comm **comm;	/* [job], may be another job's */
	uint32_t *iters;		/* [job], how often it can be done in the time given */
	void *send, *recv;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* False if a rank has failed. */
static bool barrier(const struct self *self)
{
	static const struct timespec tick = { .tv_nsec = 100 * 1000 * 1000 };
	struct shared *shared = self->team->shared;
	unsigned int round = atomic_load(&shared->round);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == self->team->nranks) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->round, round + 1);
		syscall(SYS_futex, &shared->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		return !atomic_load(&shared->stop);
	}
	while (atomic_load(&shared->round) == round) {
		if (atomic_load(&shared->stop))
			return false;
		syscall(SYS_futex, &shared->round, FUTEX_WAIT, round, &tick, NULL, 0);
	}
	return !atomic_load(&shared->stop);
}

/* ---- buffers */

uint64_t tune_count(uint32_t collective, uint32_t dtype, uint64_t bytes, uint32_t nranks)
{
	uint64_t n = bytes / npulink_dtype_size(dtype);

	if (collective == NPULINK_COLL_BARRIER)
		return 0;
	if (npulink_coll_has_blocks(collective))
		n /= nranks;
	return n ? n : 1;
}

static size_t buffer_size(const struct team *team)
{
	size_t most = 4096;

	for (uint32_t i = 0; i < team->njobs; i++) {
		const struct tune_job *job = &team->jobs[i];
		size_t len = job->count * npulink_dtype_size(job->dtype);

		if (npulink_coll_has_blocks(job->alg->collective))
			len *= team->nranks;
		most = len > most ? len : most;
	}
	return most;
}

static void *buffer(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	return memset(mem, 0, len);
}

/* ---- one operation */

static int pingpong(struct self *self, const struct tune_job *job)
{
	struct coll_comm *comm = self->comm[job - self->team->jobs];
	int rc = 0;

	if (self->rank > 1)
		return 0;
	for (uint32_t i = 0; i < 2 && !rc; i++)
		rc = i == self->rank ? coll_send(comm, self->send, job->count, job->dtype,
						 !self->rank) :
				       coll_recv(comm, self->recv, job->count, job->dtype,
						 !self->rank);
	return rc;
}

static int operate(struct self *self, const struct tune_job *job)
{
	struct coll_comm *comm = self->comm[job - self->team->jobs];
	void *s = self->send, *r = self->recv;
	uint32_t t = job->dtype;
	uint64_t n = job->count;

	switch (job->alg->collective) {
	case NPULINK_COLL_ALLREDUCE:
		return coll_allreduce(comm, s, r, n, t, COLL_SUM);
	case NPULINK_COLL_REDUCE:
		return coll_reduce(comm, s, r, n, t, COLL_SUM, 0);
	case NPULINK_COLL_BROADCAST:
		return coll_broadcast(comm, s, r, n, t, 0);
	case NPULINK_COLL_SCATTER:
		return coll_scatter(comm, s, r, n, t, 0);
	case NPULINK_COLL_GATHER:
		return coll_gather(comm, s, r, n, t, 0);
	case NPULINK_COLL_ALLGATHER:
		return coll_allgather(comm, s, r, n, t);
	case NPULINK_COLL_REDUCE_SCATTER:
		return coll_reduce_scatter(comm, s, r, n, t, COLL_SUM);
	case NPULINK_COLL_ALLTOALL:
		return coll_alltoall(comm, s, r, n, t);
	case NPULINK_COLL_BARRIER:
		return coll_barrier(comm);
	case NPULINK_COLL_P2P:
		return pingpong(self, job);
	}
	return -EOPNOTSUPP;
}

/* ---- one rank */

static int failed(struct self *self, const char *what, const char *text)
{
	snprintf(self->team->shared->text[self->rank], sizeof(self->team->shared->text[0]),
		 "%s: %s", what, text);
	atomic_store(&self->team->shared->stop, 1);
	return EXIT_FAILURE;
}

static int open_device(struct self *self)
{
	struct coll_config config = COLL_CONFIG_INIT;
	char device[12], text[256] = "";
	struct coll_unique_id id;

	snprintf(device, sizeof(device), "%u", self->rank % self->team->ndevs);
	config.device = device;
	config.calibration = "";	/* the file is being made */
	config.error_text = text;
	config.error_size = sizeof(text);
	coll_get_unique_id(&id);
	if (coll_comm_init_rank(&self->base, 1, &id, 0, &config))
		return failed(self, device, text);
	return 0;
}

/* Jobs with one algorithm share a communicator. */
static int join(struct self *self, uint32_t j)
{
	struct team *team = self->team;
	const struct coll_algorithm *alg = team->jobs[j].alg;
	struct coll_config config = COLL_CONFIG_INIT;
	char override[80], text[256] = "";

	for (uint32_t i = 0; i < j; i++) {
		if (team->jobs[i].alg != alg)
			continue;
		self->comm[j] = self->comm[i];
		return 0;
	}
	snprintf(override, sizeof(override), "%s:%s", coll_collective_name(alg->collective),
		 alg->name);
	config.share = self->base;
	config.algorithm = override;
	config.calibration = "";
	config.topology = team->opts->topology ? team->opts->topology : "";
	config.error_text = text;
	config.error_size = sizeof(text);
	if (coll_comm_init_rank(&self->comm[j], team->nranks, &team->ids[j], self->rank, &config))
		return failed(self, override, text);
	return 0;
}

static int measure(struct self *self, uint32_t j, uint32_t iters, double *seconds)
{
	struct team *team = self->team;
	struct tune_job *job = &team->jobs[j];
	uint64_t took, before;
	int rc = 0;

	if (!self->rank)
		atomic_store(&team->shared->longest_ns, 0);
	if (!barrier(self))
		return EXIT_FAILURE;
	took = now_ns();
	for (uint32_t i = 0; i < iters && !rc; i++)
		rc = operate(self, job);
	took = now_ns() - took;
	if (rc)
		return failed(self, job->alg->name, coll_comm_last_error(self->comm[j]));
	before = atomic_load(&team->shared->longest_ns);
	while (took > before &&
	       !atomic_compare_exchange_weak(&team->shared->longest_ns, &before, took))
		;
	if (!barrier(self))
		return EXIT_FAILURE;
	*seconds = atomic_load(&team->shared->longest_ns) / 1e9 / iters;
	/* Nobody may go on to the next one before all have read it. */
	return barrier(self) ? 0 : EXIT_FAILURE;
}

static int measure_job(struct self *self, uint32_t j, bool first)
{
	struct team *team = self->team;
	uint32_t *iters = &self->iters[j];
	double seconds;

	if (first) {
		if (join(self, j) || measure(self, j, 1, &seconds) ||
		    measure(self, j, 2, &seconds))
			return EXIT_FAILURE;
		*iters = seconds > 0 ? team->opts->budget / seconds : MAX_ITERS;
		*iters = *iters > MAX_ITERS ? MAX_ITERS : *iters < 2 ? 2 : *iters;
	}
	if (measure(self, j, *iters, &seconds))
		return EXIT_FAILURE;
	if (team->jobs[j].alg->collective == NPULINK_COLL_P2P)
		seconds /= 2;
	if (!self->rank && (first || seconds < team->seconds[j]))
		team->seconds[j] = seconds;
	return 0;
}

static int rank_main(struct team *team, uint32_t rank)
{
	struct self self = { .team = team, .rank = rank };
	size_t len = buffer_size(team);

	self.iters = calloc(team->njobs, sizeof(*self.iters));
	self.comm = calloc(team->njobs, sizeof(*self.comm));
	self.send = buffer(len);
	self.recv = buffer(len);
	if (!self.iters || !self.comm || !self.send || !self.recv)
		return failed(&self, "buffers", "not enough memory");
	if (open_device(&self))
		return EXIT_FAILURE;
	for (uint32_t round = 0; round < team->opts->rounds; round++)
		for (uint32_t j = 0; j < team->njobs; j++)
			if (measure_job(&self, j, !round))
				return EXIT_FAILURE;
	/* The end of the process closes all; nobody may still need it. */
	return barrier(&self) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- all of them */

static uint32_t count_devices(void)
{
	char path[40];
	uint32_t n;

	for (n = 0; n < TUNE_MAX_RANKS; n++) {
		snprintf(path, sizeof(path), "/dev/npulink/npu%u", n);
		if (access(path, F_OK))
			break;
	}
	return n;
}

static void *share(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

static int run(struct team *team)
{
	pid_t pid[TUNE_MAX_RANKS], parent = getpid();
	bool good = true;
	int status;

	fflush(stdout);
	for (uint32_t r = 0; r < team->nranks; r++) {
		pid[r] = fork();
		if (!pid[r]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(EXIT_FAILURE);
			_exit(rank_main(team, r));
		}
		if (pid[r] < 0)
			atomic_store(&team->shared->stop, 1);
	}
	for (uint32_t r = 0; r < team->nranks; r++) {
		bool ok = pid[r] > 0 && waitpid(pid[r], &status, 0) == pid[r] && !status;

		if (!ok)
			atomic_store(&team->shared->stop, 1);
		good &= ok;
	}
	if (good)
		return 0;
	for (uint32_t r = 0; r < team->nranks; r++)
		if (*team->shared->text[r])
			return fail("rank %u of %u: %s", r, team->nranks, team->shared->text[r]);
	return fail("a rank of %u did not end well", team->nranks);
}

int tune_team(uint32_t nranks, struct tune_job *jobs, uint32_t njobs,
	      const struct tune_opts *opts)
{
	struct team team = {
		.nranks = nranks, .njobs = njobs, .jobs = jobs, .opts = opts,
		.ndevs = count_devices(),
	};
	int rc;

	if (!team.ndevs)
		return fail("there is no device: is npulink_soft loaded? See: npulink doctor");
	team.shared = share(sizeof(*team.shared));
	team.ids = share((njobs + 1) * sizeof(*team.ids));
	team.seconds = share((njobs + 1) * sizeof(*team.seconds));
	if (!team.shared || !team.ids || !team.seconds)
		return fail("not enough memory");
	for (uint32_t i = 0; i < njobs; i++)
		coll_get_unique_id(&team.ids[i]);
	rc = run(&team);
	for (uint32_t i = 0; i < njobs; i++)
		jobs[i].seconds = team.seconds[i];
	munmap(team.shared, sizeof(*team.shared));
	munmap(team.ids, (njobs + 1) * sizeof(*team.ids));
	munmap(team.seconds, (njobs + 1) * sizeof(*team.seconds));
	return rc;
}
