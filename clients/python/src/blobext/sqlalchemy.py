"""A column type for SQLAlchemy: bytes in Python, ``blobstate`` in the database.

    content: Mapped[bytes] = mapped_column(Blobstate, deferred=True)

Clients are told ``bytea``, so nothing is cast.  Reflection finds the type where this module was
imported.  Migrations of alembic need ``include_name``.  Defer large columns, and read them with
``blobext.open()``.
"""

from __future__ import annotations

from typing import Any, Optional

from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator

__all__ = ["Blobstate", "include_name"]


class Blobstate(TypeDecorator):  # type: ignore[type-arg,unused-ignore]
    """The type ``blobstate``.  Comparison with bytes uses indexes."""

    impl = BYTEA
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Drivers give hex text where ``blobext.client_type`` is ``blobstate``."""
        if isinstance(value, str):
            raise TypeError("text for a blobstate: blobext.client_type must be bytea")
        return value


@compiles(Blobstate)  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
def _in_ddl(type_: Blobstate, compiler: Any, **options: Any) -> str:
    return "blobstate"


ischema_names["blobstate"] = Blobstate


def include_name(name: Optional[str], type_: str, parent_names: Any) -> bool:
    """For ``context.configure()`` in alembic's env.py: without it, autogenerate drops the table of
    the extension, which the server refuses."""
    return not (type_ == "table" and name == "blobext_map")
