# blobext: large binary values of any size, first-class in PostgreSQL
EXTENSION = blobext
MODULE_big = blobext
DATA = sql/blobext--0.1.0.sql
OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c src/*/*.c))
SHLIB_LINK = -luring -lcrypto

PG_CPPFLAGS = -I$(srcdir)/src $(BLOBEXT_CPPFLAGS)
PG_CFLAGS = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
# Bitcode for JIT inlining is of no use to functions that wait for devices.
override with_llvm = no
include $(PGXS)
