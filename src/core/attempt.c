/*
 * core/attempt.c
 *	  A step that may fail without its statement, see core/attempt.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/attempt.h"
#include "utils/resowner.h"

ErrorData *
blob_attempt(BlobAttemptStep step, void *argument)
{
	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old_context);
	PG_TRY();
	{
		step(argument);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	CurrentResourceOwner = old_owner;
	return error;
}
