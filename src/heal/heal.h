/*
 * heal/heal.h
 *	  A run that gets lacking or damaged content from another server; see the README.
 */
#ifndef BLOB_HEAL_H
#define BLOB_HEAL_H

#include "core/descriptor.h"

typedef struct BlobHeal BlobHeal;

/* The work of a run so far. */
typedef struct BlobHealTotals
{
	uint64		values;			/* that are right now */
	uint64		fetched_bytes;
	uint64		remade_files;
} BlobHealTotals;

typedef struct BlobHealOptions
{
	const char *conninfo;
	const char *database;		/* of the other server; NULL: conninfo says it */
	bool		keeps_files;	/* lost files are not made anew */
	void		(*is_tracked) (uint64 bytes);	/* called when bytes have come; or NULL */
} BlobHealOptions;

/*
 * Begin a run: connect to the other server, compare histories, make lost files anew.  ERROR in
 * recovery, in a read-only transaction, if another run is in progress in this database, or if the
 * other server cannot be a source.  May request a checkpoint.  The result lives in the current
 * memory context; files belong to the current resource owner.
 */
extern BlobHeal *blob_heal_begin(const BlobHealOptions *options);

/* Make all repairs durable, and end the run.  It also ends with its memory context. */
extern void blob_heal_end(BlobHeal *heal);

/*
 * Forget notes about extents that are not allocated any more.  For the end of a run over the whole
 * database.
 */
extern void blob_heal_prune(BlobHeal *heal);

/*
 * Whether the value has lacking content.  Content that this run has already brought does not count,
 * but may not be readable before blob_heal_flush().
 */
extern bool blob_heal_lacks(BlobHeal *heal, const BlobDescriptor *descriptor);

/* Whether the value has content that this run has brought, and that cannot be read yet. */
extern bool blob_heal_is_unfinished(BlobHeal *heal, const BlobDescriptor *descriptor);

/* Make readable what this run has brought so far. */
extern void blob_heal_flush(BlobHeal *heal);

/*
 * Make a value in extents right: fetch lacking and damaged bytes.  Returns NULL, or the reason why
 * that could not be done; then nothing that was right has been changed.  Throws errors, too.  An
 * error of class 08 is the end of the run.
 */
extern char *blob_heal_value(BlobHeal *heal, const BlobDescriptor *descriptor);

extern BlobHealTotals blob_heal_totals(const BlobHeal *heal);

#endif							/* BLOB_HEAL_H */
