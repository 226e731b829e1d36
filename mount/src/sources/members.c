/*
 * sources/members.c
 *	  Objects of the extensions blobext and blobfs, which the program uses by their names.
 *
 * A name proves nothing: where an extension is not installed, or is older, a role that may make
 * schemas or functions can supply objects of its names.  So each connection asks which schema the
 * extensions have, and whether the functions of exactly these signatures are their members.  The
 * statements give each argument its type, so that no other function of the name fits better.
 *
 * Functions of a file system are no members: they belong to its owner, who may replace them, and
 * run with the rights of the role that mounts.  The same holds for those of a view.
 */
#include "sources/members.h"

#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/values.h"

/* "@" is the schema of blobext. */
#define READS "blob_read(@.blobstate,bigint,bigint);sha256(@.blobstate);length(@.blobstate)"
#define WRITES ";blob_upload_begin(bigint);blob_upload_resume(@.blobstate,bigint)" \
	";blob_upload_write(bigint,pg_catalog.bytea);blob_upload_end(bigint)"
#define PINS "attach(pg_catalog.text);join(bigint,pg_catalog.uuid);detach(bigint,pg_catalog.uuid)" \
	";pin(bigint,pg_catalog.uuid,bigint,@.blobstate);pinned(bigint,pg_catalog.uuid,bigint)" \
	";unpin(bigint,pg_catalog.uuid,bigint[]);channel(pg_catalog.name)"

/* The member e of an object of a catalog. */
#define IS_MEMBER(catalog, object) \
	"EXISTS (SELECT FROM pg_catalog.pg_depend AS d" \
	" WHERE d.classid OPERATOR(pg_catalog.=) '" catalog "'::pg_catalog.regclass::pg_catalog.oid" \
	" AND d.objid OPERATOR(pg_catalog.=) " object \
	" AND d.refclassid OPERATOR(pg_catalog.=)" \
	" 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid" \
	" AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e')"

#define EXTENSION " FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n" \
	" ON n.oid OPERATOR(pg_catalog.=) e.extnamespace" \
	" WHERE e.extname OPERATOR(pg_catalog.=) $1::pg_catalog.name"

/* $1 an extension, $2 signatures of its functions, $3 the schema of blobext: the first one that is
 * not there, or the empty string. */
static const char missing_sql[] =
	"SELECT coalesce((SELECT f.s FROM pg_catalog.unnest("
	"pg_catalog.string_to_array($2::pg_catalog.text, ';')) AS f (s) WHERE NOT "
	IS_MEMBER("pg_catalog.pg_proc",
			  "pg_catalog.to_regprocedure(pg_catalog.concat(pg_catalog.quote_ident(n.nspname), '.',"
			  " pg_catalog.replace(f.s, '@', $3::pg_catalog.text)))::pg_catalog.oid")
	" LIMIT 1), '')" EXTENSION;

static const char type_sql[] =
	"SELECT t.oid FROM pg_catalog.pg_type AS t, LATERAL (SELECT e.oid" EXTENSION
	" AND e.extnamespace OPERATOR(pg_catalog.=) t.typnamespace) AS e"
	" WHERE t.typname OPERATOR(pg_catalog.=) 'blobstate'::pg_catalog.name AND "
	IS_MEMBER("pg_catalog.pg_type", "t.oid");

char *
ask_once(PGconn *pg, const char *sql, int count, const char *const *values, char **error)
{
	struct query query = {.count = count,.values = values};
	PGresult   *result = query_once(pg, sql, &query);
	ExecStatusType status = PQresultStatus(result);
	char	   *answer = NULL;

	if (status != PGRES_SINGLE_TUPLE && status != PGRES_TUPLES_OK && error != NULL)
		*error = copy_string(result ? PQresultErrorMessage(result) : PQerrorMessage(pg));
	else if (!field_is_null(result, 0, 0))
		answer = copy_string(field_text(result, 0, 0));
	PQclear(result);
	return answer;
}

/* What an extension lacks (allocated): a signature, "", or NULL: it is not there. */
static char *
ask_missing(PGconn *pg, const char *extension, const char *signatures, const char *blobext)
{
	const char *values[] = {extension, signatures, blobext};

	return ask_once(pg, missing_sql, 3, values, NULL);
}

void
members_ask(PGconn *pg, bool writes, struct members *members)
{
	const char *blobext = "blobext";
	char	   *missing;

	memset(members, 0, sizeof(*members));
	members->blobext = ask_once(pg, "SELECT pg_catalog.quote_ident(n.nspname)" EXTENSION, 1,
								&blobext, NULL);
	members->blobstate = ask_once(pg, type_sql, 1, &blobext, NULL);
	if (members->blobext == NULL)
		return;
	missing = ask_missing(pg, blobext, writes ? READS WRITES : READS, members->blobext);
	if (members->blobstate == NULL)
		members->lacks = copy_string("type blobstate");
	else if (missing == NULL || *missing != '\0')
		members->lacks = copy_string(missing ? missing : "all");
	free(missing);
	missing = ask_missing(pg, "blobfs", PINS, members->blobext);
	members->has_blobfs = missing != NULL && *missing == '\0';
	free(missing);
}

void
members_clear(struct members *members)
{
	free(members->blobext);
	free(members->blobstate);
	free(members->lacks);
	memset(members, 0, sizeof(*members));
}

/* Roles that may replace functions, or add some: also the owners of all objects in a schema. */
#define OWNERS_OF_SCHEMA \
	"SELECT n.nspowner FROM pg_catalog.pg_namespace AS n" \
	" WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name" \
	" UNION SELECT p.proowner FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n" \
	" ON n.oid OPERATOR(pg_catalog.=) p.pronamespace" \
	" WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name" \
	" UNION SELECT c.relowner FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n" \
	" ON n.oid OPERATOR(pg_catalog.=) c.relnamespace" \
	" WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name"

#define OWNER_OF_RELATION "SELECT c.relowner FROM pg_catalog.pg_class AS c" \
	" WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.oid"

/* As blobfs.require_trusted() has it; the session's role, which all that runs can become again. */
#define STRANGER(owners) \
	"SELECT o.rolname FROM (" owners ") AS x (owner) JOIN pg_catalog.pg_roles AS o" \
	" ON o.oid OPERATOR(pg_catalog.=) x.owner, pg_catalog.pg_roles AS r" \
	" WHERE r.rolname OPERATOR(pg_catalog.=) session_user AND NOT o.rolsuper" \
	" AND o.oid OPERATOR(pg_catalog.<>) r.oid" \
	" AND (r.rolsuper OR r.rolcreaterole AND NOT o.rolcreaterole" \
	" OR r.rolreplication AND NOT o.rolreplication OR r.rolbypassrls AND NOT o.rolbypassrls" \
	" OR EXISTS (SELECT FROM pg_catalog.pg_roles AS g" \
	" WHERE pg_catalog.starts_with(g.rolname::pg_catalog.text, 'pg_')" \
	" AND g.rolname OPERATOR(pg_catalog.<>) 'pg_database_owner'::pg_catalog.name" \
	" AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')" \
	" AND NOT pg_catalog.pg_has_role(o.oid, g.oid, 'MEMBER'))) LIMIT 1"

char *
members_stranger(PGconn *pg, const char *schema, const char *relation)
{
	return schema != NULL ? ask_once(pg, STRANGER(OWNERS_OF_SCHEMA), 1, &schema, NULL) :
		ask_once(pg, STRANGER(OWNER_OF_RELATION), 1, &relation, NULL);
}
