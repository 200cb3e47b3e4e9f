#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bash completion for npulink offers all that the program knows. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=${NPULINK_TREE:-.}
. "$tree/tools/install/npulink"

# offers WORDS -- WORD...: what may come after WORD..., the last of which may have begun
offers()
{
	local wanted=$1 word

	shift 2
	COMP_WORDS=(npulink "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_npulink 2>"$scratch/err"
	printf '%s\n' "${COMPREPLY[@]}" >"$scratch/out"
	for word in $wanted; do
		grep -qx -e "$word" "$scratch/out" || echo "# not offered: $word" >>"$scratch/err"
	done
	result $(($(wc -l <"$scratch/err") != 0 || ${#COMPREPLY[@]} == 0)) "npulink $*"
}

# Words of the first column of a list in the help.
column()
{
	awk -v list="$1:" '$0 == list { on = 1; next } /^$/ { on = 0 } on { print $1 }'
}

objects=$(npulink help | column Objects)
check "there are objects" test "$(echo "$objects" | wc -w)" -gt 15
offers "$objects help --json" -- ''
for object in $objects; do
	commands=$(npulink "$object" help | column Commands)
	if [ -z "$commands" ]; then
		offers "$(npulink "$object" --help | grep -oE '^ +-., --[a-z_-]+' | grep -o -e '--.*') --help" \
			-- "$object" --
		continue
	fi
	offers "$commands help" -- "$object" ''
	for command in $commands; do
		offers "$(npulink "$object" "$command" --help | grep -oE '^ +-., --[a-z_-]+' |
			grep -o -e '--.*') --help" -- "$object" "$command" --
	done
done
offers "dev doctor" -- d
offers "--far-alpha --far-beta --trace" -- plan simulate --
offers "far measure sweep --rounds" -- tune ''
offers "allreduce alltoallv broadcast" -- plan show ''
offers "sendrecv barrier allreduce gather" -- bench ''
for collective in $(npulink plan list | awk 'NR > 1 && !/^ / && $1 != "p2p" { print $1 }' | sort -u); do
	offers "$(npulink plan list "$collective" | awk 'NR > 1 && !/^ / { print $2 }')" \
		-- plan show "$collective" -a ''
done
offers "ring" -- bench allreduce --algorithm r
offers "bfloat16" -- bench allreduce -d bf
offers "avg" -- bench allreduce --op a

finish
