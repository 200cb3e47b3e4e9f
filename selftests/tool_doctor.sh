#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink doctor finds what is wrong and says what to do about it.
#
# npulink-test: cpus=1 modules=none timeout=600 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
modules=${NPULINK_TREE:-.}/tools/vm/modules

# finding CHECK SEVERITY WORD-OF-THE-FIX: as a filter for jq
finding()
{
	echo ".findings | any(.check == \"$1\" and .severity == \"$2\" and ((.fix // \"\") | contains(\"$3\")))"
}

doctor()
{
	# Every exit status but that of a wrong command line.
	npulink -j doctor "$@" || [ $? != 2 ]
}

# There is a finding about each, whatever is missing.
all='[.findings[].check] | unique == (["module", "installed", "backend", "devices", "access", "abi", "netlink",
	"links", "peers", "jobs", "signature", "kernel", "iommu", "rdma", "memlock", "cgroup", "library"] | sort)'

expect "nothing is loaded: exit status" 3 npulink doctor
json "nothing is loaded" "$(finding module error modprobe)" doctor
json_too "so links are not tested" "$(finding links 'not tested' '')"
json_too "nothing is loaded: nothing left out" "$all"
valid "doctor without module" doctor doctor
expect "nothing is loaded: dev show" 1 npulink dev show
expect_one_line "nothing is loaded: one line" npulink dev show
expect "nothing is loaded: bench" 1 npulink bench allreduce

expect "nothing to load as nobody: exit status" 3 \
	setpriv --reuid=65534 --regid=65534 --clear-groups npulink doctor --fix
json "nobody cannot fix it" "$(finding fix warning root)" \
	sh -c 'setpriv --reuid=65534 --regid=65534 --clear-groups npulink -j doctor --fix || [ $? = 3 ]'
$modules insert npulink
json "no backend" "$(finding backend error npulink_soft)" doctor
json_too "no devices" "$(finding devices error ndev=)"
json_too "no devices: nothing left out" "$all"
expect "no devices: bench" 1 npulink bench allreduce
json "no devices: dev show" 'length == 0' npulink -j dev show

$modules insert npulink_soft ndev=2
json "all is well" '[.findings[] | select(.severity == "error")] == []' doctor
json_too "all is well: nothing left out" "$all"
json_too "root has no limit" "$(finding memlock ok '')"
json_too "module" "$(finding module ok '')"
json_too "abi" "$(finding abi ok '')"
json_too "netlink" "$(finding netlink ok '')"
expect "all is well: exit status" 0 sh -c 'npulink doctor; [ $? -le 1 ]'

valid "doctor" doctor doctor

# What counts is the least limit of all that the own cgroup is in.
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/outer/inner
echo 32M >/sys/fs/cgroup/outer/memory.max
json "a limit of an outer cgroup" '.findings | any(.check == "cgroup" and .severity == "warning" and
	(.text | contains("/outer allows 32.0M of memory")))' \
	sh -c 'echo $$ >/sys/fs/cgroup/outer/inner/cgroup.procs; npulink -j doctor || [ $? = 1 ]'
json "no limit" "$(finding cgroup ok '')" doctor
rmdir /sys/fs/cgroup/outer/inner /sys/fs/cgroup/outer
# A capability of a container is none.
json "root of a user namespace has a limit" \
	'.findings | any(.check == "memlock" and (.text | contains("CAP_IPC_LOCK") | not))' \
	unshare -Ur sh -c 'npulink -j doctor || [ $? = 1 ]'

# What cannot be seen is not called wrong, and what is wrong has its own cause.
# without DIRECTORY COMMAND...
without()
{
	local dir=$1

	shift
	unshare -m sh -c 'mount -t tmpfs -o ro none "$1"; shift; "$@" || [ $? != 2 ]' - "$dir" "$@"
}
json "without /sys" '[.findings[] | select(.severity == "error")] == []' \
	without /sys npulink -j doctor
json_too "without /sys: nothing left out" "$all"
json_too "without /sys: module" "$(finding module 'not tested' sysfs)"
json_too "without /sys: backend" "$(finding backend 'not tested' '')"
json_too "without /sys: access" "$(finding access ok '')"
json_too "without /sys: rdma" '.findings | any(.check == "rdma" and (.text | contains("no /sys")))'
json "without /proc" '[.findings[] | select(.severity == "error")] == []' \
	without /proc npulink -j doctor
json_too "without /proc: memlock" "$(finding memlock 'not tested' '')"
json_too "without /proc: cgroup" '.findings | any(.check == "cgroup" and (.text | contains("no /proc")))'
json "a container without nodes" "$(finding devices error 'docker run --device')" \
	without /dev/npulink npulink -j doctor
fail=${NPULINK_TREE:-.}/build/selftests/lib/libfail.so
# said WORDS COMMAND...: it fails, and its error has these words.
said()
{
	local words=$1

	shift
	"$@" 2>&1 >/dev/null | grep -F "$words"
}
bench="npulink bench allreduce -p 2 -b 8 -e 8 -n 1"
# shellcheck disable=SC2086
{
check "a container without nodes: library" said "although the machine has such a device: in a container" \
	without /dev/npulink $bench
check "without nodes and /sys: library" said "cannot be told without /sys" \
	without /sys unshare -m sh -c 'mount -t tmpfs none /dev/npulink; exec "$@"' - $bench
check "a mount with nodev: library" said "has the option nodev" \
	unshare -m sh -c "mount -t tmpfs -o nodev none /mnt; cp -a /dev/npulink/npu* /mnt
		mount --bind /mnt /dev/npulink; exec \"\$@\"" - $bench
json "a mount with nodev" "$(finding access error 'remount,dev')" \
	unshare -m sh -c "mount -t tmpfs -o nodev none /mnt; cp -a /dev/npulink/npu* /mnt
		mount --bind /mnt /dev/npulink; npulink -j doctor || [ \$? = 3 ]"
check "no descriptor left: library" said "RLIMIT_NOFILE" \
	env LD_PRELOAD="$fail" FAIL="open 1 24" $bench
check "no descriptor left: says what helps" said "coll_config.share" \
	env LD_PRELOAD="$fail" FAIL="open 1 24" $bench
check "a device that does not say what it is" said "Input/output error" \
	env LD_PRELOAD="$fail" FAIL="ioctl 1 5" $bench
}
json "no descriptor left" '.findings | any(.check == "access" and (.text | contains("RLIMIT_NOFILE")))' \
	env LD_PRELOAD="$fail" FAIL="open 1 24" sh -c 'npulink -j doctor || [ $? = 3 ]'
check "no descriptor left: link test" said "Too many open files" \
	env LD_PRELOAD="$fail" FAIL="open 1 24" npulink link test
json "no sockets" '.findings | any(.check == "netlink" and (.text | contains("not permitted")) and (.fix | contains("seccomp")))' \
	env LD_PRELOAD="$fail" FAIL="socket 1 1" sh -c 'npulink -j doctor || [ $? != 2 ]'

# Links: right, wrong, down; as fast as expected, and not.
knobs=/sys/kernel/debug/npulink_soft
links()
{
	echo "[.findings[] | select(.check == \"links\")] | length > 0 and all(.severity == \"$1\") and any(.text | contains(\"$2\"))"
}
printf 'alpha = 1\nbeta = 1\n' >"$scratch/slow"
printf 'alpha = 1e-9\nbeta = 1e-18\n' >"$scratch/fast"
# It is not installed, which is a warning.
json "links move data right" "$(links ok '2 moved data right')" \
	sh -c 'COLL_CALIBRATION="" npulink -j doctor || [ $? = 1 ]'
json "as fast as expected" "$(links ok 'was expected')" \
	sh -c "COLL_CALIBRATION=$scratch/slow npulink -j doctor || [ \$? = 1 ]"
json "not as fast as expected" "$(links warning 'was expected')" \
	sh -c "COLL_CALIBRATION=$scratch/fast npulink -j doctor || [ \$? = 1 ]"
echo 1000000 >$knobs/npu1/corrupt_link
json "data arrives wrong" "$(links error 'arrived wrong')" sh -c 'npulink -j doctor || [ $? = 3 ]'
expect "link test: wrong data" 1 npulink link test
json "link test: which" '.[0] | .dev == "npu0" and .peer == "npu1" and .wrong_bytes > 0 and (.ok | not)' \
	sh -c 'npulink -j link test || [ $? = 1 ]'
echo 0 >$knobs/npu1/corrupt_link
echo 'npu1 down' >$knobs/npu0/link
json "a link is down" "$(links error 'npu0 -> npu1: ')" sh -c 'npulink -j doctor || [ $? = 3 ]'
expect "link test: link down" 1 npulink link test
echo 'npu1 up' >$knobs/npu0/link
check "all is well again" npulink link test
json "no peers elsewhere" "$(finding peers 'not tested' '')" doctor

# As somebody who may not open the devices.
chown root:root /dev/npulink/npu*
chmod 600 /dev/npulink/npu*
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
json "for root only" "$(finding access error udev)" $nobody sh -c 'npulink -j doctor || [ $? = 3 ]'
chgrp tty /dev/npulink/npu*
chmod 660 /dev/npulink/npu*
json "for another group" "$(finding access error usermod)" \
	$nobody sh -c 'npulink -j doctor || [ $? = 3 ]'
json_too "for another group: nothing left out" "$all"
json "dev show works all the same" 'length == 2' $nobody npulink -j dev show
expect "bench does not" 1 $nobody npulink bench allreduce -b 8 -e 8
rm /dev/npulink/npu1
json "a node is missing" "$(finding devices error 'docker run --device /dev/npulink/npu1')" doctor
rm /dev/npulink/npu0
json "no node is there: nothing left out" "$all" doctor
$modules unload

# Installed, in a copy of /lib/modules that can be written: --fix loads it.
release=$(uname -r)
root=$scratch/root
mkdir -p "$root"
mount -t tmpfs none "$root"
mkdir -p "$root/lib/modules/$release/kernel"
cp /lib/modules/"$release"/modules.* "$root/lib/modules/$release/"
# Only what ours need: depmod looks into each module that it finds.
for module in $(modinfo -F depends "build/modules-$release"/kernel/*/npulink*.ko | tr ',' '\n' | sort -u); do
	modprobe -D "$module" 2>/dev/null || :
done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
	mkdir -p "$root${file%/*}"
	cp "$file" "$root$file"
done
json "not installed" "$(finding installed error 'make install')" doctor
json "nothing to load" "$(finding fix warning 'make install')" doctor --fix
check "make install" env DESTDIR="$root" prefix=/usr/local bindir=/usr/local/bin libdir=/usr/local/lib \
	includedir=/usr/local/include mandir=/usr/local/share/man sysconfdir=/etc udevdir=/lib/udev \
	moddir=/lib/modules tools/install/install "$(sed -n "s/^VERSION := //p" Makefile)" "$release" "build/modules-$release"
mount --rbind "$root/lib/modules" /lib/modules
json "installed, not loaded" "$(finding installed ok '')" doctor
mkdir -p /run/modprobe.d
echo "blacklist npulink_soft" >/run/modprobe.d/doctor.conf
json "blacklisted" '.findings | any(.check == "fix" and .severity == "warning" and (.text | contains("blacklists")))' \
	doctor --fix
rm /run/modprobe.d/doctor.conf
json "loaded by --fix" '.findings | any(.check == "fix" and (.text | contains("loaded npulink_soft")))' \
	doctor --fix
check "it is loaded" test -d /sys/module/npulink_soft
json "installed and loaded" '[.findings[] | select(.check == "module" or .check == "installed" or
	.check == "devices" or .check == "links") | .severity] | length == 4 and all(. == "ok")' doctor
check "modprobe -r" modprobe -r npulink_soft
check "modprobe" modprobe npulink_soft ndev=1
json "one device has no links" "$(links 'not tested' 'no two devices')" doctor
check "in words" sh -c '[ "$(npulink doctor | grep -c "^not tested  *links ")" = 1 ]'
modprobe -r npulink_soft
umount -l /lib/modules "$root"

finish
