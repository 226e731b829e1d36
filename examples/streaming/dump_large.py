#!/usr/bin/env python3
"""Dump a database whose values are too large for pg_dump, and restore it; see README.md.

pg_dump writes everything but the data of tables with a large value.  This program writes the rows
of these tables, each large value to a file of its own, in pieces, all as of one snapshot.
Restoring verifies the SHA-256 of every large value.  Neither side has more than a piece, or a row
without its large values, in memory.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys

import psycopg
from psycopg import sql

PIECE_BYTES = 4 * 1024 * 1024

# Tables with rows of their own (partitions, but not partitioned tables), of no extension.
TABLES = """
SELECT c.oid, n.nspname, c.relname, array_agg(a.attname ORDER BY a.attnum),
    array_agg(a.attname ORDER BY a.attnum) FILTER (WHERE coalesce(nullif(t.typbasetype, 0), t.oid) =
        (SELECT oid FROM pg_type WHERE typname = 'blobstate' AND typnamespace = e.extnamespace))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = ''
    JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_extension AS e ON e.extname = 'blobext'
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND NOT EXISTS (SELECT FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e')
GROUP BY c.oid, n.nspname, c.relname ORDER BY c.oid"""


class DumpError(Exception):
    """The database or the dump is not as it should be."""


def connect(dsn):
    """A connection that finds PostgreSQL's objects and those of the extension's schema."""
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("SET search_path = pg_catalog, pg_temp")
    row = connection.execute("SELECT extnamespace::regnamespace::text FROM pg_extension"
                             " WHERE extname = 'blobext'").fetchone()
    if row is None:
        raise DumpError("the database does not have the extension blobext")
    connection.execute(f"SET search_path = pg_catalog, {row[0]}, pg_temp")
    connection.execute("SET row_security = off")
    return connection


def content(column):
    """A column of blobstate, or of a domain over it, as an argument.  Together with casts of all
    others it has the types of the extension's functions: others of the same names, which other
    roles may have made in their schema, are never a closer match."""
    return sql.SQL("({}::blobstate)").format(sql.Identifier(column))


def escaped(part, connection):
    """A part of a statement with parameters: a % in a name is no placeholder."""
    return sql.SQL(part.as_string(connection).replace("%", "%%"))


def copy_out(connection, query, path):
    with open(path, "wb") as file, connection.cursor().copy(
            sql.SQL("COPY ({}) TO STDOUT").format(query)) as copy:
        for data in copy:
            file.write(data)


def copy_in(connection, target, path):
    with open(path, "rb") as file, connection.cursor().copy(
            sql.SQL("COPY {} FROM STDIN").format(target)) as copy:
        while data := file.read(PIECE_BYTES):
            copy.write(data)


def names(columns):
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def dump_value(connection, table, tid, column, path):
    """Write a value to a file; return its size and digest, which are verified."""
    value, table = escaped(content(column), connection), escaped(table, connection)
    size, expected = connection.execute(
        sql.SQL("SELECT length({0}), sha256({0}) FROM ONLY {1} WHERE ctid = %s::tid").format(
            value, table), (tid,), binary=True).fetchone()
    query = sql.SQL("SELECT blob_read({}, %s::bigint, %s::bigint) FROM ONLY {}"
                    " WHERE ctid = %s::tid").format(value, table)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for offset in range(0, size, PIECE_BYTES):
            piece = connection.execute(query, (offset, PIECE_BYTES, tid), binary=True).fetchone()[0]
            file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    if digest.digest() != expected:
        raise DumpError(f"{path}: the value does not have its digest")
    return {"column": column, "file": os.path.basename(path), "size": size,
            "sha256": digest.hexdigest()}


def dump_table(connection, directory, oid, table, columns, blob_columns, limit):
    """Write the rows of a table; return how to restore them, None if no value is large."""
    is_large = {column: sql.SQL("coalesce(length({}) > {}::bigint, false)").format(
        content(column), limit) for column in blob_columns}
    any_large = sql.SQL(" OR ").join(is_large.values())
    large = connection.execute(
        sql.SQL("SELECT ctid::text, ARRAY[{}] FROM ONLY {} WHERE {} ORDER BY ctid").format(
            sql.SQL(", ").join(is_large.values()), table, any_large)).fetchall()
    if not large:
        return None
    copy_out(connection, sql.SQL("SELECT {} FROM ONLY {} WHERE NOT ({})").format(
        names(columns), table, any_large), os.path.join(directory, f"{oid}.rows"))
    rows = []
    for number, (tid, flags) in enumerate(large):
        large_columns = [column for column, flag in zip(blob_columns, flags) if flag]
        others = [column for column in columns if column not in large_columns]
        path = os.path.join(directory, f"{oid}.{number}")
        copy_out(connection, sql.SQL("SELECT {} FROM ONLY {} WHERE ctid = {}::tid").format(
            names(others), table, tid), path + ".row")
        rows.append({"file": os.path.basename(path + ".row"), "columns": others, "values": [
            dump_value(connection, table, tid, column, f"{path}.{columns.index(column)}")
            for column in large_columns]})
    return {"columns": columns, "file": f"{oid}.rows", "rows": rows}


def dump(dsn, directory, limit, jobs=1):
    """Dump a database to a new directory; return the number of large values."""
    os.mkdir(directory)
    large_directory = os.path.join(directory, "large")
    os.mkdir(large_directory)
    tables = []
    with connect(dsn) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshot = connection.execute("SELECT pg_export_snapshot()").fetchone()[0]
        for oid, schema, name, columns, blob_columns in connection.execute(TABLES).fetchall():
            table = blob_columns and dump_table(connection, large_directory, oid,
                                                sql.Identifier(schema, name), columns,
                                                blob_columns, limit)
            if table:
                tables.append({"schema": schema, "name": name, **table})
        excluded = ["--exclude-table-data=" +
                    sql.Identifier(table["schema"], table["name"]).as_string(connection)
                    for table in tables]
        subprocess.run(["pg_dump", "-Fd", f"--jobs={jobs}", f"--snapshot={snapshot}",
                        f"--file={os.path.join(directory, 'dump')}", f"--dbname={dsn}", *excluded],
                       check=True)
    with open(os.path.join(directory, "large.json"), "w", encoding="utf-8") as file:
        json.dump(tables, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    return sum(len(row["values"]) for table in tables for row in table["rows"])


def restore_value(connection, value, path):
    """Append a file to a column of the one row of the temporary table."""
    append = sql.SQL("UPDATE pg_temp.large SET {} = blob_append({}, %b::bytea)").format(
        escaped(sql.Identifier(value["column"]), connection),
        escaped(content(value["column"]), connection))
    connection.execute(sql.SQL("UPDATE pg_temp.large SET {} = ''").format(
        sql.Identifier(value["column"])))
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            connection.execute(append, (piece,))
    found = connection.execute(sql.SQL("SELECT length({0}), encode(sha256({0}), 'hex'::text)"
                                       " FROM pg_temp.large").format(
                                           content(value["column"]))).fetchone()
    if found != (value["size"], value["sha256"]):
        raise DumpError(f"{path}: the file is not what was dumped")


def restore_row(connection, directory, table, columns, row):
    """Make a row with large values in a temporary table without constraints, then insert it."""
    with connection.transaction():
        connection.execute(sql.SQL("CREATE TEMPORARY TABLE large ON COMMIT DROP AS"
                                   " SELECT {} FROM {} WITH NO DATA").format(names(columns), table))
        if row["columns"]:
            copy_in(connection, sql.SQL("pg_temp.large ({})").format(names(row["columns"])),
                    os.path.join(directory, row["file"]))
        else:
            connection.execute("INSERT INTO pg_temp.large DEFAULT VALUES")
        for value in row["values"]:
            restore_value(connection, value, os.path.join(directory, value["file"]))
        connection.execute(sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {}"
                                   " FROM pg_temp.large").format(
                                       table, names(columns), names(columns)))


def restore(dsn, directory, jobs=1):
    """Restore a dump to an empty database; return the number of large values."""
    def pg_restore(section):
        subprocess.run(["pg_restore", f"--section={section}", "--exit-on-error", f"--jobs={jobs}",
                        f"--dbname={dsn}", os.path.join(directory, "dump")], check=True)

    with open(os.path.join(directory, "large.json"), encoding="utf-8") as file:
        tables = json.load(file)
    pg_restore("pre-data")
    pg_restore("data")
    large_directory = os.path.join(directory, "large")
    with connect(dsn) as connection:
        for entry in tables:
            table = sql.Identifier(entry["schema"], entry["name"])
            copy_in(connection, sql.SQL("{} ({})").format(table, names(entry["columns"])),
                    os.path.join(large_directory, entry["file"]))
            for row in entry["rows"]:
                restore_row(connection, large_directory, table, entry["columns"], row)
    pg_restore("post-data")
    return sum(len(row["values"]) for table in tables for row in table["rows"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=("dump", "restore"))
    parser.add_argument("directory", help="a new one, or one that dump has made")
    parser.add_argument("--dsn", default="", help="connection string; default: as psql")
    parser.add_argument("--limit", type=int, default=100, help="values over so many MB are large")
    parser.add_argument("--jobs", type=int, default=1, help="of pg_dump and pg_restore")
    options = parser.parse_args()

    try:
        if options.direction == "dump":
            count = dump(options.dsn, options.directory, options.limit * 1_000_000, options.jobs)
        else:
            count = restore(options.dsn, options.directory, options.jobs)
    except (DumpError, psycopg.Error, OSError, subprocess.CalledProcessError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(f"{count} large values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
