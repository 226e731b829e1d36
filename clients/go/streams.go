package blobext

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

const (
	pieceBytes   = 2 << 20   // of a read: a message costs little beside it, and memory a few times it
	rowBytes     = 128 << 10 // of COPY: the server works on a row while the next is made
	headerBytes  = 2 + 4 + 8 + 4
	sectionBytes = 64 << 20 // an upload with a stage commits after so many
)

// Reader is one version of a value.  Reads fail with ErrChanged once it is replaced: two versions
// are never mixed.  Content that is read from beginning to end is compared with the digest.  One
// goroutine may use it; over a pool any number may use ReadAt.
type Reader struct {
	Summary
	ctx             context.Context
	store           *Store
	target          *target
	piece           []byte // content from start on
	position, start int64
	hash            hash.Hash // of the first hashed bytes
	hashed          int64
	closed          bool
}

// Open opens a value to read.  All reads are under ctx.
func (s *Store) Open(ctx context.Context, v Value) (*Reader, error) {
	r := &Reader{ctx: ctx, store: s, hash: sha256.New()}
	err := s.retry(ctx, func() (err error) {
		if r.target, err = s.target(ctx, v); err == nil {
			r.Summary, err = r.target.summary(ctx, s.db, stat, r.target.key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// fetch reads exactly length bytes, which the value has.
func (r *Reader) fetch(offset, length int64) (piece []byte, err error) {
	args := r.target.args(offset, length, r.SHA256[:])
	err = r.store.retry(r.ctx, func() error {
		return r.target.row(r.ctx, r.store.db, read, args, &piece)
	})
	if errors.Is(err, ErrMissing) {
		err = ErrChanged
	}
	if err == nil && int64(len(piece)) != length {
		err = fmt.Errorf("%w: %d bytes in place of %d", ErrUnexpected, len(piece), length)
	}
	return piece, err
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (n int, err error) {
	switch {
	case r.closed:
		return 0, fs.ErrClosed
	case r.position >= r.Size && r.hashed == r.Size && [32]byte(r.hash.Sum(nil)) != r.SHA256:
		return 0, ErrMismatch
	case r.position >= r.Size:
		return 0, io.EOF
	case r.position < r.start || r.position >= r.start+int64(len(r.piece)):
		r.piece, err = r.fetch(r.position, min(pieceBytes, r.Size-r.position))
		if err != nil {
			r.piece = nil
			return 0, err
		}
		if r.start = r.position; r.hashed == r.start {
			r.hash.Write(r.piece)
			r.hashed += int64(len(r.piece))
		}
	}
	n = copy(p, r.piece[r.position-r.start:])
	r.position += int64(n)
	return n, nil
}

// ReadAt reads a range, fewer bytes and io.EOF at the end.  It does not move the position.
func (r *Reader) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, ErrPosition
	}
	for n < len(p) && err == nil {
		var piece []byte
		length := min(int64(len(p)-n), pieceBytes, r.Size-offset)
		if length <= 0 {
			return n, io.EOF
		}
		piece, err = r.fetch(offset, length)
		n += copy(p[n:], piece)
		offset += length
	}
	return n, err
}

// Seek may go beyond the end, where there is nothing to read.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	base, ok := map[int]int64{io.SeekStart: 0, io.SeekCurrent: r.position, io.SeekEnd: r.Size}[whence]
	if !ok || base+offset < 0 {
		return 0, ErrPosition
	}
	r.position = base + offset
	return r.position, nil
}

// Close ends the use of the Reader, which has nothing open on the server.
func (r *Reader) Close() error {
	r.closed, r.piece = true, nil
	return nil
}

// Writer is a new value.  Its connection is in a transaction, in a COPY, until Close stores the
// value and commits; Discard gives it up.  "defer w.Discard()" does nothing after Close.
type Writer struct {
	ctx     context.Context
	tx      pgx.Tx
	target  *target
	staging *target // to remove with the commit, or nil
	number  int64   // of the upload
	pipe    *io.PipeWriter
	copied  chan error // the end of the COPY
	row     []byte     // the next one: header and content
	hash    hash.Hash  // of all content; nil if the beginning was not seen
	summary Summary
	err     error // why it is closed
}

// Create begins a value that replaces that of the row, or is in a new row.  expected says how many
// bytes will come, or 0.  The transaction ends if ctx does.
func (s *Store) Create(ctx context.Context, v Value, expected int64) (*Writer, error) {
	return s.begin(ctx, v, begin, expected)
}

// Append begins with the content that the row has, which is not written again.
func (s *Store) Append(ctx context.Context, v Value, expected int64) (*Writer, error) {
	return s.begin(ctx, v, resume, expected)
}

func (s *Store) begin(ctx context.Context, v Value, how string, expected int64) (
	w *Writer, err error) {
	w = &Writer{ctx: ctx, copied: make(chan error, 1),
		row: make([]byte, headerBytes, headerBytes+rowBytes)}
	if w.target, err = s.target(ctx, v); err != nil {
		return nil, err
	}
	if w.tx, err = s.db.Begin(ctx); err != nil {
		return nil, err
	}
	if how == resume {
		w.summary, err = w.target.summary(ctx, w.tx, how, w.target.args(expected), &w.number)
	} else {
		w.hash = sha256.New()
		err = w.target.row(ctx, w.tx, how, []any{expected}, &w.number)
	}
	if err != nil {
		return nil, errors.Join(err, w.tx.Rollback(context.WithoutCancel(ctx)))
	}
	reader, writer := io.Pipe()
	w.pipe = writer
	go func() {
		_, err := w.tx.Conn().PgConn().CopyFrom(ctx, reader, w.target.Replace(pieces))
		reader.CloseWithError(err)
		w.copied <- err
	}()
	if err = w.put(append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Writer) put(message []byte) error {
	if _, err := w.pipe.Write(message); err != nil {
		return w.fail(err)
	}
	return nil
}

// Write sends content without waiting for an answer: an error of the server may come later.
func (w *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) && w.err == nil {
		length := min(len(p)-n, cap(w.row)-len(w.row))
		w.row = append(w.row, p[n:n+length]...)
		n += length
		if len(w.row) == cap(w.row) {
			w.send()
		}
	}
	return n, w.err
}

func (w *Writer) send() {
	content := w.row[headerBytes:]
	w.summary.Size += int64(len(content))
	if w.hash != nil {
		w.hash.Write(content)
	}
	binary.BigEndian.PutUint16(w.row, 2)
	binary.BigEndian.PutUint32(w.row[2:], 8)
	binary.BigEndian.PutUint64(w.row[6:], uint64(w.number))
	binary.BigEndian.PutUint32(w.row[14:], uint32(len(content)))
	w.put(w.row)
	w.row = w.row[:headerBytes]
}

// fail ends the COPY and the transaction.
func (w *Writer) fail(err error) error {
	w.pipe.CloseWithError(err)
	<-w.copied
	w.err = err
	if cause := w.ctx.Err(); cause != nil {
		w.err = fmt.Errorf("%w: %w", cause, err)
	}
	w.tx.Rollback(context.WithoutCancel(w.ctx)) // fails if the connection is lost
	return w.err
}

// Discard gives the value up unless it is stored: the row stays as it is.
func (w *Writer) Discard() {
	if w.err == nil {
		w.fail(fs.ErrClosed)
	}
}

// Close stores the value in the row, or in a new one, and commits.  If the server has received
// another content than was written, it stores nothing: ErrMismatch.
func (w *Writer) Close() error {
	if w.err == nil && len(w.row) > headerBytes {
		w.send()
	}
	if w.err != nil {
		return w.err
	}
	w.pipe.Write([]byte{0xff, 0xff}) // an error of this is one of the COPY
	w.pipe.Close()
	err := <-w.copied
	close(w.copied)
	var stored Summary
	if err == nil {
		stored, err = w.target.summary(w.ctx, w.tx, update, w.target.args(w.number))
	}
	if errors.Is(err, ErrMissing) {
		stored, err = w.target.summary(w.ctx, w.tx, insert, w.target.args(w.number))
	}
	if err == nil && (stored.Size != w.summary.Size ||
		w.hash != nil && stored.SHA256 != [32]byte(w.hash.Sum(nil))) {
		err = ErrMismatch
	}
	if err == nil && w.staging != nil {
		_, err = w.tx.Exec(w.ctx, w.staging.Replace(deleteStage), w.staging.key...)
	}
	if err == nil {
		err = w.tx.Commit(w.ctx)
	}
	if err != nil {
		return w.fail(err)
	}
	w.summary, w.err = stored, fs.ErrClosed
	return nil
}

// Summary is that of the stored value, after Close.
func (w *Writer) Summary() Summary { return w.summary }
