#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a program that is built against libcoll gets: the header in every standard of C and C++,
# without a warning, and no names but those that it declares.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
cd "${NPULINK_TREE:-.}" || exit 1
header=lib/include/coll.h

# ---- names

# Declarations only: a name followed by a parenthesis, outside comments.
gcc -fpreprocessed -dD -E -P $header | grep -v '^#' | grep -o '\bcoll_[a-z0-9_]*(' | tr -d '(' |
	sort -u >"$scratch/declared"
check "the header declares functions" test "$(wc -l <"$scratch/declared")" -gt 60
nm -D --defined-only build/lib/libcoll.so | awk '$2 ~ /[TDBRVW]/ { sub(/@.*/, "", $3); print $3 }' |
	sort -u >"$scratch/shared"
check "the shared library exports these" diff "$scratch/declared" "$scratch/shared"
nm -g --defined-only build/lib/libcoll.a | awk 'NF == 3 { print $3 }' | sort -u >"$scratch/static"
check "the static library defines these for others" diff "$scratch/declared" "$scratch/static"

cat >"$scratch/clash.c" <<'END'
#include <coll.h>

/* As a program's own planner may call them. */
int plan_copy(int n) { return n + 1; }
int chunks_of(int n) { return n / 4; }

int main(void)
{
	struct coll_comm *comm;
	long x[4] = { 0 };

	if (plan_copy(1) != 2 || chunks_of(8) != 2)
		return 1;
	return coll_comm_init_env(&comm, NULL) ? 0 :
	       coll_allreduce(comm, COLL_IN_PLACE, x, 4, COLL_INT64, COLL_SUM);
}
END
check "a program may have names of the library's inside" gcc -Ilib/include -o "$scratch/clash" \
	"$scratch/clash.c" build/lib/libcoll.a -pthread -lm
check "and runs" env -u RANK -u PMIX_RANK "$scratch/clash"

# ---- header

cat >"$scratch/user.c" <<'END'
#include <coll.h>
#include <coll.h>

#if COLL_VERSION < (COLL_VERSION_MAJOR << 16 | COLL_VERSION_MINOR << 8 | COLL_VERSION_PATCH)
#error COLL_VERSION
#endif

struct coll_config init = COLL_CONFIG_INIT;
struct coll_state state = COLL_STATE_INIT;
struct coll_comm_info info = COLL_COMM_INFO_INIT;
const char *version = COLL_VERSION_STRING;
unsigned char bytes[COLL_UNIQUE_ID_BYTES];

int use(struct coll_comm *comm, float *x, struct coll_request **request);
int use(struct coll_comm *comm, float *x, struct coll_request **request)
{
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *made;

	config.flags = COLL_ANY_UID | COLL_CHECKSUM | COLL_MINORITY;
	if (config.deadline_ns != COLL_DEADLINE_AUTO || config.size != sizeof(config))
		return -1;
	if (coll_comm_init_env(&made, &config))
		return COLL_NO_RANK == 0;
	return coll_iallreduce(comm, COLL_IN_PLACE, x, 4, COLL_FLOAT32, COLL_SUM, request);
}
END
cp "$scratch/user.c" "$scratch/user.cc"

# Not of much use if the header has got more than this program has.
unused=
for macro in $(sed -n 's/^#define[ \t]\+\(COLL_[A-Z_]*\).*/\1/p' $header); do
	[ "$macro" = COLL_H ] || grep -qw "$macro" "$scratch/user.c" || unused+=" $macro"
done
check "the program has every macro${unused:+ but$unused}" test -z "$unused"

strict="-Wall -Wextra -pedantic-errors -Werror -Ilib/include -c -o /dev/null"
for std in c99 c11 c17 c2x; do
	# shellcheck disable=SC2086 # a list
	check "$std" gcc -std=$std $strict "$scratch/user.c"
done
for std in c++11 c++14 c++17 c++20 c++23; do
	# shellcheck disable=SC2086 # a list
	check "$std" g++ -std=$std $strict "$scratch/user.cc"
done

finish
