# SPDX-License-Identifier: GPL-2.0
#
# For tests of the npulink command: one TAP line for each thing expected.
# Not executable, so that it is no test itself.

export PATH=${NPULINK_TREE:-.}/build/tools:$PATH
count=0 failed=0
command -v jq >/dev/null || {
	echo "1..0 # SKIP jq is not installed"
	exit 4
}
# The same in a seventh of the time, which a virtual machine without KVM needs to start it.
if command -v gojq >/dev/null; then
	jq() { HOME=$scratch gojq "$@"; }
fi
scratch=$(mktemp -d)
schemas=${NPULINK_TREE:-.}/selftests/schema
trap 'rm -rf "$scratch"' EXIT

result()
{
	count=$((count + 1))
	if [ "$1" = 0 ]; then
		echo "ok $count $2"
	else
		echo "not ok $count $2"
		failed=$((failed + 1))
		sed 's/^/# /' "$scratch/out" "$scratch/err" 2>/dev/null | head -n 20
	fi
}

# skip NAME WHY
skip()
{
	count=$((count + 1))
	echo "ok $count $1 # SKIP $2"
}

# expect NAME STATUS COMMAND...
expect()
{
	local name=$1 status=$2 got=0

	shift 2
	"$@" >"$scratch/out" 2>"$scratch/err" || got=$?
	[ "$got" = "$status" ] || echo "# $*: status $got instead of $status"
	result $((got != status)) "$name"
}

check()
{
	local name=$1

	shift
	expect "$name" 0 "$@"
}

# It fails with a single line on standard error.
expect_one_line()
{
	local name=$1

	shift
	"$@" >"$scratch/out" 2>"$scratch/err" || :
	result $(($(wc -l <"$scratch/err") != 1)) "$name"
}

# refused NAME STATUS COMMAND...: with that status, and a single line that is not empty.
refused()
{
	local name=$1 status=$2 got=0

	shift 2
	"$@" >"$scratch/out" 2>"$scratch/err" || got=$?
	[ "$got" = "$status" ] || echo "# $*: status $got instead of $status"
	result $((got != status || $(wc -l <"$scratch/err") != 1 || $(wc -c <"$scratch/err") < 10)) "$name"
}

# Bad input.
refuse()
{
	local name=$1

	shift
	refused "$name" 1 "$@"
}

# A command line that makes no sense.
nonsense()
{
	local name=$1

	shift
	refused "$name" 2 "$@"
}

# json NAME JQ-FILTER COMMAND...: the command's output is JSON for which the filter is true.
json()
{
	local name=$1 filter=$2 got=0

	shift 2
	"$@" >"$scratch/out" 2>"$scratch/err" || got=$?
	[ "$got" = 0 ] || echo "# $*: status $got"
	[ -s "$scratch/out" ] && jq -e "$filter" "$scratch/out" >/dev/null 2>>"$scratch/err" || got=1
	result "$got" "$name"
}

# json_too NAME FILTER: also of what the last json was about
json_too()
{
	local got=0

	jq -e "$2" "$scratch/out" >/dev/null 2>"$scratch/err" || got=1
	result "$got" "$1"
}

# valid NAME SCHEMA COMMAND...: what it prints is JSON, and as the schema says.
valid()
{
	local name=$1 schema=$2 got=0

	shift 2
	"$@" >"$scratch/valid" 2>"$scratch/err" || [ $? = 3 ] || got=1
	jq -r --slurpfile schema "$schemas/$schema.json" -f "$schemas/validate.jq" \
		"$scratch/valid" >"$scratch/out" 2>>"$scratch/err" || got=1
	if [ ! -s "$scratch/valid" ]; then
		echo "$*: nothing" >>"$scratch/err"
		got=1
	fi
	[ ! -s "$scratch/out" ] || got=1
	result "$got" "$name"
}

# start N WHAT ODD: the ranks of a job (helpers/job.c), whose processes are $pids
start()
{
	local n=$1 r

	shift
	pids=()
	port=$((${port-29700} + 1))
	for ((r = 0; r < n; r++)); do
		RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
			LD_LIBRARY_PATH=${NPULINK_TREE:-.}/build/lib \
			"${NPULINK_TESTS:-${NPULINK_TREE:-.}/build/selftests}/helpers/job" "$@" \
			>/dev/null 2>&1 &
		pids[r]=$!
	done
}

stop()
{
	kill -KILL "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
}

# until_json NAME FILTER COMMAND...: sooner or later the command's output is JSON for which the
# filter is true. Half a minute is long on any host.
until_json()
{
	local name=$1 filter=$2 i got=1

	shift 2
	for ((i = 0; i < 300 && got != 0; i++)); do
		"$@" >"$scratch/out" 2>"$scratch/err"
		jq -e "$filter" "$scratch/out" >/dev/null 2>>"$scratch/err" && got=0
		[ $got = 0 ] || sleep 0.1
	done
	result $got "$name"
}

finish()
{
	echo "1..$count"
	exit $((failed != 0))
}
