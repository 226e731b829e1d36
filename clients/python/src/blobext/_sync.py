"""Files, uploads and downloads for code without asyncio."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Callable, Iterator, Optional, Union

import psycopg

from ._common import (COPY_BEGIN, COPY_BYTES, COPY_END, FIND_EQUALITY, FIND_MEMBERS, PAUSES,
                      PIECE_BYTES, SECTION_BYTES, BlobChanged, BlobMismatch, BlobMissing,
                      BlobUnexpected, FirstError, Members, Progress, RowLimit, Stage, Statements,
                      Summary, Value, check, copy_row, equality, equality_parameters, flush,
                      hash_beginning, hash_stage, is_lost, new_position, range_in, read_piece,
                      remaining_size, take, take_piece, take_size, take_summary)

Connection = psycopg.Connection[Any]
Connect = Union[str, Callable[[], Connection]]
Path = Union[str, "os.PathLike[str]"]


# Facts about a connection's database: the members of the extension, and how the columns of keys
# are compared.
_members: "weakref.WeakKeyDictionary[Connection, Members]" = weakref.WeakKeyDictionary()
_equality: ("weakref.WeakKeyDictionary[Connection, dict[Any, dict[str, str]]]"
            ) = weakref.WeakKeyDictionary()


def _rows(connection: Connection, query: Any, parameters: Any) -> "list[tuple[Any, ...]]":
    """The rows of a statement, which are few.  They come one by one: a server that gives them
    without end costs its connection, and no memory."""
    rows: "list[tuple[Any, ...]]" = []
    limit = RowLimit()
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        for row in cursor.stream(query, parameters, binary=True):
            limit.count(row)
            if limit.is_reached:
                connection.close()
                raise BlobUnexpected("the server gives rows without end")
            rows.append(row)
    return rows


def _row(connection: Connection, query: Any, parameters: Any) -> Any:
    """The first row of a statement as a tuple, or None."""
    rows = _rows(connection, query, parameters)
    return rows[0] if rows else None


def _run(connection: Connection, query: Any, parameters: Any) -> None:
    _rows(connection, query, parameters)


def _find_members(connection: Connection) -> Members:
    members = _members.get(connection)
    if members is None:
        members = Members(_rows(connection, FIND_MEMBERS, None))
        _members[connection] = members
    return members


def _statements(connection: Connection, value: Value) -> Statements:
    """The statements for a value on this connection."""
    members = _find_members(connection)
    parameters = equality_parameters(value)
    known = _equality.setdefault(connection, {})
    key = (parameters["table"], *parameters["names"])
    if key not in known:
        known[key] = equality(_rows(connection, FIND_EQUALITY, parameters))
    return Statements(value, members, known[key])


def stat(connection: Connection, value: Value) -> Summary:
    """Size and digest of a value; BlobMissing if there is none.  Reads no content."""
    statements = _statements(connection, value)
    row = _row(connection, statements.stat(), value.parameters())
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return take_summary(row)


class BlobReader(io.RawIOBase):
    """One version of a value as a file that can be read and sought.

    Each read is a statement.  If another session replaces the value meanwhile, reads raise
    BlobChanged: pieces of two versions are never mixed.
    """

    def __init__(self, connection: Connection, value: Value) -> None:
        super().__init__()
        self._connection = connection
        self._value = value
        self._position = 0
        #: Size and SHA-256.
        self.summary = stat(connection, value)

    @property
    def size(self) -> int:
        return self.summary.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._require_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._require_open()
        self._position = new_position(self._position, self.size, offset, whence)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read_range(self._position, len(view))
        view[:len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = b"".join(iter(lambda: self.read(PIECE_BYTES) or b"", b""))
        return data

    def read_range(self, offset: int, length: int) -> bytes:
        """Bytes from an offset on, fewer at the end.  Does not move the position."""
        self._require_open()
        length = range_in(self.size, offset, length)
        if length == 0:
            return b""
        statements = _statements(self._connection, self._value)
        row = _row(self._connection, statements.read(),
                   self._value.parameters(offset=offset, length=length,
                                          sha256=self.summary.sha256))
        if row is None:
            raise BlobChanged("the value was changed or removed since it was opened")
        return take_piece(row, length)

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class _Upload:
    """One upload of the server, in a transaction block of its own (a savepoint within another)."""

    def __init__(self, connection: Connection, expected: int, base: Optional[Value]) -> None:
        self._connection = connection
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(connection.transaction())
        try:
            self.size, self.sha256 = 0, hashlib.sha256().digest()
            self._members = _find_members(connection)
            if base is None:
                row = _row(connection, self._members.begin, (expected,))
                self.number = take(row or (), 1, 0, int)
            else:
                row = _row(connection, _statements(connection, base).resume(),
                           base.parameters(expected=expected))
                if row is None or row[0] is None:
                    raise BlobMissing(f"{base.table} has no value of {dict(base.key)}")
                self.number = take(row, 3, 0, int)
                summary = take_summary(row, 1)
                self.size, self.sha256 = summary.size, summary.sha256
        except BaseException as error:
            self._leave(error)
            raise

    def write(self, data: Any) -> None:
        _run(self._connection, self._members.write, (self.number, data))
        self.size += len(data)

    def write_all(self, pieces: Iterator[bytes], done: Callable[[bytes], None]) -> None:
        """Send pieces without waiting for answers: the server receives, hashes and stores one
        while the next is made.  Errors of the server come at the end.

        That is COPY, because pipeline mode of psycopg (seen with 3.1.7, 3.2.1 and 3.3.0) may wait
        for a result while a part of the messages before it is in libpq's memory yet: with pieces
        that are larger than the socket's buffers both ends wait without end.
        """
        pgconn = self._connection.pgconn
        first = FirstError()
        with first.outside():
            with self._connection.cursor() as cursor, cursor.copy(
                    self._members.copy) as copy:
                with first.inside():
                    copy.write(COPY_BEGIN)
                    for piece in pieces:
                        copy.write(copy_row(self.number, piece))
                        self._connection.wait(flush(pgconn))
                        self.size += len(piece)
                        done(piece)
                    copy.write(COPY_END)

    def end(self, target: Value) -> Summary:
        """Store the value in the row, or in a new one.  The caller calls leave()."""
        statements = _statements(self._connection, target)
        row = _row(self._connection, statements.update(), target.parameters(upload=self.number))
        if row is None:
            row = _row(self._connection, statements.insert(),
                       target.insert_parameters(upload=self.number))
        return take_summary(row or ())

    def leave(self) -> None:
        """Commit, or release the savepoint."""
        self._stack.close()

    def _leave(self, error: BaseException) -> None:
        self._stack.__exit__(type(error), error, error.__traceback__)

    def roll_back(self) -> None:
        """Roll back: the server's session frees what the upload has taken."""
        if not is_lost(self._connection):
            self._leave(psycopg.Rollback())


@contextlib.contextmanager
def _upload(connection: Connection, expected: int,
            base: Optional[Value] = None) -> Iterator[_Upload]:
    """Leave at the end, roll back after an error."""
    upload = _Upload(connection, expected, base)
    try:
        yield upload
    except BaseException:
        upload.roll_back()
        raise
    upload.leave()


class BlobWriter(io.RawIOBase):
    """A new value as a file that is written from its beginning (or from the end of the old one).

    The connection is in a transaction until ``close()``, which stores the value and commits.  In a
    transaction of the caller that is a savepoint.  Within ``with``, an exception gives the value
    up; so does ``discard()``.
    """

    def __init__(self, connection: Connection, value: Value, append: bool = False,
                 expected: int = 0) -> None:
        super().__init__()
        self._value = value
        self._buffer = bytearray()
        self._upload: Optional[_Upload] = _Upload(connection, expected, value if append else None)
        self._position = self._upload.size
        #: Size and SHA-256 of the stored value, once closed.
        self.summary: Optional[Summary] = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._position

    def write(self, data: Any) -> int:
        if self.closed or self._upload is None:
            raise ValueError("I/O operation on closed file")
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PIECE_BYTES):
            self._buffer += view[start:start + PIECE_BYTES]
            if len(self._buffer) >= PIECE_BYTES:
                self._send()
        self._position += len(view)
        return len(view)

    def _send(self) -> None:
        """After an error the transaction is over, and the file is closed without a value."""
        assert self._upload is not None
        try:
            self._upload.write(bytes(self._buffer))
        except BaseException:
            self.discard()
            raise
        self._buffer.clear()

    def discard(self) -> None:
        """Give the value up: the row stays as it is."""
        upload, self._upload = self._upload, None
        super().close()
        if upload is not None:
            upload.roll_back()

    def close(self) -> None:
        """Store the value and commit."""
        if self.closed or self._upload is None:
            super().close()
            return
        if self._buffer:
            self._send()
        upload = self._upload
        try:
            self.summary = upload.end(self._value)
        except BaseException:
            self.discard()
            raise
        self._upload = None
        super().close()
        upload.leave()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        """A file that was forgotten is given up, unlike one that was closed."""
        if getattr(self, "_upload", None) is not None:
            with contextlib.suppress(Exception):
                self.discard()


def open(connection: Connection, value: Value, mode: str = "rb", buffering: int = PIECE_BYTES,
         expected: int = 0) -> Any:
    """Open a value: "rb" to read, "wb" to write a new one, "ab" to write at its end.

    Reads are buffered; 0 gives the BlobReader itself.  A BlobWriter always gathers pieces.
    ``expected``: how many bytes will be written, as far as known.
    """
    if mode == "rb":
        reader = BlobReader(connection, value)
        return io.BufferedReader(reader, buffering) if buffering > 0 else reader
    if mode in ("wb", "ab"):
        return BlobWriter(connection, value, mode == "ab", expected)
    raise ValueError(f'mode must be "rb", "wb" or "ab", not "{mode}"')


def iterate(connection: Connection, value: Value, offset: int = 0, length: Optional[int] = None,
            piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The content, or a range of it, in pieces."""
    reader = BlobReader(connection, value)
    end = reader.size if length is None else min(reader.size, offset + length)
    while offset < end:
        piece = reader.read_range(offset, min(piece_bytes, end - offset))
        yield piece
        offset += len(piece)


def write_range(connection: Connection, value: Value, offset: int, data: bytes) -> int:
    """Overwrite a range of a value, in a statement.  Returns its size; zeros fill a gap."""
    row = _row(connection, _statements(connection, value).write(),
               value.parameters(offset=offset, data=psycopg.Binary(data)))
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return take_size(row, 1, 0)


class _Session:
    """A connection that is made again when it is lost."""

    def __init__(self, connect: Connect, pauses: tuple[float, ...]) -> None:
        self._connect = connect
        self._pauses = pauses
        self.connection: Optional[Connection] = None

    def get(self) -> Connection:
        if self.connection is None or is_lost(self.connection):
            self.close()
            self.connection = (psycopg.connect(self._connect, autocommit=True)
                               if isinstance(self._connect, str) else self._connect())
        return self.connection

    def run(self, work: Callable[[Connection], Any]) -> Any:
        """Do work that may be done twice, again if the connection is lost meanwhile."""
        for pause in (*self._pauses, None):
            try:
                return work(self.get())
            except psycopg.OperationalError as error:
                if pause is None or not is_lost(self.connection, error):
                    raise
                self.close()
                time.sleep(pause)

    def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
        self.connection = None


def _pieces(source: BinaryIO, limit: Optional[int] = None) -> Iterator[bytes]:
    """Pieces of a file to its end, or up to a number of bytes."""
    while limit is None or limit > 0:
        piece = read_piece(source, COPY_BYTES if limit is None else min(limit, COPY_BYTES))
        if not piece:
            return
        if limit is not None:
            limit -= len(piece)
        yield piece


def _send_at_once(connection: Connection, target: Value, source: BinaryIO, total: Optional[int],
                  progress: Optional[Progress]) -> Summary:
    """The rest of a file in one transaction: others see the value when all of it is there."""
    digest = hashlib.sha256()

    with _upload(connection, total or 0) as upload:
        def done(piece: bytes) -> None:
            digest.update(piece)
            if progress is not None:
                progress(upload.size, total)

        upload.write_all(_pieces(source), done)
        return check(upload.end(target), upload.size, digest.digest())


def _send_section(connection: Connection, stage: Stage, source: BinaryIO, start: int,
                  total: Optional[int], section_bytes: int, progress: Optional[Progress],
                  seen: "list[Any]") -> "tuple[Summary, bool]":
    """Add a section to the stage, in a transaction.  Returns the stage's state, and whether that
    was the end of the file.

    The stage says where to go on.  Its digest tells whether it has the beginning of this file: the
    commit of a section may have been done although its answer was lost.
    """
    _run(connection, _statements(connection, stage.value).stage_begin(), stage.parameters)
    with _upload(connection, 0, stage.value) as upload:
        before = upload.size
        digest = hash_stage(source, start, stage, Summary(before, upload.sha256), seen)

        def done(piece: bytes) -> None:
            digest.update(piece)
            if progress is not None:
                progress(upload.size, total)

        upload.write_all(_pieces(source, section_bytes), done)
        summary = check(upload.end(stage.value), upload.size, digest.digest())
        seen.append(digest)
        return summary, upload.size < before + section_bytes


def _move(connection: Connection, stage: Stage, target: Value, staged: Summary) -> Summary:
    """Give the staged value to its target, and remove the stage, in one transaction.  If the stage
    is gone, that transaction was committed before."""
    parameters = target.insert_parameters(**stage.parameters)
    staging = _statements(connection, stage.value)
    with connection.transaction():
        for query in _statements(connection, target).move(staging):
            row = _row(connection, query, parameters)
            if row is not None:
                _run(connection, staging.stage_end(), stage.parameters)
                break
    return check(take_summary(row) if row is not None else stat(connection, target),
                 staged.size, staged.sha256)


def upload(connect: Union[Connect, Connection], target: Value, source: Union[Path, BinaryIO],
           progress: Optional[Progress] = None, stage: Optional[Stage] = None,
           section_bytes: int = SECTION_BYTES,
           pauses: tuple[float, ...] = PAUSES) -> Summary:
    """Store a file from its position on, in the target's row or in a new one.

    Without a stage it is one transaction.  With a stage it is a transaction for each section, and
    an upload that was broken off goes on there, also when the program is started again.

    ``connect`` is a connection string or a function that connects; after a broken connection the
    upload goes on if the file can seek.  With a connection, nothing is tried again.
    """
    if isinstance(source, (str, os.PathLike)):
        with io.open(source, "rb") as file:
            return upload(connect, target, file, progress, stage, section_bytes, pauses)
    total = remaining_size(source)
    start = source.tell() if total is not None else 0
    if stage is not None and total is None:
        raise ValueError("an upload with a stage needs a file that can seek")
    if isinstance(connect, psycopg.Connection):
        owned = None
        run: Callable[[Callable[[Connection], Any]], Any] = lambda work: work(connect)
    else:
        owned = _Session(connect, pauses if total is not None else ())
        run = owned.run

    def at_once(connection: Connection) -> Summary:
        if total is not None:
            source.seek(start)
        return _send_at_once(connection, target, source, total, progress)

    try:
        if stage is None:
            result: Summary = run(at_once)
            return result
        where = stage
        is_end = False
        seen: "list[Any]" = []
        while not is_end:
            staged, is_end = run(lambda connection: _send_section(
                connection, where, source, start, total, section_bytes, progress, seen))
        result = run(lambda connection: _move(connection, where, target, staged))
        return result
    finally:
        if owned is not None:
            owned.close()


def _resume_file(file: BinaryIO, summary: Summary) -> "tuple[int, Any]":
    """Bytes that a file has already, and their digest."""
    file.seek(0, io.SEEK_END)
    done = min(file.tell(), summary.size)
    file.seek(0)
    return done, hash_beginning(file, done)


def _piece(connection: Connection, value: Value, summary: Summary, offset: int,
           piece_bytes: int) -> bytes:
    """The next bytes of a version of a value, as many as a piece has, or are left."""
    length = min(piece_bytes, summary.size - offset)
    row = _row(connection, _statements(connection, value).read(),
               value.parameters(offset=offset, length=length, sha256=summary.sha256))
    if row is None:
        raise BlobChanged("the value was changed or removed meanwhile")
    return take_piece(row, length)


def download(connect: Union[Connect, Connection], value: Value, path: Path,
             progress: Optional[Progress] = None, piece_bytes: int = 2 * PIECE_BYTES,
             pauses: tuple[float, ...] = PAUSES) -> Summary:
    """Write a value to a file, which is called path.part until it is complete, and durable then.

    A download that was broken off goes on at the end of path.part.  ``connect`` as for upload().
    A thread receives a piece while this one works on the piece before it.
    """
    part = os.fspath(path) + ".part"
    owned = None if isinstance(connect, psycopg.Connection) else _Session(connect, pauses)

    def run(work: Callable[[Connection], Any]) -> Any:
        if owned is not None:
            return owned.run(work)
        assert isinstance(connect, psycopg.Connection)
        return work(connect)

    try:
        summary: Summary = run(lambda connection: stat(connection, value))
        with io.open(part, "ab+") as file, ThreadPoolExecutor(1) as thread:
            ahead: "list[tuple[Connection, Future[bytes]]]" = []

            def request(connection: Connection) -> None:
                ahead.append((connection, thread.submit(_piece, connection, value, summary, done,
                                                        piece_bytes)))

            def receive(connection: Connection) -> bytes:
                if ahead and ahead[0][0] is not connection:
                    ahead.clear()    # That connection was lost, and the piece with it.
                if not ahead:
                    request(connection)
                return ahead.pop()[1].result()

            done, digest = _resume_file(file, summary)
            file.truncate(done)
            if progress is not None:
                progress(done, summary.size)
            while done < summary.size:
                piece = run(receive)
                done += len(piece)
                if done < summary.size:
                    run(request)
                file.write(piece)
                digest.update(piece)
                if progress is not None:
                    progress(done, summary.size)
            file.flush()
            os.fsync(file.fileno())
        if digest.digest() != summary.sha256:
            os.unlink(part)
            raise BlobMismatch(f"{part} was not the beginning of the value, and was removed")
        os.replace(part, path)
        return summary
    finally:
        if owned is not None:
            owned.close()
