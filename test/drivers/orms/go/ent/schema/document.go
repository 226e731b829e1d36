package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

type Document struct{ ent.Schema }

func (Document) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "document"}}
}

func (Document) Fields() []ent.Field {
	return []ent.Field{
		field.Int("id"),
		field.Bytes("content").Optional().SchemaType(map[string]string{dialect.Postgres: "blobstate"}),
	}
}
