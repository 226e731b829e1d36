#!/usr/bin/env python3
"""A photo album: a web server and its page over one table of blobstate values; see README.md.

GET  /                      the page
GET  /photos?min_width=N    the photos, as JSON
GET  /photo/ID              a photo; byte ranges, conditions
PUT  /photo?name=NAME       upload, of known or unknown length
DELETE /photo/ID
GET  /space                 what the photos take, as JSON
"""

import argparse
import json
import pathlib
import re
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "streaming"))
from serve import Unsatisfiable, has_tag, parse_range  # noqa: E402

PIECE_BYTES = 1024 * 1024
MAX_UPLOAD_BYTES = 1024 * 1024 * 1024

CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}


class Refused(Exception):
    """An answer to the client: status and message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.message = message


class ClientGone(Exception):
    """The body of a request ended too early."""


# ---- the statements ----

def list_photos(connection, min_width):
    """The semantic index finds the photos; the stored columns show them. No content is read."""
    rows = connection.execute(
        "SELECT id, name, kind, (size).width, (size).height, length(content),"
        " encode(sha256(content), 'hex') FROM photo"
        " WHERE (image_size(content)).width >= %s ORDER BY id DESC", (min_width,))
    names = ("id", "name", "kind", "width", "height", "bytes", "sha256")
    return [dict(zip(names, row)) for row in rows]


def store_photo(connection, name, pieces):
    """Store a photo that arrives in pieces; return its id, and whether it was there before.

    The pieces go to an upload, so the content is written once, and the server has one piece in
    memory. The row of the photo shares the extents of the staged value. If anything fails, the
    transaction ends, and what it has written is freed.
    """
    with connection.transaction():
        number, = connection.execute("SELECT blob_upload_begin()").fetchone()
        for piece in pieces:
            connection.execute("SELECT blob_upload_write(%s, %b)", (number, piece))
        upload, = connection.execute("INSERT INTO upload (content) VALUES (blob_upload_end(%s))"
                                     " RETURNING id", (number,)).fetchone()
        while True:
            row = connection.execute(
                "INSERT INTO photo (name, content) SELECT %s, content FROM upload WHERE id = %s"
                " ON CONFLICT (content blobstate_digest_ops) DO NOTHING RETURNING id, false",
                (name, upload)).fetchone()
            # None: the same photo is there, or was until now.
            row = row or connection.execute(
                "SELECT photo.id, true FROM photo JOIN upload USING (content)"
                " WHERE upload.id = %s", (upload,)).fetchone()
            if row is not None:
                break
        connection.execute("DELETE FROM upload WHERE id = %s", (upload,))
    return row


def look_up(connection, photo):
    """Kind, size in bytes and digest, which are in the row."""
    return connection.execute("SELECT kind, length(content), sha256(content) FROM photo"
                              " WHERE id = %s", (photo,), binary=True).fetchone()


def read_piece(connection, photo, offset, length):
    row = connection.execute("SELECT blob_read(content, %s, %s) FROM photo WHERE id = %s",
                             (offset, length, photo), binary=True).fetchone()
    return row and row[0]


def delete_photo(connection, photo):
    return connection.execute("DELETE FROM photo WHERE id = %s RETURNING id",
                              (photo,)).fetchone() is not None


def space(connection):
    """Bytes of the photos; those of the store by state, for members of pg_monitor."""
    count, live = connection.execute(
        "SELECT count(*), coalesce(sum(length(content)), 0)::bigint FROM photo").fetchone()
    answer = {"photos": count, "bytes": live}
    try:
        answer["store"] = dict(connection.execute(
            "SELECT CASE WHEN state IN ('tier', 'tail') THEN 'allocated' ELSE state END,"
            " sum(bytes)::bigint FROM blobext_space WHERE state <> 'absent'"
            " GROUP BY 1 ORDER BY 1").fetchall())
    except psycopg.errors.InsufficientPrivilege:
        pass
    return answer


# ---- HTTP ----

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    dsn = ""

    def do_GET(self):
        self.route({r"/": self.send_page, r"/photos": self.send_list,
                    r"/photo/(\d{1,18})": self.send_photo, r"/space": self.send_space})

    def do_HEAD(self):
        self.route({r"/photo/(\d{1,18})": self.send_photo})

    def do_PUT(self):
        self.route({r"/photo": self.receive_photo})

    def do_DELETE(self):
        self.route({r"/photo/(\d{1,18})": self.remove_photo})

    def route(self, routes):
        self.headers_sent = False
        try:
            try:
                url = urllib.parse.urlsplit(self.path)
            except ValueError:
                raise Refused(400, "no such address") from None
            self.query = dict(urllib.parse.parse_qsl(url.query))
            for pattern, action in routes.items():
                match = re.fullmatch(pattern, url.path, re.ASCII)
                if match:
                    with psycopg.connect(self.dsn, autocommit=True) as connection:
                        action(connection, *match.groups())
                    return
            raise Refused(404, "no such page")
        except Refused as refused:
            # The rest of a body is not read.
            self.close_connection = True
            self.send_json(refused.status, {"error": refused.message}, close=True)
        except (ClientGone, ConnectionError):
            self.close_connection = True
        except psycopg.Error as error:
            self.close_connection = True
            self.log_error("%s", error)
            if not self.headers_sent:
                self.send_json(503, {"error": "the database does not answer"}, close=True)

    def end_headers(self):
        self.headers_sent = True
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def send_body(self, status, content_type, body, close=False):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, status, value, close=False):
        self.send_body(status, "application/json", json.dumps(value).encode(), close)

    def send_page(self, connection):
        self.send_body(200, "text/html; charset=utf-8", (HERE / "index.html").read_bytes())

    def send_list(self, connection):
        min_width = self.query.get("min_width", "0")
        if not re.fullmatch(r"\d{1,9}", min_width, re.ASCII):
            raise Refused(400, "min_width is no number")
        self.send_json(200, list_photos(connection, int(min_width)))

    def send_space(self, connection):
        self.send_json(200, space(connection))

    def remove_photo(self, connection, photo):
        if not delete_photo(connection, photo):
            raise Refused(404, "no such photo")
        self.send_response(204)
        self.end_headers()

    # ---- download ----

    def send_photo(self, connection, photo):
        row = look_up(connection, photo)
        if row is None:
            raise Refused(404, "no such photo")
        kind, size, digest = row
        tag = f'"{digest.hex()}"'
        status, offset, length = self.choose_range(size, tag)
        self.send_response(status)
        self.send_header("ETag", tag)
        self.send_header("Accept-Ranges", "bytes")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{size}")
        if status == 206:
            self.send_header("Content-Range", f"bytes {offset}-{offset + length - 1}/{size}")
        if status != 304:
            self.send_header("Content-Type", CONTENT_TYPES[kind])
            self.send_header("Content-Length", str(length))
        # An id is never given to another content: a photo is stored or deleted, not changed.
        self.send_header("Cache-Control", "max-age=31536000, immutable")
        self.end_headers()
        if self.command == "GET":
            self.send_pieces(connection, photo, offset, length)

    def choose_range(self, size, tag):
        """Status, first byte and length of the answer."""
        if has_tag(self.headers.get("If-None-Match", ""), tag):
            return 304, 0, 0
        if self.command == "GET" and self.headers.get("If-Range", tag).strip() == tag:
            try:
                wanted = parse_range(self.headers.get("Range", ""), size)
            except Unsatisfiable:
                return 416, 0, 0
            if wanted:
                return 206, *wanted
        return 200, 0, size

    def send_pieces(self, connection, photo, offset, length):
        while length > 0:
            piece = read_piece(connection, photo, offset, min(length, PIECE_BYTES))
            if not piece:
                # Deleted meanwhile: the client sees that the body is too short.
                raise ClientGone
            self.wfile.write(piece)
            offset += len(piece)
            length -= len(piece)

    # ---- upload ----

    def receive_photo(self, connection):
        name = self.query.get("name", "").strip()
        if not name or "\0" in name or len(name) > 200:
            raise Refused(400, "a photo needs a name of 1 to 200 characters")
        try:
            photo, was_there = store_photo(connection, name, self.pieces())
        except (psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation):
            raise Refused(415, "this is no PNG and no JPEG") from None
        self.send_json(200 if was_there else 201, {"id": photo, "duplicate": was_there})

    def pieces(self):
        """The body in pieces. Its length may be unknown until its end."""
        received = 0
        if self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
            source = self.chunks()
        elif re.fullmatch(r"\d{1,18}", self.headers.get("Content-Length", ""), re.ASCII):
            source = self.read_exactly(int(self.headers["Content-Length"]))
        else:
            raise Refused(411, "neither a length nor chunks")
        collected = bytearray()
        for part in source:
            received += len(part)
            if received > MAX_UPLOAD_BYTES:
                raise Refused(413, f"larger than {MAX_UPLOAD_BYTES} bytes")
            collected += part
            # Chunks are as short as the client likes; a piece costs a round trip.
            if len(collected) >= PIECE_BYTES:
                yield bytes(collected)
                collected.clear()
        if collected:
            yield bytes(collected)

    def read_exactly(self, length):
        while length > 0:
            part = self.rfile.read(min(length, PIECE_BYTES))
            if not part:
                raise ClientGone
            length -= len(part)
            yield part

    def chunks(self):
        """The chunks of a body: each a line with its length in hex, the bytes, and an empty line;
        the last one is empty, and lines of trailers follow it."""
        while True:
            line = self.rfile.readline(1000)
            match = re.fullmatch(rb"([0-9A-Fa-f]{1,15})\s*(;.*)?\r?\n", line)
            if not line:
                raise ClientGone
            if not match:
                raise Refused(400, "a chunk without its length")
            length = int(match[1], 16)
            if length == 0:
                break
            yield from self.read_exactly(length)
            if self.rfile.readline(3) not in (b"\r\n", b"\n"):
                raise Refused(400, "a chunk without its end")
        while self.rfile.readline(10000) not in (b"\r\n", b"\n", b""):
            pass


def make_server(dsn, address=("127.0.0.1", 0)):
    return ThreadingHTTPServer(address, type("Handler", (Handler,), {"dsn": dsn}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", default="", help="connection string; default: as psql")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()

    server = make_server(options.dsn, ("127.0.0.1", options.port))
    print(f"http://127.0.0.1:{server.server_port}/")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
