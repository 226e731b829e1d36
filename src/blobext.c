/*
 * blobext.c
 *	  Entry point of the library: a table of contents of what it hooks into the server.
 */
#include "postgres.h"

#include "api/api.h"
#include "extents/durability.h"
#include "client/rows.h"
#include "core/settings.h"
#include "fmgr.h"
#include "gc/constants.h"
#include "gc/holders.h"
#include "autogc/launcher.h"
#include "autogc/schedule.h"
#include "gc/status.h"
#include "io/io.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "recovery/replay_origin.h"
#include "recovery/recovery.h"
#include "store/store.h"
#include "sql/check_progress.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "assign/assign.h"

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
	blob_gc_holders_shmem_request();
	blob_gc_status_shmem_request();
	blob_autogc_schedule_shmem_request();
	blob_check_progress_shmem_request();
}

static void
initialize_shared_memory(void)
{
	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	blob_io_shmem_init();
	blob_store_shmem_init();
	blob_gc_holders_shmem_init();
	blob_gc_status_shmem_init();
	blob_autogc_schedule_shmem_init();
	blob_check_progress_shmem_init();
	LWLockRelease(AddinShmemInitLock);
	blob_replay_origin_look();
	blob_settings_warn();
}

/*
 * Without preloading there is no shared memory and no resource manager: nothing is set up, and
 * whatever needs them says so (blob_store_require_preload).
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

	blob_settings_define();
	blob_recovery_register();
	blob_replay_origin_install_hooks();
	blob_durability_init();
	blob_assign_install_hooks();
	blob_rows_install_hook();
	blob_gc_holders_install();
	blob_gc_constants_install();
	blob_autogc_launcher_register();
	blob_store_allocation_hook = blob_autogc_schedule_allocated;
	blob_syncer_register();		/* after the launcher: who comes late may get no slot */
	blob_api_register();

	previous_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = initialize_shared_memory;
}
