"""Measures of a tree of C sources; see dev/measure for how to call it."""

import argparse
import collections
import pathlib
import posixpath
import re
import signal
import statistics

import csource
import graph
import language
from tree import Tree

ROOTS = ("src/", "mount/src/")
LONG_FUNCTION_LINES = 70
LONG_FILE_LINES = 600
COMMENTED_FUNCTION_LINES = 15   # longer ones have a comment
MIN_SENTENCE_WORDS = 3
SENTENCE_END = re.compile(r"[.!?](?:\s+(?=[A-Z])|$)")
COMMENT_RULE = re.compile(r"-{3,}|={3,}|\*{3,}")


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


def median(values):
    return round(statistics.median(values)) if values else 0


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def sources_of(files):
    return [csource.source(name, text) for name, text in files.items()
            if name.endswith((".c", ".h"))]


def functions_of(sources):
    """(source, function, has a comment) of each function in a .c file."""
    documented = set()
    for source in sources:
        if source.name.endswith(".h"):
            documented |= source.documented_prototypes()
    return [(source, function, function.has_comment or
             function.name in documented and not function.is_static)
            for source in sources if source.name.endswith(".c")
            for function in source.functions]


def without_comment(sources):
    """(file, line, function, lines): functions that are long enough to need a comment."""
    return [(source.name, function.brace_line, function.name, function.lines)
            for source, function, has_comment in functions_of(sources)
            if not has_comment and function.lines > COMMENTED_FUNCTION_LINES]


def sentence_lengths(sources):
    lengths = []
    for source in sources:
        for comment in source.comments:
            text = comment.text.removeprefix("/*").removeprefix("//").removesuffix("*/")
            text = COMMENT_RULE.sub("", re.sub(r"^\s*\*+ ?", "", text, flags=re.M))
            for paragraph in re.split(r"\n\s*\n", text):
                lengths += [len(sentence.split()) for sentence in SENTENCE_END.split(paragraph)]
    return [length for length in lengths if length >= MIN_SENTENCE_WORDS]


def circle_line(circle):
    folder = posixpath.dirname(circle[0])
    return f"{folder or '.'}: {' '.join(posixpath.basename(member) for member in circle)}"


def circle_sizes(circles):
    sizes = ", ".join(str(len(circle)) for circle in sorted(circles, key=len, reverse=True))
    return f"{len(circles)} ({sizes} files)" if circles else "0"


def rows(files):
    """(criterion, value, details) of each line of the table."""
    sources = sources_of(files)
    lines = [len(source.starts) - 1 for source in sources if source.name.endswith(".c")]
    functions = functions_of(sources)
    lengths = [function.lines for _, function, _ in functions]
    commented = sum(has_comment for _, _, has_comment in functions)
    missing = without_comment(sources)
    needed = sum(length > COMMENTED_FUNCTION_LINES for length in lengths)
    words = sentence_lengths(sources)
    yield ".c files: median / max lines", f"{median(lines)} / {max(lines, default=0)}", []
    yield ".c and .h files: lines", str(sum(len(source.starts) - 1 for source in sources)), []
    long_files = [f"{source.name}: {len(source.starts) - 1} lines" for source in sources
                  if source.name.endswith(".c") and len(source.starts) - 1 > LONG_FILE_LINES]
    yield f".c files over {LONG_FILE_LINES} lines", str(len(long_files)), long_files
    yield ("functions: median / p90 / max lines",
           f"{median(lengths)} / {quantile(lengths, 0.9)} / {max(lengths, default=0)}", [])
    too_long = [f"{source.name}:{function.brace_line}: {function.name}, {function.lines} lines"
                for source, function, _ in functions if function.lines > LONG_FUNCTION_LINES]
    yield (f"functions over {LONG_FUNCTION_LINES} lines", percent(len(too_long), len(lengths)),
           too_long)
    yield ("functions with a comment, own or at the prototype", percent(commented, len(lengths)),
           [])
    yield (f"functions over {COMMENTED_FUNCTION_LINES} lines with neither",
           f"{len(missing)} of {needed}",
           ["{}:{}: {}, {} lines".format(*function) for function in missing])
    yield ("words per comment sentence, median / p90",
           f"{median(words)} / {quantile(words, 0.9)}", [])
    folders = sorted({posixpath.dirname(source.name) for source in sources
                      if source.name.endswith(".c")})
    readmes = [folder for folder in folders if posixpath.join(folder, "README.md") in files or
               posixpath.join(folder, "README") in files]
    yield ("folders with a README", f"{len(readmes)} of {len(folders)}",
           [f"{folder or '.'}: no README" for folder in folders if folder not in readmes])
    by_include, by_call = graph.include_edges(sources), graph.call_edges(sources)
    cycles = graph.folder_cycles(by_include)
    yield "cycles between folders", str(len(cycles)), [" ".join(cycle) for cycle in cycles]
    for kind, edges in ("calls", by_call), ("includes", by_include):
        circles = graph.folder_circles(edges)
        yield (f"circles of files inside of a folder, by {kind}", circle_sizes(circles),
               [circle_line(circle) for circle in circles])


def print_table(parts, shows_details):
    """A column for each part of the tree: its name, and its files."""
    tables = [list(rows(files)) for files in parts.values()]
    print(f"| criterion | {' | '.join(parts)} |\n|---|{'---|' * len(parts)}")
    for lines in zip(*tables):
        print(f"| {lines[0][0]} | {' | '.join(value for _, value, _ in lines)} |")
    if shows_details:
        for lines in zip(*tables):
            details = [detail for _, _, details in lines for detail in details]
            if details:
                print(f"\n{lines[0][0]}:")
                print("\n".join(details))


def print_circles(files):
    """Each circle by calls, with the functions that close it."""
    sources = sources_of(files)
    named = collections.defaultdict(list)
    for caller, callee, function in graph.calls(sources):
        named[caller, callee].append(function)
    for circle in graph.folder_circles(graph.call_edges(sources)):
        print(circle_line(circle))
        for caller in circle:
            for callee in circle:
                if (caller, callee) in named:
                    print(f"    {posixpath.basename(caller)} -> {posixpath.basename(callee)}: "
                          f"{', '.join(named[caller, callee])}")


def folder_of(name):
    parts = name.split("/")
    if len(parts) == 1:
        return name
    return "/".join(parts[:2]) if parts[0] in {"src", "test"} and len(parts) > 2 else parts[0]


def print_counts(counts, columns, first):
    """counts: of (folder, column); a table with sums, the largest first."""
    columns = [column for column in columns if any(key[1] == column for key in counts)]
    folders = collections.Counter()
    for (folder, _), count in counts.items():
        folders[folder] += count
    print(f"| {first} | all | {' | '.join(columns)} |\n|---|{'---|' * (len(columns) + 1)}")
    for folder, total in sorted(folders.items(), key=lambda item: (-item[1], item[0])):
        cells = " | ".join(str(counts.get((folder, column), "")) for column in columns)
        print(f"| {folder} | {total} | {cells} |")
    sums = [sum(count for key, count in counts.items() if key[1] == column) for column in columns]
    print(f"| all | {sum(sums)} | {' | '.join(map(str, sums))} |")


def print_language(files, shows_details):
    findings = list(language.check(files))
    counts = collections.Counter((folder_of(name), pattern) for name, _, pattern, _ in findings)
    print_counts(counts, language.PATTERNS, "folder")
    if shows_details:
        for name, line, pattern, found in sorted(findings):
            print(f"{name}:{line}: {pattern}: {found}")


def print_words(files):
    """Old words by folder: in prose, and in code after a plus sign."""
    sums = collections.defaultdict(lambda: [0, 0])
    for word, name, in_prose, in_code in language.old_words(files):
        for key in (word, folder_of(name)), (word, ""):
            sums[key][0] += in_prose
            sums[key][1] += in_code
    print("| old word | in prose | in code | by folder (prose+code) |\n|---|---|---|---|")
    for word in language.OLD_WORDS:
        folders = sorted((folder for key, folder in sums if key == word and folder),
                         key=lambda folder: -sum(sums[word, folder]))
        cells = ", ".join("{} {}+{}".format(folder, *sums[word, folder]) for folder in folders)
        print("| {} | {} | {} | {} |".format(word, *sums[word, ""], cells))


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)   # "dev/measure --list | head" is no error
    parser = argparse.ArgumentParser(prog="dev/measure", description="Measures of a source tree.")
    parser.add_argument("tree", nargs="?", help="a folder of C sources, or with src; default: this")
    parser.add_argument("--list", action="store_true", help="name what is counted, with file:line")
    parser.add_argument("--language", action="store_true",
                        help="patterns of language in comments and documents, by folder")
    parser.add_argument("--words", action="store_true",
                        help="words of the old glossary that are left, by folder")
    parser.add_argument("--circles", action="store_true",
                        help="circles of files by calls, with the functions that make them")
    arguments = parser.parse_args()
    root = pathlib.Path(arguments.tree or pathlib.Path(__file__).parents[2]).resolve()
    files = Tree(root).files
    parts = {root.rstrip("/"): {name: text for name, text in files.items()
                                if name.startswith(root)} for root in ROOTS}
    parts = {root: part for root, part in parts.items() if part} or {"value": files}
    if arguments.language:
        print_language(files, arguments.list)
    elif arguments.words:
        print_words(files)
    elif arguments.circles:
        for part in parts.values():
            print_circles(part)
    else:
        print_table(parts, arguments.list)


if __name__ == "__main__":
    main()
