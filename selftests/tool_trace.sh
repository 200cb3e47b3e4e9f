#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink trace and npulink slow: what they tell of a run of which we know what happened.
#
# npulink-test: cpus=1 ndev=4 timeout=300 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
pids=()
knobs=/sys/kernel/debug/npulink_soft
params=/sys/module/npulink/parameters
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
t=$scratch/run.json

# What no other test has left behind.
fresh()
{
	echo 0 >$params/flight_keep
	npulink bench allreduce -p 2 -b 8 -e 8 -n 1 -w 0 >/dev/null
	echo 8192 >$params/flight_keep
}

fresh
expect "nothing to show" 1 npulink trace "$t"
json "nothing to blame" '.ranks == [] and .links == []' npulink -j slow
check "links are tested" npulink link test
json "nobody's work is not counted" '.ranks == [] and .links == [] and .probes > 8' npulink -j slow
check "and that is said" sh -c 'npulink slow | grep "^not counted: [0-9]* ranks of npulink doctor"'
expect "nor is it traced" 1 npulink trace "$t"

# 256K in a ring of 4: 6 steps that receive and 1 that only sends on each rank, 4 times.
check "a ring" npulink bench allreduce -a ring -p 4 -b 256K -e 256K -n 2 -w 0 -c 0
check "trace to a file" npulink trace "$t"
# Each a line "true NAME"; the file is read once.
jq -r '
	([.traceEvents[] | select(.ph == "X")]) as $slices |
	([$slices[] | select(.cat == "operation")]) as $ops |
	([$slices[] | select(.cat == "step")]) as $steps |
	([$ops[] | { key: "\(.pid) \(.args.serial)", value: . }] | from_entries) as $of | {
	"events": (.displayTimeUnit == "ns" and (.traceEvents | length > 100) and
		all(.traceEvents[]; (.ph | IN("M", "X", "s", "f")) and (.pid | type) == "number" and
			(.tid | type) == "number" and (.name | type) == "string")),
	"slices have times": all($slices[]; .ts > 0 and .dur >= 0),
	"a process for each rank": ([.traceEvents[] | select(.name == "process_name") | .args.name] ==
		["rank 0", "rank 1", "rank 2", "rank 3"]),
	"every thread has a name": (([$slices[] | [.pid, .tid]] | unique) -
		([.traceEvents[] | select(.name == "thread_name") | [.pid, .tid]] | unique) == []),
	"operations": ([$ops[] | select(.args.number == 1)] | length == 4),
	"operations have names": all($ops[]; .args.algorithm == "ring" and .args.collective == 0 and
		.args.bytes == 262144 and .args.status == 0 and .args.ended and
		.name == "allreduce 256.0K ring"),
	"steps lie in their operation": all($steps[]; . as $s |
		$of["\(.pid) \(.args.serial)"] | .ts <= $s.ts + 0.001 and
		.ts + .dur + 0.001 >= $s.ts + $s.dur),
	"pieces add up": all($steps[]; ((.args | .wait + .queue + .engine + .take) / 1000 - .dur) |
		fabs < 0.002),
	"slices of a thread are nested or apart": ([$slices[] | select(.cat != "piece")] |
		group_by([.pid, .tid]) | all(.[]; sort_by(.ts) | . as $s |
		all(range(1; length); $s[. - 1].ts + $s[. - 1].dur <= $s[.].ts + 0.0011))),
	"who it was with": ([$steps[] | select(.pid == 1 and .args.from != null) | .args.from] |
		unique == [3]),
	"an arrow for each of 6 messages of 4 ranks in 4 collectives":
		([.traceEvents[] | select(.ph == "s" or .ph == "f")] | group_by(.id) |
		length == 96 and all(.[]; length == 2 and .[0].ph == "s" and .[1].ph == "f" and
		.[0].ts <= .[1].ts and .[0].pid != .[1].pid))
	} | to_entries[] | "\(.value) \(.key)"' "$t" >"$scratch/facts"
check "trace: facts" test "$(wc -l <"$scratch/facts")" = 11
while read -r holds fact; do
	check "trace: $fact" test "$holds" = true
done <"$scratch/facts"
npulink trace --from "$t" "$scratch/again.json"
check "trace: reads what it has written" cmp "$t" "$scratch/again.json"
json "trace: the last one" '[.traceEvents[] | select(.cat == "operation") | .args.number] |
	unique | length == 1' npulink trace --from "$t" -l 1
check "trace: as a picture" npulink trace --from "$t" --svg "$scratch/run.svg"
check "trace: a picture with a row for each rank" sh -c '
	[ "$(grep -c ">rank [0-3]<" "$1")" = 4 ] && head -n 1 "$1" | grep -q "^<svg " &&
	tail -n 1 "$1" | grep -q "^</svg>" && [ "$(grep -c "<rect " "$1")" -gt 28 ] &&
	grep -q "allreduce 256.0K ring, 4 ranks" "$1"' - "$scratch/run.svg"
comm=$(jq '[.traceEvents[] | select(.name == "npulink_rank")][0].args.comm' "$t")
json "trace: one communicator" '.traceEvents | length > 100' npulink trace -c "$comm" -
# Numbers of communicators have gaps.
for ((probe = comm - 1; probe > 1; probe--)); do
	npulink slow -c $probe >"$scratch/out" 2>&1 && break
done
json "slow: a probe that is asked for" '.ranks | length == 2' npulink -j slow -c $probe
expect "trace: another one" 1 npulink trace -c $((comm + 1)) -

# A rank whose engine takes a tenth of a second for everything. A busy host may hold up another one
# for longer, though not each time.
straggles='.straggler.rank == 2'
by_much='(.ranks | map({ key: "\(.rank)", value: . }) | from_entries) as $r |
	$r["2"].blame_ns > 600000000 and ($r["2"].late[17:] | add) >= 6 and
	$r["2"].blame_ns > 2 * $r["1"].blame_ns'
for ((try = 0; try < 4; try++)); do
	fresh
	echo 100000000 >$knobs/npu2/delay_ns
	npulink bench allreduce -a ring -p 4 -b 64K -e 64K -n 1 -w 0 -c 0 >/dev/null
	echo 0 >$knobs/npu2/delay_ns
	! npulink -j slow | jq -e "($straggles) and ($by_much)" >/dev/null || break
done
json "slow: the straggler" "$straggles" npulink -j slow
json "slow: and by how much" "$by_much" npulink -j slow
check "slow: says so, and that it has gone" sh -c 'npulink slow | head -n 1 |
	grep -q "^rank 2 of communicator.* has gone; it kept the others waiting: "'

# Of a job that runs and one that has ended, the former comes first.
timeout 60 npulink bench allreduce -a ring -p 2 -b 64K -e 64K -n 1000000 -w 0 -c 0 >/dev/null &
live=$!
for ((try = 0; try < 100; try++)); do
	npulink slow >"$scratch/table"
	awk '$1 ~ /^[0-9]+$/ { print $4 }' "$scratch/table" >"$scratch/pids"
	! grep -q '^[0-9]' "$scratch/pids" || break
	sleep 0.1
done
check "slow: what has gone comes last" sh -c '
	[ "$(uniq "$1" | sed "s/[0-9][0-9]*/pid/" | uniq | tr "\n" " ")" = "pid gone " ]' - "$scratch/pids"
check "slow: somebody stands out" grep -q " the others waiting: " "$scratch/table"
# While a job hangs, that is not who to look for.
stopped=$(grep -m 1 '^[0-9]' "$scratch/pids")
kill -STOP "$stopped"
for ((try = 0; try < 100; try++)); do
	npulink slow >"$scratch/table"
	! grep -q "is in flight for" "$scratch/table" || break
	sleep 0.1
done
check "slow: but not while something hangs" sh -c '
	grep -q "is in flight for" "$1" && ! grep -q " the others waiting: " "$1"' - "$scratch/table"
kill -CONT "$stopped"
kill $live
wait $live

# One rank is late in each step, another was once, for much longer.
fresh
start 4 late 2
until_json "they call" '.[-1].ranks | length == 4 and all(.next + .met > 3)' npulink -j comm show
kill -STOP "${pids[0]}"
until_json "one stall" 'any(.in_flight[]; .age_ns > 4000000000)' npulink -j slow
kill -CONT "${pids[0]}"
until_json "slow: who is late each time" '.straggler | .rank == 2 and .typical' npulink -j slow
json_too "slow: how late" '.ranks[] | select(.rank == 2) | .collectives >= 8 and
	.later * 4 >= .collectives * 3 and .late_ns > 20000000'
until_json "slow: and who was once" '.straggler.rank == 2 and (.rare | length == 1 and .[0].rank == 0 and
	.[0].waited_ns > 4000000000)' npulink -j slow
check "slow: both in words" sh -c 'npulink slow >"$1" && grep -q "^rank 2 .*keeps the others waiting: .*later than most others" "$1" &&
	grep -q "^rank 0 .* which is rare" "$1"' - "$scratch/words"
json "slow: since a while" '.straggler.rank == 2 and .links == []' npulink -j slow -s 5
json "slow: of an interval" '.straggler.rank == 2 and .rare == []' sh -c 'timeout 60 npulink -j slow -w 2 | head -n 1'
stop

# A link that needs 40 ns for a byte where the others need none: 80 ms for 64K in slices.
link='.slow_link == { from: "npu1", to: "npu2" }'
for ((try = 0; try < 4; try++)); do
	fresh
	echo "npu1 0 1220000 0" >$knobs/npu2/timing
	npulink bench allgather -a ring -p 4 -b 256K -e 256K -n 1 -w 0 -c 0 >/dev/null
	echo "npu1 0 0 0" >$knobs/npu2/timing
	! npulink -j slow | jq -e "$link" >/dev/null || break
done
json "slow: the link" "$link" npulink -j slow
check "slow: says so" sh -c 'npulink slow | grep -q "^the link from npu1 to npu2 is"'
check "slow: every rank" sh -c '[ "$(npulink slow -d | grep -c "npu[0-3] .*|$")" = 8 ]'
refuse "slow: another communicator" npulink slow -c 99999
refuse "trace: another communicator" npulink trace -c 99999 "$scratch/none.json"

for bad in "trace -x" "trace -l 0" "trace -l x" "trace -c x" "trace a b" "slow x" "slow -c x" \
	"slow -x" "slow -s 0" "slow -s x" "slow -s 1 -w 1"; do
	# shellcheck disable=SC2086 # words
	expect "refused: $bad" 2 npulink $bad
done
expect "trace: help" 0 npulink trace --help
expect "slow: help" 0 npulink slow --help
expect "no such file" 1 npulink trace --from "$scratch/none" -
printf '{' >"$scratch/bad"
expect "no JSON" 1 npulink trace --from "$scratch/bad" -
for bad in '{}' '[]' '{"traceEvents":1}' '{"traceEvents":[]}' '{"traceEvents":[1,null,{}]}'; do
	echo "$bad" >"$scratch/bad"
	expect "no trace: $bad" 1 npulink trace --from "$scratch/bad" -
done
jq '.traceEvents |= map(if .args.step then .args.step = -1 | .args.serial = 1e30 | .ts = "x" else
	. end)' "$t" >"$scratch/bad"
refuse "nonsense in it" npulink trace --from "$scratch/bad" "$scratch/again.json"
jq '.traceEvents |= map(if .cat == "operation" then .args.dtype = 4e9 | .args.collective = 4e9 |
	.args.algorithm = ([range(99)] | map("<&\"") | add) else . end)' "$t" >"$scratch/bad"
expect "nonsense in a picture" 0 npulink trace --from "$scratch/bad" --svg "$scratch/bad.svg"
check "is escaped" sh -c '! grep -q "<&" "$1"' - "$scratch/bad.svg"
expect "cannot write" 1 npulink trace "$scratch/no/such/dir"
expect "full disk" 1 npulink trace /dev/full

finish
