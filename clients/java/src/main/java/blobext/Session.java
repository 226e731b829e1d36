package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.sql.DataSource;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** A connection, made again when it was lost or closed, unless it is the caller's. */
final class Session implements AutoCloseable {
    private static final long FIRST_PAUSE_MS = 100;
    private static final long LAST_PAUSE_MS = 30_000;
    /** A name may have a "$1". */
    private static final Pattern PARAMETER = Pattern.compile("\"(?:[^\"]|\"\")*\"|\\$(\\d+)");
    private static final String STATEMENTS = "SELECT s.*, ARRAY(SELECT"
        + " pg_catalog.quote_literal(k) FROM pg_catalog.unnest(?::pg_catalog.text[]) AS k) AS key"
        + " FROM (" + resource("statements.sql")
            .replaceAll("\\$\\d(?=::pg_catalog.text)", "?") + ") AS s";

    /** A value with its statements, and the values of its key as literals. */
    record Target(BlobValue value, Map<String, String> statements, List<String> key) {
        /** A statement with terms for its parameters beside the key: COPY has no parameters. */
        String sql(String name, Object... own) {
            List<Object> terms = new ArrayList<>(name.equals("begin") ? List.of() : key);
            Collections.addAll(terms, own);
            return PARAMETER.matcher(statements.get(name)).replaceAll(found ->
                Matcher.quoteReplacement(found.group(1) == null ? found.group()
                    : terms.get(Integer.parseInt(found.group(1)) - 1).toString()));
        }
    }

    /** A summary, and the number of an upload that begins with it. */
    record Found(BlobSummary summary, long number) {
    }

    @FunctionalInterface
    interface Work<T> {
        T run() throws IOException, SQLException;
    }

    private final DataSource source;
    private Connection connection;
    private boolean isNested;

    Session(DataSource source, Connection connection) {
        this.source = source;
        this.connection = connection;
    }

    private static String resource(String name) {
        try (InputStream stream = Session.class.getResourceAsStream(name)) {
            return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    boolean isOwner() {
        return source != null;
    }

    private Connection connection() throws SQLException {
        if (connection == null) {
            connection = source.getConnection();
            connection.setAutoCommit(true);
        }
        return connection;
    }

    CopyManager copies() throws SQLException {
        return connection().unwrap(PGConnection.class).getCopyAPI();
    }

    /** Does work again that may be done twice, after a connection of its own was lost. */
    <T> T retry(Work<T> work) throws IOException {
        for (long pause = FIRST_PAUSE_MS;; pause *= 2) {
            try {
                return run(work);
            } catch (BlobException error) {
                if (source == null || pause > LAST_PAUSE_MS || error.getKind() != Kind.LOST)
                    throw error;
            }
            close();
            try {
                Thread.sleep(pause);
            } catch (InterruptedException interrupt) {
                Thread.currentThread().interrupt();
                throw new InterruptedIOException("interrupted before another attempt to connect");
            }
        }
    }

    static <T> T run(Work<T> work) throws IOException {
        try {
            return work.run();
        } catch (SQLException error) {
            throw new BlobException(error);
        }
    }

    /** Gives a connection of its own back; one that is lost fails here, too. */
    @Override
    public void close() {
        if (source == null || connection == null)
            return;
        try {
            connection.close();
        } catch (SQLException lost) {
            // Nothing depends on it any more.
        }
        connection = null;
    }

    Target target(BlobValue value) throws IOException, SQLException {
        String table = quote(value.table());
        if (value.schema() != null)
            table = quote(value.schema()) + '.' + table;
        try (PreparedStatement statement = connection().prepareStatement(STATEMENTS)) {
            statement.setArray(1, connection.createArrayOf("text", value.key().values().toArray()));
            statement.setString(2, table);
            statement.setString(3, value.column());
            statement.setArray(4, connection.createArrayOf("text", value.key().keySet().toArray()));
            ResultSet row = statement.executeQuery();
            if (!row.next())
                throw new BlobException(Kind.UNEXPECTED,
                    "the extension blobext is missing, or older than this package");
            Map<String, String> statements = new HashMap<>();
            int last = row.getMetaData().getColumnCount();
            for (int column = 1; column < last; column++)
                statements.put(row.getMetaData().getColumnName(column), row.getString(column));
            return new Target(value, statements, List.of((String[]) row.getArray(last).getArray()));
        }
    }

    private static String quote(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    void execute(String text) throws SQLException {
        try (Statement statement = connection().createStatement()) {
            statement.execute(text);
        }
    }

    /** The first row of a statement whose first columns are a summary. */
    Found find(Target target, String name, Object... own) throws IOException, SQLException {
        try (Statement statement = connection().createStatement();
                ResultSet row = statement.executeQuery(target.sql(name, own))) {
            if (!row.next())
                throw new BlobException(Kind.MISSING,
                    target.value.table() + " has no value of " + target.value.key());
            byte[] digest = row.getBytes(2);
            if (digest == null || digest.length != 32 || row.getLong(1) < 0)
                throw new BlobException(Kind.UNEXPECTED, "this is no answer of blobext");
            return new Found(new BlobSummary(row.getLong(1), HexFormat.of().formatHex(digest)),
                row.getMetaData().getColumnCount() > 2 ? row.getLong(3) : 0);
        }
    }

    /** Begins a transaction, or a savepoint within one of the caller's. */
    void begin() throws SQLException {
        isNested = !connection().getAutoCommit();
        execute(isNested ? "SAVEPOINT blobext" : "BEGIN");
    }

    void commit() throws SQLException {
        execute(isNested ? "RELEASE blobext" : "COMMIT");
    }

    void rollBack() {
        try {
            execute(isNested ? "ROLLBACK TO blobext; RELEASE blobext" : "ROLLBACK");
        } catch (SQLException lost) {
            // The server rolls back.
        }
    }
}
