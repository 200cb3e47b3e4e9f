#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the npulink command takes for a size or a number, and what not; and the
# netlink header against its YNL spec. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=${NPULINK_TREE:-.}

# doctor takes a size and works everywhere; 2 is for a wrong command line.
takes()
{
	expect "size $1" 0 sh -c 'npulink doctor -m "$1"; [ $? != 2 ]' - "$1"
}

refuses()
{
	expect "no size: '$1'" 2 npulink doctor -m "$1"
}

for size in 0 1 65536 0x1000 8K 8k 3M 3MiB 2G 2GB 1T 16777215T; do
	takes $size
done
for size in '' ' 1' -1 +1 1Q K 1KK 1Kx 1.5M 16777216T 18446744073709551616 0x1p3; do
	refuses "$size"
done
expect "options after words" 0 npulink plan list allreduce -j
expect "long option with =" 0 npulink plan show allreduce --ranks=3
expect "end of options" 2 npulink plan show -- --ranks
expect "value missing" 2 npulink plan show allreduce --ranks
expect "ambiguous long option" 2 npulink plan show allreduce --ran
expect "help wins" 0 npulink plan show --help --teapot
json "JSON before and after" 'length > 0' npulink -j plan list -j --pretty

# Of every object that "npulink help" names.
objects=$(npulink help | sed -n '/^Objects:/,/^$/s/^  \([a-z]*\) .*/\1/p')
check "there are objects" test "$(echo "$objects" | wc -w)" -gt 15
for object in $objects; do
	expect "$object help" 0 npulink $object help
	check "$object help tells how it is used" sh -c "npulink $object help | grep -q '^Usage: npulink .*$object'"
done
for object in comm op buf stat; do
	expect "$object show --help" 0 npulink $object show --help
	expect "$object: unknown word" 2 npulink $object show 1 2 3
	expect "$object: unknown command" 2 npulink $object teapot
	expect "$object: no number" 2 npulink $object show teapot
	expect "$object: bad interval" 2 npulink $object show -wteapot
	expect "$object: bad interval after a space" 2 npulink $object show -w 0
done
for object in hang monitor; do
	expect "$object --help" 0 npulink $object --help
	expect "$object: unknown option" 2 npulink $object --teapot
done
expect "hang: no number" 2 npulink hang teapot
expect "hang: no time" 2 npulink hang -t teapot
expect "monitor: no number" 2 npulink monitor -n 0
expect "monitor: unknown word" 2 npulink monitor teapot

expect "top --help" 0 npulink top --help
for option in "-n 0" "-n teapot" "-d 0" "-d -1" "-d nan" "-d 1x" "-d 1e9" teapot --teapot; do
	# shellcheck disable=SC2086 # words
	expect "top $option" 2 npulink top $option
done
expect "link show: bad interval" 2 npulink link show -wteapot
expect "link show: unknown word" 2 npulink link show npu0 teapot
expect "report --help" 0 npulink report --help
expect "report: unknown word" 2 npulink report teapot
expect "report: no such folder" 1 npulink report -o /no/such/folder
json "report, even without module" '.doctor.findings | length > 3' npulink report
expect "report is not written over a file" 1 npulink report -o /etc/passwd

# names SET: NPULINK_A_SET_*, in the order of the spec
names()
{
	awk -v set="$1" '
		/^  -$/ { inside = 0 }
		$1 == "name:" && /^    name:/ { inside = $2 == set }
		inside && $1 == "name:" && /^        name:/ {
			name = toupper($2)
			gsub(/-/, "_", name)
			print "NPULINK_A_" toupper(set) "_" name
		}
		/^operations:/ { exit }
	' "$tree/uapi/specs/npulink.yaml"
}

for set in dev link conn status call cause comm rank op wait file buf failure stat event flight; do
	names $set >"$scratch/spec"
	check "spec names attributes of $set" test -s "$scratch/spec"
	sed -n "s/^\t\(NPULINK_A_${set^^}_[A-Z0-9_]*\),$/\1/p" "$tree/uapi/linux/npulink_genl.h" |
		grep -v _UNSPEC >"$scratch/header"
	check "header and spec agree about $set" cmp "$scratch/spec" "$scratch/header"
done

# Commands, numbered as in the header's enum.
sed -n 's/^\tNPULINK_GENL_CMD_\([A-Z_]*\),$/\1/p' "$tree/uapi/linux/npulink_genl.h" |
	grep -v UNSPEC | awk '{ print $1, NR }' >"$scratch/header"
sed '1,/^operations:/d' "$tree/uapi/specs/npulink.yaml" |
	awk '/^      name:/ { name = toupper($2); gsub(/-/, "_", name) }
		/^      value:/ { print name, $2 }' | sort -k 2n >"$scratch/spec"
check "spec has commands" test -s "$scratch/spec"
check "header and spec agree about commands" cmp "$scratch/spec" "$scratch/header"

finish
