/*
 * gc/notes_file.h
 *	  The file of notes of a store: sections, in the order of tables and blocks.
 *
 * It is a temporary file of the server, and goes with the next start.  Reading stops at a section
 * that is wrong, writing at any error: then there are no notes, which is no error of the round.
 */
#ifndef BLOB_GC_NOTES_FILE_H
#define BLOB_GC_NOTES_FILE_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "core/page.h"
#include "io/store_file.h"
#include "port/pg_crc32c.h"
#include "storage/block.h"
#include "store/store.h"

extern const BlobStoreFileKind blob_gc_notes_kind;

/* Blocks of a section, which never crosses the pages of the visibility map. */
#define BLOB_GC_SECTION_BLOCKS 512

/* The most references in a section, 4 MB: more than pages full of descriptors have. */
#define BLOB_GC_SECTION_REFERENCES (512 * 1024)

/* As it is in the file, where its references follow: first pages of extents, in order of blocks. */
typedef struct BlobGcSection
{
	uint64		token;			/* of the file */
	uint64		columns;		/* BlobGcRoot.columns, mixed with those of row types if need be */
	XLogRecPtr	position;		/* LSN of the visibility map's page before any page was read */
	XLogRecPtr	since;			/* end of the WAL before that */
	Oid			relid;
	Oid			file;
	Oid			tablespace;
	BlockNumber first_block;
	uint32		reference_count;
	uint32		counts[BLOB_GC_SECTION_BLOCKS]; /* references of each page and 1; 0: no note */
	pg_crc32c	crc;			/* of the fields above, and of the references */
} BlobGcSection;

typedef struct BlobGcNotesFile
{
	FILE	   *file;			/* NULL: there is none, or it has ended */
	uint64		token;
	char		path[MAXPGPATH];
} BlobGcNotesFile;

/* Allocated until the end of the transaction. */
extern void blob_gc_notes_file_open(BlobGcNotesFile *notes, const BlobStoreId *store, uint64 token);
extern void blob_gc_notes_file_make(BlobGcNotesFile *notes, const BlobStoreId *store);

/*
 * The next section, with room for BLOB_GC_SECTION_REFERENCES references; false: there is none.
 * Append one: sets its token and CRC.
 */
extern bool blob_gc_notes_file_read(BlobGcNotesFile *notes, BlobGcSection *section,
									BlobPageNo *references);
extern void blob_gc_notes_file_write(BlobGcNotesFile *notes, BlobGcSection *section,
									 const BlobPageNo *references);

/*
 * Close a file that was read.  Close one that was made; take_over: give it its name.  Returns its
 * token, or 0: it is not there.
 */
extern void blob_gc_notes_file_close(BlobGcNotesFile *notes);
extern uint64 blob_gc_notes_file_end(BlobGcNotesFile *notes, const BlobStoreId *store,
									 bool take_over);

#endif							/* BLOB_GC_NOTES_FILE_H */
