"""A column type for SQLAlchemy: bytes in Python, ``blobstate`` in the database.

    content: Mapped[bytes] = mapped_column(Blobstate, deferred=True)

Content goes and comes as ``bytea``, by casts in SQL, so it works with every driver.  Defer large
columns, and read them with ``blobext.open()``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import cast, type_coerce
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.types import UserDefinedType

__all__ = ["Blobstate"]


class Blobstate(UserDefinedType[bytes]):
    """The type ``blobstate``.  Comparison with bytes uses indexes."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        return "blobstate"

    @property
    def python_type(self) -> type[bytes]:
        return bytes

    def bind_expression(self, bindvalue: Any) -> Any:
        return cast(type_coerce(bindvalue, BYTEA), BYTEA)

    def column_expression(self, column: Any) -> Any:
        return cast(type_coerce(column, BYTEA), BYTEA)
