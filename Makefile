# blobext: large binary values of any size, first-class in PostgreSQL
EXTENSION = blobext
MODULE_big = blobext
DATA = sql/blobext--0.1.0.sql sql/blobext--0.1.0--0.2.0.sql sql/blobext--0.2.0.sql
OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c src/*/*.c))
SHLIB_LINK = -luring -lcrypto
# Carries the extent store to a cluster that pg_upgrade has made.
SCRIPTS = tools/blobext_upgrade
# The C interface for other extensions: #include "extension/blobext/blobext.h"
HEADERS_blobext = src/api/blobext.h

PG_CPPFLAGS = -I$(srcdir)/src $(BLOBEXT_CPPFLAGS)
# "make clean && make RMGR_ID=…": another id of the WAL resource manager, see src/wal/README.md.
ifdef RMGR_ID
PG_CPPFLAGS += -DBLOB_RMGR_ID=$(RMGR_ID)
endif
PG_CFLAGS = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers

# See "Tests" below.
REGRESS = $(patsubst $(srcdir)/expected/%.out,%,$(wildcard $(srcdir)/expected/*.out))

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
# Bitcode for JIT inlining is of no use to functions that wait for devices.
override with_llvm = no
include $(PGXS)

# PGXS does not track headers.
$(OBJS): $(wildcard src/*/*.h)

# ---------------------------------------------------------------------------
# Tests.  Each script starts servers of its own under a temporary directory, as user postgres if
# called by root; what they test is the installed extension.
# ---------------------------------------------------------------------------

# "make installcheck" runs the tests of REGRESS by test/run_regress, not in a server that is there.
export PG_CONFIG
pg_regress_installcheck = $(srcdir)/test/run_regress
installcheck: check-tests

.PHONY: test check-tests unit-module lossy-disk
test:
	$(srcdir)/test/run_all

check-tests:
	@test -n "$(REGRESS)" || { echo "no tests found" >&2; exit 1; }

# A second library, with SQL functions that test the C modules; test/run_unit builds and loads it.
# It has its own copy of the modules, because the extension's library need not export them; and
# uses it (-Bsymbolic), because the extension's library may be loaded first and export them.
UNIT_DIR ?= $(srcdir)/test/unit
UNIT_SOURCES = $(wildcard $(srcdir)/test/unit/unit_*.c) $(wildcard $(srcdir)/src/core/tier.c \
	$(srcdir)/src/core/descriptor.c $(srcdir)/src/core/frame.c $(srcdir)/src/core/digest.c \
	$(srcdir)/src/store/free_runs.c $(srcdir)/src/store/pending.c $(srcdir)/src/store/map.c \
	$(srcdir)/src/blob/compare.c $(srcdir)/src/blob/mapping.c $(srcdir)/src/core/catalog.c \
	$(srcdir)/src/blob/walk.c $(srcdir)/src/blob/sample.c $(srcdir)/src/wal/insert.c)
unit-module: $(UNIT_DIR)/blobext_unit$(DLSUFFIX)
$(UNIT_DIR)/blobext_unit$(DLSUFFIX): $(UNIT_SOURCES) $(wildcard $(srcdir)/src/*/*.h)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_SL) -shared -Wl,-Bsymbolic -o $@ \
		$(UNIT_SOURCES) $(LDFLAGS) -lcrypto

# A disk whose power test/run_tap can cut; a program without libraries.
LOSSY_DISK ?= $(srcdir)/test/lossy_disk
lossy-disk: $(LOSSY_DISK)
$(LOSSY_DISK): $(srcdir)/test/lossy_disk.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $<
