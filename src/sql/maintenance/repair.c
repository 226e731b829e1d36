/*
 * sql/maintenance/repair.c
 *	  The worker that repairs damaged pages, see sql/maintenance/repair.h.
 *
 * One attempt for all pages of the database that are due, then the process ends.  See "Repairs by a
 * worker" in the README of heal/.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "autogc/repair.h"
#include "commands/dbcommands.h"
#include "core/settings.h"
#include "extents/damage_look.h"
#include "heal/heal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "sql/maintenance/check.h"
#include "sql/maintenance/repair.h"
#include "sql/maintenance/repair_search.h"
#include "storage/ipc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define NAME "blobext repair"

/* ---- looks at pages ---- */

typedef struct LookCall
{
	const BlobDamagedPage *listed;
	BlobDamageLook look;
} LookCall;

/* A BlobCheckFinder. */
static char *
call_look(void *context)
{
	LookCall   *call = context;

	call->look = blob_damage_look(call->listed);
	return NULL;
}

/* Look at a page, in a transaction of its own; *problem: why it cannot be read, or NULL. */
static BlobDamageLook
look_at(const BlobRepair *repair, const BlobDamagedPage *listed, char **problem)
{
	LookCall	call = {listed, BLOB_LOOK_DAMAGED};

	StartTransactionCommand();
	*problem = blob_check_find(call_look, &call);
	if (*problem != NULL)
		*problem = MemoryContextStrdup(repair->context, *problem);
	CommitTransactionCommand();
	MemoryContextSwitchTo(repair->context);
	return call.look;
}

/* Begin an attempt for the pages that are due, and still damaged. */
static void
choose_pages(BlobRepair *repair, uint64 source)
{
	BlobDamagedPage *listed;
	int			count = blob_damaged_pages_get(MyDatabaseId, &listed);
	TimestampTz now = GetCurrentTimestamp();

	repair->pages = palloc0(sizeof(BlobRepairPage) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		BlobDamageLook look;
		char	   *problem;

		if (!blob_damaged_page_is_due(&listed[i], source, now))
			continue;
		blob_damaged_page_attempt(&listed[i], source);
		look = look_at(repair, &listed[i], &problem);
		if (problem != NULL)
			blob_damaged_page_set(&listed[i], BLOB_DAMAGE_FAILED, problem);
		else if (look == BLOB_LOOK_GONE)
			blob_damaged_page_forget(&listed[i]);
		else if (look == BLOB_LOOK_RIGHT)
			blob_damaged_page_set(&listed[i], BLOB_DAMAGE_RIGHT, NULL);
		else
			repair->pages[repair->page_count++].listed = listed[i];
	}
	blob_repair_sort_pages(repair);
}

/* ---- values ---- */

typedef struct HealCall
{
	const BlobHealOptions *options;
	const BlobDescriptor *descriptor;
} HealCall;

/* A BlobCheckFinder: a run for one value. */
static char *
call_heal(void *context)
{
	HealCall   *call = context;
	BlobHeal   *heal = blob_heal_begin(call->options);
	char	   *problem = blob_heal_value(heal, call->descriptor);

	blob_heal_end(heal);
	return problem;
}

/* In a transaction of its own.  Returns the problem, or NULL; throws if the server is lost. */
static char *
heal_value(const BlobRepair *repair, const BlobHealOptions *options, const BlobValue *value)
{
	HealCall	call = {options, &value->descriptor};
	char	   *problem;

	StartTransactionCommand();
	problem = blob_check_find(call_heal, &call);
	if (problem != NULL)
		problem = MemoryContextStrdup(repair->context, problem);
	CommitTransactionCommand();
	MemoryContextSwitchTo(repair->context);
	return problem;
}

/* A BlobRepairPageVisitor. */
static void
find_open_page(BlobRepairPage *page, void *context)
{
	*(bool *) context |= !page->is_done;
}

/* A BlobRepairPageVisitor; context: the problem of the value, or NULL. */
static void
note_result(BlobRepairPage *page, void *context)
{
	if (context == NULL)
		page->is_done = true;
	else if (page->problem == NULL)
		page->problem = context;
}

static int
compare_sizes(const ListCell *a, const ListCell *b)
{
	uint64		left = ((const BlobValue *) lfirst(a))->size_bytes;
	uint64		right = ((const BlobValue *) lfirst(b))->size_bytes;

	return left < right ? -1 : left > right;
}

/* Small ones first: less is read for the same page. */
static void
heal_values(BlobRepair *repair, const BlobHealOptions *options)
{
	ListCell   *cell;

	list_sort(repair->values, compare_sizes);
	foreach(cell, repair->values)
	{
		const BlobValue *value = lfirst(cell);
		bool		has_open_page = false;
		char	   *problem;

		blob_repair_visit_pages(repair, &value->descriptor, find_open_page, &has_open_page);
		if (!has_open_page)
			continue;
		problem = heal_value(repair, options, value);
		blob_repair_visit_pages(repair, &value->descriptor, note_result, problem);
	}
}

/* Before tables are read: whether the other server can be a source at all. */
static void
try_source(const BlobRepair *repair, const BlobHealOptions *options)
{
	StartTransactionCommand();
	blob_heal_end(blob_heal_begin(options));
	CommitTransactionCommand();
	MemoryContextSwitchTo(repair->context);
}

/* ---- an attempt ---- */

/* Why a page is still damaged. */
static const char *
find_reason(const BlobRepair *repair, const BlobRepairPage *page)
{
	if (page->is_done)
		return "the page is still damaged after it was written";
	if (page->problem != NULL)
		return page->problem;
	return repair->locked_count == 0 ? "no row or key of the database has a value in it" :
		psprintf("no row or key has a value in it, but %d tables were locked",
				 repair->locked_count);
}

/* The end of an attempt: the state of each page is decided by its file. */
static void
conclude(const BlobRepair *repair)
{
	int			repaired_count = 0;
	const char *reason = NULL;

	for (int i = 0; i < repair->page_count; i++)
	{
		const BlobRepairPage *page = &repair->pages[i];
		char	   *problem;
		BlobDamageLook look = look_at(repair, &page->listed, &problem);

		if (problem == NULL && look == BLOB_LOOK_DAMAGED)
			problem = pstrdup(find_reason(repair, page));
		if (problem != NULL)
			blob_damaged_page_set(&page->listed, BLOB_DAMAGE_FAILED, reason = problem);
		else if (look == BLOB_LOOK_GONE)
			blob_damaged_page_forget(&page->listed);
		else
			blob_damaged_page_set(&page->listed, BLOB_DAMAGE_RIGHT, NULL);
		repaired_count += problem == NULL;
	}
	ereport(LOG,
			(errmsg("blobext: %d of %d damaged pages of content are right now", repaired_count,
					repair->page_count),
			 reason == NULL ? 0 : errdetail("Another one could not be repaired: %s", reason)));
}

/* An attempt for all pages of the database that are due. */
static void
repair_pages(void)
{
	BlobHealOptions options = {.keeps_files = true};
	BlobRepair	repair = {0};

	repair.context = AllocSetContextCreate(CurrentMemoryContext, "blobext repair",
										   ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(repair.context);
	options.conninfo = pstrdup(blob_heal_conninfo);
	StartTransactionCommand();
	options.database = MemoryContextStrdup(repair.context, get_database_name(MyDatabaseId));
	CommitTransactionCommand();
	MemoryContextSwitchTo(repair.context);
	if (options.conninfo[0] == '\0')
		return;
	choose_pages(&repair, blob_autogc_repair_source(options.conninfo));
	if (repair.page_count == 0)
		return;
	try_source(&repair, &options);
	pgstat_report_activity(STATE_RUNNING, "blobext: looking for values with damaged pages");
	blob_repair_search(&repair);
	MemoryContextSwitchTo(repair.context);
	pgstat_report_activity(STATE_RUNNING, "blobext: repairing damaged pages");
	heal_values(&repair, &options);
	conclude(&repair);
}

/* ---- the process ---- */

static void
give_up_at_exit(int code, Datum argument)
{
	blob_damaged_pages_give_up(DatumGetObjectId(argument), "the repair was interrupted");
}

/* From a PG_CATCH: the list says why nothing was repaired. */
static void
give_up(void)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	blob_damaged_pages_give_up(MyDatabaseId, error->detail == NULL ? error->message :
							   psprintf("%s: %s", error->message, error->detail));
	blob_autogc_process_recover();
}

void
blob_repair_worker_main(Datum argument)
{
	before_shmem_exit(give_up_at_exit, argument);
	blob_autogc_process_begin(NAME, DatumGetObjectId(argument));
	blob_autogc_process_pass_for_autovacuum(true);
	SetCurrentStatementStartTimestamp();
	pgstat_report_activity(STATE_RUNNING, "blobext: looking at damaged pages");
	PG_TRY();
	{
		repair_pages();
	}
	PG_CATCH();
	{
		give_up();
	}
	PG_END_TRY();
	proc_exit(0);
}
