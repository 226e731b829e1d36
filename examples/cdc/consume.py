#!/usr/bin/env python3
"""Follows a publication, and prints a line of JSON for each change of a row.

    consume.py CONNINFO SLOT PUBLICATION [--until LSN] [--fetch DIRECTORY]

Content in a change, of type blobstate or bytea, is shown by its size and SHA-256.  With --fetch,
rows that come without content, but with the columns id and content_sha256, are completed: content
is read in pieces by another connection, compared with the digest, and written to DIRECTORY/DIGEST.
The slot is made if it is missing.  Needs psycopg2.
"""
import argparse
import hashlib
import json
import os
import select
import struct

import psycopg2
import psycopg2.errors
import psycopg2.extras
import psycopg2.sql

PIECE_BYTES = 1 << 20
BYTEA_OID = 17


class Message:
    """A message of pgoutput, read from front to back."""

    def __init__(self, data):
        self.data, self.position = data, 0

    def take(self, form):
        values = struct.unpack_from("!" + form, self.data, self.position)
        self.position += struct.calcsize("!" + form)
        return values[0] if len(values) == 1 else values

    def bytes(self, count):
        self.position += count
        return self.data[self.position - count:self.position]

    def text(self):
        end = self.data.index(b"\0", self.position)
        value = self.data[self.position:end].decode()
        self.position = end + 1
        return value


class Changes:
    """Turns messages into rows; keeps what they say about types and relations."""

    def __init__(self):
        self.byte_types = {BYTEA_OID}
        self.relations = {}

    def read_type(self, message):
        oid, _schema, name = message.take("I"), message.text(), message.text()
        if name == "blobstate":
            self.byte_types.add(oid)

    def read_relation(self, message):
        oid, schema, name, _identity = (message.take("I"), message.text(), message.text(),
                                        message.take("B"))
        columns = []
        for _ in range(message.take("H")):
            message.take("B")
            columns.append((message.text(), message.take("I")))
            message.take("I")
        self.relations[oid] = (schema, name, columns)

    def read_row(self, message, columns):
        row = {}
        message.take("H")
        for name, type_oid in columns:
            kind = message.take("c")
            if kind == b"n":
                row[name] = None
            elif kind == b"t":
                value = message.bytes(message.take("I"))
                # The text of bytes, in both types: \x and two digits per byte.
                row[name] = (bytes.fromhex(value[2:].decode()) if type_oid in self.byte_types
                             else value.decode())
        return row

    def read(self, data):
        """(kind, schema, table, row), or None: the message is no change of a row."""
        message = Message(data)
        kind = message.take("c").decode()
        if kind == "Y":
            self.read_type(message)
        elif kind == "R":
            self.read_relation(message)
        elif kind in "IUD":
            schema, name, columns = self.relations[message.take("I")]
            part = message.take("c")
            row = self.read_row(message, columns)
            if kind == "U" and part in (b"K", b"O"):        # the old key comes first
                message.take("c")
                row = self.read_row(message, columns)
            return kind, schema, name, row
        return None


def fetch(connection, schema, table, row, directory):
    """Writes the content of a row; false if it has another one by now, whose change will come."""
    digest = row["content_sha256"]
    path = os.path.join(directory, digest.hex())
    query = psycopg2.sql.SQL(
        "SELECT blob_read(content, %s, %s) FROM {} WHERE id = %s AND sha256(content) = %s").format(
            psycopg2.sql.Identifier(schema, table))
    found, offset = hashlib.sha256(), 0
    with connection, connection.cursor() as cursor, open(path + ".part", "wb") as file:
        while True:
            cursor.execute(query, (offset, PIECE_BYTES, row["id"], digest))
            answer = cursor.fetchone()
            if answer is None:
                os.remove(path + ".part")
                return False
            piece = bytes(answer[0])
            found.update(piece)
            file.write(piece)
            offset += len(piece)
            if len(piece) < PIECE_BYTES:
                break
    if found.digest() != digest:
        raise RuntimeError(f"{path}: content has another digest than the row")
    os.rename(path + ".part", path)
    return True


def show(change):
    kind, schema, table, row = change
    shown = {name: {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
             if isinstance(value, bytes) else value for name, value in row.items()}
    print(json.dumps({"kind": kind, "table": f"{schema}.{table}", "row": shown}), flush=True)


def lsn(text):
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def start(conninfo, slot, publication):
    connection = psycopg2.connect(
        conninfo, connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = connection.cursor()
    try:
        cursor.create_replication_slot(slot, output_plugin="pgoutput")
    except psycopg2.errors.DuplicateObject:
        pass
    cursor.start_replication(slot_name=slot, decode=False, options={
        "proto_version": "1", "publication_names": publication})
    return cursor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("conninfo")
    parser.add_argument("slot")
    parser.add_argument("publication")
    parser.add_argument("--until", type=lsn)
    parser.add_argument("--fetch", metavar="DIRECTORY")
    options = parser.parse_args()
    reader = psycopg2.connect(options.conninfo) if options.fetch else None
    changes = Changes()

    def consume(message):
        change = changes.read(message.payload)
        if change is not None:
            show(change)
            schema, table, row = change[1:]
            if reader and change[0] != "D" and row.get("content_sha256") and "content" not in row:
                fetch(reader, schema, table, row, options.fetch)
        elif message.payload[:1] == b"C":
            # Confirmed when it is done with; changes behind it come again after a crash.
            _flags, _start, end = struct.unpack_from("!BQQ", message.payload, 1)
            message.cursor.send_feedback(flush_lsn=end)

    cursor = start(options.conninfo, options.slot, options.publication)
    while True:
        message = cursor.read_message()
        if message is not None:
            consume(message)
            continue
        if options.until and cursor.wal_end >= options.until:
            break
        cursor.send_feedback(reply=options.until is not None)
        select.select([cursor], [], [], 1)
    cursor.send_feedback(force=True)


main()
