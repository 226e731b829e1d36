package blobext;

import blobext.BlobException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
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

/** A connection, made again when it is lost unless it is the caller's; and its statements. */
final class Session implements AutoCloseable {
    /** Milliseconds between attempts to connect again. */
    private static final int[] PAUSES = {100, 500, 1000, 2000, 5000, 10000, 20000, 30000};
    /** A name may have a "$1". */
    private static final Pattern PARAMETER = Pattern.compile("\"(?:[^\"]|\"\")*\"|\\$(\\d+)");
    /** The statements for a value, and the values of its key as literals. */
    private static final String STATEMENTS = "SELECT s.*, ARRAY(SELECT"
        + " pg_catalog.quote_literal(k) FROM pg_catalog.unnest(?::pg_catalog.text[]) AS k) AS key"
        + " FROM (" + resource("statements.sql") + ") AS s";

    private record Statements(Map<String, String> texts, List<String> key) {
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
    private boolean isInTransaction;
    private Savepoint savepoint;
    private final Map<BlobValue, Statements> known = new HashMap<>();

    Session(DataSource source, Connection connection) {
        this.source = source;
        this.connection = connection;
    }

    private static String resource(String name) {
        try (InputStream stream = Session.class.getResourceAsStream(name)) {
            return new String(stream.readAllBytes(), StandardCharsets.UTF_8)
                .replaceFirst("SELECT \\$1(::[\\w.]+), \\$2(::[\\w.]+), \\$3(?=::)",
                    "SELECT ?$1, ?$2, ?");
        } catch (IOException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);    // Every Java has it.
        }
    }

    /** The digest so far. */
    static String hex(MessageDigest digest) {
        try {
            return HexFormat.of().formatHex(((MessageDigest) digest.clone()).digest());
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }

    boolean isOwner() {
        return source != null;
    }

    Connection connection() throws SQLException {
        if (connection == null) {
            connection = source.getConnection();
            connection.setAutoCommit(true);
        }
        return connection;
    }

    CopyManager copies() throws SQLException {
        return connection().unwrap(PGConnection.class).getCopyAPI();
    }

    /** Does work that may be done again if the connection is lost, unless that is the caller's. */
    <T> T retry(Work<T> work) throws IOException {
        for (int attempt = 0;; attempt++) {
            try {
                return run(work);
            } catch (BlobException error) {
                if (source == null || attempt == PAUSES.length || error.getKind() != Kind.LOST)
                    throw error;
                close();
            }
            try {
                Thread.sleep(PAUSES[attempt]);
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

    /** Gives a connection of its own back. */
    @Override
    public void close() {
        known.clear();
        try {
            if (source != null && connection != null)
                connection.close();
        } catch (SQLException lost) {
            // Nothing depends on it any more.
        }
        if (source != null)
            connection = null;
    }

    private Statements find(BlobValue value) throws IOException, SQLException {
        String table = (value.schema() == null ? "" : quote(value.schema()) + '.')
            + quote(value.table());
        try (PreparedStatement statement = connection().prepareStatement(STATEMENTS)) {
            statement.setArray(1, connection.createArrayOf("text", value.key().values().toArray()));
            statement.setString(2, table);
            statement.setString(3, value.column());
            statement.setArray(4, connection.createArrayOf("text", value.key().keySet().toArray()));
            ResultSet set = statement.executeQuery();
            if (!set.next())
                throw new BlobException(Kind.UNEXPECTED,
                    "the extension blobext is missing, or older than this package");
            Map<String, String> texts = new HashMap<>();
            int columns = set.getMetaData().getColumnCount();
            for (int column = 1; column < columns; column++)
                texts.put(set.getMetaData().getColumnName(column), set.getString(column));
            return new Statements(texts, List.of((String[]) set.getArray(columns).getArray()));
        }
    }

    private static String quote(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    /** A statement for a value, with terms for its parameters beside the key. */
    String statement(BlobValue value, String name, String... own) throws IOException, SQLException {
        Statements of = known.get(value);
        if (of == null)
            known.put(value, of = find(value));
        List<String> terms = new ArrayList<>(name.equals("begin") ? List.of() : of.key());
        Collections.addAll(terms, own);
        return PARAMETER.matcher(of.texts().get(name)).replaceAll(found ->
            Matcher.quoteReplacement(found.group(1) == null ? found.group()
                : terms.get(Integer.parseInt(found.group(1)) - 1)));
    }

    void execute(String text) throws SQLException {
        try (Statement statement = connection().createStatement()) {
            statement.execute(text);
        }
    }

    /** The first row of a statement for a value; null without one. */
    Found first(BlobValue value, String name, String... own) throws IOException, SQLException {
        String text = statement(value, name, own);
        try (Statement statement = connection().createStatement();
                ResultSet set = statement.executeQuery(text)) {
            if (!set.next())
                return null;
            byte[] digest = set.getBytes(2);
            if (digest == null || digest.length != 32 || set.getLong(1) < 0)
                throw new BlobException(Kind.UNEXPECTED, "this is no answer of blobext");
            return new Found(new BlobSummary(set.getLong(1), HexFormat.of().formatHex(digest)),
                set.getMetaData().getColumnCount() > 2 ? set.getLong(3) : 0);
        }
    }

    /** The same, of a value that must be there. */
    Found stat(BlobValue value, String name, String... own) throws IOException, SQLException {
        Found found = first(value, name, own);
        if (found == null)
            throw new BlobException(Kind.MISSING, value.table() + " has no value of "
                + value.key());
        return found;
    }

    /** Begins a transaction, or a savepoint within one of the caller's. */
    void begin() throws SQLException {
        boolean isNested = !connection().getAutoCommit();
        if (!isNested)
            connection.setAutoCommit(false);
        savepoint = isNested ? connection.setSavepoint() : null;
        isInTransaction = true;
    }

    void commit() throws SQLException {
        if (savepoint != null)
            connection.releaseSavepoint(savepoint);
        else
            connection.commit();
        end();
    }

    /** Of what is not committed. */
    void rollBack() {
        try {
            if (isInTransaction && savepoint != null)
                connection.rollback(savepoint);
            else if (isInTransaction)
                connection.rollback();
            if (isInTransaction)
                end();
        } catch (SQLException lost) {
            isInTransaction = false;    // The server rolls back.
        }
    }

    private void end() throws SQLException {
        isInTransaction = false;
        if (savepoint == null)
            connection.setAutoCommit(true);
    }
}
