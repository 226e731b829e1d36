import jakarta.persistence.EntityManager;
import java.util.Collection;
import java.util.List;
import java.util.function.Supplier;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.Query;
import org.springframework.data.jpa.repository.support.JpaRepositoryFactory;

/** A repository over Hibernate, with queries from names of methods. */
class SpringData implements Cases.Orm
{
	public interface Documents extends JpaRepository<Document, Integer>
	{
		List<Document> findByContent(byte[] content);

		List<Document> findByContentIn(Collection<byte[]> contents);

		List<Document> findAllByOrderByContent();

		@Query("select count(distinct d.content) from Document d")
		long countContents();
	}

	final Hibernate hibernate = new Hibernate();
	EntityManager manager;
	Documents documents;

	<T> T run(Supplier<T> work)
	{
		manager.getTransaction().begin();
		T result = work.get();
		manager.getTransaction().commit();
		manager.clear();
		return result;
	}

	static List<Integer> ids(List<Document> documents)
	{
		return documents.stream().map(document -> document.id).toList();
	}

	public void migrate()
	{
		hibernate.migrate();
		manager = hibernate.factory.createEntityManager();
		documents = new JpaRepositoryFactory(manager).getRepository(Documents.class);
	}

	public String changes()
	{
		return hibernate.changes();
	}

	public void insert(int id, byte[] content)
	{
		Document document = new Document();
		document.id = id;
		document.content = content;
		run(() -> documents.save(document));
	}

	public byte[] read(int id)
	{
		return run(() -> documents.findById(id).orElseThrow().content);
	}

	public void update(int id, byte[] content)
	{
		run(() -> documents.findById(id).orElseThrow().content = content);
	}

	public List<Integer> equal(byte[] content)
	{
		return ids(run(() -> documents.findByContent(content)));
	}

	public List<Integer> among(List<byte[]> contents)
	{
		return ids(run(() -> documents.findByContentIn(contents)));
	}

	public List<Integer> ordered()
	{
		return ids(run(() -> documents.findAllByOrderByContent()));
	}

	public long distinct()
	{
		return run(() -> documents.countContents());
	}

	public String reflect()
	{
		throw new Cases.Without("Spring Data makes no entities from tables");
	}
}
