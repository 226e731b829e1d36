/*
 * core/attempt.h
 *	  A step that may fail without its statement.
 */
#ifndef BLOB_CORE_ATTEMPT_H
#define BLOB_CORE_ATTEMPT_H

#include "postgres.h"

/*
 * Run a step in a subtransaction of its own.  Returns NULL, or its error, copied to the current
 * memory context; then all that the step did is rolled back.  The step runs in that context.
 *
 * An error that says that this session is to stop, or that the server lacks something, is no result
 * of the step: the caller throws it again by ReThrowError().
 */
typedef void (*BlobAttemptStep) (void *argument);
extern ErrorData *blob_attempt(BlobAttemptStep step, void *argument);

#endif							/* BLOB_CORE_ATTEMPT_H */
