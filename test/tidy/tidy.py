"""Rules of the source tree.  Each function of RULES yields complaints; none is wanted.

Nothing is written; git is not needed.  An argument names another tree to check.
"""

import pathlib
import re
import subprocess
import sys

# A folder of src is a layer: it may include its own headers and those of folders before it.
LAYERS = ["core", "io", "wal", "store", "extents", "blob", "assign", "client", "recovery", "gc",
          "autogc", "sql", "api", "hooks"]

MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100
TAB_COLUMNS = 4

# Symbols that the library may export: the server's entry points, and our prefixes.
EXPORTED = re.compile(r"(_PG_init|Pg_magic_func|pg_finfo_\w+|blob(ext|state)?_\w+)$")

# What only some releases of PostgreSQL have: core/compat.h gives it the same name in all.
VERSION_WORDS = re.compile(
    r"\b(PG_VERSION_NUM|RelFileNode|rd_node|rd_firstRelfilenodeSubid|BackendIdGetProc|MyBackendId|"
    r"ProcNumberGetProc|MyProcNumber|execute_once|INT64_MODIFIER|pg_attribute_noreturn)\b")

# Macros of core/compat.h that need one header in one release, another in the next: all of them.
VERSION_HEADERS = [
    (re.compile(r"\bblob_(backend|temporary_schema)_process\("),
     ["storage/procarray.h", "storage/sinvaladt.h"]),
]

FORBIDDEN_WORDS = re.compile(r"\b(TODO|FIXME|XXX)\b")

# Directories whose files of a kind are found by the program that runs or builds them.
FOUND_BY_NAME = [
    ("src", "*.c"),             # Makefile
    ("src/*", "*.c"),
    ("expected", "*.out"),
    ("examples/*", "*.c"),      # the example's Makefile
    ("test/examples", "*.c"),   # its Makefile
    ("test/pgtap", "*.sql"),    # run_pgtap
    ("test/python", "test_*.py"),   # run_python
    ("test/t", "*.pl"),         # run_tap
    ("test/unit", "unit_*.c"),  # Makefile
]

SKIPPED_DIRECTORIES = {".git", "results", "tmp_check", "log", "__pycache__", "cluster"}
TEXT_SUFFIXES = {".c", ".h", ".sql", ".pl", ".pm", ".py", ".sh", ".md", ".control", ".conf",
                 ".json", ".yml", ".awk"}


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = {}
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if SKIPPED_DIRECTORIES & set(relative.parts) or not path.is_file():
                continue
            if path.suffix in TEXT_SUFFIXES or self.is_script(path) or path.name == "Makefile":
                self.files[relative.as_posix()] = path.read_text(errors="replace")

    @staticmethod
    def is_script(path):
        if path.suffix:
            return False
        with path.open("rb") as file:
            return file.read(2) == b"#!"

    def matching(self, *suffixes, under=""):
        return [(name, text) for name, text in self.files.items()
                if name.startswith(under) and name.endswith(suffixes)]


def check_layers(tree):
    """Includes point down or sideways, never up."""
    for name, text in tree.matching(".c", ".h", under="src/"):
        parts = name.split("/")
        if len(parts) == 2:
            continue                # src/blobext.c is above all layers
        layer = parts[1]
        if layer not in LAYERS:
            yield f"{name}: folder {layer} has no place in the order of layers"
            continue
        for included in re.findall(r'^\s*#\s*include\s+"(\w+)/[^"]+"', text, re.M):
            if included in LAYERS and LAYERS.index(included) > LAYERS.index(layer):
                yield f"{name}: layer {layer} includes {included}, which is above it"
            if included == "recovery" and layer not in {"recovery", "hooks"}:
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


def check_columns(tree):
    for name, text in tree.files.items():
        if name.endswith((".md", ".json")) or \
                re.match(r"test/(sql/|pgtap/|t/|examples/.*\.sql$)", name):
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
    for name, text in tree.matching(".c", ".h", under="src/"):
        short = name.removeprefix("src/")
        if not text.startswith(f"/*\n * {short}\n *\t"):
            yield f'{name}: does not begin with a comment of the form "/*\\n * {short}\\n *\\t  …"'
    for name, text in tree.matching(".h", under="src/"):
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
        if path.suffix == ".h" and name.startswith("src/"):
            word = f'"{name.removeprefix("src/")}"'
        if not any(word in text for other, text in texts.items() if other != name):
            yield f"{name}: referenced nowhere"
    for expected in sorted((tree.root / "expected").glob("*.out")):
        if f"test/sql/{expected.stem}.sql" not in tree.files:
            yield f"expected/{expected.name}: no test/sql/{expected.stem}.sql"


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


RULES = [check_layers, check_function_lengths, check_columns, check_white_space, check_words,
         check_versions, check_headers, check_references, check_scripts, check_symbols]


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
        print(f"{'not ok' if complaints else 'ok'} - {rule.__name__.removeprefix('check_')}")
        for complaint in complaints:
            print(f"#   {complaint}")
        failed = failed or bool(complaints)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
