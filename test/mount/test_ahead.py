"""Content of a large file that goes to the server while it is written.

Seen to fail: without note_sent() in working_write()
test_written_once_more, in working_resize() test_shortened, in working_zero() test_zeroed; without
the limit of wait_for_work() test_paused; with a step_upload() that keeps commit->sent for its next
attempt test_lost_in_commit; without is_removed in bytes_to_send() test_unlinked; without may_keep()
in pool_take_spare() test_few_connections.
"""

import ctypes
import os
import time

import support
from proxy import Proxy
from support import FileSystemTest, Mount, digest

MB = 1 << 20
PUNCH_HOLE = 3


class AheadTest(FileSystemTest):
    def transactions(self, pattern="%"):
        """Of mounts, whose last statement is like the pattern."""
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'blobfs'"
                        " AND xact_start IS NOT NULL AND query LIKE %s", pattern)

    def write_until_sent(self, mount):
        """A file that is open, part of which the server has, and its content.  The program may
        pause for too long here, if others use the machine: then another file is begun."""
        for number in range(support.PATIENCE_SECONDS):
            content = bytearray()
            file = os.open(mount.path(f"f{number}"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for _ in range(64):
                piece = self.bytes(MB)
                os.write(file, piece)
                content += piece
                if self.transactions("%blob_upload_write%"):
                    return file, f"f{number}", content
            os.close(file)
            support.wait_until(lambda: not self.transactions(), "the end of transactions")
        raise AssertionError("nothing was sent before close()")

    def check(self, mount, file, name, content):
        os.close(file)
        self.assertEqual(digest(self.server_read(f"/{name}")), digest(content))
        self.assertEqual(support.file_digest(mount.path(name)), digest(content))
        support.wait_until(lambda: not self.transactions(), "the end of transactions")

    def test_sent_before_close(self):
        """Others see nothing of it before close(), and all of it then."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            self.assertIn(self.one("SELECT max(size) FROM docs.path WHERE path = %s", f"/{name}"),
                          (None, 0))
            for _ in range(20):
                piece = self.bytes(MB + 1)
                os.write(file, piece)
                content += piece
            self.check(mount, file, name, content)

    def test_written_once_more(self):
        """Bytes that were sent and are written again are the last ones."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            os.pwrite(file, b"once more", 1000)
            content[1000:1009] = b"once more"
            self.check(mount, file, name, content)

    def test_shortened(self):
        """Bytes that were sent and are cut off are gone."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            os.ftruncate(file, 1000)
            os.ftruncate(file, len(content) + 5)
            self.check(mount, file, name, content[:1000] + bytes(len(content) - 995))

    def test_zeroed(self):
        """Bytes that were sent and are punched out are zeros."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            library = ctypes.CDLL(None, use_errno=True)
            self.assertEqual(library.fallocate64(file, PUNCH_HOLE, ctypes.c_int64(1000),
                                                 ctypes.c_int64(500)), 0)
            content[1000:1500] = bytes(500)
            self.check(mount, file, name, content)

    def test_paused(self):
        """A program that pauses holds no transaction open."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            support.wait_until(lambda: not self.transactions(), "the end of the transaction")
            os.write(file, b"more")
            self.check(mount, file, name, content + b"more")

    def test_unlinked(self):
        """A file that loses its name is sent no further; its handle reads it."""
        with Mount("fs=docs") as mount:
            file, name, content = self.write_until_sent(mount)
            os.unlink(mount.path(name))
            end = time.monotonic() + support.PATIENCE_SECONDS
            while self.transactions("%blob_upload_%"):
                self.assertLess(time.monotonic(), end)
                os.write(file, bytes(MB))
                content += bytes(MB)
            self.assertEqual(digest(os.pread(file, 20 * MB, 0)), digest(content[:20 * MB]))
            os.close(file)

    def test_few_connections(self):
        """Two connections remain for requests."""
        with Mount("fs=docs,connections=2") as mount:
            content = self.bytes(20 * MB)
            with open(mount.path("f"), "wb", buffering=0) as file:
                for at in range(0, len(content), MB):
                    file.write(content[at:at + MB])
                    self.assertEqual(self.transactions(), 0)
            self.assertEqual(digest(self.server_read("/f")), digest(content))

    def test_lost_while_sent(self):
        """If the connection is lost, the commit sends all content."""
        proxy = Proxy()
        with Mount("fs=docs", proxy.conninfo()) as mount:
            file, name, content = self.write_until_sent(mount)
            proxy.cut("blob_upload_write(", "after")
            while proxy.rules:
                os.write(file, bytes(MB))
                content += bytes(MB)
                if len(content) > 100 * MB:
                    break
            self.check(mount, file, name, content)
            self.assertEqual(proxy.rules, [])
        proxy.close()

    def test_lost_in_commit(self):
        """The transaction that was begun ahead is committed once, whatever becomes of its end.  The
        file is longer than what one statement takes: if the program paused for too long here, the
        commit is another upload, whose end is lost likewise."""
        for when in ("before", "after", "during"):
            proxy = Proxy()
            with self.subTest(when), Mount("fs=docs", proxy.conninfo()) as mount:
                file, name, content = self.write_until_sent(mount)
                piece = self.bytes(MB)
                os.write(file, piece)
                content += piece
                proxy.cut("blob_upload_end(", when)
                self.check(mount, file, name, content)
                self.assertEqual(proxy.rules, [])
                os.unlink(mount.path(name))
            proxy.close()


if __name__ == "__main__":
    support.main()
