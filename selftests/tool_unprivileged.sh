#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The npulink command as an ordinary user.
#
# npulink-test: cpus=1 unprivileged

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"

check "not root" test "$(id -u)" != 0
json "dev show" 'length == 8' npulink -j dev show
check "link show" npulink -j link show
check "bench" npulink bench allreduce -p 2 -b 8 -e 64K -f 64 -n 1
json "trace: own operations" '[.traceEvents[] | select(.name == "npulink_rank") | .args.uid] |
	length >= 2 and all(. == 65534)' npulink trace -
check "slow" npulink slow
json "doctor: access" '.findings | map(select(.check == "access" and .severity == "ok")) | length == 1' \
	sh -c 'npulink -j doctor || [ $? = 1 ]'
json "doctor: memlock" '.findings | map(select(.check == "memlock")) |
	length == 1 and .[0].severity == "warning" and (.[0].fix | contains("memlock"))' \
	sh -c 'npulink -j doctor -m 1T || [ $? = 1 ]'
check "doctor: only warnings" sh -c 'npulink doctor; [ $? -le 1 ]'

# More than may be locked: it says so at the end of the table, too, for who reads only that.
expect "bench beyond the limit" 1 npulink bench allreduce -p 2 -b 1M -e 64M -f 8 -n 1
cp "$scratch/out" "$scratch/table"
expect "which sizes it has not measured" 0 grep -q '^# Sizes measured *: [12] of 3 FAILED$' "$scratch/table"

finish
