/*
 * gc/since.c
 *	  Since when a process holds a round up, see gc/since.h: from pg_stat_activity's source.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/since.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

/* What the server shows of a process now, or NULL. */
static const PgBackendStatus *
find_status(int pid)
{
	int			count;

	pgstat_clear_backend_activity_snapshot();
	count = pgstat_fetch_stat_numbackends();
	for (int i = 1; i <= count; i++)
	{
		const LocalPgBackendStatus *local = blob_local_backend_status(i);

		if (local != NULL && local->backendStatus.st_procpid == pid)
			return &local->backendStatus;
	}
	return NULL;
}

char *
blob_gc_since(int pid, bool of_session)
{
	const PgBackendStatus *status = find_status(pid);
	TimestampTz since = 0;

	if (status != NULL)
		since = of_session ? status->st_proc_start_timestamp : status->st_xact_start_timestamp;
	if (since == 0)
		return pstrdup("");
	return psprintf(" (its %s began at %s)", of_session ? "session" : "transaction",
					timestamptz_to_str(since));
}
