import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine on tables with blobstate, plugin pgoutput: what a snapshot and changes have by
 * default, with include.unknown.datatypes (a snapshot and a change differ: docs/cdc.md warns of it),
 * with the converter of examples/cdc, and with a publication that has digests only.
 */
public class Changes {
    private static final String URL = "jdbc:postgresql://127.0.0.1:%s/%s?user=%s";
    private static final SourceRecord ENDED = new SourceRecord(null, null, null, null, null);
    private final Connection connection;
    private final BlockingQueue<SourceRecord> records = new LinkedBlockingQueue<>();
    private volatile String end;

    Changes(Connection connection) {
        this.connection = connection;
    }

    void sql(String statement) throws SQLException {
        try (Statement s = connection.createStatement()) {
            s.execute(statement);
        }
    }

    void insert(int id, byte[] content) throws SQLException {
        try (PreparedStatement s = connection.prepareStatement("INSERT INTO document VALUES (?, ?)")) {
            s.setInt(1, id);
            s.setBytes(2, content);
            s.execute();
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** The row of the next event that has one. */
    Struct next() throws InterruptedException {
        while (true) {
            SourceRecord record = records.take();
            check(record != ENDED, "the engine has ended: " + end);
            if (record.value() instanceof Struct value && value.schema().field("after") != null
                    && value.getStruct("after") != null) {
                return value.getStruct("after");
            }
        }
    }

    static byte[] bytes(Object value) {
        return value instanceof ByteBuffer buffer ? buffer.array() : (byte[]) value;
    }

    interface Body {
        void run() throws Exception;
    }

    void with(String name, Map<String, String> settings, Body body) throws Exception {
        Properties properties = new Properties();
        properties.putAll(Map.of("name", name,
                "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
                "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
                "topic.prefix", "test", "plugin.name", "pgoutput", "slot.name", name,
                "slot.drop.on.stop", "true", "publication.name", name,
                "publication.autocreate.mode", "filtered", "table.include.list", "public.document"));
        properties.putAll(Map.of("database.hostname", "127.0.0.1", "database.port", System.getenv("PGPORT"),
                "database.user", System.getenv("PGUSER"), "database.password", "none",
                "database.dbname", System.getenv("PGDATABASE")));
        properties.putAll(settings);
        records.clear();
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
                .using(properties).using((success, message, error) -> {
                    end = message;
                    records.add(ENDED);
                }).notifying(event -> records.add(event.value())).build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        try {
            body.run();
        } finally {
            engine.close();
            executor.shutdown();
            executor.awaitTermination(1, TimeUnit.HOURS);
        }
        System.out.println("ok - " + name);
    }

    void run() throws Exception {
        byte[] first = "\\x616263".getBytes(StandardCharsets.US_ASCII);
        byte[] large = new byte[10_000_000];
        new Random(1).nextBytes(large);
        sql("CREATE TABLE document (id int PRIMARY KEY, content blobstate)");
        insert(1, first);

        with("by_default", Map.of(), () -> {
            check(next().schema().field("content") == null, "a snapshot has no content");
            insert(2, large);
            Struct row = next();
            check(row.getInt32("id") == 2 && row.schema().field("content") == null, "a change has no content");
        });

        sql("DELETE FROM document WHERE id > 1");
        with("unknown_types", Map.of("include.unknown.datatypes", "true"), () -> {
            check(Arrays.equals(bytes(next().get("content")), first), "a snapshot has bytes");
            insert(2, first);
            check(Arrays.equals(bytes(next().get("content")), ("\\x" + HexFormat.of().formatHex(first)).getBytes()),
                    "a change has the text of the bytes");
        });

        sql("DELETE FROM document WHERE id > 1");
        Map<String, String> converter = new HashMap<>(Map.of("include.unknown.datatypes", "true",
                "converters", "blobstate", "blobstate.type", "BlobstateConverter"));
        with("converter", converter, () -> {
            check(Arrays.equals(bytes(next().get("content")), first), "a snapshot has bytes");
            byte[][] values = {first, large, new byte[0], null};
            for (int i = 0; i < values.length; i++) {
                insert(2 + i, values[i]);
                Struct row = next();
                check(row.getInt32("id") == 2 + i && Arrays.equals(bytes(row.get("content")), values[i]),
                        "a change has the bytes of value " + i);
            }
        });
        sql("DELETE FROM document WHERE id > 1");
        converter.remove("include.unknown.datatypes");
        with("converter_alone", converter, () -> {
            check(Arrays.equals(bytes(next().get("content")), first), "a snapshot has bytes");
            insert(2, first);
            check(next().get("content") == null, "a change has NULL in place of content");
        });

        sql("DELETE FROM document WHERE id > 1");
        sql("ALTER TABLE document ADD content_sha256 bytea");
        sql("CREATE PUBLICATION digests FOR TABLE document (id, content_sha256)");
        with("digests", Map.of("publication.autocreate.mode", "disabled"), () -> {
            next();
            sql("INSERT INTO document VALUES (2, 'abc', sha256('abc'))");
            check(HexFormat.of().formatHex(bytes(next().get("content_sha256"))).startsWith("ba7816bf"),
                    "a change has the digest");
        });
    }

    public static void main(String[] arguments) throws Exception {
        String url = String.format(URL, System.getenv("PGPORT"), System.getenv("PGDATABASE"), System.getenv("PGUSER"));
        int status = 0;
        try (Connection connection = DriverManager.getConnection(url)) {
            new Changes(connection).run();
        } catch (Throwable failure) {
            failure.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }
}
