import java.util.List;
import java.util.function.Function;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.annotations.Param;
import org.apache.ibatis.annotations.Select;
import org.apache.ibatis.annotations.Update;
import org.apache.ibatis.datasource.unpooled.UnpooledDataSource;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.Configuration;
import org.apache.ibatis.session.SqlSession;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.session.SqlSessionFactoryBuilder;
import org.apache.ibatis.transaction.jdbc.JdbcTransactionFactory;

/** A mapper with byte[], as for bytea. */
class MyBatis implements Cases.Orm
{
	public static class Row
	{
		public Integer id;
		public byte[] content;
	}

	public interface Documents
	{
		@Update("CREATE TABLE document (id integer PRIMARY KEY, content blobstate)")
		void create();

		@Insert("INSERT INTO document (id, content) VALUES (#{id}, #{content,jdbcType=BINARY})")
		int insert(@Param("id") int id, @Param("content") byte[] content);

		@Select("SELECT id, content FROM document WHERE id = #{id}")
		Row read(int id);

		@Update("UPDATE document SET content = #{content,jdbcType=BINARY} WHERE id = #{id}")
		int update(@Param("id") int id, @Param("content") byte[] content);

		@Select("SELECT id FROM document WHERE content = #{content}")
		List<Integer> equal(@Param("content") byte[] content);

		@Select("<script>SELECT id FROM document WHERE content IN"
			+ " <foreach item='one' collection='list' open='(' separator=',' close=')'>#{one}</foreach></script>")
		List<Integer> among(@Param("list") List<byte[]> contents);

		@Select("SELECT id FROM document ORDER BY content")
		List<Integer> ordered();

		@Select("SELECT count(DISTINCT content) FROM document")
		long distinct();
	}

	final SqlSessionFactory factory;

	MyBatis()
	{
		Configuration configuration = new Configuration(new Environment("test", new JdbcTransactionFactory(),
			new UnpooledDataSource("org.postgresql.Driver", Cases.URL, null, null)));
		configuration.addMapper(Documents.class);
		factory = new SqlSessionFactoryBuilder().build(configuration);
	}

	<T> T run(Function<Documents, T> work)
	{
		try (SqlSession session = factory.openSession(true))
		{
			return work.apply(session.getMapper(Documents.class));
		}
	}

	public void migrate()
	{
		run(documents -> { documents.create(); return null; });
	}

	public String changes()
	{
		throw new Cases.Without("MyBatis has no migrations");
	}

	public void insert(int id, byte[] content)
	{
		run(documents -> documents.insert(id, content));
	}

	public byte[] read(int id)
	{
		return run(documents -> documents.read(id)).content;
	}

	public void update(int id, byte[] content)
	{
		run(documents -> documents.update(id, content));
	}

	public List<Integer> equal(byte[] content)
	{
		return run(documents -> documents.equal(content));
	}

	public List<Integer> among(List<byte[]> contents)
	{
		return run(documents -> documents.among(contents));
	}

	public List<Integer> ordered()
	{
		return run(Documents::ordered);
	}

	public long distinct()
	{
		return run(Documents::distinct);
	}

	public String reflect()
	{
		throw new Cases.Without("MyBatis makes no mappers from tables");
	}
}
