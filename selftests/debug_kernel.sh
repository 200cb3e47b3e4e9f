#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The debug kernel notices mistakes: a module makes them one after the other, and each has
# to be in the log as tools/vm/klog reads it. Without this, a checker that was left
# out of the kernel, or has switched itself off, would look like code without mistakes.
# A machine of its own, since some checkers are quiet after their first report.
#
# npulink-test: debug modules=none mem=1536

# Results are looked at one by one.
set -u -o pipefail

tree=${NPULINK_TREE:-$(cd "$(dirname "$0")/.." && pwd)}
module=$tree/build/modules-$(uname -r)/selftests/canary/npulink_canary.ko
kmemleak=/sys/kernel/debug/kmemleak
# shellcheck disable=SC2034 # n is tap.sh's
n=0 status=0
. "$tree/selftests/tap.sh"

mark()
{
	echo "npulink-test: debug_kernel" >/dev/kmsg
}

since_mark()
{
	dmesg | awk '/npulink-test: debug_kernel$/ { n = 0; next } { line[n++] = $0 }
		END { for (i = 0; i < n; i++) print line[i] }'
}

# noticed MISTAKE WORDS: klog fails, and says what it is
noticed()
{
	local text

	mark
	insmod "$module" "mistake=$1"
	rmmod npulink_canary
	if text=$(since_mark | "$tree/tools/vm/klog"); then
		result 1 "$1: nothing was reported"
	else
		grep -qE "$2" <<<"$text"
		result $? "$1: $2"
	fi
}

[ -e "$module" ] || { echo "1..0 # SKIP $module is not built"; exit 4; }
races=
[ ! -e /sys/kernel/debug/kcsan ] || races=1
echo 1..$((${races:-0} ? 3 : 12))
mark
! insmod "$module" mistake=none 2>/dev/null
result $? "a mistake of no name"
since_mark | "$tree/tools/vm/klog"
result $? "no mistake, no report"

if [ -n "$races" ]; then
	noticed race 'KCSAN: data-race in canary_racer'
	mark
	exit $status
fi
# Without these, tests that inject failures and the fuzzer would pass with nothing done.
[ -e /proc/self/fail-nth ] && [ -e /sys/kernel/debug/failslab ] &&
	[ -e /sys/kernel/debug/fail_usercopy ]
result $? "allocations and copies can be made to fail"
[ -e /sys/kernel/debug/kcov ]
result $? "coverage is counted"
noticed order 'possible circular locking dependency'
noticed atomic 'sleeping function called from'
noticed timer 'ODEBUG: free active'
noticed list 'list_add double add'
noticed overrun 'KASAN: slab-out-of-bounds'
noticed freed 'KASAN: (slab-)?use-after-free'
noticed dma 'DMA-API: .*DMA memory it has not allocated'

insmod "$module" mistake=leak
rmmod npulink_canary
# What is younger than five seconds is left out, and a word on a stack may keep it for a while.
sleep 6
leaked=1
for ((i = 0; i < 10 && leaked == 1; i++)); do
	echo scan >$kmemleak
	sleep 1
	! grep -q canary_leak $kmemleak || leaked=0
	[ "$(grep -c 'unreferenced object .*size 128' $kmemleak)" -lt 8 ] || leaked=0
done
result $leaked "leak: unreferenced objects"
echo clear >$kmemleak

mark
exit $status
