// Package blobext reads and writes values of the PostgreSQL extension blobext as streams, on pgx.
//
// A [Reader] is an io.ReadSeekCloser and io.ReaderAt over one version of a value, a [Writer] an
// io.WriteCloser for a new one.  Both have a piece of the content in memory, whatever its size.
package blobext

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
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

const (
	pieceBytes   = 2 << 20   // of a read: a message costs little beside it, memory a few times it
	rowBytes     = 128 << 10 // of COPY: the server works on a row while the next is made
	sectionBytes = 64 << 20  // an upload with a stage commits after so many
)

// Errors of this package.  Those of the server stay *pgconn.PgError.
var (
	ErrMissing    = fmt.Errorf("blobext: no such row, or its value is NULL: %w", fs.ErrNotExist)
	ErrChanged    = errors.New("blobext: the value was replaced or removed since it was opened")
	ErrMismatch   = errors.New("blobext: the content does not have the expected digest")
	ErrUnexpected = errors.New("blobext: the extension is missing, or older than 0.3.0")
)

// DB is a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx, in which a Writer is a savepoint.  With a pool,
// what a lost connection interrupts goes on over another one.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
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
	known *sync.Map // statements of a table, a column and a key
}

// New makes a Store.  It asks the server for nothing yet.
func New(db DB) *Store { return &Store{db, &sync.Map{}} }

// On is the Store over another connection to the same database, for example a transaction.
func (s *Store) On(db DB) *Store { return &Store{db, s.known} }

//go:embed statements.sql
var sources string

// target has the statements of a value.  Parameters are those of the key, then others.
type target struct {
	stat, read, begin, resume, pieces, update, insert, stage, unstage string
	key                                                               []any
}

func (s *Store) target(ctx context.Context, v Value) (*target, error) {
	if len(v.Key) == 0 || len(v.Table) == 0 {
		return nil, errors.New("blobext: a Value needs a table and a key")
	}
	names, column := slices.Sorted(maps.Keys(v.Key)), cmp.Or(v.Column, "content")
	t, about := target{}, fmt.Sprintf("%q %q %q", v.Table, column, names)
	if known, ok := s.known.Load(about); ok {
		t = known.(target)
	} else {
		err := s.db.QueryRow(ctx, sources, v.Table.Sanitize(), column, names).Scan(&t.stat, &t.read,
			&t.begin, &t.resume, &t.pieces, &t.update, &t.insert, &t.stage, &t.unstage)
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrUnexpected
		}
		if err != nil {
			return nil, err
		}
		s.known.Store(about, t)
	}
	for _, name := range names {
		t.key = append(t.key, v.Key[name])
	}
	return &t, nil
}

func (t *target) args(own ...any) []any { return append(slices.Clone(t.key), own...) }

// summary takes the row of a statement whose first columns are a summary.
func summary(row pgx.Row, more ...any) (s Summary, err error) {
	var digest []byte
	err = row.Scan(append([]any{&s.Size, &digest}, more...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrMissing
	}
	copy(s.SHA256[:], digest)
	return s, err
}

// content is the digest and the size of what it was given.
type content struct {
	hash.Hash
	size int64
}

func (c *content) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.Hash.Write(p)
}

func (c *content) summary() Summary { return Summary{c.size, [32]byte(c.Sum(nil))} }

func (s *Store) isPool() bool {
	_, is := s.db.(*pgxpool.Pool)
	return is
}

// retry does work again that may be done twice, if a pool can give another connection.
func (s *Store) retry(ctx context.Context, work func() error) error {
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		err := work()
		if !s.isPool() || !IsLost(err) || pause > 30*time.Second {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// IsLost says whether a connection was lost, or not made, so that another attempt may help.
func IsLost(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "57P0")
	}
	var network net.Error
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		(errors.As(err, &network) || errors.Is(err, net.ErrClosed) ||
			errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err))
}

// Reader is one version of a value: reads fail with ErrChanged once it is replaced, so versions are
// never mixed.  Content that is read from beginning to end is compared with the digest.
type Reader struct {
	*io.SectionReader // Read, Seek, ReadAt, Size
	Summary           Summary
	ctx, opened       context.Context // until Close; that of Open
	cancel            context.CancelFunc
	store             *Store
	target            *target
	mutex             sync.Mutex
	piece, spare      buffer // content from start on; memory of the one before
	start             int64
	ahead             <-chan fetched // of the piece that follows, or nil
	seen              content        // the beginning, as far as it was read without a gap
}

// Open opens a value to read.  It asks for the summary; all reads are under ctx, too.
func (s *Store) Open(ctx context.Context, v Value) (*Reader, error) {
	r := &Reader{store: s, opened: ctx, seen: content{Hash: sha256.New()}}
	err := s.retry(ctx, func() (err error) {
		if r.target, err = s.target(ctx, v); err == nil {
			r.Summary, err = summary(s.db.QueryRow(ctx, r.target.stat, r.target.key...))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.SectionReader = io.NewSectionReader((*pieces)(r), 0, r.Summary.Size)
	return r, nil
}

// Close ends reads, also those that wait for the server.
func (r *Reader) Close() error {
	r.cancel()
	return nil
}

// pieces is what a Reader reads from.
type pieces Reader

func (r *pieces) ReadAt(p []byte, offset int64) (n int, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for n < len(p) && err == nil {
		var piece []byte
		piece, err = r.at(offset+int64(n), int64(len(p)-n))
		n += copy(p[n:], piece)
	}
	return n, err
}

type buffer []byte

// ScanBytes takes the memory that the buffer has.
func (b *buffer) ScanBytes(v []byte) error {
	*b = append((*b)[:0], v...)
	return nil
}

type fetched struct {
	piece buffer
	err   error
}

func (r *pieces) fetch(ctx context.Context, offset, length int64) <-chan fetched {
	result, f := make(chan fetched, 1), fetched{piece: r.spare}
	r.spare = nil
	go func() {
		f.err = r.store.retry(ctx, func() error {
			args := r.target.args(offset, length, r.Summary.SHA256[:])
			return r.store.db.QueryRow(ctx, r.target.read, args...).Scan(&f.piece)
		})
		if errors.Is(f.err, pgx.ErrNoRows) {
			f.err = ErrChanged
		} else if f.err == nil && int64(len(f.piece)) != length {
			f.err = ErrUnexpected
		}
		result <- f
	}()
	return result
}

// at is what there is from an offset on: of the last piece, or of the next one, which has what is
// wanted, or more if it follows the last one.  Then over a pool the one behind it is requested, too,
// so that the server works while the program does.  Close leaves that request to its end: a cancel
// would cost the connection.
func (r *pieces) at(offset, wanted int64) ([]byte, error) {
	next := r.start + int64(len(r.piece))
	switch {
	case r.ctx.Err() != nil:
		return nil, r.ctx.Err()
	case offset >= r.start && offset < next:
		return r.piece[offset-r.start:], nil
	case offset == next || wanted > pieceBytes:
		wanted = pieceBytes
	}
	request, closed := r.ahead, r.ctx.Done()
	if r.ahead = nil; request == nil || offset != next {
		request, closed = r.fetch(r.ctx, offset, min(wanted, r.Summary.Size-offset)), nil
	}
	var f fetched
	select {
	case f = <-request:
	case <-closed:
		f.err = r.ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	isSequence := offset == next && offset > 0
	r.spare, r.start, r.piece = r.piece, offset, f.piece
	next = offset + int64(len(r.piece))
	if isSequence && next < r.Summary.Size && r.store.isPool() {
		r.ahead = r.fetch(r.opened, next, min(pieceBytes, r.Summary.Size-next))
	}
	if r.seen.size == offset {
		r.seen.Write(r.piece)
	}
	if r.seen.size == r.Summary.Size && r.seen.summary() != r.Summary {
		r.piece = nil
		return nil, ErrMismatch
	}
	return r.piece, nil
}

// Writer is a new value.  Its connection is in a transaction, in a COPY, until Close stores the
// value and commits; Discard gives it up.  "defer w.Discard()" does nothing after Close.
type Writer struct {
	Summary Summary // of the stored value, after Close
	ctx     context.Context
	tx      pgx.Tx
	target  *target
	stage   *target // to remove with the commit, or nil
	number  int64   // of the upload
	pipe    *io.PipeWriter
	copied  chan error // the end of the COPY
	row     []byte
	seen    *content
}

// Create begins a value that replaces that of the row, or is in a new row.  expected says how many
// bytes will come, or 0.  The transaction ends if ctx does.
func (s *Store) Create(ctx context.Context, v Value, expected int64) (*Writer, error) {
	return s.begin(ctx, v, nil, expected)
}

// begin goes on at the end of what a stage has, if there is one; Summary says what that is.
func (s *Store) begin(ctx context.Context, v Value, stage *Value, expected int64) (
	w *Writer, err error) {
	w = &Writer{ctx: ctx, copied: make(chan error, 1), seen: &content{Hash: sha256.New()}}
	if w.target, err = s.target(ctx, v); err == nil && stage != nil {
		w.stage, err = s.target(ctx, *stage)
	}
	if err == nil {
		w.tx, err = s.db.Begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	sql, args := w.target.begin, []any{expected}
	if w.stage != nil {
		sql, args = w.stage.resume, w.stage.args(expected)
		_, err = w.tx.Exec(ctx, w.stage.stage, w.stage.key...)
	}
	if err == nil {
		w.Summary, err = summary(w.tx.QueryRow(ctx, sql, args...), &w.number)
	}
	if err != nil {
		return nil, errors.Join(err, w.tx.Rollback(context.WithoutCancel(ctx)))
	}
	rows, pipe := io.Pipe()
	w.pipe, sql = pipe, w.target.pieces
	go func() {
		header := strings.NewReader("PGCOPY\n\xff\r\n\x00" + strings.Repeat("\x00", 8))
		all := io.MultiReader(header, rows, strings.NewReader("\xff\xff"))
		_, err := w.tx.Conn().PgConn().CopyFrom(ctx, all, sql)
		if err != nil { // A cancel may be seen as a closed connection.
			err = errors.Join(ctx.Err(), err)
		}
		rows.CloseWithError(err)
		w.copied <- err
		close(w.copied)
	}()
	return w, nil
}

// Write sends rows without waiting for an answer: an error of the server may come later.
func (w *Writer) Write(p []byte) (n int, err error) {
	for content := range slices.Chunk(p, rowBytes) {
		w.row = append(w.row[:0], 0, 2, 0, 0, 0, 8)
		w.row = binary.BigEndian.AppendUint64(w.row, uint64(w.number))
		w.row = binary.BigEndian.AppendUint32(w.row, uint32(len(content)))
		w.row = append(w.row, content...)
		if _, err := w.pipe.Write(w.row); err != nil {
			return n, err
		}
		w.seen.Write(content)
		n += len(content)
	}
	return n, nil
}

// ReadFrom makes io.Copy send rows of a good size.  Before smaller writes use a bufio.Writer.
func (w *Writer) ReadFrom(source io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, source, make([]byte, rowBytes))
}

// Discard gives the value up unless it is stored: the row stays as it is.
func (w *Writer) Discard() {
	w.pipe.CloseWithError(fs.ErrClosed)
	<-w.copied
	w.tx.Rollback(context.WithoutCancel(w.ctx)) // fails after a commit, and without a connection
}

// Close stores the value in the row, or in a new one, and commits.  If the server has received
// another content than was written, it stores nothing: ErrMismatch.
func (w *Writer) Close() error {
	defer w.Discard()
	w.pipe.Close()
	args := w.target.args(w.number)
	err := <-w.copied
	if err == nil {
		w.Summary, err = summary(w.tx.QueryRow(w.ctx, w.target.update, args...))
	}
	if errors.Is(err, ErrMissing) {
		w.Summary, err = summary(w.tx.QueryRow(w.ctx, w.target.insert, args...))
	}
	if err == nil && w.Summary != w.seen.summary() {
		err = ErrMismatch
	}
	if err == nil && w.stage != nil {
		_, err = w.tx.Exec(w.ctx, w.stage.unstage, w.stage.key...)
	}
	if err == nil {
		err = w.tx.Commit(w.ctx)
	}
	return err
}

// Upload stores so many bytes of a source.  Over a pool it goes on after a lost connection: without
// a stage from the beginning, in one transaction; with one from the last section of 64 MB, also in
// another run of the program.  A stage is a row that keeps an unfinished upload.
//
// The digest of the stage tells whether it has the beginning of the source: the commit of a section
// may have been done although its answer was lost.  The last one is stored in the row of the value.
func (s *Store) Upload(ctx context.Context, v Value, source io.ReaderAt, size int64, stage *Value) (
	stored Summary, err error) {
	expected, section := size, size
	if stage != nil {
		expected, section = 0, sectionBytes
	}
	seen := &content{Hash: sha256.New()}
	send := func() error {
		w, err := s.begin(ctx, v, stage, expected)
		if err != nil {
			return err
		}
		defer w.Discard()
		if seen.size != w.Summary.Size {
			*seen = content{Hash: sha256.New()}
			_, err = io.Copy(seen, io.NewSectionReader(source, 0, min(w.Summary.Size, size)))
		}
		if err == nil && seen.summary() != w.Summary {
			err = fmt.Errorf("%w: the stage has another beginning", ErrMismatch)
		}
		if err != nil {
			return err
		}
		w.seen = seen
		length := min(size-seen.size, section)
		if seen.size+length < size {
			w.target, w.stage = w.stage, nil
		}
		_, err = io.CopyN(w, io.NewSectionReader(source, seen.size, length), length)
		if err == nil {
			err = w.Close()
		}
		stored = w.Summary
		return err
	}
	for err = s.retry(ctx, send); err == nil && stored.Size < size; err = s.retry(ctx, send) {
	}
	return stored, err
}
