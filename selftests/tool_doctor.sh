#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# npulink doctor finds what is wrong and says what to do about it.
#
# npulink-test: modules=none

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
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

expect "nothing is loaded: exit status" 3 npulink doctor
json "nothing is loaded" "$(finding module error modprobe)" doctor
expect "nothing is loaded: dev show" 1 npulink dev show
expect_one_line "nothing is loaded: one line" npulink dev show
expect "nothing is loaded: bench" 1 npulink bench allreduce

expect "nothing to load as nobody: exit status" 3 \
	setpriv --reuid=65534 --regid=65534 --clear-groups npulink doctor --fix
json "nobody cannot fix it" "$(finding fix warning root)" \
	sh -c 'setpriv --reuid=65534 --regid=65534 --clear-groups npulink -j doctor --fix || [ $? = 3 ]'
json "kernel, IOMMU, RDMA, signature" \
	'[.findings[].check] | (index("kernel") and index("iommu") and index("rdma") and index("signature"))' \
	doctor
$modules insert npulink
json "no backend" "$(finding backend error npulink_soft)" doctor
json "no devices" "$(finding devices error ndev=)" doctor
expect "no devices: bench" 1 npulink bench allreduce
json "no devices: dev show" 'length == 0' npulink -j dev show

$modules insert npulink_soft ndev=2
json "all is well" '[.findings[] | select(.severity == "error")] == []' doctor
expect "all is well: exit status" 0 sh -c 'npulink doctor; [ $? -le 1 ]'
json "root has no limit" "$(finding memlock ok '')" doctor
json "module" "$(finding module ok '')" doctor
json "abi" "$(finding abi ok '')" doctor
json "netlink" "$(finding netlink ok '')" doctor

# As somebody who may not open the devices.
chown root:root /dev/npulink/npu*
chmod 600 /dev/npulink/npu*
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
json "for root only" "$(finding access error udev)" $nobody sh -c 'npulink -j doctor || [ $? = 3 ]'
chgrp tty /dev/npulink/npu*
chmod 660 /dev/npulink/npu*
json "for another group" "$(finding access error usermod)" \
	$nobody sh -c 'npulink -j doctor || [ $? = 3 ]'
json "dev show works all the same" 'length == 2' $nobody npulink -j dev show
expect "bench does not" 1 $nobody npulink bench allreduce -b 8 -e 8
rm /dev/npulink/npu1
json "a node is missing" "$(finding devices error 'docker run --device /dev/npulink/npu1')" doctor
$modules unload

finish
