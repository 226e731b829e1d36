// The matrix of test/run drivers for drivers of Go: lib/pq, pgx, and both through database/sql.
//
//	drivers lib_pq | lib_pq_binary | pgx_sql | pgx
//
// The server is that of PGHOST, PGPORT, PGUSER and PGDATABASE.  Values go in and come back bare, as
// []byte, and are compared byte by byte.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

// What the matrix needs of a driver.
type driver interface {
	run(statement string, parameters ...any) [][]any
	array(values [][]byte) any
	batch(statement string, values [][]byte)
	copyIn(values [][]byte)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ---- database/sql ----

type sqlDriver struct{ db *sql.DB }

func (d sqlDriver) run(statement string, parameters ...any) [][]any {
	rows, err := d.db.Query(statement, parameters...)
	must(err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(err)
	var result [][]any
	for rows.Next() {
		row := make([]any, len(columns))
		targets := make([]any, len(columns))
		for i := range row {
			targets[i] = &row[i]
		}
		must(rows.Scan(targets...))
		result = append(result, row)
	}
	must(rows.Err())
	return result
}

func (d sqlDriver) array(values [][]byte) any { return pq.Array(values) }

func (d sqlDriver) batch(statement string, values [][]byte) {
	tx, err := d.db.Begin()
	must(err)
	prepared, err := tx.Prepare(statement)
	must(err)
	for i, value := range values {
		_, err = prepared.Exec(i, value)
		must(err)
	}
	must(tx.Commit())
}

func (d sqlDriver) copyIn(values [][]byte) { d.batch("INSERT INTO t VALUES ($1, $2)", values) }

// lib/pq's own COPY.
type pqDriver struct{ sqlDriver }

func (d pqDriver) copyIn(values [][]byte) {
	tx, err := d.db.Begin()
	must(err)
	copying, err := tx.Prepare(pq.CopyIn("t", "id", "content"))
	must(err)
	for i, value := range values {
		_, err = copying.Exec(i, value)
		must(err)
	}
	_, err = copying.Exec()
	must(err)
	must(copying.Close())
	must(tx.Commit())
}

// ---- pgx ----

type pgxDriver struct{ connection *pgx.Conn }

func (d pgxDriver) run(statement string, parameters ...any) [][]any {
	rows, err := d.connection.Query(context.Background(), statement, parameters...)
	must(err)
	defer rows.Close()
	var result [][]any
	for rows.Next() {
		row, err := rows.Values()
		must(err)
		result = append(result, row)
	}
	must(rows.Err())
	return result
}

func (d pgxDriver) array(values [][]byte) any { return values }

func (d pgxDriver) batch(statement string, values [][]byte) {
	batch := &pgx.Batch{}
	for i, value := range values {
		batch.Queue(statement, i, value)
	}
	must(d.connection.SendBatch(context.Background(), batch).Close())
}

func (d pgxDriver) copyIn(values [][]byte) {
	_, err := d.connection.CopyFrom(context.Background(), pgx.Identifier{"t"},
		[]string{"id", "content"},
		pgx.CopyFromSlice(len(values), func(i int) ([]any, error) {
			return []any{i, values[i]}, nil
		}))
	must(err)
}

// ---- the matrix ----

func makeValues() [][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	large := make([]byte, 10_000_000)
	rand.New(rand.NewSource(1)).Read(large)
	return [][]byte{{}, []byte(`\`), []byte(`\x4142`), []byte(`\134\\`), all, {0},
		{0xff, 0xfe, '\\'}, []byte(`'"{},`), bytes.Repeat(all, 1000), large}
}

func asInt(value any) int {
	switch number := value.(type) {
	case int64:
		return int(number)
	case int32:
		return int(number)
	}
	panic(fmt.Sprintf("no integer: %T", value))
}

type matrix struct {
	d      driver
	values [][]byte
}

const insert = "INSERT INTO t (id, content) VALUES ($1, $2)"

func (m matrix) expect(what string, got any, wanted []byte) {
	content, ok := got.([]byte)
	if !ok {
		panic(fmt.Sprintf("%s: %T", what, got))
	}
	if !bytes.Equal(content, wanted) {
		panic(what + ": other bytes")
	}
}

func (m matrix) insertAll() {
	for i, value := range m.values {
		m.d.run(insert, i, value)
	}
}

func (m matrix) checkDigests() {
	rows := m.d.run("SELECT id, encode(sha256(content), 'hex') FROM t ORDER BY id")
	if len(rows) != len(m.values) {
		panic(fmt.Sprintf("%d rows", len(rows)))
	}
	for i, row := range rows {
		digest := sha256.Sum256(m.values[i])
		if fmt.Sprintf("%s", row[1]) != hex.EncodeToString(digest[:]) {
			panic(fmt.Sprintf("digest of value %d", i))
		}
	}
}

func (m matrix) checkIDs(rows [][]any, first, count int) {
	if len(rows) != count {
		panic(fmt.Sprintf("%d rows", len(rows)))
	}
	for i, row := range rows {
		if asInt(row[0]) != first+i {
			panic("another row")
		}
	}
}

var tests = []struct {
	name string
	run  func(m matrix)
}{
	{"insert and select", func(m matrix) {
		m.insertAll()
		m.checkDigests()
		for i, row := range m.d.run("SELECT content FROM t ORDER BY id") {
			m.expect("value", row[0], m.values[i])
		}
	}},
	{"NULL", func(m matrix) {
		m.d.run(insert, 1, nil)
		if m.d.run("SELECT content FROM t")[0][0] != nil {
			panic("not NULL")
		}
	}},
	{"read, modify, write", func(m matrix) {
		m.insertAll()
		for i := range m.values {
			read := m.d.run("SELECT content FROM t WHERE id = $1", i)[0][0]
			m.d.run("UPDATE t SET content = $1 WHERE id = $2", read, i)
		}
		m.checkDigests()
	}},
	{"= $1", func(m matrix) {
		m.insertAll()
		for i, value := range m.values {
			m.checkIDs(m.d.run("SELECT id FROM t WHERE content = $1", value), i, 1)
		}
	}},
	{"= ANY ($1)", func(m matrix) {
		m.insertAll()
		m.checkIDs(m.d.run("SELECT id FROM t WHERE content = ANY ($1) ORDER BY id",
			m.d.array(m.values[1:9])), 1, 8)
	}},
	{"RETURNING", func(m matrix) {
		for i, value := range m.values {
			m.expect("value", m.d.run(insert+" RETURNING content", i, value)[0][0], value)
		}
	}},
	{"batch", func(m matrix) {
		m.d.batch(insert, m.values)
		m.checkDigests()
	}},
	{"COPY", func(m matrix) {
		m.d.copyIn(m.values)
		m.checkDigests()
	}},
}

func connect(name string) driver {
	const local = "sslmode=disable"
	open := func(driver, options string) sqlDriver {
		db, err := sql.Open(driver, options)
		must(err)
		return sqlDriver{db}
	}
	switch name {
	case "lib_pq":
		return pqDriver{open("postgres", local)}
	case "lib_pq_binary":
		return pqDriver{open("postgres", local+" binary_parameters=yes")}
	case "pgx_sql":
		return open("pgx", local)
	case "pgx":
		connection, err := pgx.Connect(context.Background(), local)
		must(err)
		return pgxDriver{connection}
	}
	panic("unknown driver " + name)
}

func runTest(m matrix, name string, test func(m matrix)) (failed bool) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("not ok - %s: %.300v\n", name, problem)
			failed = true
		}
	}()
	m.d.run("DROP TABLE IF EXISTS t")
	m.d.run("CREATE TABLE t (id integer PRIMARY KEY, content blobstate)")
	test(m)
	fmt.Printf("ok - %s\n", name)
	return false
}

func main() {
	m := matrix{connect(os.Args[1]), makeValues()}
	failed := false
	for _, test := range tests {
		failed = runTest(m, test.name, test.run) || failed
	}
	if failed {
		os.Exit(1)
	}
}
