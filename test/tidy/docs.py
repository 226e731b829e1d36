"""Rules of the documents: what they name exists.  See tidy.py.

Seen to fail with a link to a file and to a heading that do not exist, and with paths of a file, a
folder and a pattern of files that do not exist.
"""

import posixpath
import re
import subprocess

from tree import SKIPPED_DIRECTORIES

# Folders that may begin a path in a document.
FOLDERS = ("bench", "dev", "docs", "examples", "expected", "mount", "plpython", "sql", "src",
           "test", "tools")
# Where the paths of a document may begin, besides the top and the folder of the document.
BASES = ("mount", "mount/src", "src", "test", "test/t", "test/pgtap", "test/sql", "docs")
# What a build or a run makes, and names with a placeholder.
FOREIGN = re.compile(r"(^dev/cluster|SHA256_CTX\.h|--[A-Z](--[A-Z])?\.sql)$")
# History names what was there.
HISTORY = ("CHANGELOG.md",)
MAX_DOCUMENT_COLUMNS = 120


def all_files(tree):
    """Paths of all files, also of those that are no text."""
    paths = [path.relative_to(tree.root) for path in tree.root.rglob("*") if path.is_file()]
    return [path.as_posix() for path in paths if not SKIPPED_DIRECTORIES & set(path.parts)]


def documents(tree):
    return tree.matching(".md")


def without_blocks(text):
    """The text with its fenced blocks empty: lines stay where they are."""
    lines = []
    inside = False
    for line in text.split("\n"):
        fence = line.startswith("```")
        lines.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(lines)


def anchors(text):
    """The names that a heading can be linked by: lower case, words joined by hyphens."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_blocks(text), re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        while name in found:
            name += "-1"
        found.add(name)
    return found


def check_links(tree):
    """Links of documents lead to files, and to headings, of the tree."""
    names = set(all_files(tree))
    folders = {posixpath.dirname(name) for name in names}
    for name, text in documents(tree):
        for number, line in enumerate(without_blocks(text).split("\n")):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"\w+:", target):
                    continue
                path, _, anchor = target.partition("#")
                path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) \
                    if path else name
                if path not in names and path.rstrip("/") not in folders:
                    yield f"{name}:{number + 1}: no file {path}"
                elif anchor and anchor not in anchors(tree.files.get(path, "")):
                    yield f"{name}:{number + 1}: no heading #{anchor} in {path}"


def candidates(name, word):
    """Where a path that a document names may be."""
    yield posixpath.normpath(posixpath.join(posixpath.dirname(name), word))
    yield word
    for base in BASES:
        yield posixpath.join(base, word)


def is_path(word):
    """Does a word between backquotes name a file or a folder of a source tree?"""
    if not re.fullmatch(r"[\w.*/-]+", word) or word.startswith(("/", "*")) or FOREIGN.search(word):
        return False
    return word.split("/")[0] in FOLDERS and "/" in word or \
        re.search(r"\w\.(c|h|md|sql|pl|pm|py|control)$", word) is not None or \
        re.fullmatch(r"(\w+/)+", word) is not None


def server_headers():
    """PostgreSQL's headers may be named as well."""
    directory = subprocess.run(["pg_config", "--includedir-server"], capture_output=True,
                               text=True, check=True).stdout.strip()
    return directory + "/"


def check_paths(tree):
    """Paths that documents name, between backquotes and in commands, exist."""
    names = set(all_files(tree))
    folders = {folder for name in names for folder in parents(name)}
    base_names = {posixpath.basename(name) for name in names}
    headers = tree.root.__class__(server_headers())
    # "make install" may not have been called here.
    installed = {"extension/blobext/" + posixpath.basename(name)
                 for name in names if name.startswith("src/api/") and name.endswith(".h")}

    def exists(name, word):
        for path in candidates(name, word.rstrip("/")):
            if path in names or path in folders:
                return True
            if "*" in path:
                pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*") + "$")
                if any(pattern.match(other) for other in names):
                    return True
        return "/" not in word and word in base_names or word in installed or \
            word.endswith(".h") and (headers / word).exists()

    for name, text in documents(tree):
        if name in HISTORY:
            continue
        for number, line in enumerate(text.split("\n")):
            words = [word for code in re.findall(r"`([^`]+)`", line) for word in code.split()]
            words += re.findall(r"(?<![\w./$\"-])(?:%s)/[\w./*-]+" % "|".join(FOLDERS), line)
            for word in dict.fromkeys(word.rstrip(".,:;)") for word in words):
                if is_path(word) and not exists(name, word):
                    yield f"{name}:{number + 1}: no file {word}"


def parents(name):
    while name := posixpath.dirname(name):
        yield name


def check_document_columns(tree):
    """Lines of the READMEs under src can be read side by side; a row of a table is one line."""
    for name, text in tree.files.items():
        if not name.startswith("src/") or not name.endswith(".md"):
            continue
        for number, line in enumerate(without_blocks(text).split("\n")):
            if len(line) > MAX_DOCUMENT_COLUMNS and not line.startswith("|"):
                yield f"{name}:{number + 1}: more than {MAX_DOCUMENT_COLUMNS} columns"


RULES = [check_links, check_paths, check_document_columns]
