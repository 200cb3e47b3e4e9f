# SPDX-License-Identifier: GPL-2.0
#
# For tests that have Slurm start ranks: daemons of our own, with which no other cluster of
# this machine has to do. Not executable, so that it is no test itself.

# slurm_conf FILE DIR CONTROLLER ADDRESS CPUS NODE...: NODE is "NAME ADDRESS"; DIR, with
# what the daemons keep there, is each machine's own
slurm_conf()
{
	local file=$1 dir=$2 controller=$3 address=$4 cpus=$5 node

	shift 5
	{
		cat <<-END
			ClusterName=test
			SlurmctldHost=$controller($address)
			SlurmctldPort=$(slurm_port)
			SlurmdPort=$(slurm_port)
			SlurmUser=root
			AuthType=auth/none
			CredType=cred/none
			ProctrackType=proctrack/linuxproc
			TaskPlugin=task/none
			SwitchType=switch/none
			SchedulerType=sched/builtin
			SelectType=select/linear
			JobAcctGatherType=jobacct_gather/none
			StateSaveLocation=$dir/state
			SlurmdSpoolDir=$dir/spool
			SlurmctldPidFile=$dir/slurmctld.pid
			SlurmdPidFile=$dir/slurmd.pid
			SlurmctldLogFile=$dir/slurmctld.log
			SlurmdLogFile=$dir/slurmd.log
		END
		for node; do
			echo "NodeName=${node% *} NodeAddr=${node#* } CPUs=$cpus State=UNKNOWN"
		done
		echo "PartitionName=all Nodes=ALL Default=YES State=UP"
	} >"$file"
	# slurmd has cgroups of its own made by systemd, which a virtual machine has not.
	echo "IgnoreSystemdOnFailure=yes" >"${file%/*}/cgroup.conf"
}

slurm_port()
{
	local port

	for ((port = 20000 + RANDOM % 10000; ; port++)); do
		(: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo $port
}

# slurm_idle N: until that many nodes are there
slurm_idle()
{
	local try

	for ((try = 0; try < 400; try++)); do
		[ "$(sinfo -h -o '%t %D' 2>/dev/null)" != "idle $1" ] || return 0
		sleep 0.1
	done
	sinfo >&2
	return 1
}
