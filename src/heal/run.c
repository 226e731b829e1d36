/*
 * heal/run.c
 *	  Beginning and end of a run, see heal/heal.h.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "catalog/pg_class.h"
#include "core/compat.h"
#include "core/settings.h"
#include "heal/heal_internal.h"
#include "io/engine.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "store/store.h"
#include "store/unlogged.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"

#define READ_PARAMETER_COUNT 11

/* Limits of texts of the other server: a number, and a history of some 40,000 timelines. */
#define NUMBER_BYTES 20
#define HISTORY_BYTES (1024 * 1024)

/* ---- the source ---- */

/* Each with its very types, so that no overload fits better; the OIDs of these types. */
#define SOURCE "blobext_source($1::pg_catalog.pg_lsn)"
#define SOURCE_TYPES "3220"
#define READ "blobext_source_read($1::pg_catalog.text, $2::pg_catalog.int8, " \
	"$3::pg_catalog.int8, $4::pg_catalog.int8, $5::pg_catalog.int8, $6::pg_catalog.int8, " \
	"$7::pg_catalog.pg_lsn, $8::pg_catalog.int4, $9::pg_catalog.bool, $10::pg_catalog.bool, " \
	"$11::pg_catalog.pg_lsn)"
#define READ_TYPES "25 20 20 20 20 20 3220 23 16 16 3220"

#define CATALOG_OID(name) "'pg_catalog." name "'::pg_catalog.regclass::pg_catalog.oid"

/* A condition: the extension e has a function as a member. */
#define HAS_MEMBER(name, types) \
	"EXISTS (SELECT FROM pg_catalog.pg_depend AS d" \
	" JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) d.objid" \
	" WHERE d.refclassid OPERATOR(pg_catalog.=) " CATALOG_OID("pg_extension") \
	" AND d.refobjid OPERATOR(pg_catalog.=) e.oid" \
	" AND d.classid OPERATOR(pg_catalog.=) " CATALOG_OID("pg_proc") \
	" AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog.\"char\"" \
	" AND p.pronamespace OPERATOR(pg_catalog.=) e.extnamespace" \
	" AND p.proname OPERATOR(pg_catalog.=) '" name "'::pg_catalog.name" \
	" AND p.proargtypes OPERATOR(pg_catalog.=) '" types "'::pg_catalog.oidvector)"

/*
 * The extension's schema on the other server, quoted, if both functions that this server calls
 * there are members of the extension: the owner of the schema may have made others of their names.
 */
#define FIND_SCHEMA \
	"SELECT pg_catalog.quote_ident(n.nspname)" \
	" FROM pg_catalog.pg_extension AS e" \
	" JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace" \
	" WHERE e.extname OPERATOR(pg_catalog.=) 'blobext'::pg_catalog.name" \
	" AND " HAS_MEMBER("blobext_source", SOURCE_TYPES) \
	" AND " HAS_MEMBER("blobext_source_read", READ_TYPES)

static char *
find_schema(BlobConnection *connection)
{
	blob_connection_query(connection, FIND_SCHEMA, NULL);
	return blob_connection_text(connection, NULL, 2 * NAMEDATALEN + 2);
}

/* ERROR unless the other server has the same store, in a copy of the same cluster. */
static void
require_same_store(BlobHeal *heal)
{
	char	   *other_system = blob_connection_text(heal->connection, "system_identifier",
													NUMBER_BYTES);
	char	   *other_store = blob_connection_text(heal->connection, "store",
												   BLOB_SOURCE_STORE_BYTES);
	char		system[24];

	snprintf(system, sizeof(system), UINT64_FORMAT, GetSystemIdentifier());
	if (strcmp(other_system, system) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server is no copy of this one, nor its original"),
				 errdetail("The system identifiers are %s and %s.",
						   other_system, system)));
	if (strcmp(other_store, heal->store_name) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server has another extent store in this database"),
				 errdetail("The stores are %s and %s.", other_store, heal->store_name),
				 errhint("Name the same database in the connection string.")));
}

/* Which generations are common: the larger bound of both servers. */
static void
compare_generations(BlobHeal *heal, const char *query)
{
	char		lsn[24];
	BlobGeneration there;
	BlobStore	store;

	heal->common_below = PG_INT64_MAX;
	if (heal->fork == BLOB_NO_FORK)
		return;
	snprintf(lsn, sizeof(lsn), "%X/%X", LSN_FORMAT_ARGS(heal->fork));
	blob_connection_query(heal->connection, query, lsn);
	there = strtou64(blob_connection_text(heal->connection, "common_below", NUMBER_BYTES), NULL,
					 10);
	blob_store_open(&store, AccessShareLock);
	heal->common_below = Max(there, blob_fork_common_below(&store, heal->fork));
	blob_store_close(&store);
}

/* Compare stores and histories with the other server, and prepare the requests for content. */
static void
introduce(BlobHeal *heal)
{
	char	   *schema = find_schema(heal->connection);
	char	   *query = psprintf("SELECT * FROM %s." SOURCE, schema);
	char	   *own_history = blob_fork_history();

	/* A check of much content may leave the session idle for long. */
	blob_connection_query(heal->connection,
						  "SELECT pg_catalog.set_config('idle_session_timeout', '0', false)",
						  NULL);
	/* The fork is not known yet: its position is that of the beginning. */
	blob_connection_query(heal->connection, query, "0/0");
	require_same_store(heal);
	heal->fork = blob_fork_find(own_history,
								blob_connection_text(heal->connection, "timelines",
													 HISTORY_BYTES));
	compare_generations(heal, query);
	blob_connection_query(heal->connection, "SELECT pg_catalog.pg_is_in_recovery()", NULL);
	heal->source_is_standby = strcmp(blob_connection_text(heal->connection, NULL, 1), "t") == 0;
	blob_connection_prepare(heal->connection,
							psprintf("SELECT %s." READ, schema),
							READ_PARAMETER_COUNT);
}

/* ---- a run ---- */

/* One run at a time; the lock ends with the transaction. */
static void
lock_run(BlobHeal *heal)
{
	BlobStore	store;
	LOCKTAG		tag;

	blob_store_open(&store, AccessShareLock);
	heal->store = store.id;
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, RelationGetRelid(store.map),
					   BLOB_STORE_HEAL_LOCK);
	blob_store_close(&store);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another process fetches content in this database")));
	blob_source_store_name(&heal->store, heal->store_name);
}

static HTAB *
make_proven(MemoryContext context)
{
	HASHCTL		control = {
		.keysize = sizeof(BlobGeneration),
		.entrysize = sizeof(BlobGeneration),
		.hcxt = context
	};

	return hash_create("blobext proven extents", 1024, &control,
					   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
allocate(BlobHeal *heal)
{
	heal->proven = make_proven(heal->context);
	heal->written_capacity = 1024;
	heal->written = palloc(sizeof(*heal->written) * heal->written_capacity);
	heal->section = palloc(BLOB_HEAL_SECTION_BYTES);
	heal->aligned = (char *) TYPEALIGN(BLOB_PAGE_SIZE,
									   palloc(BLOB_IO_BUFFER_BYTES + BLOB_PAGE_SIZE));
	heal->staging = BufFileCreateTemp(false);
}

BlobHeal *
blob_heal_begin(const BlobHealOptions *options)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "blobext fetch",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	BlobHeal   *heal = palloc0(sizeof(BlobHeal));

	PreventCommandDuringRecovery("blobext_fetch()");
	PreventCommandIfReadOnly("blobext_fetch()");
	heal->context = context;
	heal->is_tracked = options->is_tracked;
	heal->logs_content = blob_wal_logs_content();
	lock_run(heal);
	heal->connection = blob_connection_open(options->conninfo, options->database);
	introduce(heal);
	allocate(heal);
	/* A crash before the end of that checkpoint would replay what the predecessor wrote. */
	if (blob_store_replays_predecessor())
		RequestCheckpoint(CHECKPOINT_FAST | CHECKPOINT_FORCE | CHECKPOINT_WAIT);
	if (!options->keeps_files)
		blob_lost_files_remake(heal);
	MemoryContextSwitchTo(old_context);
	return heal;
}

void
blob_heal_end(BlobHeal *heal)
{
	blob_heal_flush(heal);
	blob_connection_close(heal->connection);
	BufFileClose(heal->staging);
	MemoryContextDelete(heal->context);
}

BlobHealTotals
blob_heal_totals(const BlobHeal *heal)
{
	return heal->totals;
}

/* ---- notes about extents that are gone ---- */

typedef struct Kept
{
	const BlobStoreId *store;
	BlobGeneration *generations;
	uint64		count;
	uint64		capacity;
} Kept;

/* A BlobMapVisitor: an extent that is allocated, and lacking. */
static void
keep_note(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Kept	   *kept = context;
	BlobGeneration generation = blob_map_entry_generation(entry);

	if (!blob_map_entry_is_extent(entry) || !blob_unlogged_contains(kept->store, generation))
		return;
	if (kept->count == kept->capacity)
	{
		kept->capacity *= 2;
		kept->generations = repalloc_huge(kept->generations,
										  kept->capacity * sizeof(BlobGeneration));
	}
	kept->generations[kept->count++] = generation;
}

/* Noted generations that are not kept, as ranges; returns their number. */
static int
find_useless(const BlobStoreId *store, const Kept *kept, BlobGenerationRange **useless)
{
	BlobGenerationRange *noted;
	int			noted_count = blob_unlogged_ranges(store, &noted);
	uint64		next = 0;
	int			count = 0;

	*useless = palloc_extended((noted_count + kept->count) * sizeof(BlobGenerationRange) + 1,
							   MCXT_ALLOC_HUGE);
	for (int i = 0; i < noted_count; i++)
	{
		BlobGeneration first = noted[i].first;

		for (; next < kept->count && kept->generations[next] <= noted[i].last; next++)
		{
			if (kept->generations[next] > first)
				(*useless)[count++] = (BlobGenerationRange) {first, kept->generations[next] - 1};
			first = kept->generations[next] + 1;
		}
		if (first <= noted[i].last)
			(*useless)[count++] = (BlobGenerationRange) {first, noted[i].last};
	}
	pfree(noted);
	return count;
}

void
blob_heal_prune(BlobHeal *heal)
{
	Kept		kept = {.store = &heal->store, .capacity = 1024};
	BlobGenerationRange *useless;
	BlobStore	store;
	int			count;

	blob_heal_flush(heal);
	if (blob_unlogged_count(&heal->store) == 0)
		return;
	kept.generations = palloc(sizeof(BlobGeneration) * kept.capacity);
	blob_store_open(&store, AccessShareLock);
	blob_map_visit_damaged_too(store.map, keep_note, &kept);
	blob_store_close(&store);
	qsort(kept.generations, kept.count, sizeof(BlobGeneration), blob_heal_compare_generations);
	count = find_useless(&heal->store, &kept, &useless);
	blob_restore_forget(heal, useless, count);
	pfree(useless);
	pfree(kept.generations);
}
