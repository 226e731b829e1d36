"""SQL in string literals of the program blobfs: no name of it is looked up by the search_path.

A role's search_path counts on the program's connections, so a stranger's operator, function, type
or table of the same name could run there.
"""

import re

LITERAL = r'"(?:\\.|[^"\\\n])*"'
MACRO = r"[A-Z][A-Z_]+(?:\((?:[^()]|\([^()]*\))*\))?"
CHAIN = re.compile(rf"(?:{LITERAL})(?:\s*(?:{LITERAL}|{MACRO}(?=\s*\")))*")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
IS_SQL = re.compile(r"\b(SELECT|FROM|WHERE|JOIN)\b.*[ %(]", re.S)
IS_COMMAND = re.compile(r"\s*(?:SET|BEGIN|PREPARE|EXPLAIN|ROLLBACK|DEALLOCATE|SAVEPOINT)\b")
QUALIFIED = re.compile(r"OPERATOR\(pg_catalog\.[^)]*\)")
# What the grammar knows: no look-up.
WORDS = {"coalesce", "any", "row", "array", "char"}
TYPES = {"bigint", "integer", "boolean", "char"}
# Names that the statement itself gives to its parts.
TABLES = {"base"}

FAULTS = (
    (re.compile(r"[=<>|+~!#&^]+"), "operator"),
    (re.compile(r"\b(?:IN \(|BETWEEN|LIKE|IS DISTINCT|IS NOT DISTINCT)"), "operator"),
    (re.compile(r"::([a-z]\w*)(?![\w.])"), "type"),
    (re.compile(r"(?<![\w.%$])([a-z]\w*)\("), "function"),
    (re.compile(r"\b(?:FROM|JOIN) ([a-z]\w*)(?![\w.(])"), "table"),
)


def statements(text):
    """Offset and text of each statement in a source, with macros between its literals left out."""
    text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in CHAIN.finditer(text):
        chain = "".join(re.findall(LITERAL, match.group())).replace('""', "")
        chain = re.sub(r"(?<!\\)\"", " ", chain)
        chain = re.sub(r"\\.", '"', chain)
        if IS_SQL.search(chain) and not chain.lstrip().startswith("usage: "):
            for part in chain.split(";"):
                yield match.start(), part


def faults(sql):
    sql = QUALIFIED.sub(" ", re.sub(r"'[^']*'", "''", sql))
    if IS_COMMAND.match(sql) and "SELECT" not in sql:
        return
    for pattern, what in FAULTS:
        for match in pattern.finditer(sql):
            word = match.group(1) if pattern.groups else match.group()
            known = {"type": TYPES, "function": WORDS, "table": TABLES}.get(what, set())
            if word not in known:
                yield what, word


def check_sql_strings(tree):
    """Operators, functions, types and tables of SQL that the program sends are qualified."""
    found = 0
    for name, text in tree.matching(".c", under="mount/src/"):
        for offset, sql in statements(text):
            found += 1
            for what, word in faults(sql):
                line = text.count("\n", 0, offset) + 1
                yield f"{name}:{line}: {what} {word} is not qualified"
    if found < 30:
        yield f"mount/src: only {found} statements of SQL were found"
