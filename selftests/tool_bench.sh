#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink bench: every collective, its table and its JSON, and what happens
# when a rank does not survive.
#
# npulink-test: cpus=1 timeout=300 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"

for coll in allreduce reduce_scatter allgather alltoall broadcast reduce gather scatter \
	sendrecv barrier; do
	json "$coll" '.out_of_bounds.okay and .out_of_bounds.count == 0 and (.results | length) > 0
		and (.errors | length) == 0' \
		npulink bench $coll -p 4 -b 8 -e 64K -f 32 -n 2 -j
done
json "nccl-tests' names" '.collective == "allreduce"' npulink bench all_reduce -p 2 -b 8 -e 8 -n 1 -j
# What it expects of each reduction and of each type; in make soak of all.
pairs="sum:float prod:bfloat16 min:float max:bfloat16 avg:float"
types="int8 uint64 half"
if [ -n "${NPULINK_SOAK-}" ]; then
	pairs+=" sum:bfloat16 prod:float min:bfloat16 max:float avg:bfloat16"
	types+=" uint8 int16 uint16 int32 uint32 int64 double"
fi
for pair in $pairs; do
	check "allreduce ${pair%:*} of ${pair#*:}" \
		npulink bench allreduce -p 3 -b 10K -e 10K -n 1 -o "${pair%:*}" -d "${pair#*:}"
done
for type in $types; do
	check "allreduce avg of $type" npulink bench allreduce -p 3 -b 10K -e 10K -n 1 -o avg -d $type
done
check "ranks that share devices" npulink bench allreduce -p 11 -b 8 -e 64K -f 64 -n 1
check "one rank" npulink bench allreduce -p 1 -b 8 -e 64K -f 64 -n 1
check "root" npulink bench broadcast -p 3 -r 2 -b 1K -e 1K -n 1
check "size 0" npulink bench allreduce -p 2 -b 0 -e 0 -n 1
check "forced algorithm" npulink bench allreduce -p 3 -a ring -b 1K -e 1K -n 1
check "no checking" npulink bench allreduce -p 2 -b 1K -e 1K -n 1 -c 0
check "times of iterations" npulink bench allreduce -p 2 -b 1K -e 1K -n 5 -I
json "times of iterations in JSON" '.results[0].out_of_place_per_iter.times_us | length == 5' \
	npulink bench allreduce -p 2 -b 1K -e 1K -n 5 -I -j

expect "unknown collective" 2 npulink bench teapot
expect "no collective" 2 npulink bench
expect "root that is not there" 2 npulink bench broadcast -p 2 -r 2
expect "unknown algorithm" 2 npulink bench allreduce -a teapot
expect "node that is not there" 2 npulink bench allreduce --nnodes 2 --node_rank 2 --master_addr localhost
expect "no host of node 0" 2 npulink bench allreduce --nnodes 2
expect "a factor that leads nowhere" 2 npulink bench allreduce -f 1
expect "no nodes" 2 npulink bench allreduce --nnodes 0
expect "no such port" 2 npulink bench allreduce --master_port 65536
expect "size that is none" 2 npulink bench allreduce -b 8Q
expect "no iterations" 2 npulink bench allreduce -n 0
expect "too slow" 1 env NCCL_TESTS_MIN_BW=1000000 npulink bench allreduce -p 2 -b 8 -e 8 -n 1
expect "unwritable file" 1 npulink bench allreduce -p 2 -b 8 -e 8 -n 1 -J /dev/null/x
expect "no directory for results" 1 npulink bench allreduce -p 2 -b 8 -e 8 -n 1 -J "$scratch"
expect "a root that is none" 2 npulink bench broadcast -b 8 -e 8 -n 1 -r 63 -J "$scratch/none"
expect "no file of what was not measured" 1 test -e "$scratch/none"
npulink bench allreduce -p 2 -b 8 -e 64 -f 2 -n 1 -J "$scratch/file" >/dev/null
json "results in a file" '.results | length == 4' cat "$scratch/file"

# The table: what programs that read nccl-tests' output look for.
npulink bench allreduce -p 2 -b 8 -e 32 -f 2 -n 1 >"$scratch/table"
expect "heading" 0 grep -q '^# *size *count *type *redop *root *time *algbw *busbw *#wrong *time *algbw *busbw *#wrong *$' \
	"$scratch/table"
expect "rows" 0 test "$(grep -vc '^#' "$scratch/table")" = 3
expect "columns" 0 awk '!/^#/ && (NF != 13 || $3 != "float" || $4 != "sum" || $5 != -1 ||
	$9 != 0 || $13 != 0) { exit 1 }' "$scratch/table"
expect "average" 0 grep -q '^# Avg bus bandwidth *: [0-9]' "$scratch/table"

# pid_of RANK: of the job whose table is in $scratch/out, as soon as it says so
pid_of()
{
	local tries pid=

	for ((tries = 0; tries < 300 && ${#pid} == 0; tries++)); do
		sleep 0.2
		pid=$(sed -n "s/^# *Rank *$1 .*Pid *\([0-9]*\) .*/\1/p" "$scratch/out")
	done
	echo "$pid"
}

# A rank is killed: the others say so, and the whole ends soon: long before its deadlines.
npulink bench allreduce -p 4 -b 16M -e 16M -n 100000 >"$scratch/out" 2>"$scratch/err" &
pid=$!
victim=$(pid_of 2)
sleep 1
start=$(date +%s)
[ -n "$victim" ] && kill -9 "$victim"
status=0
wait $pid || status=$?
result $((status != 1)) "a rank was killed: exit status"
result $(($(date +%s) - start > 25)) "a rank was killed: it ends soon"
cp "$scratch/err" "$scratch/killed"
expect "a rank was killed: which one" 0 grep -q "rank 2 (pid $victim) was killed by signal 9" \
	"$scratch/killed"
expect "a rank was killed: others know it" 0 grep -q "^npulink: rank [013]: .*rank 2" \
	"$scratch/killed"

# Interrupted: nobody is left behind.
npulink bench allreduce -p 4 -b 16M -e 16M -n 100000 >"$scratch/out" 2>"$scratch/err" &
pid=$!
victim=$(pid_of 0)
result $((${victim:-0} < 2)) "to be interrupted: it runs"
sleep 1
kill -INT $pid
status=0
wait $pid || status=$?
result $((status != 130)) "interrupted: exit status"
expect "interrupted: no rank is left" 1 pgrep -P 1 -x npulink

# A rank is stopped: the others do not wait for ever.
npulink bench allreduce -p 3 -b 64K -e 64K -n 1000000 -T 5 >"$scratch/out" 2>"$scratch/err" &
pid=$!
victim=$(pid_of 1)
sleep 1
kill -STOP "$victim"
status=0
wait $pid || status=$?
result $((status != 1)) "a rank is stopped: exit status"
cp "$scratch/err" "$scratch/stopped"
expect "a rank is stopped: others know it" 0 grep -q "^npulink: rank [02]: .*rank 1" \
	"$scratch/stopped"

finish
