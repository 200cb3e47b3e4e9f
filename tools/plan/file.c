// SPDX-License-Identifier: GPL-2.0
/*
 * file.c - the plans of all ranks from a file in libcoll's text form, for the
 * commands of npulink plan that can look at other people's schedules.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/base/base.h"
#include "lib/plan/text.h"
#include "plan/options.h"

/* Plans of a file by rank. */
struct file_set {
	struct coll_text *texts;
	size_t n, cap;
	const struct coll_text **by_rank;
};

static char *read_all(const char *path, size_t *len)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : stdin;
	char *text = NULL, *bigger;
	size_t cap = 0, n;
	int rc;

	*len = 0;
	if (!file)
		return NULL;
	do {
		if (*len == cap) {
			cap = cap ? 2 * cap : 65536;
			bigger = realloc(text, cap);
			if (!bigger) {
				free(text);
				text = NULL;
				break;
			}
			text = bigger;
		}
		n = fread(text + *len, 1, cap - *len, file);
		*len += n;
	} while (n);
	rc = !text ? ENOMEM : ferror(file) ? errno : 0;
	if (file != stdin)
		fclose(file);
	if (rc) {
		free(text);
		text = NULL;
		errno = rc;
	}
	return text;
}

static int parse_file(const char *path, const char *text, size_t len, struct file_set *set)
{
	struct coll_text_error error;
	uint32_t line = 0;
	int rc;

	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		return fail("%s:1: it begins with a byte order mark: save it as UTF-8 without that",
			    path);
	for (;;) {
		if (set->n == set->cap) {
			struct coll_text *texts;

			set->cap = set->cap ? 2 * set->cap : 16;
			texts = reallocarray(set->texts, set->cap, sizeof(*texts));
			if (!texts)
				return fail("not enough memory");
			set->texts = texts;
		}
		rc = coll_plan_parse(&text, &len, &line, &set->texts[set->n], &error);
		if (rc == -ENOENT)
			return 0;
		if (rc == -EINVAL)
			return fail("%s:%u: %s", path, error.line, error.text);
		if (rc)
			return fail("%s: %s", path, strerror(-rc));
		set->n++;
	}
}

/* One plan for each rank, all for the same call. */
static int sort_file(const char *path, struct file_set *set)
{
	const struct coll_args *first, *args;
	uint32_t nranks;

	if (!set->n)
		return fail("%s: there is no plan in it", path);
	first = &set->texts[0].args;
	nranks = first->nranks;
	set->by_rank = calloc(nranks, sizeof(*set->by_rank));
	if (!set->by_rank)
		return fail("not enough memory");
	for (size_t i = 0; i < set->n; i++) {
		args = &set->texts[i].args;
		if (args->nranks != nranks || args->collective != first->collective ||
		    args->dtype != first->dtype || args->redop != first->redop ||
		    args->root != first->root || args->count != first->count)
			return fail("%s: the plans of rank %u and %u are for different calls",
				    path, first->rank, args->rank);
		if (set->by_rank[args->rank])
			return fail("%s: there are two plans of rank %u", path, args->rank);
		set->by_rank[args->rank] = &set->texts[i];
	}
	for (uint32_t rank = 0; rank < nranks; rank++)
		if (!set->by_rank[rank])
			return fail("%s: the plan of rank %u of %u is missing", path, rank, nranks);
	return 0;
}

/* Whoever gets a plan frees it, so it is a copy. */
static int get_plan(void *ctx, uint32_t rank, struct coll_args *args, struct coll_plan *plan)
{
	const struct file_set *set = ctx;
	const struct coll_text *text = set->by_rank[rank];
	size_t len = text->plan.nsteps * sizeof(*plan->steps);

	*args = text->args;
	*plan = text->plan;
	plan->steps = malloc(len ?: 1);
	if (!plan->steps)
		return -ENOMEM;
	memcpy(plan->steps, text->plan.steps, len);
	plan->cap = plan->nsteps;
	return 0;
}

void plan_file_free(struct plan_file *file)
{
	struct file_set *set = file->mem;

	for (size_t i = 0; i < set->n; i++)
		coll_text_free(&set->texts[i]);
	free(set->texts);
	free(set->by_rank);
	free(set);
}

int plan_file_read(struct plan_file *file, const char *path)
{
	struct file_set *set;
	size_t len;
	char *text;
	int rc;

	*file = (struct plan_file){ };
	text = read_all(path, &len);
	if (!text)
		return fail("cannot read %s: %s", path, strerror(errno));
	set = calloc(1, sizeof(*set));
	file->mem = set;
	rc = set ? parse_file(path, text, len, set) : fail("not enough memory");
	free(text);
	if (!rc)
		rc = sort_file(path, set);
	if (rc) {
		if (set)
			plan_file_free(file);
		return rc;
	}
	file->args = set->texts[0].args;
	file->alg.name = *set->texts[0].algorithm ? set->texts[0].algorithm : "of the file";
	file->set = (struct coll_set){
		.nranks = file->args.nranks, .get = get_plan, .ctx = set, .seed = 1,
	};
	return 0;
}
