package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
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
    private final ByteBuffer row = ByteBuffer.allocate(ROW_HEADER_BYTES + PIECE_BYTES);
    private Session.Target target;
    private Session.Target stage;
    private Session.Found upload;
    private Content content = new Content();
    private boolean isInTransaction;
    private CopyIn copy;

    /** With a stage, unless that is null, it goes on at the end of what that has. */
    BlobOutputStream(Session session, BlobValue value, BlobValue stage, long expectedBytes)
            throws IOException {
        this.session = session;
        try {
            Session.run(() -> begin(value, stage, expectedBytes));
        } catch (IOException | RuntimeException error) {
            close();
            throw error;
        }
    }

    private Void begin(BlobValue value, BlobValue stage, long expectedBytes)
            throws IOException, SQLException {
        target = session.target(value);
        session.begin();
        isInTransaction = true;
        if (stage == null) {
            upload = session.find(target, "begin", "'" + expectedBytes + '\'');
        } else {
            this.stage = session.target(stage);
            session.execute(this.stage.sql("stage"));
            upload = session.find(this.stage, "resume", "'0'");
        }
        copy = session.copies().copyIn(target.sql("pieces"));
        copy.writeToCopy(COPY_BEGIN, 0, COPY_BEGIN.length);
        row.putShort((short) 2).putInt(8).putLong(upload.number()).putInt(0);
        return null;
    }

    /** Of the stored value; before store(), of what this began with. */
    public BlobSummary summary() {
        return upload.summary();
    }

    /** Goes on with the digest of what this began with; if there is more to come, in the stage. */
    void goOn(Content beginning, boolean isInStage) {
        content = beginning;
        target = isInStage ? stage : target;
        stage = isInStage ? null : stage;
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
            if (!row.hasRemaining())
                Session.run(this::send);
        }
    }

    private Void send() throws SQLException {
        int length = row.position() - ROW_HEADER_BYTES;
        row.putInt(ROW_HEADER_BYTES - 4, length);
        content.update(row.duplicate().flip().position(ROW_HEADER_BYTES));
        copy.writeToCopy(row.array(), 0, row.position());
        row.position(ROW_HEADER_BYTES);
        return null;
    }

    /** Stores the value in its row, or a new one. Commits, but not a transaction of the caller. */
    public BlobSummary store() throws IOException {
        requireOpen();
        try {
            upload = Session.run(this::end);
            isInTransaction = false;
            return summary();
        } finally {
            close();
        }
    }

    private Session.Found end() throws IOException, SQLException {
        if (row.position() > ROW_HEADER_BYTES)
            send();
        copy.writeToCopy(COPY_END, 0, COPY_END.length);
        copy.endCopy();
        Session.Found stored;
        String number = "'" + upload.number() + '\'';
        try {
            stored = session.find(target, "update", number);
        } catch (BlobException error) {
            if (error.getKind() != Kind.MISSING)
                throw error;
            stored = session.find(target, "insert", number);
        }
        if (!stored.summary().equals(content.summary()))
            throw new BlobException(Kind.MISMATCH, "the server has other bytes than were sent");
        if (stage != null)
            session.execute(stage.sql("unstage"));
        session.commit();
        return stored;
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
        if (isInTransaction)
            session.rollBack();
        isInTransaction = false;
        session.close();
    }

    private void requireOpen() throws IOException {
        if (copy == null)
            throw new IOException("the stream is closed");
    }
}
