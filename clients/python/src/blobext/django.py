"""A model field for Django: bytes in Python, ``blobstate`` in the database.

    content = BlobField()

Clients are told ``bytea``, so nothing is cast: content comes in a stream, and functions of SQL get
the column.  Use ``defer("content")`` in lists, and read large values with ``blobext.open()``.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.expressions import Col

__all__ = ["BlobField"]


class BlobField(models.BinaryField):  # type: ignore[misc]
    """The type ``blobstate``.  Lookups by equality use indexes."""

    description = "Large binary content (blobext)"

    def db_type(self, connection: Any) -> str:
        return "blobstate"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Transforms have this field, too, and give what they give: SHA256() is text.  For the
        column drivers give text where ``blobext.client_type`` is ``blobstate``."""
        if isinstance(value, str) and isinstance(expression, Col):
            raise TypeError("text for a blobstate: blobext.client_type must be bytea")
        return bytes(value) if isinstance(value, memoryview) else value
