import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The cases of test/drivers/orms/README.md for ORMs of Java: Cases hibernate | spring_data | jooq | mybatis. */
public class Cases
{
	static final String URL = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT")
		+ "/" + System.getenv("PGDATABASE") + "?user=" + System.getenv("PGUSER");

	interface Orm
	{
		void migrate() throws Exception;

		/** What there is to do after that; throws Without where the ORM does not know. */
		String changes() throws Exception;

		void insert(int id, byte[] content);

		byte[] read(int id);

		void update(int id, byte[] content);

		List<Integer> equal(byte[] content);

		List<Integer> among(List<byte[]> contents);

		List<Integer> ordered();

		long distinct();

		String reflect() throws Exception;
	}

	/** The ORM has no such thing. */
	static class Without extends RuntimeException
	{
		Without(String reason)
		{
			super(reason);
		}
	}

	interface Answer
	{
		Object get() throws Exception;
	}

	static void check(String name, Answer got, Object wanted) throws Exception
	{
		try
		{
			Object answer = got.get();
			if (!String.valueOf(answer).equals(String.valueOf(wanted)))
				throw new IllegalStateException(name + ": " + answer + ", wanted: " + wanted);
			System.out.println("ok - " + name);
		}
		catch (Without without)
		{
			System.out.println("left out - " + name + ": " + without.getMessage());
		}
	}

	static boolean allRight(Orm orm, List<byte[]> values)
	{
		for (int i = 0; i < values.size(); i++)
			if (!Arrays.equals(orm.read(i + 1), values.get(i)))
				return false;
		return true;
	}

	static void run(Orm orm) throws Exception
	{
		List<byte[]> values = new ArrayList<>();
		List<Integer> numbers = new ArrayList<>();
		Path directory = Path.of(System.getenv("ORM_VALUES"));
		for (int id = 1; Files.exists(directory.resolve("" + id)); id++)
		{
			values.add(Files.readAllBytes(directory.resolve("" + id)));
			numbers.add(id);
		}
		int last = values.size();

		orm.migrate();
		check("migrate", orm::changes, "nothing");
		for (int id : numbers)
			orm.insert(id, values.get(id - 1));
		orm.insert(last + 1, null);
		check("insert and read", () -> allRight(orm, values), true);
		check("NULL", () -> orm.read(last + 1), null);
		for (int id : numbers)
		{
			byte[] value = orm.read(id);
			orm.update(id, Arrays.copyOf(value, value.length + 1));
			orm.update(id, Arrays.copyOf(orm.read(id), value.length));
		}
		check("update", () -> allRight(orm, values), true);
		List<Integer> found = new ArrayList<>();
		for (byte[] value : values)
			found.addAll(orm.equal(value));
		check("=", () -> found, numbers);
		check("IN", () -> orm.among(List.of(values.get(0), values.get(last - 1), "none".getBytes()))
			.stream().sorted().toList(), List.of(1, last));
		numbers.add(last + 1);
		check("ORDER BY", orm::ordered, numbers);
		orm.insert(last + 2, values.get(last - 1));
		check("count distinct", orm::distinct, last);
		check("reflect", orm::reflect, "byte[]");
	}

	public static void main(String[] arguments) throws Exception
	{
		run(switch (arguments[0])
		{
			case "hibernate" -> new Hibernate();
			case "spring_data" -> new SpringData();
			case "jooq" -> new Jooq();
			case "mybatis" -> new MyBatis();
			default -> throw new IllegalArgumentException(arguments[0]);
		});
		System.exit(0);
	}
}
