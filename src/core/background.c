/*
 * core/background.c
 *	  Background processes of this library, see core/background.h.
 */
#include "postgres.h"

#include "core/background.h"
#include "miscadmin.h"

#define LIBRARY "blobext"

void
blob_background_describe(BackgroundWorker *process, const char *name, const char *function,
						 int restart_s)
{
	memset(process, 0, sizeof(*process));
	process->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	process->bgw_start_time = BgWorkerStart_RecoveryFinished;
	process->bgw_restart_time = restart_s;
	strlcpy(process->bgw_library_name, LIBRARY, sizeof(process->bgw_library_name));
	strlcpy(process->bgw_function_name, function, sizeof(process->bgw_function_name));
	strlcpy(process->bgw_name, name, sizeof(process->bgw_name));
	strlcpy(process->bgw_type, name, sizeof(process->bgw_type));
}

void
blob_background_register(const char *name, const char *function, int restart_s)
{
	BackgroundWorker process;

	if (IsBinaryUpgrade)
		return;
	blob_background_describe(&process, name, function, restart_s);
	RegisterBackgroundWorker(&process);
}
