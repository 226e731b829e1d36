package blobext

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/jackc/pgx/v5"
)

// Stage is a row that keeps an unfinished upload.  Its table has the columns "name text PRIMARY
// KEY" and "content blobstate NOT NULL", by default empty.
type Stage struct {
	Table pgx.Identifier
	Name  string
}

// Upload stores a source from beginning to end.  Over a pool it goes on after a lost connection:
// without a stage from the beginning, in one transaction; with one from the last section of 64 MB,
// also in another run of the program.
func (s *Store) Upload(ctx context.Context, v Value, source io.ReadSeeker, stage *Stage) (
	summary Summary, err error) {
	var seen hash.Hash // of what the stage has, if this call has sent it
	for more := true; more && err == nil; {
		err = s.retry(ctx, func() error {
			end, err := source.Seek(0, io.SeekEnd)
			if err == nil {
				_, err = source.Seek(0, io.SeekStart)
			}
			if err != nil {
				return err
			}
			if stage != nil {
				summary, more, err = s.section(ctx, v, source, end, stage, &seen)
				return err
			}
			w, err := s.Create(ctx, v, end)
			if err != nil {
				return err
			}
			summary, more, err = w.finish(source)
			return err
		})
	}
	return summary, err
}

func (w *Writer) finish(source io.Reader) (summary Summary, more bool, err error) {
	defer w.Discard()
	if _, err = io.Copy(w, source); err == nil {
		err = w.Close()
	}
	return w.summary, false, err
}

// section sends what fits into a transaction, and says whether there is more.  The digest of the
// stage tells whether it has the beginning of the source: the commit of a section may have been
// done although its answer was lost.  The last one is stored in v, and the stage removed.
func (s *Store) section(ctx context.Context, v Value, source io.ReadSeeker, end int64, stage *Stage,
	seen *hash.Hash) (summary Summary, more bool, err error) {
	base := Value{Table: stage.Table, Key: map[string]any{"name": stage.Name}}
	staging, err := s.target(ctx, base)
	if err == nil {
		err = staging.row(ctx, s.db, insertStage, staging.key)
	}
	if err != nil && !errors.Is(err, ErrMissing) { // the INSERT has no result
		return summary, false, err
	}
	w, err := s.Append(ctx, base, 0)
	if err != nil {
		return summary, false, err
	}
	defer w.Discard()
	w.hash, *seen = *seen, nil
	if w.hash != nil && [32]byte(w.hash.Sum(nil)) == w.summary.SHA256 {
		_, err = source.Seek(w.summary.Size, io.SeekStart)
	} else {
		w.hash = sha256.New()
		_, err = io.CopyN(w.hash, source, w.summary.Size)
	}
	if err != nil && err != io.EOF {
		return summary, false, err
	}
	if w.summary.Size > end || [32]byte(w.hash.Sum(nil)) != w.summary.SHA256 {
		return summary, false, fmt.Errorf("%w: the stage has another beginning", ErrMismatch)
	}
	if more = end-w.summary.Size > sectionBytes; !more {
		w.staging = staging
		w.target, err = s.target(ctx, v)
	}
	if err == nil {
		summary, _, err = w.finish(io.LimitReader(source, sectionBytes))
	}
	if err == nil {
		*seen = w.hash
	}
	return summary, more, err
}
