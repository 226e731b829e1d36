"""Rules of the source tree.  Each function of RULES yields complaints; none is wanted.

Nothing is written; git is not needed.  An argument names another tree to check.  Rules about more
than single lines are in targets.py; selftest.py tests those.  Those about what documents name are
in docs.py, those about a release in release.py, those about names of tests in testnames.py.
"""

import pathlib
import re
import subprocess
import sys

import docs
import release
import sqltext
import targets
import testnames
from tree import Tree

# Rules that are not met yet: their complaints are counted and do not fail.  This is the switch: a
# rule leaves the set when the tree meets it.
NOT_YET = set()

# A folder of src, or of mount/src, is a layer, with its subfolders: it may include its own headers
# and those of folders before it.
LAYERS = {
    "src/": ["core", "containers", "io", "wal", "store", "extents", "blob", "assign", "client",
             "recovery", "gc", "heal", "autogc", "sql", "api", "hooks"],
    "mount/src/": ["common", "connections", "sources", "kernel", "reading", "writing", "requests"],
}

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
# Files that are longer, and why each is not cut.
LONG_FILES = {
    "src/autogc/schedule.c": "one table in shared memory, whose states are asserted together",
    "src/core/descriptor.c": "one layout, read and written: each offset is in one place",
    "src/io/syncer.c": "one process and its list, whose states depend on each other",
    "src/store/holes.c": "one run from free to punched and back, in the order of its locks",
}
MAX_COLUMNS = 100
TAB_COLUMNS = 4

# Symbols that the library may export: the server's entry points, and our prefixes.
EXPORTED = re.compile(r"(_PG_init|Pg_magic_func|pg_finfo_\w+|blob(ext|state)?_\w+)$")

# What only some releases of PostgreSQL have: core/compat.h gives it the same name in all.
VERSION_WORDS = re.compile(
    r"\b(PG_VERSION_NUM|RelFileNode|rd_node|rd_firstRelfilenodeSubid|BackendIdGetProc|MyBackendId|"
    r"ProcNumberGetProc|MyProcNumber|execute_once|INT64_MODIFIER|pg_attribute_noreturn|"
    r"resultRelations|CHECKPOINT_IMMEDIATE|T_ClusterStmt|ShmemInitHash|heap_page_prune_opt|"
    r"table_beginscan|pgstat_fetch_stat_tabentry_ext|SIG_IGN)\b")

# What needs one header in one release, another in the next: all of them.
VERSION_HEADERS = [
    (re.compile(r"\bblob_(backend|temporary_schema)_process\("),
     ["storage/procarray.h", "storage/sinvaladt.h"]),
    (re.compile(r"\bget_database_name\("), ["commands/dbcommands.h", "utils/lsyscache.h"]),
    (re.compile(r"\bget_database_oid\("), ["catalog/pg_database.h", "commands/dbcommands.h"]),
]

FORBIDDEN_WORDS = re.compile(r"\b(TODO|FIXME|XXX)\b")

# Directories whose files of a kind are found by the program that runs or builds them.
FOUND_BY_NAME = [
    ("clients/python/src/blobext", "*.py"),  # its wheel
    ("mount/sql", "*.sql"),     # its Makefile
    ("mount/src", "*.c"),       # its Makefile
    ("mount/src/*", "*.c"),
    ("plpython", "*.c"),        # its Makefile
    ("plpython/sql", "*.sql"),
    ("src", "*.c"),             # Makefile
    ("tools/verify", "*.c"),
    ("src/*", "*.c"),
    ("src/*/*", "*.c"),
    ("expected", "*.out"),
    ("bench", "*.py"),          # by hand
    ("examples/*", "*.c"),      # the example's Makefile
    ("test/blobfs", "*.*"),     # suites/blobfs.sh
    ("test/drivers/orms/python", "*.py"),   # suites/drivers.sh
    ("test/examples", "*.c"),   # its Makefile
    ("test/languages", "*.sql"),    # suites/languages.sh
    ("test/mount", "*.py"),     # suites/mount.sh
    ("test/pgtap", "*.sql"),    # suites/pgtap.sh
    ("test/python", "test_*.py"),   # suites/python.sh
    ("test/suites", "*.sh"),    # run
    ("test/t", "*.pl"),         # suites/tap.sh
    ("test/upgrade", "*.sh"),   # suites/upgrade.sh
    ("test/unit", "unit_*.c"),  # Makefile
]


def check_layers(tree):
    """Includes point down or sideways, never up."""
    for root, layers in LAYERS.items():
        for name, text in tree.matching(".c", ".h", under=root):
            layer, _, rest = name.removeprefix(root).partition("/")
            if not rest:
                continue                # src/blobext.c is above all layers
            if layer not in layers:
                yield f"{name}: folder {layer} has no place in the order of layers"
                continue
            for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
                folder, _, file = included.partition("/")
                if not file or folder not in layers:
                    if root == "mount/src/":
                        yield f"{name}: {included} is in no layer"
                elif layers.index(folder) > layers.index(layer):
                    yield f"{name}: layer {layer} includes {folder}, which is above it"
                if folder == "recovery" and layer not in {"recovery", "hooks"}:
                    yield f"{name}: only src/blobext.c and hooks may include recovery"


def check_function_lengths(tree):
    """Functions in PostgreSQL's style: braces in the first column."""
    for name, text in tree.matching(".c", ".h"):
        start = None
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if line == "{" and number > 0 and lines[number - 1].endswith(")"):
                start = number
            elif line == "}" and start is not None:
                length = number - start + 1
                if length > MAX_FUNCTION_LINES:
                    yield f"{name}:{start + 1}: function of {length} lines"
                start = None


def check_file_lengths(tree, may_be_long=LONG_FILES):
    """Files of src and of the mount; those that may be longer have a reason."""
    left = set(may_be_long)
    for root in LAYERS:
        for name, text in tree.matching(".c", ".h", under=root):
            if text.count("\n") <= MAX_FILE_LINES:
                continue
            if name not in may_be_long:
                yield f"{name}: {text.count(chr(10))} lines, more than {MAX_FILE_LINES}"
            left.discard(name)
    for name in sorted(left):
        yield f"{name}: in LONG_FILES, but no file of more than {MAX_FILE_LINES} lines"


def check_columns(tree):
    for name, text in tree.files.items():
        if name.endswith((".md", ".json")) or \
                re.match(r"test/(sql/|pgtap/|t/|(blobfs|examples|languages)/.*\.sql$)", name):
            continue
        for number, line in enumerate(text.split("\n")):
            if len(line.expandtabs(TAB_COLUMNS)) > MAX_COLUMNS:
                yield f"{name}:{number + 1}: more than {MAX_COLUMNS} columns"


def check_white_space(tree):
    for name, text in tree.files.items():
        if text and not text.endswith("\n"):
            yield f"{name}: no line feed at the end"
        for number, line in enumerate(text.split("\n")):
            if line != line.rstrip() and not name.endswith(".md"):
                yield f"{name}:{number + 1}: white space at the end of the line"


def check_words(tree):
    for name, text in tree.files.items():
        if name == "test/tidy/tidy.py":
            continue
        for number, line in enumerate(text.split("\n")):
            for word in FORBIDDEN_WORDS.findall(line):
                # mktemp's templates are no words
                if "mktemp" not in line:
                    yield f"{name}:{number + 1}: {word}"


# Only one module derives stored bytes from content: src/blob/mapping.h.
MAPPING_WORDS = re.compile(
    r"\b(blob_descriptor_extent_stored_bytes|blob_descriptor_inline_bytes)\(")
MAPPING_FILES = {"src/core/descriptor.c", "src/core/descriptor.h", "src/blob/mapping.c",
                 "src/blob/mapping.h"}


def check_mapping(tree):
    """One module knows how an offset in the content becomes stored bytes."""
    for name, text in tree.matching(".c", ".h", under="src/"):
        if name in MAPPING_FILES:
            continue
        for number, line in enumerate(text.split("\n")):
            for word in MAPPING_WORDS.findall(line):
                yield f"{name}:{number + 1}: {word}() is for blob/mapping alone"


def check_versions(tree):
    """Differences between releases of PostgreSQL are in one header."""
    for name, text in tree.matching(".c", ".h", under="src/"):
        if name == "src/core/compat.h":
            continue
        for number, line in enumerate(text.split("\n")):
            for word in VERSION_WORDS.findall(line):
                yield f"{name}:{number + 1}: {word} belongs in core/compat.h"
        for macros, headers in VERSION_HEADERS:
            for header in headers:
                if macros.search(text) and f'#include "{header}"' not in text:
                    yield f"{name}: {macros.search(text).group()}) needs {header}"


def check_headers(tree):
    """A source file begins with a comment that names it; a header is guarded."""
    sources = [item for root in LAYERS for item in tree.matching(".c", ".h", under=root)]
    for name, text in sources:
        short = name.removeprefix("mount/").removeprefix("src/")
        if not text.startswith(f"/*\n * {short}\n *\t"):
            yield f'{name}: does not begin with a comment of the form "/*\\n * {short}\\n *\\t  …"'
    for name, text in sources:
        if name.endswith(".c"):
            continue
        guard = re.search(r"^#ifndef (\w+_H)\n#define \1\n", text, re.M)
        if not guard or not text.rstrip().endswith(f"#endif\t\t\t\t\t\t\t/* {guard.group(1)} */"):
            yield f"{name}: no include guard"


def check_references(tree):
    """Every source, header, script and test is built, included, run or mentioned somewhere."""
    texts = {name: text for name, text in tree.files.items() if not name.endswith(".md")}
    for name in tree.files:
        path = pathlib.PurePosixPath(name)
        if path.suffix not in {".c", ".h", ".sql", ".pl", ".pm", ".py", ".sh"}:
            continue
        if any(path.parent.match(directory) and path.match(pattern)
               for directory, pattern in FOUND_BY_NAME
               if len(path.parent.parts) == directory.count("/") + 1):
            continue
        if path.parent.as_posix() == "test/sql":
            if not (tree.root / "expected" / f"{path.stem}.out").exists():
                yield f"{name}: no expected/{path.stem}.out"
            continue
        word = path.stem if path.suffix in {".pm", ".sql"} else path.name
        if name.startswith("test/tidy/") and any(
                f"import {path.stem}\n" in text or f"from {path.stem} import" in text
                for text in texts.values()):
            continue
        if path.suffix == ".h" and name.startswith(tuple(LAYERS)):
            word = f'"{name.removeprefix("mount/").removeprefix("src/")}"'
        if not any(word in text for other, text in texts.items() if other != name):
            yield f"{name}: referenced nowhere"
    for expected in sorted((tree.root / "expected").glob("*.out")):
        if f"test/sql/{expected.stem}.sql" not in tree.files:
            yield f"expected/{expected.name}: no test/sql/{expected.stem}.sql"


def check_suites(tree):
    """A suite says how it is called, and test/README.md has it; names elsewhere are of suites."""
    suites = {pathlib.PurePosixPath(name).stem: text
              for name, text in tree.matching(".sh", under="test/suites/")}
    for suite, text in suites.items():
        if not re.match(rf"# test/run {suite}\b", text):
            yield f'test/suites/{suite}.sh: does not begin with "# test/run {suite}"'
        if not re.search(rf"`{suite}[` ]", tree.files["test/README.md"]):
            yield f"test/suites/{suite}.sh: not in test/README.md"
    named = re.search(r"test_suites=\(([^)]*)\)", tree.files["test/names.sh"]).group(1).split()
    named += re.findall(r"\[(\w+)\]=", tree.files["test/needs.sh"])
    for suite in sorted(set(named) - set(suites)):
        yield f"test/names.sh, test/needs.sh: no suite {suite}"


def check_scripts(tree):
    for name in tree.files:
        path = tree.root / name
        if Tree.is_script(path) and not path.stat().st_mode & 0o111:
            yield f"{name}: not executable"


def check_symbols(tree):
    """What the library exports bears our prefix, because PostgreSQL loads it globally."""
    library = tree.root / "blobext.so"
    if not library.exists():
        directory = subprocess.run(["pg_config", "--pkglibdir"], capture_output=True, text=True,
                                   check=True).stdout.strip()
        library = pathlib.Path(directory) / "blobext.so"
    if not library.exists():
        yield "blobext.so: not built, and not installed"
        return
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True,
                             text=True, check=True).stdout.split("\n")
    names = [line.split()[-1] for line in symbols if line]
    if "_PG_init" not in names:
        yield f"{library}: exports no _PG_init"
    for name in names:
        if not EXPORTED.match(name):
            yield f"{library}: exports {name}"


RULES = [check_layers, check_function_lengths, check_file_lengths, check_columns,
         check_white_space, check_words, check_mapping, check_versions, check_headers,
         check_references, check_suites, check_scripts, check_symbols,
         sqltext.check_sql_strings, release.check_meta, release.check_release_version,
         *targets.RULES, *docs.RULES, *testnames.RULES]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if len(sys.argv) == 1:
        root = root.parents[2]
    tree = Tree(root)
    if not tree.matching(".c", under="src/"):
        print(f"not ok - no sources in {root}")
        return 1
    failed = False
    for rule in RULES:
        complaints = list(rule(tree))
        name = rule.__name__.removeprefix("check_")
        if name in NOT_YET:
            print(f"ok - {name} (not required yet: {len(complaints)} complaints)")
            continue
        print(f"{'not ok' if complaints else 'ok'} - {name}")
        for complaint in complaints:
            print(f"#   {complaint}")
        failed = failed or bool(complaints)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
