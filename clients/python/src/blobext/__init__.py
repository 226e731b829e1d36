"""Values of the PostgreSQL extension blobext as files, on psycopg 3.

``open()`` gives a file-like object for one value, ``upload()`` and ``download()`` move whole files,
with progress, and go on after a broken connection.  ``blobext.aio`` has the same for asyncio;
``blobext.sqlalchemy`` and ``blobext.django`` have a column type each.
"""

from ._common import (BlobChanged, BlobError, BlobMismatch, BlobMissing, BlobUnexpected, Progress,
                      Stage, Summary, Value)
from ._sync import BlobReader, BlobWriter, download, iterate, open, stat, upload, write_range

__all__ = ["BlobChanged", "BlobError", "BlobMismatch", "BlobMissing", "BlobReader",
           "BlobUnexpected", "BlobWriter", "Progress", "Stage", "Summary", "Value", "download",
           "iterate", "open", "stat", "upload", "write_range"]
__version__ = "0.4.0"
