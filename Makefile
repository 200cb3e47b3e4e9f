# SPDX-License-Identifier: GPL-2.0
#
# "make help" says what can be made. Everything that is built goes below build/.

VERSION := 0.2.0

prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
sysconfdir ?= /etc
udevdir ?= /lib/udev
moddir ?= /lib/modules

# The running kernel's headers, else the newest that are installed.
newest = $(lastword $(shell printf '%s\n' $(wildcard $(1)) | sort -V))
KDIR ?= $(firstword $(wildcard /lib/modules/$(shell uname -r)/build) \
	$(call newest,/lib/modules/*/build) $(call newest,/usr/src/linux-headers-*-amd64))
KREL := $(shell sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' '$(KDIR)/include/generated/utsrelease.h' 2>/dev/null)

CFLAGS ?= -O2 -g
OBJCOPY ?= objcopy
override CFLAGS += -std=gnu11 -Wall -Wextra -Wno-unused-parameter
CPPFLAGS += -D_GNU_SOURCE -DNPULINK_VERSION='"$(VERSION)"' -Iuapi -Ikernel/include -Ilib/include -Ilib -I.
SAN := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

B := build
Q := $(if $(V),,@)
say = $(if $(V),:,printf '  %-7s %s\n' $(1) $(2:$(B)/%=%))

all: modules lib tools selftests

help:
	@sed -n 's/^##[ \t]//p' Makefile

## Build:	make [all]		everything
##		make modules		npulink.ko, npulink_soft.ko, ... for KDIR=
##		make modules-6.12	the same for the 6.12 kernel of bookworm-backports
##		make lib tools selftests
##		make setup		install the Debian packages that are missing
##		make clean
## Use:		make demo		collectives on 8 software NPUs in a virtual machine, or on
##					NPU cards [CARDS=8]
##		make install		prefix=/usr/local DESTDIR= KDIR=
##		make dkms		put a DKMS source tree into $(DESTDIR)/usr/src
## Test:	make test		natively and in a virtual machine [TESTS="name ..."]
##					[KERNEL=release|rt]
##		make test-debug		the same under KASAN, lockdep, kmemleak, ..., or
##					under KCSAN [CHECKER=debug|kcsan]
##		make soak		what is counted in hundreds or hours [DEBUG=1]
##		make mutants		breaks one promise after the other, which the tests
##					have to notice [MUTANTS="name ..."]
##		make specs		uapi/linux/npulink_genl.h from uapi/specs/npulink.yaml
##		make check		sparse, checkpatch, cppcheck, manual pages, ...
##		make fuzz		what reads text, plans and calls gets random ones
##					[FUZZ_SECONDS=30] [FUZZ_TARGETS="plan_text ..."]
##		make bench		against Open MPI, MPICH and Gloo [QUICK=1] [SMALL=1]
##					[LARGE=1] [RANKS="2 4"] [ROUNDS=3]
##		make bench-net		between two machines, against perftest and Open MPI [QUICK=1]
## With HERE=1, demo, bench and test load the modules into the running kernel.

# ---- modules

# Kbuild writes beside its sources, so it gets a tree of links to them, one
# for each kernel. Links to files that have gone would still match wildcards,
# and Kbuild does not expect to be run twice at a time in one tree.
MODULES := $(B)/modules-$(KREL)

modules:
	@$(if $(KREL),,echo "There are no kernel headers in '$(KDIR)'; run: make setup" >&2; exit 1)
	@[ -e $(MODULES)/Module.symvers ] || \
		echo "  KBUILD  modules for kernel $(KREL): that takes a minute or two"
	$(Q)mkdir -p $(MODULES)/selftests
	$(Q)cp -rsf $(CURDIR)/Kbuild $(CURDIR)/kernel $(CURDIR)/uapi $(MODULES)
	$(Q)cp -rsf $(CURDIR)/selftests/canary $(MODULES)/selftests
	$(Q)find $(MODULES) -xtype l -delete
	$(Q)+flock $(MODULES) $(MAKE) $(if $(V),,--no-print-directory -s) -C $(KDIR) M=$(CURDIR)/$(MODULES) \
		CONFIG_DEBUG_INFO_BTF_MODULES= $(KFLAGS) modules

modules-6.12:
	$(Q)+kdir=$$(tools/vm/kernel headers-6.12) && $(MAKE) --no-print-directory modules KDIR=$$kdir

# Needs python3-yaml, which make check installs. The result is committed.
specs:
	$(Q)mkdir -p $(B)
	$(Q)tools/genl_header uapi/specs/npulink.yaml >$(B)/npulink_genl.h
	$(Q)mv $(B)/npulink_genl.h uapi/linux/npulink_genl.h

# ---- library

LIB_SOURCES := $(wildcard lib/*/*.c) $(wildcard kernel/core/plan/verify.c)
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(B)/obj/%.o)
LIB_SAN := $(LIB_SOURCES:%.c=$(B)/san/%.o)
LIB_MAP := $(wildcard lib/libcoll.map)
SONAME := libcoll.so.$(firstword $(subst ., ,$(VERSION)))

lib: $(B)/lib/libcoll.so $(B)/lib/libcoll.a $(B)/lib/libcoll.pc

$(B)/obj/%.o: %.c
	@$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(if $(filter lib/% kernel/%,$<),-fPIC -fvisibility=hidden) -c -o $@ $<

$(B)/san/%.o: %.c
	@$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(SAN) -MMD -MP -c -o $@ $<

# Where Debian has pmix.h; libpmix itself is not linked, see the file.
$(B)/obj/lib/bootstrap/pmix.o $(B)/san/lib/bootstrap/pmix.o: \
	CPPFLAGS += $(addprefix -isystem ,$(wildcard /usr/lib/*/pmix2/include))

# Loops over the elements of small collectives: with -O2, gcc 12 does not make vectors of them.
$(B)/obj/lib/run/board_reduce.o: override CFLAGS += -ftree-loop-vectorize -fvect-cost-model=dynamic

$(B)/lib/libcoll.so.$(VERSION): $(LIB_OBJECTS) $(LIB_MAP)
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-z,defs \
		$(LIB_MAP:%=-Wl,--version-script=%) -o $@ $(LIB_OBJECTS) -pthread -lm

$(B)/lib/libcoll.so: $(B)/lib/libcoll.so.$(VERSION)
	$(Q)ln -sf libcoll.so.$(VERSION) $(B)/lib/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# One object, in which names that coll.h does not declare are local, as in the shared library:
# a program may have functions of the same names.
$(B)/obj/libcoll.o: $(LIB_OBJECTS)
	@$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) -r -nostdlib -o $@ $^ && $(OBJCOPY) --localize-hidden $@

# Made anew each time: an object whose source has gone must not stay in it, and those of two folders
# may have the same name.
$(B)/lib/libcoll.a: $(B)/obj/libcoll.o
# With all names, for the tool and for tests.
$(B)/lib/libcoll-internal.a: $(LIB_OBJECTS)
$(B)/lib/libcoll.a $(B)/lib/libcoll-internal.a:
	@$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

$(B)/lib/libcoll-san.a: $(LIB_SAN)
	@$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

# Made anew each time: make install may name other directories than make did.
.PHONY: $(B)/lib/libcoll.pc
$(B)/lib/libcoll.pc: lib/libcoll.pc.in
	$(Q)mkdir -p $(@D)
	$(Q)sed -e 's,@prefix@,$(prefix),' -e 's,@libdir@,$(libdir),' \
		-e 's,@includedir@,$(includedir),' -e 's,@version@,$(VERSION),' $< >$@

# ---- tool

TOOL_SOURCES := $(wildcard tools/*.c $(patsubst %,tools/%/*.c,bench cli doctor hang plan state trace tune))
TOOL_OBJECTS := $(TOOL_SOURCES:%.c=$(B)/obj/%.o)
TOOL_LIBS := -Wl,--as-needed -lnl-genl-3 -lnl-3 -lkmod -ljson-c -libverbs -lm -pthread

$(B)/obj/tools/%.o $(B)/san/tools/%.o: CPPFLAGS += -Itools -isystem /usr/include/libnl3

# Programs beside the tool, one for each file: the demo's, and measurements of
# what is inside the library.
PROGRAMS := $(patsubst tools/%.c,$(B)/tools/%,$(wildcard tools/demo/*.c))
BENCHES := $(patsubst tools/%.c,$(B)/tools/%,$(wildcard tools/benchmarks/*.c))

tools: $(if $(TOOL_OBJECTS),$(B)/tools/npulink) $(PROGRAMS) $(BENCHES) $(B)/bench/measure-npulink \
	$(B)/bench/steps $(B)/tools/vm-card

# The card reduces as npulink_soft does: its loops, and as there no contraction.
CARD_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tools/vm/card/*.c))

$(B)/obj/tools/vm/card/%.o $(B)/san/tools/vm/card/%.o: CPPFLAGS += -Iselftests
$(B)/obj/tools/vm/card/%.o: override CFLAGS += -ffp-contract=off

$(B)/tools/vm-card: $(CARD_OBJECTS)
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^

$(PROGRAMS): $(B)/tools/%: $(B)/obj/tools/%.o $(B)/lib/libcoll.so
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< -L$(B)/lib -lcoll \
		-Wl,-rpath,'$$ORIGIN/../../lib' -lm -pthread

$(BENCHES): $(B)/tools/%: $(B)/obj/tools/%.o $(B)/lib/libcoll-internal.a
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm -pthread

# It shows plans, so it needs the library's inside, which the shared one hides.
$(B)/tools/npulink: $(TOOL_OBJECTS) $(B)/lib/libcoll-internal.a
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(TOOL_OBJECTS) $(B)/lib/libcoll-internal.a $(TOOL_LIBS)

# Side by side with MPI and Gloo. A peer that is not installed is not measured.
PEERS := $(B)/bench/measure-npulink $(B)/bench/limits $(B)/bench/steps $(B)/bench/reduce \
	$(foreach mpi,openmpi mpich,$(if $(wildcard /usr/bin/mpicc.$(mpi)),$(B)/bench/measure-$(mpi))) \
	$(if $(wildcard /usr/include/gloo/config.h),$(B)/bench/measure-gloo)

bench-programs: $(PEERS)

$(B)/bench/measure.o $(B)/bench/npulink.o: $(B)/bench/%.o: tools/benchmarks/peers/%.c tools/benchmarks/peers/measure.h
	@$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(B)/bench/measure-npulink: $(B)/bench/measure.o $(B)/bench/npulink.o $(B)/lib/libcoll.a
	@$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm -pthread

$(B)/bench/measure-openmpi $(B)/bench/measure-mpich: $(B)/bench/measure-%: tools/benchmarks/peers/mpi.c $(B)/bench/measure.o
	@$(call say,LD,$@)
	$(Q)mpicc.$* $(CFLAGS) -o $@ $^

$(B)/bench/measure-gloo: tools/benchmarks/peers/gloo.cc $(B)/bench/measure.o
	@$(call say,LD,$@)
	$(Q)$(CXX) -std=c++14 -O2 -g -o $@ $^ -lgloo -pthread

# As the module's makefile has it: no contraction, and no compiler's vectors.
openmpi := $(wildcard /usr/bin/mpicc.openmpi)

$(B)/bench/reduce: tools/benchmarks/peers/reduce.c selftests/soft_loops.h $(wildcard kernel/soft/*.[ch])
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(or $(openmpi),$(CC)) $(if $(openmpi),-DHAVE_MPI) $(CPPFLAGS) -Iselftests -O2 -std=gnu11 \
		-ffp-contract=off -o $@ $<

# Between machines.
bench-net-programs: $(B)/bench/net-exchange $(if $(openmpi),$(B)/bench/net-mpi)

$(B)/bench/net-exchange: tools/benchmarks/net/exchange.c
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -lrdmacm -libverbs

$(B)/bench/net-mpi: tools/benchmarks/net/mpi.c
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(openmpi) $(CFLAGS) -o $@ $<

$(B)/bench/limits: tools/benchmarks/peers/limits.c
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -pthread

$(B)/bench/steps: tools/benchmarks/peers/steps.c selftests/raw.h
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Iselftests $(CFLAGS) $(LDFLAGS) -o $@ $< -pthread

# ---- tests

include selftests/Makefile
include selftests/fuzz/Makefile

# ---- installation

install: modules lib tools
	tools/install/install '$(VERSION)' '$(KREL)' '$(MODULES)'

export DESTDIR prefix bindir libdir includedir mandir sysconfdir udevdir moddir

DKMS = $(DESTDIR)/usr/src/npulink-$(VERSION)

# Every folder in kernel/ is one module; core is npulink, X is npulink_X. null and edu are not for users.
dkms:
	install -d $(DKMS)
	cp -r Kbuild kernel uapi LICENSES $(DKMS)
	rm -r $(DKMS)/kernel/null $(DKMS)/kernel/edu
	sed 's/@version@/$(VERSION)/' tools/install/dkms.conf >$(DKMS)/dkms.conf
	n=0; for dir in $(filter-out null edu,$(patsubst kernel/%/Kbuild,%,$(wildcard kernel/*/Kbuild))); do \
		case $$dir in core) name=npulink ;; *) name=npulink_$$dir ;; esac; \
		printf '\nBUILT_MODULE_NAME[%d]="%s"\nBUILT_MODULE_LOCATION[%d]="kernel/%s"\n' \
			$$n $$name $$n $$dir; \
		printf 'DEST_MODULE_LOCATION[%d]="/updates/dkms"\n' $$n; \
		n=$$((n + 1)); \
	done >>$(DKMS)/dkms.conf

setup:
	@tools/install/setup

# ---- demo, test, check: each from a bare machine

jobs := -s --no-print-directory -j$(shell nproc)

# Modules for the kernel that the virtual machine boots, which need not be the
# one that KDIR names.
vm-modules-%:
	$(Q)+dir=$$(tools/vm/kernel $*) && \
		$(MAKE) --no-print-directory modules KDIR=$$dir/build NPULINK_TESTS=1

CHECKER ?= debug
KERNEL ?= release
for-vm := $(if $(HERE),modules,vm-modules-$(if $(DEBUG),debug,$(KERNEL)))

demo: setup
	@echo "demo: builds what is not there yet$(if $(HERE),, and starts a virtual machine)"
	$(Q)+$(MAKE) $(jobs) lib tools $(for-vm)
	@test -x tools/demo.sh || { echo "tools/demo.sh is missing" >&2; exit 1; }
	@$(if $(HERE),tools/demo.sh,tools/vm/vm run --name demo --timeout $(if $(CARDS),900,600) \
		$(if $(CARDS),--mem 2560 --cards $(CARDS) --env DEMO_CARDS=$(CARDS)) -- tools/demo.sh)

test: setup
	$(Q)+$(MAKE) $(jobs) lib tools selftests selftests-san $(for-vm)
	@selftests/run all $(if $(HERE),--here,--kernel $(KERNEL)) $(TESTS)

test-debug: setup
	$(Q)+$(MAKE) $(jobs) lib tools selftests vm-modules-$(CHECKER)
	@selftests/run all --kernel $(CHECKER) $(TESTS)

soak: setup
	@tools/install/setup soak
	$(Q)+$(MAKE) $(jobs) lib tools selftests selftests-san-soak $(for-vm)
	@selftests/run all --soak $(if $(HERE),--here) $(if $(DEBUG),--kernel debug) $(TESTS)

mutants: setup
	@selftests/mutants/run $(MUTANTS)

check: setup
	@tools/install/setup check
	@tools/check

bench:
	@tools/install/setup bench
	$(Q)+$(MAKE) $(jobs) lib $(B)/tools/npulink $(if $(HERE),modules,vm-modules-release)
	$(Q)+$(MAKE) $(jobs) bench-programs
	@QUICK='$(QUICK)' HERE='$(HERE)' tools/benchmarks/peers/bench

# Which files a call enters, from libcoll down to the backend.
visited:
	@tools/install/setup test
	$(Q)+$(MAKE) $(jobs) vm-modules-release
	@tools/visited/run

bench-net:
	@tools/install/setup bench-net
	$(Q)+$(MAKE) $(jobs) lib tools vm-modules-release
	$(Q)+$(MAKE) $(jobs) bench-net-programs
	@QUICK='$(QUICK)' tools/benchmarks/net/bench

clean:
	rm -rf $(B)

.PHONY: all help visited modules modules-6.12 specs lib tools selftests selftests-san selftests-san-soak \
	install dkms setup demo test test-debug soak mutants check bench bench-programs bench-net \
	bench-net-programs clean

-include $(shell find $(B)/obj $(B)/san $(B)/tsan -name '*.d' 2>/dev/null)
