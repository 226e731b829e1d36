/*
 * bench/load/load.h
 *	  Load generator: what its files share.
 *
 * main.c reads the options and starts a thread for each client.  rounds.c says what a client does,
 * changes.c how parts of a large value are changed, sizes.c how large values are.  A contender is a
 * driver (postgres.c, files.c, mariadb.c, sqlite.c); a session is one client's connection to one
 * contender.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_CONTENDERS 12
#define MAX_CLIENTS 64

/* Each value starts at another byte of the payload, so that all values differ. */
#define SHIFT_BYTES 65536

/* Values of which one operation asks metadata. */
#define METADATA_VALUES 10
#define PREFIX_BYTES 32

/* Large values are made of pieces of this size, and so no statement has a larger parameter. */
#define MADE_BYTES (64L * 1024 * 1024)

typedef enum Operation
{
	OP_STORE,					/* new values */
	OP_REPLACE,					/* existing values, at random */
	OP_MIXED,					/* in equal parts reads and replacements, at random */
	OP_CACHED,					/* reads of existing values, again and again */
	OP_COLD,					/* reads of existing values, each once */
	OP_FRESH,					/* reads of the values that the same round has stored */
	OP_APPEND,					/* appends to one value */
	OP_FILL,					/* all existing values, by one statement where there is one */
	OP_SCAN,					/* all existing values, in the order of storage */
	OP_RANDOM,					/* reads of existing values by id, in random order, each once */
	OP_METADATA,				/* metadata of existing values, at random */
	OP_MAKE,					/* the values that the next ones change */
	OP_MIX,						/* reads, insertions and deletions of parts of a value, at random */
	OP_OVERWRITE,				/* overwrites of parts of a value, at random */
	OP_INSERT					/* insertions in the middle of a value */
} Operation;

typedef enum Sizes
{
	SIZES_ONE, SIZES_TREE, SIZES_WIKIPEDIA
} Sizes;

/* What OP_METADATA asks for: each one also for those before it. */
typedef enum Asked
{
	ASKED_SIZE, ASKED_PREFIX, ASKED_DIGEST
} Asked;

typedef struct Options
{
	Operation	operation;
	const char *label;			/* first column of the output */
	bool		is_server;		/* inside the server */
	bool		settle;			/* write out what is deferred before each round */
	bool		is_empty;		/* each round begins with an empty table */
	bool		is_cold;		/* the warm-up reads a value or a few, not all */
	bool		is_unwarmed;	/* no change before those that count, for counts of bytes */
	Sizes		sizes;
	long		size_bytes;		/* of each value, or their mean */
	Asked		asked;
	long		piece_bytes;	/* of an append or a change; their mean in OP_MIX */
	int			clients;
	int			rounds;
	int			first_round;	/* number of the first round in the output */
	long		values;			/* operations of one client in one round */
	long		batch;			/* operations of a transaction */
	long		first_id;
	long		data_values;	/* existing values */
	int			cpu;			/* to pin client and server to, or -1 */
	double		limit_seconds;	/* after which a round ends early, or 0 */
	double		seconds;		/* repeat one contender so long, for profiles */
	const char *prefix;			/* of the tables' names */
	const char *directory;		/* of the files and of SQLite's database */
	const char *socket;			/* of the MariaDB server */
	long		buffer_mb;		/* SQLite's cache */
	const char *payload_path;
	const char *contenders[MAX_CONTENDERS];
	int			contender_count;
} Options;

extern Options options;

typedef struct Driver Driver;

/* A value whose parts are changed. */
typedef struct Changed
{
	long		id;
	long		size_bytes;		/* now */
	long		inserted_bytes; /* by the last change; the next one takes as many out */
	uint64_t	random;
} Changed;

typedef struct Session
{
	const Driver *driver;
	const char *contender;
	int			client_no;
	pid_t		backend;		/* the thread or process that serves it, or 0 */
	Changed		changed;
	void	   *state;
} Session;

/* Values that a statement inside the server takes: number i is base + i * stride % modulus. */
typedef struct Choice
{
	long		base;
	long		stride;
	long		modulus;
} Choice;

/*
 * A contender's operations; each ends the program if it fails.  Outside of begin and commit a
 * change is durable when its function returns; otherwise when commit returns.  run and NULL
 * operations: see the contender.
 */
struct Driver
{
	void		(*open) (Session *session);
	void		(*close) (Session *session);
	void		(*begin) (Session *session);
	void		(*commit) (Session *session);
	void		(*store) (Session *session, long id, const char *value, long size_bytes);
	void		(*replace) (Session *session, long id, const char *value, long size_bytes);
	void		(*append) (Session *session, long id, long offset, const char *piece);
	long		(*read) (Session *session, long id);	/* returns the size */
	/* Values 0 to value_count - 1; content i begins at byte payload_offset(i, 0) of payload. */
	void		(*fill) (Session *session, const char *payload, long value_count);
	long		(*scan) (Session *session); /* of all values; returns how many */
	long		(*size) (Session *session, long id);
	/* What options.asked says of METADATA_VALUES values; returns the sum of their sizes. */
	long		(*metadata) (Session *session, const long *ids);
	/* Parts of a value; the first returns how many bytes there were. */
	long		(*read_part) (Session *session, long id, long offset, long size_bytes);
	void		(*write_part) (Session *session, long id, long offset, const char *piece,
							   long size_bytes);
	/* Takes out bytes at an offset, and puts a piece there; one of both has no bytes. */
	void		(*splice) (Session *session, long id, long offset, long removed_bytes,
						   const char *piece, long size_bytes);
	void		(*empty) (Session *session);	/* removes all values */
	void		(*settle) (Session *session);	/* writes out what is deferred */
	/* Stores or reads inside the server; returns seconds by its clock. */
	double		(*run) (Session *session, long first, long value_count, const Choice *choice);
};

extern const Driver postgres_driver;
extern const Driver file_driver;
extern const Driver innodb_driver;
extern const Driver sqlite_driver;

/* main.c */
extern void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...);
extern double now(void);
extern bool changes_parts(void);	/* also of OP_MAKE */

/* sizes.c */
extern long value_bytes(long id);
extern long largest_bytes(void);

/* behind.c */
extern void start_behind(void); /* by one client, before the others */
extern void write_behind(long bytes);
extern void settle_behind(void);	/* waits for the writes */

/* changes.c */
extern void make_values(Session *session);
extern void begin_changes(Session *session);
extern void do_change(Session *session);
extern void end_changes(Session *session);

/* rounds.c */
extern uint64_t draw(uint64_t *state);
extern const char *payload_of(long id, long version);
extern long payload_offset(long id, long version);
extern void set_up_rounds(void);
extern void *run_client(void *argument);
extern void open_sessions(int client_no);
extern void close_sessions(int client_no);

#endif
