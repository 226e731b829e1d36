"""Peewee: its BlobField under another name of the type."""

import os

import cases

cases.need("peewee", "psycopg2")
import peewee
from playhouse.reflection import Introspector


class BlobstateField(peewee.BlobField):
    field_type = "BLOBSTATE"


class Document(peewee.Model):
    content = BlobstateField(null=True)

    class Meta:
        table_name = "document"
        database = peewee.PostgresqlDatabase(
            os.environ["PGDATABASE"], user=os.environ["PGUSER"], host=os.environ["PGHOST"],
            port=int(os.environ["PGPORT"]))


class Peewee:
    def migrate(self):
        Document.create_table()

    def changes(self):
        """Peewee compares no types: what it has found is the names."""
        columns = Document._meta.database.get_columns("document")
        return [column.name for column in columns if column.name not in ("id", "content")]

    def insert(self, number, value):
        Document.insert(id=number, content=value).execute()

    def read(self, number):
        value = Document.get_by_id(number).content
        return None if value is None else bytes(value)

    def update(self, number, value):
        document = Document.get_by_id(number)
        document.content = value
        document.save()

    def equal(self, value):
        return [document.id for document in Document.select().where(Document.content == value)]

    def among(self, values):
        return [document.id for document in Document.select().where(Document.content.in_(values))]

    def ordered(self):
        return [document.id for document in Document.select().order_by(Document.content)]

    def distinct(self):
        return Document.select(peewee.fn.COUNT(Document.content.distinct())).scalar()

    reflected = "BareField"

    def reflect(self):
        models = Introspector.from_database(Document._meta.database).generate_models()
        return type(models["document"].content).__name__


cases.run(Peewee())
