/*
 * assign/template.c
 *	  Refuses CREATE DATABASE from a template that holds blobs, or with the OID of a database whose
 *	  blobs are still there.
 *
 * CREATE DATABASE copies relations, the extent map among them, but not the segment files.  A store
 * without files can be copied: the copy gets files of its own when its first value is written.
 *
 * Two copies of one template with the same OID, one after the other, are the same store: the map
 * has its incarnation, and begins with the same generations.  So nothing of the first one may be
 * left.
 * The launcher removes its files, and what shared memory has of it; until the next checkpoint a
 * crash would have that done once more, see "Dropped databases" in ../autogc/README.md.
 *
 * The statement names the template before PostgreSQL has looked whether it exists.  The object
 * access hook is called when the template is locked, no backend is connected to it, and nothing was
 * copied.  So an answer found then stays true.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "io/segment.h"
#include "assign/assign.h"
#include "store/store.h"
#include "utils/builtins.h"

/*
 * Template of the CREATE DATABASE in progress; empty if there is none.  That statement never runs
 * within another one.
 */
static NameData template_name;

/* Whether it names an OID for the new database. */
static bool has_oid;

void
blob_assign_note_template(Node *statement)
{
	ListCell   *cell;

	memset(&template_name, 0, sizeof(template_name));
	has_oid = false;
	if (!IsA(statement, CreatedbStmt))
		return;
	namestrcpy(&template_name, "template1");
	foreach(cell, ((CreatedbStmt *) statement)->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			namestrcpy(&template_name, defGetString(option));
		if (strcmp(option->defname, "oid") == 0)
			has_oid = true;
	}
}

/* Has this database a directory?  One is made with the first extent. */
static bool
holds_blobs(Oid database)
{
	BlobStoreId *stores;
	int			count = blob_segment_list_stores(&stores);

	for (int i = 0; i < count; i++)
	{
		if (stores[i].dboid == database)
			return true;
	}
	return false;
}

/*
 * The new database, whose OID no other one has.  template0 has no extension, so one that is made in
 * the copy is another store.
 */
static void
require_new_oid(Oid database)
{
	if (strcmp(NameStr(template_name), "template0") == 0)
		return;
	if (holds_blobs(database))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("blobs of a dropped database with OID %u are still there", database),
				 errhint("Their files are removed some time (blobext.autogc_naptime) after DROP "
						 "DATABASE; or use another OID, or TEMPLATE "
						 "template0.")));
	if (has_oid && blob_store_may_replay_drop())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("a database that held blobs was dropped after the last checkpoint"),
				 errdetail("After a crash its files would be removed once more, and with them "
						   "those of a new database with the same OID."),
				 errhint("Run CHECKPOINT, or let the server choose the OID, or use TEMPLATE "
						 "template0.")));
}

void
blob_assign_check_template(Oid new_database)
{
	Oid			database;

	if (NameStr(template_name)[0] == '\0')
		return;
	require_new_oid(new_database);
	database = get_database_oid(NameStr(template_name), true);
	if (OidIsValid(database) && holds_blobs(database))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot copy database \"%s\", because it holds blobs",
						NameStr(template_name)),
				 errdetail("CREATE DATABASE does not copy the files of blobext, in which values of "
						   "type blobstate are stored."),
				 errhint("Use pg_dump and pg_restore to copy the database. To make a template of "
						 "it, run DROP EXTENSION blobext there; its files are removed some time "
						 "(blobext.autogc_naptime) after that.")));
}
