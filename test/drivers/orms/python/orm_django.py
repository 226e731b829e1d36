"""Django, with the field of clients/python: migrations are generated as files, and run."""

import io
import os
import sys
import tempfile

import cases

cases.need("django", "psycopg2")
import django
from django.conf import settings
from django.core.management import call_command

MODELS = """
from blobext.django import BlobField
from django.db import models


class Document(models.Model):
    content = BlobField(null=True)

    class Meta:
        db_table = "document"
"""


def command(*arguments, **options):
    output = io.StringIO()
    call_command(*arguments, stdout=output, **options)
    return output.getvalue()


class Django:
    def __init__(self, directory):
        os.mkdir(os.path.join(directory, "archive"))
        for name, text in ("__init__", ""), ("models", MODELS):
            with open(os.path.join(directory, "archive", name + ".py"), "w") as file:
                file.write(text)
        sys.path.insert(0, directory)
        settings.configure(
            INSTALLED_APPS=["archive"], USE_TZ=True,
            DEFAULT_AUTO_FIELD="django.db.models.AutoField",
            DATABASES={"default": {"ENGINE": "django.db.backends.postgresql",
                                   "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"],
                                   "USER": os.environ["PGUSER"],
                                   "NAME": os.environ["PGDATABASE"]}})
        django.setup()
        from archive.models import Document
        self.documents = Document.objects

    def migrate(self):
        command("makemigrations", "archive")
        command("migrate")

    def changes(self):
        answer = command("makemigrations", "archive", check=True, dry_run=True).strip()
        return [] if answer == "No changes detected in app 'archive'" else [answer]

    def insert(self, number, value):
        self.documents.create(id=number, content=value)

    def read(self, number):
        return self.documents.get(id=number).content

    def update(self, number, value):
        document = self.documents.get(id=number)
        document.content = value
        document.save()

    def equal(self, value):
        return list(self.documents.filter(content=value).values_list("id", flat=True))

    def among(self, values):
        return list(self.documents.filter(content__in=values).values_list("id", flat=True))

    def ordered(self):
        return list(self.documents.order_by("content").values_list("id", flat=True))

    def distinct(self):
        from django.db.models import Count
        return self.documents.aggregate(n=Count("content", distinct=True))["n"]

    reflected = "content = models.BinaryField(blank=True, null=True)"

    def reflect(self):
        return [line for line in command("inspectdb", "document").splitlines()
                if "content" in line][0].strip()


with tempfile.TemporaryDirectory() as made:
    archive = Django(made)
    cases.run(archive)

    from django.db import connection
    from django.db.models import Func, IntegerField
    digests = archive.documents.filter(id=1).values_list(
        Func("content", template="length(SHA256(%(expressions)s))",
             output_field=IntegerField()), flat=True)
    cases.ok("functions of the database", list(digests), [32])
    hexes = archive.documents.filter(id=2).values_list(
        Func("content", template="ENCODE(%(expressions)s, 'hex')"), flat=True)
    cases.ok("text that a transform makes", list(hexes), [archive.read(2).hex()])
    with connection.cursor() as cursor:
        cursor.execute("SET blobext.client_type = blobstate")
    cases.refused("hex text of blobext.client_type = blobstate is no content", archive.read, 2)
    connection.close()
