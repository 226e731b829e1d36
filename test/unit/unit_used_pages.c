/*
 * unit_used_pages.c
 *	  Which pages of the store a value uses, for tests that damage them.
 */
#include "unit.h"

#include "blob/frames.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "catalog/pg_type.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(unit_used_pages);

typedef struct Walk
{
	const BlobDescriptor *descriptor;
	BlobMappingSource source;
	bool		wants_nodes;	/* only nodes of a tree; else all but these */
	Datum	   *pages;
	int			count;
	int			room;
} Walk;

/* Add the pages of the store that have some of these stored bytes. */
static void
add_stored(Walk *walk, uint64 from, uint64 to)
{
	uint64		start = 0;

	for (int i = 0; i < blob_descriptor_extent_count(walk->descriptor); i++)
	{
		BlobStoredExtent stored;
		uint64		end;

		blob_mapping_extent(walk->descriptor, i, start, &stored);
		start = stored.start + stored.bytes;
		end = Min(to, start);
		for (uint64 at = Max(from, stored.start) / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE; at < end;
			 at += BLOB_PAGE_SIZE)
		{
			if (walk->count == walk->room)
			{
				walk->room *= 2;
				walk->pages = repalloc_huge(walk->pages, walk->room * sizeof(Datum));
			}
			walk->pages[walk->count++] = Int64GetDatum((int64)
													   (stored.extent.first_page +
														(at - stored.start) / BLOB_PAGE_SIZE));
		}
	}
}

static void
visit_node(Walk *walk, const BlobNodeEntry *entry, int level)
{
	uint8	   *page = palloc(BLOB_PAGE_SIZE);
	BlobNode	node;

	if (walk->wants_nodes)
		add_stored(walk, entry->stored_offset, entry->stored_offset + BLOB_PAGE_SIZE);
	blob_frames_read_node(walk->descriptor, &walk->source, entry, level, page, &node);
	for (int i = 0; i < node.entry_count; i++)
	{
		BlobNodeEntry below;
		BlobFrame	piece;

		if (level > 1)
		{
			blob_frames_node_entry(walk->descriptor, page, i, &below);
			visit_node(walk, &below, level - 1);
			continue;
		}
		blob_frames_node_frame(walk->descriptor, page, i, &piece);
		if (!walk->wants_nodes)
			add_stored(walk, piece.stored_offset, piece.stored_offset + piece.stored_bytes);
	}
	pfree(page);
}

/* A function of the extension: in this library the readers are those of unit_compare.c. */
static void *
extension_function(const char *name)
{
	return load_external_function("$libdir/blobext", name, true, NULL);
}

/*
 * unit_used_pages(b blobstate, nodes bool): the pages that have nodes of a tree; or those that have
 * other bytes of the value, of which some can be named twice.
 */
Datum
unit_used_pages(PG_FUNCTION_ARGS)
{
	Walk		walk = {.wants_nodes = PG_GETARG_BOOL(1), .room = 64};
	BlobValue	value;
	BlobReader	reader;
	BlobNodeEntry root;
	void		(*begin) (BlobReader *, const BlobValue *, int) =
		extension_function("blob_reader_begin");
	BlobMappingSource (*source) (BlobReader *) = extension_function("blob_reader_source");
	void		(*end) (BlobReader *) = extension_function("blob_reader_end");

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0)), &value);
	walk.pages = palloc(walk.room * sizeof(Datum));
	if (!value.is_inline && !value.descriptor.is_tree && !walk.wants_nodes)
	{
		walk.descriptor = &value.descriptor;
		add_stored(&walk, 0, blob_mapping_stored_bytes(&value.descriptor));
	}
	else if (!value.is_inline && value.descriptor.is_tree)
	{
		begin(&reader, &value, 0);
		walk.descriptor = &value.descriptor;
		walk.source = source(&reader);
		root = blob_frames_root(walk.descriptor);
		visit_node(&walk, &root, walk.descriptor->compression.level);
		end(&reader);
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(walk.pages, walk.count, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
