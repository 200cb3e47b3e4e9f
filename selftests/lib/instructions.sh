#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# instructions - a collective takes no more instructions than when they were last counted, in
# a machine that counts them: it boots one of its own.
#
# npulink-test: timeout=900

tree=${NPULINK_TREE:-.}
if [ ! -d "$tree/build/modules-$(basename "$(ls -d "$("$tree/tools/vm/kernel" release)"/lib/modules/*)")" ]; then
	echo "1..0 # SKIP no modules for the virtual machine's kernel"
	exit 4
fi
exec "$tree/tools/benchmarks/peers/gate"
