// SPDX-License-Identifier: GPL-2.0
/*
 * tune_fit.c - the least squares of npulink tune.
 */
#include <math.h>
#include <stdlib.h>
#include "kselftest.h"
#include "tools/tune/job.h"

static bool near(double a, double b)
{
	return fabs(a - b) <= 1 / 1e6 * fabs(b);
}

static void test_exact(void)
{
	double x[8][2], y[8], coef[2];

	for (int i = 0; i < 8; i++) {
		x[i][0] = 1;
		x[i][1] = 1 << 3 * i;
		y[i] = 2 / 1e6 + 3 / 1e10 * x[i][1];
	}
	tune_fit(x[0], y, 8, 2, coef);
	ksft_test_result(near(coef[0], 2 / 1e6) && near(coef[1], 3 / 1e10), "alpha and beta\n");
}

/* Small times count as much as large ones: the first is hardly moved by a bad last one. */
static void test_relative(void)
{
	double x[3][2] = { { 1, 0 }, { 1, 0 }, { 1, 1e6 } }, coef[2];
	double y[3] = { 1 / 1e6, 1 / 1e6, 5 / 1e4 };

	tune_fit(x[0], y, 3, 2, coef);
	ksft_test_result(near(coef[0], 1 / 1e6) && near(coef[1], (5 / 1e4 - 1 / 1e6) / 1e6),
			 "relative errors count\n");
}

static void test_several(void)
{
	double want[5] = { 8 / 1e6, 1 / 1e6, 2 / 1e6, 1.5 / 1e10, 3 / 1e10 };
	double x[60][5], y[60], coef[5];
	bool ok = true;

	srand(1);
	for (int i = 0; i < 60; i++) {
		y[i] = 0;
		for (int c = 0; c < 5; c++) {
			x[i][c] = c ? rand() % (c < 3 ? 100 : 1000000) : 8;
			y[i] += want[c] * x[i][c];
		}
	}
	tune_fit(x[0], y, 60, 5, coef);
	for (int c = 0; c < 5; c++)
		ok &= near(coef[c], want[c]);
	ksft_test_result(ok, "five coefficients\n");
}

static void test_negative(void)
{
	double x[6][3], y[6], coef[3];

	for (int i = 0; i < 6; i++) {
		x[i][0] = 1;
		x[i][1] = i * i;
		x[i][2] = i;
		y[i] = 10 + 2 * i - 0.1 * i * i;
	}
	tune_fit(x[0], y, 6, 3, coef);
	ksft_test_result(coef[0] > 0 && coef[1] == 0 && coef[2] > 0, "nothing is negative\n");
}

static void test_empty_column(void)
{
	double x[4][3] = { { 1, 0, 1 }, { 1, 0, 2 }, { 1, 0, 3 }, { 1, 0, 4 } }, coef[3];
	double y[4] = { 3, 5, 7, 9 };

	tune_fit(x[0], y, 4, 3, coef);
	ksft_test_result(near(coef[0], 1) && coef[1] == 0 && near(coef[2], 2),
			 "a column of zeroes\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(5);
	test_exact();
	test_relative();
	test_several();
	test_negative();
	test_empty_column();
	ksft_finished();
}
