#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink comm, op, buf, stat, hang and monitor, while a job hangs: their JSON is as the
# schemas in selftests/schema say, and who may see what.
#
# npulink-test: cpus=1 ndev=4 timeout=500 named

tree=${NPULINK_TREE:-.}
. "$tree/selftests/tool_lib.sh"
: "${scratch:?}" "${schemas:?}"
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"

# What another user sees: with that status, that there is something.
nobody_hang()
{
	$nobody npulink -j hang || [ $? = 4 ]
}

# The validator itself finds what is wrong.
invalid()
{
	local name=$1 schema=$2 text=$3 got

	echo "$text" | jq -r --slurpfile schema "$schemas/$schema.json" -f "$schemas/validate.jq" \
		>"$scratch/out" 2>"$scratch/err"
	got=0
	[ -s "$scratch/out" ] || got=1
	result "$got" "$name"
}

invalid "a missing member" stat '{}'
invalid "a wrong type" comm '[{"id": "one"}]'
invalid "no such value" op '[{"state": "sleeping"}]'
invalid "a member too many" event '{"event":"x","serial":1,"time_ns":1,"lost":0,"more":1}'

expect "no such communicator" 1 npulink op show 4000000
expect_one_line "no such communicator: one line" npulink comm show 4000000
expect "no such communicator that hangs" 1 npulink hang 4000000

# A job of which a rank never comes: there is no communicator yet.
json "nobody waits to join" 'length == 0' npulink -j hang
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29613 \
	"$tree/build/tools/demo/bytepairs" -m 1 "/lib/modules/$(uname -r)" >"$scratch/lonely" 2>&1 &
lonely=$!
for ((i = 0; i < 300; i++)); do
	npulink -j hang | jq -e 'length > 0' >/dev/null && break
	sleep 0.1
done
json "who waits to join" ".[0] | .state == \"joining\" and .comm == null and
	(.processes | length == 1 and .[0].pid == $lonely and .[0].dev == \"npu0\")" npulink -j hang
valid "hang, while one waits to join" hang npulink -j hang
check "who waits to join, in words" sh -c "npulink hang | grep 'process $lonely (bytepairs) on npu0'"
json "nobody sees who waits to join" 'length == 1 and (.[0] | .state == "hidden" and .hidden_devices == 1)' nobody_hang
kill "$lonely"
wait "$lonely"

# A job that is stopped in the middle: its ranks wait for one that does not go on.
npulink bench allreduce -a mesh -p 4 -b 4M -e 4M -n 100000 -c 0 -T 900 >"$scratch/bench" 2>&1 &
job=$!
stopped=
for ((i = 0; i < 300 && ${#stopped} == 0; i++)); do
	sleep 0.1
	stopped=$(npulink -j comm show | jq -r '.[-1].ranks[]? | select(.rank == 2 and .next > 2) | .pid')
done
kill -STOP "$stopped"
for ((i = 0; i < 100; i++)); do
	sleep 0.1
	npulink -j hang -t 0 | jq -e '.[-1].culprits[0].why == "stopped"' >/dev/null && break
done
json "the stopped rank is named" \
	'.[-1] | .state == "hangs" and [.culprits[].rank] == [2] and .culprits[0].process_state == "T"' \
	sh -c 'npulink -j hang -t 0 || [ $? = 3 ]'
json "operations of the others" \
	'length >= 3 and all(.call.collective == "allreduce" and .call.count == 1048576 and .algorithm != null)' \
	npulink -j op show
json "memory of each process" 'length == 4 and all(.pinned > 0)' npulink -j buf show
valid "comm" comm npulink -j comm show
valid "op" op npulink -j op show
valid "buf" buf npulink -j -d buf show
valid "stat" stat npulink -j stat show
valid "hang" hang npulink -j hang -t 0
valid "dev" dev npulink -j -d dev show
valid "link" link npulink -j link show
npulink report >"$scratch/report"
valid "report" report cat "$scratch/report"
for part in doctor dev link comm op buf stat hang; do
	valid "report: $part" $part jq ".$part" "$scratch/report"
done
json "report tells of the hang" \
	'.hang[-1].state == "hangs" and (.op | length >= 3) and (.buf | length == 4) and .stat.ranks == 4' \
	cat "$scratch/report"
check "text: hang" sh -c 'npulink hang -t 0 | grep "process .* stopped by a signal"'
# In a mesh everybody also waits for each other.
json "which is no circle" '.[-1].circle == false' sh -c 'npulink -j hang -t 0 || [ $? = 3 ]'
check "what waits leads to it" sh -c 'npulink hang -t 0 | grep -B 1 -e "-> rank" | grep "waits for rank 2"'
# What has not ended is in no ledger.
for ((i = 0; i < 100; i++)); do
	npulink -j op show | jq -e 'any(.age_ns > 1100000000)' >/dev/null && break
	sleep 0.1
done
json "slow: what hangs now" '.in_flight | length == 1 and (.[0] | .age_ns > 1000000000 and
	.call.collective == "allreduce" and (.waits | length >= 2 and any(.peer == 2)))' npulink -j slow
check "slow: what hangs now, in words" sh -c 'npulink slow | head -n 3 | grep -A 2 "see: npulink hang" |
	grep "waits for rank 2 .* not called it"'
for ((i = 0; i < 100; i++)); do
	npulink -j op show | jq -e 'any(.age_ns > 5100000000)' >/dev/null && break
	sleep 0.1
done
json "doctor: what hangs now" '.findings | any(.check == "jobs" and .severity == "warning" and
	(.text | test("communicator [0-9]+ is in flight for")) and (.fix | startswith("npulink hang ")))' \
	sh -c 'npulink -j doctor || [ $? = 1 ]'
check "text: op" sh -c 'npulink op show | grep "waits"'
# Chains of steps are not called steps, which hang counts.
check "text: op, how far" sh -c 'far=$(npulink -j op show | jq -r ".[0] | if .units == .steps then
	\" of \(.units) steps, \" else \" of \(.units) chains of \(.steps) steps, \" end"); npulink op show | grep -F "$far"'
check "text: comm" sh -c 'npulink comm show | grep "^comm"'
check "text: buf" sh -c 'npulink -d buf show | grep "memory of the process"'
check "again and again" sh -c '[ "$(timeout 60 npulink stat show -w1 | head -n 6 | grep -c ^now)" = 2 ]'

check "also with a space" sh -c '[ "$(timeout 60 npulink op show -w 1 | head -n 6 | wc -l)" = 6 ]'
check "and something behind it" sh -c '[ "$(timeout 60 npulink op show --watch 1 comm "$1" | head -n 6 | wc -l)" = 6 ]' - \
	"$(npulink -j op show | jq '.[0].comm')"

# Other users see totals and devices, nothing else.
json "nobody: comm" 'length == 0' $nobody npulink -j comm show
json "nobody: op" 'length == 0' $nobody npulink -j op show
json "nobody: buf" 'length == 0' $nobody npulink -j buf show
json "nobody: hang" 'length == 1 and (.[0] | .state == "hidden" and .hidden_comms == 1)' nobody_hang
valid "nobody: dev" dev $nobody npulink -j -d dev show
valid "nobody: link" link $nobody npulink -j link show
check "nobody: comm, in words" sh -c "$nobody npulink comm show | grep -q 'no communicators'"
check "nobody: op, in words" sh -c "$nobody npulink op show | grep -q 'no operations'"
json "nobody: report" '.comm == [] and .op == [] and .buf == [] and (.hang | map(.state)) == ["hidden"]' \
	$nobody npulink report
json "nobody: stat" '.ranks == 4 and .in_flight >= 3' $nobody npulink -j stat show

# What happens to them.
$nobody timeout 200 npulink -j monitor -n 1 >"$scratch/events" &
monitor=$!
# It has joined a group of the generic netlink's.
for ((i = 0; i < 300; i++)); do
	awk '$2 == 16 && $4 !~ /^0*$/ { found = 1 } END { exit !found }' /proc/net/netlink && break
	sleep 0.1
done
# The others do not go on yet, nor does who would end them, so that what has failed can be looked at.
others=$(npulink -j comm show | jq -r '.[-1].ranks[] | select(.rank != 2) | .pid')
# shellcheck disable=SC2086 # words
kill -STOP "$job" $others
kill -KILL "$stopped"
for ((i = 0; i < 100; i++)); do
	npulink -j comm show | jq -e '.[-1].state == "failed"' >/dev/null && break
	sleep 0.1
done
json "doctor: what has failed" '.findings | any(.check == "jobs" and .severity == "warning" and
	(.text | test("communicator [0-9]+ .4 ranks. has failed: rank 2 was killed by signal 9")) and
	(.fix | startswith("npulink comm show ")))' sh -c 'npulink -j doctor || [ $? = 1 ]'
json "comm: who has died" '.[-1].ranks | map(.state) == ["joined", "joined", "dead", "joined"]' npulink -j comm show
check "comm: who has died, in words" sh -c 'npulink comm show | grep -E "^ +2  dead$"'
valid "comm, failed" comm npulink -j comm show
# shellcheck disable=SC2086 # words
kill -CONT "$job" $others
wait "$monitor"
valid "monitor" event cat "$scratch/events"
json "monitor: death" '.event == "death" and .rank == 2 and .code == 9' cat "$scratch/events"
wait "$job"

finish
