#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink plan cost, explain, simulate and plot: what they show, that pictures and
# traces are well formed, and bad input. The numbers are tested in sim_forms and
# sim_models. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
PATH=$(cd "${NPULINK_TREE:-.}" && pwd)/build/tools:$PATH
cd "$scratch" || exit 1

# well_formed NAME FILE: an SVG that a parser of XML accepts.
well_formed()
{
	local parser=

	for parser in "xmllint --noout" "rsvg-convert -o /dev/null" \
		"python3 -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])'"; do
		command -v "${parser%% *}" >/dev/null && break
		parser=
	done
	if [ -z "$parser" ]; then
		count=$((count + 1))
		echo "ok $count $1 # SKIP nothing here reads XML"
		return
	fi
	check "$1" sh -c "$parser '$2' && grep -q '</svg>' '$2'"
}

sim()
{
	npulink plan simulate "$@"
}
json "simulate" '.cost.seconds > .bound and .exec.seconds > 0 and .messages == 112 and
	(.cost.seconds / .form - 1 | fabs) < 1e-9' npulink -j plan simulate allreduce -a ring -p 8
json "one rule" '.exec == null and .cost != null' npulink -j plan simulate barrier --rule cost
json "parameters" '(.alpha * 1e6 | round) == 5 and (.beta * 1e12 | round) == 1000 and
	.ports == 4' \
	npulink -j plan simulate allgather -p 5 --alpha 5us --beta 1GB/s --ports all
json "conflicts have names" '.cost.conflicts > 0 and (.cost.first_conflicts[0] |
	.link != "" and .message != .taken_by)' npulink -j plan simulate alltoall -a pairwise \
	-p 16 --net mesh:4x4
json "all links" '.cost.conflicts == 0' npulink -j plan simulate alltoall -a pairwise -p 16
json "servers" '.cost.seconds > 0' npulink -j plan simulate allgather -a two-level -p 6 \
	--net servers:2 --ports all --far-alpha 9us --far-beta 10GB/s
json "uneven" '.messages == 8' npulink -j plan simulate gatherv -a linear -p 9 \
	--counts 1,2,3,4,5,6,7,8,9
json "alltoallv" '.cost.seconds > 0' npulink -j plan simulate alltoallv -p 3 --counts 5,0,7
check "one rank" sim allreduce -p 1
check "no bytes" sim allreduce -n 0
check "text" sh -c "npulink plan simulate reduce -p 6 --net ring | grep -q 'closed form'"
npulink plan show allreduce -a ring -p 4 --all --text >mine
json "a file" '.messages == 24 and .form == null' npulink -j plan simulate -f mine
sed '0,/^[0-9]* send /{/^[0-9]* send /d}' mine >bad
check "something was changed" sh -c "! cmp -s mine bad"
expect_one_line "a file that hangs" sim -f bad
expect "fails" 1 sim -f bad

for coll in allreduce broadcast alltoall scatter barrier; do
	check "picture of $coll" sim $coll -p 9 --net mesh:3x3 --svg p.svg
	well_formed "picture of $coll is one" p.svg
done
check "picture, all ports, fair" sim allreduce -p 12 --net tree:3:1 --sharing fair --ports all \
	--rule exec --svg p.svg
well_formed "is one" p.svg
check "picture of nothing" sim allreduce -p 1 --svg p.svg
well_formed "is one, too" p.svg
check "on standard output" sh -c "npulink plan simulate allreduce -p 2 --svg - | tail -n 1 | grep -qx '</svg>'"
check "trace" sim allreduce -a ring -p 5 --net ring --trace t.json
json "trace is JSON" '[.traceEvents[] | select(.ph == "X" and .tid == 0)] | length == 40' \
	cat t.json
expect "too many for a picture" 1 sim alltoall -p 300 --rule cost --svg p.svg

for coll in allreduce reduce_scatterv alltoallv; do
	check "plot of $coll" npulink plan plot $coll -p 6 --svg p.svg
	well_formed "plot of $coll is one" p.svg
done
json "points" '(.bytes | length) as $n | .curves | length > 3 and
	all((.seconds | length) == $n)' npulink -j plan plot allreduce --from 1K --to 1M
json "points rise" '[.curves[] | .seconds[0] <= .seconds[-1]] | all' npulink -j plan plot reduce

json "cost" 'all(.predicted == null or .predicted >= .bound * 0.999999)' \
	npulink -j plan cost all -p 12 -n 100000
# --count is of a shard, or of all of them.
check "cost says of how much" sh -c 'npulink plan cost allgather -p 8 -n 1024 | grep "n = 32768 bytes" &&
	npulink plan cost allreduce -p 8 -n 1024 | grep "n = 4096 bytes" &&
	npulink plan cost alltoallv -p 2 --counts 5,6 | grep "n = 44 bytes" &&
	npulink plan cost all -p 8 -n 1024 | grep "n = 4096 bytes"'
json "cost says of how much, for programs" 'all(.bytes == 32768)' npulink -j plan cost gather -p 8 -n 1024
json "cost of all: as much of each" 'all(.bytes == 4096 or .collective == "barrier")' \
	npulink -j plan cost all -p 8 -n 1024
check "what is in a form" sh -c 'npulink plan cost reduce | grep "^p ranks, n bytes" &&
	npulink plan list --help | grep "^p ranks, n bytes"'
json "cost of one" 'length > 3 and all(.collective == "reduce")' npulink -j plan cost reduce
json "cost, mesh" 'any(.algorithm == "rsbcast" and .predicted > 0)' \
	npulink -j plan cost broadcast -p 12 --net mesh:3x4
json "check" '.wrong == 0 and .calls > 100 and (.difference | fabs) < 1e-9' \
	npulink -j plan cost --check scatter -a binomial
check "check, as text" sh -c "npulink plan cost --check barrier | grep -q 'largest relative difference'"

json "explain has bounds" '.bound > 0 and .hccl.inside == "Mesh"' npulink -j plan explain allreduce
json "hccl: servers" '.hccl.servers == 4 and .hccl.between == "RHD" and .hccl.newer == "NHR"' \
	npulink -j plan explain allreduce -p 32
json "hccl: few servers" '.hccl.servers == 3 and .hccl.between == "Ring"' \
	npulink -j plan explain allreduce -p 12 --net servers:4
json "hccl: much" '.hccl.servers == 9 and .hccl.between == "Ring"' \
	npulink -j plan explain allreduce -p 72 -n 100000000
json "hccl: alltoall" '.hccl.between == "Pairwise"' npulink -j plan explain alltoall -p 16 -n 1

expect "no collective" 2 sim
nonsense "unknown collective" sim teapot
expect "unknown word" 2 npulink plan plot allreduce teapot
nonsense "unknown rule" sim allreduce --rule teapot
nonsense "unknown sharing" sim allreduce --sharing teapot
nonsense "no time" sim allreduce --alpha -1us
nonsense "no speed" sim allreduce --beta 0GB/s
nonsense "no slice" sim allreduce --slice 0
nonsense "no ranks" sim allreduce -p 0
nonsense "root out of range" npulink plan cost -p 4 -r 4
nonsense "unknown algorithm" sim allreduce -a teapot
nonsense "check of an unknown algorithm" npulink plan cost --check -a teapot
nonsense "mesh of another size" sim allreduce -p 8 --net mesh:3x3
nonsense "unknown network" sim allreduce --net teapot
nonsense "counts that overflow" sim allreduce -n 18446744073709551615
nonsense "nothing to plot" npulink plan plot barrier
nonsense "sizes the wrong way round" npulink plan plot allreduce --from 1M --to 1K
refuse "no such directory" sim allreduce --svg ./none/p.svg
refuse "no such directory for a trace" sim allreduce --trace ./none/t.json
refuse "no such file" sim -f ./none

finish
