#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What make install puts where, below a DESTDIR: a manual page for each function, and modules
# for a kernel that it names. Needs no module.

. "${NPULINK_TREE:-.}/selftests/tool_lib.sh"
: "${scratch:?}"
tree=${NPULINK_TREE:-.}
version=$(sed -n "s/^VERSION := //p" "$tree/Makefile")
export DESTDIR=$scratch/root prefix=/usr bindir=/usr/bin libdir=/usr/lib includedir=/usr/include \
	mandir=/usr/share/man sysconfdir=/etc udevdir=/lib/udev moddir=/lib/modules

# install_for KERNEL: with modules that are as good as any
mkdir -p "$scratch/modules/kernel/core"
echo module >"$scratch/modules/kernel/core/npulink.ko"
install_for()
{
	rm -rf "$DESTDIR"
	"$tree/tools/install/install" "$version" "$1" "$scratch/modules" >"$scratch/log" 2>&1
}

check "install for another kernel" install_for 0.0.1-other
check "the module is where it belongs" test -e "$DESTDIR/lib/modules/0.0.1-other/updates/npulink.ko"
check "the last line says so" sh -c 'tail -n 1 "$1" | grep "for kernel 0.0.1-other; $(uname -r) is running"' - \
	"$scratch/log"

# Every function that the headers declare.
functions=$(sed -n 's/.*[ *]\(coll_[a-z_]*\)(.*/\1/p' "$tree"/lib/include/*.h | sort -u)
check "there are functions" test "$(echo "$functions" | wc -w)" -gt 20
missing=
for function in $functions; do
	[ -s "$DESTDIR/usr/share/man/man3/$function.3" ] || missing+=" $function"
done
echo "$missing" >"$scratch/missing"
check "a page for each function" sh -c 'cat "$1"; ! grep -q coll_ "$1"' - "$scratch/missing"
check "which leads to one that is there" sh -c 'cd "$1" && grep -l "^\.so " man3/* | while read -r page; do
	test -s "$(sed -n "s/^\.so //p" "$page")" || exit 1; done' - "$DESTDIR/usr/share/man"

check "install for this kernel" install_for "$(uname -r)"
check "the last line says that, too" sh -c 'tail -n 1 "$1" | grep "which is running"' - "$scratch/log"

# make may have been told of other directories than make install is.
for at in /usr /opt/npulink; do
	check "pkg-config's file for $at" make -s -C "$tree" B="$scratch/build" prefix=$at libdir=$at/lib \
		includedir=$at/include "$scratch/build/lib/libcoll.pc"
	check "which says so" grep -qx "prefix=$at" "$scratch/build/lib/libcoll.pc"
done

finish
