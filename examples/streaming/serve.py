#!/usr/bin/env python3
"""Serve blobstate values over HTTP, with range requests; see README.md.

GET and HEAD of /name return the value of that name in table file.  The ETag is the SHA-256 of the
content, which comes from the row.  So caches and resumed downloads never mix versions, and If-Range
and If-None-Match cost no more than reading the row.
"""

import argparse
import re
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

PIECE_BYTES = 1024 * 1024

ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII | re.IGNORECASE)


class Unsatisfiable(Exception):
    pass


def number(digits):
    """A decimal number of any length.  int() refuses some thousand digits, which are no error here;
    what counts is that such a number is larger than any size."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 30 else 10 ** len(digits)


def is_less(a, b):
    """Order of two decimal numbers of any length."""
    a, b = a.lstrip("0"), b.lstrip("0")
    return (len(a), a) < (len(b), b)


def parse_range(header, size):
    """First byte and length of the range of a Range header; None if the header is to be ignored:
    another unit, several ranges, malformed.  Unsatisfiable: the value has no byte of the range."""
    match = ONE_RANGE.fullmatch(header)
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        length = min(number(last), size)
        if length == 0:
            raise Unsatisfiable
        return size - length, length
    if last and is_less(last, first):
        return None
    start = number(first)
    if start >= size:
        raise Unsatisfiable
    end = min(number(last), size - 1) if last else size - 1
    return start, end - start + 1


def has_tag(header, tag):
    """Does an If-None-Match header name the tag?"""
    tags = [candidate.strip().removeprefix("W/") for candidate in header.split(",")]
    return "*" in tags or tag in tags


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    dsn = ""

    def do_GET(self):
        self.answer(is_head=False)

    def do_HEAD(self):
        self.answer(is_head=True)

    def answer(self, is_head):
        try:
            path = urllib.parse.urlsplit(self.path).path
        except ValueError:
            self.send_error(400)
            return
        name = urllib.parse.unquote(path).removeprefix("/")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = None
            if "\0" not in name:
                row = connection.execute("SELECT length(content), sha256(content) FROM file"
                                         " WHERE name = %s", (name,), binary=True).fetchone()
            if row is None:
                self.send_error(404)
                return
            size, digest = row
            wanted = self.send_head(size, f'"{digest.hex()}"', is_head)
            if wanted is not None and not is_head:
                self.send_content(connection, name, digest, *wanted)

    def send_head(self, size, tag, is_head):
        """Send status and headers; return first byte and length of the body, or None."""
        if has_tag(self.headers.get("If-None-Match", ""), tag):
            self.send_response(304)
            self.send_header("ETag", tag)
            self.end_headers()
            return None
        wanted = None
        # A range of another version is of no use: then the whole value is sent.
        if not is_head and self.headers.get("If-Range", tag).strip() == tag:
            try:
                wanted = parse_range(self.headers.get("Range", ""), size)
            except Unsatisfiable:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
        if wanted:
            self.send_response(206)
            self.send_header("Content-Range",
                             f"bytes {wanted[0]}-{wanted[0] + wanted[1] - 1}/{size}")
        else:
            self.send_response(200)
            wanted = (0, size)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(wanted[1]))
        self.send_header("ETag", tag)
        self.end_headers()
        return wanted

    def send_content(self, connection, name, digest, offset, length):
        """Send a range, piece by piece, as long as the value is the version of the headers."""
        while length > 0:
            row = connection.execute("SELECT blob_read(content, %s, %s) FROM file"
                                     " WHERE name = %s AND sha256(content) = %s",
                                     (offset, min(length, PIECE_BYTES), name, digest),
                                     binary=True).fetchone()
            if row is None:
                # Too late for an error: the client sees that the body is too short.
                self.close_connection = True
                return
            self.wfile.write(row[0])
            offset += len(row[0])
            length -= len(row[0])


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
