package blobext;

import java.util.HashMap;
import java.util.Map;

/**
 * Where a value is: schema (null: by the search path), table, column, and the columns that identify
 * its row. Names are spelled as in the catalog. Values of the key are sent as text, by toString().
 */
public record BlobValue(String schema, String table, String column, Map<String, String> key) {
    public BlobValue {
        key = Map.copyOf(key);    // refuses null
        if (key.isEmpty())
            throw new IllegalArgumentException("the key has no column");
    }

    /** The column "content" of a row. */
    public static BlobValue of(String table, String keyColumn, Object keyValue) {
        return new BlobValue(null, table, "content", Map.of(keyColumn, keyValue.toString()));
    }

    /** A row of the table blob_stage, which keeps the beginning of an upload. */
    public static BlobValue stage(String name) {
        return of("blob_stage", "name", name);
    }

    public BlobValue withSchema(String name) {
        return new BlobValue(name, table, column, key);
    }

    public BlobValue withColumn(String name) {
        return new BlobValue(schema, table, name, key);
    }

    /** One more column of the key. */
    public BlobValue withKey(String name, Object value) {
        Map<String, String> more = new HashMap<>(key);
        more.put(name, value.toString());
        return new BlobValue(schema, table, column, more);
    }
}
