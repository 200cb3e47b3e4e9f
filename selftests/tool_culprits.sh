#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The right culprit: what the scheduler and cgroups do to one of four ranks, what its process does,
# who holds the device of the dead; and what a full disk or an interrupted probe leave behind.
#
# npulink-test: cpus=1 ndev=4 timeout=900 soak

tree=${NPULINK_TREE:-.}
. "$tree/selftests/tool_lib.sh"
: "${scratch:?}" "${schemas:?}"
pids=()
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"

# What another user sees: with that status, that there is something.
nobody_hang()
{
	$nobody npulink -j hang || [ $? = 4 ]
}

called='.[-1].ranks | length == 4 and all(.next > 3)'
cgroup=/sys/fs/cgroup/npulink-state
controllers=$(cat /sys/fs/cgroup/cgroup.subtree_control)
for controller in cpu memory; do
	echo +$controller >/sys/fs/cgroup/cgroup.subtree_control
done
mkdir $cgroup

# culprit FILTER: for jq, that it is rank 2, and what more holds of it
culprit()
{
	echo "any(.[]; .nculprits == 1 and (.culprits[0] | .rank == 2 and ($1)))"
}

start 4 never none
until_json "four ranks call" "$called" npulink -j comm show
echo "3000 100000" >$cgroup/cpu.max
echo "${pids[2]}" >$cgroup/cgroup.procs
until_json "cpu.max: throttled" "$(culprit '.why == "throttled" and .processor.held_by == "throttled" and
	.processor.cgroup == "/npulink-state" and (.to_do | test("cpu.max"))')" npulink -j hang -t 0
valid "hang, throttled" hang cat "$scratch/out"
until_json "slow: the throttled one" '.straggler | .rank == 2 and .processor.held_by == "throttled"' \
	npulink -j slow
echo max >$cgroup/cpu.max
chrt -a -i -p 0 "${pids[2]}"
sh -c 'while :; do :; done' &
hog=$!
until_json "SCHED_IDLE: starved" "$(culprit '.why == "starved" and .processor.idle_class')" npulink -j hang -t 0
# Nor is it anything else, as long as it is looked at.
for ((i = 0; i < 3; i++)); do
	npulink -j hang -t 0 | jq -c '.[].culprits[] | [.rank, .why]'
done >"$scratch/why"
check "SCHED_IDLE: never a link" sh -c '! grep -E "link|engine" "$1"' - "$scratch/why"
kill $hog
wait $hog 2>/dev/null
stop

start 4 memory 2
until_json "four ranks call, one will fill memory" "$called" npulink -j comm show
echo 20M >$cgroup/memory.high
echo "${pids[2]}" >$cgroup/cgroup.procs
until_json "memory.high: no disk" "$(culprit '.why == "memory-high" and (.to_do | test("memory.high"))')" \
	npulink -j hang -t 0
valid "hang, memory.high" hang cat "$scratch/out"
stop
rmdir $cgroup
for controller in cpu memory; do
	[[ " $controllers " = *" $controller "* ]] || echo -$controller >/sys/fs/cgroup/cgroup.subtree_control
done

export FIFO=$scratch/fifo
mkfifo "$FIFO"
start 4 fifo 2
until_json "a thread that waits: its stack" "$(culprit '.why == "never-called" and .tid != .pid and
	(.stack | test("fifo_open"))')" npulink -j hang -t 0
valid "hang, a thread" hang cat "$scratch/out"
check "a thread that waits, in words" sh -c 'npulink hang -t 0 | grep "its thread .*sleeping"'

# Who sees none of it does not think that all is well.
expect "nobody: something is hidden" 4 $nobody npulink hang
check "nobody: how much" sh -c "$nobody npulink hang | grep 'hidden from you.* 1 communicators, 4 open devices'"
valid "nobody: hidden" hang nobody_hang
expect "nobody: slow" 4 $nobody npulink slow
expect "the owner: it hangs" 3 npulink hang -t 0
stop

# A rank is killed whose child has inherited its device.
start 2 child 1
until_json "its child is there" '.[-1].ranks | length == 2 and all(.next > 4)' npulink -j comm show
until_json "and it waits" 'any(.[].culprits[]; .rank == 1)' npulink -j hang -t 0
stop
until_json "who holds the device of the dead" "any(.[]; .state == \"held\" and (.processes | length == 1 and
	(.[0] | .from == ${pids[1]} and .pid != .from and .dev == \"npu1\" and .to_do == \"kill \\(.pid)\")))" \
	npulink -j hang
valid "hang, held" hang cat "$scratch/out"
expect "which is no good" 3 npulink hang
holder=$(jq -r '.[] | select(.state == "held") | .processes[0].pid' "$scratch/valid")
kill "$holder"
until_json "nobody any more" 'all(.[]; .state != "held")' npulink -j hang

# A full disk.
mkdir "$scratch/small"
mount -t tmpfs -o size=8k none "$scratch/small"
head -c 4096 /dev/zero >"$scratch/small/full"
refuse "report: a full disk" npulink report -o "$scratch/small/report.json"
check "report: nothing is left of it" test ! -e "$scratch/small/report.json"
refuse "trace: a full disk" npulink trace "$scratch/small/trace.json"
check "trace: nothing is left of it" sh -c '[ "$(ls "$1")" = full ]' - "$scratch/small"
umount "$scratch/small"

# Events say what they are about.
npulink monitor >"$scratch/named" &
monitor=$!
for ((i = 0; i < 300; i++)); do
	grep -q listening "$scratch/named" && break
	sleep 0.1
done
start 4 count 2
wait "${pids[@]}"
for ((i = 0; i < 300; i++)); do
	grep -q "called different" "$scratch/named" && break
	sleep 0.1
done
kill $monitor
wait $monitor 2>/dev/null
check "monitor: who called different things, and when" \
	grep -E "ranks [0-3] and [0-3] called different things as operation 5, see: npulink comm show" "$scratch/named"

# Who ends a test of links leaves nobody dead behind.
deaths=$(npulink -j stat show | jq .failures.death)
for ((try = 0; try < 3; try++)); do
	npulink link test >/dev/null 2>&1 &
	probe=$!
	until npulink -j comm show | jq -e 'length > 4' >/dev/null; do
		kill -0 $probe 2>/dev/null || break
	done
	kill $probe 2>/dev/null
	wait $probe
done
json "link test: interrupted, without deaths" ".failures.death == $deaths" npulink -j stat show

finish
