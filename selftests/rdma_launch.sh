#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma_launch.sh: a program of two machines that Open MPI's mpirun or Slurm's srun starts.
# Each rank counts its share of the bytes of some files, and together they must have counted
# what one alone does. Debian 12 has no package of prterun, which is what mpirun calls itself
# from Open MPI 5 on.
#
# npulink-test: machines=2 mem=768 modules=none timeout=600 soak

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
. "${NPULINK_TREE:-.}/selftests/slurm.sh"
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

# What both machines see, and what each has for itself.
shared=$(dirname "${NPULINK_RESULTS:?only in a virtual machine}")/slurm
own=/tmp/slurm

# Until slurmctld, here, knows that slurmd is there on both.
start_slurm()
{
	# Where systemd would have made a cgroup for it.
	local make="mkdir -p $own/state $own/spool /sys/fs/cgroup/system.slice"

	mkdir -p "$shared"
	export SLURM_CONF=$shared/slurm.conf
	slurm_conf "$SLURM_CONF" "$own" vm0 10.77.0.1 "$(nproc)" "vm0 10.77.0.1" "vm1 10.77.0.2"
	$make
	slurmctld -D >"$own/out" 2>&1 &
	slurmd -D -N vm0 >>"$own/out" 2>&1 &
	"$tree/tools/vm/rsh" vm1 "$make; SLURM_CONF=$SLURM_CONF exec slurmd -D -N vm1" \
		>"$own/out.vm1" 2>&1 &
	slurm_idle 2 || { cat "$own"/*.log >&2; return 1; }
}

stop_slurm()
{
	# Both slurmd, and last slurmctld.
	scontrol shutdown && wait
}

srun_on_both()
{
	check "slurmctld, and slurmd on both machines" start_slurm
	launched "srun --mpi=pmix" srun --mpi=pmix --overcommit -N 2 -n 4 --ntasks-per-node=2
	COLL_KEY=secret launched "srun, with a key" \
		srun --mpi=pmix --overcommit -N 2 -n 4 --ntasks-per-node=2
	# shellcheck disable=SC2016 # for the ranks' shell
	launched "srun without PMIx" srun --mpi=none --overcommit -N 2 -n 4 --ntasks-per-node=2 \
		env MASTER_ADDR=vm0 COLL_KEY=secret bash -c '
		export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS \
			COLL_PORT=29478
		exec "$0" "$@"'
	check "Slurm's daemons end" stop_slurm
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
	if command -v slurmctld >/dev/null && command -v slurmd >/dev/null; then
		srun_on_both
	else
		skip "srun" "slurmctld and slurmd are not installed"
	fi
fi
check "the modules can be removed" "$tree/tools/vm/modules" unload
finish
