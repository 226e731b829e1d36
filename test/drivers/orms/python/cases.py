"""The cases of test/drivers/orms/README.md for ORMs of Python."""

import importlib.util
import os
import sys


def url(scheme):
    """Of the server, for ORMs that want a URL."""
    return (f"{scheme}://{os.environ['PGUSER']}@{os.environ['PGHOST']}:{os.environ['PGPORT']}/"
            f"{os.environ['PGDATABASE']}")


def values():
    directory = os.environ["ORM_VALUES"]
    for name in sorted(os.listdir(directory), key=int):
        with open(os.path.join(directory, name), "rb") as file:
            yield int(name), file.read()


def need(*modules):
    """Status 3 where one is missing.  One that is there and cannot be imported is a failure."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            print(f"# no module {module}", file=sys.stderr)
            sys.exit(3)


def ok(case, got, wanted):
    if got != wanted:
        sys.exit(f"not ok - {case}: {got!r:.200}, wanted: {wanted!r:.200}")
    print(f"ok - {case}")


def refused(case, function, *arguments):
    try:
        got = function(*arguments)
    except TypeError:
        print(f"ok - {case}")
    else:
        sys.exit(f"not ok - {case}: {got!r:.200}")


def run(orm):
    """An ORM has the methods that are called here; all but reflect() are needed."""
    contents = dict(values())
    last = max(contents)
    orm.migrate()
    ok("migrate", orm.changes(), [])
    for number, value in contents.items():
        orm.insert(number, value)
    orm.insert(last + 1, None)
    ok("insert and read", {number: orm.read(number) for number in contents} == contents, True)
    ok("NULL", orm.read(last + 1), None)
    for number in contents:
        orm.update(number, orm.read(number) + b"\\")
        orm.update(number, orm.read(number)[:-1])
    ok("update", {number: orm.read(number) for number in contents} == contents, True)
    ok("=", [orm.equal(value) for value in contents.values()], [[number] for number in contents])
    ok("IN", sorted(orm.among([contents[1], contents[last], b"none"])), [1, last])
    ok("ORDER BY", orm.ordered(), list(range(1, last + 2)))
    orm.insert(last + 2, contents[last])
    ok("count distinct", orm.distinct(), len(contents))
    if hasattr(orm, "reflect"):
        ok("reflect", orm.reflect(), orm.reflected)
    else:
        print(f"left out - reflect: {orm.no_reflection}")
