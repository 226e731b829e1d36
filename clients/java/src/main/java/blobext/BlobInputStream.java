package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.sql.SQLException;
import java.util.Objects;
import org.postgresql.copy.CopyOut;

/**
 * One version of a value, or a range of it. If another session replaces the value meanwhile, reads
 * throw BlobException, kind CHANGED. After a lost connection reads go on where they were, if the
 * connection is not the caller's. The digest is verified when all has been read in order. Not for
 * several threads at the same time.
 */
public final class BlobInputStream extends InputStream {
    private static final int ROW_BYTES = 256 * 1024;
    /** Of a COPY in a sequence of reads: the server makes rows while the program uses others. */
    private static final int ROWS = 16;
    private static final int COPY_HEADER_BYTES = 11 + 4 + 4;
    /** Number of columns; offset and content with their lengths. */
    private static final int ROW_HEADER_BYTES = 2 + 4 + 8 + 4;

    private final Session session;
    private final BlobSummary summary;
    private final long end;
    private Session.Target target;
    private long position;
    private CopyOut copy;
    private long copyEnd;
    /** The content of the last row, from rowStart on. */
    private ByteBuffer row = ByteBuffer.allocate(0);
    private long rowStart;
    private final Content seen = new Content();
    private boolean isOpen = true;

    BlobInputStream(Session session, BlobValue value, long offset, long length) throws IOException {
        if (offset < 0 || length < 0)
            throw new IllegalArgumentException("offset and length must not be negative");
        this.session = session;
        try {
            summary = session.retry(() -> {
                target = session.target(value);
                return session.find(target, "stat").summary();
            });
        } catch (IOException | RuntimeException error) {
            session.close();
            throw error;
        }
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
    public void seek(long newPosition) {
        if (newPosition < 0)
            throw new IllegalArgumentException("negative position: " + newPosition);
        position = newPosition;
    }

    @Override
    public long skip(long count) {
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
        Objects.checkFromIndexSize(offset, length, buffer.length);
        if (!isOpen)
            throw new IOException("the stream is closed");
        if (length == 0 || position >= end)
            return length == 0 ? 0 : -1;
        if (position < rowStart || position >= rowStart + row.capacity())
            fetch();
        int start = (int) (position - rowStart);
        int count = Math.min(length, row.capacity() - start);
        row.get(start, buffer, offset, count);
        position += count;
        return count;
    }

    private void fetch() throws IOException {
        boolean isNext = position == rowStart + row.capacity();
        if (!isNext)
            finish();
        // Between reads a connection of the caller is free.
        int rows = isNext && session.isOwner() ? ROWS : 1;
        ByteBuffer next = session.retry(() -> nextRow(rows));
        if (position == seen.size())
            seen.update(next.duplicate());
        if (seen.size() == summary.size() && !seen.summary().equals(summary))
            throw new BlobException(Kind.MISMATCH, "the bytes have another digest");
        row = next;
        rowStart = position;
    }

    /** One more row: of the COPY under way if there is one, else of another one. */
    private ByteBuffer nextRow(int rows) throws IOException, SQLException {
        try {
            int headerBytes = ROW_HEADER_BYTES;
            if (copy == null) {
                begin(rows);
                headerBytes += COPY_HEADER_BYTES;
            }
            int length = (int) Math.min(ROW_BYTES, copyEnd - position);
            byte[] bytes = copy.readFromCopy();
            if (bytes != null && bytes.length == COPY_HEADER_BYTES + 2)
                throw new BlobException(Kind.CHANGED, "the value was replaced or removed");
            if (bytes == null || bytes.length != headerBytes + length
                    || ByteBuffer.wrap(bytes).getLong(headerBytes - 12) != position)
                throw new BlobException(Kind.UNEXPECTED, "the server does not give this range");
            if (position + length == copyEnd)
                finish();
            return ByteBuffer.wrap(bytes, headerBytes, length).slice();
        } catch (IOException | SQLException error) {
            finish();
            throw error;
        }
    }

    private void begin(int rows) throws SQLException {
        copyEnd = Math.min(position + (long) rows * ROW_BYTES, end);
        String content = target.sql("read", "part.start", String.format("pg_catalog.int8smaller("
            + "%d, '%d' OPERATOR(pg_catalog.-) part.start)", ROW_BYTES, copyEnd),
            "'\\x" + summary.sha256() + '\'');
        copy = session.copies().copyOut(String.format("COPY (SELECT part.start, got.content"
            + " FROM pg_catalog.generate_series('%d'::pg_catalog.int8, '%d'::pg_catalog.int8,"
            + " %d::pg_catalog.int8) AS part (start) CROSS JOIN LATERAL (%s) AS got (content))"
            + " TO STDOUT (FORMAT binary)", position, copyEnd - 1, ROW_BYTES, content));
    }

    /** Takes what comes yet of a COPY. */
    private void finish() {
        try {
            while (copy != null && copy.isActive() && copy.readFromCopy() != null)
                continue;
        } catch (SQLException lost) {
            release();
        }
        copy = null;
    }

    /** Ends a COPY on a lost connection: the driver would let the next statement wait for it. */
    private void release() {
        try {
            if (copy.isActive())
                copy.cancelCopy();
        } catch (SQLException lost) {
            // The next statement says so.
        }
    }

    @Override
    public void close() {
        isOpen = false;
        finish();
        session.close();
    }
}
