import java.util.List;
import java.util.function.Function;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** Tables by hibernate.hbm2ddl.auto, which a second factory then validates. */
class Hibernate implements Cases.Orm
{
	SessionFactory factory;

	static SessionFactory open(String auto)
	{
		return new Configuration().addAnnotatedClass(Document.class)
			.setProperty("hibernate.connection.url", Cases.URL)
			.setProperty("hibernate.hbm2ddl.auto", auto).buildSessionFactory();
	}

	<T> T run(Function<Session, T> work)
	{
		return factory.fromTransaction(work);
	}

	public void migrate()
	{
		factory = open("update");
	}

	public String changes()
	{
		open("update").close();
		open("validate").close();
		return "nothing";
	}

	public void insert(int id, byte[] content)
	{
		Document document = new Document();
		document.id = id;
		document.content = content;
		factory.inTransaction(session -> session.persist(document));
	}

	public byte[] read(int id)
	{
		return run(session -> session.find(Document.class, id).content);
	}

	public void update(int id, byte[] content)
	{
		factory.inTransaction(session -> session.find(Document.class, id).content = content);
	}

	public List<Integer> equal(byte[] content)
	{
		return run(session -> session.createQuery("select id from Document where content = :content", Integer.class)
			.setParameter("content", content).getResultList());
	}

	public List<Integer> among(List<byte[]> contents)
	{
		return run(session -> session.createQuery("select id from Document where content in :contents", Integer.class)
			.setParameterList("contents", contents).getResultList());
	}

	public List<Integer> ordered()
	{
		return run(session -> session.createQuery("select id from Document order by content", Integer.class)
			.getResultList());
	}

	public long distinct()
	{
		return run(session -> session.createQuery("select count(distinct content) from Document", Long.class)
			.getSingleResult());
	}

	public String reflect()
	{
		throw new Cases.Without("Hibernate makes no entities from tables");
	}
}
