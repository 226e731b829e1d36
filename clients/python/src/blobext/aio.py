"""The same as the package itself, for asyncio and ``psycopg.AsyncConnection``.

Local files are read and written in the event loop's thread, a piece at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
from typing import Any, AsyncIterator, Awaitable, BinaryIO, Callable, Iterator, Optional, Union

import psycopg

from ._common import (BEGIN, COPY, COPY_BEGIN, COPY_END, PAUSES, PIECE_BYTES, SECTION_BYTES, WRITE,
                      BlobChanged, BlobError, BlobMismatch, BlobMissing, FirstError, Progress,
                      Stage, Summary, Value, check, copy_row, flush, hash_beginning, is_lost,
                      remaining_size)
from ._sync import _pieces, _resume_file

__all__ = ["BlobChanged", "BlobError", "BlobMismatch", "BlobMissing", "BlobReader", "BlobWriter",
           "Progress", "Stage", "Summary", "Value", "download", "iterate", "open", "stat",
           "upload", "write_range"]

Connection = psycopg.AsyncConnection[Any]
Connect = Union[str, Callable[[], Awaitable[Connection]]]
Path = Union[str, "os.PathLike[str]"]


async def _row(connection: Connection, query: Any, parameters: Any) -> Any:
    async with connection.cursor(binary=True, row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(query, parameters)
        return await cursor.fetchone()


async def stat(connection: Connection, value: Value) -> Summary:
    """Size and digest of a value; BlobMissing if there is none.  Reads no content."""
    row = await _row(connection, value.stat_query(), value.parameters())
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return Summary(*row)


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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if base is None:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        if base + offset < 0:
            raise ValueError("the position must not be negative")
        self._position = base + offset
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
        length = min(length, max(self.size - offset, 0))
        if length == 0:
            return b""
        row = await _row(self._connection, self._value.read_query(),
                         self._value.parameters(offset=offset, length=length,
                                                sha256=self.summary.sha256))
        if row is None:
            raise BlobChanged("the value was changed or removed since it was opened")
        return bytes(row[0])

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
            if base is None:
                self.number = (await _row(self._connection, BEGIN, (expected,)))[0]
                return
            row = await _row(self._connection, base.resume_query(),
                             base.parameters(expected=expected))
            if row is None or row[0] is None:
                raise BlobMissing(f"{base.table} has no value of {dict(base.key)}")
            self.number, self.size, self.sha256 = row
        except BaseException:
            await self.roll_back()
            raise

    async def write(self, data: bytes) -> None:
        await self._connection.execute(WRITE, (self.number, data), binary=True)
        self.size += len(data)

    async def write_all(self, pieces: Iterator[bytes], done: Callable[[bytes], None]) -> None:
        """Send pieces without waiting for answers: see the sync module."""
        pgconn = self._connection.pgconn
        first = FirstError()
        with first.outside():
            async with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
                with first.inside():
                    await copy.write(COPY_BEGIN)
                    for piece in pieces:
                        await copy.write(copy_row(self.number, piece))
                        await self._connection.wait(flush(pgconn))
                        self.size += len(piece)
                        done(piece)
                    await copy.write(COPY_END)

    async def end(self, target: Value) -> Summary:
        row = await _row(self._connection, target.update_query(),
                         target.parameters(upload=self.number))
        if row is None:
            row = await _row(self._connection, target.insert_query(),
                             target.insert_parameters(self.number))
        return Summary(*row)

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
    row = await _row(connection, value.write_query(),
                     value.parameters(offset=offset, data=psycopg.Binary(data)))
    if row is None or row[0] is None:
        raise BlobMissing(f"{value.table} has no value of {dict(value.key)}")
    return int(row[0])


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
            except psycopg.OperationalError:
                if pause is None or not is_lost(self.connection):
                    raise
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
                        total: Optional[int], section_bytes: int,
                        progress: Optional[Progress]) -> "tuple[Summary, bool]":
    await connection.execute(stage.begin_query(), (stage.name,))
    async with _upload(connection, 0, stage.value) as upload:
        source.seek(start)
        before = upload.size
        digest = hash_beginning(source, before)
        if digest.digest() != upload.sha256:
            raise BlobMismatch(f"stage {stage.name!r} has not the beginning of this file")

        def done(piece: bytes) -> None:
            digest.update(piece)
            if progress is not None:
                progress(upload.size, total)

        await upload.write_all(_pieces(source, section_bytes), done)
        summary = check(await upload.end(stage.value), upload.size, digest.digest())
        return summary, upload.size < before + section_bytes


async def _move(connection: Connection, stage: Stage, target: Value, staged: Summary) -> Summary:
    parameters = stage.move_parameters(target)
    async with connection.transaction():
        for query in stage.move_queries(target):
            row = await _row(connection, query, parameters)
            if row is not None:
                await connection.execute(stage.end_query(), (stage.name,))
                break
    return check(Summary(*row) if row is not None else await stat(connection, target),
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
        while not is_end:
            staged, is_end = await session.run(lambda connection: _send_section(
                connection, where, source, start, total, section_bytes, progress))
        result = await session.run(lambda connection: _move(connection, where, target, staged))
        return result
    finally:
        await session.close()


async def download(connect: Union[Connect, Connection], value: Value, path: Path,
                   progress: Optional[Progress] = None, piece_bytes: int = 4 * PIECE_BYTES,
                   pauses: tuple[float, ...] = PAUSES) -> Summary:
    """Write a value to a file, see ``blobext.download()``."""
    part = os.fspath(path) + ".part"
    session = _Session(connect, pauses)
    try:
        summary: Summary = await session.run(lambda connection: stat(connection, value))
        with io.open(part, "ab+") as file:
            done, digest = _resume_file(file, summary)
            file.truncate(done)
            if progress is not None:
                progress(done, summary.size)
            while done < summary.size:
                row = await session.run(lambda connection: _row(
                    connection, value.read_query(),
                    value.parameters(offset=done, length=piece_bytes, sha256=summary.sha256)))
                if row is None:
                    raise BlobChanged("the value was changed or removed meanwhile")
                file.write(row[0])
                digest.update(row[0])
                done += len(row[0])
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
        await session.close()
