#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What make bench makes of what was measured: which goals are met, by time and by
# processor time, how points are put together, and what a wrong result does. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
report=$(cd "${NPULINK_TREE:-.}" && pwd)/tools/benchmarks/peers/report
if ! command -v python3 >/dev/null; then
	echo "1..0 # SKIP python3 is not installed"
	exit 4
fi

# point LIB RANKS COLL BYTES MODE US CPU_US WRONG
point()
{
	printf '{"lib":"%s","setting":"default","ranks":%d,"coll":"%s","bytes":%d,"type":"int32","mode":"%s",' \
		"$1" "$2" "$3" "$4" "$5"
	printf '"iters":10,"us":%s,"cpu_us":%s,"wrong":%d}\n' "$6" "$7" "$8"
}

mkdir "$scratch/run"
limits()
{
	printf '{"lib":"limits","cpus":2,"syscall_us":1,"switch_us":%d,"wake_us":9,"ipi_us":1,"meet4_us":1,' "$1"
	printf '"meet8_us":1,"meet16_us":1,"copy_all":1048576000,"reduce_int32_all":1048576000,'
	printf '"reduce_float32_all":1048576000}\n'
}

{
	printf '{"lib":"machine","date":"today","cpu":"none","cpus":2,"kernel":"6.1","npulink":"1",'
	printf '"openmpi":"2","mpich":"3","gloo":"4","rounds":1}\n'
	# A switch takes 50 us; copying and reducing 1 MiB 1,000 us each.
	limits 50
	point npulink 4 allreduce 8 plain 120 210 0	# 1.2 of the limit; CPU time 1.05 of it
	point openmpi 4 allreduce 8 plain 240 480 0
	point npulink 4 barrier 0 plain 140 270 0	# 1.4 of the limit: missed; CPU time 1.35
	point openmpi 4 barrier 0 plain 280 560 0
	point npulink 2 allreduce 8 batch 3 6 0
	point openmpi 2 allreduce 8 batch 2 4 0		# ahead
	point npulink 2 allreduce 1048576 plain 2400 4800 0	# 0.8 of the peer, 1.2 of the limit
	point openmpi 2 allreduce 1048576 plain 3000 6000 0
	point mpich 2 allreduce 1048576 plain 100 200 7	# fast, and wrong
	point npulink 8 alltoall 4194304 plain 36000 30000 0	# 0.45, and 1.29 of the limit
	point openmpi 8 alltoall 4194304 plain 80000 120000 0
	# Later the machine is twice as slow, and what is measured then is compared with that.
	limits 100
	point npulink 64 barrier 0 plain 3840 5760 0	# 1.2 of the limit
	point openmpi 64 barrier 0 plain 38400 76800 0
} >"$scratch/run/time.jsonl"
check "a report" "$report" "$scratch/run"

row()
{
	check "$1" grep -qxF "| $2 |" "$scratch/run/bench.md"
}
row "small points of one number of ranks" "allreduce, barrier | 4 | 8 B | at most 0.6 of the best peer, and 1.3 of the \
limit | 1 of 2 | 0.5 | 1.2 to 1.4 | 0.438 to 0.482 | 1 of 2"
row "a batch" "8 in a batch | 2 | 8 B | at most 1.0 of the best peer | 0 of 1 | 1.5 | - | 1.5 | 0 of 1"
row "met by the limit" "allreduce of int32 | 2 | 1 MiB | at most 0.5 of the best peer, or 1.25 of the limit | 1 of 1 \
| 0.8 | 1.2 | 0.8 | 1 of 1"
row "met by the peer" "alltoall of int32 | 8 | 4 MiB | at most 0.5 of the best peer, or 1.25 of the limit | 1 of 1 \
| 0.45 | 1.29 | 0.25 | 1 of 1"
row "by the limit of its own turn" "allreduce, barrier | 64 |  | at most 0.4 of the best peer, and 1.3 of the limit | 1 of 1 \
| 0.1 | 1.2 | 0.075 | 1 of 1"
check "where a peer is ahead" grep -qxF "* allreduce of int32, 8 B, 2 ranks, 8 in a batch: 1.5 of Open MPI's time" \
	"$scratch/run/bench.md"
check "and nowhere else" sh -c "[ \"\$(grep -c '^[*].*of .* time$' '$scratch/run/bench.md')\" = 1 ]"
check "a wrong result does not count" grep -q 'MPICH (default), allreduce of 1 MiB, 2 ranks: 7 elements' \
	"$scratch/run/bench.md"
json "the same in JSON" '[.points[] | select(.met)] | length == 4' cat "$scratch/run/bench.json"
point npulink 2 allreduce 4194304 plain 10 20 1 >>"$scratch/run/time.jsonl"
refused "a wrong result of our own" 1 "$report" "$scratch/run"

# Of two settings one is faster and the other cheaper; and what is no plain call.
mkdir "$scratch/other"
{
	printf '{"lib":"machine","date":"today","cpu":"none","cpus":2,"kernel":"6.1","npulink":"1",'
	printf '"openmpi":"2","mpich":"3","gloo":"4","rounds":1}\n'
	limits 50
	printf '{"lib":"host","others":0.041,"stolen":0.02,"commit":"c0ffee"}\n'
	point npulink 2 allreduce 8 fresh 8 36 0	# the limit is 10
	point openmpi 2 allreduce 8 fresh 16 48 0
	point openmpi 2 allreduce 8 fresh 20 30 0 | sed 's/default/frugal/'
	point npulink 2 allreduce 65536 overlap 200 400 0 | sed 's/}/,"pure_us":100,"compute_us":100}/'
	point npulink 2 barrier 0 batch 8 -3 0
	point openmpi 2 barrier 0 batch 16 48 0
	point openmpi 2 allreduce 65536 overlap 150 300 0 | sed 's/}/,"pure_us":100,"compute_us":100}/'
	point gloo 2 allreduce 65536 overlap 220 300 0 | sed 's/}/,"pure_us":100,"compute_us":130}/'
} >"$scratch/other/time.jsonl"
check "a report of other modes" "$report" "$scratch/other"
listed()
{
	check "$1" grep -qxF "$2" "$scratch/other/bench.md"
}
listed "buffers that never come again" "| allreduce, buffers that never come again | 2 | 8 B | at most 1.5 of the best peer | 1 of 1 \
| 0.5 | 0.799 | 1.2 | 0 of 1 |"
listed "the cheapest counts for processor time" \
	"* allreduce of int32, 8 B, 2 ranks, buffers that never come again: processor time, 1.2 of Open MPI's"
listed "in overlap" "* overlap, allreduce of 64 KiB, 2 ranks: Open MPI hides 50 %, we 0 % (in all 150 us, ours 200)"
listed "overlap with something shorter" "| Gloo | 2 | 64 KiB | 100 | 130 | 220 | 10 % (unequal) | 90 |"
listed "who is ahead at all" "npulink is ahead in time at 2 of 2 points; the median is 0.5 of the best peer's time."
listed "a host that is busy" "Meanwhile other programs took 4 % of the host's processors, and 2 % of their time was stolen. \
**It was busy: times mean little.**"
check "no processor time is none" jq -e '.points[] | select(.coll == "barrier") | .cpu_ratio == null and
	.ratio == 0.5 and .libs.npulink.cpu_us == null' "$scratch/other/bench.json"
check "which settings those were" jq -e '.points[] | select(.mode == "fresh").libs.openmpi |
	.setting == "default" and .cpu_setting == "frugal"' "$scratch/other/bench.json"

# In documents of its own.
mkdir -p "$scratch/tree/tools/benchmarks/peers"
cp "${report%/*}/publish" "$scratch/tree/tools/benchmarks/peers/"
printf 'before\n<!-- bench: line -->\nold\n<!-- end -->\nbehind\n' >"$scratch/tree/README.md"
printf '<!-- bench: %s -->\nold\n<!-- end -->\n' short run >"$scratch/tree/tools/benchmarks/peers/README.md"
check "into the documents" "$scratch/tree/tools/benchmarks/peers/publish" "$scratch/other" ", by hand"
check "a short table" grep -qxF "| the same, buffers that never come again | 0.50 |" \
	"$scratch/tree/tools/benchmarks/peers/README.md"
check "and who is ahead" grep -q "^npulink is ahead in time at 2 of 2 points" "$scratch/tree/README.md"
check "between what was there" sh -c 'head -n 2 "$1"; tail -n 2 "$1"; ! grep -q old "$1" &&
	test "$(sed -n 1p "$1"),$(tail -n 1 "$1")" = before,behind' - "$scratch/tree/README.md"
check "goals and the limit" grep -qxF "| the same, buffers that never come again | 1/1: 0.50; limit 0.80 |" \
	"$scratch/tree/tools/benchmarks/peers/README.md"
check "of which sources" grep -q "today at c0ffee, by hand" "$scratch/tree/tools/benchmarks/peers/RESULTS.md"
echo none >"$scratch/tree/README.md"
expect "a document without the mark" 1 "$scratch/tree/tools/benchmarks/peers/publish" "$scratch/other"
: >"$scratch/other/time.jsonl"
check "nothing" "$report" "$scratch/other"

finish
