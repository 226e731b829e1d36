"""SQLModel: a model over SQLAlchemy, with the same type and the same migrations."""

from typing import Optional

import cases

cases.need("sqlmodel")
import orm_sqlalchemy
import sqlmodel
from blobext.sqlalchemy import Blobstate


class Note(sqlmodel.SQLModel, table=True):
    __tablename__ = "document"
    id: Optional[int] = sqlmodel.Field(default=None, primary_key=True)
    content: Optional[bytes] = sqlmodel.Field(default=None, sa_column=sqlmodel.Column(Blobstate))


class Sqlmodel(orm_sqlalchemy.Alchemy):
    base, model = sqlmodel.SQLModel, Note


orm_sqlalchemy.rounds(Sqlmodel)
