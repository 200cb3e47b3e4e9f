#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What threads.c does, under the thread sanitizer: it may not find a race.

program=${NPULINK_TESTS:-build/selftests}/lib-tsan/threads
if [ ! -e "$program" ]; then
	echo "1..0 # SKIP it is built by: make selftests-san"
	exit 4
fi
# Where addresses have more random bits than it knows, it does not start.
run=(setarch -R)
"${run[@]}" true 2>/dev/null || run=()
exec env TSAN_OPTIONS=halt_on_error=1:exitcode=66 "${run[@]}" "$program"
