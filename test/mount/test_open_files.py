"""Many files that are open at once, and written.

BLOBEXT_MOUNT_OPEN=10000 opens 10,000 in place of 3,000.

Seen to fail: test_many with the limit that the program was started with (EMFILE); test_limit
without the count of spool files.
"""

import contextlib
import errno
import os
import time

import support
from support import FileSystemTest, Mount, digest, wait_until

OPEN_FILES = int(os.environ.get("BLOBEXT_MOUNT_OPEN", "3000"))
# More than a spool has in memory.
LARGE_BYTES = 140_000
# Hard limit of the program with three connections, and those of them that are for spools.
FEW = 120
SPOOLS = FEW - 64 - 2 * 3


def descriptors(mount):
    return len(os.listdir(f"/proc/{mount.process.pid}/fd"))


class OpenFilesTest(FileSystemTest):
    def content(self, number):
        """Every fifth is larger than a spool has in memory; no two are equal."""
        return b"%08d" % number * (LARGE_BYTES // 8 if number % 5 == 0 else 50)

    def changed(self, number):
        content = self.content(number)
        return content[:100] + b"changed" + content[107:] + b"end"

    def open_all(self, stack, mount, flags):
        files = []
        for number in range(OPEN_FILES):
            files.append(os.open(mount.path(f"f{number}"), flags, 0o644))
            stack.callback(os.close, files[-1])
        return files

    def test_many(self):
        """Files that are all open are written, read, changed and closed, with a bounded memory;
        each has its content at the end, and open files keep theirs when it is replaced."""
        _, hard = support.resource.getrlimit(support.resource.RLIMIT_NOFILE)
        with Mount("fs=docs", descriptors=(256, hard)) as mount:
            before = descriptors(mount)
            started = time.monotonic()
            with contextlib.ExitStack() as stack:
                files = self.open_all(stack, mount, os.O_RDWR | os.O_CREAT)
                for number, file in enumerate(files):
                    self.assertEqual(os.write(file, self.content(number)),
                                     len(self.content(number)))
                for number, file in enumerate(files):
                    self.assertEqual(os.pread(file, LARGE_BYTES + 1, 0), self.content(number))
                    os.pwrite(file, b"changed", 100)
                    os.pwrite(file, b"end", len(self.content(number)))
                most = descriptors(mount)
            print(f"# {OPEN_FILES} written and closed: {time.monotonic() - started:.1f} s,"
                  f" {mount.memory_kb() // 1024} MB, {most} descriptors", flush=True)
            self.assertGreater(most, OPEN_FILES // 5)
            self.assertLess(most, OPEN_FILES + 100)
            wait_until(lambda: descriptors(mount) < before + 30, "the end of the spools")
            self.check_contents()
            with contextlib.ExitStack() as stack:
                files = self.open_all(stack, mount, os.O_RDONLY)
                self.sql.execute("SELECT count(blobfs.write('docs', '/f' || n, 'replaced'))"
                                 " FROM generate_series(0, %s) AS n", (OPEN_FILES - 1,))
                for number, file in enumerate(files):
                    self.assertEqual(os.pread(file, LARGE_BYTES + 99, 0), self.changed(number))
            print(f"# read: {mount.memory_kb() // 1024} MB", flush=True)
            self.assertLess(mount.memory_kb(), 250_000)

    def check_contents(self):
        """Of all files, as the server has them."""
        found = dict(self.sql.execute("SELECT path, encode(sha256(content), 'hex') FROM docs.path"
                                      " WHERE kind = 'f'").fetchall())
        self.assertEqual(found, {f"/f{number}": digest(self.changed(number))
                                 for number in range(OPEN_FILES)})

    def test_limit(self):
        """A write that needs one more descriptor than there are is EMFILE; bytes written before
        are kept, all else goes on, and when files were closed there is room again."""
        def write(file):
            os.pwrite(file, b"x", LARGE_BYTES)

        with Mount("fs=docs,timeout=0,timeo=5,connections=3", descriptors=(64, FEW)) as mount:
            with contextlib.ExitStack() as stack:
                files = []
                for number in range(SPOOLS + 9):
                    files.append(os.open(mount.path(f"f{number}"), os.O_RDWR | os.O_CREAT, 0o644))
                    stack.callback(os.close, files[-1])
                    os.pwrite(files[-1], b"first", 0)
                for file in files[:SPOOLS]:
                    write(file)
                for file in files[SPOOLS:]:
                    with self.assertRaises(OSError) as raised:
                        write(file)
                    self.assertEqual(raised.exception.errno, errno.EMFILE)
                    self.assertEqual(os.pread(file, 10, 0), b"first")
                self.assertIn(f"blobfs: {SPOOLS} files are being written, and the limit of"
                              " descriptors allows no more", mount.messages())
                self.assertEqual(mount.messages().count("descriptors"), 1)
                # A signal is a moment earlier than the end of the session.
                self.one("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
                         " WHERE application_name = 'blobfs'")
                os.mkdir(mount.path("d"))
                with open(mount.path("d", "small"), "wb") as file:
                    file.write(b"small")
                self.assertEqual(mount.read("d", "small"), b"small")
                os.fsync(files[-1])
                self.assertEqual(self.server_read(f"/f{SPOOLS + 8}"), b"first")
            for number in range(SPOOLS + 9):
                self.assertEqual(self.server_read(f"/f{number}"), b"first" + (
                    bytes(LARGE_BYTES - 5) + b"x" if number < SPOOLS else b""))
            with open(mount.path("f1"), "rb+", buffering=0) as file:
                write(file.fileno())

    def test_too_few(self):
        """A limit with which no file could be written is told at the start."""
        with self.assertRaisesRegex(AssertionError,
                                    "the limit of descriptors is 40, and 81 are needed"):
            Mount("fs=docs", descriptors=(40, 40)).stop()


if __name__ == "__main__":
    support.main()
