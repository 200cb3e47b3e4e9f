#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NPU cards (kernel/pci, tools/vm/card): collectives on them are right, both sides count the same
# doorbells, a header that says what cannot be is refused, and cards come and go under load. In make
# soak NPULINK_ROUNDS (100) resets, deaths and removals of each kind, and nonsense of any kind.
#
# npulink-test: cards=4 modules=none mem=1024 timeout=300

set -u -o pipefail

tree=${NPULINK_TREE:-$(cd "$(dirname "$0")/.." && pwd)}
here=$tree/selftests
n=0 status=0
# shellcheck source=selftests/tap.sh
. "$here/tap.sh"

modules=$tree/tools/vm/modules
bench=$tree/build/tools/npulink
results=${NPULINK_RESULTS-}

# order WORD [NUMBER]...
order()
{
	"$tree/tools/vm/card/order" "$@" >/tmp/counts.$$
}

# The doorbells that the driver rang since it was loaded and the cards heard since they had heard
# those in /tmp/before.$$, and the interrupts of both.
same_counts()
{
	local rung heard

	rung=$(cat /sys/bus/pci/drivers/npulink_pci/*/doorbells) && order none 0 &&
		heard=$(paste -d ' ' /tmp/counts.$$ /tmp/before.$$ | awk '{ print $4 - $14 }') || return 1
	echo "# doorbells: ${rung//$'\n'/ } heard: ${heard//$'\n'/ }"
	[ "$rung" = "$heard" ] && awk '$6 == 0 { exit 1 }' /tmp/counts.$$ &&
		awk '/npulink_pci/ { sum[NR] = $2 + $3 } END { for (i in sum) { n++; if (!sum[i]) exit 1 }
			exit n != 4 }' /proc/interrupts
}

reduces()
{
	timeout 60 "$bench" bench allreduce -p 4 -b 8 -e 1M -f 64 -n 2 "$@"
}

# fails KNOB: a collective on such a card ends with an error, not after a minute.
fails()
{
	local rc=0 text

	order "$1" 1 || return 1
	text=$(timeout 60 "$bench" bench allreduce -p 4 -b 1M -e 1M -n 2 2>&1) || rc=$?
	order none 1
	echo "# $1: status $rc: $(tail -n 1 <<<"$text")"
	[ "$rc" != 0 ] && [ "$rc" -lt 124 ]
}

# The host may be stopped for half a minute, which is no card's fault; but faults are waited for.
load()
{
	"$modules" insert npulink_pci timeout="${1-120000}"
}

# ---- what happens to cards

pci=/sys/bus/pci
driver=$pci/drivers/npulink_pci

# appears FILE: within half a minute.
appears()
{
	local tries

	for ((tries = 0; tries < 300; tries++)); do
		[ ! -e "$1" ] || return 0
		sleep 0.1
	done
	return 1
}

# A header that is not ours, or says what cannot be: WORD VALUE, as struct card_header has them.
headers()
{
	local word value rc=0

	echo "$function" >"$driver/unbind" || return 1
	while read -r word value; do
		order header "$word" "$value" || return 1
		if { echo "$function" >"$driver/bind"; } 2>/dev/null || [ -e "$driver/$function" ]; then
			echo "# word $word = $value was taken"
			echo "$function" >"$driver/unbind"
			rc=1
		fi
		order restore || return 1
	done <<-'END'
		0 0
		2 2
		3 0
		3 17
		4 3
		4 8192
		5 4095
		9 1
		10 0x7fffffff
		11 0xffffffff
		12 0
		12 0x7fffffc0
		15 0xffffffff
		16 1
		17 1
		19 0xffff
	END
	echo "$function" >"$driver/bind" && return $rc
}

# work: in the background, until something happens to the cards. True when they have begun.
work()
{
	local before tries

	before=$(head -n 1 "$driver/$function/doorbells") || return 1
	timeout 600 "$bench" bench allreduce -p 4 -b 256K -e 256K -n 1000000 -c 0 >"$output" 2>&1 &
	worker=$!
	for ((tries = 0; tries < 600; tries++)); do
		[ "$(head -n 1 "$driver/$function/doorbells")" -lt $((before + 100)) ] || return 0
		sleep 0.1
	done
	return 1
}

# It has failed, and said so.
failed()
{
	local rc=0

	wait "$worker" || rc=$?
	[ "$rc" != 0 ] && [ "$rc" -lt 124 ] && [ -s "$output" ] || { tail -n 5 "$output"; return 1; }
}

restart()
{
	echo 1 >"$pci/devices/$function/reset"
}

reset()
{
	restart && failed
}

death()
{
	order die $((i % 4)) && failed && restart
}

unbind()
{
	echo "$function" >"$driver/unbind" && failed && echo "$function" >"$driver/bind"
}

rescan()
{
	echo 1 >"$pci/devices/$function/remove" && failed && echo 1 >$pci/rescan &&
		appears "$driver/$function"
}

# power BYTE: of the port's slot, the upper half of Slot Control at $at.
power()
{
	# shellcheck disable=SC2059 # an octal escape
	printf "\\$(printf %o "$1")" | dd of="$port/config" bs=1 seek="$at" conv=notrunc status=none
}

# As if somebody pulled it out: the slot has no power, and the driver is told afterwards.
surprise()
{
	local at byte

	at=$(od -An -tu1 -j 52 -N 1 "$port/config")
	while [ $((at)) != 0 ] && [ $(($(od -An -tu1 -j $((at)) -N 1 "$port/config"))) != 16 ]; do
		at=$(od -An -tu1 -j $((at + 1)) -N 1 "$port/config")
	done
	[ $((at)) != 0 ] || return 1
	at=$((at + 25))
	byte=$(($(od -An -tu1 -j $at -N 1 "$port/config")))
	power $((byte | 7)) && failed && echo 1 >"$pci/devices/$function/remove" && power $byte &&
		echo 1 >$pci/rescan && appears "$driver/$function"
}

# many N WHAT: under load.
many()
{
	local i

	for ((i = 0; i < $1; i++)); do
		work && "$2" || { echo "# round $i"; return 1; }
		[ $((i % 10)) != 0 ] || reduces >/dev/null || return 1
	done
	reduces >/dev/null
}

if [ -z "$results" ] || ! grep -qs 0x1110 $pci/devices/*/device; then
	echo "1..0 # SKIP no cards"
	exit 4
fi
function=$(grep -ls 0x1110 $pci/devices/*/device)
function=$(basename "${function%/device}")
port=$(dirname "$(readlink -f "$pci/devices/$function")")
output=/tmp/cards.$$
order none 0
mv /tmp/counts.$$ /tmp/before.$$
load
result $? "probe"
if [ -z "${NPULINK_CASES-}" ] || chosen collectives; then
	# From the cards' memory to the machine's; in soak the other ways, too.
	for memory in s ${NPULINK_SOAK:+none sr}; do
		NPULINK_LIMIT='' NPULINK_MEMORY=$memory "$tree/build/selftests/coll_collectives" \
			>"$output" 2>&1
		result $? "collectives, device memory: $memory"
		grep '^not ok' "$output" | sed 's/^/# /'
	done
fi
reduces -d bfloat16 -o avg >/dev/null
result $? "reductions"
same_counts
result $? "counts of both sides"
headers
result $? "wrong headers are refused"
many 1 unbind
result $? "unbound under load"
rounds=0
[ -z "${NPULINK_SOAK-}" ] || rounds=${NPULINK_ROUNDS:-100}
if [ "$rounds" = 0 ]; then
	"$modules" unload
	result $? "the core goes"
	rm -f "$output" /tmp/counts.$$ /tmp/before.$$
	echo "1..$n"
	exit $status
fi
for what in reset death unbind rescan surprise; do
	[ -z "${NPULINK_CASES-}" ] || chosen $what || continue
	many "$rounds" "$what"
	result $? "$rounds times $what under load"
done
for knob in hang tag index status noise mad; do
	"$modules" unload && load 1500 && fails $knob && restart && reduces >/dev/null
	result $? "$knob"
done
"$modules" unload && load 1500 && order silent 1 && reduces >/dev/null && order none 1
result $? "lost interrupts"
"$modules" unload && load && work && rmmod npulink_pci; failed
result $? "removal of the module under load"
load && reduces >/dev/null
result $? "again"
# The slot itself has gone: the function loses its bus mastering. This is the end of all cards.
work && order vanish
failed && { restart || :; } && ! reduces >/dev/null 2>&1
result $? "nobody resets"
"$modules" unload
result $? "the core goes"
rm -f "$output" /tmp/counts.$$ /tmp/before.$$
echo "1..$n"
exit $status
