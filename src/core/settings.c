/*
 * core/settings.c
 *	  Definitions of the settings, see core/settings.h.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xlog.h"
#include "core/settings.h"
#include "libpq-fe.h"
#include "utils/guc.h"

/*
 * About the size up to which bytea stays in its row: with a few other columns, four such rows fill
 * a page.  With three of them a quarter of the page would be lost.
 */
#define DEFAULT_INLINE_LIMIT_BYTES 1900
#define DEFAULT_REWRITE_LIMIT_KB 1024

int			blob_inline_limit_bytes = DEFAULT_INLINE_LIMIT_BYTES;
int			blob_rewrite_limit_kb = DEFAULT_REWRITE_LIMIT_KB;
int			blob_default_compression = BLOB_METHOD_NONE;
int			blob_wal_content = BLOB_WAL_CONTENT_AUTO;
int			blob_io_method = BLOB_IO_METHOD_AUTO;
bool		blob_direct_io = true;
bool		blob_background_sync = true;
bool		blob_page_checksums = true;
int			blob_scrub_rate_mb = 0;
bool		blob_tail_extents = true;
int			blob_digest_thread = 1;
bool		blob_verify_reads = false;
bool		blob_stream_results = true;
int			blob_client_type = BLOB_CLIENT_TYPE_BYTEA;
int			blob_buffer_kb = -1;
int			blob_max_databases = 1000;
int			blob_min_free_disk_mb = 128;
int			blob_max_store_mb = -1;
int			blob_keep_free_mb = 1024;
int			blob_gc_wait_timeout_ms = 60 * 1000;
double		blob_gc_cost_delay_ms = 0;
int			blob_gc_cost_limit_pages = 200;
bool		blob_autogc = true;
bool		blob_autogc_vacuum = true;
int			blob_autogc_naptime_s = 30;
int			blob_autogc_interval_s = 15 * 60;
int			blob_autogc_threshold_kb = 16 * 1024;
double		blob_autogc_scale_factor = 0.1;
int			blob_autogc_max_workers = 2;
double		blob_autogc_cost_delay_ms = 20;
int			blob_autogc_cost_limit_pages = -1;
int			blob_log_autogc_min_duration_ms = 10 * 60 * 1000;
int			blob_gc_work_mem_kb = -1;
char	   *blob_heal_conninfo = "";

static const struct config_enum_entry wal_content_options[] = {
	{"auto", BLOB_WAL_CONTENT_AUTO, false},
	{"on", BLOB_WAL_CONTENT_ON, false},
	{"off", BLOB_WAL_CONTENT_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry engine_options[] = {
	{"auto", BLOB_IO_METHOD_AUTO, false},
	{"io_uring", BLOB_IO_METHOD_URING, false},
	{"aio", BLOB_IO_METHOD_AIO, false},
	{"sync", BLOB_IO_METHOD_SYNC, false},
	{NULL, 0, false}
};

/* "auto" was a rule of its own in 0.3. */
static const struct config_enum_entry digest_thread_options[] = {
	{"on", 1, false},
	{"auto", 1, true},
	{"off", 0, false},
	{NULL, 0, false}
};

static const struct config_enum_entry client_type_options[] = {
	{"bytea", BLOB_CLIENT_TYPE_BYTEA, false},
	{"blobstate", BLOB_CLIENT_TYPE_BLOBSTATE, false},
	{NULL, 0, false}
};

/* Methods that are not built in are no values of the setting. */
static const struct config_enum_entry compression_options[] = {
	{"none", BLOB_METHOD_NONE, false},
#ifdef BLOB_WITH_LZ4
	{"lz4", BLOB_METHOD_LZ4, false},
#endif
#ifdef BLOB_WITH_ZSTD
	{"zstd", BLOB_METHOD_ZSTD, false},
#endif
	{NULL, 0, false}
};

/* Settings of single values: how they are stored and read. */
static void
define_store_settings(void)
{
	DefineCustomIntVariable("blobext.inline_limit",
							"Sets the size up to which values stay in the row.",
							"Larger values are stored in extents.",
							&blob_inline_limit_bytes, DEFAULT_INLINE_LIMIT_BYTES, 0, 1024 * 1024,
							PGC_USERSET, GUC_UNIT_BYTE, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.rewrite_limit",
							"Sets the size up to which a change in the middle writes values anew.",
							"A change of a larger value writes what it touches, and the value "
							"becomes a tree of pieces.",
							&blob_rewrite_limit_kb, DEFAULT_REWRITE_LIMIT_KB, 32, 1024 * 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomEnumVariable("blobext.default_compression",
							 "Sets how new values in extents are compressed, where their column "
							 "does not say it.",
							 "blobext_set_compression() sets the method of a column.",
							 &blob_default_compression, BLOB_METHOD_NONE, compression_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.tail_extents",
							 "Ends values of known size with an extent of exactly fitting size.",
							 "Without it the last extent has its tier's size and room to grow.",
							 &blob_tail_extents, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("blobext.digest_thread",
							 "Selects whether digests of long values are computed in a second "
							 "thread.",
							 "Otherwise a process hashes content between its other steps.",
							 &blob_digest_thread, 1, digest_thread_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.verify_reads",
							 "Verifies the SHA-256 digest whenever a whole value is read.",
							 NULL, &blob_verify_reads, false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.stream_results",
							 "Sends large values of results to the client while they are read.",
							 "Without it, as with blobext.verify_reads, a row is made in memory "
							 "before it is sent.",
							 &blob_stream_results, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("blobext.client_type",
							 "Sets as which type clients are told of blobstate.",
							 "Drivers know bytea. The bytes of a value are the same either way.",
							 &blob_client_type, BLOB_CLIENT_TYPE_BYTEA, client_type_options,
							 PGC_USERSET, GUC_REPORT, NULL, NULL, NULL);
}

/* Settings of the store, the WAL and I/O. */
static void
define_server_settings(void)
{
	DefineCustomEnumVariable("blobext.wal_content",
							 "Selects whether content is written to the WAL.",
							 "auto logs content when wal_level is replica or higher. Without "
							 "content in the WAL, standbys, base backups and point-in-time "
							 "recovery miss values.",
							 &blob_wal_content, BLOB_WAL_CONTENT_AUTO, wal_content_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("blobext.io_method",
							 "Selects how extents are read and written.",
							 "auto takes io_uring, or else aio, or else blocking calls (sync), "
							 "whichever the kernel allows first.",
							 &blob_io_method, BLOB_IO_METHOD_AUTO, engine_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.direct_io",
							 "Bypasses the kernel's page cache where the file system allows it.",
							 NULL, &blob_direct_io, true, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.page_checksums",
							 "New stores have checksums of all pages of content.",
							 "Standbys need blobext 0.4 or later then.",
							 &blob_page_checksums, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.background_sync",
							 "Leaves syncing of content in the WAL to a background process.",
							 "Commits then wait for the WAL only, as they do for rows.",
							 &blob_background_sync, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.cache_size",
							"Sets the size of the shared buffer for content of extents.",
							"-1 takes a quarter of shared_buffers, at least 64 MB; 0 turns it off.",
							&blob_buffer_kb, -1, -1, INT_MAX,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.max_databases",
							"Sets how many databases of the cluster can hold an extent store.",
							NULL, &blob_max_databases, 1000, 1, 100000, PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.min_free_disk",
							"Sets the disk space that stores leave to the rest of the server.",
							"Values are refused before the file system of pg_blobext or pg_wal has "
							"less. 0 sets no limit.",
							&blob_min_free_disk_mb, 128, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.max_store_size",
							"Sets how much space values of a database can take.",
							"Set it by ALTER DATABASE. Values are refused that would take more, "
							"in whole pages. -1 sets no limit.",
							&blob_max_store_mb, -1, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.keep_free",
							"Sets the free space that a store keeps for the next values.",
							"It keeps an eighth of what is in use at most. More goes back to the "
							"file system. -1 leaves all free space in the files.",
							&blob_keep_free_mb, 1024, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.scrub_rate",
							"Sets how much content is compared with its checksums in a second.",
							"A background process reads the segment files of one database after "
							"the other. 0: none does.",
							&blob_scrub_rate_mb, 0, 0, 1000000, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
}

/* Replace 0 by the smallest size, since the collector needs some memory. */
static bool
check_work_mem(int *value, void **extra, GucSource source)
{
	if (*value == 0)
		*value = 1;
	return true;
}

/* Settings of all rounds of the collector, and defaults of rounds that the launcher starts. */
static void
define_collector_settings(void)
{
	DefineCustomIntVariable("blobext.gc_wait_timeout",
							"Sets how long the collector waits for others before it gives up.",
							"Transactions, held cursors, locks and logical replication slots can "
							"keep it from freeing space.",
							&blob_gc_wait_timeout_ms, 60 * 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomRealVariable("blobext.gc_cost_delay",
							 "Sets how long the collector sleeps after gc_cost_limit pages.",
							 "0 lets it run at full speed.",
							 &blob_gc_cost_delay_ms, 0, 0, 1000, PGC_USERSET, GUC_UNIT_MS,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.gc_cost_limit",
							"Sets how many pages the collector reads before it sleeps.",
							NULL, &blob_gc_cost_limit_pages, 200, 1, INT_MAX, PGC_USERSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.gc_work_mem",
							"Sets the memory of the collector for what it has found in use.",
							"1 kB is good for 16 MB of the store. If the store is larger, tables "
							"and indexes are read several times. -1 takes maintenance_work_mem.",
							&blob_gc_work_mem_kb, -1, -1, MAX_KILOBYTES, PGC_USERSET,
							GUC_UNIT_KB, check_work_mem, NULL, NULL);
}

/* Settings of rounds that the launcher starts; names and meanings follow autovacuum's. */
static void
define_launcher_settings(void)
{
	DefineCustomBoolVariable("blobext.autogc",
							 "Starts the collector by itself.",
							 "Files of dropped databases and extensions are removed all the same.",
							 &blob_autogc, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("blobext.autogc_vacuum",
							 "Lets the collector vacuum tables whose dead index keys hold space.",
							 "Only where autovacuum is on, for the server and for the table.",
							 &blob_autogc_vacuum, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.autogc_naptime",
							"Sets the time between looks at a database by the collector.",
							NULL, &blob_autogc_naptime_s, 30, 1, INT_MAX / 1000, PGC_SIGHUP,
							GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.autogc_interval",
							"Sets the time after which the collector runs for any change.",
							"It runs earlier when the change is as large as autogc_threshold and "
							"autogc_scale_factor say.",
							&blob_autogc_interval_s, 15 * 60, 1, INT_MAX / 1000, PGC_SIGHUP,
							GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.autogc_threshold",
							"Sets the minimum of stored and deleted bytes before the collector "
							"runs.",
							NULL, &blob_autogc_threshold_kb, 16 * 1024, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomRealVariable("blobext.autogc_scale_factor",
							 "Sets the stored and deleted bytes before the collector runs, as a "
							 "fraction of those that live.",
							 NULL, &blob_autogc_scale_factor, 0.1, 0, 100, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.autogc_max_workers",
							"Sets how many databases the collector works in at a time.",
							"Its workers count against max_worker_processes.",
							&blob_autogc_max_workers, 2, 1, BLOB_AUTOGC_WORKER_LIMIT, PGC_SIGHUP,
							0, NULL, NULL, NULL);
	DefineCustomRealVariable("blobext.autogc_cost_delay",
							 "Sets how long the collector sleeps after autogc_cost_limit pages, "
							 "when it was started by itself.",
							 "-1 takes gc_cost_delay.",
							 &blob_autogc_cost_delay_ms, 20, -1, 1000, PGC_SIGHUP, GUC_UNIT_MS,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.autogc_cost_limit",
							"Sets how many pages the collector reads before it sleeps, when it "
							"was started by itself.",
							"-1 takes gc_cost_limit.",
							&blob_autogc_cost_limit_pages, -1, -1, INT_MAX, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("blobext.log_autogc_min_duration",
							"Sets the minimum execution time above which runs of the collector by "
							"itself are logged.",
							"-1 logs none, 0 all. Why nothing could be freed is logged unless it "
							"is -1.",
							&blob_log_autogc_min_duration_ms, 10 * 60 * 1000, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * A connection string without a database: each worker connects to that of its own name.  Messages
 * have no part of the string, which may have a password; so the server's own must not be used.
 */
static bool
check_conninfo(char **value, void **extra, GucSource source)
{
	PQconninfoOption *options = PQconninfoParse(*value, NULL);
	bool		has_database = false;

	if (options == NULL)
	{
		GUC_check_errmsg("invalid connection string in parameter \"blobext.heal_conninfo\"");
		return false;
	}
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, "dbname") == 0 && option->val != NULL)
			has_database = true;
	}
	PQconninfoFree(options);
	if (!has_database)
		return true;
	GUC_check_errmsg("parameter \"blobext.heal_conninfo\" must not name a database");
	GUC_check_errdetail("Each database is repaired from that of the same name.");
	GUC_check_errhint("Remove \"dbname\" from the connection string.");
	return false;
}

static void
define_repair_settings(void)
{
	DefineCustomStringVariable("blobext.heal_conninfo",
							   "Sets the server from which damaged pages of content are repaired.",
							   "A connection string without a database. Empty: none is repaired.",
							   &blob_heal_conninfo, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_conninfo, NULL, NULL);
}

void
blob_settings_define(void)
{
	define_store_settings();
	define_server_settings();
	define_collector_settings();
	define_launcher_settings();
	define_repair_settings();
	MarkGUCPrefixReserved("blobext");
}

bool
blob_wal_logs_content(void)
{
	if (blob_wal_content == BLOB_WAL_CONTENT_AUTO)
		return XLogIsNeeded();
	return blob_wal_content == BLOB_WAL_CONTENT_ON;
}

void
blob_settings_warn(void)
{
	if (XLogIsNeeded() && !blob_wal_logs_content())
		ereport(WARNING,
				(errmsg("blobext does not write content to the WAL, although wal_level is \"%s\"",
						GetConfigOption("wal_level", false, false)),
				 errdetail("Standbys, base backups and point-in-time recovery will miss the "
						   "content of values over blobext.inline_limit, and refuse to read them."),
				 errhint("Set blobext.wal_content to \"auto\", unless that is what you want.")));
}

void
blob_settings_fix(const char *name, const char *value)
{
	if (GetConfigOption(name, true, false) != NULL)
		SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}
