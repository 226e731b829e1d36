import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.sql.Types;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Properties;
import java.util.Random;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/**
 * The matrix of test/run drivers for pgJDBC. The server is that of PGHOST, PGPORT, PGUSER and
 * PGDATABASE. Values go in and come back bare, and are compared byte by byte.
 */
public class Drivers
{
	static Connection connection;
	static byte[][] values;
	static boolean failed = false;
	static final String INSERT = "INSERT INTO t (id, content) VALUES (?, ?)";

	interface Test
	{
		void run() throws Exception;
	}

	static void require(boolean condition, String problem)
	{
		if (!condition)
			throw new IllegalStateException(problem);
	}

	static void test(String name, Test test) throws Exception
	{
		try (Statement statement = connection.createStatement())
		{
			statement.execute("DROP TABLE IF EXISTS t");
			statement.execute("CREATE TABLE t (id integer PRIMARY KEY, content blobstate)");
		}
		try
		{
			test.run();
			System.out.println("ok - " + name);
		}
		catch (Exception problem)
		{
			System.out.println("not ok - " + name + ": " + problem);
			failed = true;
			if (!connection.getAutoCommit())
				connection.rollback();
			connection.setAutoCommit(true);
		}
	}

	static void insertAll() throws Exception
	{
		try (PreparedStatement statement = connection.prepareStatement(INSERT))
		{
			for (int i = 0; i < values.length; i++)
			{
				statement.setInt(1, i);
				statement.setBytes(2, values[i]);
				statement.execute();
			}
		}
	}

	static void checkDigests() throws Exception
	{
		try (Statement statement = connection.createStatement();
			ResultSet rows = statement.executeQuery(
				"SELECT encode(sha256(content), 'hex') FROM t ORDER BY id"))
		{
			for (byte[] value : values)
			{
				byte[] digest = MessageDigest.getInstance("SHA-256").digest(value);
				require(rows.next(), "too few rows");
				require(rows.getString(1).equals(HexFormat.of().formatHex(digest)), "digest");
			}
			require(!rows.next(), "too many rows");
		}
	}

	static byte[][] makeValues()
	{
		byte[] all = new byte[256];
		byte[] repeated = new byte[256_000];
		byte[] large = new byte[10_000_000];
		for (int i = 0; i < repeated.length; i++)
			repeated[i] = (byte) i;
		System.arraycopy(repeated, 0, all, 0, all.length);
		new Random(1).nextBytes(large);
		return new byte[][] {{}, {'\\'}, "\\x4142".getBytes(), "\\134\\\\".getBytes(), all, {0},
			{(byte) 0xff, (byte) 0xfe, '\\'}, "'\"{},".getBytes(), repeated, large};
	}

	/** Eight times: pgJDBC prepares a statement, and asks for binary results, after five. */
	static void selectAgainAndAgain() throws Exception
	{
		insertAll();
		checkDigests();
		try (PreparedStatement statement = connection.prepareStatement(
			"SELECT content FROM t WHERE id = ?"))
		{
			for (int i = 0; i < 8 * values.length; i++)
			{
				byte[] value = values[i % values.length];
				statement.setInt(1, i % values.length);
				try (ResultSet rows = statement.executeQuery())
				{
					require(rows.next(), "no row");
					require(Arrays.equals(rows.getBytes(1), value), "getBytes()");
					require(Arrays.equals((byte[]) rows.getObject(1), value), "getObject()");
					require(rows.getMetaData().getColumnType(1) == Types.BINARY, "type");
					try (InputStream stream = rows.getBinaryStream(1))
					{
						require(Arrays.equals(stream.readAllBytes(), value), "getBinaryStream()");
					}
				}
			}
		}
	}

	static void testNull() throws Exception
	{
		try (PreparedStatement statement = connection.prepareStatement(INSERT);
			Statement query = connection.createStatement())
		{
			statement.setInt(1, 1);
			statement.setNull(2, Types.BINARY);
			statement.execute();
			ResultSet rows = query.executeQuery("SELECT content FROM t");
			require(rows.next() && rows.getBytes(1) == null, "not NULL");
		}
	}

	static void testStreamedParameters() throws Exception
	{
		try (PreparedStatement statement = connection.prepareStatement(INSERT))
		{
			for (int i = 0; i < values.length; i++)
			{
				statement.setInt(1, i);
				statement.setBinaryStream(2, new ByteArrayInputStream(values[i]), values[i].length);
				statement.execute();
			}
		}
		checkDigests();
	}

	/** Read, modify, write through an updatable result. */
	static void testUpdatable() throws Exception
	{
		insertAll();
		try (Statement statement = connection.createStatement(
			ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
			ResultSet rows = statement.executeQuery("SELECT id, content FROM t"))
		{
			while (rows.next())
			{
				byte[] value = values[rows.getInt(1)];
				require(Arrays.equals(rows.getBytes(2), value), "getBytes()");
				rows.updateBytes(2, rows.getBytes(2));
				rows.updateRow();
			}
		}
		checkDigests();
	}

	static void testEqual() throws Exception
	{
		insertAll();
		try (PreparedStatement statement = connection.prepareStatement(
			"SELECT id FROM t WHERE content = ?"))
		{
			for (int i = 0; i < values.length; i++)
			{
				statement.setBytes(1, values[i]);
				ResultSet rows = statement.executeQuery();
				require(rows.next() && rows.getInt(1) == i && !rows.next(), "value " + i);
			}
		}
	}

	static void testAny() throws Exception
	{
		insertAll();
		try (PreparedStatement statement = connection.prepareStatement(
			"SELECT id FROM t WHERE content = ANY (?) ORDER BY id"))
		{
			for (int again = 0; again < 8; again++)
			{
				statement.setArray(1, connection.createArrayOf("bytea",
					Arrays.copyOfRange(values, 1, 9)));
				ResultSet rows = statement.executeQuery();
				for (int i = 1; i < 9; i++)
					require(rows.next() && rows.getInt(1) == i, "value " + i);
				require(!rows.next(), "too many rows");
			}
		}
	}

	static void testArrayResult() throws Exception
	{
		insertAll();
		try (PreparedStatement statement = connection.prepareStatement(
			"SELECT array_agg(content ORDER BY id) FROM t WHERE id < 9"))
		{
			for (int again = 0; again < 8; again++)
			{
				ResultSet rows = statement.executeQuery();
				require(rows.next(), "no row");
				byte[][] read = (byte[][]) rows.getArray(1).getArray();
				require(Arrays.deepEquals(read, Arrays.copyOfRange(values, 0, 9)), "elements");
			}
		}
	}

	static void testReturning() throws Exception
	{
		try (PreparedStatement statement = connection.prepareStatement(INSERT
			+ " RETURNING content"))
		{
			for (int i = 0; i < values.length; i++)
			{
				statement.setInt(1, i);
				statement.setBytes(2, values[i]);
				ResultSet rows = statement.executeQuery();
				require(rows.next() && Arrays.equals(rows.getBytes(1), values[i]), "value " + i);
			}
		}
	}

	static void testBatch() throws Exception
	{
		try (PreparedStatement statement = connection.prepareStatement(INSERT))
		{
			for (int i = 0; i < values.length; i++)
			{
				statement.setInt(1, i);
				statement.setBytes(2, values[i]);
				statement.addBatch();
			}
			statement.executeBatch();
		}
		checkDigests();
	}

	/** Rows in portions, from a portal. */
	static void testFetchSize() throws Exception
	{
		insertAll();
		connection.setAutoCommit(false);
		try (Statement statement = connection.createStatement())
		{
			statement.setFetchSize(2);
			ResultSet rows = statement.executeQuery("SELECT content FROM t ORDER BY id");
			for (byte[] value : values)
				require(rows.next() && Arrays.equals(rows.getBytes(1), value), "value");
		}
		connection.setAutoCommit(true);
	}

	static void testCopy() throws Exception
	{
		insertAll();
		CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
		ByteArrayOutputStream output = new ByteArrayOutputStream();
		copy.copyOut("COPY (SELECT * FROM t) TO STDOUT (FORMAT binary)", output);
		try (Statement statement = connection.createStatement())
		{
			statement.execute("TRUNCATE t");
		}
		copy.copyIn("COPY t FROM STDIN (FORMAT binary)",
			new ByteArrayInputStream(output.toByteArray()));
		checkDigests();
	}

	public static void main(String[] arguments) throws Exception
	{
		Properties properties = new Properties();
		properties.setProperty("user", System.getenv("PGUSER"));
		connection = DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST")
			+ ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"), properties);
		values = makeValues();
		test("insert, select again and again", Drivers::selectAgainAndAgain);
		test("NULL", Drivers::testNull);
		test("parameters from streams", Drivers::testStreamedParameters);
		test("updatable results", Drivers::testUpdatable);
		test("= ?", Drivers::testEqual);
		test("= ANY (?)", Drivers::testAny);
		test("an array as result", Drivers::testArrayResult);
		test("RETURNING", Drivers::testReturning);
		test("batch", Drivers::testBatch);
		test("rows in portions", Drivers::testFetchSize);
		test("COPY", Drivers::testCopy);
		System.exit(failed ? 1 : 0);
	}
}
