package main

import (
	"bytes"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"orms/ent"
	"orms/ent/document"
)

type entORM struct{ client *ent.Client }

func newEnt() orm {
	driver := entsql.OpenDB(dialect.Postgres, must(sql.Open("pgx", dsn())))
	return entORM{ent.NewClient(ent.Driver(driver))}
}

func (o entORM) migrate() { must(0, o.client.Schema.Create(ctx)) }

func (o entORM) changes() any {
	var plan bytes.Buffer
	must(0, o.client.Schema.WriteTo(ctx, &plan))
	return plan.String()
}

func (o entORM) insert(id int, content []byte) {
	create := o.client.Document.Create().SetID(id)
	if content != nil {
		create.SetContent(content)
	}
	must(create.Save(ctx))
}

func (o entORM) read(id int) []byte { return must(o.client.Document.Get(ctx, id)).Content }

func (o entORM) update(id int, content []byte) {
	must(o.client.Document.UpdateOneID(id).SetContent(content).Save(ctx))
}

func (o entORM) equal(content []byte) []int {
	return must(o.client.Document.Query().Where(document.Content(content)).IDs(ctx))
}

func (o entORM) among(contents [][]byte) []int {
	return must(o.client.Document.Query().Where(document.ContentIn(contents...)).IDs(ctx))
}

func (o entORM) ordered() []int {
	var ids []int
	for _, one := range must(o.client.Document.Query().Order(ent.Asc(document.FieldContent)).All(ctx)) {
		ids = append(ids, one.ID)
	}
	return ids
}

func (o entORM) distinct() int {
	return len(must(o.client.Document.Query().Where(document.ContentNotNil()).
		GroupBy(document.FieldContent).Strings(ctx)))
}

func (o entORM) reflect() any { return without("ent makes no schemas from tables") }
