/*
 * gc/notes.c
 *	  Notes of pages, see gc/notes.h: which pages have not changed, and what these refer to.
 *
 * A table is passed section by section.  At the beginning of one the page of the visibility map is
 * looked at (c of README.md for the section of the last round, s for the new one); then each block
 * is either carried over, with its references, or read.
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "core/compat.h"
#include "gc/gc_internal.h"
#include "gc/logged.h"
#include "gc/notes.h"
#include "gc/notes_file.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* Blocks of a table that a page of the visibility map stands for, as visibilitymap.c has it. */
#define MAP_PAGE_BLOCKS \
	((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) * (BITS_PER_BYTE / BITS_PER_HEAPBLOCK))

/* A section in memory. */
typedef struct Section
{
	BlobGcSection fixed;
	BlobPageNo *references;		/* BLOB_GC_SECTION_REFERENCES */
} Section;

typedef struct BlobGcNotes
{
	BlobGcNotesFile in;
	BlobGcNotesFile out;
	uint64		row_types;		/* hash of the columns of all that can be a row type */
	Section		last;			/* read from the file, and not passed yet */
	bool		has_last;
	Section		next;			/* to be written */
	bool		has_next;
	bool		can_trust_map;
	bool		is_table;		/* one that gets notes is being marked */
	bool		is_valid;		/* the last section is of this place, and says what is there */
	bool		is_by_wal;		/* but for pages that the WAL names */
	BlobGcLogged *logged;		/* or NULL */
	uint32		last_at;		/* where the references of the block that comes next begin */
	bool		is_visible[BLOB_GC_SECTION_BLOCKS]; /* in the map, when the section began */

	/* The page that is being read. */
	bool		is_noting;
	uint32		page_at;		/* where its references begin */
	int			page;			/* its number in the section */
} BlobGcNotes;

/* ---- begin and end of marking ---- */

/*
 * Row types may change without the tables that use them.  Each table and view is one, too.  One
 * that comes to the list, or leaves it, changes the hash.
 */
static uint64
hash_row_types(const BlobGcRoots *roots)
{
	uint64		hash = 0;

	for (int i = 0; i < roots->count; i++)
	{
		const BlobGcRoot *root = &roots->items[i];

		if (root->kind != RELKIND_INDEX)
			hash = hash_combine64(hash_combine64(hash, root->relid), root->columns);
	}
	for (int i = 0; i < roots->temporary_count; i++)
	{
		const BlobGcTemporary *temporary = &roots->temporary[i];

		if (!temporary->is_index)
			hash = hash_combine64(hash_combine64(hash, temporary->relid), temporary->columns);
	}
	return hash;
}

/*
 * Without checksums of pages a wrong bit in the visibility map would cost content.  A session of a
 * superuser may let pages pass that do not have theirs.
 */
static bool
can_trust_map(void)
{
#if BLOB_MAP_TELLS_CHANGES
	return DataChecksumsEnabled() &&
		strcmp(GetConfigOption("ignore_checksum_failure", false, false), "off") == 0;
#else
	return false;
#endif
}

void
blob_gc_notes_use_none(BlobGcRound *round)
{
	round->notes = MemoryContextAllocZero(round->context, sizeof(BlobGcNotes));
}

static void
make_room(BlobGcRound *round, Section *section)
{
	section->references = MemoryContextAlloc(round->context,
											 sizeof(BlobPageNo) * BLOB_GC_SECTION_REFERENCES);
}

void
blob_gc_notes_open(BlobGcRound *round, bool write)
{
	BlobGcNotes *notes = MemoryContextAllocZero(round->context, sizeof(BlobGcNotes));

	make_room(round, &notes->last);
	make_room(round, &notes->next);
	notes->row_types = hash_row_types(round->roots);
	notes->can_trust_map = can_trust_map();
	if (notes->can_trust_map)
	{
		MemoryContext old_context = MemoryContextSwitchTo(round->context);

		notes->logged = blob_gc_logged_open(round->roots);
		MemoryContextSwitchTo(old_context);
	}
	blob_gc_notes_file_open(&notes->in, &round->store.id, blob_gc_status_notes());
	if (write)
		blob_gc_notes_file_make(&notes->out, &round->store.id);
	notes->has_last = blob_gc_notes_file_read(&notes->in, &notes->last.fixed,
											  notes->last.references);
	round->notes = notes;
}

void
blob_gc_notes_close(BlobGcRound *round, bool is_complete)
{
	BlobGcNotes *notes = round->notes;
	uint64		token;

	blob_gc_notes_file_close(&notes->in);
	token = blob_gc_notes_file_end(&notes->out, &round->store.id, is_complete);
	if (token != 0)
		blob_gc_status_set_notes(token);
	blob_gc_logged_close(notes->logged);
	pfree(notes->last.references);
	pfree(notes->next.references);
	pfree(notes);
	round->notes = NULL;
}

/* ---- sections ---- */

/*
 * Look at the page of the visibility map, under its lock: its LSN, and the bits of the section.  No
 * page, or one that no record of WAL has set a bit on: an invalid LSN.
 */
static XLogRecPtr
look_at_map(BlobGcRound *round, BlockNumber first_block)
{
	BlobGcNotes *notes = round->notes;
	Buffer		map = InvalidBuffer;
	XLogRecPtr	position;

	(void) visibilitymap_get_status(round->relation, first_block, &map);
	if (!BufferIsValid(map))
		return InvalidXLogRecPtr;
	LockBuffer(map, BUFFER_LOCK_SHARE);
	position = BufferGetLSNAtomic(map);
	for (BlockNumber i = 0; i < BLOB_GC_SECTION_BLOCKS; i++)
	{
		bool		is_here = (first_block + i) / MAP_PAGE_BLOCKS == first_block / MAP_PAGE_BLOCKS;

		notes->is_visible[i] = is_here &&
			VM_ALL_VISIBLE(round->relation, first_block + i, &map);
	}
	UnlockReleaseBuffer(map);
	return position;
}

static int
compare_places(const BlobGcSection *left, const BlobGcSection *right)
{
	if (left->relid != right->relid)
		return left->relid < right->relid ? -1 : 1;
	return left->first_block < right->first_block ? -1 : left->first_block > right->first_block;
}

/* Is the section of the last round of this place, and this file, with the same columns? */
static bool
is_same(const BlobGcNotes *notes)
{
	const BlobGcSection *last = &notes->last.fixed;
	const BlobGcSection *next = &notes->next.fixed;

	return notes->has_last && compare_places(last, next) == 0 &&
		last->file == next->file && last->tablespace == next->tablespace &&
		last->columns == next->columns && !XLogRecPtrIsInvalid(next->position);
}

/* Does the section of the last round tell about this one, and about which of its pages? */
static void
compare_sections(BlobGcNotes *notes)
{
	const BlobGcSection *last = &notes->last.fixed;
	const BlobGcSection *next = &notes->next.fixed;

	notes->is_valid = is_same(notes) && last->position == next->position;
	notes->is_by_wal = !notes->is_valid && is_same(notes) &&
		blob_gc_logged_tell(notes->logged, last->since, next->position);
	notes->is_valid |= notes->is_by_wal;
}

static void
finish_section(BlobGcNotes *notes)
{
	if (notes->has_next)
		blob_gc_notes_file_write(&notes->out, &notes->next.fixed, notes->next.references);
	notes->has_next = false;
}

/* Other row types matter only where a column is of one, or may contain one. */
static bool
has_row_types(const BlobGcRound *round)
{
	for (int i = 0; i < round->column_count; i++)
	{
		if (round->columns[i].type != round->blob_type)
			return true;
	}
	return false;
}

/* The section of a table that begins with this block. */
static void
begin_section(BlobGcRound *round, BlockNumber first_block)
{
	BlobGcNotes *notes = round->notes;
	BlobGcSection *next = &notes->next.fixed;

	finish_section(notes);
	memset(next, 0, sizeof(*next));
	next->relid = round->root->relid;
	next->file = round->root->file;
	next->tablespace = round->root->tablespace;
	next->columns = round->root->columns;
	if (has_row_types(round))
		next->columns = hash_combine64(next->columns, notes->row_types);
	next->first_block = first_block;
	next->since = GetXLogInsertRecPtr();
	next->position = look_at_map(round, first_block);
	notes->has_next = !XLogRecPtrIsInvalid(next->position);
	while (notes->has_last && compare_places(&notes->last.fixed, next) < 0)
		notes->has_last = blob_gc_notes_file_read(&notes->in, &notes->last.fixed,
												  notes->last.references);
	compare_sections(notes);
	notes->last_at = 0;
}

/* ---- tables ---- */

void
blob_gc_notes_begin_table(BlobGcRound *round, bool may_have_notes)
{
	round->notes->is_table = round->notes->can_trust_map && may_have_notes &&
		RelationNeedsWAL(round->relation);
	if (round->notes->is_table && round->notes->logged != NULL)
		blob_gc_logged_begin_table(round->notes->logged, round->relation);
}

void
blob_gc_notes_end_table(BlobGcRound *round)
{
	finish_section(round->notes);
	round->notes->is_table = false;
}

/* The number of a block in its section. */
static int
number_of(BlockNumber block)
{
	return block % MAP_PAGE_BLOCKS % BLOB_GC_SECTION_BLOCKS;
}

/* References of pages that were read may have taken the room of those that have notes. */
static bool
has_room(const BlobGcNotes *notes, uint32 count)
{
	return notes->next.fixed.reference_count + count <= BLOB_GC_SECTION_REFERENCES;
}

/* A page that has not changed gets the same note again. */
static void
carry_over(BlobGcNotes *notes, int number, const BlobGcNote *note)
{
	BlobGcSection *next = &notes->next.fixed;

	memcpy(notes->next.references + next->reference_count, note->references,
		   sizeof(BlobPageNo) * note->count);
	next->reference_count += note->count;
	next->counts[number] = note->count + 1;
}

bool
blob_gc_notes_find(BlobGcRound *round, BlockNumber block, BlobGcNote *note)
{
	BlobGcNotes *notes = round->notes;
	int			number = number_of(block);

	if (!notes->is_table)
		return false;
	if (number == 0)
		begin_section(round, block);
	if (!notes->is_valid || notes->last.fixed.counts[number] == 0)
		return false;
	note->references = notes->last.references + notes->last_at;
	note->count = notes->last.fixed.counts[number] - 1;
	notes->last_at += note->count;
	if (!notes->is_visible[number] || !has_room(notes, note->count))
		return false;
	if (notes->is_by_wal && blob_gc_logged_names(notes->logged, block))
		return false;
	CHECK_FOR_INTERRUPTS();
	carry_over(notes, number, note);
	return true;
}

#ifdef USE_ASSERT_CHECKING

bool
blob_gc_notes_holds(BlobGcRound *round, BlockNumber block)
{
	Buffer		map = InvalidBuffer;
	bool		holds;

	(void) visibilitymap_get_status(round->relation, block, &map);
	if (!BufferIsValid(map))
		return false;
	LockBuffer(map, BUFFER_LOCK_SHARE);
	holds = VM_ALL_VISIBLE(round->relation, block, &map) &&
		BufferGetLSNAtomic(map) == round->notes->next.fixed.position;
	UnlockReleaseBuffer(map);
	return holds;
}

#endif							/* USE_ASSERT_CHECKING */

/* ---- pages that are read ---- */

void
blob_gc_notes_begin_page(BlobGcRound *round, BlockNumber block, bool is_all_visible)
{
	BlobGcNotes *notes = round->notes;

	notes->page = number_of(block);
	notes->is_noting = notes->has_next && notes->is_visible[notes->page] && is_all_visible;
	notes->page_at = notes->next.fixed.reference_count;
}

void
blob_gc_notes_drop_page(BlobGcNotes *notes)
{
	if (notes->is_noting)
		notes->next.fixed.reference_count = notes->page_at;
	notes->is_noting = false;
}

void
blob_gc_notes_add(BlobGcNotes *notes, BlobPageNo first_page)
{
	BlobGcSection *next = &notes->next.fixed;

	if (!notes->is_noting)
		return;
	if (!has_room(notes, 1))
		blob_gc_notes_drop_page(notes);
	else
		notes->next.references[next->reference_count++] = first_page;
}

void
blob_gc_notes_end_page(BlobGcRound *round)
{
	BlobGcNotes *notes = round->notes;
	BlobGcSection *next = &notes->next.fixed;

	if (notes->is_noting)
		next->counts[notes->page] = next->reference_count - notes->page_at + 1;
	notes->is_noting = false;
}
