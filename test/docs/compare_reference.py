#!/usr/bin/env python3
"""Compares docs/reference.md with the catalogs of a server and with the source.

Usage: compare_reference.py TREE; database demo of the server that the environment names has the
extension.  Each function, operator, cast, operator class, view, column, counter, setting, SQLSTATE
and lock name must be in the table of its kind, with the properties that the table shows, and
nothing else may be.

Seen to fail with each of these: a function left out, one too many, another default of a parameter,
a column of a view left out, another type of one, a counter, a setting and an SQLSTATE left out,
another default, range and context of a setting, an operator without bytea, a lock name left out.
"""

import os
import pathlib
import re
import subprocess
import sys

INT_MAX = 2**31 - 1
UNITS = {"B": ("B", 1), "kB": ("B", 1024), "MB": ("B", 1024**2), "GB": ("B", 1024**3),
         "ms": ("ms", 1), "s": ("ms", 1000), "min": ("ms", 60000)}
CONTEXTS = {"user": "session", "superuser": "superuser", "sighup": "reload",
            "postmaster": "restart"}


class Reference:
    """Tables of the document: by the heading they are under, and the header's first cell."""

    def __init__(self, text):
        self.tables = []
        headings = {}
        table = None
        for line in text.split("\n"):
            if match := re.match(r"(#+) (.*)", line):
                headings = {k: v for k, v in headings.items() if k < len(match[1])}
                headings[len(match[1])] = match[2].strip("`")
            if not line.startswith("|"):
                table = None
                continue
            cells = [cell.strip().replace(r"\|", "|")
                     for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if table is None:
                table = (headings.get(max(headings)), cells[0], [])
                self.tables.append(table)
            elif set("".join(cells)) - set("-"):
                table[2].append(cells)

    def rows(self, kind, heading=None):
        return [cells for title, first, rows in self.tables if first == kind
                and heading in (None, title) for cells in rows]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def query(sql):
    """Rows of a query, as tuples of strings."""
    command = ["psql", "-X", "-q", "-A", "-t", "-d", "demo", "-v", "ON_ERROR_STOP=1",
               "-F", "\x1f", "-R", "\x1e", "-c", sql]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [tuple(row.split("\x1f")) for row in output.rstrip("\n").split("\x1e") if row]


MEMBERS = """(SELECT classid, objid FROM pg_depend WHERE deptype = 'e'
    AND refclassid = 'pg_extension'::regclass
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'blobext')) AS member"""

FUNCTIONS = f"""
WITH parameter AS (
    SELECT p.oid, i, coalesce(quote_ident(nullif(proargnames[i], '')) || ' ', '')
            || format_type(coalesce(proallargtypes[i], proargtypes[i - 1]), NULL) AS text,
        coalesce(proargmodes[i], 'i') IN ('i', 'v') AS is_input,
        ' DEFAULT ' || regexp_replace(pg_get_function_arg_default(p.oid, i), '::\\w+$', '')
            AS default_text
    FROM pg_proc AS p,
        generate_series(1, coalesce(array_length(proallargtypes, 1), pronargs)) AS i)
SELECT prokind IN ('a'), proname || '(' || coalesce((SELECT string_agg(text
            || coalesce(default_text, ''), ', ' ORDER BY i)
        FROM parameter WHERE parameter.oid = p.oid AND is_input), '') || ')',
    coalesce((SELECT CASE WHEN proretset THEN 'SETOF ' ELSE '' END || '('
            || string_agg(text, ', ' ORDER BY i) || ')'
        FROM parameter WHERE parameter.oid = p.oid AND NOT is_input HAVING count(*) > 0),
        pg_get_function_result(p.oid), 'procedure')
FROM pg_proc AS p JOIN {MEMBERS} ON classid = 'pg_proc'::regclass AND objid = p.oid"""


def compare(what, documented, found):
    documented, found = list(documented), set(found)
    problems = [f"not in the document: {item}" for item in sorted(found - set(documented))]
    problems += [f"only in the document: {item}" for item in sorted(set(documented) - found)]
    problems += [f"twice in the document: {item}" for item in sorted(set(documented))
                 if documented.count(item) > 1]
    if not found:
        problems.append("nothing found")
    print(f"{'not ok' if problems else 'ok'} - reference: {what}, {len(found)}")
    for problem in problems:
        print(f"#   {problem}")
    return not problems


def compare_functions(reference):
    documented = [(signature, code(row[1])[0]) for row in reference.rows("function")
                  for signature in code(row[0])]
    aggregates = [signature for row in reference.rows("function", "Aggregates")
                  for signature in code(row[0])]
    found = query(FUNCTIONS)
    return [compare("functions and their results", documented, [row[1:] for row in found]),
            compare("aggregates", aggregates, [row[1] for row in found if row[0] == "t"])]


def compare_operators(reference):
    operators = [(row[0].strip("`"), operands) for row in reference.rows("operator")
                 for operands in code(row[1])]
    yield compare("operators", operators, query(f"""
        SELECT oprname, format('%s %s %s', oprleft::regtype, oprname, oprright::regtype)
        FROM pg_operator AS o JOIN {MEMBERS} ON classid = 'pg_operator'::regclass
            AND objid = o.oid"""))
    casts = [(code(row[0])[0], row[1]) for row in reference.rows("cast")]
    yield compare("casts", casts, query(f"""
        SELECT format('%s AS %s', castsource::regtype, casttarget::regtype),
            CASE castcontext WHEN 'a' THEN 'assignment' WHEN 'i' THEN 'implicit'
                ELSE 'explicit' END
        FROM pg_cast AS c JOIN {MEMBERS} ON classid = 'pg_cast'::regclass AND objid = c.oid"""))
    classes = [(code(row[0])[0], row[1], row[2]) for row in reference.rows("operator class")]
    yield compare("operator classes", classes, query(f"""
        SELECT opcname, amname, CASE WHEN opcdefault THEN 'yes' ELSE 'no' END
        FROM pg_opclass AS c JOIN pg_am AS m ON m.oid = opcmethod
            JOIN {MEMBERS} ON classid = 'pg_opclass'::regclass AND objid = c.oid"""))
    yield compare("kinds of objects", ["pg_am", "pg_cast", "pg_class", "pg_opclass", "pg_operator",
                                       "pg_opfamily", "pg_proc", "pg_type"],
                  [row[0] for row in query(f"SELECT DISTINCT classid::regclass FROM {MEMBERS}")])
    types = [code(row[0])[0] for row in reference.rows("type")]
    yield compare("types", types, [row[0] for row in query(f"""
        SELECT format_type(t.oid, NULL) FROM pg_type AS t JOIN {MEMBERS}
            ON classid = 'pg_type'::regclass AND objid = t.oid
        WHERE typrelid = 0 AND typelem = 0""")])


def compare_views(reference):
    columns = []
    for title, first, rows in reference.tables:
        for row in rows if first == "column" else []:
            if row[0].startswith("all columns of"):
                columns += [(title, *column[1:]) for column in columns
                            if column[0] == code(row[0])[0]]
            else:
                columns.append((title, code(row[0])[0], code(row[1])[0]))
    yield compare("columns of views and tables", columns, query(f"""
        SELECT relname, attname, format_type(atttypid, atttypmod)
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid
            JOIN {MEMBERS} ON classid = 'pg_class'::regclass AND objid = c.oid
        WHERE attnum > 0"""))
    yield compare("counters", [code(row[0])[0] for row in reference.rows("counter")],
                  [row[0] for row in query("SELECT name FROM blobext_stat")])


def in_base_units(text, unit):
    """'64MB', of a setting in kB: 65536.0; a text without a number stays as it is."""
    match = re.fullmatch(r"(-?[\d.]+)\s*(\w*)", text)
    if not match:
        return text
    number = float(match[1])
    if match[2]:
        kind, factor = UNITS[match[2]]
        base_kind, base_factor = UNITS[unit]
        if kind != base_kind:
            return text
        number = number * factor / base_factor
    return number


def range_of(cell, unit):
    """Least and largest value of a cell like "0 to 1MB" or "1s or more"."""
    if match := re.fullmatch(r"(\S+) to (\S+)", cell):
        return in_base_units(match[1], unit), in_base_units(match[2], unit)
    if match := re.fullmatch(r"(\S+) or more", cell):
        return in_base_units(match[1], unit), "no limit"
    return cell


def range_in_catalog(kind, least, largest, enum_values):
    if kind == "enum":
        return ", ".join(re.findall(r"\w+", enum_values))
    if kind in ("bool", "string"):
        return ""
    # Some count seconds or kB in a number of smaller units.
    limit = "no limit" if float(largest) >= INT_MAX // 1000 else float(largest)
    return float(least), limit


def compare_settings(reference):
    settings = {row[0]: row[1:] for row in query("""
        SELECT name, vartype, coalesce(boot_val, ''), coalesce(min_val, ''),
            coalesce(max_val, ''), coalesce(unit, ''), context, coalesce(enumvals::text, '')
        FROM pg_settings WHERE name LIKE 'blobext.%'""")}
    documented = []
    for name, default, limits, context, _ in reference.rows("setting"):
        name = code(name)[0]
        unit = settings.get(name, [""] * 5)[4]
        documented.append((name, in_base_units(default, unit), range_of(limits, unit), context))
    found = [(name, in_base_units(boot, unit), range_in_catalog(kind, least, largest, values),
              CONTEXTS[context])
             for name, (kind, boot, least, largest, unit, context, values) in settings.items()]
    return compare("settings", map(str, documented), map(str, found))


def sqlstates_of_source(tree):
    """SQLSTATEs of all errcode(...) in src."""
    include = subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), "--includedir-server"],
                             capture_output=True, text=True, check=True).stdout.strip()
    definition = re.compile(
        r"#define (ERRCODE_\w+) MAKE_SQLSTATE\('(.)', *'(.)', *'(.)', *'(.)', *'(.)'\)")
    headers = pathlib.Path(include, "utils/errcodes.h").read_text()
    sources = "".join(path.read_text() for path in sorted((tree / "src").rglob("*.[ch]")))
    codes = {match[0]: "".join(match[1:]) for match in definition.findall(headers + sources)}
    return {codes[macro] for call in re.findall(r"\berrcode\(([^()]*)\)", sources)
            for macro in re.findall(r"ERRCODE_\w+", call)}


def compare_source(reference, tree):
    yield compare("SQLSTATEs", [row[0] for row in reference.rows("SQLSTATE")],
                  sqlstates_of_source(tree))
    text = (tree / "docs/reference.md").read_text()
    sentence = re.search(r"Lock waits appear as (.*?);", text, re.S)
    sources = "".join(path.read_text() for path in sorted((tree / "src").rglob("*.[ch]")))
    yield compare("names of locks", code(sentence[1]) if sentence else [],
                  re.findall(r'(?:#define \w*TRANCHE\w*|\.tranche =) "(\w+)"', sources))
    header = (tree / "src/api/blobext.h").read_text()
    yield compare("C functions",
                  [code(row[0])[0].split("(")[0] for row in reference.rows("C function")],
                  set(re.findall(r"^(blobext_\w+)\(", header, re.M)) - {"blobext_api"})


def main():
    tree = pathlib.Path(sys.argv[1])
    reference = Reference((tree / "docs/reference.md").read_text())
    results = [*compare_functions(reference), *compare_operators(reference),
               *compare_views(reference), compare_settings(reference),
               *compare_source(reference, tree)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
