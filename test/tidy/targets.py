"""Rules about functions, circles of files, the README and language: what dev/measure measures."""

import posixpath
import re

import csource
import graph
import language
import measure

MAX_README_LINES = 280      # fewer than that
CIRCLES = "test/tidy/circles.txt"
CIRCLE_LINE = re.compile(r"(calls|includes) (\S+): (\S.*\S) -- (\S.*)$")


def in_root(tree, root):
    return measure.sources_of({name: text for name, text in tree.files.items()
                               if name.startswith(root)})


def check_function_comments(tree):
    """A function of more than some lines has a comment, or its prototype in a header has."""
    for name, line, function, lines in measure.without_comment(in_root(tree, measure.ROOTS)):
        yield f"{name}:{line}: {function}, {lines} lines, has no comment"


def read_circles(text, complaints):
    """{(kind, folder): [set of members, ...]}, from the text of CIRCLES."""
    known = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        match = CIRCLE_LINE.match(line)
        if not match:
            complaints.append(f"{CIRCLES}:{number}: not \"calls|includes folder: files -- reason\"")
            continue
        kind, folder, members, _ = match.groups()
        known.setdefault((kind, folder), []).append(set(members.split()))
    return known


def compare_circles(kind, circles, known):
    """Complaints of circles that are not in the list, or smaller than there."""
    left = {folder: list(listed) for (its_kind, folder), listed in known.items()
            if its_kind == kind}
    for circle in circles:
        folder = posixpath.dirname(circle[0])
        members = {posixpath.basename(member) for member in circle}
        listed = next((listed for listed in left.get(folder, []) if listed & members), set())
        if members - listed:
            yield (f"{folder}: circle of files by {kind}: {' '.join(sorted(members))}; "
                   f"new in it: {' '.join(sorted(members - listed))}")
        if listed - members:
            yield (f"{CIRCLES}: {kind} {folder}: no longer in the circle: "
                   f"{' '.join(sorted(listed - members))}")
        if listed:
            left[folder].remove(listed)
    for folder, sets in left.items():
        for listed in sets:
            yield f"{CIRCLES}: {kind} {folder}: no circle of {' '.join(sorted(listed))} any more"


def check_circles(tree):
    """Circles of files inside of a folder are those of a list, which gives a reason for each."""
    complaints = []
    path = tree.root / CIRCLES
    known = read_circles(path.read_text() if path.exists() else "", complaints)
    yield from complaints
    for kind, edges_of in (("calls", graph.call_edges), ("includes", graph.include_edges)):
        circles = [circle for root in measure.ROOTS
                   for circle in graph.folder_circles(edges_of(in_root(tree, root)))]
        yield from compare_circles(kind, circles, known)


def check_readme_length(tree):
    lines = tree.files.get("README.md", "").count("\n")
    if lines >= MAX_README_LINES:
        yield f"README.md: {lines} lines, not less than {MAX_README_LINES}"


def check_language(tree):
    """Sentences of comments and documents have plain subjects; see language.py."""
    for name, line, pattern, found in language.check(tree.files):
        if pattern not in language.SHOWN_ONLY:
            yield f"{name}:{line}: {found} ({language.PATTERNS[pattern][1]})"


# An invariant's last sentence; a function that asserts is one whose body has Assert().
PROOF = re.compile(r"\*(Asserted|Not asserted):\* (.*)", re.S)


def asserting_functions(tree):
    for source in in_root(tree, "src/"):
        for function in source.functions:
            body = source.code_lines[function.brace_line - 1:function.last_line]
            if any("Assert(" in line for line in body):
                yield function.name


def check_invariants(tree):
    """Each numbered invariant of src/README.md names what asserts it, or says why nothing does."""
    section = tree.files["src/README.md"].partition("## Invariants")[2].partition("\n## ")[0]
    invariants = re.split(r"^(\d+)\. ", section, flags=re.M)[1:]
    asserting = set(asserting_functions(tree))
    for number, text in zip(invariants[::2], invariants[1::2]):
        proof = PROOF.search(text)
        if proof is None:
            yield f"src/README.md: invariant {number} does not say what asserts it"
            continue
        names = re.findall(r"`(\w+)\(\)`", proof.group(2))
        if proof.group(1) == "Asserted" and not names:
            yield f"src/README.md: invariant {number} names no function that asserts it"
        for name in names:
            if name not in asserting:
                yield f"src/README.md: invariant {number}: {name}() asserts nothing"


RULES = [check_language, check_function_comments, check_circles, check_readme_length,
         check_invariants]
