#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink plan: needs no module. What the planners plan is tested elsewhere; this is
# about what the command shows of it, and about bad input.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"

colls="allreduce reduce broadcast scatter scatterv gather gatherv allgather allgatherv
	reduce_scatter reduce_scatterv alltoall alltoallv barrier"

for coll in $colls; do
	json "show $coll" '.collective == "'$coll'" and (.steps | length) > 0 and
		([.steps[].step] == [range(.steps | length)])' npulink -j plan show $coll -p 5 -k 3 -r 1
	json "verify $coll" '.proved and .steps > 0' npulink -j plan verify $coll -p 5 -n 7
	json "list $coll" 'length > 0 and all(.collective == "'$coll'")' npulink -j plan list $coll
done
json "list" 'length > 20' npulink -j plan list
for coll in allreduce broadcast reduce_scatter alltoall; do
	# Those that this call suits: some need a mesh or several servers.
	for alg in $(npulink -j plan explain $coll -p 8 -n 100 -d double |
		     jq -r '.candidates[] | select(.why_not == null) | .algorithm'); do
		json "verify $coll $alg" '.algorithm == "'$alg'" and .proved' \
			npulink -j plan verify $coll -a $alg -p 8 -n 100 -d double
	done
done
for coll in $colls; do
	json "explain $coll" '[.candidates[] | select(.chosen)] | length == 1' \
		npulink -j plan explain $coll -p 5
done
json "explain: cheapest first" '.candidates[0].chosen and .candidates[0].algorithm == .algorithm' \
	npulink -j plan explain allreduce
json "explain: why not" '.candidates | any(.why_not != null and .predicted == null)' \
	npulink -j plan explain alltoall -p 3
json "explain: override" '.candidates | any(.chosen and .algorithm == "ring")' \
	env COLL_ALGORITHM=allreduce:ring npulink -j plan explain allreduce -n 1
check "explain as text" npulink plan explain alltoall -p 3
# "-i" and wirings are where sums of the same terms differ in their last bit, and ties are many.
explain_all()
{
	local coll shape

	for coll in $colls; do
		for shape in "-p 4" "-p 8 -i" "-p 5 -n 100000" "-p 16 --net servers:4" \
			     "-p 16 --net mesh:4x4" "-p 1"; do
			# shellcheck disable=SC2086
			npulink "$@" plan explain $coll $shape || return
		done
	done
}
explain_all -j >"$scratch/all"
explain_all >"$scratch/all.txt"
json "explain: nobody has asked" \
	'length == 84 and all(.candidates[0].chosen and all(.candidates[]; .asked_for | not))' \
	jq -s . "$scratch/all"
check "explain: nobody has asked, as text" sh -c "! grep 'asked for' '$scratch/all.txt'"
json "explain: asked for" '.candidates | any(.chosen and .asked_for and .algorithm == "ring")' \
	npulink -j plan explain allreduce -a ring
json "explain: asked for by the override" '.candidates | any(.chosen and .asked_for)' \
	env COLL_ALGORITHM=allreduce:ring npulink -j plan explain allreduce
check "explain: asked for, as text" sh -c "npulink plan explain allreduce -a ring | grep -q '^\\* ring .*asked for'"
check "explain: uneven counts" sh -c "npulink plan explain alltoallv -p 3 --counts 100000,0,7 | grep '^\\*'"
json "count in K" '.count == 65536' npulink -j plan explain allreduce --count 64K
for bad in 64Q 1.5K -1 99999999999999999999 20000000T; do
	nonsense "count $bad" npulink plan explain allreduce --count "$bad"
done
json "in place" '.in_place and .proved' npulink -j plan verify allreduce -p 6 -i
json "uneven shards" '.counts == [5, 0, 7] and .proved' \
	npulink -j plan verify allgatherv -p 3 --counts 5,0,7
for bad in "5,,7" "5,0,7," ",5,0,7" "5,0,7x"; do
	nonsense "uneven shards $bad" npulink plan verify allgatherv -p 3 --counts "$bad"
done
json "uneven alltoallv" '.proved' npulink -j plan verify alltoallv -p 3 --counts 5,0,7
json "steps name earlier ones" '[.steps[] | .step as $s | .after[] | . < $s] | all' \
	npulink -j plan show allreduce -a ring -p 9 -n 999
json "bytes" '[.steps[] | select(.to != null) | .bytes] | add == 6 * 1000 / 4 * 4' \
	npulink -j plan show allreduce -a ring -p 4 -n 1000
json "avg divides" '[.steps[] | select(.divide)] | length > 0' \
	npulink -j plan show reduce_scatter -p 4 -o avg
json "words of others" '.collective == "allreduce" and .datatype == "float16"' \
	npulink -j plan show all_reduce -d fp16
check "text" sh -c "npulink plan show allreduce -p 3 | grep -q ' recv+0 '"
expect "one rank" 0 npulink plan show allreduce -p 1

for coll in $colls; do
	npulink plan show $coll -p 5 -n 7 --all --text >"$scratch/plans"
	json "read $coll back" '.proved and .collective == "'$coll'"' \
		npulink -j plan verify -f "$scratch/plans"
done
json "all ranks" '[.[].rank] == [0, 1, 2]' npulink -j plan show broadcast -p 3 --all
check "standard input" sh -c "npulink plan show barrier -p 3 --all -t | npulink plan verify -f -"
# A step less, a rank less, a byte less.
npulink plan show allreduce -a ring -p 3 --all -t >"$scratch/good"
sed '/^[0-9]* recv /d' "$scratch/good" >"$scratch/bad"
expect "a step is missing" 1 npulink plan verify -f "$scratch/bad"
sed '/^rank 1/,/^end/d' "$scratch/good" >"$scratch/bad"
expect "a rank is missing" 1 npulink plan verify -f "$scratch/bad"
sed '0,/after=/s/ after=[0-9,]*//' "$scratch/good" >"$scratch/bad"
check "something was changed" sh -c "! cmp -s '$scratch/good' '$scratch/bad'"
expect "an order is missing" 1 npulink plan verify -f "$scratch/bad"
echo teapot >"$scratch/bad"
expect_one_line "no plan" npulink plan verify -f "$scratch/bad"
expect "no file" 1 npulink plan verify -f "$scratch/none"
check "a directory" sh -c "npulink plan verify -f '$scratch' 2>&1 | grep ': Is a directory$'"
check "an error of reading" sh -c "npulink plan verify -f /proc/self/mem 2>&1 | grep ': Input/output error$'"
(printf '\357\273\277'; cat "$scratch/good") >"$scratch/bad"
check "a byte order mark" sh -c "npulink plan verify -f '$scratch/bad' 2>&1 | grep ':1: .*byte order mark'"
printf 'aplha = 1\n' >"$scratch/bad"
for verb in "plan explain allreduce" "plan cost allreduce" "plan simulate allreduce"; do
	# shellcheck disable=SC2086
	refuse "$verb: calibration that is none" env COLL_CALIBRATION="$scratch/bad" npulink $verb
done
nonsense "bench: no number to be reached" env NCCL_TESTS_MIN_BW=1,5 npulink bench allreduce
for old in / /proc/self/mem; do
	refuse "tune far: $old" npulink tune far --node_rank 0 --master_addr 127.0.0.1 -o $old
done

# A step that waits for a later one, and ranks that wait for each other.
sed 's/^0 send .*/& after=2/' "$scratch/good" >"$scratch/bad"
refuse "a step after a later one" npulink plan verify -f "$scratch/bad"
cat >"$scratch/bad" <<-'END'
	plan alltoall ring-of-three
	ranks 2
	rank 0
	dtype int8
	count 1
	slot send 2 read
	slot recv 2 read write
	0 copy src=send+0 dst=recv+0 len=1
	1 recv from=1 dst=recv+1 len=1
	2 send to=1 src=send+1 len=1 after=1
	end
	plan alltoall ring-of-three
	ranks 2
	rank 1
	dtype int8
	count 1
	slot send 2 read
	slot recv 2 read write
	0 copy src=send+1 dst=recv+1 len=1
	1 recv from=0 dst=recv+0 len=1
	2 send to=0 src=send+0 len=1 after=1
	end
END
refuse "a loop" npulink plan verify -f "$scratch/bad"
check "which is called deadlock" sh -c "npulink plan verify -f '$scratch/bad' 2>&1 | grep -q deadlock"
sed 's/ after=1//' "$scratch/bad" >"$scratch/good"
check "without the loop it is right" npulink plan verify -f "$scratch/good"

expect "no collective" 2 npulink plan show
expect "unknown word" 2 npulink plan show allreduce teapot
expect "unknown option" 2 npulink plan show allreduce --teapot
expect "option without value" 2 npulink plan show allreduce -p
for verb in show verify explain cost simulate plot; do
	nonsense "$verb: unknown collective" npulink plan $verb teapot
	nonsense "$verb: no ranks" npulink plan $verb broadcast -p 0
	nonsense "$verb: too many ranks" npulink plan $verb broadcast -p 4294967297
	nonsense "$verb: root out of range" npulink plan $verb broadcast -p 4 -r 4
	nonsense "$verb: root far out of range" npulink plan $verb broadcast -p 4 -r 99999999999
	nonsense "$verb: unknown algorithm" npulink plan $verb allreduce -a teapot
	nonsense "$verb: counts that are none" npulink plan $verb scatterv -p 2 --counts 1,x
	nonsense "$verb: counts of other ranks" npulink plan $verb scatterv -p 3 --counts 1,2
	nonsense "$verb: counts that overflow" npulink plan $verb scatterv -p 2 \
		--counts 9223372036854775808,9223372036854775808
	nonsense "$verb: counts where there are none" npulink plan $verb allreduce --counts 1,2
done
for verb in show verify explain cost simulate; do
	nonsense "$verb: negative count" npulink plan $verb broadcast -n -1
	nonsense "$verb: unknown type" npulink plan $verb broadcast -d teapot
	nonsense "$verb: unknown operation" npulink plan $verb reduce -o teapot
	nonsense "$verb: too much" npulink plan $verb alltoall -n 18446744073709551615
	nonsense "$verb: too much together" npulink plan $verb alltoall -n 4611686018427387904
done
nonsense "cost of all: too much" npulink plan cost -n 18446744073709551615
nonsense "rank out of range" npulink plan show allreduce -p 4 -k 4
nonsense "algorithm that cannot do it" npulink plan show alltoall -a pairwise-xor -p 3
nonsense "list: unknown collective" npulink plan list teapot
nonsense "no such number of processes" npulink plan verify --all --jobs 0
nonsense "no such numbers of ranks" npulink plan verify --all --ranks 3,x
nonsense "too many ranks" npulink plan verify --all --ranks 4097
expect "no word goes with --all" 2 npulink plan verify --all --teapot

# All that takes minutes is in "plan verify --all".
check "every algorithm, some ranks" npulink plan verify --all --ranks 6,600 --jobs 2
check "says how many proofs" \
	sh -c "npulink plan verify --all --ranks 6 | grep -Eq '^[0-9]{3} proofs, of which 0 by symmetry'"

finish
