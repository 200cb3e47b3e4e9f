# SPDX-License-Identifier: GPL-2.0
#
# For tests in shell that need nothing else: one TAP line for each result.
# n and status are 0 before the first. Not executable, so that it is no test itself.

# result STATUS NAME
result()
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n $2"
	else
		echo "not ok $n $2"
		status=1
	fi
}

# chosen NAME: whether selftests/run --case names it, or nothing.
chosen()
{
	local word
	local -a words

	[ -n "${NPULINK_CASES-}" ] || return 0
	IFS='|' read -r -a words <<<"$NPULINK_CASES"
	for word in "${words[@]}"; do
		[[ $1 != *"$word"* ]] || return 0
	done
	return 1
}
