# SPDX-License-Identifier: GPL-2.0
#
# For tests in shell that need nothing else: one TAP line for each result.
# Not executable, so that it is no test itself.

# shellcheck disable=SC2034 # for those who include it
n=0 status=0

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
