/*
 * gc/temporary.c
 *	  Temporary tables of other sessions: the round asks their owners, see gc/temporary.h.
 *
 * Each backend has a slot in shared memory: a round writes questions there, the backend its answers
 * (owner.c).  The extents that it tells are bits in dynamic shared memory of the round, which asks
 * one owner after the other.
 */
#include "postgres.h"

#include "core/clock.h"
#include "core/compat.h"
#include "gc/blank.h"
#include "gc/holders.h"
#include "gc/since.h"
#include "gc/temporary.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "store/map.h"
#include "utils/memutils.h"

/* How long an owner has before it gets the signal once more. */
#define QUESTION_INTERVAL_MS 1000

/* The side of a round. */
typedef struct BlobGcTold
{
	dsm_segment *segment;
	BlobGcAnswerMemory *memory;
	uint32	   *questions;		/* by the number of the process; 0: not asked since the last L */
} BlobGcTold;

static BlobGcOwnerSlot *slots;

/* ---- shared memory ---- */

static Size
slots_bytes(void)
{
	return mul_size(blob_gc_holder_slot_count(), sizeof(BlobGcOwnerSlot));
}

void
blob_gc_temporary_shmem_request(void)
{
	RequestAddinShmemSpace(slots_bytes());
}

void
blob_gc_temporary_shmem_init(void)
{
	bool		found;

	slots = ShmemInitStruct("blobext temporary tables", slots_bytes(), &found);
	if (found)
		return;
	for (int i = 0; i < blob_gc_holder_slot_count(); i++)
	{
		pg_atomic_init_u32(&slots[i].memory, DSM_HANDLE_INVALID);
		pg_atomic_init_u32(&slots[i].question, 0);
		pg_atomic_init_u64(&slots[i].answer, 0);
	}
}

BlobGcOwnerSlot *
blob_gc_own_slot(void)
{
	return &slots[blob_gc_holder_own_slot()];
}

/* ---- the round ---- */

/*
 * However the round ends, by an error or with its process, too: an owner that still marks for it
 * finds that it has no question, and stops.  A callback of on_dsm_detach().
 */
static void
take_back_question(dsm_segment *segment, Datum argument)
{
	((BlobGcAnswerMemory *) dsm_segment_address(segment))->question = 0;
}

/* Pages that are reserved later are allocated after the cutoff. */
static BlobGcTold *
make_told(BlobGcRound *round)
{
	BlobGcTold *told = MemoryContextAllocZero(round->context, sizeof(BlobGcTold));
	BlobMapMeta meta;
	Size		bytes;

	blob_map_read_meta(round->store.map, &meta);
	bytes = add_size(offsetof(BlobGcAnswerMemory, bits), meta.reserved_pages / 8 + 1);
	told->segment = dsm_create(bytes, 0);
	on_dsm_detach(told->segment, take_back_question, (Datum) 0);
	told->memory = dsm_segment_address(told->segment);
	memset(told->memory, 0, bytes);
	told->memory->magic = BLOB_GC_ANSWER_MAGIC;
	told->memory->dry_run = round->options.dry_run;
	told->memory->end_page = meta.reserved_pages;
	told->questions = MemoryContextAlloc(round->context,
										 sizeof(uint32) * blob_gc_holder_slot_count());
	return told;
}

static bool
has_ended(const BlobGcTemporary *temporary)
{
	Oid			database;
	int			pid;

	return !blob_gc_holder_backend(temporary->owner, &database, &pid) || pid != temporary->pid;
}

/* 0: it has not answered the question of this round, or was not asked. */
static BlobGcAnswer
answer_of(const BlobGcTold *told, const BlobGcTemporary *temporary)
{
	uint64		answer = pg_atomic_read_u64(&slots[temporary->owner].answer);
	uint32		question = told->questions[temporary->owner];

	return question != 0 && answer >> 32 == question ? (BlobGcAnswer) (uint32) answer : 0;
}

/*
 * One question at a time: this owner alone writes to the memory.  Another process may have its slot
 * by now, and find the question there.
 */
static void
send_question(BlobGcTold *told, const BlobGcTemporary *temporary)
{
	BlobGcOwnerSlot *slot = &slots[temporary->owner];
	uint32		question = blob_gc_blank_new_question();

	told->memory->pid = temporary->pid;
	told->memory->question = told->questions[temporary->owner] = question;
	pg_atomic_write_u32(&slot->memory, dsm_segment_handle(told->segment));
	pg_memory_barrier();
	pg_atomic_write_u32(&slot->question, question);
	pg_memory_barrier();
}

/* Not again and again: a client's process that is busy would look for messages all the time. */
static void
wake_up(const BlobGcTemporary *temporary, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();

	if (blob_clock_is_before(now, *next, QUESTION_INTERVAL_MS))
		return;
	*next = TimestampTzPlusMilliseconds(now, QUESTION_INTERVAL_MS);
	SendProcSignal(temporary->pid, PROCSIG_CATCHUP_INTERRUPT,
				   blob_backend_signal_slot(temporary->owner));
}

/* False, with a reason noted: the owner does not answer. */
static bool
wait_for_answer(BlobGcRound *round, const BlobGcTemporary *temporary, BlobGcWait *wait)
{
	TimestampTz next = 0;
	char	   *since = NULL;

	for (;;)
	{
		wake_up(temporary, &next);
		if (answer_of(round->told, temporary) != 0 || has_ended(temporary))
			break;
		if (since == NULL)
			since = blob_gc_since(temporary->pid, false);
		if (!blob_gc_wait_more(round, wait,
							   "process %d is too busy to tell what its temporary table %s holds%s",
							   temporary->pid, temporary->name, since))
			return false;
	}
	blob_gc_status_waiting(NULL);
	pg_memory_barrier();		/* the bits come before the answer */
	return true;
}

/* False, with a reason noted: what this owner's tables refer to is not known. */
static bool
ask_owner(BlobGcRound *round, const BlobGcTemporary *temporary, BlobGcWait *wait)
{
	int			pid = temporary->pid;

	if (answer_of(round->told, temporary) == BLOB_GC_TOLD || has_ended(temporary))
		return true;
	send_question(round->told, temporary);
	if (!wait_for_answer(round, temporary, wait))
		return false;
	if (has_ended(temporary))
		return true;			/* an answer may be that of the next process in its slot */
	switch (answer_of(round->told, temporary))
	{
		case BLOB_GC_LARGE:
			return blob_gc_skip(round, "process %d has more than %d MB of temporary tables that "
								"can hold values%s", pid,
								(int) (BLOB_GC_ANSWER_PAGES / (1024 * 1024 / BLCKSZ)),
								blob_gc_since(pid, true));
		case BLOB_GC_UNKNOWN:
			return blob_gc_skip(round, "process %d could not read its temporary tables, for a "
								"reason that is in the log of the server%s", pid,
								blob_gc_since(pid, true));
		case BLOB_GC_TOLD:
			break;
	}
	return true;
}

bool
blob_gc_ask_owners(BlobGcRound *round)
{
	const BlobGcRoots *roots = round->roots;
	BlobGcWait	wait;			/* for all of them: the round keeps its snapshot meanwhile */

	blob_gc_wait_begin(&wait);
	if (roots->temporary_count > 0 && round->told == NULL)
		round->told = make_told(round);
	if (round->told != NULL)
		memset(round->told->questions, 0, sizeof(uint32) * blob_gc_holder_slot_count());
	for (int i = 0; i < roots->temporary_count; i++)
	{
		if (!ask_owner(round, &roots->temporary[i], &wait))
			return false;
	}
	return true;
}

bool
blob_gc_owners_have_answered(const BlobGcRound *round, const BlobGcRoots *roots)
{
	for (int i = 0; i < roots->temporary_count; i++)
	{
		if (round->told == NULL || answer_of(round->told, &roots->temporary[i]) != BLOB_GC_TOLD)
			return false;
	}
	return true;
}

void
blob_gc_told_mark(BlobGcRound *round)
{
	BlobGcMarks *marks = &round->marks;
	const BlobGcAnswerMemory *memory;

	if (round->told == NULL)
		return;
	memory = round->told->memory;
	Assert(marks->first_page % 8 == 0);
	for (BlobPageNo page = marks->first_page; page < Min(marks->end_page, memory->end_page);
		 page += 8)
		marks->bits[(page - marks->first_page) / 8] |= memory->bits[page / 8];
	blob_gc_referring_add_all(&round->result->referring, &memory->referring);
}

/* An owner that is late does not find the memory, or finds that it has no question. */
void
blob_gc_told_end(BlobGcRound *round)
{
	if (round->told == NULL)
		return;
	dsm_detach(round->told->segment);
	round->told = NULL;
}

#ifdef USE_ASSERT_CHECKING
void
blob_gc_temporary_assert_answered(const BlobGcRound *round)
{
	for (int i = 0; i < round->roots->temporary_count; i++)
	{
		const BlobGcTemporary *temporary = &round->roots->temporary[i];
		uint32		question = round->told->questions[temporary->owner];

		if (has_ended(temporary))
			continue;
		Assert((int32) (question - round->last_moment) > 0);
		Assert(answer_of(round->told, temporary) == BLOB_GC_TOLD);
	}
}
#endif
