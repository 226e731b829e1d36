"""Names of assertions in the tests: each is a sentence that says what holds.

A name is understood without those before it, so it has a subject and a verb: MIN_WORDS words or
more.  What comes from a variable counts as a part of the word that it stands in; BlobTest.pm counts
the words that TAP tests print.  Found are calls of the functions of Test::More and pgTAP, and of
functions that hand an argument on to one of these as its name; methods of unittest, which print
their names and the first line of their comments; and calls of check() in scripts.
"""

import ast
import re

MIN_WORDS = 4

# It does not begin with one of these.
BEGINNING = re.compile(r"(?:and|nor|or|but|so|it|its|they|their|them|then|also|which|who|whose|"
                       r"\.\.\.)(?!\S)(?!:)")

# The number of the argument that is the name.
PERL_TESTS = {"ok": 1, "is": 2, "isnt": 2, "like": 2, "unlike": 2, "cmp_ok": 3, "is_deeply": 2,
              "pass": 0, "fail": 0, "subtest": 0, "command_ok": 1, "command_fails": 1,
              "command_like": 2, "command_fails_like": 2, "connect_ok": 1, "connect_fails": 1}
SQL_TESTS = {"ok": 1, "is": 2, "isnt": 2, "cmp_ok": 3, "matches": 2, "doesnt_match": 2, "alike": 2,
             "unalike": 2, "pass": 0, "fail": 0, "lives_ok": 1, "throws_ok": 3, "throws_like": 2,
             "throws_matching": 2, "results_eq": 2, "results_ne": 2, "set_eq": 2, "set_has": 2,
             "set_hasnt": 2, "bag_eq": 2, "bag_has": 2, "row_eq": 2, "is_empty": 1,
             "isnt_empty": 1, "performs_ok": 2}
# The word that stands for a part of a name that is not in the source.
UNKNOWN = "\0"

PERL_TOKEN = re.compile(
    r"""(?P<comment>(?<![\$\w])\#[^\n]*)|(?P<heredoc><<~?(["']?)([A-Z_]\w*)\3)|
    (?P<variable>[\$@%&][\$#]*(?:\{\s*\^?\w+\s*\}|\w+|::)+)|
    (?P<quote>(?<![\w>\$@%&{-])(?:qq|qw|qr|q|tr|y|m|s)\b(?!\s*(?:=>|,|\)|;|=[^~]))(?=\s*[^\w\s]))|
    (?P<string>['"`])|(?P<arrow>=>)|
    (?P<regex>(?<=[=!]~)\s*/|(?<=[(,=&|{!?:])\s*/(?=[^/\n]*/)|(?<=split)\s*/)|(?P<word>\w+)|
    (?P<other>\s+|.)""", re.X | re.S)
FLAGS = re.compile(r"[a-z]*")
# A regular expression of more lines is a "/" that was none.
MAX_REGEX_LINES = 5
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


def end_of_quoted(text, start):
    """Where a delimited text ends whose delimiter is at start: behind the closing one."""
    opening = text[start]
    closing = CLOSING.get(opening, opening)
    depth = 1
    position = start + 1
    while position < len(text) and depth:
        character = text[position]
        if character == "\\":
            position += 1
        elif character == closing:
            depth -= 1
        elif character == opening:
            depth += 1
        position += 1
    return position


class Token:
    def __init__(self, kind, text, start, inside=None):
        self.kind, self.text, self.start, self.inside = kind, text, start, inside


def perl_tokens(text):
    """The tokens of a Perl source that are neither space nor comments."""
    text = text.partition("\n__END__\n")[0]
    position = 0
    heredocs = []
    while position < len(text):
        match = PERL_TOKEN.match(text, position)
        kind = match.lastgroup
        start, position = match.span()
        if kind == "heredoc" and match.group(4):
            heredocs.append(match.group(4))
            yield Token("string", match.group(), start, UNKNOWN)
        elif kind == "quote":
            while text[position].isspace():
                position += 1
            first, position = position, end_of_quoted(text, position)
            inside = text[first + 1:position - 1]
            if match.group() in {"s", "tr", "y"}:
                second = position if text[first] in CLOSING else position - 1
                while text[second].isspace():
                    second += 1
                position = end_of_quoted(text, second)
            kind = {"q": "single", "qq": "string", "qw": "single"}.get(match.group(), "regex")
            if kind == "regex":
                position = FLAGS.match(text, position).end()
            yield Token(kind, text[start:position], start, inside)
        elif kind in {"string", "regex"}:
            first = position - 1
            position = end_of_quoted(text, first)
            if text[first] == "/":
                position = FLAGS.match(text, position).end()
            yield Token({"'": "single", "/": "regex"}.get(text[first], kind), text[start:position],
                        start, text[first + 1:position - 1])
        elif kind == "other" and match.group().isspace():
            feed = text.find("\n", start, position)
            while heredocs and feed >= 0:
                end = re.compile(rf"^\s*{heredocs.pop(0)}$", re.M).search(text, feed)
                position = feed = end.end() if end else len(text)
        elif kind != "comment":
            yield Token(kind, match.group(), start)


DOLLARS = re.compile(r"\$(\w*)\$")
SQL_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|(?P<meta>^\\[^\n]*)|(?P<dollar>\$(?:[A-Za-z_]\w*)?\$)|"
                       r"(?P<string>[eE]?'(?:''|[^'])*')|(?P<word>\w+)|(?P<other>\s+|.)",
                       re.S | re.M)


def sql_tokens(text, base=0):
    position = 0
    while position < len(text):
        match = SQL_TOKEN.match(text, position)
        start, position = match.span()
        if match.lastgroup == "dollar":
            end = text.find(match.group(), position)
            inside = text[position:end]
            yield Token("dollar", match.group(), base + start, inside)
            position = end + len(match.group())
        elif match.lastgroup == "string":
            inside = match.group()[match.group().index("'") + 1:-1].replace("''", "'")
            yield Token("single", match.group(), base + start, inside)
        elif match.lastgroup == "word" or match.lastgroup == "other" \
                and not match.group().isspace():
            yield Token(match.lastgroup, match.group(), base + start)


def arguments(tokens, position):
    """The arguments of a call, as lists of tokens, and where it ends.  position: behind its "("."""
    depth = 0
    found = [[]]
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token.kind == "other" and token.text in "([{":
            depth += 1
        elif token.kind == "other" and token.text in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and token.text in {",", "=>"}:
            found.append([])
            continue
        found[-1].append(token)
    if not found[-1]:
        found.pop()
    return found, position


INTERPOLATED = re.compile(r"(?<!\\)[\$@](?:\{[^}]*\}|\w+(?:->)?(?:\[[^]]*\]|\{[^}]*\})*|"
                          r"\{[^{}]*(?:\{[^}]*\}[^{}]*)*\})(?:->(?:\[[^]]*\]|\{[^}]*\}))*")


def outside_brackets(tokens, wanted):
    depth = 0
    for number, token in enumerate(tokens):
        if token.kind != "other":
            continue
        if token.text in "([{":
            depth += 1
        elif token.text in ")]}":
            depth -= 1
        elif token.text == wanted and depth == 0:
            return number
    return None


def names_in(tokens):
    """What an argument can be, with UNKNOWN for each part that is not in the source."""
    text = [token.text for token in tokens]
    question = outside_brackets(tokens, "?")
    if question is not None:
        colon = outside_brackets(tokens[question:], ":") or len(tokens) - question
        return names_in(tokens[question + 1:question + colon]) + \
            names_in(tokens[question + colon + 1:])
    if text[:1] in (["sprintf"], ["format"]) and len(tokens) > 2:
        return [re.sub(r"%[-\d.]*[a-zA-Z]", UNKNOWN, tokens[2].inside or UNKNOWN)]
    parts = []
    depth = 0
    was_unknown = False
    for token in tokens:
        depth -= token.text in ")]}" and token.kind == "other"
        if depth == 0 and token.kind == "single":
            parts.append(token.inside)
            was_unknown = False
        elif depth == 0 and token.kind == "string":
            parts.append(INTERPOLATED.sub(UNKNOWN, token.inside))
            was_unknown = False
        elif depth == 0 and token.text in {".", "|"}:
            was_unknown = False
        elif not was_unknown:
            parts.append(UNKNOWN)
            was_unknown = True
        depth += token.text in "([{" and token.kind == "other"
    return ["".join(parts)]


def too_short(name):
    words = [word for word in name.split() if re.search(rf"[\w{UNKNOWN}=<>|]", word)]
    return len(words) < MIN_WORDS


def shown(name):
    return " ".join(name.replace(UNKNOWN, "…").split())


PERL_PARAMETERS = re.compile(r"^sub (\w+)\s*\{\s*my \(([^)]*)\) = @_;", re.M)


def perl_calls(tokens, tests):
    """(token, arguments) of each call of a test."""
    for number, token in enumerate(tokens):
        if token.kind != "word" or token.text not in tests or number + 1 == len(tokens):
            continue
        before = tokens[number - 1].text if number else ""
        behind = tokens[number + 1]
        if before == "sub" or before == ">" and not token.text.startswith(("command", "connect")):
            continue
        if behind.text == "(":
            yield token, arguments(tokens, number + 2)[0]
        elif token.text == "subtest":
            yield token, arguments(tokens, number + 1)[0]


def perl_helpers(text, tokens, tests):
    """Functions of a source that hand one of their arguments on as the name of a test."""
    found = {}
    bodies = [(match.start(), match.end(), match.group(1),
               [part.strip() for part in match.group(2).split(",")])
              for match in PERL_PARAMETERS.finditer(text)]
    for begin, _, function, parameters in bodies:
        end = text.find("\n}", begin)
        own = [token for token in tokens if begin <= token.start < end]
        for token, given in perl_calls(own, tests):
            place = tests[token.text]
            if len(given) > place and len(given[place]) == 1 and \
                    given[place][0].text in parameters:
                found[function] = parameters.index(given[place][0].text)
    return found


def all_perl_helpers(text, tokens, tests):
    tests = dict(tests)
    while True:
        found = perl_helpers(text, tokens, tests)
        if found.items() <= tests.items():
            return tests
        tests.update(found)


def perl_names(text, tests):
    """(line, names) of each test of a source; names is empty if it has no name."""
    tokens = list(perl_tokens(text))
    for token in tokens:
        if token.kind == "regex" and token.text.count("\n") > MAX_REGEX_LINES:
            line = text.count("\n", 0, token.start) + 1
            raise ValueError(f"line {line}: no regular expression")
    own = all_perl_helpers(text, tokens, tests)
    bodies = {match.group(1): match for match in PERL_PARAMETERS.finditer(text)}
    for token, given in perl_calls(tokens, own):
        place = own[token.text]
        line = text.count("\n", 0, token.start) + 1
        if len(given) <= place:
            yield line, []
            continue
        name = given[place]
        # A function's own parameter is looked at where the function is called.
        if len(name) == 1 and name[0].kind == "variable" and \
                any(match.start() < token.start < text.find("\n}", match.start())
                    and name[0].text in [part.strip() for part in match.group(2).split(",")]
                    for match in bodies.values()):
            continue
        yield line, names_in(name)


SQL_FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (?:\w+\.)?(\w+)\s*\(([^()]*)\)", re.I)


def sql_calls(tokens, tests):
    for number, token in enumerate(tokens):
        if token.kind == "word" and token.text in tests and number + 1 < len(tokens) and \
                tokens[number + 1].text == "(" and \
                (number == 0 or tokens[number - 1].text not in {"FUNCTION", "ON", "."}):
            yield token, arguments(tokens, number + 2)[0]


def sql_helpers(text, tests):
    found = {}
    for match in SQL_FUNCTION.finditer(text):
        parameters = [part.split()[0] for part in match.group(2).split(",") if part.split()]
        dollar = DOLLARS.search(text, match.end())
        if not parameters or not dollar:
            continue
        body = text[dollar.end():text.find(dollar.group(), dollar.end())]
        for token, given in sql_calls(list(sql_tokens(body)), tests):
            place = tests[token.text]
            if len(given) > place and len(given[place]) == 1 and \
                    given[place][0].text in parameters:
                found[match.group(1)] = parameters.index(given[place][0].text)
    return found


def sql_names(text):
    own = dict(SQL_TESTS, **sql_helpers(text, SQL_TESTS))

    def walk(tokens):
        for token, given in sql_calls(tokens, own):
            place = own[token.text]
            # throws_ok(query, message, name)
            if token.text == "throws_ok" and len(given) == 3 and not re.fullmatch(
                    r"[0-9A-Z]{5}", given[1][0].inside or ""):
                place = 2
            line = text.count("\n", 0, token.start) + 1
            if len(given) <= place or not given[place]:
                yield line, []
            elif given[place][0].kind == "word" and len(given[place]) == 1:
                continue                # a parameter, or a column
            else:
                yield line, names_in(given[place])

    def bodies(tokens):
        for token in tokens:
            if token.kind == "dollar" and token.inside is not None:
                inner = list(sql_tokens(token.inside, token.start + len(token.text)))
                yield inner
                yield from bodies(inner)

    tokens = list(sql_tokens(text))
    yield from walk(tokens)
    for inner in bodies(tokens):
        yield from walk(inner)


def python_names(text):
    """Methods of unittest: the name, or the first line of the comment."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test_"):
                first = (ast.get_docstring(method) or "").partition("\n")[0]
                name = method.name.removeprefix("test_").replace("_", " ")
                yield method.lineno, [name if not too_short(name) else first or name]


SHELL_HELPER = re.compile(r"^(\w+)\(\)\n\{\n(?:[^}\n].*\n|\n)*?\s*check \"\$1\" ", re.M)


def shell_names(text, helpers):
    """Calls of check(), and of functions that hand their first argument on to it."""
    call = re.compile(rf"^\s*(?:{'|'.join(['check', *helpers])}) "
                      r"(?:'([^']*)'|\"([^\"]*)\"|(\S+))", re.M)
    for match in call.finditer(text):
        name = next(group for group in match.groups() if group is not None)
        if name != "$1":
            yield (text.count("\n", 0, match.start()) + 1,
                   [re.sub(r"\$\w+|\$\{[^}]*\}", UNKNOWN, name)])


def is_shell(name, text):
    return name.endswith(".sh") or text.startswith("#!/bin/bash")


def names_of(tree):
    """(file, line, names) of all assertions."""
    perl = tree.matching(".pl", ".pm", under="test/t/")
    shared = dict(PERL_TESTS)
    for name, text in perl:
        if name.endswith(".pm"):
            shared = {**shared, **all_perl_helpers(text, list(perl_tokens(text)), shared)}
    helpers = {match.group(1) for name, text in tree.matching("", under="test/")
               if is_shell(name, text) for match in SHELL_HELPER.finditer(text)}
    for name, text in tree.matching("", under="test/"):
        if name.startswith("test/t/") and name.endswith((".pl", ".pm")):
            found = perl_names(text, shared)
        elif re.match(r"test/(pgtap|blobfs|unit|examples|languages)/.*\.(sql|psql)$", name):
            found = sql_names(text)
        elif name.endswith(".py") and not name.startswith("test/tidy/"):
            found = python_names(text)
        elif is_shell(name, text):
            found = shell_names(text, helpers)
        else:
            continue
        for line, names in found:
            yield name, line, names


def check_test_names(tree):
    """Names of assertions stand alone."""
    for file, line, names in names_of(tree):
        if not names:
            yield f"{file}:{line}: an assertion without a name"
        for name in names:
            if too_short(name):
                yield f'{file}:{line}: the name "{shown(name)}" has fewer than {MIN_WORDS} words'
            if BEGINNING.match(name):
                yield f'{file}:{line}: the name "{shown(name)}" cannot stand alone'


RULES = [check_test_names]
