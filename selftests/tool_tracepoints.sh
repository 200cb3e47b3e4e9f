#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The tracepoints, as perf and bpftrace see them.
#
# npulink-test: ndev=4 probes timeout=300 named

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=$(cd "${NPULINK_TREE:-.}" && pwd)
events=/sys/kernel/tracing/events/npulink
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing ||
	{ echo "1..0 # SKIP this kernel has no tracefs"; exit 4; }
[ -d $events ] || { echo "1..0 # SKIP this kernel has no tracepoints"; exit 4; }

run="npulink bench allreduce -a ring -p 4 -b 64K -e 64K -n 1 -w 0 -c 0"
for event in post issue step "done" abort link; do
	check "npulink_$event is there" test -e $events/npulink_$event/format
done

cd /sys/kernel/tracing || exit 1
echo >trace
echo 1 >$events/enable
$run >/dev/null
echo 0 >$events/enable
cp trace "$scratch/trace"
# Two collectives (in place, too) and barriers of 4 ranks; a ring has 6 steps with a receiver.
check "every post is done" sh -c '
	[ "$(grep -c npulink_post: "$1")" -ge 8 ] &&
	[ "$(grep -c npulink_post: "$1")" = "$(grep -c npulink_done: "$1")" ]' - "$scratch/trace"
check "algorithm and times are told" grep -q \
	'npulink_done: comm=[0-9]* rank=[0-3] number=[0-9]* allreduce count=16384 dtype=10 algorithm=ring status=0 ns=[1-9][0-9]* wait=' \
	"$scratch/trace"
check "every step" sh -c '[ "$(grep -c "npulink_step:.* bytes=16384 from=[0-3]" "$1")" = 48 ]' - \
	"$scratch/trace"
check "every request" sh -c '[ "$(grep -c "npulink_issue:.* bytes=16384 from=[0-3]" "$1")" = 48 ]' - \
	"$scratch/trace"
# A rank that is killed, and a device that goes.
echo >trace
echo 1 >$events/enable
npulink bench allreduce -a ring -p 4 -b 64K -e 64K -n 1000000 -c 0 >/dev/null 2>&1 &
bench=$!
for ((i = 0; i < 300; i++)); do
	! grep -q npulink_done: trace || break
	sleep 0.1
done
kill -9 "$(pgrep -P $bench | head -n 1)"
wait $bench
echo 1 >/sys/devices/npulink_soft/new_device
npulink bench allreduce -a ring -p 5 -b 8 -e 8 -n 1 >/dev/null
echo npu4 >/sys/devices/npulink_soft/del_device
echo 0 >$events/enable
grep -E 'npulink_(abort|link):' trace >"$scratch/trace"
check "a death" grep -q 'npulink_abort: comm=[0-9]* death rank=[0-3]' "$scratch/trace"
check "a link that comes" grep -q 'npulink_link: npu3 -> npu4 up' "$scratch/trace"
check "a link that goes" grep -q 'npulink_link: npu3 -> npu4 gone bytes=[1-9]' "$scratch/trace"
cd - >/dev/null || exit 1

if ! command -v perf >/dev/null; then
	skip "perf" "not installed"
else
	check "perf stat" sh -c "perf stat -x, -a -e npulink:npulink_done -o '$scratch/stat' -- $run >/dev/null &&
		grep -q '^[1-9][0-9]*,,npulink:npulink_done' '$scratch/stat'"
	# It takes a minute, most of it before the command runs.
	[ -z "${NPULINK_SOAK-}" ] ||
		check "perf record" sh -c "cd '$scratch' && perf record -q -a -e 'npulink:*' -o data -- $run >/dev/null &&
		perf script -i data | grep -q 'npulink:npulink_step: comm=.* engine='"
fi
if ! command -v bpftrace >/dev/null; then
	skip "bpftrace" "not installed"
elif [ ! -e /proc/sys/kernel/unprivileged_bpf_disabled ]; then
	skip "bpftrace" "this kernel has no BPF"
else
	# Its -c wants a program by its path.
	check "bpftrace example" bpftrace "$tree/tools/examples/collectives.bt" -o "$scratch/bt" \
		-c "$tree/build/tools/$run"
	check "its histograms" sh -c '
		grep -q "@took_us\[ring\]:" "$1" && grep -q "@waited_us\[ring\]:" "$1" &&
		[ "$(grep -c "@collectives\[[0-9]*, [0-3]\]: [1-9]" "$1")" = 4 ]' - "$scratch/bt"
fi

finish
