# blobext: large binary values of any size, first-class in PostgreSQL
# The directory of this file: "." unless make runs elsewhere ("make -f .../Makefile", VPATH builds).
TREE := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))

# The extension blobfs is SQL only; the program of this name is made by "make mount", see below.
EXTENSION = blobext mount/sql/blobfs
MODULE_big = blobext
DATA = sql/blobext--0.1.0.sql sql/blobext--0.1.0--0.2.0.sql sql/blobext--0.2.0.sql \
	sql/blobext--0.2.0--0.3.0.sql sql/blobext--0.3.0--0.4.0.sql \
	mount/sql/blobfs--0.3.0.sql mount/sql/blobfs--0.3.0--0.4.0.sql
# CREATE EXTENSION blobfs makes the present version at once, see below.
DATA_built = $(BLOBFS_SCRIPT)
BLOBFS_SCRIPT = mount/sql/blobfs--0.4.0.sql
OBJS := $(patsubst $(TREE)/%.c,%.o,\
	$(wildcard $(TREE)/src/*.c $(TREE)/src/*/*.c $(TREE)/src/*/*/*.c))
SHLIB_LINK = -luring -lcrypto -pthread $(libpq)

# Methods of compression, where their libraries are; "make LZ4=no ZSTD=no" builds without them.
NUMBER_SIGN := \#
find_library = $(shell pkg-config --exists $(1) 2> /dev/null || \
	echo '$(NUMBER_SIGN)include <$(2)>' | cc -E -o /dev/null - 2> /dev/null && echo yes || echo no)
LZ4 ?= $(call find_library,liblz4,lz4.h)
ZSTD ?= $(call find_library,libzstd,zstd.h)
# Carries the extent store to a cluster that pg_upgrade has made.
SCRIPTS = tools/blobext_upgrade
# The C interface for other extensions: #include "extension/blobext/blobext.h"
HEADERS_blobext = src/api/blobext.h

# The compiler writes beside x.o the list of headers that it has read for it, x.d.
PG_CPPFLAGS = -I$(srcdir)/src -I$(libpq_srcdir) $(BLOBEXT_CPPFLAGS) -MMD -MP
# "make RMGR_ID=…": another id of the WAL resource manager, see src/wal/README.md.
ifdef RMGR_ID
PG_CPPFLAGS += -DBLOB_RMGR_ID=$(RMGR_ID)
endif
ifeq ($(LZ4),yes)
PG_CPPFLAGS += -DBLOB_WITH_LZ4
SHLIB_LINK += -llz4
endif
ifeq ($(ZSTD),yes)
PG_CPPFLAGS += -DBLOB_WITH_ZSTD
SHLIB_LINK += -lzstd
endif
# "make WERROR=" for compilers that warn of more.
WERROR ?= -Werror
PG_CFLAGS = -Wall -Wextra $(WERROR) -Wno-unused-parameter -Wno-missing-field-initializers

# See "Tests" below.
REGRESS = $(patsubst $(TREE)/expected/%.out,%,$(wildcard $(TREE)/expected/*.out))

# Those of files that are gone, too.
EXTRA_CLEAN = $(wildcard $(addsuffix .[od],src/* src/*/* src/*/*/* test/unit/*)) $(UNIT_LIBRARY) \
	$(LOSSY_DISK) $(VERIFY) src/.built_for src/.built_of

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error "$(PG_CONFIG)" names no PGXS: install postgresql-server-dev-$(or $(PG_MAJOR),15), \
	or set PG_CONFIG)
endif
# Bitcode for JIT inlining is of no use to functions that wait for devices.
override with_llvm = no
include $(PGXS)

# ---------------------------------------------------------------------------
# Changes after which a file is built again.
# ---------------------------------------------------------------------------

# A library that tests the C modules, see "Tests"; its objects are built as the extension's are.
UNIT_LIBRARY = test/unit/blobext_unit$(DLSUFFIX)
# A program, see below.
VERIFY = tools/verify/blobext_verify
UNIT_OBJS := $(patsubst $(TREE)/%.c,%.o,$(wildcard $(TREE)/test/unit/unit_*.c))
ALL_OBJS := $(OBJS) $(UNIT_OBJS)
DEPENDENCIES = $(ALL_OBJS:.o=.d)
-include $(wildcard $(DEPENDENCIES))

# All objects, when the server or the flags of the compiler are others than at the last time; the
# library, when a source file is gone.  The file has changed only if what it says has.
BUILT_FOR = src/.built_for
export BLOBEXT_BUILT_FOR := $(VERSION) $(CC) $(CPPFLAGS) $(CFLAGS)
export BLOBEXT_BUILT_OF := $(ALL_OBJS)
$(ALL_OBJS): $(BUILT_FOR)
$(shlib) $(UNIT_LIBRARY): src/.built_of
src/.built_for: FORCE
	@printf '%s\n' "$$BLOBEXT_BUILT_FOR" | cmp -s - $@ || printf '%s\n' "$$BLOBEXT_BUILT_FOR" > $@
src/.built_of: FORCE
	@printf '%s\n' "$$BLOBEXT_BUILT_OF" | cmp -s - $@ || printf '%s\n' "$$BLOBEXT_BUILT_OF" > $@

# A VPATH build has no directories yet.
ifneq ($(TREE),.)
$(shell mkdir -p $(sort src/ test/ $(dir $(ALL_OBJS) $(BLOBFS_SCRIPT) $(VERIFY))))
endif

.PHONY: FORCE
FORCE:

# ---------------------------------------------------------------------------
# Tests.  Each script starts servers of its own under a temporary directory, as user postgres if
# called by root.  "make test" tests the library of this tree, "make installcheck" the installed
# one; see test/README.md.
# ---------------------------------------------------------------------------

# "make installcheck" runs the tests of REGRESS by test/run regress, not in a server that is there.
export PG_CONFIG
installcheck: export BLOBEXT_TEST_INSTALLED = 1
pg_regress_installcheck = $(TREE)/test/run regress
installcheck: check-tests

.PHONY: test check-tests unit-module lossy-disk
test:
	$(TREE)/test/run all

check-tests:
	@test -n "$(REGRESS)" || { echo "no tests found" >&2; exit 1; }

# SQL functions that test the C modules; test/run unit loads them.  The library has its own copy of
# the modules, because the extension's library need not export them; and uses it (-Bsymbolic),
# because the extension's library may be loaded first and export them.
UNIT_MODULES = $(filter $(OBJS), src/core/tier.o src/core/descriptor.o src/core/frame.o \
	src/core/codec.o src/core/digest.o src/extents/hasher.o src/core/settings.o src/core/catalog.o \
	src/store/free_runs.o src/store/pending.o src/store/hole_pace.o src/store/map.o \
	src/store/map_meta.o src/store/map_holes.o src/store/map_sums.o src/store/map_get_sums.o \
	src/store/page_sums.o src/blob/compare.o src/blob/compare_content.o \
	src/blob/frames.o src/blob/framer.o src/blob/mapping.o src/containers/sound.o \
	src/containers/walk.o src/sql/operators/sample.o src/wal/insert.o src/core/attempt.o \
	src/gc/methods.o src/gc/changed.o)
unit-module: $(UNIT_LIBRARY)
$(UNIT_LIBRARY): $(UNIT_OBJS) $(UNIT_MODULES)
	$(CC) $(CFLAGS) $(CFLAGS_SL) -shared -Wl,-Bsymbolic -o $@ $(UNIT_OBJS) $(UNIT_MODULES) \
		$(LDFLAGS) $(filter -lcrypto -pthread -llz4 -lzstd,$(SHLIB_LINK))

# A disk whose power test/run tap can cut; a program without libraries.
LOSSY_DISK = test/lossy_disk
lossy-disk: $(LOSSY_DISK)
$(LOSSY_DISK): $(TREE)/test/lossy_disk.c $(BUILT_FOR)
	$(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) -o $@ $<

# ---------------------------------------------------------------------------
# The program that verifies stores while the server is down.  PGXS knows no program beside a
# library.  Files that both share are compiled again, as PostgreSQL does for its programs.
# ---------------------------------------------------------------------------

VERIFY_SOURCES := $(wildcard $(TREE)/tools/verify/*.c) \
	$(TREE)/src/core/tier.c $(TREE)/src/store/page_sums.c
VERIFY_HEADERS := $(wildcard $(TREE)/tools/verify/*.h $(TREE)/src/core/*.h \
	$(TREE)/src/io/segment.h $(TREE)/src/store/*.h)

.PHONY: install-verify uninstall-verify
all: $(VERIFY)
$(VERIFY): $(VERIFY_SOURCES) $(VERIFY_HEADERS) $(BUILT_FOR) $(TREE)/blobext.control
	$(CC) -DFRONTEND -DBLOBEXT_VERSION='"$(DIST_VERSION)"' -I$(TREE)/tools/verify \
		$(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) -o $@ $(VERIFY_SOURCES) \
		-L$(pkglibdir) $(LDFLAGS) $(LDFLAGS_EX) -lpgcommon -lpgport

install: install-verify
install-verify: $(VERIFY) installdirs
	$(INSTALL_PROGRAM) $(VERIFY) '$(DESTDIR)$(bindir)/blobext_verify'

uninstall: uninstall-verify
uninstall-verify:
	rm -f '$(DESTDIR)$(bindir)/blobext_verify'

# ---------------------------------------------------------------------------
# The script of blobfs: that of 0.3.0, which is frozen, with the update.  One operator of it is not
# exact, so the owner of the schema of blobext could supply another one, which CREATE EXTENSION
# would run as its caller: oid = regnamespace.
# ---------------------------------------------------------------------------

BLOBFS_PARTS = $(TREE)/mount/sql/blobfs--0.3.0.sql $(TREE)/mount/sql/blobfs--0.3.0--0.4.0.sql
$(BLOBFS_SCRIPT): $(BLOBFS_PARTS) $(firstword $(MAKEFILE_LIST))
	sed "s/= \('blobfs'::pg_catalog\.regnamespace\))/= \1::pg_catalog.oid)/" $< > $@.part
	grep -q 'regnamespace::pg_catalog\.oid' $@.part
	sed '/^\\echo/d' $(word 2,$^) >> $@.part
	mv $@.part $@

# ---------------------------------------------------------------------------
# The file mount, see mount/README.md: nothing above needs its libraries.
# ---------------------------------------------------------------------------

.PHONY: mount install-mount
mount:
	$(MAKE) -C $(TREE)/mount PG_CONFIG="$(PG_CONFIG)"

install-mount: mount
	$(MAKE) -C $(TREE)/mount install PG_CONFIG="$(PG_CONFIG)" DESTDIR="$(DESTDIR)"

# ---------------------------------------------------------------------------
# The transform for PL/Python, see plpython/README.md: nothing above needs Python.
# ---------------------------------------------------------------------------

.PHONY: plpython install-plpython
plpython:
	$(MAKE) -C $(TREE)/plpython PG_CONFIG="$(PG_CONFIG)"

install-plpython: plpython
	$(MAKE) -C $(TREE)/plpython install PG_CONFIG="$(PG_CONFIG)" DESTDIR="$(DESTDIR)"

# ---------------------------------------------------------------------------
# The files of a release: what the last commit has, see docs/release.md.
# ---------------------------------------------------------------------------

DIST_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(TREE)/blobext.control)
DIST_NAME = $(MODULE_big)-$(DIST_VERSION)

.PHONY: dist
dist:
	@git -C $(TREE) rev-parse --verify -q HEAD > /dev/null || \
		{ echo "make dist: $(TREE) is no git checkout" >&2; exit 1; }
	@git -C $(TREE) diff --quiet HEAD -- || \
		{ echo "make dist: there are changes that are not committed" >&2; exit 1; }
	git -C $(TREE) archive --format=zip --prefix=$(DIST_NAME)/ HEAD > $(DIST_NAME).zip
	git -C $(TREE) archive --format=tar.gz --prefix=$(DIST_NAME)/ HEAD > $(DIST_NAME).tar.gz
