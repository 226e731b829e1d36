/*
 * assign/template.c
 *	  Refuses CREATE DATABASE from a template that holds blobs.
 *
 * CREATE DATABASE copies relations, the extent map among them, but not the segment files.  A store
 * without files can be copied: the copy gets files of its own when its first value is written.
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
#include "utils/builtins.h"

/*
 * Template of the CREATE DATABASE in progress; empty if there is none.  That statement never runs
 * within another one.
 */
static NameData template_name;

void
blob_assign_note_template(Node *statement)
{
	ListCell   *cell;

	memset(&template_name, 0, sizeof(template_name));
	if (!IsA(statement, CreatedbStmt))
		return;
	namestrcpy(&template_name, "template1");
	foreach(cell, ((CreatedbStmt *) statement)->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			namestrcpy(&template_name, defGetString(option));
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

void
blob_assign_check_template(void)
{
	Oid			database;

	if (NameStr(template_name)[0] == '\0')
		return;
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
