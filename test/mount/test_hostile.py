"""A server that is not ours: answers without columns, with NULLs, of wrong lengths, without end.

A proxy changes one answer of the server, another one each time.  Programs may get errors; blobfs
neither crashes nor hangs, and its memory has a limit.

Seen to fail with the program before it counted columns and rows: SIGSEGV by answers without
columns, and memory that grew as long as rows came.
"""

import os
import subprocess
import sys

import support
from proxy import Proxy
from support import FileSystemTest, Mount, digest

HOW = ("columns", "nulls", "lengths", "long", "rows", "none", "copy")
# Answers of each kind that are changed; 0: all, which takes long.
ANSWERS = int(os.environ.get("BLOBEXT_MOUNT_ROUNDS", "4"))
# A cache of 8 MB, a chunk for each thread, libpq's copies; a file of 3 MB is read.
MAX_MEMORY_KB = 150_000

PROGRAM = r"""
import fcntl, os, sys
root = sys.argv[1]
def path(*names): return os.path.join(root, *names)
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, EOFError):
        return None
def read(name):
    with open(path(name), "rb") as file:
        while file.read(1 << 20):
            pass
def write(name, data, mode):
    with open(path(name), mode) as file:
        file.write(data)
def change(name):
    with open(path(name), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.seek(1000)
        file.write(b"changed")
        os.fsync(file.fileno())
        file.truncate(2000)
for name in ("", "d", ".snapshots", ".snapshots/one"):
    for entry in attempt(os.listdir, path(name)) or []:
        attempt(os.lstat, path(name, entry))
for name in ("large", "d/1", "d/2", "d/3", ".snapshots/one/d/1"):
    attempt(read, name)
attempt(os.readlink, path("link"))
for name in ("large", "d/1"):
    attempt(os.listxattr, path(name))
    attempt(os.getxattr, path(name), "user.sha256")
    attempt(os.getxattr, path(name), "user.own")
attempt(os.statvfs, root)
if len(sys.argv) > 2:
    attempt(write, "new", b"x" * 20000, "wb")
    attempt(write, "new", b"y" * 3000000, "ab")
    attempt(write, "exclusive", b"", "xb")
    attempt(change, "large")
    attempt(change, "new")
    attempt(os.mkdir, path("made"))
    attempt(os.rename, path("new"), path("made/new"))
    attempt(os.link, path("made/new"), path("made/other"))
    attempt(os.symlink, "x", path("made/link"))
    attempt(os.setxattr, path("large"), "user.own", b"value")
    attempt(os.removexattr, path("large"), "user.own")
    attempt(os.chmod, path("large"), 0o600)
    for name in ("made/new", "made/other", "made/link", "exclusive"):
        attempt(os.unlink, path(name))
    attempt(os.rmdir, path("made"))
"""


class HostileServerTest(FileSystemTest):
    @classmethod
    def make_file_system(cls):
        super().make_file_system()
        cls.sql.execute("SELECT blobfs.write('docs', '/large', %s)", (b"l" * 3_000_000,))
        cls.sql.execute("SELECT blobfs.mkdir('docs', '/d'), blobfs.symlink('docs', 'd', '/link')")
        for name in ("1", "2", "3"):
            cls.sql.execute("SELECT blobfs.write('docs', '/d/' || %s, %s)", (name, b"small"))
        cls.sql.execute("UPDATE docs.inode SET uid = %s, gid = %s, xattr = '{user.own,v}'"
                        " WHERE kind = 'f'", (os.getuid(), os.getgid()))
        cls.sql.execute("SELECT blobfs.snapshot('docs', 'one')")

    def run_with(self, options, number, how):
        """Everything, with one answer changed; how many answers there were."""
        proxy = Proxy()
        proxy.mangled = (number, how)
        program = [sys.executable, "-c", PROGRAM]
        what = f"answer {number}: {how}"
        try:
            mount = Mount(f"{options},timeo=1,timeout=0,cache=8", proxy.conninfo())
        except AssertionError as error:
            # It says what is wrong, and ends.
            self.assertIsNotNone(how, error)
            self.assertIn("blobfs has ended: blobfs: ", str(error), what)
            return proxy.answers
        try:
            subprocess.run([*program, mount.directory, *(["write"] if "ro" not in options else [])],
                           timeout=support.PATIENCE_SECONDS, check=True)
            self.assertIsNone(mount.process.poll(), f"{what}: {mount.messages()}")
            self.assertLess(mount.memory_kb(), MAX_MEMORY_KB, what)
            self.assertEqual(mount.stop(), 0, f"{what}: {mount.messages()}")
        finally:
            mount.stop()
            mount.errors.close()
            os.rmdir(mount.directory)
        return proxy.answers

    def check_all(self, options):
        count = self.run_with(options, 0, None)
        self.assertGreater(count, 20)
        for how in HOW:
            numbers = range(1, count + 1)
            if ANSWERS:
                numbers = self.random.sample(numbers, min(ANSWERS, count))
            for number in numbers:
                self.run_with(options, number, how)

    def test_file_system(self):
        """Answers of a hostile server do no harm to a file system's mount."""
        self.check_all("fs=docs,xattr,locks=db")

    def test_table(self):
        """Answers of a hostile server do no harm to a table's mount."""
        self.make_table("item")
        for name in ("large", "d/1", "d/2", "d/3"):
            size = 3_000_000 if name == "large" else 100
            support.MountTest.put(self, "item", name, b"x" * size)
        self.check_all("table=item,path=path,content=content,xattr,ro")

    def test_unchanged(self):
        """The proxy itself changes nothing."""
        with Mount("fs=docs", Proxy().conninfo()) as mount:
            self.assertEqual(digest(mount.read("large")), digest(b"l" * 3_000_000))


if __name__ == "__main__":
    support.main()
