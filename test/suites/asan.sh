# test/run asan [seed]: modules that run outside of a server, with the compiler's checks of
# addresses and of undefined behavior; by hand.  See asan/outside.c.

pg_config=${PG_CONFIG:-pg_config}
program=$(mktemp -d "${TMPDIR:-/tmp}/blobext_asan.XXXXXX")/outside
trap 'rm -rf "$(dirname "$program")"' EXIT
cd "$here/.."

libraries=$("$pg_config" --pkglibdir)
[ -e "$libraries/libpgcommon.a" ] || libraries=$("$pg_config" --libdir)
"${CC:-gcc}" -g -O1 -Wall -Werror -fwrapv -fno-strict-aliasing -fno-omit-frame-pointer \
	-fsanitize=address,undefined -fno-sanitize-recover=undefined -DUSE_ASSERT_CHECKING=1 \
	-D_GNU_SOURCE -DBLOB_WITH_LZ4 -DBLOB_WITH_ZSTD -Isrc -Itest/unit \
	-I"$("$pg_config" --includedir-server)" -o "$program" \
	test/asan/outside.c test/unit/unit_{core,compressed,tree,free_runs,pending,sample}.c \
	src/core/{tier,descriptor,frame,codec,digest}.c src/store/{free_runs,pending}.c \
	src/blob/{framer,frames,mapping,tree,tree_edge,tree_live}.c src/sql/operators/sample.c \
	"$libraries/libpgcommon.a" "$libraries/libpgport.a" -lcrypto -llz4 -lzstd -lm
# palloc()ed memory is freed with its context, and there are no contexts here.
ASAN_OPTIONS=detect_leaks=0 "$program" "$@"
