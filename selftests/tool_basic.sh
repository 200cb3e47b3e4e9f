#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The npulink command: exit statuses, JSON, what it shows of devices and links.
#
# npulink-test: cpus=1 ndev=4 timeout=300 named

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"

expect "version" 0 npulink -V
expect "help" 0 npulink help
expect "help option" 0 npulink --help
expect "nothing to do" 2 npulink
expect "unknown object" 2 npulink teapot
expect "unknown option" 2 npulink --teapot
expect "unknown command" 2 npulink dev teapot
expect "unknown word" 2 npulink dev show npu0 teapot
expect "no device" 2 npulink dev show teapot
expect "unknown option of a command" 2 npulink dev show --teapot
expect "ambiguous object" 2 npulink d
expect "shortened words" 0 npulink de sh
for object in dev link plan tune; do
	expect "$object help" 0 npulink $object help
done
for command in "dev show" "link show" "link matrix" "link test" "link add" "link del" "link ports" \
	"plan list" "plan show" "plan verify" \
	bench trace slow replay doctor; do
	expect "$command --help" 0 npulink $command --help
done
expect_one_line "one line of complaint" npulink teapot
expect_one_line "one line of complaint about an option" npulink link show -x
check "complaints go to standard error" test -z "$(npulink teapot 2>/dev/null)"
expect "full disk" 1 sh -c "exec npulink help >/dev/full"

json "dev show" 'length == 4 and all(.backend == "soft")' npulink -j dev show
json "dev show of one" '.[0].name == "npu2" and .[0].id == 2' npulink -j dev show npu2
json "dev show by path" '.[0].id == 1' npulink dev show /dev/npulink/npu1 -j
abi=$(npulink --version | sed -n 's/.*ABI //p')
json "dev show, details" ".[0].abi == ${abi:-0} and .[0].limits.max_steps > 1000" npulink -j -d dev show 0
json "dev show, pretty" 'length == 4' npulink -j -p dev show
expect "device that is not there" 1 npulink dev show npu77
json "types are named" '.[0].dtypes | index("float32") != null' npulink -j dev show npu0

check "some traffic" npulink bench allreduce -p 4 -b 64K -e 64K -n 2
json "link show" 'length > 0 and all(.steps > 0 or .doorbells >= 0)' npulink -j link show
json "link show of one device" 'length > 0 and all(.dev == "npu1")' npulink -j link show npu1
json "link show dev" 'all(.dev == "npu1")' npulink -j link show dev npu1
json "bytes went over links" '[.[].bytes] | add >= 65536' npulink -j link show
expect "links of a device that is not there" 1 npulink link show npu77
# Other tests may have aborted some.
aborts()
{
	npulink -j stat show | jq '[.. | .abort? // 0] | add'
}
before=$(aborts)
expect "link matrix" 0 npulink link matrix
expect "link matrix of steps" 0 npulink link matrix steps
json "link test" 'length == 12 and all(.ok and .alpha_s > 0 and .wrong_bytes == 0)' npulink -j link test
valid "link test: schema" link_test npulink -j link test npu1
json "link test of one device" 'length == 6 and all(.dev == "npu1" or .peer == "npu1")' \
	npulink -j link test dev npu1
json "link test: no communicator has failed by it" "[.. | .abort? // 0] | add == $before" \
	npulink -j stat show
check "link test: text" sh -c '[ "$(npulink link test | grep -c "/s$")" = 12 ]'
refuse "link test of no device" npulink link test npu99
expect "link test of something" 2 npulink link test teapot
expect "link test of two" 2 npulink link test npu0 npu1
expect "link matrix of something else" 2 npulink link matrix teapot
json "link ports" 'type == "array"' npulink -j link ports
expect "link ports of something" 2 npulink link ports teapot
expect "link add of too little" 2 npulink link add npu0 rdma
expect "link add to something else" 2 npulink link add teapot rdma rxe0/1
expect "link add of another kind" 1 npulink link add npu0 pigeon rxe0/1
expect "link del of what is not there" 1 npulink link del npu0 rdma rxe0/1
check "engines were used" sh -c "npulink -j dev show | jq -e 'all(.requests > 0)' >/dev/null"

finish
