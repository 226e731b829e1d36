/*
 * gc/slots.c
 *	  Logical replication slots: steps 7 and 10 of README.md.
 *
 * A slot of this database that has not confirmed the position at which all transactions of step 5
 * had ended may yet decode tuples that are gone.  The position counts with which the slot would
 * begin after a crash: that in its state file.  PostgreSQL does not write confirmed_flush there
 * unless something else changes, so we ask for it.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "core/compat.h"
#include "gc/gc_internal.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/fd.h"
#include "storage/standby.h"

/* The head of a slot's file, before the slot's data (slot.c keeps the structure to itself). */
typedef struct SlotFileHead
{
	uint32		magic;
	uint32		checksum;
	uint32		version;
	uint32		length;
} SlotFileHead;

#define SLOT_FILE_MAGIC 0x1051CA1

/* A copy of the slot's data if it is a logical slot of this database that can be used. */
static bool
copy_slot(int slot_no, ReplicationSlotPersistentData *data)
{
	ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[slot_no];
	bool		is_ours = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	if (slot->in_use && SlotIsLogical(slot))
	{
		SpinLockAcquire(&slot->mutex);
		*data = slot->data;
		SpinLockRelease(&slot->mutex);
		is_ours = data->database == MyDatabaseId && !blob_slot_is_invalidated(data);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return is_ours;
}

static bool
is_being_created(const ReplicationSlotPersistentData *slot)
{
	return slot->persistency == RS_EPHEMERAL || slot->confirmed_flush == InvalidXLogRecPtr;
}

/* False, with a reason noted, if a slot is being created; counts the others. */
static bool
check_slots(BlobGcRound *round, int *count)
{
	*count = 0;
	for (int i = 0; i < blob_slot_count(); i++)
	{
		ReplicationSlotPersistentData slot;

		if (!copy_slot(i, &slot))
			continue;
		if (is_being_created(&slot))
			return blob_gc_skip_now(round, "logical replication slot \"%s\" is being created",
									NameStr(slot.name));
		(*count)++;
	}
	return true;
}

bool
blob_gc_no_slot_begins(BlobGcRound *round)
{
	int			count;

	return check_slots(round, &count);
}

bool
blob_gc_note_slots(BlobGcRound *round)
{
	int			count;

	round->slot_position = InvalidXLogRecPtr;
	if (!check_slots(round, &count))
		return false;
	if (count > 0)
	{
		/* A record that makes slots advance, too. */
		round->slot_position = LogStandbySnapshot();
		XLogFlush(round->slot_position);
	}
	return true;
}

static void
sync_file(int fd, const char *path)
{
	/* A directory cannot be synced on every file system. */
	if (pg_fsync(fd) != 0 && errno != EBADF && errno != EINVAL)
		ereport(data_sync_elevel(ERROR),
				(errcode_for_file_access(),
				 errmsg("could not fsync file \"%s\": %m", path)));
}

/*
 * The position in the slot's file, made durable; an invalid one if the file cannot be read.  The
 * file is replaced by renaming: the directory is synced after the look, so that the file stays.
 * The slot may be dropped meanwhile.
 */
static XLogRecPtr
durable_position(const char *name)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	struct
	{
		SlotFileHead head;
		ReplicationSlotPersistentData data;
	}			file;
	ssize_t		length;
	int			fd;

	snprintf(directory, sizeof(directory), "pg_replslot/%s", name);
	snprintf(path, sizeof(path), "pg_replslot/%s/state", name);
	fd = OpenTransientFile(path, O_RDWR | PG_BINARY);
	if (fd < 0)
		return InvalidXLogRecPtr;
	sync_file(fd, path);
	length = read(fd, &file, sizeof(file));
	CloseTransientFile(fd);
	if (length != (ssize_t) sizeof(file) || file.head.magic != SLOT_FILE_MAGIC ||
		file.head.length != sizeof(file.data))
		return InvalidXLogRecPtr;

	fd = OpenTransientFile(directory, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return InvalidXLogRecPtr;
	sync_file(fd, directory);
	CloseTransientFile(fd);
	return file.data.confirmed_flush;
}

/* Have all slots written as they are. */
static void
save_slots(void)
{
	for (int i = 0; i < blob_slot_count(); i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
		if (slot->in_use && SlotIsLogical(slot) && slot->data.database == MyDatabaseId)
		{
			SpinLockAcquire(&slot->mutex);
			slot->just_dirtied = true;
			slot->dirty = true;
			SpinLockRelease(&slot->mutex);
		}
		LWLockRelease(ReplicationSlotControlLock);
	}
	blob_save_dirty_slots();
}

static bool
has_confirmed(const ReplicationSlotPersistentData *slot, XLogRecPtr position)
{
	if (slot->confirmed_flush < position)
		return false;
	if (slot->persistency != RS_PERSISTENT)
		return true;			/* does not survive a crash */
	if (durable_position(NameStr(slot->name)) >= position)
		return true;
	save_slots();
	return durable_position(NameStr(slot->name)) >= position;
}

/*
 * Whether no slot is behind, at one moment: none can appear while we look, so none can be copied
 * from one that is behind and be missed.
 */
static bool
all_are_ahead(BlobGcRound *round)
{
	bool		ahead = true;

	LWLockAcquire(ReplicationSlotAllocationLock, LW_SHARED);
	for (int i = 0; i < blob_slot_count() && ahead; i++)
	{
		ReplicationSlotPersistentData slot;

		if (copy_slot(i, &slot))
			ahead = !is_being_created(&slot) && slot.confirmed_flush >= round->slot_position;
	}
	LWLockRelease(ReplicationSlotAllocationLock);
	return ahead;
}

bool
blob_gc_wait_for_slots(BlobGcRound *round)
{
	BlobGcWait	wait;

	if (round->slot_position == InvalidXLogRecPtr)
		return true;
	blob_gc_wait_begin(&wait);
	do
	{
		for (int i = 0; i < blob_slot_count(); i++)
		{
			ReplicationSlotPersistentData slot;

			/* One that is being created reads from a later position, unless it is a copy. */
			while (copy_slot(i, &slot) &&
				   (is_being_created(&slot) || !has_confirmed(&slot, round->slot_position)))
			{
				if (!blob_gc_wait_more(round, &wait,
									   "logical replication slot \"%s\" has not confirmed %X/%X",
									   NameStr(slot.name),
									   LSN_FORMAT_ARGS(round->slot_position)))
					return false;
			}
		}
	} while (!all_are_ahead(round));
	return true;
}
