/*
 * heal/fork.h
 *	  Where the histories of two servers part; see "What may be trusted" in the README.
 */
#ifndef BLOB_HEAL_FORK_H
#define BLOB_HEAL_FORK_H

#include "access/xlogdefs.h"
#include "core/page.h"
#include "store/store.h"

/* In place of a fork: both servers have one history. */
#define BLOB_NO_FORK PG_UINT64_MAX

/*
 * The history of this server, as text: "timeline end,timeline end,…,timeline", oldest first, each
 * with the position at which the next one began.  ERROR if a history file is missing.
 */
extern char *blob_fork_history(void);

/*
 * The last position that two such histories share, or BLOB_NO_FORK.  ERROR if they have nothing in
 * common, or are ill-formed.
 */
extern XLogRecPtr blob_fork_find(const char *history, const char *other);

/* Generations below the result were drawn before the fork, as far as this server's map tells. */
extern BlobGeneration blob_fork_common_below(BlobStore *store, XLogRecPtr fork);

#endif							/* BLOB_HEAL_FORK_H */
