package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.sql.Connection;
import java.util.Objects;
import javax.sql.DataSource;

/** Values of the PostgreSQL extension blobext as streams. */
public final class Blobs {
    /** An upload with a stage commits after this many bytes. */
    private static final long SECTION_BYTES = 64L * 1024 * 1024;
    private static final int BUFFER_BYTES = 64 * 1024;

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

    private Session session() {
        return new Session(source, connection);
    }

    /** Size and digest, without a read of content. */
    public BlobSummary stat(BlobValue value) throws IOException {
        try (BlobInputStream stream = open(value)) {
            return stream.summary();
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
        return new BlobOutputStream(session(), value, null, expectedBytes);
    }

    /** Stores all of a file in one transaction; after a lost connection it begins again. */
    public BlobSummary upload(BlobValue value, SeekableByteChannel file) throws IOException {
        return upload(value, file, null);
    }

    /**
     * Stores all of a file in transactions of 64 MB: in a stage, the last one in the row of the
     * value. After a lost connection, also in another process, it goes on with what the stage has.
     *
     * <p>The digest of the stage tells whether it has the beginning of the file: the commit of a
     * section may have been done although its answer was lost.
     */
    public BlobSummary upload(BlobValue value, SeekableByteChannel file, BlobValue stage)
            throws IOException {
        Session session = session();
        Content seen = new Content();
        BlobSummary stored;
        do {
            stored = session.retry(() -> send(session, value, file, stage, seen));
        } while (stored.size() < file.size());
        return stored;
    }

    /** One transaction: all of a file, or with a stage a section of it. */
    private static BlobSummary send(Session session, BlobValue value, SeekableByteChannel file,
            BlobValue stage, Content seen) throws IOException {
        long size = file.size();
        ByteBuffer buffer = ByteBuffer.allocate(BUFFER_BYTES);
        try (BlobOutputStream output =
                new BlobOutputStream(session, value, stage, stage == null ? size : 0)) {
            BlobSummary beginning = output.summary();
            if (seen.size() != beginning.size())
                seen.clear();
            file.position(seen.size());
            while (seen.size() < beginning.size())
                seen.update(read(file, buffer, beginning.size() - seen.size()));
            if (!seen.summary().equals(beginning))
                throw new BlobException(Kind.MISMATCH, "the stage has another beginning");
            long end = stage == null ? size : Math.min(size, beginning.size() + SECTION_BYTES);
            output.goOn(seen, end < size);
            while (file.position() < end)
                output.write(buffer.array(), 0,
                    read(file, buffer, end - file.position()).remaining());
            return output.store();
        }
    }

    /** The next bytes of a file. That there are none is an error. */
    private static ByteBuffer read(SeekableByteChannel file, ByteBuffer buffer, long most)
            throws IOException {
        if (file.read(buffer.clear().limit((int) Math.min(most, BUFFER_BYTES))) <= 0)
            throw new BlobException(Kind.MISMATCH, "the file is shorter than it was");
        return buffer.flip();
    }
}
