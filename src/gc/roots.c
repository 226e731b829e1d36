/*
 * gc/roots.c
 *	  Relations that can hold blobstate: steps 4, 6 and 9 of README.md.
 *
 * pg_attribute and pg_class are read once each under one fresh snapshot, without locking or opening
 * any of the relations, so the list is of one moment.  Row types are in it, too, because their
 * attributes may change without their tables.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "containers/walk.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "gc/methods.h"
#include "gc/roots.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* Whether values of a type can hold blobstate. */
typedef struct TypeEntry
{
	Oid			type;			/* hash key */
	bool		holds;
} TypeEntry;

/* Columns of a relation, as far as pg_attribute has been read. */
typedef struct RelationEntry
{
	Oid			relid;			/* hash key */
	bool		holds;
	bool		not_ready;		/* an index that gets no insertions (yet, or any more) */
	uint64		columns;
} RelationEntry;

typedef struct Listing
{
	HTAB	   *types;
	HTAB	   *relations;
	BlobGcRoots *roots;
	int			room;			/* for items */
	int			temporary_room;
} Listing;

uint64
blob_gc_hash_column(AttrNumber number, Oid type, bool is_dropped)
{
	struct
	{
		uint32		number;
		Oid			type;
	}			key = {(uint32) number, is_dropped ? InvalidOid : type};

	return DatumGetUInt64(hash_any_extended((unsigned char *) &key, sizeof(key), 0));
}

static void
note_obstacle(Listing *listing, char *obstacle)
{
	if (listing->roots->obstacle == NULL)
		listing->roots->obstacle = obstacle;
}

static bool
type_holds(Listing *listing, Oid type)
{
	bool		found;
	TypeEntry  *entry = hash_search(listing->types, &type, HASH_ENTER, &found);

	if (!found)
	{
		entry->holds = false;	/* stays so if the look-up fails */
		entry->holds = blob_walk_type_holds(type);
	}
	return entry->holds;
}

/* The transaction id of a prepared transaction, which has an entry for its lock on that. */
static TransactionId
prepared_transaction(const LockData *locks, const LockInstanceData *of)
{
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->locktag.locktag_type == LOCKTAG_TRANSACTION && lock->pid == 0 &&
			blob_locks_of_one(lock, of))
			return lock->locktag.locktag_field1;
	}
	return InvalidTransactionId;
}

/*
 * A prepared transaction may be older than all transactions that are waited for, and no catalog
 * that others see shows the relations that it has created.  A transaction that creates a relation,
 * or gives one a column, keeps it locked.  Prepared transactions are processes with no process id.
 */
static void
check_prepared_transactions(Listing *listing)
{
	LockData   *locks = GetLockStatusData();

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->locktag.locktag_type == LOCKTAG_RELATION && lock->pid == 0 &&
			lock->locktag.locktag_field1 == MyDatabaseId &&
			(lock->holdMask & LOCKBIT_ON(AccessExclusiveLock)) != 0)
			note_obstacle(listing, psprintf("prepared transaction %u has created or changed "
											"relation %u", prepared_transaction(locks, lock),
											lock->locktag.locktag_field2));
	}
	pfree(locks->locks);
	pfree(locks);
}

static HTAB *
make_table(const char *name, Size entry_bytes)
{
	HASHCTL		info = {
		.keysize = sizeof(Oid),
		.entrysize = entry_bytes,
		.hcxt = CurrentMemoryContext
	};

	return hash_create(name, 1024, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * A base type with elements of another type is an array in SQL, but only its author knows where
 * in its values they are.  Whether any column is of such a type is not looked at.
 */
static void
check_types(Listing *listing, Snapshot snapshot)
{
	BlobCatalogScan scan = blob_catalog_scan(TypeRelationId, snapshot);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_type type = (Form_pg_type) GETSTRUCT(tuple);

		if (type->typtype == TYPTYPE_BASE && OidIsValid(type->typelem) &&
			!IsTrueArrayType(type) && type_holds(listing, type->typelem))
			note_obstacle(listing, psprintf("type \"%s\" has elements of type %s in a form of its "
											"own", NameStr(type->typname),
											format_type_be(type->typelem)));
	}
}

/*
 * Add the columns of all relations up, and note which relations can hold values.  Columns that were
 * dropped count for the comparison: values may be left in rows, but are not read.
 */
static void
read_columns(Listing *listing, Snapshot snapshot)
{
	BlobCatalogScan scan = blob_catalog_scan(AttributeRelationId, snapshot);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);
		RelationEntry *entry;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		if (column->attnum <= 0)
			continue;
		entry = hash_search(listing->relations, &column->attrelid, HASH_ENTER, &found);
		if (!found)
		{
			entry->holds = entry->not_ready = false;
			entry->columns = 0;
		}
		entry->columns += blob_gc_hash_column(column->attnum, column->atttypid,
											  column->attisdropped);
		if (!column->attisdropped && type_holds(listing, column->atttypid))
			entry->holds = true;
	}
}

/*
 * An index that CREATE INDEX CONCURRENTLY is building, or one it left behind.  Its keys are not
 * compared with anything before it is ready, and its file is written past the shared buffers: to
 * read it now would leave wrong pages there.
 */
static void
read_indexes(Listing *listing, Snapshot snapshot)
{
	BlobCatalogScan scan = blob_catalog_scan(IndexRelationId, snapshot);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_index index = (Form_pg_index) GETSTRUCT(tuple);
		RelationEntry *entry = hash_search(listing->relations, &index->indexrelid, HASH_FIND,
										   NULL);

		if (entry != NULL)
			entry->not_ready = !index->indisready;
	}
}

static char *
qualified_name(Form_pg_class class)
{
	char	   *schema = get_namespace_name(class->relnamespace);

	/* The row is of a snapshot: its schema may be gone. */
	return schema == NULL ? pstrdup(quote_identifier(NameStr(class->relname))) :
		quote_qualified_identifier(schema, NameStr(class->relname));
}

static bool
has_storage(Form_pg_class class)
{
	return class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW ||
		class->relkind == RELKIND_INDEX;
}

static bool
is_foreign_temporary(Form_pg_class class)
{
	return class->relpersistence == RELPERSISTENCE_TEMP && has_storage(class) &&
		!isTempOrTempToastNamespace(class->relnamespace);
}

static void
check_access_method(Listing *listing, Form_pg_class class)
{
	char	   *strangeness = blob_gc_find_strangeness(class, true);

	if (strangeness != NULL)
		note_obstacle(listing, psprintf("%s %s %s",
										class->relkind == RELKIND_INDEX ? "index" : "table",
										qualified_name(class), strangeness));
}

/*
 * A temporary table of another session, which that one reads.  A table that a session left behind
 * when it ended is out of reach for all.  One whose process ends just now is about to be.
 */
static void
add_temporary(Listing *listing, Form_pg_class class, const RelationEntry *entry)
{
	BlobGcRoots *roots = listing->roots;
	int			owner = blob_temporary_schema_backend(class->relnamespace);
	PGPROC	   *process;
	BlobGcTemporary *temporary;

	if (checkTempNamespaceStatus(class->relnamespace) != TEMP_NAMESPACE_IN_USE ||
		(process = blob_backend_process(owner)) == NULL)
		return;
	check_access_method(listing, class);
	if (roots->temporary_count == listing->temporary_room)
	{
		listing->temporary_room *= 2;
		roots->temporary = repalloc_huge(roots->temporary,
										 sizeof(BlobGcTemporary) * listing->temporary_room);
	}
	temporary = &roots->temporary[roots->temporary_count++];
	temporary->relid = class->oid;
	temporary->file = class->relfilenode;
	temporary->owner = owner;
	temporary->pid = process->pid;
	temporary->is_index = class->relkind == RELKIND_INDEX;
	temporary->columns = entry->columns;
	temporary->name = qualified_name(class);
}

/* Add a relation to the list, which grows as needed. */
static void
add_root(Listing *listing, Form_pg_class class, const RelationEntry *entry)
{
	BlobGcRoots *roots = listing->roots;
	BlobGcRoot *root;

	if (roots->count == listing->room)
	{
		listing->room *= 2;
		roots->items = repalloc_huge(roots->items, sizeof(BlobGcRoot) * listing->room);
	}
	root = &roots->items[roots->count++];
	memset(root, 0, sizeof(*root));
	root->relid = class->oid;
	root->file = class->relfilenode;
	root->tablespace = class->reltablespace;
	root->access_method = class->relam;
	root->kind = class->relkind;
	root->is_scanned = has_storage(class) && !entry->not_ready;
	root->columns = entry->columns;
	root->pages = Max(class->relpages, 0);
}

/*
 * Make the list from pg_class and the columns that are known.  Relations that the collector cannot
 * read are obstacles.
 */
static void
read_relations(Listing *listing, Snapshot snapshot)
{
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, snapshot);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);
		RelationEntry *entry = hash_search(listing->relations, &class->oid, HASH_FIND, NULL);

		CHECK_FOR_INTERRUPTS();
		if (entry == NULL || !entry->holds)
			continue;
		if (is_foreign_temporary(class))
		{
			add_temporary(listing, class, entry);
			continue;
		}
		check_access_method(listing, class);
		add_root(listing, class, entry);
	}
}

BlobGcRoots *
blob_gc_list_roots(MemoryContext context)
{
	MemoryContext old_context = MemoryContextSwitchTo(context);
	Snapshot	snapshot;
	Listing		listing = {
		.types = make_table("blobext collector types", sizeof(TypeEntry)),
		.relations = make_table("blobext collector relations", sizeof(RelationEntry)),
		.roots = palloc0(sizeof(BlobGcRoots)),
		.room = 64,
		.temporary_room = 16
	};

	listing.roots->items = palloc(sizeof(BlobGcRoot) * listing.room);
	listing.roots->temporary = palloc(sizeof(BlobGcTemporary) * listing.temporary_room);
	check_prepared_transactions(&listing);	/* first: those that end now are in the catalogs */
	if (listing.roots->obstacle != NULL)
	{
		MemoryContextSwitchTo(old_context);
		return listing.roots;	/* it may have locked row types that we would look at */
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	check_types(&listing, snapshot);
	read_columns(&listing, snapshot);
	read_indexes(&listing, snapshot);
	read_relations(&listing, snapshot);
	listing.roots->snapshot = palloc(EstimateSnapshotSpace(snapshot));
	SerializeSnapshot(snapshot, listing.roots->snapshot);
	UnregisterSnapshot(snapshot);
	qsort(listing.roots->items, listing.roots->count, sizeof(BlobGcRoot), oid_cmp);
	qsort(listing.roots->temporary, listing.roots->temporary_count, sizeof(BlobGcTemporary),
		  oid_cmp);
	hash_destroy(listing.types);
	hash_destroy(listing.relations);
	MemoryContextSwitchTo(old_context);
	return listing.roots;
}

/* One that is in both lists has the same columns. */
static bool
temporary_equal(const BlobGcRoots *left, const BlobGcRoots *right)
{
	for (int i = 0, j = 0; i < left->temporary_count && j < right->temporary_count;)
	{
		const BlobGcTemporary *a = &left->temporary[i];
		const BlobGcTemporary *b = &right->temporary[j];

		if (a->relid == b->relid && a->columns != b->columns)
			return false;
		i += a->relid <= b->relid;
		j += b->relid <= a->relid;
	}
	return true;
}

bool
blob_gc_roots_equal(const BlobGcRoots *left, const BlobGcRoots *right)
{
	if (left->count != right->count || !temporary_equal(left, right))
		return false;
	for (int i = 0; i < left->count; i++)
	{
		const BlobGcRoot *a = &left->items[i];
		const BlobGcRoot *b = &right->items[i];

		if (a->relid != b->relid || a->file != b->file || a->tablespace != b->tablespace ||
			a->access_method != b->access_method || a->kind != b->kind ||
			a->is_scanned != b->is_scanned || a->columns != b->columns)
			return false;
	}
	return true;
}

/* ---- columns that came and went ---- */

/*
 * Was a row of a catalog, dead or alive, committed after a snapshot was taken?  A row that its own
 * transaction removed was seen by no other one.
 */
static bool
was_committed_since(HeapTupleHeader row, Snapshot snapshot)
{
	TransactionId inserter = HeapTupleHeaderGetXmin(row);
	bool		is_own_removal = HeapTupleHeaderGetRawXmax(row) == inserter &&
		(row->t_infomask & HEAP_XMAX_IS_MULTI) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask);

	return TransactionIdIsNormal(inserter) && XidInMVCCSnapshot(inserter, snapshot) &&
		TransactionIdDidCommit(inserter) && !is_own_removal;
}

/* A type that is gone may have been a domain or a row type with values. */
static bool
type_may_hold(Listing *listing, Oid type)
{
	return !SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type)) || type_holds(listing, type);
}

/*
 * A new version of an old column's row counts, too: it costs a repetition.  No visibility is looked
 * at, because two equal lists tell that a column that was made since is gone again.
 */
bool
blob_gc_columns_were_made(const BlobGcRoots *since)
{
	Snapshot	snapshot = RestoreSnapshot(since->snapshot);
	Listing		listing = {.types = make_table("blobext collector types", sizeof(TypeEntry))};
	BlobCatalogScan scan = blob_catalog_scan(AttributeRelationId, SnapshotAny);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);

		CHECK_FOR_INTERRUPTS();
		found = column->attnum > 0 && !column->attisdropped &&
			was_committed_since(tuple->t_data, snapshot) &&
			type_may_hold(&listing, column->atttypid);
	}
	blob_catalog_scan_end(&scan);
	hash_destroy(listing.types);
	pfree(snapshot);
	return found;
}
