package main

import (
	_ "embed"
	"reflect"

	"github.com/jackc/pgx/v5"
	"orms/queries"
)

//go:embed schema.sql
var schemaSQL string

type sqlcORM struct {
	connection *pgx.Conn
	queries    *queries.Queries
}

func newSqlc() orm {
	connection := must(pgx.Connect(ctx, dsn()))
	return sqlcORM{connection, queries.New(connection)}
}

func ints(ids []int32) (all []int) {
	for _, id := range ids {
		all = append(all, int(id))
	}
	return all
}

func (o sqlcORM) migrate() { must(o.connection.Exec(ctx, schemaSQL)) }

func (o sqlcORM) changes() any { return without("sqlc has no migrations") }

func (o sqlcORM) insert(id int, content []byte) {
	must(0, o.queries.Insert(ctx, queries.InsertParams{ID: int32(id), Content: content}))
}

func (o sqlcORM) read(id int) []byte { return must(o.queries.Read(ctx, int32(id))) }

func (o sqlcORM) update(id int, content []byte) {
	must(0, o.queries.Update(ctx, queries.UpdateParams{ID: int32(id), Content: content}))
}

func (o sqlcORM) equal(content []byte) []int { return ints(must(o.queries.Equal(ctx, content))) }

func (o sqlcORM) among(contents [][]byte) []int { return ints(must(o.queries.Among(ctx, contents))) }

func (o sqlcORM) ordered() []int { return ints(must(o.queries.Ordered(ctx))) }

func (o sqlcORM) distinct() int { return int(must(o.queries.CountDistinct(ctx))) }

// The member that it has made from the schema.
func (o sqlcORM) reflect() any {
	field, _ := reflect.TypeOf(queries.Document{}).FieldByName("Content")
	return field.Type.String()
}
