package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.sql.SQLException;
import java.util.HexFormat;
import java.util.Objects;
import org.postgresql.copy.CopyIn;

/**
 * A new value, written in one transaction. store() stores it; close() without store() gives it up,
 * so that an exception never leaves a part of a value. Meanwhile the connection is busy. In a
 * transaction of the caller this is a savepoint. Not for several threads at the same time.
 */
public final class BlobOutputStream extends OutputStream {
    private static final int PIECE_BYTES = 128 * 1024;
    /** Number of columns, and two columns' lengths with the first column. */
    private static final int ROW_HEADER_BYTES = 2 + 4 + 8 + 4;
    private static final byte[] COPY_BEGIN =
        HexFormat.of().parseHex("5047434f50590aff0d0a000000000000000000");
    private static final byte[] COPY_END = {-1, -1};

    private final Session session;
    private final boolean ownsSession;
    private final BlobValue value;
    private final ByteBuffer row = ByteBuffer.allocate(ROW_HEADER_BYTES + PIECE_BYTES);
    private CopyIn copy;
    private long number;
    private MessageDigest digest = Session.sha256();
    private BlobSummary summary;
    private long position;

    /** With a stage, unless that is null, it goes on at the end of what that has. */
    BlobOutputStream(Session session, boolean ownsSession, BlobValue value, BlobValue stage,
            long expectedBytes) throws IOException {
        this.session = session;
        this.ownsSession = ownsSession;
        this.value = value;
        boolean isDone = false;
        try {
            Session.run(() -> begin(stage, expectedBytes));
            isDone = true;
        } finally {
            if (!isDone)
                close();
        }
    }

    private Void begin(BlobValue stage, long expectedBytes) throws IOException, SQLException {
        String pieces = session.statement(value, "pieces");
        session.begin();
        Session.Found beginning = stage != null ? session.stat(stage, "resume", "'0'")
            : session.first(value, "begin", "'" + expectedBytes + '\'');
        summary = beginning.summary();
        position = summary.size();
        number = beginning.number();
        copy = session.copies().copyIn(pieces);
        copy.writeToCopy(COPY_BEGIN, 0, COPY_BEGIN.length);
        row.putShort((short) 2).putInt(8).putLong(number).putInt(0);
        return null;
    }

    /** Bytes that the value has so far. */
    public long position() {
        return position;
    }

    /** Of the stored value; before store(), of what this began with. */
    public BlobSummary summary() {
        return summary;
    }

    /** Goes on with the digest of what this began with. */
    void setDigest(MessageDigest beginning) {
        digest = beginning;
    }

    @Override
    public void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        requireOpen();
        for (int done = 0, count; done < length; done += count) {
            count = Math.min(length - done, row.remaining());
            row.put(bytes, offset + done, count);
            position += count;
            if (!row.hasRemaining())
                send();
        }
    }

    private void send() throws IOException {
        int length = row.position() - ROW_HEADER_BYTES;
        row.putInt(ROW_HEADER_BYTES - 4, length);
        digest.update(row.array(), ROW_HEADER_BYTES, length);
        attempt(() -> {
            copy.writeToCopy(row.array(), 0, row.position());
            return null;
        });
        row.position(ROW_HEADER_BYTES);
    }

    /** Sends nothing yet: errors of the server come with later pieces, or with store(). */
    @Override
    public void flush() throws IOException {
        requireOpen();
    }

    /** Stores the value in its row, or a new one. Commits, but not a transaction of the caller. */
    public BlobSummary store() throws IOException {
        return store(null);
    }

    /** The same, and removes a stage, unless that is null. */
    BlobSummary store(BlobValue stage) throws IOException {
        requireOpen();
        if (row.position() > ROW_HEADER_BYTES)
            send();
        return attempt(() -> {
            copy.writeToCopy(COPY_END, 0, COPY_END.length);
            copy.endCopy();
            copy = null;
            Session.Found stored = session.first(value, "update", "'" + number + '\'');
            if (stored == null)
                stored = session.stat(value, "insert", "'" + number + '\'');
            if (!new BlobSummary(position, Session.hex(digest)).equals(stored.summary()))
                throw new BlobException(Kind.MISMATCH, "the server has other bytes than were sent");
            if (stage != null)
                session.execute(session.statement(stage, "unstage"));
            session.commit();
            summary = stored.summary();
            close();
            return summary;
        });
    }

    /** After an error the value is given up. */
    private <T> T attempt(Session.Work<T> work) throws IOException {
        boolean isDone = false;
        try {
            T result = Session.run(work);
            isDone = true;
            return result;
        } finally {
            if (!isDone)
                close();
        }
    }

    /** Gives the value up, unless it is stored: the row stays as it is. */
    @Override
    public void close() {
        try {
            if (copy != null && copy.isActive())
                copy.cancelCopy();
        } catch (SQLException cancelled) {
            // The server says that the COPY has failed, which is what was asked for.
        }
        copy = null;
        session.rollBack();
        if (ownsSession)
            session.close();
    }

    private void requireOpen() throws IOException {
        if (copy == null)
            throw new IOException("the stream is closed");
    }
}
