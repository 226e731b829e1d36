/*
 * heal/patient.h
 *	  A value that is being healed: its sections, from this server and from the source.  What
 *	  fetch.c, sections.c and unproven.c share.
 */
#ifndef BLOB_HEAL_PATIENT_H
#define BLOB_HEAL_PATIENT_H

#include "blob/used_pages.h"
#include "core/descriptor.h"
#include "extents/stored.h"
#include "heal/heal_internal.h"

/* A part of an extent, of at most BLOB_HEAL_SECTION_BYTES. */
typedef struct BlobHealSection
{
	int			extent_no;
	uint64		offset;			/* bytes in the extent */
	uint32		bytes;
	bool		is_wanted;		/* it differs, or cannot be read here */
	bool		is_staged;
	uint64		staged_at;		/* offset in the temporary file */
} BlobHealSection;

/* A value that is being healed. */
typedef struct BlobPatient
{
	BlobHeal   *heal;
	const BlobDescriptor *descriptor;
	BlobStored	stored;			/* all extents, with their generations */
	bool	   *is_lacking;		/* of each extent */
	uint64	   *mark_pages;		/* that values of each extent had before the source was asked */
	bool	   *is_marked_since;	/* whether that mark may have been raised after the fork */
	BlobHealSection *sections;
	int			section_count;
	int			section_room;
	int			compared_count; /* sections that the source was asked for */
	BlobUsedPages used;			/* of a tree, as far as its directory is known; of a compressed
								 * value when it is proven */
	BlobUsedPages proven;		/* if it has gaps: whole pages that were written, and are right */
	XLogRecPtr	replayed_to;	/* for pages that no digest verifies; or 0 */
	uint64		staged_bytes;
	char	   *refusal;		/* the first one of the source, or NULL */
} BlobPatient;

/* Cut all extents of a value that is no tree into sections. */
extern void blob_patient_add_extents(BlobPatient *patient);

/*
 * Add sections of a tree: the pages that have these bytes, but those that are in sections already.
 * ERROR XX001 if its slots do not have them.
 */
extern void blob_patient_add_used(BlobPatient *patient, const BlobUsedPages *used);

/*
 * Compare the sections that were added since the last call with the source's, and fetch those that
 * differ.
 */
extern void blob_patient_exchange(BlobPatient *patient);

/*
 * A BlobMappingFetch, whose context is the patient: stored bytes, fetched ones in place of those
 * that are here.  They lie in sections that were exchanged.
 */
extern void blob_patient_fetch(void *context, uint64 stored_offset, uint64 length_bytes,
							   bool is_node, char *target);

/*
 * Read stored bytes as the file has them, lacking or not; false if it cannot be read.  Whether all
 * pages had their checksums is in patient->stored.
 */
extern bool blob_patient_try_read(BlobPatient *patient, uint64 stored_offset, uint64 length,
								  char *target);

/* A fetched section, from the temporary file to heal->section. */
extern void blob_patient_load(BlobPatient *patient, const BlobHealSection *section);

/* Ask for bytes of an extent; since, replayed_to: as in BlobSourceRequest. */
extern void blob_heal_request(BlobHeal *heal, const BlobExtent *extent, uint64 start,
							  uint32 bytes, XLogRecPtr since, XLogRecPtr replayed_to,
							  bool wants_digest);

/*
 * The answer to the oldest request: bytes, and their number.  -1 if the source refuses, and the
 * reason.
 */
extern int	blob_heal_take_answer(BlobHeal *heal, uint32 max_bytes, const char **data,
								  char **refusal);

/* ---- unproven.c ---- */

/* How a page compares with the checksum that the map has of it. */
typedef enum BlobPatientSum
{
	BLOB_PATIENT_SUM_MATCHES,
	BLOB_PATIENT_SUM_DIFFERS,
	BLOB_PATIENT_SUM_UNKNOWN,	/* or the extent has none */
	BLOB_PATIENT_SUM_DAMAGED	/* the entry, or the extent was freed */
} BlobPatientSum;

extern BlobPatientSum blob_patient_compare_sum(const BlobExtent *extent, uint64 page_no,
											   const char *data);

/*
 * Fetch and write pages of an extent, [start, end) in bytes, below the mark, that the value does
 * not fill: from a source that must have them as this server had them, with the value's proven
 * bytes over them.  Where its block of the map has not changed since the fork, its mark is that of
 * the fork, and this server has written the pages behind it.  Returns the problem, or NULL.
 */
extern char *blob_unproven_fetch(BlobPatient *patient, int extent_no, uint64 start, uint64 end);

/* Problems: an extent is not the value's any more; a page has other bytes that are damaged. */
extern char *blob_unproven_report_gone(const BlobExtent *extent);
extern char *blob_unproven_report(const BlobExtent *extent, uint64 page_no);

#endif							/* BLOB_HEAL_PATIENT_H */
