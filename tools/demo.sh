#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# make demo: loads npulink with 8 software NPUs, or (CARDS=N) with N NPU cards, and shows what it
# does, as root, in a virtual machine or (HERE=1) on this one. Exit status 0 only if all of it
# was right. The modules and programs are those in build/.

set -eu -o pipefail

cd "$(dirname "$0")/.."
npulink=build/tools/npulink
bytepairs=build/tools/demo/bytepairs
modules=${DEMO_MODULES:-/lib/modules/$(uname -r)}
cards=${DEMO_CARDS-}
ranks=${cards:-8}
failures=0
loaded=

say()
{
	printf '\n== %s\n' "$*"
}

bad()
{
	echo "demo: $*" >&2
	failures=$((failures + 1))
}

finish()
{
	rm -rf "$tmp"
	[ -z "$loaded" ] || tools/vm/modules unload
}

load()
{
	if [ "$(id -u)" != 0 ]; then
		echo "demo: loading modules needs root" >&2
		exit 1
	fi
	if [ -n "$cards" ]; then
		tools/vm/modules insert npulink_pci timeout=120000
		loaded=1
	elif [ ! -d /sys/module/npulink_soft ]; then
		tools/vm/modules load ndev=$ranks
		loaded=1
	fi
	$npulink dev show npu0
	echo "... and $(($(ls -d /sys/class/npulink/npu* | wc -l) - 1)) more like it, all linked with each other"
}

# (a) Every collective, small to large. Sizes grow by 8 to save time, not memory.
measure()
{
	local coll

	for coll in allreduce reduce_scatter allgather alltoall broadcast; do
		say "$coll: $ranks processes, up to 16 MiB, every result compared"
		# Devices and settings are the same each time.
		if ! $npulink bench $coll -p $ranks -b 8 -e 16M -f 8 -n 3 -w 1 -c 1 |
		   sed -e '/^# nRanks/,/^#$/d' -e '/^# npulink bench/d' -e '/^#  *Rank/d' \
		       -e '/^# Collective test/d' -e '/^#$/d' -e '/^# Using/d'; then
			bad "$coll failed"
		fi
	done
}

# (b) A real job on real input.
count()
{
	local pids=() pid rank

	say "byte pairs in the modules of kernel $(uname -r)"
	for ((rank = 0; rank < ranks; rank++)); do
		RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 \
			MASTER_PORT=29500 $bytepairs -m 32 -o "$tmp/together" "$modules" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || bad "a process of bytepairs failed"
	done
	$bytepairs -1 -m 32 -o "$tmp/alone" "$modules" || bad "bytepairs -1 failed"
	if cmp "$tmp/together" "$tmp/alone"; then
		echo "   all 65,536 counters agree"
	else
		bad "the processes together counted something else than one alone"
	fi
}

# Times of all processors since the start, in hundredths of a second: idle, and in all.
processors()
{
	awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print $5 + $6, all }' /proc/stat
}

# How much of the machine the cards need while they work: three seconds in the middle of it.
watch_processors()
{
	local idle all idle_then all_then rung pid tries

	say "processors of the machine during allreduces of 64 MiB, in the cards' memory"
	rung=$(awk '{ sum += $1 } END { print sum }' $doorbells)
	$npulink bench allreduce -p "$ranks" -m device -b 64M -e 64M -n 1000 -w 0 -c 0 >/dev/null 2>&1 &
	pid=$!
	for ((tries = 0; tries < 300; tries++)); do
		[ "$(awk '{ sum += $1 } END { print sum }' $doorbells)" -lt $((rung + 100)) ] || break
		sleep 0.2
	done
	read -r idle_then all_then < <(processors)
	sleep 3
	read -r idle all < <(processors)
	kill $pid && ! wait $pid || bad "allreduce had ended"
	awk -v idle=$((idle - idle_then)) -v all=$((all - all_then)) \
		'BEGIN { printf "   %.1f %% busy\n", 100 * (all - idle) / all }'
}

same_doorbells()
{
	local rung heard

	say "doorbells of each card, as the driver rang and the card heard them"
	rung=$(cat $doorbells)
	heard=$(tools/vm/card/order none 0 | awk '{ print $4 }') || bad "no cards"
	paste <(echo "$rung") <(echo "$heard")
	[ "$rung" = "$heard" ] || bad "the counts differ"
}

# (c) What the kernel did for that.
look()
{
	say "interrupts per device, from /proc/interrupts"
	sed -n -e 1p -e '/npu/p' /proc/interrupts
	grep -q npu /proc/interrupts || bad "no interrupts of our devices"
	[ -z "$cards" ] || same_doorbells
	say "links: what left npu0"
	$npulink link show npu0
	say "links: bytes from each device (row) to each other one (column)"
	$npulink link matrix bytes
	say "links: doorbells rung"
	$npulink link matrix doorbells
	say "devices: what their engines did"
	$npulink dev show | sed -n 's/^\(npu[0-9]*\):.*/\1/p; s/^    \(requests.*\)/\1/p' | paste - -
}

doorbells="/sys/bus/pci/drivers/npulink_pci/*/doorbells"
tmp=$(mktemp -d)
trap finish EXIT
SECONDS=0
say "npulink on $(uname -sr), $(nproc) CPUs"
if grep -q 'QEMU TCG' /proc/cpuinfo; then
	echo "   emulated, as there is no KVM: times say little about real processors"
fi
load
measure
count
[ -z "$cards" ] || watch_processors
look
if [ "$failures" != 0 ]; then
	say "demo: $failures part(s) FAILED after $SECONDS s"
	exit 1
fi
say "demo: all right, $SECONDS s"
