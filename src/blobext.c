/*
 * blobext.c
 *	  Entry point of the library: a table of contents of its hooks in the server.
 */
#include "postgres.h"

#include "api/api.h"
#include "assign/assign.h"
#include "assign/hooks.h"
#include "assign/label_provider.h"
#include "autogc/launcher.h"
#include "autogc/schedule.h"
#include "blob/known_digests.h"
#include "client/descriptions.h"
#include "client/wire.h"
#include "core/settings.h"
#include "extents/damaged_pages.h"
#include "extents/durability.h"
#include "fmgr.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/holders.h"
#include "gc/status.h"
#include "gc/temporary.h"
#include "hooks/hooks.h"
#include "io/io.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "recovery/recovery.h"
#include "recovery/replay_origin.h"
#include "sql/maintenance/progress.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "store/store.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_shmem_request_hook;
static shmem_startup_hook_type previous_shmem_startup_hook;

static void
request_shared_memory(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	blob_io_shmem_request();
	blob_store_shmem_request();
	blob_damaged_pages_shmem_request();
	blob_known_digests_shmem_request();
	blob_gc_holders_shmem_request();
	blob_gc_blank_shmem_request();
	blob_gc_temporary_shmem_request();
	blob_gc_status_shmem_request();
	blob_autogc_schedule_shmem_request();
	blob_progress_shmem_request();
}

/* In the postmaster, at its start and after a crash. */
static void
initialize_shared_memory(void)
{
	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	blob_io_shmem_init();
	blob_store_shmem_init();
	blob_damaged_pages_shmem_init();
	blob_known_digests_shmem_init();
	blob_gc_holders_shmem_init();
	blob_gc_blank_shmem_init();
	blob_gc_temporary_shmem_init();
	blob_gc_status_shmem_init();
	blob_autogc_schedule_shmem_init();
	blob_progress_shmem_init();
	LWLockRelease(AddinShmemInitLock);
	blob_replay_origin_look();
	blob_settings_warn();
}

/*
 * Without preloading there is no shared memory and no resource manager: nothing is set up, and
 * each function that needs them fails with a hint (blob_store_require_preload).
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		/*
		 * pg_upgrade loads the library before it changes anything, to see whether it can.  Without
		 * the hooks, columns that it makes would lack the hidden type modifier.
		 */
		if (IsBinaryUpgrade)
			blob_store_require_preload();
		return;
	}

	/* Settings first: all others read them. */
	blob_settings_define();

	/* Replay. */
	blob_recovery_register();

	/*
	 * Callbacks.  PostgreSQL calls the transaction callback first that was registered last.  A
	 * cursor WITH HOLD outlives a commit that fails in its callbacks, so it must be registered
	 * before content is made crash-safe, which can fail, and before temporary tables are read for a
	 * round, which asks for cursors.
	 *
	 * Callbacks that most processes do not need are registered when they are: for catalogs
	 * (core/catalog.c), indexes (assign/content_index.c) and reading ahead (extents/readahead.c).
	 */
	blob_durability_register();
	blob_gc_owner_register();
	blob_gc_holders_register();
	blob_gc_constants_register();
	blob_gc_blank_register();

	/* Functions that other folders call without including their headers. */
	blob_durability_set_rule(blob_assign_is_strict);
	blob_assign_watch_content_indexes(blob_assign_content_index_changed);
	blob_store_allocation_hook = blob_autogc_schedule_allocated;
	blob_store_refusal_hook = blob_autogc_schedule_refused;

	/* Labels of columns: how their values are stored. */
	blob_label_register();

	/* Hooks. */
	blob_descriptions_init();
	blob_wire_init();
	blob_hooks_install();

	/* Processes.  If slots are few, the last gets none: without the syncer, backends sync. */
	blob_autogc_launcher_register();
	blob_syncer_register();

	/* The C interface. */
	blob_api_register();

	/* Shared memory. */
	previous_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = initialize_shared_memory;
}
