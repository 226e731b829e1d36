// Command conformance is the adapter of this package for clients/conformance, whose README.md says
// what it does.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	blobext "example.invalid/blobext"
)

var (
	input  = bufio.NewReader(os.Stdin)
	store  *blobext.Store
	reader *blobext.Reader
)

func value(id string) blobext.Value {
	return blobext.Value{Table: []string{`Odd "Schema"`, "Odd Name"}, Column: "my content",
		Key: map[string]any{"id": number(id), "Kind": "a'b"}}
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func summary(s blobext.Summary) string { return fmt.Sprintf("ok\t%d\t%x", s.Size, s.SHA256) }

func content(data []byte) string { return fmt.Sprintf("ok\t%d\t%x", len(data), sha256.Sum256(data)) }

// pause is a file that stops once after a number of bytes.
type pause struct {
	*os.File
	at     int64
	done   int64
	cancel context.CancelFunc
}

func (p *pause) count(n int) {
	p.done += int64(n)
	if p.at > 0 && p.done >= p.at {
		p.at = 0
		fmt.Println("paused")
		if line, _ := input.ReadString('\n'); strings.TrimSpace(line) == "cancel" {
			p.cancel()
		}
	}
}

func (p *pause) Read(into []byte) (int, error) {
	n, err := p.File.Read(into)
	p.count(n)
	return n, err
}

func (p *pause) ReadAt(into []byte, offset int64) (int, error) {
	n, err := p.File.ReadAt(into, offset)
	p.count(n)
	return n, err
}

func (p *pause) Write(data []byte) (int, error) {
	n, err := p.File.Write(data)
	p.count(n)
	return n, err
}

// Not through the methods of the file, which would be taken for those of pause.
func (p *pause) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(w, struct{ io.Reader }{p}, make([]byte, 1<<17))
}

func (p *pause) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{p}, r, make([]byte, 1<<20))
}

func run(ctx context.Context, fields []string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	file := func(open func(string) (*os.File, error), path, at string) (*pause, error) {
		f, err := open(path)
		p := &pause{File: f, cancel: cancel}
		if at != "-" {
			p.at = number(at)
		}
		return p, err
	}
	if fields[0] != "open" {
		defer cancel()
	}
	switch fields[0] {
	case "stat":
		r, err := store.Open(ctx, value(fields[1]))
		if err != nil {
			return "", err
		}
		return summary(r.Summary), r.Close()
	case "open":
		r, err := store.Open(ctx, value(fields[1]))
		if err != nil {
			return "", err
		}
		reader = r
		return fmt.Sprintf("ok\t%d", r.Size()), nil
	case "seek":
		whence := map[string]int{"start": io.SeekStart, "current": io.SeekCurrent, "end": io.SeekEnd}
		position, err := reader.Seek(number(fields[1]), whence[fields[2]])
		if err != nil { // The only one of a SectionReader.
			err = fs.ErrInvalid
		}
		return fmt.Sprintf("ok\t%d", position), err
	case "next":
		data, err := io.ReadAll(io.LimitReader(reader, number(fields[1])))
		return content(data), err
	case "close":
		return "ok", reader.Close()
	case "range":
		r, err := store.Open(ctx, value(fields[1]))
		if err != nil {
			return "", err
		}
		offset, length := number(fields[2]), number(fields[3])
		if length < 0 || offset < 0 {
			return "", fs.ErrInvalid
		}
		data, err := io.ReadAll(io.NewSectionReader(r, offset, length))
		return content(data), err
	case "download":
		r, err := store.Open(ctx, value(fields[1]))
		if err != nil {
			return "", err
		}
		f, err := file(os.Create, fields[2], fields[3])
		if err != nil {
			return "", err
		}
		_, err = io.Copy(f, r)
		return summary(r.Summary), errors.Join(err, f.Close())
	case "write":
		f, err := file(os.Open, fields[2], fields[3])
		if err != nil {
			return "", err
		}
		defer f.Close()
		w, err := store.Create(ctx, value(fields[1]), 0)
		if err != nil {
			return "", err
		}
		defer w.Discard()
		if _, err := io.Copy(w, f); err != nil {
			return "", err
		}
		err = w.Close()
		return summary(w.Summary), err
	case "upload":
		f, err := file(os.Open, fields[2], fields[4])
		if err != nil {
			return "", err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		var stage *blobext.Value
		if fields[3] != "-" {
			stage = &blobext.Value{Table: []string{`Odd "Schema"`, "blob_stage"},
				Key: map[string]any{"name": fields[3]}}
		}
		s, err := store.Upload(ctx, value(fields[1]), f, info.Size(), stage)
		return summary(s), err
	}
	return "error\tunknown", nil
}

func describe(err error) string {
	state, kind := "-", ""
	var server *pgconn.PgError
	if errors.As(err, &server) {
		state = server.Code
	}
	switch {
	case errors.Is(err, context.Canceled):
		kind = "cancelled"
	case errors.Is(err, blobext.ErrMissing):
		kind = "missing"
	case errors.Is(err, blobext.ErrChanged):
		kind = "changed"
	case errors.Is(err, blobext.ErrMismatch):
		kind = "mismatch"
	case errors.Is(err, blobext.ErrUnexpected):
		kind = "unexpected"
	case errors.Is(err, fs.ErrInvalid):
		kind = "position"
	case blobext.IsLost(err):
		kind = "lost"
	default:
		kind = "server"
	}
	return fmt.Sprintf("error\t%s\t%s\t%s", kind, state, strings.Join(strings.Fields(err.Error()), " "))
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "sslmode=disable") // by PGHOST, PGPORT, ..., PGAPPNAME
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	store = blobext.New(pool)
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		answer, err := run(ctx, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		if err != nil {
			answer = describe(err)
		}
		fmt.Println(answer)
	}
}
