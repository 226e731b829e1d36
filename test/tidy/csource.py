"""What can be read from C sources without a compiler: comments, functions, prototypes, includes.

Made for PostgreSQL's style (a function's braces in the first column); sources in K&R style, with
the opening brace behind the parameters, are read as well.
"""

import bisect
import functools
import re

TOKEN = re.compile(r"""(?P<comment>/\*.*?\*/|//[^\n]*)|"""
                   r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.S)
NOT_LINE_FEED = re.compile(r"[^\n]")
BODY = re.compile(r"^(?:\{[ \t]*|[A-Za-z_][^\n;={}]*\)[ \t]*\{[ \t]*)$", re.M)
PROTOTYPE = re.compile(r"^(?:extern\s+|static\s+inline\s+)?[A-Za-z_][\w \t\n*]*?\b(\w+)\s*"
                       r"\((?:[^;{}()]|\([^;{}()]*\))*\)[^;{}()]*(?:\([^;{}]*\))?;", re.M)
MACRO_PROTOTYPE = re.compile(r"^(?:PG_FUNCTION_INFO_V1|PG_MODULE_MAGIC)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
NO_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "typedef", "struct", "enum"}


class Comment:
    def __init__(self, text, first_line, last_line, is_alone):
        self.text = text
        self.first_line = first_line    # from 1 on, as all line numbers here
        self.last_line = last_line
        self.is_alone = is_alone        # nothing but white space before it on its first line


class Function:
    def __init__(self, name, first_line, brace_line, last_line, is_static):
        self.name = name
        self.first_line = first_line    # of its return type
        self.brace_line = brace_line
        self.last_line = last_line
        self.is_static = is_static
        self.has_comment = False        # of its own

    @property
    def lines(self):
        return self.last_line - self.brace_line + 1


class Source:
    """One file.  code is its text with comments and literals blanked, line by line the same."""

    def __init__(self, name, text):
        self.name = name
        self.starts = [0] + [match.end() for match in re.finditer("\n", text)]
        self.comments = []
        self.code = self.blank(text)
        self.code_lines = self.code.split("\n")
        self.includes = INCLUDE.findall(TOKEN.sub(
            lambda match: match.group() if match.group("text") else " ", text))
        self.functions = list(self.find_functions())

    def line_of(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def blank(self, text):
        def blanked(match):
            if match.group("comment"):
                first = self.line_of(match.start())
                before = text[self.starts[first - 1]:match.start()]
                self.comments.append(Comment(match.group(), first, self.line_of(match.end() - 1),
                                             not before.strip()))
            return NOT_LINE_FEED.sub(" ", match.group())
        return TOKEN.sub(blanked, text)

    def find_functions(self):
        comment_ends = {comment.last_line for comment in self.comments if comment.is_alone}
        end = 0
        for match in BODY.finditer(self.code):
            brace_line = self.line_of(match.end() - 1)
            if brace_line <= end:
                continue
            first = brace_line
            while first > 1 and self.is_of_definition(self.code_lines[first - 2]):
                first -= 1
            head = " ".join(self.code_lines[first - 1:brace_line]).partition("{")[0]
            name = re.match(r"[^()]*?\b(\w+)\s*\(", head)
            if not name or name.group(1) in NO_FUNCTIONS or not head.rstrip().endswith(")"):
                continue
            end = brace_line
            while end < len(self.code_lines) and not self.code_lines[end].startswith("}"):
                end += 1
            function = Function(name.group(1), first, brace_line, end + 1,
                                bool(re.match(r"\s*static\b", head)))
            while first > 1 and self.code_lines[first - 2].startswith("#"):
                first -= 1      # a condition may stand between comment and function
            function.has_comment = first - 1 in comment_ends
            yield function

    @staticmethod
    def is_of_definition(line):
        """Can this line be part of what stands before a function's brace?"""
        return bool(line.strip()) and not line.startswith(("#", "}")) and \
            not line.rstrip().endswith((";", "}")) and not MACRO_PROTOTYPE.match(line)

    def documented_prototypes(self):
        """Names of functions that a header declares beside, below or in a group below a comment."""
        alone = {comment.last_line for comment in self.comments if comment.is_alone}
        beside = {comment.first_line for comment in self.comments if not comment.is_alone}
        names = set()
        documented_end = 0
        for match in PROTOTYPE.finditer(self.code):
            first, last = self.line_of(match.start()), self.line_of(match.end() - 1)
            if first - 1 in alone or first - 1 == documented_end:
                documented_end = last
                names.add(match.group(1))
            elif last in beside:
                names.add(match.group(1))
        return names


@functools.lru_cache(maxsize=None)
def source(name, text):
    return Source(name, text)
