"""Random reads through mounts while SQL changes what they show, against a model.

One thread changes rows, vacuums, collects and checkpoints, and checks what the mount says then.
It keeps some files open, which must not change.  Other threads read at the same time: every file
that they read must be one version that this path has had, never a mixture.

BLOBEXT_MOUNT_SEED is the seed, BLOBEXT_MOUNT_STEPS the number of steps of each test.

Seen to fail: with version = NULL in fs_read() (an open file changes).
"""

import os
import random
import threading

import support
from support import Mount, MountTest, digest

STEPS = int(os.environ.get("BLOBEXT_MOUNT_STEPS", "150"))
SIZES = [0, 500, 9000, 131072, 131073, 300_000, 1_048_577, 2_500_000, 2_500_000]
NAMES = [f"{directory}{name}" for directory in ("", "a/", "a/b/", "c/") for name in "uv"]


class Table:
    """The model's side of a table view."""

    options = "table=document,path=path,content=content"

    def __init__(self, test):
        self.test = test
        test.make_table("document")

    def write(self, path, content):
        self.test.put("document", path, content)

    def delete(self, path):
        self.test.sql.execute("DELETE FROM document WHERE path = %s", (path,))

    def rename(self, path, other):
        with self.test.sql.transaction():
            self.delete(other)
            self.test.sql.execute("UPDATE document SET path = %s WHERE path = %s", (other, path))

    def end(self):
        pass


class FileSystem:
    """The model's side of a file system."""

    options = "fs=docs,ro"

    def __init__(self, test):
        self.test = test
        self.call("create")
        self.call("mkdir", "/a/b", True)
        self.call("mkdir", "/c")

    def call(self, name, *arguments):
        marks = "".join([", %s"] * len(arguments))
        self.test.sql.execute(f"SELECT blobfs.{name}('docs'{marks})", arguments)

    def write(self, path, content):
        self.call("write", "/" + path, content)

    def delete(self, path):
        self.call("unlink", "/" + path)

    def rename(self, path, other):
        self.call("rename", "/" + path, "/" + other)

    def end(self):
        self.call("drop")


class Readers:
    """Threads that read all files there are; errors go to problems."""

    def __init__(self, mount, known, seed, count=2):
        self.mount = mount
        self.known = known          # path to digests it has had, and may have soon
        self.problems = []
        self.files = 0
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed + number),))
                        for number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, generator):
        while not self.stopping.is_set():
            path = generator.choice(NAMES)
            try:
                found = self.read(self.mount.path(path), generator)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.problems.append(f"{path}: {error}")
                continue
            self.files += 1
            if found not in self.known[path]:
                self.problems.append(f"{path}: content that it never had")

    @staticmethod
    def read(path, generator):
        size = generator.choice([5000, 70_000, 200_000, 3_000_000])
        with open(path, "rb", 0) as file:
            parts = []
            while part := file.read(size):
                parts.append(part)
        return digest(b"".join(parts))

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


class FuzzTest(MountTest):
    def setUp(self):
        self.model = {}
        self.known = {name: set() for name in NAMES}
        self.open_files = []

    def step(self, side, mount):
        choose = self.random.random()
        path = self.random.choice(NAMES)
        if choose < 0.35:
            content = self.bytes(self.random.choice(SIZES))
            self.known[path].add(digest(content))
            side.write(path, content)
            self.model[path] = content
        elif choose < 0.45 and path in self.model:
            side.delete(path)
            del self.model[path]
        elif choose < 0.55 and path in self.model:
            other = self.random.choice([name for name in NAMES if name != path])
            self.known[other].add(digest(self.model[path]))
            side.rename(path, other)
            self.model[other] = self.model.pop(path)
        elif choose < 0.7 and path in self.model and len(self.open_files) < 20:
            self.open_files.append((open(mount.path(path), "rb", 0), self.model[path]))
        elif choose < 0.77 and self.open_files:
            self.check_open(self.open_files.pop(self.random.randrange(len(self.open_files))))
        elif choose < 0.81:
            self.clean()
        elif path in self.model:
            self.assertEqual(digest(mount.read(path)), digest(self.model[path]), path)
        else:
            self.assertFalse(os.path.lexists(mount.path(path)), path)

    def check_open(self, opened):
        file, content = opened
        with file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            offset = self.random.randrange(len(content) + 1)
            self.assertEqual(digest(os.pread(file.fileno(), 50_000, offset)),
                             digest(content[offset:offset + 50_000]))
            self.assertEqual(digest(file.read()), digest(content))

    def clean(self):
        command = self.random.choice(["VACUUM (INDEX_CLEANUP ON)", "SELECT * FROM blobext_gc()",
                                      "CHECKPOINT"])
        self.sql.execute(command)

    def check_tree(self, mount):
        found = set()
        for place, _, names in os.walk(mount.directory):
            relative = os.path.relpath(place, mount.directory)
            found |= {os.path.normpath(os.path.join(relative, name)) for name in names}
        self.assertEqual(found, set(self.model))
        for path, content in self.model.items():
            self.assertEqual(digest(mount.read(path)), digest(content), path)

    def run_side(self, side, options):
        with Mount(side.options + options) as mount:
            readers = Readers(mount, self.known, support.SEED)
            try:
                for number in range(STEPS):
                    self.step(side, mount)
                    self.assertEqual(readers.problems, [], f"step {number}")
                self.check_tree(mount)
            finally:
                readers.stop()
                while self.open_files:
                    self.check_open(self.open_files.pop())
            self.assertEqual(readers.problems, [])
            self.assertGreater(readers.files, 0)
        side.end()

    def test_table(self):
        """Random reads of a table agree with the model."""
        self.run_side(Table(self), ",timeout=0")

    def test_table_small_cache(self):
        """Random reads of a table with a small cache agree with the model."""
        self.run_side(Table(self), ",timeout=0,cache=8,connections=2")

    def test_file_system(self):
        """Random reads of a file system agree with the model."""
        self.run_side(FileSystem(self), ",timeout=0,cache=8")


if __name__ == "__main__":
    support.main()
