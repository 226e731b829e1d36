// The cases of test/drivers/orms/README.md for ORMs of Go: orms gorm | bun | ent | sqlc.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
)

// What the cases need of an ORM.
type orm interface {
	migrate()
	changes() any // what there is to do after that: ""
	insert(id int, content []byte)
	read(id int) []byte
	update(id int, content []byte)
	equal(content []byte) []int
	among(contents [][]byte) []int
	ordered() []int
	distinct() int
	reflect() any // the type that it finds
}

// An answer of an ORM that has no such thing.
type without string

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func dsn() string {
	return fmt.Sprintf("postgres://%s@%s:%s/%s?sslmode=disable", os.Getenv("PGUSER"), os.Getenv("PGHOST"),
		os.Getenv("PGPORT"), os.Getenv("PGDATABASE"))
}

func check(name string, got, wanted any) {
	if reason, ok := got.(without); ok {
		fmt.Printf("left out - %s: %s\n", name, reason)
	} else if reflect.DeepEqual(got, wanted) {
		fmt.Printf("ok - %s\n", name)
	} else {
		fmt.Printf("not ok - %s: %v, wanted: %v\n", name, got, wanted)
		os.Exit(1)
	}
}

// NULL and the empty value are not the same.
func allRight(o orm, values [][]byte) bool {
	for i, value := range values {
		if got := o.read(i + 1); got == nil || !bytes.Equal(got, value) {
			return false
		}
	}
	return true
}

func main() {
	var values [][]byte
	var ids, found []int
	for id := 1; ; id++ {
		value, err := os.ReadFile(filepath.Join(os.Getenv("ORM_VALUES"), strconv.Itoa(id)))
		if err != nil {
			break
		}
		values, ids = append(values, value), append(ids, id)
	}
	last := len(values)

	o := map[string]func() orm{"gorm": newGorm, "bun": newBun, "ent": newEnt, "sqlc": newSqlc}[os.Args[1]]()
	o.migrate()
	check("migrate", o.changes(), "")
	for i, value := range values {
		o.insert(i+1, value)
	}
	o.insert(last+1, nil)
	check("insert and read", allRight(o, values), true)
	check("NULL", o.read(last+1) == nil, true)
	for _, id := range ids {
		o.update(id, append(slices.Clone(o.read(id)), '\\'))
		value := o.read(id)
		o.update(id, value[:len(value)-1])
	}
	check("update", allRight(o, values), true)
	for _, value := range values {
		found = append(found, o.equal(value)...)
	}
	check("=", found, ids)
	some := o.among([][]byte{values[0], values[last-1], []byte("none")})
	slices.Sort(some)
	check("IN", some, []int{1, last})
	check("ORDER BY", o.ordered(), append(ids, last+1))
	o.insert(last+2, values[last-1])
	check("count distinct", o.distinct(), last)
	check("reflect", o.reflect(), "[]uint8") // which is []byte
}
