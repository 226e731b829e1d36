"""SQLAlchemy with alembic, and the type of clients/python: migrations are generated, and run.

Through psycopg 2, and with SQLAlchemy 2 through psycopg 3, too.
"""

import contextlib
import io
import tempfile

import cases

cases.need("sqlalchemy", "alembic", "psycopg2")
import alembic.autogenerate
import alembic.command
import alembic.config
import alembic.migration
import sqlalchemy as sa
from sqlalchemy import orm
import blobext.sqlalchemy

Base = orm.declarative_base()


class Document(Base):
    __tablename__ = "document"
    id = sa.Column(sa.Integer, primary_key=True)
    content = sa.Column(blobext.sqlalchemy.Blobstate)


def edit(path, old, new):
    with open(path) as file:
        text = file.read()
    assert old in text, (path, old)
    with open(path, "w") as file:
        file.write(text.replace(old, new))


class Alchemy:
    base, model = Base, Document

    def __init__(self, driver="psycopg2"):
        self.engine = sa.create_engine(cases.url(f"postgresql+{driver}"))
        self.session = orm.Session(self.engine)

    def migrate(self):
        """The files that "alembic init" makes, with the lines of docs/orms.md."""
        with tempfile.TemporaryDirectory() as made, contextlib.redirect_stdout(io.StringIO()):
            config = alembic.config.Config(f"{made}/alembic.ini")
            alembic.command.init(config, f"{made}/files")
            config.set_main_option("sqlalchemy.url",
                                   self.engine.url.render_as_string(hide_password=False))
            config.attributes["metadata"] = self.base.metadata
            edit(f"{made}/files/env.py", "target_metadata = None",
                 "import blobext.sqlalchemy\ntarget_metadata = config.attributes['metadata']")
            edit(f"{made}/files/env.py", "target_metadata=target_metadata",
                 "target_metadata=target_metadata, include_name=blobext.sqlalchemy.include_name")
            edit(f"{made}/files/env.py", "fileConfig(", "(")
            edit(f"{made}/files/script.py.mako", "import sqlalchemy as sa",
                 "import sqlalchemy as sa\nimport blobext.sqlalchemy")
            alembic.command.revision(config, autogenerate=True)
            alembic.command.upgrade(config, "head")

    def changes(self):
        with self.engine.connect() as connection:
            context = alembic.migration.MigrationContext.configure(connection, opts={
                "compare_type": True, "include_name": blobext.sqlalchemy.include_name})
            return alembic.autogenerate.compare_metadata(context, self.base.metadata)

    def insert(self, number, value):
        self.session.add(self.model(id=number, content=value))
        self.session.commit()

    def read(self, number):
        return self.session.get(self.model, number, populate_existing=True).content

    def update(self, number, value):
        self.session.get(self.model, number).content = value
        self.session.commit()

    def select(self, statement):
        return list(self.session.execute(statement).scalars())

    def equal(self, value):
        return self.select(sa.select(self.model.id).where(self.model.content == value))

    def among(self, values):
        return self.select(sa.select(self.model.id).where(self.model.content.in_(values)))

    def ordered(self):
        return self.select(sa.select(self.model.id).order_by(self.model.content))

    def distinct(self):
        return self.select(sa.select(sa.func.count(self.model.content.distinct())))[0]

    reflected = blobext.sqlalchemy.Blobstate

    def reflect(self):
        table = sa.Table("document", sa.MetaData(), autoload_with=self.engine)
        return type(table.c.content.type)


def rounds(make):
    """With each driver that there is; the last one leaves the table."""
    drivers = ["psycopg2"]
    if int(sa.__version__.split(".")[0]) >= 2:
        drivers.append("psycopg")
    for number, driver in enumerate(drivers):
        alchemy = make(driver)
        if number > 0:
            with alchemy.engine.begin() as connection:
                connection.execute(sa.text("DROP TABLE document, alembic_version"))
        cases.run(alchemy)
        alchemy.session.close()
        alchemy.session.execute(sa.text("SET blobext.client_type = blobstate"))
        cases.refused("hex text of blobext.client_type = blobstate is no content", alchemy.read, 2)
        alchemy.session.close()
        alchemy.engine.dispose()


if __name__ == "__main__":
    rounds(Alchemy)
