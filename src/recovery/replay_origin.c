/*
 * recovery/replay_origin.c
 *	  Does this server replay another one's WAL?  And a warning to clients that copy this one.
 *
 * Crash recovery replays the WAL of this very server: the content that it wrote is in its files,
 * logged or not.  A standby, archive recovery, and a backup that is started without either replay
 * the WAL of another server.  PostgreSQL says so in InArchiveRecovery, but not of
 *
 * - a standby, or a recovery from the archive, whose signal file was taken away;
 * - a backup that recovers from the WAL in its own pg_wal, without a signal file, in its second
 *   attempt after the first was killed: then backup_label is gone.
 *
 * pg_control speaks of archive recovery when they start, and of crash recovery from then on.  So
 * the postmaster looks at it before recovery begins, and leaves a file behind, FLAG_PATH, until a
 * start finds that recovery has been completed.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "core/settings.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "recovery/replay_origin.h"
#include "replication/walsender.h"
#include "storage/fd.h"

#define FLAG_PATH BLOB_STORE_DIR "/recovering_copy"

static bool
exists(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0;
}

static DBState
read_state(void)
{
	bool		crc_ok;
	ControlFileData *control_file = get_controlfile(DataDir, &crc_ok);
	DBState		state = control_file->state;

	/* PostgreSQL has complained about a wrong checksum before. */
	pfree(control_file);
	return state;
}

/* Leave FLAG_PATH behind, durably.  FATAL if that fails, because replay would go wrong later. */
static void
set_flag(void)
{
	int			fd;

	if (exists(FLAG_PATH))
		return;
	if (MakePGDirectory(BLOB_STORE_DIR) != 0 && errno != EEXIST)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", BLOB_STORE_DIR)));
	fsync_fname(".", true);
	fd = BasicOpenFile(FLAG_PATH, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", FLAG_PATH)));
	close(fd);
	fsync_fname(FLAG_PATH, false);
	fsync_fname(BLOB_STORE_DIR, true);
}

void
blob_replay_origin_look(void)
{
	DBState		state = read_state();
	bool		has_signal = exists(STANDBY_SIGNAL_FILE) || exists(RECOVERY_SIGNAL_FILE);

	if (state == DB_IN_ARCHIVE_RECOVERY || state == DB_SHUTDOWNED_IN_RECOVERY)
	{
		if (!has_signal)
			set_flag();
	}
	else if (state != DB_IN_CRASH_RECOVERY && exists(FLAG_PATH))
	{
		/* If it came back after a power cut, our own content would be taken for unlogged. */
		if (durable_unlink(FLAG_PATH, LOG) != 0)
			ereport(FATAL,
					(errmsg("could not remove file \"%s\"", FLAG_PATH)));
	}
}

bool
blob_replay_is_foreign(void)
{
	static int	is_flagged = -1;

	if (is_flagged < 0)
		is_flagged = exists(FLAG_PATH);
	return InArchiveRecovery || is_flagged;
}

/* Clients of the walsender: standbys, pg_basebackup, pg_receivewal. */
void
blob_replay_origin_warn_walsender(int status)
{
	if (status == STATUS_OK && am_walsender && !am_db_walsender &&
		!blob_wal_logs_content())
		ereport(WARNING,
				(errmsg("a copy of this server is made without the content of blobext"),
				 errdetail("blobext.wal_content is \"off\": content over blobext.inline_limit that "
						   "is stored from now on cannot be read on standbys, nor in what is "
						   "restored from base backups and WAL."),
				 errhint("Set blobext.wal_content to \"auto\", restart this server, and make "
						 "standbys and backups anew.")));
}
