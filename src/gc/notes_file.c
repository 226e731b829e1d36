/*
 * gc/notes_file.c
 *	  The file of notes of a store, see gc/notes_file.h.
 */
#include "postgres.h"

#include <unistd.h>

#include "common/file_utils.h"
#include "gc/notes_file.h"
#include "storage/fd.h"

/* The server removes files of this name at its start, and backups leave them out. */
#define FOLDER "base/" PG_TEMP_FILES_DIR
const BlobStoreFileKind blob_gc_notes_kind = {FOLDER, PG_TEMP_FILE_PREFIX "_blobext."};

static void
report(const char *action, const char *path)
{
	ereport(LOG,
			(errcode_for_file_access(), errmsg("could not %s file \"%s\": %m", action, path),
			 errdetail("Rounds of the collector read pages that have not changed.")));
}

static pg_crc32c
crc_of(const BlobGcSection *section, const BlobPageNo *references)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, section, offsetof(BlobGcSection, crc));
	COMP_CRC32C(crc, references, section->reference_count * sizeof(BlobPageNo));
	FIN_CRC32C(crc);
	return crc;
}

/* ---- reading ---- */

void
blob_gc_notes_file_open(BlobGcNotesFile *notes, const BlobStoreId *store, uint64 token)
{
	notes->token = token;
	notes->file = NULL;
	if (token == 0)
		return;
	blob_store_file_path(notes->path, &blob_gc_notes_kind, store, "");
	notes->file = AllocateFile(notes->path, PG_BINARY_R);
	if (notes->file == NULL)
		report("open", notes->path);
}

void
blob_gc_notes_file_close(BlobGcNotesFile *notes)
{
	if (notes->file != NULL)
		(void) FreeFile(notes->file);	/* nothing was written */
	notes->file = NULL;
}

/* The counts of pages add up to those of the references. */
static bool
is_sound(const BlobGcSection *section)
{
	uint64		sum = 0;

	for (int i = 0; i < BLOB_GC_SECTION_BLOCKS; i++)
		sum += Max(section->counts[i], 1) - 1;
	return sum == section->reference_count;
}

static bool
read_section(BlobGcNotesFile *notes, BlobGcSection *section, BlobPageNo *references)
{
	if (fread(section, sizeof(*section), 1, notes->file) != 1)
		return false;
	if (section->token != notes->token ||
		section->reference_count > BLOB_GC_SECTION_REFERENCES)
		return false;
	if (fread(references, sizeof(BlobPageNo), section->reference_count, notes->file) !=
		section->reference_count)
		return false;
	return section->crc == crc_of(section, references) && is_sound(section);
}

bool
blob_gc_notes_file_read(BlobGcNotesFile *notes, BlobGcSection *section, BlobPageNo *references)
{
	if (notes->file == NULL)
		return false;
	if (read_section(notes, section, references))
		return true;
	if (ferror(notes->file))
		report("read", notes->path);
	blob_gc_notes_file_close(notes);
	return false;
}

/* ---- writing ---- */

/* Give up. */
static void
fail(BlobGcNotesFile *notes, const char *action)
{
	report(action, notes->path);
	if (notes->file != NULL)
		(void) FreeFile(notes->file);
	notes->file = NULL;
	(void) unlink(notes->path);
}

void
blob_gc_notes_file_make(BlobGcNotesFile *notes, const BlobStoreId *store)
{
	notes->token = 0;
	notes->file = NULL;
	while (notes->token == 0)
	{
		if (!pg_strong_random(&notes->token, sizeof(notes->token)))
			return;
	}
	blob_store_file_path(notes->path, &blob_gc_notes_kind, store, ".new");
	if (MakePGDirectory(FOLDER) != 0 && errno != EEXIST)
	{
		report("create", FOLDER);
		return;
	}
	notes->file = AllocateFile(notes->path, PG_BINARY_W);
	if (notes->file == NULL)
		report("create", notes->path);
}

void
blob_gc_notes_file_write(BlobGcNotesFile *notes, BlobGcSection *section,
						 const BlobPageNo *references)
{
	if (notes->file == NULL)
		return;
	section->token = notes->token;
	section->crc = crc_of(section, references);
	if (fwrite(section, sizeof(*section), 1, notes->file) != 1 ||
		fwrite(references, sizeof(BlobPageNo), section->reference_count, notes->file) !=
		section->reference_count)
		fail(notes, "write");
}

uint64
blob_gc_notes_file_end(BlobGcNotesFile *notes, const BlobStoreId *store, bool take_over)
{
	char		path[MAXPGPATH];
	FILE	   *file = notes->file;

	if (file == NULL)
		return 0;
	notes->file = NULL;
	if (FreeFile(file) != 0)
	{
		fail(notes, "write");
		return 0;
	}
	blob_store_file_path(path, &blob_gc_notes_kind, store, "");
	if (take_over && rename(notes->path, path) == 0)
		return notes->token;
	if (take_over)
		report("rename", notes->path);
	(void) unlink(notes->path);
	return 0;
}
