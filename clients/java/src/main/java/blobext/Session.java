package blobext;

import blobext.BlobException.Kind;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import javax.sql.DataSource;

/** A connection, made again when it is lost unless it is the caller's; and its statements. */
final class Session implements Closeable {
    /** Milliseconds between attempts to connect again. */
    private static final int[] PAUSES = {100, 500, 1000, 2000, 5000, 10000, 20000, 30000};

    private static final String MEMBERS = sql("""
        SELECT i.identity FROM pg_catalog.pg_extension AS e
            JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid AND d.deptype = 'e'
                AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
            CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS i
        WHERE e.extname = 'blobext'""");

    private static final List<String> WANTED = List.of(".blobstate", ".length(TYPE)",
        ".sha256(TYPE)", ".blob_read(TYPE,bigint,bigint)", ".blob_upload_begin(bigint)",
        ".blob_upload_resume(TYPE,bigint)", ".blob_upload_end(bigint)", ".blob_upload_pieces");

    /** For each column of a key: its name, its equality, its value as a literal of its type. */
    private static final String KEY = sql("""
        WITH RECURSIVE base (name, type) AS (
            SELECT a.attname, a.atttypid FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = ?::pg_catalog.regclass::pg_catalog.oid AND NOT a.attisdropped
            UNION ALL SELECT b.name, t.typbasetype FROM base AS b
                JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype = 'd')
        SELECT pg_catalog.format('%I', b.name), pg_catalog.format('OPERATOR(%I.%s)',
                COALESCE(n.nspname, 'pg_catalog'), COALESCE(o.oprname, '=')),
            pg_catalog.format('%L::%I.%I', k.value, s.nspname, t.typname)
        FROM ROWS FROM (pg_catalog.unnest(?::pg_catalog.text[]),
                pg_catalog.unnest(?::pg_catalog.text[])) AS k (name, value)
            JOIN base AS b ON b.name = k.name
            JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typbasetype = 0::pg_catalog.oid
            JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace
            LEFT JOIN pg_catalog.pg_opclass AS c ON c.opcintype = t.oid AND c.opcdefault
                AND c.opcmethod = 403::pg_catalog.oid
            LEFT JOIN pg_catalog.pg_amop AS a ON a.amopfamily = c.opcfamily
                AND a.amopstrategy = 3::pg_catalog.int2 AND a.amoplefttype = t.oid
                AND a.amoprighttype = t.oid
            LEFT JOIN pg_catalog.pg_operator AS o ON o.oid = a.amopopr
            LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace""");

    /** Parts of statements for a value. */
    record Row(String table, String column, String content, String summary, String names,
        String values, String where) {
        String from() {
            return " FROM " + table + " WHERE " + where;
        }
    }

    @FunctionalInterface
    interface Work<T> {
        T run() throws IOException, SQLException;
    }

    private final DataSource source;
    private Connection connection;
    private final Map<String, String> members = new HashMap<>();
    private final Map<BlobValue, Row> rows = new HashMap<>();

    Session(DataSource source, Connection connection) {
        this.source = source;
        this.connection = connection;
    }

    /** No operator of the search path is called. */
    private static String sql(String text) {
        return text.replace(" = ", " OPERATOR(pg_catalog.=) ");
    }

    static String quote(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
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
        members.clear();
        rows.clear();
        if (source == null || connection == null)
            return;
        try {
            connection.close();
        } catch (SQLException lost) {
            // Nothing depends on it any more.
        }
        connection = null;
    }

    /** The qualified name of an object of the extension. Others of its name count for nothing. */
    String member(String name) throws IOException, SQLException {
        if (members.isEmpty()) {
            List<String> found = new ArrayList<>();
            try (Statement statement = connection().createStatement();
                    ResultSet set = statement.executeQuery(MEMBERS)) {
                while (set.next())
                    found.add(set.getString(1));
            }
            String type = "";
            Map<String, String> names = new HashMap<>();
            for (String wanted : WANTED) {
                String end = wanted.replace("TYPE", type);
                String identity = found.stream().filter(i -> i.endsWith(end)).findAny().orElseThrow(
                    () -> new BlobException(Kind.UNEXPECTED, "the extension blobext is missing, or"
                        + " older than this package: no" + wanted.replace('.', ' ')));
                String qualified = identity.substring(0, identity.length()
                    - (end.contains("(") ? end.length() - end.indexOf('(') : 0));
                type = type.isEmpty() ? qualified : type;
                names.put(wanted.substring(1).replaceAll("[(].*", ""), qualified);
            }
            members.putAll(names);
        }
        return members.get(name);
    }

    /** How SQL names a row; all that is not the caller's own is qualified. */
    Row row(BlobValue value) throws IOException, SQLException {
        Row row = rows.get(value);
        return row != null ? row : find(value);
    }

    private Row find(BlobValue value) throws IOException, SQLException {
        String type = member("blobstate");
        String table = (value.schema() == null ? "" : quote(value.schema()) + '.')
            + quote(value.table());
        List<String> names = new ArrayList<>();
        List<String> values = new ArrayList<>();
        List<String> where = new ArrayList<>();
        try (PreparedStatement statement = connection().prepareStatement(KEY)) {
            statement.setString(1, table);
            statement.setArray(2, connection.createArrayOf("text", value.key().keySet().toArray()));
            statement.setArray(3, connection.createArrayOf("text", value.key().values().toArray()));
            try (ResultSet set = statement.executeQuery()) {
                while (set.next()) {
                    names.add(set.getString(1));
                    values.add(set.getString(3));
                    where.add(set.getString(1) + ' ' + set.getString(2) + ' ' + set.getString(3));
                }
            }
        }
        if (names.size() != value.key().size())
            throw new SQLException("not all columns of the key exist: " + value.key().keySet(),
                "42703");
        String content = '(' + quote(value.column()) + ")::" + type;
        Row row = new Row(table, quote(value.column()), content,
            member("length") + '(' + content + "), " + member("sha256") + '(' + content + ')',
            String.join(", ", names), String.join(", ", values), String.join(" AND ", where));
        rows.put(value, row);
        return row;
    }

    /** Size and digest of a statement's first row; null without a value. */
    BlobSummary summary(String query) throws IOException, SQLException {
        try (Statement statement = connection().createStatement();
                ResultSet set = statement.executeQuery(query)) {
            if (!set.next() || set.getObject(1) == null)
                return null;
            byte[] digest = set.getBytes(2);
            if (digest == null || digest.length != 32 || set.getLong(1) < 0)
                throw new BlobException(Kind.UNEXPECTED, "this is no answer of blobext");
            return new BlobSummary(set.getLong(1), HexFormat.of().formatHex(digest));
        }
    }

    static BlobException missing(BlobValue value) {
        return new BlobException(Kind.MISSING, value.table() + " has no value of " + value.key());
    }

    void execute(String text) throws SQLException {
        try (Statement statement = connection().createStatement()) {
            statement.execute(text);
        }
    }

    /** Size and digest of a value; an error if there is none. */
    BlobSummary stat(BlobValue value) throws IOException, SQLException {
        Row row = row(value);
        BlobSummary summary = summary("SELECT " + row.summary() + row.from());
        if (summary == null)
            throw missing(value);
        return summary;
    }

    /** Gives a row a value, or makes the row. */
    BlobSummary put(BlobValue value, String content) throws IOException, SQLException {
        Row row = row(value);
        BlobSummary summary = summary("UPDATE " + row.table() + " SET " + row.column() + " = "
            + content + " WHERE " + row.where() + " RETURNING " + row.summary());
        return summary != null ? summary : summary("INSERT INTO " + row.table() + " (" + row.names()
            + ", " + row.column() + ") VALUES (" + row.values() + ", " + content
            + ") RETURNING " + row.summary());
    }
}
