/*
 * tools/verify/blobext_verify.c
 *	  Compares the content of all extent stores of a data directory with the checksums in the extent
 *	  maps, while no server runs there.
 *
 * The directory is that of a server that was shut down, as for pg_checksums.  Everything that the
 * maps say is on disk then, and so is all content.  Nothing is written.
 *
 * Maps are found by what the first blocks of relations have, since catalogs cannot be read offline.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "common/logging.h"
#include "common/relpath.h"
#include "getopt_long.h"
#include "io/segment.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"	/* PostgreSQL 19 has the version of checksums there */
#include "verify.h"

/* Exit status: no damage, damage, no answer, pages that are damaged or that no value has. */
#define STATUS_SOUND 0
#define STATUS_DAMAGED 1
#define STATUS_FAILED 2
#define STATUS_DOUBTFUL 3

/* A map, and so a store, of this directory. */
typedef struct FoundMap
{
	char		path[MAXPGPATH];
	BlobMapMeta meta;
} FoundMap;

static const char *program;

static FoundMap *maps;
static int	map_count;
static int	map_room;

void
verify_fail(const char *format,...)
{
	va_list		arguments;

	fflush(stdout);
	va_start(arguments, format);
	pg_log_generic_v(PG_LOG_ERROR, PG_LOG_PRIMARY, format, arguments);
	va_end(arguments);
	exit(STATUS_FAILED);
}

static void
usage(void)
{
	printf("%s compares the content of blobext with its checksums, while the server is down.\n\n",
		   program);
	printf("Usage: %s [OPTION]... [DATADIR]\n\n", program);
	printf(" [-D, --pgdata=]DATADIR  data directory (default $PGDATA)\n"
		   "  -P, --progress         show progress\n"
		   "  -V, --version          output version information, then exit\n"
		   "  -?, --help             show this help, then exit\n\n"
		   "The server must have been shut down cleanly. A restored backup is started first, so\n"
		   "that it recovers, and then shut down. Nothing is written.\n\n"
		   "Exit status: 0 if nothing is damaged, 1 if something is, 2 if that could not be said,\n"
		   "3 if pages do not have their checksums: they are damaged, or no value has them.\n");
}

/* ---- the cluster ---- */

/* The directory must be that of a server of this release, which was shut down cleanly. */
static void
read_control_file(RelationLayout *layout)
{
	static const char path[] = "global/pg_control";
	ControlFileData *control;
	struct stat status;
	bool		has_crc;

	/* get_controlfile() would end the program as if damage had been found. */
	if (stat(path, &status) != 0)
		verify_fail("could not stat file \"%s\": %m", path);
	if (status.st_size != PG_CONTROL_FILE_SIZE || access(path, R_OK) != 0)
		verify_fail("could not read file \"%s\"", path);
	control = get_controlfile(".", &has_crc);
	if (!has_crc)
		verify_fail("pg_control has a wrong checksum");
	if (control->pg_control_version != PG_CONTROL_VERSION)
		verify_fail("the cluster is not one of PostgreSQL %s", PG_MAJORVERSION);
	if (control->blcksz != BLCKSZ)
		verify_fail("the cluster has blocks of %u bytes, this program is for %u", control->blcksz,
					BLCKSZ);
	if (control->state == DB_SHUTDOWNED_IN_RECOVERY)
		verify_fail("the server was shut down in recovery, which has to end before; "
					"of a standby, use blobext_check() while it runs");
	if (control->state != DB_SHUTDOWNED)
		verify_fail("the server runs, or was not shut down cleanly");
	layout->file_blocks = control->relseg_size;
	layout->has_checksums = control->data_checksum_version == PG_DATA_CHECKSUM_VERSION;
	pg_free(control);
}

static bool
is_number(const char *name)
{
	return name[0] != '\0' && name[strspn(name, "0123456789")] == '\0';
}

/* Call visit for each entry of a directory; false if there is no such directory. */
static bool
visit_directory(const char *path, void (*visit) (const char *path, const char *name))
{
	DIR		   *directory = opendir(path);
	struct dirent *entry;

	if (directory == NULL && errno == ENOENT)
		return false;
	if (directory == NULL)
		verify_fail("could not open directory \"%s\": %m", path);
	while (errno = 0, (entry = readdir(directory)) != NULL)
	{
		char		child[MAXPGPATH];

		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >= (int) sizeof(child))
			verify_fail("a path in directory \"%s\" is too long", path);
		visit(child, entry->d_name);
	}
	if (errno != 0)
		verify_fail("could not read directory \"%s\": %m", path);
	closedir(directory);
	return true;
}

/* ---- maps ---- */

static FoundMap *
find_map(Oid dboid, uint64 incarnation)
{
	for (int i = 0; i < map_count; i++)
	{
		if (maps[i].meta.dboid == dboid && maps[i].meta.incarnation == incarnation)
			return &maps[i];
	}
	return NULL;
}

/* The database in whose directory relations are being looked at. */
static Oid	database;

/*
 * A relation's first file: note it if it is the map of a store.  The copy that a database has of
 * its template's map is none, nor is one with which nothing was ever stored.
 */
static void
visit_relation(const char *path, const char *name)
{
	BlobMapMeta meta;
	FoundMap   *other;

	if (!is_number(name))
		return;
	if (!map_file_is_map(path, &meta))
	{
		if (errno != 0)
			verify_fail("could not read file \"%s\": %m", path);
		return;
	}
	if (meta.dboid != database || meta.reserved_pages == 0)
		return;
	other = find_map(meta.dboid, meta.incarnation);
	if (other != NULL)
		verify_fail("both \"%s\" and \"%s\" could be the extent map of database %u; "
					"pg_relation_filepath('blobext_map') says which it is, the other one was "
					"left by a crash", other->path, path, meta.dboid);
	if (map_count == map_room)
	{
		map_room = Max(16, 2 * map_room);
		maps = maps == NULL ? pg_malloc(sizeof(FoundMap) * map_room) :
			pg_realloc(maps, sizeof(FoundMap) * map_room);
	}
	strlcpy(maps[map_count].path, path, MAXPGPATH);
	maps[map_count++].meta = meta;
}

static void
visit_database(const char *path, const char *name)
{
	if (!is_number(name))
		return;
	database = (Oid) strtoul(name, NULL, 10);
	(void) visit_directory(path, visit_relation);
}

static void
visit_tablespace(const char *path, const char *name)
{
	char		directory[MAXPGPATH];

	if (!is_number(name))
		return;
	snprintf(directory, sizeof(directory), "%s/" TABLESPACE_VERSION_DIRECTORY, path);
	(void) visit_directory(directory, visit_database);
}

/* That this program's figures are those of the store. */
static void
require_build(const FoundMap *map)
{
	const BlobMapMeta *meta = &map->meta;

	if (meta->version < BLOB_MAP_VERSION_1 || meta->version > BLOB_MAP_VERSION_3 ||
		meta->page_bytes != BLOB_PAGE_SIZE || meta->segment_pages != BLOB_SEGMENT_PAGES ||
		meta->tiers_per_level != BLOB_TIERS_PER_LEVEL || meta->tier_levels != BLOB_TIER_LEVELS)
		verify_fail("the extent map \"%s\" was written by another build of blobext", map->path);
}

/* ---- directories ---- */

static int	strays;				/* directories of which no map is known */

/* Content that no map describes was not verified: a map may be lost. */
static void
visit_store(const char *path, const char *name)
{
	unsigned int dboid;
	unsigned long long incarnation;

	if (sscanf(name, "%u.%llx", &dboid, &incarnation) != 2 ||
		find_map(dboid, incarnation) != NULL)
		return;
	fflush(stdout);
	pg_log_error("directory \"%s\" was not verified: no database has its extent map", path);
	pg_log_error_hint("If its database or extension was dropped, start the server, which removes "
					  "the directory.");
	strays++;
}

/* ---- the result ---- */

static void
print_totals(const VerifyTotals *totals)
{
	printf("stores: " UINT64_FORMAT "\n", totals->stores);
	printf("pages compared with their checksums: " UINT64_FORMAT "\n", totals->verified_pages);
	printf("pages without checksums: " UINT64_FORMAT "\n", totals->plain_pages);
	if (totals->lacking_pages > 0)
		printf("pages of content that is missing here: " UINT64_FORMAT "\n",
			   totals->lacking_pages);
	if (totals->unknown_pages > 0)
		printf("pages whose checksums are damaged: " UINT64_FORMAT "\n", totals->unknown_pages);
	printf("damaged pages: " UINT64_FORMAT ", in extents: " UINT64_FORMAT "\n",
		   totals->damaged_pages, totals->damaged_extents);
	printf("pages in doubt: " UINT64_FORMAT ", in extents: " UINT64_FORMAT "\n",
		   totals->doubtful_pages, totals->doubtful_extents);
	printf("damaged blocks of extent maps: " UINT64_FORMAT "\n", totals->damaged_blocks);
	fflush(stdout);
}

/* Print the result; returns the exit status. */
static int
report(const VerifyTotals *totals)
{
	bool		is_damaged = totals->damaged_pages > 0 || totals->damaged_blocks > 0;

	print_totals(totals);
	if (is_damaged)
		pg_log_error("damage was found");
	if (totals->doubtful_pages > 0)
	{
		pg_log_error("pages were found that are damaged, or that no value has");
		pg_log_error_detail("A change that was cancelled, or that had not ended at a crash or when "
							"the backup was made, can leave such pages. The extent map does not "
							"tell them from damage.");
	}
	if (is_damaged || totals->doubtful_pages > 0)
		pg_log_error_hint("Start a server with this directory. SELECT * FROM blobext_check() in "
						  "each database lists the values that are damaged.");
	return is_damaged ? STATUS_DAMAGED :
		totals->doubtful_pages > 0 ? STATUS_DOUBTFUL : STATUS_SOUND;
}

static void
verify_all(bool shows_progress, VerifyTotals *totals)
{
	RelationLayout layout;

	read_control_file(&layout);
	(void) visit_directory("base", visit_database);
	(void) visit_directory("pg_tblspc", visit_tablespace);
	for (int i = 0; i < map_count; i++)
	{
		MapFile    *map;

		require_build(&maps[i]);
		map = map_file_open(maps[i].path, &layout);
		verify_store(map, shows_progress, totals);
		map_file_close(map);
	}
	(void) visit_directory(BLOB_STORE_DIR, visit_store);
}

/* As all programs of PostgreSQL do. */
static void
answer_first_option(const char *argument)
{
	if (strcmp(argument, "--help") == 0 || strcmp(argument, "-?") == 0)
		usage();
	else if (strcmp(argument, "--version") == 0 || strcmp(argument, "-V") == 0)
		printf("%s (blobext) %s for PostgreSQL %s\n", program, BLOBEXT_VERSION, PG_MAJORVERSION);
	else
		return;
	exit(STATUS_SOUND);
}

static void
bad_usage(void)
{
	pg_log_error_hint("Try \"%s --help\" for more information.", program);
	exit(STATUS_FAILED);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"pgdata", required_argument, NULL, 'D'},
		{"progress", no_argument, NULL, 'P'},
		{NULL, 0, NULL, 0}
	};
	const char *directory = getenv("PGDATA");
	bool		shows_progress = false;
	VerifyTotals totals = {0};
	int			status;
	int			option;

	pg_logging_init(argv[0]);
	program = get_progname(argv[0]);
	if (argc > 1)
		answer_first_option(argv[1]);
	while ((option = getopt_long(argc, argv, "D:P", options, NULL)) != -1)
	{
		switch (option)
		{
			case 'D':
				directory = optarg;
				break;
			case 'P':
				shows_progress = true;
				break;
			default:
				bad_usage();
		}
	}
	if (optind < argc)
		directory = argv[optind++];
	if (optind < argc)
	{
		pg_log_error("too many command-line arguments (first is \"%s\")", argv[optind]);
		bad_usage();
	}
	if (directory == NULL)
	{
		pg_log_error("no data directory specified");
		bad_usage();
	}
	if (chdir(directory) != 0)
		verify_fail("could not change directory to \"%s\": %m", directory);
	verify_all(shows_progress, &totals);
	status = report(&totals);
	return strays > 0 ? STATUS_FAILED : status;
}
