package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.sql.SQLException;
import java.util.Objects;
import org.postgresql.copy.CopyOut;

/**
 * One version of a value, or a range of it. A statement reads up to 4 MB of this version: if
 * another session replaces the value meanwhile, reads throw BlobException, kind CHANGED. After a
 * lost connection reads go on where they were, if the connection is not the caller's. The digest is
 * verified when all has been read in order. Not for several threads at the same time.
 */
public final class BlobInputStream extends InputStream {
    private static final int ROW_BYTES = 256 * 1024;
    private static final int LEAST_SPAN = 64 * 1024;
    private static final int LARGEST_SPAN = 4 * 1024 * 1024;
    private static final int COPY_HEADER_BYTES = 11 + 4 + 4;

    private final Session session;
    private final BlobValue value;
    private final BlobSummary summary;
    private final long end;
    private long position;
    private CopyOut copy;
    private int spanBytes = LEAST_SPAN / 2;
    private long spanEnd;
    /** The row that was read last; its content is at its end. */
    private byte[] message;
    private long rowStart;
    private int rowBytes;
    private final MessageDigest digest = Session.sha256();
    private long hashedBytes;
    private boolean isOpen = true;

    BlobInputStream(Session session, BlobValue value, long offset, long length) throws IOException {
        if (offset < 0 || length < 0)
            throw new IllegalArgumentException("offset and length must not be negative");
        this.session = session;
        this.value = value;
        BlobSummary found = null;
        try {
            found = session.retry(() -> session.stat(value, "stat").summary());
        } finally {
            if (found == null)
                session.close();
        }
        summary = found;
        end = length < summary.size() - offset ? offset + length : summary.size();
        position = offset;
    }

    /** Size and digest of the whole value. */
    public BlobSummary summary() {
        return summary;
    }

    public long position() {
        return position;
    }

    /** Sets the position in the value; beyond the end there is nothing to read. */
    public void seek(long newPosition) throws IOException {
        requireOpen();
        if (newPosition < 0)
            throw new IllegalArgumentException("negative position: " + newPosition);
        position = newPosition;
    }

    @Override
    public long skip(long count) throws IOException {
        requireOpen();
        long skipped = Math.max(0, Math.min(count, end - position));
        position += skipped;
        return skipped;
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] buffer, int offset, int length) throws IOException {
        requireOpen();
        Objects.checkFromIndexSize(offset, length, buffer.length);
        if (length == 0)
            return 0;
        if (position >= end)
            return -1;
        if (message == null || position < rowStart || position >= rowStart + rowBytes)
            fetch();
        int start = (int) (position - rowStart);
        int count = Math.min(length, rowBytes - start);
        System.arraycopy(message, message.length - rowBytes + start, buffer, offset, count);
        position += count;
        return count;
    }

    /** One more row: of the statement under way if it comes to that, else of another one. */
    private void fetch() throws IOException {
        if (position != rowStart + rowBytes) {
            finish();
            spanBytes = LEAST_SPAN / 2;
        }
        message = null;
        byte[] bytes = session.retry(this::nextRow);
        rowStart = position;
        if (rowStart == hashedBytes) {
            digest.update(bytes, bytes.length - rowBytes, rowBytes);
            hashedBytes += rowBytes;
            String read = hashedBytes == summary.size() ? Session.hex(digest) : null;
            if (read != null && !read.equals(summary.sha256()))
                throw new BlobException(Kind.MISMATCH, "the bytes have another digest");
        }
        message = bytes;
    }

    /** A message of COPY is a row: number of columns; offset and content with their lengths. */
    private byte[] nextRow() throws IOException, SQLException {
        boolean isDone = false;
        try {
            boolean isFirst = copy == null;
            if (isFirst)
                begin();
            byte[] bytes = copy.readFromCopy();
            rowBytes = (int) Math.min(ROW_BYTES, spanEnd - position);
            int headerBytes = (isFirst ? COPY_HEADER_BYTES : 0) + 2 + 4 + 8 + 4;
            if (isFirst && bytes != null && bytes.length == COPY_HEADER_BYTES + 2)
                throw new BlobException(Kind.CHANGED, "the value was replaced or removed");
            if (bytes == null || bytes.length != headerBytes + rowBytes
                    || ByteBuffer.wrap(bytes).getLong(headerBytes - 12) != position)
                throw new BlobException(Kind.UNEXPECTED, "the server does not give this range");
            if (position + rowBytes == spanEnd)
                finish();
            isDone = true;
            return bytes;
        } finally {
            if (!isDone)
                finish();
        }
    }

    /** Spans grow while they are read in order. Between reads a caller's connection is free. */
    private void begin() throws IOException, SQLException {
        spanBytes = Math.min(2 * spanBytes, session.isOwner() ? LARGEST_SPAN : ROW_BYTES);
        spanEnd = Math.min(position + spanBytes, end);
        String part = "blobext_part.start";
        String content = session.statement(value, "read", part, "pg_catalog.int8smaller("
            + ROW_BYTES + ", '" + spanEnd + "' OPERATOR(pg_catalog.-) " + part + ')',
            "'\\x" + summary.sha256() + '\'');
        copy = session.copies().copyOut(String.format("COPY (SELECT %s, blobext_read.content"
            + " FROM pg_catalog.generate_series('%d'::pg_catalog.int8, '%d'::pg_catalog.int8,"
            + " %d::pg_catalog.int8) AS blobext_part (start) CROSS JOIN LATERAL (%s)"
            + " AS blobext_read (content)) TO STDOUT (FORMAT binary)", part, position, spanEnd - 1,
            ROW_BYTES, content));
    }

    /** Takes what comes yet of a statement, at most a span. */
    private void finish() {
        try {
            while (copy != null && copy.isActive() && copy.readFromCopy() != null)
                continue;
        } catch (SQLException lost) {
            // The next statement says so.
        }
        copy = null;
    }

    @Override
    public void close() {
        isOpen = false;
        message = null;
        finish();
        session.close();
    }

    private void requireOpen() throws IOException {
        if (!isOpen)
            throw new IOException("the stream is closed");
    }
}
