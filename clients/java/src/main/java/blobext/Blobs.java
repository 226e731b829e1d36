package blobext;

import blobext.BlobException.Kind;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Objects;
import javax.sql.DataSource;

/** Values of the PostgreSQL extension blobext as streams. */
public final class Blobs {
    /** An upload with a stage commits after this many bytes. */
    static final long SECTION_BYTES = 64L * 1024 * 1024;

    private final DataSource source;
    private final Connection connection;

    /** Each stream takes a connection of its own, and another one when that is lost. */
    public Blobs(DataSource source) {
        this.source = Objects.requireNonNull(source);
        connection = null;
    }

    /** Works on this connection, in its transaction if autocommit is off. Does not reconnect. */
    public Blobs(Connection connection) {
        source = null;
        this.connection = Objects.requireNonNull(connection);
    }

    /** Content to upload: each call opens it anew at its beginning. */
    @FunctionalInterface
    public interface Content {
        InputStream open() throws IOException;
    }

    private Session session() {
        return new Session(source, connection);
    }

    /** Size and digest, without a read of content. */
    public BlobSummary stat(BlobValue value) throws IOException {
        try (Session session = session()) {
            return session.retry(() -> session.stat(value, "stat").summary());
        }
    }

    public BlobInputStream open(BlobValue value) throws IOException {
        return open(value, 0, Long.MAX_VALUE);
    }

    /** A range, or as much of it as the value has. */
    public BlobInputStream open(BlobValue value, long offset, long length) throws IOException {
        return new BlobInputStream(session(), value, offset, length);
    }

    /** A new value for the row, or a new row with the columns of the key and this value. */
    public BlobOutputStream create(BlobValue value) throws IOException {
        return create(value, 0);
    }

    /** The same; with a number of bytes the server allocates extents side by side. */
    public BlobOutputStream create(BlobValue value, long expectedBytes) throws IOException {
        return new BlobOutputStream(session(), true, value, null, expectedBytes);
    }

    /** Stores content in one transaction; after a lost connection it begins again. */
    public BlobSummary upload(BlobValue value, Content content) throws IOException {
        try (Session session = session(); Input input = new Input(content)) {
            return session.retry(() -> send(session, value, null, input, Long.MAX_VALUE));
        }
    }

    /**
     * Stores content in a stage, in transactions of 64 MB each, and then in its row. After a lost
     * connection, also in another process, it goes on with what the stage has.
     */
    public BlobSummary upload(BlobValue value, Content content, BlobValue stage)
            throws IOException {
        try (Session session = session(); Input input = new Input(content)) {
            BlobSummary[] staged = {null};
            while (!input.isAtEnd) {
                staged[0] = session.retry(() -> {
                    session.execute(session.statement(stage, "stage"));
                    return send(session, stage, stage, input, SECTION_BYTES);
                });
            }
            return session.retry(() -> move(session, stage, value, input, staged[0]));
        }
    }

    /** One transaction. What is not for the stage itself removes it. */
    private static BlobSummary send(Session session, BlobValue target, BlobValue stage, Input input,
            long limit) throws IOException {
        try (BlobOutputStream output = new BlobOutputStream(session, false, target, stage, 0)) {
            input.goTo(output.summary());
            output.setDigest(input.digest);
            input.copyTo(output, limit);
            return output.store(target.equals(stage) ? null : stage);
        }
    }

    /** If the stage is gone, this was committed before, and the answer was lost. */
    private static BlobSummary move(Session session, BlobValue stage, BlobValue value, Input input,
            BlobSummary staged) throws IOException, SQLException {
        try {
            return send(session, value, stage, input, 0);
        } catch (BlobException error) {
            if (error.getKind() != Kind.MISSING
                    || !staged.equals(session.stat(value, "stat").summary()))
                throw error;
            return staged;
        }
    }

    /** Content with the digest of what was read. */
    private static final class Input implements Closeable {
        private final Content content;
        private InputStream stream;
        private long position;
        private final byte[] buffer = new byte[64 * 1024];
        MessageDigest digest;
        boolean isAtEnd;

        Input(Content content) {
            this.content = content;
        }

        /** Goes to the end of what the server has, which must be the beginning of this content. */
        void goTo(BlobSummary beginning) throws IOException {
            if (stream == null || position != beginning.size()) {
                close();
                stream = content.open();
                position = 0;
                isAtEnd = false;
                digest = Session.sha256();
                for (int count; (count = read(beginning.size() - position)) > 0;)
                    digest.update(buffer, 0, count);
            }
            if (!new BlobSummary(position, Session.hex(digest)).equals(beginning))
                throw new BlobException(Kind.MISMATCH, "the stage has another beginning");
        }

        private int read(long limit) throws IOException {
            int most = (int) Math.min(limit, buffer.length);
            int count = most == 0 ? 0 : stream.read(buffer, 0, most);
            isAtEnd = count < 0;
            position += Math.max(count, 0);
            return count;
        }

        /** The stream hashes what it sends. */
        void copyTo(BlobOutputStream output, long limit) throws IOException {
            for (int count; (count = read(limit)) > 0; limit -= count)
                output.write(buffer, 0, count);
        }

        @Override
        public void close() throws IOException {
            if (stream != null)
                stream.close();
            stream = null;
        }
    }
}
