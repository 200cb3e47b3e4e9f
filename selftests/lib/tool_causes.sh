#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Sockets and files of npulink are made to fail: what it says is the errno's cause, in one
# line, and no advice is given that would not help. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=${NPULINK_TREE:-.}
fail=$tree/build/selftests/lib/libfail.so

# EMFILE, ENFILE, EPERM, EACCES, EAFNOSUPPORT, ENOBUFS, ENOMEM and the like, as the system has them.
declare -A words=(
	[1]="Operation not permitted" [12]="Cannot allocate memory" [13]="Permission denied"
	[23]="Too many open files in system" [24]="Too many open files"
	[97]="Address family not supported by protocol" [105]="No buffer space available"
)

# cause CALL ERRNO COMMAND...: fails, with one line, which has the words, and sends nobody astray.
cause()
{
	local call=$1 errno=$2 status=0

	shift 2
	LD_PRELOAD=$fail FAIL="$call 1 $errno" timeout 20 "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
	[ $status = 1 ] && [ "$(wc -l <"$scratch/err")" = 1 ] &&
		grep -qF ": ${words[$errno]}" "$scratch/err" &&
		! grep -q 'modprobe\|not loaded' "$scratch/err" || {
		echo "# $call, ${words[$errno]}: $*: status $status: $(head -n 3 "$scratch/err")"
		return 1
	}
	case $errno in
	24)	grep -q 'ulimit -n' "$scratch/err" ;;
	1 | 13 | 97)
		grep -q 'seccomp' "$scratch/err" ;;
	*)	! grep -q 'ulimit\|seccomp' "$scratch/err" ;;
	esac || {
		echo "# $call, ${words[$errno]}: $*: $(cat "$scratch/err")"
		return 1
	}
}

while read -r command; do
	bad=0
	for call in socket sendmsg; do
		# All go the same way from there.
		[ $call = socket ] || [ "$command" = "comm show" ] || continue
		for errno in "${!words[@]}"; do
			# shellcheck disable=SC2086
			cause $call "$errno" npulink $command || bad=1
		done
	done
	result $bad "netlink fails: $command"
done <<-'END'
	dev show
	link show
	link ports
	link test
	link add npu0 rdma rxe0/1
	comm show
	op show
	buf show
	stat show
	hang
	top -n 1
	monitor
	trace
	slow
	tune
	bench allreduce
END

# file ERRNO COMMAND...: $scratch/file cannot be opened.
file()
{
	local errno=$1 status=0

	shift
	LD_PRELOAD=$fail FAIL="fopen 1 $errno" FAIL_PATH=${path:-$scratch/file} "$@" \
		>"$scratch/out" 2>"$scratch/err" || status=$?
	[ $status = 1 ] && [ "$(wc -l <"$scratch/err")" = 1 ] &&
		grep -qF "$scratch/file: ${words[$errno]}" "$scratch/err" || {
		echo "# ${words[$errno]}: $*: status $status: $(head -n 3 "$scratch/err")"
		return 1
	}
}

: >"$scratch/file"
for errno in 12 13 23 24; do
	bad=0
	file $errno env COLL_CALIBRATION="$scratch/file" npulink plan explain allreduce || bad=1
	file $errno npulink plan verify -f "$scratch/file" || bad=1
	file $errno npulink tune far --node_rank 0 --master_addr 127.0.0.1 -o "$scratch/file" || bad=1
	path=$scratch/file.new file $errno npulink plan simulate allreduce --svg "$scratch/file" || bad=1
	path=$scratch/file.new file $errno npulink plan simulate allreduce --trace "$scratch/file" ||
		bad=1
	result $bad "a file cannot be opened: ${words[$errno]}"
done

finish
