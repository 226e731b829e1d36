"""The same as the package itself, for asyncio and ``psycopg.AsyncConnection``.

Local files are read and written in the event loop's thread, a piece at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import weakref
from typing import Any, AsyncIterator, Awaitable, BinaryIO, Callable, Iterator, Optional, Union

import psycopg

from ._common import (COPY_BEGIN, COPY_END, FIND_EQUALITY, FIND_MEMBERS, PAUSES,
                      PIECE_BYTES, SECTION_BYTES, BlobChanged, BlobError, BlobMismatch,
                      BlobMissing, BlobUnexpected, FirstError, Members, Progress, RowLimit, Stage,
                      Statements, Summary, Value, check, copy_row, equality, equality_parameters,
                      flush, hash_beginning, hash_stage, is_lost, new_position, range_in,
                      remaining_size, take, take_piece, take_size, take_summary)
from ._sync import _pieces, _resume_file

__all__ = ["BlobChanged", "BlobError", "BlobMismatch", "BlobMissing", "BlobReader",
           "BlobUnexpected", "BlobWriter", "Progress", "Stage", "Summary", "Value", "download",
           "iterate", "open", "stat", "upload", "write_range"]

Connection = psycopg.AsyncConnection[Any]
Connect = Union[str, Callable[[], Awaitable[Connection]]]
Path = Union[str, "os.PathLike[str]"]


# Facts about a connection's database: the members of the extension, and how the columns of keys
# are compared.
_members: "weakref.WeakKeyDictionary[Connection, Members]" = weakref.WeakKeyDictionary()
_equality: ("weakref.WeakKeyDictionary[Connection, dict[Any, dict[str, str]]]"
            ) = weakref.WeakKeyDictionary()


async def _rows(connection: Connection, query: Any, parameters: Any) -> "list[tuple[Any, ...]]":
    """The rows of a statement, which are few.  They come one by one: a server that gives them
    without end costs its connection, and no memory."""
    rows: "list[tuple[Any, ...]]" = []
    limit = RowLimit()
    async with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        async for row in cursor.stream(query, parameters, binary=True):
            limit.count(row)
            if limit.is_reached:
                await connection.close()
                raise BlobUnexpected("the server gives rows without end")
            rows.append(row)
    return rows


async def _row(connection: Connection, query: Any, parameters: Any) -> Any:
    """The first row of a statement as a tuple, or None."""
    rows = await _rows(connection, query, parameters)
    return rows[0] if rows else None


async def _run(connection: Connection, query: Any, parameters: Any) -> None:
    await _rows(connection, query, parameters)


async def _find_members(connection: Connection) -> Members:
    members = _members.get(connection)
    if members is None:
        members = Members(await _rows(connection, FIND_MEMBERS, None))
        _members[connection] = members
    return members


async def _statements(connection: Connection, value: Value) -> Statements:
    """The statements for a value on this connection."""
    members = await _find_members(connection)
    parameters = equality_parameters(value)
    known = _equality.setdefault(connection, {})
    key = (parameters["table"], *parameters["names"])
    if key not in known:
        known[key] = equality(await _rows(connection, FIND_EQUALITY, parameters))
    return Statements(value, members, known[key])


async def stat(connection: Connection, value: Value) -> Summary:
    """Size and digest of a value; BlobMissing if there is none.  Reads no content."""
    statements = await _statements(connection, value)
    row = await _row(connection, statements.stat(), value.parameters())
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return take_summary(row)


class BlobReader:
    """One version of a value that can be read and sought; ``open()`` makes one."""

    def __init__(self, connection: Connection, value: Value, summary: Summary) -> None:
        self._connection = connection
        self._value = value
        self._position = 0
        #: Size and SHA-256.
        self.summary = summary

    @property
    def size(self) -> int:
        return self.summary.size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = new_position(self._position, self.size, offset, whence)
        return self._position

    async def read(self, length: int = -1) -> bytes:
        """The next bytes, all that are left by default; b"" at the end."""
        left = max(self.size - self._position, 0)
        end = self._position + (left if length < 0 else min(length, left))
        pieces = []
        while self._position < end:
            piece = await self.read_range(self._position, min(4 * PIECE_BYTES,
                                                              end - self._position))
            pieces.append(piece)
            self._position += len(piece)
        return b"".join(pieces)

    async def read_range(self, offset: int, length: int) -> bytes:
        """Bytes from an offset on, fewer at the end.  Does not move the position."""
        length = range_in(self.size, offset, length)
        if length == 0:
            return b""
        statements = await _statements(self._connection, self._value)
        row = await _row(self._connection, statements.read(),
                         self._value.parameters(offset=offset, length=length,
                                                sha256=self.summary.sha256))
        if row is None:
            raise BlobChanged("the value was changed or removed since it was opened")
        return take_piece(row, length)

    async def __aenter__(self) -> "BlobReader":
        return self

    async def __aexit__(self, *error: Any) -> None:
        pass


class _Upload:
    """One upload of the server, in a transaction block of its own (a savepoint within another)."""

    size = 0
    sha256 = hashlib.sha256().digest()
    number = 0

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stack = contextlib.AsyncExitStack()

    async def begin(self, expected: int, base: Optional[Value]) -> None:
        await self._stack.enter_async_context(self._connection.transaction())
        try:
            self._members = await _find_members(self._connection)
            if base is None:
                row = await _row(self._connection, self._members.begin, (expected,))
                self.number = take(row or (), 1, 0, int)
                return
            statements = await _statements(self._connection, base)
            row = await _row(self._connection, statements.resume(),
                             base.parameters(expected=expected))
            if row is None or row[0] is None:
                raise BlobMissing(f"{base.table} has no value of {dict(base.key)}")
            self.number = take(row, 3, 0, int)
            summary = take_summary(row, 1)
            self.size, self.sha256 = summary.size, summary.sha256
        except BaseException:
            await self.roll_back()
            raise

    async def write(self, data: bytes) -> None:
        await _run(self._connection, self._members.write, (self.number, data))
        self.size += len(data)

    async def write_all(self, pieces: Iterator[bytes], done: Callable[[bytes], None]) -> None:
        """Send pieces without waiting for answers: see the sync module."""
        pgconn = self._connection.pgconn
        first = FirstError()
        with first.outside():
            async with self._connection.cursor() as cursor, cursor.copy(
                    self._members.copy) as copy:
                with first.inside():
                    await copy.write(COPY_BEGIN)
                    for piece in pieces:
                        await copy.write(copy_row(self.number, piece))
                        await self._connection.wait(flush(pgconn))
                        self.size += len(piece)
                        done(piece)
                    await copy.write(COPY_END)

    async def end(self, target: Value) -> Summary:
        statements = await _statements(self._connection, target)
        row = await _row(self._connection, statements.update(),
                         target.parameters(upload=self.number))
        if row is None:
            row = await _row(self._connection, statements.insert(),
                             target.insert_parameters(upload=self.number))
        return take_summary(row or ())

    async def leave(self) -> None:
        await self._stack.aclose()

    async def roll_back(self) -> None:
        if not is_lost(self._connection):
            error = psycopg.Rollback()
            await self._stack.__aexit__(type(error), error, None)


@contextlib.asynccontextmanager
async def _upload(connection: Connection, expected: int,
                  base: Optional[Value] = None) -> AsyncIterator[_Upload]:
    upload = _Upload(connection)
    await upload.begin(expected, base)
    try:
        yield upload
    except BaseException:
        await upload.roll_back()
        raise
    await upload.leave()


class BlobWriter:
    """A new value that is written from its beginning, or from the end of the old one; ``open()``
    makes one.  See the class of the same name in the package itself."""

    def __init__(self, value: Value, upload: _Upload) -> None:
        self._value = value
        self._buffer = bytearray()
        self._upload: Optional[_Upload] = upload
        self._position = upload.size
        #: Size and SHA-256 of the stored value, once closed.
        self.summary: Optional[Summary] = None

    def tell(self) -> int:
        return self._position

    async def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._upload is None:
            raise ValueError("I/O operation on closed file")
        for start in range(0, len(view), PIECE_BYTES):
            self._buffer += view[start:start + PIECE_BYTES]
            if len(self._buffer) >= PIECE_BYTES:
                await self._send()
        self._position += len(view)
        return len(view)

    async def _send(self) -> None:
        assert self._upload is not None
        try:
            await self._upload.write(bytes(self._buffer))
        except BaseException:
            await self.discard()
            raise
        self._buffer.clear()

    async def discard(self) -> None:
        """Give the value up: the row stays as it is."""
        upload, self._upload = self._upload, None
        if upload is not None:
            await upload.roll_back()

    async def close(self) -> None:
        """Store the value and commit."""
        if self._upload is None:
            return
        if self._buffer:
            await self._send()
        upload = self._upload
        try:
            self.summary = await upload.end(self._value)
        except BaseException:
            await self.discard()
            raise
        self._upload = None
        await upload.leave()

    async def __aenter__(self) -> "BlobWriter":
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            await self.discard()
        await self.close()


async def open(connection: Connection, value: Value, mode: str = "rb", expected: int = 0) -> Any:
    """Open a value: "rb" gives a BlobReader, "wb" and "ab" a BlobWriter."""
    if mode == "rb":
        return BlobReader(connection, value, await stat(connection, value))
    if mode in ("wb", "ab"):
        upload = _Upload(connection)
        await upload.begin(expected, value if mode == "ab" else None)
        return BlobWriter(value, upload)
    raise ValueError(f'mode must be "rb", "wb" or "ab", not "{mode}"')


async def iterate(connection: Connection, value: Value, offset: int = 0,
                  length: Optional[int] = None,
                  piece_bytes: int = PIECE_BYTES) -> AsyncIterator[bytes]:
    """The content, or a range of it, in pieces."""
    reader = BlobReader(connection, value, await stat(connection, value))
    end = reader.size if length is None else min(reader.size, offset + length)
    while offset < end:
        piece = await reader.read_range(offset, min(piece_bytes, end - offset))
        yield piece
        offset += len(piece)


async def write_range(connection: Connection, value: Value, offset: int, data: bytes) -> int:
    """Overwrite a range of a value, in a statement.  Returns its size; zeros fill a gap."""
    statements = await _statements(connection, value)
    row = await _row(connection, statements.write(),
                     value.parameters(offset=offset, data=psycopg.Binary(data)))
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return take_size(row, 1, 0)


class _Session:
    """A connection that is made again when it is lost; or one of the caller, which is not."""

    def __init__(self, connect: Union[Connect, Connection], pauses: tuple[float, ...]) -> None:
        self._connect = connect
        self._is_owned = not isinstance(connect, psycopg.AsyncConnection)
        self._pauses = pauses if self._is_owned else ()
        self.connection: Optional[Connection] = None

    async def get(self) -> Connection:
        if isinstance(self._connect, psycopg.AsyncConnection):
            return self._connect
        if self.connection is None or is_lost(self.connection):
            await self.close()
            if isinstance(self._connect, str):
                self.connection = await psycopg.AsyncConnection.connect(self._connect,
                                                                        autocommit=True)
            else:
                self.connection = await self._connect()
        return self.connection

    async def run(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        for pause in (*self._pauses, None):
            try:
                return await work(await self.get())
            except psycopg.OperationalError as error:
                if pause is None or not is_lost(self.connection, error):
                    raise
                await self.close()
                await asyncio.sleep(pause)

    async def close(self) -> None:
        if self.connection is not None and self._is_owned:
            with contextlib.suppress(psycopg.Error):
                await self.connection.close()
        self.connection = None


async def _send_at_once(connection: Connection, target: Value, source: BinaryIO,
                        total: Optional[int], progress: Optional[Progress]) -> Summary:
    digest = hashlib.sha256()

    async with _upload(connection, total or 0) as upload:
        def done(piece: bytes) -> None:
            digest.update(piece)
            if progress is not None:
                progress(upload.size, total)

        await upload.write_all(_pieces(source), done)
        return check(await upload.end(target), upload.size, digest.digest())


async def _send_section(connection: Connection, stage: Stage, source: BinaryIO, start: int,
                        total: Optional[int], section_bytes: int, progress: Optional[Progress],
                        seen: "list[Any]") -> "tuple[Summary, bool]":
    staging = await _statements(connection, stage.value)
    await _run(connection, staging.stage_begin(), stage.parameters)
    async with _upload(connection, 0, stage.value) as upload:
        before = upload.size
        digest = hash_stage(source, start, stage, Summary(before, upload.sha256), seen)

        def done(piece: bytes) -> None:
            digest.update(piece)
            if progress is not None:
                progress(upload.size, total)

        await upload.write_all(_pieces(source, section_bytes), done)
        summary = check(await upload.end(stage.value), upload.size, digest.digest())
        seen.append(digest)
        return summary, upload.size < before + section_bytes


async def _move(connection: Connection, stage: Stage, target: Value, staged: Summary) -> Summary:
    parameters = target.insert_parameters(**stage.parameters)
    staging = await _statements(connection, stage.value)
    statements = await _statements(connection, target)
    async with connection.transaction():
        for query in statements.move(staging):
            row = await _row(connection, query, parameters)
            if row is not None:
                await _run(connection, staging.stage_end(), stage.parameters)
                break
    return check(take_summary(row) if row is not None else await stat(connection, target),
                 staged.size, staged.sha256)


async def upload(connect: Union[Connect, Connection], target: Value,
                 source: Union[Path, BinaryIO], progress: Optional[Progress] = None,
                 stage: Optional[Stage] = None, section_bytes: int = SECTION_BYTES,
                 pauses: tuple[float, ...] = PAUSES) -> Summary:
    """Store a file, see ``blobext.upload()``."""
    if isinstance(source, (str, os.PathLike)):
        with io.open(source, "rb") as file:
            return await upload(connect, target, file, progress, stage, section_bytes, pauses)
    total = remaining_size(source)
    start = source.tell() if total is not None else 0
    if stage is not None and total is None:
        raise ValueError("an upload with a stage needs a file that can seek")
    session = _Session(connect, pauses if total is not None else ())

    async def at_once(connection: Connection) -> Summary:
        if total is not None:
            source.seek(start)
        return await _send_at_once(connection, target, source, total, progress)

    try:
        if stage is None:
            result: Summary = await session.run(at_once)
            return result
        where = stage
        is_end = False
        seen: "list[Any]" = []
        while not is_end:
            staged, is_end = await session.run(lambda connection: _send_section(
                connection, where, source, start, total, section_bytes, progress, seen))
        result = await session.run(lambda connection: _move(connection, where, target, staged))
        return result
    finally:
        await session.close()


async def _piece(connection: Connection, value: Value, summary: Summary, offset: int,
                 piece_bytes: int) -> bytes:
    """The next bytes of a version of a value, as many as a piece has, or are left."""
    length = min(piece_bytes, summary.size - offset)
    statements = await _statements(connection, value)
    row = await _row(connection, statements.read(),
                     value.parameters(offset=offset, length=length, sha256=summary.sha256))
    if row is None:
        raise BlobChanged("the value was changed or removed meanwhile")
    return take_piece(row, length)


async def download(connect: Union[Connect, Connection], value: Value, path: Path,
                   progress: Optional[Progress] = None, piece_bytes: int = 2 * PIECE_BYTES,
                   pauses: tuple[float, ...] = PAUSES) -> Summary:
    """Write a value to a file, see ``blobext.download()``.  A task receives the next piece."""
    part = os.fspath(path) + ".part"
    session = _Session(connect, pauses)
    ahead: "list[tuple[Connection, asyncio.Future[bytes]]]" = []

    async def forget() -> None:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)
        ahead.clear()

    try:
        summary: Summary = await session.run(lambda connection: stat(connection, value))
        with io.open(part, "ab+") as file:
            async def request(connection: Connection) -> None:
                ahead.append((connection, asyncio.ensure_future(
                    _piece(connection, value, summary, done, piece_bytes))))
                await asyncio.sleep(0)    # It is sent.

            async def receive(connection: Connection) -> bytes:
                if ahead and ahead[0][0] is not connection:
                    await forget()    # That connection was lost, and the piece with it.
                if not ahead:
                    await request(connection)
                try:
                    return await ahead[0][1]
                finally:
                    ahead.clear()

            done, digest = _resume_file(file, summary)
            file.truncate(done)
            if progress is not None:
                progress(done, summary.size)
            while done < summary.size:
                piece = await session.run(receive)
                done += len(piece)
                if done < summary.size:
                    await session.run(request)
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
        await forget()
        await session.close()
