#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink replay on traces of which we know every nanosecond. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
t=$scratch/t.json

set_id()
{
	npulink -j plan show broadcast -a binomial -p 2 -n "$1" -d float | jq -r .set_id
}

# A message takes 10 us and 1 ns per byte. Rank 1 is there first, rank 0 comes 5 us later.
trace()
{
	local id1 id4

	id1=$(set_id 1000) id4=$(set_id 4000)
	jq -n --arg id1 "$id1" --arg id4 "$id4" '
	def op(pid; n; at; dur; count; id): {
		ph: "X", pid: pid, tid: 0, cat: "operation", name: "broadcast", ts: at, dur: dur,
		args: { serial: n, number: n, collective: 2, dtype: 10, redop: 0, root: 0,
			count: count, set_id: id, steps: 1, status: 0, ended: true,
			algorithm: "binomial" } };
	def step(pid; n; at; what; args): {
		ph: "X", pid: pid, tid: 100, cat: "step", name: "step", ts: at, dur: 1,
		args: ({ serial: n, number: n, step: 0, chain: 1, what: what, wait: 0, queue: 0,
			 engine: 0, take: 0, channel: 0 } + args) };
	def rank(r): { ph: "M", pid: r, tid: 0, name: "npulink_rank",
		args: { comm: 1, rank: r, nranks: 2, dev: r, pid: 77, now: 0, task: "made up" } };
	{ traceEvents: [
		rank(0),
		op(0; 0; 105; 14; 1000; $id1), op(0; 1; 205; 26; 4000; $id4),
		step(0; 0; 105; 4; { bytes: 4000, to: 1, take: 14000 }),
		step(0; 1; 205; 4; { bytes: 16000, to: 1, take: 26000 }),
		rank(1),
		op(1; 0; 100; 19; 1000; $id1), op(1; 1; 200; 31; 4000; $id4),
		step(1; 0; 100; 1; { bytes: 4000, from: 0, wait: 5000, engine: 14000 }),
		step(1; 1; 200; 1; { bytes: 16000, from: 0, wait: 5000, engine: 26000 })
	] }' >"$t"
}

near='def near(x): (. / x - 1) | fabs < 1e-6;'
trace
json "fits what steps cost" "$near"'(.alpha | near(1e-5)) and (.beta | near(1e-9)) and
	.gamma == 0 and .steps == 2' npulink -j replay "$t"
json "predicts what was recorded" "$near"'.collectives | length == 2 and
	(.[0] | (.recorded | near(19e-6)) and (.predicted | near(19e-6)) and (.skew | near(5e-6))) and
	(.[1] | (.recorded | near(31e-6)) and (.predicted | near(31e-6)))' npulink -j replay "$t"
json "other costs" "$near"'.collectives[0].what_if |
	(.[0].seconds | near(29e-6)) and (.[1].seconds | near(23e-6)) and (.[2].seconds | near(33e-6))' \
	npulink -j replay "$t" --with alpha=20us --with beta=0.5GB/s -w alpha=20us,beta=0.5GB/s
json "a slow link" "$near"'.collectives[0].what_if[0] | (.seconds | near(47e-6)) and
	.with == "slow-link=0-1:3"' npulink -j replay "$t" --with slow-link=0-1:3
json "all at once" "$near"'.collectives[0].what_if[0].seconds | near(14e-6)' \
	npulink -j replay "$t" --with skew=0
json "another algorithm" "$near"'.collectives[0].what_if[0].seconds | near(14e-6)' \
	npulink -j replay "$t" --with algorithm=chain,skew=0
check "for people" npulink replay "$t" --with skew=0
check "predicted beside recorded, then what if" sh -c '
	npulink replay "$1" --with skew=0 | tr "\n" "|" |
	grep -q "recorded *19.00 us.*|  predicted *19.00 us  [+-]0.0 %|  with *14.00 us .*: skew=0|"' - "$t"

for bad in alpha alpha= alpha=x beta=-1 gamma=1XB ports=3 skew=1 algorithm= slow-link=0 \
	slow-link=0-0:2 slow-link=0-1:0 slow-link=0-1:-3 slow-link=0-1:2x teapot=1 ''; do
	expect "refused: --with '$bad'" 2 npulink replay "$t" --with "$bad"
done
expect "no such rank" 1 npulink replay "$t" --with slow-link=0-7:2
expect "no such algorithm" 1 npulink replay "$t" --with algorithm=teapot
expect "no trace" 2 npulink replay
expect "two traces" 2 npulink replay "$t" "$t"
expect "unknown option" 2 npulink replay -x "$t"
expect "help" 0 npulink replay --help
expect "no such file" 1 npulink replay "$scratch/none"
expect_one_line "one line" npulink replay "$scratch/none"

# spoil FILTER: the trace with something wrong in it
spoil()
{
	jq "$1" "$t" >"$scratch/bad"
}

spoil '.traceEvents |= map(select(.pid == 0))'
expect "a rank is missing" 1 npulink replay "$scratch/bad"
spoil '.traceEvents |= map(if .args.serial == 1 and .pid == 1 then .args.status = -5 else . end)'
json "failed ones are left out" '.collectives | length == 1' npulink -j replay "$scratch/bad"
spoil '(.traceEvents[] | select(.args.set_id).args.set_id) = "12345678"'
check "planned in another way" sh -c 'npulink replay "$1" 2>&1 >/dev/null | grep -q -- "--net"' - \
	"$scratch/bad"
spoil '(.traceEvents[] | select(.args.collective).args.collective) = 4'
check "without counts" sh -c 'npulink replay "$1" 2>&1 >/dev/null | grep -q "counts"' - \
	"$scratch/bad"
for field in collective dtype root; do
	spoil "(.traceEvents[] | select(.args.collective).args.$field) = 4294967295"
	check "nonsense: $field" sh -c 'npulink replay "$1" 2>&1 >/dev/null | grep -q "cannot be"' - \
		"$scratch/bad"
done
spoil '(.traceEvents[] | select(.name == "npulink_rank").args.nranks) = 4294967295'
expect "nonsense: ranks" 1 npulink replay "$scratch/bad"
spoil '(.traceEvents[] | select(.name == "npulink_rank").args.rank) = 7'
expect "nonsense: rank" 1 npulink replay "$scratch/bad"
# odd FIELD EVENTS VALUE: the trace with that in it is refused, and the field is named.
odd()
{
	spoil "(.traceEvents[] | select($2)$1) = $3"
	check "$1 is $3" sh -c 'npulink replay "$1" 2>&1 >/dev/null | grep -q "in event [0-9]*, \"$2\""' - \
		"$scratch/bad" "${1##*.}"
}
for value in 4294967296 -1 1.5 '"1"' null; do
	odd .args.rank '.name == "npulink_rank"' "$value"
done
odd .args.count '.cat == "operation"' '"1K"'
odd .args.ended '.cat == "operation"' 1
odd .ts '.cat == "operation"' -1
odd .args.bytes '.cat == "step"' -5
odd .args.engine '.cat == "step"' 0.5
spoil 'del(.traceEvents[] | select(.cat == "step").args.bytes)'
refuse "no bytes" npulink replay "$scratch/bad"
refuse "a directory" npulink replay "$scratch"
head -c 300 "$t" >"$scratch/bad"
refuse "half of a file" npulink replay "$scratch/bad"
spoil '(.traceEvents[] | select(.cat == "step").args.bytes) = 0'
expect "nothing to fit" 1 npulink replay "$scratch/bad"

finish
