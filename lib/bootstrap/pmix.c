// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * pmix.c - the exchange by PMIx, which Open MPI's mpirun, prterun and
 * srun --mpi=pmix speak with the processes that they start.
 *
 * Each rank puts what it has to say into the launcher's store, and a fence that collects
 * the data hands all of it to all ranks. How it travels is the launcher's business, and
 * so is who may read it: its daemons know each other and whom they have started.
 *
 * libpmix is opened when it is needed, so that programs which nobody started by PMIx can
 * do without it. The layout of its structures is not ours to repeat: if its header was
 * not there when libcoll was built, ranks cannot meet in this way.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "bootstrap/bootstrap.h"

#if __has_include("pmix.h")
#include <dlfcn.h>
#include <pmix.h>

#define LIBRARY		"libpmix.so.2"
#define MISSING_NS	2000000000ULL	/* to find out who has not come */

/**
 * struct wait - answers under way
 * @lock: protects all of it
 * @changed: signalled when @pending has changed
 * @refs: the waiting rank, and every answer that is still to come
 * @pending: answers to come
 * @info: what the calls were told; libpmix may look at it until the last answer ..
 * @key: .. and at this
 * @answers: each knows where it belongs, and whom it is about
 *
 * An answer may come when nobody waits any more.
 */
struct wait {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int refs, pending;
	pmix_info_t info;
	char key[32];
	struct answer {
		struct wait *wait;
		pmix_proc_t proc;
		bool here;
		pmix_status_t status;
	} answers[];
};

/**
 * struct pmix - libpmix
 * @self: this rank
 * @init: PMIx_Init(), and so on
 */
struct pmix {
	pmix_proc_t self;
	pmix_status_t (*init)(pmix_proc_t *proc, pmix_info_t *info, size_t n);
	pmix_status_t (*finalize)(const pmix_info_t *info, size_t n);
	pmix_status_t (*put)(pmix_scope_t scope, const char *key, pmix_value_t *value);
	pmix_status_t (*commit)(void);
	pmix_status_t (*fence)(const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info,
			       size_t n, pmix_op_cbfunc_t done, void *arg);
	pmix_status_t (*get)(const pmix_proc_t *proc, const char *key, const pmix_info_t *info,
			     size_t n, pmix_value_t **value);
	pmix_status_t (*get_nb)(const pmix_proc_t *proc, const char *key, const pmix_info_t *info,
				size_t n, pmix_value_cbfunc_t done, void *arg);
	const char *(*error_string)(pmix_status_t status);
};

/*
 * PMIx is the process's, not a communicator's: started once, since it does not come back
 * after PMIx_Finalize(), and a key can be put once, so exchanges are counted. All ranks
 * make their communicators in the same order and count alike.
 */
static struct {
	pthread_mutex_t lock;
	pmix_status_t (*finalize)(const pmix_info_t *info, size_t n);
	pid_t pid;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic unsigned int exchanges;

/* Else the launcher takes it for a process that has died. */
static void finalize_at_exit(void)
{
	if (process.pid == getpid())
		process.finalize(NULL, 0);
}

/* ---- waiting, with a time at which to give up */

static struct wait *wait_new(size_t answers)
{
	struct wait *w = calloc(1, sizeof(*w) + answers * sizeof(w->answers[0]));
	pthread_condattr_t attr;

	if (!w)
		return NULL;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &attr);
	pthread_condattr_destroy(&attr);
	w->refs = 1;
	return w;
}

static void wait_put(struct wait *w)
{
	bool last;

	pthread_mutex_lock(&w->lock);
	last = !--w->refs;
	pthread_mutex_unlock(&w->lock);
	if (!last)
		return;
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Before the call that will be answered. */
static struct answer *wait_expect(struct wait *w, uint32_t i)
{
	pthread_mutex_lock(&w->lock);
	w->refs++;
	w->pending++;
	w->answers[i].wait = w;
	pthread_mutex_unlock(&w->lock);
	return &w->answers[i];
}

static void wait_answer(struct answer *a, pmix_status_t status)
{
	struct wait *w = a->wait;

	pthread_mutex_lock(&w->lock);
	w->pending--;
	a->here = true;
	a->status = status;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	wait_put(w);
}

static void op_answered(pmix_status_t status, void *arg)
{
	wait_answer(arg, status);
}

static void value_answered(pmix_status_t status, pmix_value_t *value, void *arg)
{
	wait_answer(arg, status);
}

/* Returns whether all answers have come. */
static bool wait_until(struct wait *w, uint64_t until_ns)
{
	const struct timespec ts = {
		.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000,
	};
	bool done;
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	while (w->pending && !rc)
		rc = pthread_cond_timedwait(&w->changed, &w->lock, &ts);
	done = !w->pending;
	pthread_mutex_unlock(&w->lock);
	return done;
}

/* ---- calls */

static int fail(struct coll_bootstrap *b, int rc, const char *call, pmix_status_t status)
{
	const struct pmix *p = b->priv;

	return coll_text(b->text, sizeof(b->text), rc,
			 "%s: %s (PMIx status %d): the launcher or its daemon on this machine may have gone",
			 call, p->error_string(status), status);
}

/* Whole seconds that are left, for limits which the launcher's side is to keep. */
static int seconds_left(const struct coll_bootstrap *b)
{
	uint64_t now = coll_now_ns(), seconds;

	seconds = now < b->until_ns ? (b->until_ns - now) / 1000000000 + 1 : 1;
	return seconds < INT_MAX ? seconds : INT_MAX;
}

static void limit(pmix_info_t *info, int seconds)
{
	*info = (pmix_info_t) { .key = PMIX_TIMEOUT };
	info->value.type = PMIX_INT;
	info->value.data.integer = seconds;
}

static int get_number(struct coll_bootstrap *b, const pmix_proc_t *proc, const char *key,
		      uint32_t *number)
{
	struct pmix *p = b->priv;
	pmix_value_t *value = NULL;
	pmix_info_t info;
	pmix_status_t status;

	limit(&info, seconds_left(b));
	status = p->get(proc, key, &info, 1, &value);
	if (status)
		return fail(b, -EPROTO, key, status);
	*number = value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
	free(value);
	return 0;
}

/*
 * Not all have come to the fence: who has put nothing? A fence cannot be asked, but every
 * rank that is there has left something under the key.
 */
static int fail_missing(struct coll_bootstrap *b, const char *key)
{
	struct wait *w = wait_new(b->nranks);
	bool *here = calloc(b->nranks, sizeof(*here));
	struct pmix *p = b->priv;
	char text[160] = "";

	if (!w || !here)
		goto out;
	limit(&w->info, 1);
	snprintf(w->key, sizeof(w->key), "%s", key);
	for (uint32_t i = 0; i < b->nranks; i++) {
		struct answer *a = wait_expect(w, i);
		pmix_status_t status;

		a->proc = p->self;
		a->proc.rank = i;
		status = p->get_nb(&a->proc, w->key, &w->info, 1, value_answered, a);
		if (status)
			wait_answer(a, status);
	}
	wait_until(w, coll_now_ns() + MISSING_NS);
	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < b->nranks; i++)
		here[i] = w->answers[i].here && !w->answers[i].status;
	pthread_mutex_unlock(&w->lock);
	coll_bootstrap_missing(here, b->nranks, text, sizeof(text));
out:
	if (w)
		wait_put(w);
	free(here);
	return coll_text(b->text, sizeof(b->text), -ETIMEDOUT,
			 "rank %s did not come to the launcher's PMIx fence within %.3g s: does every process that the launcher started make this communicator?",
			 *text ? text : "?", b->patience_ns / 1e9);
}

static int fence(struct coll_bootstrap *b, const char *key)
{
	struct wait *w = wait_new(1);
	struct pmix *p = b->priv;
	pmix_status_t status;
	struct answer *a;
	int rc = 0;

	if (!w)
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	w->info = (pmix_info_t) { .key = PMIX_COLLECT_DATA };
	w->info.value.type = PMIX_BOOL;
	w->info.value.data.flag = true;
	a = wait_expect(w, 0);
	status = p->fence(NULL, 0, &w->info, 1, op_answered, a);
	if (status == PMIX_OPERATION_SUCCEEDED)
		wait_answer(a, PMIX_SUCCESS);
	else if (status)
		wait_answer(a, status);
	/* The limit that PMIx_Fence() can be given is kept by some launchers only. */
	if (!wait_until(w, b->until_ns))
		rc = fail_missing(b, key);
	else if (w->answers[0].status)
		rc = fail(b, -EIO, "PMIx_Fence", w->answers[0].status);
	wait_put(w);
	return rc;
}

/* ---- the table */

static int load(struct coll_bootstrap *b, struct pmix *p)
{
	const struct {
		void **function;
		const char *name;
	} functions[] = {
		{ (void **)&p->init, "PMIx_Init" },
		{ (void **)&p->finalize, "PMIx_Finalize" },
		{ (void **)&p->put, "PMIx_Put" },
		{ (void **)&p->commit, "PMIx_Commit" },
		{ (void **)&p->fence, "PMIx_Fence_nb" },
		{ (void **)&p->get, "PMIx_Get" },
		{ (void **)&p->get_nb, "PMIx_Get_nb" },
		{ (void **)&p->error_string, "PMIx_Error_string" },
	};
	void *library;

	/* It has threads from PMIx_Init() on, so it is never closed. */
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_NODELETE);
	if (!library)
		return coll_text(b->text, sizeof(b->text), -ELIBACC,
				 "this process was started by PMIx, but its library cannot be used (%s): install libpmix2, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
				 dlerror());
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		*functions[i].function = dlsym(library, functions[i].name);
		if (!*functions[i].function)
			return coll_text(b->text, sizeof(b->text), -ELIBACC,
					 LIBRARY " is too old: it has no %s", functions[i].name);
	}
	return 0;
}

/* Others in the process may have started it before, MPI for one: it counts. */
static int init(struct coll_bootstrap *b, struct pmix *p)
{
	pmix_status_t status;
	int rc = 0;

	pthread_mutex_lock(&process.lock);
	status = p->init(&p->self, NULL, 0);
	if (status) {
		rc = fail(b, -ENOTCONN, "PMIx_Init", status);
	} else if (process.pid == getpid()) {
		p->finalize(NULL, 0);
	} else {
		process.finalize = p->finalize;
		process.pid = getpid();
		atexit(finalize_at_exit);
	}
	pthread_mutex_unlock(&process.lock);
	return rc;
}

static int pmix_open(struct coll_bootstrap *b)
{
	struct pmix *p = calloc(1, sizeof(*p));
	pmix_proc_t job;
	int rc;

	b->priv = p;
	if (!p)
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	rc = load(b, p);
	if (!rc)
		rc = init(b, p);
	if (rc)
		return rc;
	job = p->self;
	job.rank = PMIX_RANK_WILDCARD;
	b->rank = p->self.rank;
	rc = get_number(b, &job, PMIX_JOB_SIZE, &b->nranks);
	if (!rc)
		rc = get_number(b, &p->self, PMIX_LOCAL_RANK, &b->local);
	if (!rc && b->rank >= b->nranks)
		rc = coll_text(b->text, sizeof(b->text), -EPROTO,
			       "PMIx says that this is rank %u of %u", b->rank, b->nranks);
	return rc;
}

static int put(struct coll_bootstrap *b, const char *key, const void *data, size_t len)
{
	pmix_value_t value = { .type = PMIX_BYTE_OBJECT };
	struct pmix *p = b->priv;
	pmix_status_t status;

	value.data.bo.bytes = (char *)data;
	value.data.bo.size = len;
	status = p->put(PMIX_GLOBAL, key, &value);
	if (status)
		return fail(b, -EIO, "PMIx_Put", status);
	status = p->commit();
	return status ? fail(b, -EIO, "PMIx_Commit", status) : 0;
}

static int get(struct coll_bootstrap *b, uint32_t rank, const char *key, void *data, size_t len)
{
	pmix_value_t *value = NULL;
	struct pmix *p = b->priv;
	pmix_proc_t proc = p->self;
	pmix_status_t status;
	pmix_info_t info;
	int rc = 0;

	proc.rank = rank;
	limit(&info, seconds_left(b));
	status = p->get(&proc, key, &info, 1, &value);
	if (status)
		return coll_text(b->text, sizeof(b->text), -EIO,
				 "PMIx has nothing of rank %u: %s (status %d)", rank,
				 p->error_string(status), status);
	if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != len)
		rc = coll_text(b->text, sizeof(b->text), -EPROTO,
			       "what PMIx has of rank %u is not from this version of libcoll: use one version on all ranks",
			       rank);
	else
		memcpy(data, value->data.bo.bytes, len);
	if (value->type == PMIX_BYTE_OBJECT)
		free(value->data.bo.bytes);
	free(value);
	return rc;
}

static int pmix_allgather(struct coll_bootstrap *b, const void *mine, size_t len, void *all)
{
	char key[32];
	int rc;

	snprintf(key, sizeof(key), "npulink.%u", atomic_fetch_add(&exchanges, 1));
	rc = put(b, key, mine, len);
	if (!rc)
		rc = fence(b, key);
	for (uint32_t i = 0; i < b->nranks && !rc; i++)
		if (i != b->rank)
			rc = get(b, i, key, (uint8_t *)all + i * len, len);
	memcpy((uint8_t *)all + b->rank * len, mine, len);
	return rc;
}

static void pmix_close(struct coll_bootstrap *b)
{
	free(b->priv);
	b->priv = NULL;
}

#else
#pragma message "pmix.h is missing (libpmix-dev): libcoll will not meet by PMIx"

static int pmix_open(struct coll_bootstrap *b)
{
	return coll_text(b->text, sizeof(b->text), -ELIBACC,
			 "this process was started by PMIx, which libcoll was built without: build it with libpmix-dev, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

static int pmix_allgather(struct coll_bootstrap *b, const void *mine, size_t len, void *all)
{
	return -ELIBACC;
}

static void pmix_close(struct coll_bootstrap *b)
{
}
#endif

const struct coll_bootstrap_ops coll_bootstrap_pmix = {
	.name = "pmix",
	.numbers = true,
	.open = pmix_open,
	.allgather = pmix_allgather,
	.close = pmix_close,
};
