import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jooq.DSLContext;
import org.jooq.Field;
import org.jooq.Record;
import org.jooq.Table;
import org.jooq.codegen.GenerationTool;
import org.jooq.impl.DSL;
import org.jooq.impl.SQLDataType;
import org.jooq.meta.jaxb.Configuration;
import org.jooq.meta.jaxb.Database;
import org.jooq.meta.jaxb.ForcedType;
import org.jooq.meta.jaxb.Generator;
import org.jooq.meta.jaxb.Jdbc;
import org.jooq.meta.jaxb.Target;

/** The types that the generator gives with the forcedType of docs/orms.md. */
class Jooq implements Cases.Orm
{
	static final Table<Record> DOCUMENT = DSL.table(DSL.name("document"));
	static final Field<Integer> ID = DSL.field(DSL.name("id"), SQLDataType.INTEGER);
	static final Field<byte[]> CONTENT = DSL.field(DSL.name("content"), SQLDataType.BLOB);
	final DSLContext dsl = DSL.using(Cases.URL);

	public void migrate()
	{
		dsl.execute("CREATE TABLE document (id integer PRIMARY KEY, content blobstate)");
	}

	public String changes()
	{
		throw new Cases.Without("jOOQ leaves that to Flyway and others");
	}

	public void insert(int id, byte[] content)
	{
		dsl.insertInto(DOCUMENT, ID, CONTENT).values(id, content).execute();
	}

	public byte[] read(int id)
	{
		return dsl.select(CONTENT).from(DOCUMENT).where(ID.eq(id)).fetchOne(CONTENT);
	}

	public void update(int id, byte[] content)
	{
		dsl.update(DOCUMENT).set(CONTENT, content).where(ID.eq(id)).execute();
	}

	public List<Integer> equal(byte[] content)
	{
		return dsl.select(ID).from(DOCUMENT).where(CONTENT.eq(content)).fetch(ID);
	}

	public List<Integer> among(List<byte[]> contents)
	{
		return dsl.select(ID).from(DOCUMENT).where(CONTENT.in(contents)).fetch(ID);
	}

	public List<Integer> ordered()
	{
		return dsl.select(ID).from(DOCUMENT).orderBy(CONTENT).fetch(ID);
	}

	public long distinct()
	{
		return dsl.select(DSL.countDistinct(CONTENT)).from(DOCUMENT).fetchOne(0, long.class);
	}

	/** The type of the member in the generated class. */
	public String reflect() throws Exception
	{
		Path directory = Files.createTempDirectory("jooq");
		GenerationTool.generate(new Configuration().withJdbc(new Jdbc().withUrl(Cases.URL))
			.withGenerator(new Generator()
				.withDatabase(new Database().withInputSchema("public").withIncludes("document")
					.withForcedTypes(new ForcedType().withName("BLOB").withIncludeTypes("blobstate")))
				.withTarget(new Target().withPackageName("made").withDirectory(directory.toString()))));
		String text = Files.readString(directory.resolve("made/tables/Document.java"));
		Matcher matcher = Pattern.compile("TableField<DocumentRecord, (.*)> CONTENT").matcher(text);
		return matcher.find() ? matcher.group(1) : "no member";
	}
}
