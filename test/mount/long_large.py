"""A large file through a mount: the memory that the program and the server's processes need.

By hand, for it takes minutes and five times the size of the file on the disk:

    test/run mount long_large

BLOBEXT_MOUNT_LARGE_MB is the size (5120).  Each step prints the program's VmHWM, and the largest
RssAnon of a process of the server and of all of them, seen every few milliseconds: shared memory,
which has a fixed size, is not in it.  Each step ends with a comparison of digests with a file that
was changed in the same way, and fails if its memory is above a limit that does not depend on the
size of the file.
"""

import os
import pathlib
import random
import subprocess
import threading
import time

import support
from support import FileSystemTest, Mount

SIZE = int(os.environ.get("BLOBEXT_MOUNT_LARGE_MB", "5120")) << 20
# Of the program: its cache (64 MB), and a patch of 32 MB with libpq's copy.  Of a process of the
# server: a patch, as a message, as an array, and in pieces.
PROGRAM_LIMIT_MB = 192
SERVER_LIMIT_MB = 192
PIECE = 1 << 20


def status_kb(pid, name):
    """A figure of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf8") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def server_processes():
    with open(os.path.join(support.DATA, "postmaster.pid"), encoding="utf8") as file:
        postmaster = int(file.readline())
    children = pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children")
    return [postmaster] + [int(pid) for pid in children.read_text(encoding="utf8").split()]


class Memory:
    """The memory that a step needs; a context manager."""

    def __init__(self, mount):
        self.pid = mount.process.pid
        self.largest_kb = self.all_kb = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.started = time.monotonic()

    def watch(self):
        while not self.ended.wait(0.005):
            figures = [status_kb(pid, "RssAnon") for pid in server_processes()]
            self.largest_kb = max(self.largest_kb, *figures)
            self.all_kb = max(self.all_kb, sum(figures))

    def __enter__(self):
        # VmHWM begins anew.
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5\n", encoding="utf8")
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.seconds = time.monotonic() - self.started
        self.ended.set()
        self.thread.join()
        self.program_kb = status_kb(self.pid, "VmHWM")


def file_digest(path):
    return subprocess.run(["sha256sum", path], check=True, capture_output=True,
                          text=True).stdout.split()[0]


class LargeTest(FileSystemTest):
    def setUp(self):
        self.beside = os.path.join(os.environ.get("TMPDIR", "/var/tmp"), f"large.{os.getpid()}")
        self.addCleanup(os.unlink, self.beside)
        piece = self.bytes(PIECE)
        with open(self.beside, "wb") as file:
            for number in range(SIZE // PIECE):
                file.write(number.to_bytes(8, "big") + piece[8:])

    def step(self, mount, what, work):
        with Memory(mount) as memory:
            work()
        print(f"# {what}: {memory.seconds:.1f} s, blobfs {memory.program_kb / 1024:.0f} MB, "
              f"a process of the server {memory.largest_kb / 1024:.0f} MB, all of them "
              f"{memory.all_kb / 1024:.0f} MB", flush=True)
        # The server makes its digest of the bytes that it stores.
        self.assertEqual(self.one("SELECT encode(sha256(blobfs.read('docs', '/f')), 'hex')"),
                         file_digest(self.beside), what)
        self.assertLess(memory.program_kb, PROGRAM_LIMIT_MB * 1024, what)
        self.assertLess(memory.largest_kb, SERVER_LIMIT_MB * 1024, what)

    def write(self, mount):
        subprocess.run(["dd", f"if={self.beside}", f"of={mount.path('f')}", "bs=1M",
                        "status=none"], check=True)

    def append(self, mount, size):
        data = self.bytes(PIECE)
        for path in (mount.path("f"), self.beside):
            with open(path, "ab") as file:
                for start in range(0, size, PIECE):
                    file.write(data[:size - start])

    def scatter(self, mount, count, size):
        """Writes at random places, in both files."""
        for path in (mount.path("f"), self.beside):
            places = random.Random(support.SEED)
            file = os.open(path, os.O_RDWR)
            for number in range(count):
                os.pwrite(file, number.to_bytes(8, "little").ljust(size, b"x")[:size],
                          places.randrange(SIZE - size))
            os.close(file)

    def truncate(self, mount, size):
        for path in (mount.path("f"), self.beside):
            os.truncate(path, size)

    def read(self, mount):
        self.assertEqual(file_digest(mount.path("f")), file_digest(self.beside))

    def read_backwards(self, mount):
        file = os.open(mount.path("f"), os.O_RDONLY)
        for start in range(SIZE - PIECE, 0, -17 * PIECE):
            os.pread(file, PIECE, start)
        os.close(file)

    def test_large(self):
        """Memory is bounded while a large file is written, changed and read."""
        print(f"\n# {SIZE >> 20} MB")
        with Mount("fs=docs") as mount:
            self.step(mount, "dd to a new file", lambda: self.write(mount))
            self.step(mount, "100 bytes appended", lambda: self.append(mount, 100))
            self.step(mount, "64 MB appended", lambda: self.append(mount, 64 << 20))
            self.step(mount, "8,000 writes of 4 kB", lambda: self.scatter(mount, 8000, 4096))
            self.step(mount, "20,000 writes of 4 kB", lambda: self.scatter(mount, 20_000, 4096))
            self.step(mount, "shortened by a byte", lambda: self.truncate(mount, SIZE - 1))
        with Mount("fs=docs") as mount:
            self.step(mount, "sha256sum", lambda: self.read(mount))
        with Mount("fs=docs") as mount:
            self.step(mount, "reads of 1 MB, backwards", lambda: self.read_backwards(mount))

    def test_many_ranges(self):
        """As many ranges as writes, were they not limited."""
        with Mount("fs=docs") as mount:
            self.write(mount)
            self.step(mount, "1,000,000 writes of a byte",
                      lambda: self.scatter(mount, 1_000_000, 1))


if __name__ == "__main__":
    support.main()
