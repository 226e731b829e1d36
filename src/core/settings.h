/*
 * core/settings.h
 *	  The extension's settings (GUC variables).
 */
#ifndef BLOB_SETTINGS_H
#define BLOB_SETTINGS_H

#include "postgres.h"

#include "core/frame.h"

typedef enum BlobWalContentMode
{
	BLOB_WAL_CONTENT_AUTO,
	BLOB_WAL_CONTENT_ON,
	BLOB_WAL_CONTENT_OFF
} BlobWalContentMode;

typedef enum BlobIoMethod
{
	BLOB_IO_METHOD_AUTO,
	BLOB_IO_METHOD_URING,
	BLOB_IO_METHOD_AIO,
	BLOB_IO_METHOD_SYNC
} BlobIoMethod;

typedef enum BlobClientType
{
	BLOB_CLIENT_TYPE_BYTEA,
	BLOB_CLIENT_TYPE_BLOBSTATE
} BlobClientType;

extern int	blob_inline_limit_bytes;
extern int	blob_rewrite_limit_kb;
extern int	blob_default_compression;	/* BlobMethod */
extern int	blob_wal_content;	/* BlobWalContentMode */
extern int	blob_io_method;		/* BlobIoMethod */
extern bool blob_direct_io;
extern bool blob_page_checksums;
extern int	blob_scrub_rate_mb;	/* per second; 0: off */
extern bool blob_background_sync;
extern bool blob_tail_extents;
extern int	blob_digest_thread; /* 0: off */
extern bool blob_verify_reads;
extern bool blob_stream_results;
extern int	blob_client_type;	/* BlobClientType */
extern int	blob_buffer_kb;
extern int	blob_max_databases;
extern int	blob_min_free_disk_mb;	/* 0: no limit */
extern int	blob_max_store_mb;	/* -1: no limit */
extern int	blob_keep_free_mb;	/* -1: all */
extern int	blob_gc_wait_timeout_ms;
extern double blob_gc_cost_delay_ms;
extern int	blob_gc_cost_limit_pages;
extern bool blob_autogc;
extern bool blob_autogc_vacuum;
extern int	blob_autogc_naptime_s;
extern int	blob_autogc_interval_s;
extern int	blob_autogc_threshold_kb;
extern double blob_autogc_scale_factor;
extern int	blob_autogc_max_workers;
extern double blob_autogc_cost_delay_ms;	/* -1: blob_gc_cost_delay_ms */
extern int	blob_autogc_cost_limit_pages;	/* -1: blob_gc_cost_limit_pages */
extern int	blob_log_autogc_min_duration_ms;	/* -1: never */
extern char *blob_heal_conninfo;	/* empty: damaged pages are not repaired */

/* Largest blob_autogc_max_workers. */
#define BLOB_AUTOGC_WORKER_LIMIT 64
extern int	blob_gc_work_mem_kb;	/* -1: maintenance_work_mem */

extern void blob_settings_define(void);

/* The method of compression of new values whose column is not known, or says none. */
static inline BlobMethod
blob_default_method(void)
{
	return (BlobMethod) blob_default_compression;
}

/*
 * Set one of the server's settings for this process, overriding the configuration.  If this
 * release of PostgreSQL does not have the setting, do nothing.
 */
extern void blob_settings_fix(const char *name, const char *value);

/* Does content go into the WAL?  Fixed for the life of the postmaster. */
extern bool blob_wal_logs_content(void);

/* Warn in the server's log if the settings leave content unprotected; called at server start. */
extern void blob_settings_warn(void);

#endif							/* BLOB_SETTINGS_H */
