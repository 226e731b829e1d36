"""A model field for Django: bytes in Python, ``blobstate`` in the database.

    content = BlobField()

Content goes and comes as ``bytea``, by casts in SQL.  Use ``defer("content")`` in lists, and read
large values with ``blobext.open()``.
"""

from __future__ import annotations

from typing import Any, Optional

from django.db import models

__all__ = ["BlobField"]


class BlobField(models.BinaryField):  # type: ignore[misc]
    """The type ``blobstate``.  Lookups by equality use indexes."""

    description = "Large binary content (blobext)"

    def db_type(self, connection: Any) -> str:
        return "blobstate"

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        return "%s::bytea"

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        return f"({sql})::bytea", params

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Optional[bytes]:
        return None if value is None else bytes(value)
