import io.debezium.spi.converter.CustomConverter;
import io.debezium.spi.converter.RelationalColumn;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.connect.data.SchemaBuilder;

/**
 * Columns of type blobstate as BYTES in Debezium's events, as columns of bytea are; for plugin.name
 * pgoutput. There a snapshot has the bytes of a value, and a change has their text: \x and two
 * digits for each.
 */
public class BlobstateConverter implements CustomConverter<SchemaBuilder, RelationalColumn> {

    @Override
    public void configure(Properties properties) {
    }

    @Override
    public void converterFor(RelationalColumn column, ConverterRegistration<SchemaBuilder> registration) {
        if ("blobstate".equals(column.typeName())) {
            registration.register(SchemaBuilder.bytes().optional(), BlobstateConverter::toBytes);
        }
    }

    private static byte[] toBytes(Object value) {
        if (value == null || value instanceof byte[]) {
            return (byte[]) value;
        }
        String text = value.toString();
        if (!text.startsWith("\\x")) {
            throw new IllegalArgumentException("text of a blobstate does not begin with \\x");
        }
        return HexFormat.of().parseHex(text, 2, text.length());
    }
}
