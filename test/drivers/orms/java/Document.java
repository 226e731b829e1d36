import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.sql.Types;
import org.hibernate.annotations.JdbcTypeCode;

/** The entity of Hibernate and Spring Data. */
@Entity
@Table(name = "document")
public class Document
{
	@Id
	Integer id;

	@JdbcTypeCode(Types.VARBINARY)
	@Column(columnDefinition = "blobstate")
	byte[] content;
}
