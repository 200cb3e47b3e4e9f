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
bytepairs="$tree/build/tools/demo/bytepairs -m 1"
files=/lib/modules/$(uname -r)

skip_all()
{
	echo "1..0 # SKIP $*"
	exit 4
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
"$tree/tools/vm/rdma" 2 peer_timeout=20000 || { echo "Bail out! cannot set up links"; exit 1; }

if [ "$NPULINK_VM" = 1 ]; then
	check "what the other machine wants" "$tree/tools/vm/rsh" serve
else
	# The other one waits for that, whatever happens here.
	trap '"$tree/tools/vm/rsh" vm1 stop; rm -rf "$scratch"' EXIT
	$bytepairs -1 -o /tmp/alone "$files"
	launched mpirun mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$tree/tools/vm/rsh" \
		--host vm0:2,vm1:2
fi
check "the modules can be removed" "$tree/tools/vm/modules" unload
finish
