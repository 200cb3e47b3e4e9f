#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the examples of the manual pages of npulink and of the README.md that have any. In a manual page
# they stand between .\" run and .EE, in README.md between <!-- run --> and ```.
# "run: 0 1" allows these exit statuses for the last command; "run in make soak" is for what takes
# long and is like what another test does. Of a transcript, between <!-- session --> and ```, the
# lines that begin with "# " are run, one after the other. The program of README.md is compiled by
# make.
#
# npulink-test: cpus=1 timeout=400 nodebug

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
tree=$(cd "${NPULINK_TREE:-.}" && pwd)
PATH=$tree/build/tools:$PATH
cd "${scratch:?}" || exit 1

# Writes one file per example: name.number.status, with commas for blanks.
extract()
{
	awk -v name="$2" '
		/^<!-- session/ {
			file = name "." ++n ".0"
			session = 1
			getline
			next
		}
		session && /^```/ { session = 0 }
		session {
			if (sub(/^# /, ""))
				print >file
			next
		}
		/^\.\\" run in make soak/ && ENVIRON["NPULINK_SOAK"] == "" { next }
		/^(\.\\"|<!--) run/ {
			status = "0"
			if (match($0, /: [0-9 ]+/))
				status = substr($0, RSTART + 2, RLENGTH - 2)
			sub(/ *$/, "", status)
			gsub(/ /, ",", status)
			file = name "." ++n "." status
			getline		# .EX or ```
			next
		}
		/^(\.EE|```)/ { file = "" }
		file { gsub(/\\-/, "-"); print >file }
	' "$1"
}

for page in "$tree"/tools/man/*.8; do
	extract "$page" "$(basename "$page")"
done
extract "$tree/README.md" README
extract "$tree/tools/README.md" tools-README
# How README.md says that several ranks of its program are started.
{
	echo "export LD_LIBRARY_PATH=$tree/build/lib"
	awk '/^```sh$/ { text = ""; on = 1; next }
	     /^```/ { if (on && text ~ /WORLD_SIZE/) printf "%s", text; on = 0 }
	     on { text = text $0 "\n" }' "$tree/README.md"
} >app.sh
got=1
cp "${NPULINK_TESTS:-$tree/build/selftests}/readme/app" .
bash app.sh >out 2>&1 </dev/null
[ "$(grep -c '^4 ranks$' out)" = 4 ] && got=0
[ $got = 0 ] || sed 's/^/# > /' out
result $got "README.md, its program"

for example in *.*.*; do
	got=0
	bash -e "$example" >out 2>err </dev/null || got=$?
	allowed=,${example##*.},
	case $allowed in
	*,$got,*)	result 0 "${example%.*}" ;;
	*)		echo "# status $got"
			sed 's/^/# > /' "$example"
			result 1 "${example%.*}" ;;
	esac
done

finish
