"""The prose of a source tree: comments, and files of Markdown, as blocks of text with line numbers.

A block is what one sentence can lie in: a paragraph, a list item, a cell of a table, a heading.
"""

import bisect
import re

import csource

MARKDOWN_CODE = re.compile(r"^( {0,3})(```+|~~~+)[^\n]*\n.*?^ {0,3}\2[^\n]*$", re.M | re.S)
INLINE_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK_TARGET = re.compile(r"\]\([^()\s]*\)")
HASH_COMMENT = re.compile(r"(?:^|\s)#(?!!)(.*)")
DASH_COMMENT = re.compile(r"--(.*)")
QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
DOC_STRING = re.compile(r'^[ \t]*"""(.*?)"""', re.M | re.S)
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
LEADER = re.compile(r"^[ \t]*\*+(?!\*)[ \t]?")
RULE = re.compile(r"-{3,}|={3,}")
SENTENCE_END = re.compile(r"[.!?][\"')\]*_]*(?=\s+[\"'(\[*_]*[A-Z0-9]|\s*$)")


class Block:
    """Some lines of prose; text has a line feed where the file has one."""

    def __init__(self, first_line, text, is_heading=False):
        self.first_line = first_line
        self.text = text
        self.is_heading = is_heading
        self.line_feeds = [match.start() for match in re.finditer("\n", text)]

    def line_of(self, offset):
        return self.first_line + bisect.bisect_left(self.line_feeds, offset)

    def sentences(self):
        """(offset, sentence) of each."""
        start = 0
        for match in SENTENCE_END.finditer(self.text):
            yield start, self.text[start:match.end()]
            start = match.end()
        if self.text[start:].strip():
            yield start, self.text[start:]


def paragraphs(lines):
    """Blocks of (line number, text) pairs, cut at empty lines, at gaps, and before list items."""
    block = []
    for number, text in lines:
        if block and (not text.strip() or LIST_ITEM.match(text) or number != block[-1][0] + 1):
            yield Block(block[0][0], "\n".join(text for _, text in block))
            block = []
        if text.strip():
            block.append((number, LIST_ITEM.sub("", text)))
    if block:
        yield Block(block[0][0], "\n".join(text for _, text in block))


def c_lines(comment):
    text = comment.text
    text = text[2:-2] if text.startswith("/*") else text[2:]
    for index, line in enumerate(text.split("\n")):
        yield comment.first_line + index, RULE.sub(" ", LEADER.sub("", line) if index else line)


def of_c(name, text):
    for comment in csource.source(name, text).comments:
        yield from paragraphs(c_lines(comment))


def lines_of(number, text, is_alone):
    """A comment beside code is no part of the comments above and below it."""
    return [(number, text)] if is_alone else [(number, ""), (number, text), (number, "")]


def of_hashes(text):
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        is_alone = line.lstrip().startswith("#")
        match = HASH_COMMENT.search(line.lstrip() if is_alone else QUOTED.sub("''", line))
        if match:
            lines += lines_of(number, RULE.sub(" ", match.group(1)), is_alone)
    return paragraphs(lines)


def of_sql(name, text):
    lines = []
    blanked = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), text,
                     flags=re.S)
    for number, line in enumerate(blanked.split("\n"), 1):
        is_alone = line.lstrip().startswith("--")
        match = DASH_COMMENT.search(line if is_alone else QUOTED.sub("''", line))
        if match:
            lines += lines_of(number, RULE.sub(" ", match.group(1).lstrip("-")), is_alone)
    yield from paragraphs(lines)
    for match in re.finditer(r"/\*.*?\*/", text, re.S):
        first = text.count("\n", 0, match.start()) + 1
        comment = csource.Comment(match.group(), first, 0, True)
        yield from paragraphs(c_lines(comment))


def of_python(text):
    yield from of_hashes(text)
    for match in DOC_STRING.finditer(text):
        first = text.count("\n", 0, match.start(1)) + 1
        yield from paragraphs(list(enumerate(match.group(1).split("\n"), first)))


def keep_line_feeds(match):
    return re.sub(r"[^\n]", " ", match.group())


def of_markdown(text):
    text = MARKDOWN_CODE.sub(keep_line_feeds, text)
    text = re.sub(r"<!--.*?-->", keep_line_feeds, text, flags=re.S)
    text = INLINE_CODE.sub(lambda match: re.sub(r"[^\n]", "x", match.group()), text)
    text = LINK_TARGET.sub("]", text)
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("    ") and (not lines or not lines[-1][1].strip()):
            lines.append((number, ""))      # indented code
        elif re.match(r"#+ ", line):
            lines.append((number, ""))
            yield Block(number, line.lstrip("# "), is_heading=True)
        elif line.lstrip().startswith("|"):
            lines.append((number, ""))
            for cell in line.strip().strip("|").split("|"):
                if cell.strip(" :-"):
                    yield Block(number, cell.strip())
        else:
            lines.append((number, re.sub(r"^\s*> ?", "", line)))
    yield from paragraphs(lines)


def blocks(name, text):
    """All prose of a file; nothing for a kind of file that has none."""
    if name.endswith((".c", ".h")):
        return of_c(name, text)
    if name.endswith(".sql"):
        return of_sql(name, text)
    if name.endswith(".md"):
        return sorted(of_markdown(text), key=lambda block: block.first_line)
    if name.endswith(".py"):
        return of_python(text)
    if name.endswith((".pl", ".pm", ".sh", ".awk", ".yml", ".conf", ".control", "Makefile")) or \
            text.startswith("#!"):
        return of_hashes(text)
    return ()
