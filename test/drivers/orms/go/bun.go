package main

import (
	"context"
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

type bunDocument struct {
	bun.BaseModel `bun:"table:document"`
	ID            int    `bun:",pk"`
	Content       []byte `bun:"type:blobstate"`
}

type bunORM struct{ db *bun.DB }

var ctx = context.Background()

func newBun() orm { return bunORM{bun.NewDB(must(sql.Open("pgx", dsn())), pgdialect.New())} }

func (o bunORM) migrate() {
	must(o.db.NewCreateTable().Model((*bunDocument)(nil)).IfNotExists().Exec(ctx))
}

func (o bunORM) changes() any { return without("bun's migrations are SQL") }

func (o bunORM) ids(query *bun.SelectQuery) (ids []int) {
	must(0, query.Column("id").Scan(ctx, &ids))
	return ids
}

func (o bunORM) documents() *bun.SelectQuery { return o.db.NewSelect().Model((*bunDocument)(nil)) }

func (o bunORM) insert(id int, content []byte) {
	must(o.db.NewInsert().Model(&bunDocument{ID: id, Content: content}).Exec(ctx))
}

func (o bunORM) read(id int) []byte {
	document := bunDocument{ID: id}
	must(0, o.db.NewSelect().Model(&document).WherePK().Scan(ctx))
	return document.Content
}

func (o bunORM) update(id int, content []byte) {
	must(o.db.NewUpdate().Model(&bunDocument{ID: id, Content: content}).WherePK().Exec(ctx))
}

func (o bunORM) equal(content []byte) []int {
	return o.ids(o.documents().Where("content = ?", content))
}

func (o bunORM) among(contents [][]byte) []int {
	return o.ids(o.documents().Where("content IN (?)", bun.In(contents)))
}

func (o bunORM) ordered() []int { return o.ids(o.documents().Order("content")) }

func (o bunORM) distinct() (n int) {
	must(0, o.documents().ColumnExpr("count(DISTINCT content)").Scan(ctx, &n))
	return n
}

func (o bunORM) reflect() any { return without("bun makes no models from tables") }
