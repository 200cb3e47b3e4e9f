// SPDX-License-Identifier: GPL-2.0
/*
 * fit.c - least squares for npulink tune: few coefficients, of which none may be
 * negative, and measurements from microseconds to seconds that count alike.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tune/job.h"

struct normal {
	double a[TUNE_MAX_COLS][TUNE_MAX_COLS + 1];
	uint32_t n;
};

/* Of the columns in use[]. */
static void normal_of(const double *x, const double *y, uint32_t nrows, uint32_t ncols,
		      const uint32_t *use, struct normal *m)
{
	memset(m->a, 0, sizeof(m->a));
	for (uint32_t r = 0; r < nrows; r++) {
		const double *row = x + (size_t)r * ncols;
		double w = 1 / (y[r] * y[r]);

		for (uint32_t i = 0; i < m->n; i++) {
			for (uint32_t j = 0; j < m->n; j++)
				m->a[i][j] += w * row[use[i]] * row[use[j]];
			m->a[i][m->n] += w * row[use[i]] * y[r];
		}
	}
}

/* By Gauss and Jordan; the largest element left is the pivot of its column. */
static void solve(struct normal *m, double *coef)
{
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t best = i;

		for (uint32_t r = i + 1; r < m->n; r++)
			if (fabs(m->a[r][i]) > fabs(m->a[best][i]))
				best = r;
		for (uint32_t j = 0; j <= m->n; j++) {
			double t = m->a[i][j];

			m->a[i][j] = m->a[best][j];
			m->a[best][j] = t;
		}
		/* A column that says nothing gets nothing. */
		if (fabs(m->a[i][i]) < 1 / 1e300)
			continue;
		for (uint32_t r = 0; r < m->n; r++) {
			double f = m->a[r][i] / m->a[i][i];

			for (uint32_t j = i; r != i && j <= m->n; j++)
				m->a[r][j] -= f * m->a[i][j];
		}
	}
	for (uint32_t i = 0; i < m->n; i++)
		coef[i] = fabs(m->a[i][i]) < 1 / 1e300 ? 0 : m->a[i][m->n] / m->a[i][i];
}

void tune_fit(const double *x, const double *y, uint32_t nrows, uint32_t ncols, double *coef)
{
	uint32_t use[TUNE_MAX_COLS], worst;
	double found[TUNE_MAX_COLS];
	struct normal m = { .n = ncols };

	for (uint32_t i = 0; i < ncols; i++)
		use[i] = i;
	while (m.n) {
		normal_of(x, y, nrows, ncols, use, &m);
		solve(&m, found);
		worst = 0;
		for (uint32_t i = 1; i < m.n; i++)
			if (found[i] < found[worst])
				worst = i;
		if (found[worst] >= 0)
			break;
		m.n--;
		memmove(use + worst, use + worst + 1, (m.n - worst) * sizeof(*use));
	}
	memset(coef, 0, ncols * sizeof(*coef));
	for (uint32_t i = 0; i < m.n; i++)
		coef[use[i]] = found[i];
}

static int double_cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double tune_error(const double *x, const double *y, uint32_t nrows, uint32_t ncols,
		  const double *coef)
{
	double *error = calloc(nrows + 1, sizeof(*error)), median;

	if (!error)
		return 0;
	for (uint32_t r = 0; r < nrows; r++) {
		double sum = 0;

		for (uint32_t c = 0; c < ncols; c++)
			sum += coef[c] * x[(size_t)r * ncols + c];
		error[r] = fabs(sum / y[r] - 1);
	}
	qsort(error, nrows, sizeof(*error), double_cmp);
	median = error[nrows / 2];
	free(error);
	return median;
}
