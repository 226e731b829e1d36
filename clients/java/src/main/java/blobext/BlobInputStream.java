package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Objects;
import org.postgresql.PGStatement;

/**
 * One version of a value, or a range of it. Each piece is a statement, which asks for this version:
 * if another session replaces the value meanwhile, reads throw BlobException, kind CHANGED. After a
 * lost connection reads go on where they were, if the connection is not the caller's. The digest is
 * verified when all has been read in order. Not for several threads at the same time.
 */
public final class BlobInputStream extends InputStream {
    private static final int LEAST_PIECE = 64 * 1024;
    private static final int LARGEST_PIECE = 1024 * 1024;

    private final Session session;
    private final BlobValue value;
    private final BlobSummary summary;
    private final long end;
    private long position;
    private byte[] piece = {};
    private long pieceStart;
    private int nextBytes = LEAST_PIECE;
    private PreparedStatement statement;
    private Connection prepared;
    private final MessageDigest digest = BlobOutputStream.sha256();
    private long hashedBytes;
    private boolean isOpen = true;

    BlobInputStream(Session session, BlobValue value, long offset, long length) throws IOException {
        if (offset < 0 || length < 0)
            throw new IllegalArgumentException("offset and length must not be negative");
        this.session = session;
        this.value = value;
        BlobSummary found = null;
        try {
            found = session.retry(() -> session.stat(value));
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
        if (!isInPiece())
            fetch();
        int start = (int) (position - pieceStart);
        int count = (int) Math.min(Math.min(length, piece.length - start), end - position);
        System.arraycopy(piece, start, buffer, offset, count);
        position += count;
        return count;
    }

    private boolean isInPiece() {
        return position >= pieceStart && position - pieceStart < piece.length;
    }

    /** Small pieces after a seek, larger ones in order. */
    private void fetch() throws IOException {
        boolean isNext = position == pieceStart + piece.length;
        nextBytes = isNext ? Math.min(2 * nextBytes, LARGEST_PIECE) : LEAST_PIECE;
        int length = (int) Math.min(nextBytes, end - position);
        piece = new byte[0];
        byte[] bytes = session.retry(() -> readPiece(length));
        if (bytes == null)
            throw new BlobException(Kind.CHANGED, "the value was replaced or removed meanwhile");
        if (bytes.length != length)
            throw new BlobException(Kind.UNEXPECTED, "the server gives " + bytes.length
                + " bytes in place of " + length);
        if (position == hashedBytes)
            verify(bytes);
        piece = bytes;
        pieceStart = position;
    }

    private void verify(byte[] bytes) throws BlobException {
        digest.update(bytes);
        hashedBytes += bytes.length;
        if (hashedBytes == summary.size() && !BlobOutputStream.hex(digest).equals(summary.sha256()))
            throw new BlobException(Kind.MISMATCH, "the bytes have another digest than the value");
    }

    /** The bytes at the position; null if there is no row with this version. */
    private byte[] readPiece(int length) throws IOException, SQLException {
        if (prepared != session.connection()) {
            Session.Row row = session.row(value);
            prepared = session.connection();
            statement = prepared.prepareStatement("SELECT " + session.member("blob_read") + '('
                + row.content() + ", ?::pg_catalog.int8, ?::pg_catalog.int8)" + row.from()
                + " AND " + session.member("sha256") + '(' + row.content()
                + ") OPERATOR(pg_catalog.=) pg_catalog.decode('" + summary.sha256() + "', 'hex')");
            PGStatement postgres = statement.unwrap(PGStatement.class);
            if (postgres.getPrepareThreshold() > 0)
                postgres.setPrepareThreshold(-1);    // binary from the first time on
        }
        statement.setLong(1, position);
        statement.setLong(2, length);
        try (ResultSet rows = statement.executeQuery()) {
            return rows.next() ? Objects.requireNonNullElse(rows.getBytes(1), new byte[0]) : null;
        }
    }

    @Override
    public void close() {
        isOpen = false;
        piece = new byte[0];
        session.close();
    }

    private void requireOpen() throws IOException {
        if (!isOpen)
            throw new IOException("the stream is closed");
    }
}
