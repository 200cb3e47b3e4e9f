#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma_launch.sh: a program of two machines that Open MPI's mpirun starts. Each rank
# counts its share of the bytes of some files, and together they must have counted what
# one alone does.
#
# npulink-test: machines=2 mem=768 modules=none timeout=300 soak

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=$(cd "${NPULINK_TREE:-.}" && pwd)
over=$NPULINK_RESULTS/../launch-is-over
bytepairs="$tree/build/tools/demo/bytepairs -m 1"
files=/lib/modules/$(uname -r)
agent=7010

skip_all()
{
	echo "1..0 # SKIP $*"
	exit 4
}

set_up()
{
	local try

	modprobe rdma_rxe || return 1
	# Another test may have left it.
	rdma link show rxe0/1 >/dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0 || return 1
	"$tree/tools/vm/modules" load ndev=2 &&
		"$tree/tools/vm/modules" insert npulink_rdma peer_timeout=20000 || return 1
	# Its address is known to it a moment later.
	for ((try = 0; try < 50; try++)); do
		! npulink link add npu0 rdma rxe0/1 2>/dev/null || break
		sleep 0.1
	done
	npulink link add npu1 rdma rxe0/1
}

# ---- instead of sshd and ssh: a line that comes is a command

write_agent()
{
	cat >/tmp/agent <<-'END'
		#!/bin/bash
		read -r command
		exec bash -c "$command" 2>&1
	END
	cat >/tmp/rsh <<-END
		#!/bin/bash
		exec 3<>/dev/tcp/\$1/$agent || exit 255
		shift
		echo "\$*" >&3
		exec cat <&3
	END
	chmod +x /tmp/agent /tmp/rsh
}

# ---- what is tested

# launched NAME COMMAND...: it runs 2 ranks on each machine
launched()
{
	local name=$1

	shift
	rm -f /tmp/together
	check "$name" timeout 100 "$@" bash -c "hostname; exec $bytepairs -o /tmp/together $files"
	mv "$scratch/out" /tmp/said
	check "$name: two ranks on each machine" \
		test "$(grep -o '^vm[01]$' /tmp/said | sort | tr '\n' ' ')" = "vm0 vm0 vm1 vm1 "
	check "$name: all took part" grep '^ *4 processes: ' /tmp/said
	check "$name: right" cmp /tmp/together /tmp/alone
}

[ "${NPULINK_VMS:-1}" = 2 ] || skip_all "two machines are needed"
command -v mpirun.openmpi >/dev/null || skip_all "openmpi-bin is not installed"
write_agent
set_up || { echo "Bail out! cannot set up links"; exit 1; }

if [ "$NPULINK_VM" = 1 ]; then
	busybox nc -ll -p $agent -e /tmp/agent &
	until [ -e "$over" ]; do sleep 0.2; done
	kill %+
	check "the other machine is done" rm "$over"
else
	$bytepairs -1 -o /tmp/alone "$files"
	launched mpirun mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent /tmp/rsh \
		--host vm0:2,vm1:2
	touch "$over"
fi
check "the modules can be removed" "$tree/tools/vm/modules" unload
finish
