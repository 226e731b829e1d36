import blobext.BlobException;
import blobext.BlobInputStream;
import blobext.BlobOutputStream;
import blobext.BlobSummary;
import blobext.BlobValue;
import blobext.Blobs;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.CancellationException;
import org.postgresql.ds.PGSimpleDataSource;

/** The adapter of this package for clients/conformance, whose README.md says what it does. */
public final class Conformance {
    private static final String SCHEMA = "Odd \"Schema\"";

    private final BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Blobs blobs = new Blobs(source());
    private final byte[] buffer = new byte[128 * 1024];
    private BlobInputStream reader;
    private long pauseAt;

    private static PGSimpleDataSource source() {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setServerNames(new String[] {System.getenv("PGHOST")});
        source.setPortNumbers(new int[] {Integer.parseInt(System.getenv("PGPORT"))});
        source.setUser(System.getenv("PGUSER"));
        source.setDatabaseName(System.getenv("PGDATABASE"));
        source.setApplicationName(System.getenv("PGAPPNAME"));
        return source;
    }

    private static BlobValue value(String id) {
        return BlobValue.of("Odd Name", "id", Long.parseLong(id)).withKey("Kind", "a'b")
            .withSchema(SCHEMA).withColumn("my content");
    }

    private static String describe(BlobSummary summary) {
        return summary.size() + "\t" + summary.sha256();
    }

    /** The script may end the connections here, or change the value; or it cancels. */
    private void pause(long count) throws IOException {
        if (count < pauseAt)
            return;
        pauseAt = Long.MAX_VALUE;
        output.println("paused");
        if (input.readLine().equals("cancel"))
            throw new CancellationException("cancelled by the script");
    }

    private String read(InputStream stream, long length) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long total = 0;
        while (total < length) {
            int count = stream.read(buffer, 0, (int) Math.min(buffer.length, length - total));
            if (count < 0)
                break;
            digest.update(buffer, 0, count);
            total += count;
        }
        return total + "\t" + HexFormat.of().formatHex(digest.digest());
    }

    private void copy(InputStream from, OutputStream to) throws IOException {
        long total = 0;
        for (int count; (count = from.read(buffer)) >= 0;) {
            to.write(buffer, 0, count);
            total += count;
            pause(total);
        }
    }

    private String download(BlobInputStream stream, Path path) throws IOException {
        try (stream; OutputStream file = Files.newOutputStream(path)) {
            copy(stream, file);
            return describe(stream.summary());
        }
    }

    private String write(BlobOutputStream stream, Path path) throws IOException {
        try (stream; InputStream file = Files.newInputStream(path)) {
            copy(file, stream);
            return describe(stream.store());
        }
    }

    /** A file that pauses where the script wants it. */
    private final class Paused implements SeekableByteChannel {
        private final SeekableByteChannel file;
        private long total;

        Paused(Path path) throws IOException {
            file = Files.newByteChannel(path);
        }

        @Override
        public int read(ByteBuffer bytes) throws IOException {
            pause(total);
            int count = file.read(bytes);
            total += Math.max(count, 0);
            return count;
        }

        @Override
        public int write(ByteBuffer bytes) throws IOException {
            return file.write(bytes);
        }

        @Override
        public long position() throws IOException {
            return file.position();
        }

        @Override
        public SeekableByteChannel position(long newPosition) throws IOException {
            file.position(newPosition);
            return this;
        }

        @Override
        public long size() throws IOException {
            return file.size();
        }

        @Override
        public SeekableByteChannel truncate(long size) throws IOException {
            file.truncate(size);
            return this;
        }

        @Override
        public boolean isOpen() {
            return file.isOpen();
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    private String upload(BlobValue value, Path path, String stage) throws IOException {
        BlobValue row = stage.equals("-") ? null : BlobValue.stage(stage).withSchema(SCHEMA);
        try (SeekableByteChannel file = new Paused(path)) {
            return describe(blobs.upload(value, file, row));
        }
    }

    private long seek(long offset, String whence) throws IOException {
        reader.seek(offset + switch (whence) {
            case "current" -> reader.position();
            case "end" -> reader.summary().size();
            default -> 0;
        });
        return reader.position();
    }

    private String run(String[] fields) throws Exception {
        String last = fields[fields.length - 1];
        pauseAt = fields[0].matches("download|write|upload") && !last.equals("-")
            ? Long.parseLong(last) : Long.MAX_VALUE;
        switch (fields[0]) {
            case "stat":
                return describe(blobs.stat(value(fields[1])));
            case "open":
                reader = blobs.open(value(fields[1]));
                return String.valueOf(reader.summary().size());
            case "seek":
                return String.valueOf(seek(Long.parseLong(fields[1]), fields[2]));
            case "next":
                return read(reader, Long.parseLong(fields[1]));
            case "close":
                reader.close();
                return "";
            case "range":
                try (InputStream stream = blobs.open(value(fields[1]), Long.parseLong(fields[2]),
                        Long.parseLong(fields[3]))) {
                    return read(stream, Long.MAX_VALUE);
                }
            case "download":
                return download(blobs.open(value(fields[1])), Path.of(fields[2]));
            case "write":
                return write(blobs.create(value(fields[1])), Path.of(fields[2]));
            case "upload":
                return upload(value(fields[1]), Path.of(fields[2]), fields[3]);
            default:
                return null;
        }
    }

    private static String kind(Exception error) {
        if (error instanceof CancellationException)
            return "cancelled";
        if (error instanceof IllegalArgumentException)
            return "position";
        return error instanceof BlobException blob ? blob.getKind().name().toLowerCase() : "other";
    }

    public static void main(String[] arguments) throws IOException {
        Conformance adapter = new Conformance();
        for (String line; (line = adapter.input.readLine()) != null;) {
            try {
                String answer = adapter.run(line.split("\t"));
                adapter.output.println(answer == null ? "error\tunknown"
                    : answer.isEmpty() ? "ok" : "ok\t" + answer);
            } catch (Exception error) {
                String state = error instanceof BlobException blob ? blob.getSQLState() : null;
                adapter.output.println(String.join("\t", "error", kind(error),
                    state == null ? "-" : state, String.valueOf(error.getMessage())
                        .replaceAll("\\s+", " ")));
                if (kind(error).equals("other"))
                    error.printStackTrace();
            }
        }
    }
}
