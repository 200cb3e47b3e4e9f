#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink tune: a calibration that libcoll reads, and the sweep by it. How long things
# take is nobody's business here.
#
# npulink-test: cpus=1 ndev=4 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
cal=${scratch:?}/cal
quick="--rounds 1 --time 0.0005"

# shellcheck disable=SC2086 # options
{
check "tune" sh -c "npulink tune -o $cal -p 3 $quick >$scratch/text"
check "it says what it found" grep -q "A message between two ranks" "$scratch/text"
for name in gamma.float16 alpha beta gamma ports processors cpu.call cpu.message cpu.request \
	cpu.copy cpu.reduce cpu.reduce.float32; do
	check "the file has $name" grep -qx "$name = [0-9.e+-]*" "$cal"
done
check "nothing is left beside it" test ! -e "$cal.new"
check "libcoll reads it" env COLL_CALIBRATION="$cal" npulink bench allreduce -p 4 -b 1K -e 1K
check "so does plan explain" env COLL_CALIBRATION="$cal" npulink plan explain allreduce -p 4
json "measure, JSON" '.alpha >= 0 and (.gamma | length) == 12 and .cpu.ranks == 3' \
	npulink -j tune measure -o "$cal" -p 3 $quick
check "COLL_CALIBRATION says where" env COLL_CALIBRATION="$scratch/there" \
	npulink tune -p 2 $quick
check "it is there" grep -q "^alpha = " "$scratch/there"
check "to standard output" sh -c "npulink tune -o - -p 2 $quick >$scratch/text"
check "which has the file" grep -q "^beta = " "$scratch/text"
check "and nothing else" sh -c "! grep -v '^#\|^$\|=' $scratch/text"
expect "a directory that is not there" 1 npulink tune -o "$scratch/no/where" -p 2 $quick

expect "far: no host" 2 npulink tune far --node_rank 0
expect "far: no such number" 2 npulink tune far --node_rank 2 --master_addr localhost
expect "far: no time" 2 npulink tune far --node_rank 0 --master_addr localhost --time 0

sweep="npulink -j tune sweep -c broadcast,alltoall -b 64,8K -p 2,3 -C $cal $quick"
# Which algorithm wins by so little time is not to be relied on.
$sweep >"$scratch/sweep" || :
check "sweep" jq -e '.points == 8 and .worst >= 1 and .good <= 8' "$scratch/sweep"
check "each point has its algorithms" jq -e '.rows | length == 8 and all(.ratio >= 1 and
	(.algorithms | length > 2) and (.algorithms | all(.seconds > 0 and .predicted > 0)))' \
	"$scratch/sweep"
check "the choice is one of them" jq -e '.rows | all(.choice as $c | .algorithms |
	any(.algorithm == $c))' "$scratch/sweep"
npulink tune sweep -c barrier -b 1 -p 2 -C "$cal" $quick >"$scratch/text" || :
check "sweep as text" grep -q "^barrier  *2 .* dissemination" "$scratch/text"
npulink -j tune sweep -c broadcast -b 4K -p 4 -t mesh:2x2 -C "$cal" $quick >"$scratch/sweep" || :
check "sweep on a mesh" jq -e '.rows[0].algorithms | any(.algorithm == "rsbcast")' "$scratch/sweep"
}

expect "no such file" 1 npulink tune sweep -c barrier -p 2 -C "$scratch/none"
expect "a topology that does not fit" 1 npulink tune sweep -p 3 -t mesh:2x2
for bad in "-p 1" "-p 65" "-p x" "--rounds 0" "--time 0" "--time x" "-o" "teapot" "-x"; do
	# shellcheck disable=SC2086 # options
	expect "tune $bad" 2 npulink tune $bad
done
for bad in "-c teapot" "-c scatterv" "-b x" "-p 1" "-p 2,,x" "-d teapot" "--rounds 0" teapot; do
	# shellcheck disable=SC2086 # options
	expect "tune sweep $bad" 2 npulink tune sweep $bad
done
expect_one_line "one line of complaint" npulink tune -p 1
expect "help" 0 npulink tune help
expect "tune --help" 0 npulink tune --help
expect "sweep --help" 0 npulink tune sweep --help

finish
