#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NPU cards (kernel/pci, tools/vm/card): collectives on them are right, both sides count the same
# doorbells, and (in make soak) a card that hangs, or writes nonsense into its rings, ends in an error.
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

# order KNOB CARD: as tools/vm/card/README.md has them; the answer is in card.done.
order()
{
	local tries

	rm -f "$results/card.done"
	echo "$*" >"$results/order" && mv "$results/order" "$results/card.do"
	for ((tries = 0; tries < 300; tries++)); do
		[ ! -e "$results/card.done" ] || return 0
		sleep 0.1
	done
	return 1
}

# The doorbells that the driver rang and the cards heard, and the interrupts of both.
same_counts()
{
	local rung heard

	rung=$(cat /sys/bus/pci/drivers/npulink_pci/*/doorbells) && order none 0 &&
		heard=$(awk '{ print $4 }' "$results/card.done") || return 1
	echo "# doorbells: ${rung//$'\n'/ } heard: ${heard//$'\n'/ }"
	[ "$rung" = "$heard" ] && awk '$6 == 0 { exit 1 }' "$results/card.done" &&
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

if [ -z "$results" ] || ! grep -qs 0x1110 /sys/bus/pci/devices/*/device; then
	echo "1..0 # SKIP no cards"
	exit 4
fi
order none 0
load
result $? "probe"
NPULINK_LIMIT='' "$tree/build/selftests/coll_collectives" >/tmp/collectives.$$ 2>&1
result $? "collectives"
grep '^not ok' /tmp/collectives.$$ | sed 's/^/# /'
rm -f /tmp/collectives.$$
reduces -d bfloat16 -o avg >/dev/null
result $? "reductions"
same_counts
result $? "counts of both sides"
if [ -z "${NPULINK_SOAK-}" ]; then
	"$modules" unload
	result $? "the core goes"
	echo "1..$n"
	exit $status
fi
for knob in hang tag index status noise; do
	"$modules" unload && load 1500 && fails $knob
	result $? "$knob"
done
"$modules" unload && load 1500 && order silent 1 && reduces >/dev/null && order none 1
result $? "lost interrupts"
"$modules" unload && load 1500 && {
	reduces -n 2000 >/dev/null 2>&1 &
	sleep 3
	rmmod npulink_pci
}
result $? "removal under load"
wait
load && reduces >/dev/null
result $? "again"
"$modules" unload
echo "1..$n"
exit $status
