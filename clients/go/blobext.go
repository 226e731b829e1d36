// Package blobext reads and writes values of the PostgreSQL extension blobext as streams, on pgx.
//
// A [Reader] is an io.ReadSeekCloser and io.ReaderAt over one version of a value, a [Writer] an
// io.WriteCloser for a new one.  Both have a piece of the content in memory, whatever its size.
package blobext

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Errors of this package.  Those of the server stay *pgconn.PgError.
var (
	ErrMissing    = fmt.Errorf("blobext: no such row, or its value is NULL: %w", fs.ErrNotExist)
	ErrChanged    = errors.New("blobext: the value was replaced or removed since it was opened")
	ErrMismatch   = errors.New("blobext: the content does not have the expected digest")
	ErrUnexpected = errors.New("blobext: the server's objects or answers are none of the extension's")
	ErrPosition   = fmt.Errorf("blobext: a position before the beginning: %w", fs.ErrInvalid)
)

// DB is a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx, in which a Writer is a savepoint.  With a pool,
// what a lost connection interrupts goes on over another one.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Value says where a value is.  Names are spelled as in the catalogs.
type Value struct {
	Table  pgx.Identifier // table, or schema and table
	Key    map[string]any // columns that identify the row, with their values
	Column string         // "content" if empty
}

// Summary is what the server knows of a value without reading its content.
type Summary struct {
	Size   int64
	SHA256 [32]byte
}

// Store gives streams of the values of one database, to as many goroutines as may use its DB.
type Store struct {
	db    DB
	found *sync.Map // for a table and columns: answers of find.sql
}

// New makes a Store.  It asks the server for nothing yet.
func New(db DB) *Store { return &Store{db, &sync.Map{}} }

// On is the Store over another connection to the same database, for example a transaction.
func (s *Store) On(db DB) *Store { return &Store{db, s.found} }

//go:embed find.sql
var find string

// What is used of the extension; T is the type blobstate.
var members = []string{"blobstate", "blob_upload_pieces", "length(T)", "sha256(T)",
	"blob_read(T,bigint,bigint)", "blob_upload_begin(bigint)", "blob_upload_resume(T,bigint)",
	"blob_upload_end(bigint)"}

// Statements, see target.
const (
	stat = "SELECT {summary} FROM {table} WHERE {where}"
	read = "SELECT {blob_read}({content}, {1}::pg_catalog.int8, {2}::pg_catalog.int8) FROM {table}" +
		" WHERE {where} AND {sha256}({content}) OPERATOR(pg_catalog.=) {3}::pg_catalog.bytea"
	begin  = "SELECT {blob_upload_begin}($1::pg_catalog.int8)"
	resume = "SELECT {summary}, {blob_upload_resume}({content}, {1}::pg_catalog.int8) FROM {table}" +
		" WHERE {where} FOR UPDATE"
	pieces = "COPY {blob_upload_pieces} FROM STDIN (FORMAT binary)"
	update = "UPDATE {table} SET {column} = {blob_upload_end}({1}::pg_catalog.int8) WHERE {where}" +
		" RETURNING {summary}"
	insert = "INSERT INTO {table} ({keys}, {column}) VALUES ({values}," +
		" {blob_upload_end}({1}::pg_catalog.int8)) RETURNING {summary}"
	insertStage = "INSERT INTO {table} ({keys}) VALUES ({values}) ON CONFLICT DO NOTHING"
	deleteStage = "DELETE FROM {table} WHERE {where}"
)

// target makes the statements for a value.  All names are qualified, and arguments have the types
// of the functions' parameters: nothing of another role is called.  Parameters are the values of
// the key, and then {1}, {2}, {3}.
type target struct {
	*strings.Replacer
	key []any
}

func (s *Store) target(ctx context.Context, v Value) (*target, error) {
	if len(v.Key) == 0 || len(v.Table) == 0 {
		return nil, errors.New("blobext: a Value needs a table and a key")
	}
	if v.Column == "" {
		v.Column = "content"
	}
	names, table := slices.Sorted(maps.Keys(v.Key)), v.Table.Sanitize()
	found, err := s.find(ctx, table, names)
	if err != nil {
		return nil, err
	}
	t := &target{}
	var keys, values, where []string
	for i, name := range names {
		operator := "OPERATOR(pg_catalog.=)"
		for _, row := range found {
			if row.Column == name {
				operator = row.Name
			}
		}
		t.key = append(t.key, v.Key[name])
		keys = append(keys, pgx.Identifier{name}.Sanitize())
		values = append(values, fmt.Sprintf("$%d", i+1))
		where = append(where, keys[i]+" "+operator+" "+values[i])
	}
	column := pgx.Identifier{v.Column}.Sanitize()
	content := "(" + column + ")::"
	parts := map[string]string{"table": table, "column": column, "keys": strings.Join(keys, ", "),
		"values": strings.Join(values, ", "), "where": strings.Join(where, " AND ")}
	for _, member := range members {
		name, _, _ := strings.Cut(member, "(")
		end := "." + strings.ReplaceAll(member, "T", parts["blobstate"])
		for _, row := range found {
			if row.Column == "" && strings.HasSuffix(row.Name, end) {
				parts[name] = strings.TrimSuffix(row.Name, end) + "." + name
			}
		}
		if parts[name] == "" {
			return nil, fmt.Errorf("%w: the extension is missing, or older than 0.3.0", ErrUnexpected)
		}
	}
	parts["content"] = content + parts["blobstate"] // it may have a domain over that
	parts["summary"] = strings.NewReplacer("L", parts["length"], "S", parts["sha256"],
		"C", parts["content"]).Replace("L(C), S(C)")
	var pairs []string
	for name, part := range parts {
		pairs = append(pairs, "{"+name+"}", part)
	}
	for i := range 3 {
		pairs = append(pairs, fmt.Sprintf("{%d}", i+1), fmt.Sprintf("$%d", len(keys)+i+1))
	}
	t.Replacer = strings.NewReplacer(pairs...)
	return t, nil
}

type fact struct{ Column, Name string } // a member of the extension has no Column

func (s *Store) find(ctx context.Context, table string, names []string) ([]fact, error) {
	about := fmt.Sprintf("%q %q", table, names)
	if known, ok := s.found.Load(about); ok {
		return known.([]fact), nil
	}
	rows, err := s.db.Query(ctx, find, table, names)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fact])
	if err == nil {
		s.found.Store(about, found)
	}
	return found, err
}

func (t *target) args(more ...any) []any { return append(slices.Clone(t.key), more...) }

// row scans the first row of a statement; ErrMissing if there is none.
func (t *target) row(ctx context.Context, db DB, sql string, args []any, into ...any) error {
	rows, err := db.Query(ctx, t.Replace(sql), args...)
	if err != nil {
		return err
	}
	found := rows.Next()
	if found {
		err = rows.Scan(into...)
	}
	rows.Close()
	if err = errors.Join(err, rows.Err()); err == nil && !found {
		return ErrMissing
	}
	return err
}

// summary takes the row of a statement whose first columns are a summary.
func (t *target) summary(ctx context.Context, db DB, sql string, args []any, into ...any) (
	summary Summary, err error) {
	var size *int64
	var digest []byte
	err = t.row(ctx, db, sql, args, append([]any{&size, &digest}, into...)...)
	if err == nil && size == nil {
		err = ErrMissing
	}
	if err != nil {
		return summary, err
	}
	if *size < 0 || len(digest) != 32 {
		return summary, ErrUnexpected
	}
	return Summary{*size, [32]byte(digest)}, nil
}

// Stat has the size and the digest of a value; ErrMissing if there is none.
func (s *Store) Stat(ctx context.Context, v Value) (Summary, error) {
	r, err := s.Open(ctx, v)
	if err != nil {
		return Summary{}, err
	}
	return r.Summary, nil
}

// Milliseconds between attempts after a connection was lost.
var pauses = []time.Duration{100, 500, 1000, 2000, 5000, 10000, 20000, 30000}

// retry does work again that may be done twice, if a pool can give another connection.
func (s *Store) retry(ctx context.Context, work func() error) error {
	_, pooled := s.db.(*pgxpool.Pool)
	for _, pause := range pauses {
		err := work()
		if err == nil || !pooled || !IsLost(err) {
			return err
		}
		select {
		case <-time.After(pause * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return work()
}

// IsLost says whether a connection was lost, or not made, so that another attempt may help.
func IsLost(err error) bool {
	var server *pgconn.PgError
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &server):
		return strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "57P0")
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
