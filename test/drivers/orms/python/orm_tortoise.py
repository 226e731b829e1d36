"""Tortoise, on asyncpg: its BinaryField under another name of the type."""

import asyncio

import cases

cases.need("tortoise", "asyncpg")
from tortoise import Tortoise, fields, models
from tortoise.functions import Count


class BlobstateField(fields.BinaryField):
    class _db_postgres:
        SQL_TYPE = "blobstate"


class Document(models.Model):
    id = fields.IntField(primary_key=True)
    content = BlobstateField(null=True)

    class Meta:
        table = "document"


class Runner:
    loop = asyncio.new_event_loop()
    no_reflection = "Tortoise has none"

    async def awaited(self, awaitable):
        return await awaitable

    def wait(self, awaitable):
        return self.loop.run_until_complete(self.awaited(awaitable))

    def __init__(self):
        self.wait(Tortoise.init(db_url=cases.url("asyncpg"), modules={"models": ["__main__"]},
                                _enable_global_fallback=True))

    def migrate(self):
        self.wait(Tortoise.generate_schemas())

    def changes(self):
        self.wait(Tortoise.generate_schemas(safe=True))
        return []

    def insert(self, number, value):
        self.wait(Document.create(id=number, content=value))

    def read(self, number):
        return self.wait(Document.get(id=number)).content

    def update(self, number, value):
        document = self.wait(Document.get(id=number))
        document.content = value
        self.wait(document.save())

    def equal(self, value):
        return self.wait(Document.filter(content=value).values_list("id", flat=True))

    def among(self, values):
        return self.wait(Document.filter(content__in=values).values_list("id", flat=True))

    def ordered(self):
        return self.wait(Document.all().order_by("content").values_list("id", flat=True))

    def distinct(self):
        query = Document.annotate(n=Count("content", distinct=True)).values("n")
        return sum(row["n"] for row in self.wait(query))

    def close(self):
        self.wait(Tortoise.close_connections())


runner = Runner()
cases.run(runner)
runner.close()
