#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Modules and devices come and go, idle, with open files, and under traffic.
# The backend may be removed at any time: its devices go, and files that are still
# open answer ENODEV. The core cannot be removed while a file is open.
#
# npulink-test: modules=none timeout=200

set -eu -o pipefail

modules=${NPULINK_TREE:-$(cd "$(dirname "$0")/.." && pwd)}/tools/vm/modules
tests=${NPULINK_TESTS:-$(cd "$(dirname "$0")/.." && pwd)/build/selftests}
cycles=2
[ -z "${NPULINK_SOAK-}" ] || cycles=100
ready=/tmp/traffic-is-ready
n=0 status=0
. "${NPULINK_TREE:-$(cd "$(dirname "$0")/.." && pwd)}/selftests/tap.sh"

# try NAME FUNCTION
try()
{
	local rc

	chosen "$1" || return 0
	# Not in a condition, where set -e does nothing, not even in a subshell.
	set +e
	(set -e; "$2")
	rc=$?
	set -e
	result $rc "$1"
	# Whatever it left behind.
	"$modules" unload 2>/dev/null || :
}

# refused COMMAND...: a "!" before it would not count for set -e.
refused()
{
	if "$@" 2>/dev/null; then
		echo "# should have been refused: $*"
		exit 1
	fi
}

store()
{
	(echo "$1" >"/sys/devices/npulink_soft/$2")
}

load_and_unload()
{
	local i

	for i in 0 2; do
		"$modules" load ndev=$((i * 8 + 1))
		[ -c "/dev/npulink/npu$((i * 8))" ]
		"$modules" unload
		[ ! -e /dev/npulink/npu0 ]
	done
}

core_alone()
{
	"$modules" insert npulink
	[ ! -e /dev/npulink/npu0 ]
	rmmod npulink
	refused rmmod npulink
}

refused_parameters()
{
	"$modules" insert npulink
	refused "$modules" insert npulink_soft ndev=65
	refused "$modules" insert npulink_soft slice=5000
	[ "$(dmesg | grep -c 'npulink_soft: ndev has to be at most 64, slice a power')" -ge 2 ]
	# Which the kernel would only note in its log.
	refused "$modules" insert npulink_soft ndevs=8
	refused "$modules" insert npulink
	"$modules" insert npulink_soft ndev=64
	[ -c /dev/npulink/npu63 ]
	refused store 1 new_device
}

no_devices()
{
	"$modules" load ndev=0
	[ ! -e /dev/npulink/npu0 ]
	store 3 new_device
	[ -c /dev/npulink/npu2 ]
	store npu1 del_device
	refused store npu1 del_device
	[ ! -e /dev/npulink/npu1 ]
	store 1 new_device
	[ -c /dev/npulink/npu1 ]
}

open_file()
{
	"$modules" load ndev=2
	exec 3<>/dev/npulink/npu0
	# The core is in use, by the file and by the backend.
	refused rmmod npulink
	rmmod npulink_soft
	refused rmmod npulink
	exec 3>&-
	rmmod npulink
}

# traffic that ends when its devices do. Returns when it is under way; its pid is in $pid.
begin_traffic()
{
	rm -f "$ready"
	NPULINK_READY=$ready "$tests/traffic" 60 "$@" &
	pid=$!
	while [ ! -e "$ready" ]; do
		kill -0 "$pid"
		sleep 0.02
	done
}

# Files whose ranks, links and buffers are alive when the backend goes, at any moment.
under_traffic()
{
	local i pid knob

	for ((i = 0; i < cycles; i++)); do
		"$modules" load ndev=4
		# Every second time with events that interrupts leave to their workers.
		if ((i % 2)); then
			echo 0 >/sys/module/npulink_soft/parameters/inline_max
			for knob in /sys/kernel/debug/npulink_soft/npu*/irq_ns; do
				echo 0 >"$knob"
			done
		fi
		begin_traffic
		sleep 0.$((RANDOM % 900 + 100))
		rmmod npulink_soft
		# It ends by itself: its devices have gone.
		wait $pid
		rmmod npulink
	done
}

# The same, but the process is still there, with everything, when it comes back.
backend_comes_back()
{
	local pid

	"$modules" load ndev=4
	begin_traffic hold
	sleep 0.2
	rmmod npulink_soft
	"$modules" insert npulink_soft ndev=4
	"$tests/traffic" 1
	kill $pid
	wait $pid || :
	"$modules" unload
}

"$modules" unload
try "load and unload" load_and_unload
try "the core alone" core_alone
try "parameters that are refused" refused_parameters
try "no devices at load" no_devices
try "backend removed while a file is open" open_file
try "backend removed under traffic, $cycles times" under_traffic
try "backend comes back while old files are open" backend_comes_back
echo "1..$n"
exit $status
