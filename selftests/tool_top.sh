#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink top, and rates of npulink link show, while two users move bytes.
#
# npulink-test: cpus=1 ndev=4 timeout=500 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}" "${schemas:?}"
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"

nice -n 19 npulink bench allreduce -p 4 -a ring -b 1M -e 1M -n 1000000 -c 0 -T 900 >/dev/null 2>&1 &
root_job=$!
$nobody nice -n 19 npulink bench broadcast -p 2 -b 64K -e 64K -n 1000000 -c 0 -T 900 >/dev/null 2>&1 &
nobody_job=$!
# Until there is a moment in which all of it moves.
ring='[.flows[] | select(.uid == 0) | [.from, .to]] | sort ==
	[["npu0", "npu1"], ["npu1", "npu2"], ["npu2", "npu3"], ["npu3", "npu0"]]'
for ((i = 0; i < 300; i++)); do
	npulink -j top -n 1 -d 0.5 >"$scratch/json" && jq -e "([.flows[].uid] | unique == [0, 65534]) and
		($ring)" "$scratch/json" >/dev/null && break
done

valid "top" top cat "$scratch/json"
json "both users" '[.flows[].uid] | unique == [0, 65534]' cat "$scratch/json"
json "processes" '.flows | all(.process == "npulink" and .pid > 1)' cat "$scratch/json"
json "links of a ring" "$ring" cat "$scratch/json"
json "busiest first" '[.flows[].bytes_per_second] | . == (sort | reverse) and .[0] > 0' \
	cat "$scratch/json"
json "all users" '.operations_per_second > 0 and .bytes_per_second > 0' cat "$scratch/json"
json "so many times" '.seconds > 0' sh -c '[ "$(npulink -j top -n 3 -d 0.05 | wc -l)" = 3 ] && npulink -j top -n 1 -d 0.05'
json "nobody sees only its own" '.flows | length > 0 and all(.uid == 65534)' \
	$nobody npulink -j top -n 1 -d 3
valid "nobody: top" top $nobody npulink -j top -n 1 -d 0.1
check "text" sh -c 'npulink top -n 1 -d 3 | grep -E "^ *[0-9]+ root +npulink .* npu[0-3] -> npu[0-3] "'
check "text: nobody" sh -c '! setpriv --reuid=65534 --regid=65534 --clear-groups npulink top -n 1 -d 0.2 | grep -w root'
timeout 100 npulink -j link show -w3 | head -n 2 | tail -n 1 >"$scratch/links"
valid "link show: again" link cat "$scratch/links"
json "link show: bytes per second" '.[] | select(.dev == "npu1" and .peer == "npu2") | .bytes_per_second > 0' \
	cat "$scratch/links"
json "link show: once, there is no rate" 'all(.bytes_per_second == null)' npulink -j link show
json "link show: time was taken" '.[] | select(.dev == "npu1" and .peer == "npu2") |
	.moves > 0 and .move_bytes > 0 and .move_ns > 0 and .type == "soft" and .state == "up"' npulink -j link show
kill $root_job $nobody_job
wait $root_job $nobody_job 2>/dev/null

# What is calibrated is told, and what is not.
echo 'alpha = 3e-6
beta = 2e-10' >"$scratch/calibration"
json "calibrated" 'all(.alpha_s == 3e-6 and .beta_s_per_byte == 2e-10)' \
	env COLL_CALIBRATION="$scratch/calibration" npulink -j link show
json "not calibrated" 'all(.alpha_s == null and .beta_s_per_byte == null)' \
	env COLL_CALIBRATION= npulink -j link show
check "text: calibrated" sh -c "COLL_CALIBRATION=$scratch/calibration npulink link show | grep 'takes 3.*alpha'"
check "text: not calibrated" sh -c 'COLL_CALIBRATION= npulink link show | grep "not calibrated"'

# A link that was lost.
echo 'npu2 down' >/sys/kernel/debug/npulink_soft/npu1/link
npulink bench sendrecv -p 4 -b 64K -e 64K -n 2 >/dev/null 2>&1
json "a link that is down" '.[] | select(.dev == "npu1" and .peer == "npu2") | .state == "down" and .errors > 0' \
	npulink -j link show
echo 'all up' >/sys/kernel/debug/npulink_soft/npu1/link
json "and up again" 'all(.state == "up")' npulink -j link show

finish
