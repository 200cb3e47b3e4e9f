#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# launch.sh: ranks that Open MPI's mpirun and Slurm's srun start on this machine meet by
# PMIx, and what goes wrong there is told in one line. The program is the test of the
# bootstrap, which brings its own device.
#
# npulink-test: timeout=240

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
. "${NPULINK_TREE:-.}/selftests/slurm.sh"
: "${scratch:?}"
rank=${NPULINK_TESTS:-build/selftests}/lib/bootstrap
host=$(hostname)
daemons=()

stop()
{
	for pid in "${daemons[@]}"; do
		kill "$pid" 2>/dev/null && wait "$pid"
	done
	rm -rf "$scratch"
}

# Each line "rank R of N , HOST secret S", each R once, all with one secret.
joined()
{
	local n=$1 file=$2

	[ "$(sort "$file" | awk -v n="$n" '
		$1 == "rank" && $4 == n && !seen[$2]++ { ok++; secret[$8] = 1 }
		END { print ok, length(secret) }')" = "$n 1" ]
}

# meets NAME N COMMAND...
meets()
{
	local name=$1 n=$2 got=0

	shift 2
	"$@" >"$scratch/out" 2>"$scratch/err" || got=1
	joined "$n" "$scratch/out" || got=1
	result $got "$name"
}

# tells NAME N TEXT COMMAND...: N ranks say this
tells()
{
	local name=$1 n=$2 text=$3

	shift 3
	"$@" >"$scratch/out" 2>"$scratch/err" || :
	result $(($(cat "$scratch/out" "$scratch/err" | grep -c "$text") != n)) "$name"
}

# The same of a rank that does not come, within a time in which the others have to: @patience
# seconds, more if this machine is busy. The last one stays away for three times that.
tells_in_time()
{
	for patience in 1 5 20; do
		export patience
		"${@:4}" >"$scratch/out" 2>"$scratch/err" || :
		[ "$(cat "$scratch/out" "$scratch/err" | grep -c "$3")" != "$2" ] || break
	done
	result $(($(cat "$scratch/out" "$scratch/err" | grep -c "$3") != $2)) "$1"
}

# ---- Open MPI

mpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)

# Without this, mpirun ends the others as soon as one says that it has failed.
patient=("${mpi[@]}" --mca orte_abort_on_non_zero_status 0)

open_mpi()
{
	meets "mpirun" 4 "${mpi[@]}" -n 4 "$rank" join
	meets "mpirun, with a key" 3 "${mpi[@]}" -n 3 -x COLL_KEY=secret "$rank" join
	meets "mpirun, three times in a row" 3 "${mpi[@]}" -n 3 "$rank" join 3
	# Two jobs of two in one of four.
	# shellcheck disable=SC2016 # for the ranks' shell
	tells "torchrun's variables come first" 4 "^rank . of 2 ," "${mpi[@]}" -n 4 sh -c '
		r=$OMPI_COMM_WORLD_RANK; RANK=$((r % 2)) LOCAL_RANK=$r WORLD_SIZE=2 \
		MASTER_ADDR=127.0.0.1 COLL_PORT=$((29475 + r / 2)) exec "$0" join' "$rank"
	tells "mpirun, another key" 2 "rank 1 on $host has another COLL_KEY than rank 0" \
		"${patient[@]}" -n 1 -x COLL_KEY=one "$rank" join : -n 1 -x COLL_KEY=two "$rank" join
	tells "mpirun, another algorithm" 2 "rank 1 on $host was given other algorithms" \
		"${patient[@]}" -n 1 "$rank" join : -n 1 -x COLL_ALGORITHM=allreduce:ring "$rank" join
	tells "mpirun, a rank without a device" 2 "there is no /nonexistent/npu7" \
		"${patient[@]}" -n 1 "$rank" join : -n 1 -x COLL_DEVICE=/nonexistent/npu7 "$rank" join
	# shellcheck disable=SC2016 # for the ranks' shell
	tells_in_time "mpirun, a rank that does not come" 3 "rank 3 did not come" \
		"${patient[@]}" -x patience -n 3 sh -c 'COLL_TIMEOUT=$patience exec "$0" join' "$rank" \
		: -n 1 -x patience sh -c 'sleep $((3 * patience + 1))'
}

# ---- Slurm, with one node, this machine, and daemons of our own

start_slurm()
{
	local dir=$scratch/slurm

	mkdir -p "$dir/state" "$dir/spool"
	export SLURM_CONF=$dir/slurm.conf
	slurm_conf "$SLURM_CONF" "$dir" "$host" 127.0.0.1 "$(nproc)" "$host 127.0.0.1"
	slurmctld -D >"$dir/out" 2>&1 &
	daemons+=($!)
	slurmd -D -N "$host" >>"$dir/out" 2>&1 &
	daemons+=($!)
	slurm_idle 1 || { cat "$dir"/*.log >&2; return 1; }
}

slurm()
{
	check "slurmctld and slurmd" start_slurm
	meets "srun --mpi=pmix" 4 srun --mpi=pmix --overcommit -n 4 "$rank" join
	meets "srun, three times in a row, with a key" 2 \
		env COLL_KEY=secret srun --mpi=pmix --overcommit -n 2 "$rank" join 3
	# shellcheck disable=SC2016 # for the ranks' shell
	tells_in_time "srun, a rank that does not come" 2 "rank 2 did not come" \
		srun --mpi=pmix --overcommit -n 3 sh -c '[ $PMIX_RANK != 2 ] && \
		COLL_TIMEOUT=$patience exec "$0" join; sleep $((3 * patience + 1))' "$rank"
	# shellcheck disable=SC2016 # for the ranks' shell
	meets "srun without PMIx" 3 srun --mpi=none --overcommit -n 3 sh -c 'RANK=$SLURM_PROCID \
		LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=127.0.0.1 \
		COLL_PORT=29478 exec "$0" join' "$rank"
}

[ -x "$rank" ] || { echo "1..0 # SKIP $rank is not built"; exit 4; }
trap stop EXIT
if command -v mpirun.openmpi >/dev/null; then
	open_mpi
else
	skip "mpirun" "openmpi-bin is not installed"
fi
if command -v mpiexec.mpich >/dev/null; then
	# shellcheck disable=SC2016 # for the ranks' shell
	meets "MPICH's mpiexec" 3 mpiexec.mpich -n 3 sh -c 'RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE \
		LOCAL_RANK=$MPI_LOCALRANKID MASTER_ADDR=127.0.0.1 COLL_PORT=29479 \
		exec "$0" join' "$rank"
else
	skip "MPICH's mpiexec" "mpich is not installed"
fi
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null; then
	skip "srun" "slurmctld and slurmd are not installed"
elif [ "$(id -u)" != 0 ]; then
	skip "srun" "slurmd needs root"
else
	slurm
fi
tells "a launcher that has gone" 1 "PMIx_Init: " \
	env PMIX_NAMESPACE=gone PMIX_RANK=0 "$rank" join
finish
