"""The reading side of a file system that blobfs.create() has made, changed by SQL.

Seen to fail: without the snapshot in search_key() test_snapshots, with another inode in process()
of notify.c test_notify, without keep_looked_up() test_replaced_before_open, without drop_served()
or without chunks from the beginning test_read_in_chunks.
"""

import ctypes
import errno
import os
import stat

import psycopg

import support
from proxy import CountingProxy, Proxy
from support import Mount, MountTest, digest, refused


class ReplacingProxy(Proxy):
    """Gives a file other content before it sends a statement on, several times."""

    def __init__(self, pattern, times, size):
        self.pattern = pattern.encode()
        self.left = self.times = times
        self.size = size
        super().__init__()

    def match(self, text):
        if self.pattern in text and self.left > 0:
            self.left -= 1
            with psycopg.connect(autocommit=True) as connection:
                connection.execute("SELECT blobfs.write('docs', '/file', %s::bytea)",
                                   (bytes([1 + self.times - self.left]) * self.size,))
        return None


class ReadFileSystemTest(MountTest):
    def setUp(self):
        self.sql.execute("SELECT blobfs.create('docs')")
        self.addCleanup(lambda: self.sql.execute("SELECT blobfs.drop('docs')"))

    def write(self, path, content):
        self.sql.execute("SELECT blobfs.write('docs', %s, %s::bytea)", (path, content))

    def call(self, name, *arguments):
        marks = ", ".join(["%s"] * len(arguments))
        return self.one(f"SELECT blobfs.{name}('docs', {marks})", *arguments)

    def test_read_in_chunks(self):
        """A program that begins with a large piece gets chunks, and their memory is used again."""
        content = self.bytes(40_000_000)
        self.write("/file", content)
        proxy = CountingProxy()
        with Mount("fs=docs,ro", proxy.conninfo()) as mount:
            self.assertEqual(support.file_digest(mount.path("file")), digest(content))
            self.assertLessEqual(proxy.count("docs.read("), 40)
            self.assertLess(mount.memory_kb(), 36_000)
        proxy.close()

    def test_tree(self):
        """A mount has the files, directories and links of the tree."""
        contents = {"a/b/file": self.bytes(3_000_000), "a/small": b"small", "empty": b"",
                    "a/b/\N{LATIN SMALL LETTER U WITH DIAERESIS}": b"name"}
        self.call("mkdir", "/a/b", True)
        for path, content in contents.items():
            self.write("/" + path, content)
        self.call("symlink", "a/small", "/link")
        self.call("link", "/a/small", "/hard")
        with Mount("fs=docs,ro") as mount:
            for path, content in contents.items():
                self.assertEqual(digest(mount.read(path)), digest(content))
            self.assertEqual(set(os.listdir(mount.directory)), {"a", "empty", "link", "hard"})
            self.assertEqual(os.readlink(mount.path("link")), "a/small")
            self.assertEqual(mount.read("link"), b"small")
            one, other = os.stat(mount.path("hard")), os.stat(mount.path("a/small"))
            self.assertEqual((one.st_ino, one.st_nlink), (other.st_ino, 2))
            self.assertTrue(stat.S_ISDIR(os.stat(mount.path("a")).st_mode))
            self.assertEqual(os.stat(mount.path("a")).st_nlink, 3)
            usage = os.statvfs(mount.directory)
            self.assertGreater(usage.f_blocks, usage.f_bfree)
            with self.assertRaises(OSError) as caught:
                os.mkdir(mount.path("new"))
            self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_large_directory(self):
        """A directory of 2,500 files is listed whole."""
        count = 2500
        self.call("mkdir", "/d")
        self.sql.execute("SELECT blobfs.write('docs', '/d/' || n, convert_to(n::text, 'UTF8'))"
                         " FROM generate_series(1, %s) n", (count,))
        with Mount("fs=docs,ro") as mount:
            names = os.listdir(mount.path("d"))
            self.assertEqual(len(names), count)
            self.assertEqual(set(names), {str(n) for n in range(1, count + 1)})
            for name in sorted(names)[:300]:
                self.assertEqual(mount.read("d", name), name.encode())

    def test_positions_in_a_directory(self):
        """A listing goes on at any place where it was before, also at ".." of a directory that has
        been read to a later page.  Seen to fail (the program crashed, generic/676 of xfstests)."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
        libc.telldir.restype = ctypes.c_long

        def read_name():
            entry = libc.readdir(directory)
            return ctypes.string_at(entry + 19) if entry else None

        self.sql.execute("SELECT blobfs.mkdir('docs', '/places')")
        self.sql.execute("SELECT count(blobfs.write('docs', '/places/' || n, ''))"
                         " FROM generate_series(1, 2500) AS n")
        with Mount("fs=docs,ro") as mount:
            directory = ctypes.c_void_p(libc.opendir(mount.path("places").encode()))
            names = []
            places = [libc.telldir(directory)]
            while (name := read_name()) is not None:
                names.append(name)
                places.append(libc.telldir(directory))
            self.assertEqual((len(names), names[:2]), (2502, [b".", b".."]))
            chosen = [2400, 1, 1700, 0, 2501, 1, 1001, 1002, 1, 2]
            for number in chosen + [self.random.randrange(2502) for _ in range(100)]:
                libc.seekdir(directory, ctypes.c_long(places[number]))
                self.assertEqual([read_name() for _ in range(3)], (names[number:] + [None] * 3)[:3])
            libc.closedir(directory)

    def test_open_file_survives(self):
        """An open file keeps content that was replaced or unlinked."""
        large, small = self.bytes(2_000_000), self.bytes(2000)
        self.write("/large", large)
        self.write("/small", small)
        with Mount("fs=docs,ro,timeout=0") as mount:
            files = [open(mount.path(name), "rb", 0) for name in ("large", "small")]
            self.write("/large", b"new")
            self.call("unlink", "/small")
            self.sql.execute("SELECT * FROM blobext_gc()")
            self.assertEqual(mount.read("large"), b"new")
            self.assertFalse(os.path.exists(mount.path("small")))
            for file, content in zip(files, (large, small)):
                self.assertEqual(digest(file.read()), digest(content))
                self.assertEqual(os.fstat(file.fileno()).st_size, len(content))
                file.close()

    def test_replaced_before_open(self):
        """open() finds the new version however often it is replaced between look-up and open."""
        for size in (300_000, 5000):
            proxy = ReplacingProxy("blobfs.pin(" if size > 128 * 1024 else "docs.read(", 6, size)
            self.write("/file", bytes([1]) * size)
            with Mount("fs=docs,ro", proxy.conninfo()) as mount:
                self.assertEqual(mount.read("file"), bytes([7]) * size)
                self.assertEqual(proxy.left, 0)
            proxy.close()

    def test_attributes_of_others(self):
        """Attributes that SQL changes are seen, with timeout=0 at once."""
        self.write("/file", b"content")
        with Mount("fs=docs,ro,timeout=0") as mount:
            with open(mount.path("file"), "rb") as file:
                self.sql.execute("UPDATE docs.inode SET mode = 384, mtime = 1000000001"
                                 " WHERE kind = 'f'")
                found = os.fstat(file.fileno())
                self.assertEqual(found.st_mode & 0o7777, 0o600)
                self.assertEqual(found.st_mtime_ns, 1000000001)

    def test_snapshots(self):
        """A snapshot has the files of its moment."""
        self.call("mkdir", "/d")
        self.write("/d/file", b"one")
        self.call("snapshot", "first")
        self.write("/d/file", b"another")
        self.write("/d/new", b"new")
        self.call("snapshot", "second")
        self.call("unlink", "/d", True)
        with Mount("fs=docs,ro") as mount, Mount("fs=docs,at=first") as first:
            self.assertEqual(os.listdir(mount.directory), [])
            self.assertEqual(set(os.listdir(mount.path(".snapshots"))), {"first", "second"})
            self.assertEqual(mount.read(".snapshots/first/d/file"), b"one")
            self.assertEqual(mount.read(".snapshots/second/d/file"), b"another")
            self.assertEqual(os.listdir(mount.path(".snapshots/first/d")), ["file"])
            self.assertFalse(os.path.exists(mount.path(".snapshots/third")))
            self.assertEqual(first.read("d/file"), b"one")
            self.assertFalse(os.path.exists(first.path(".snapshots")))
        self.assertIn('no snapshot "third"', refused("fs=docs,at=third"))

    def test_notify(self):
        """A mount that listens drops what has changed."""
        self.assertIn("does not notify", refused("fs=docs,ro,notify"))
        self.sql.execute("SELECT blobfs.set_notify('docs', true)")
        self.call("mkdir", "/d")
        self.write("/d/file", b"one")
        self.call("link", "/d/file", "/other")
        with Mount("fs=docs,ro,notify,timeout=0") as mount:
            support.wait_until(lambda: self.one("SELECT count(*) FROM pg_stat_activity"
                                                " WHERE query ~ '^LISTEN'"), "LISTEN")
            self.assertEqual(os.listdir(mount.path("d")), ["file"])
            self.assertEqual((mount.read("d/file"), mount.read("other")), (b"one", b"one"))
            self.write("/d/file", b"another")
            for name in ("d/file", "other"):
                support.wait_until(lambda name=name: mount.read(name) == b"another", name)
            self.call("rename", "/d/file", "/d/renamed")
            support.wait_until(lambda: not os.path.exists(mount.path("d/file")), "the old name")
            self.assertEqual(mount.read("d/renamed"), b"another")

    def test_xattrs(self):
        """Extended attributes of a file are read."""
        self.write("/file", b"content")
        self.sql.execute("SELECT * FROM docs.setxattr((SELECT ino FROM docs.dentry"
                         " WHERE name = 'file'), 'user.note', 'text', 0)")
        with Mount("fs=docs,ro,xattr") as mount:
            self.assertEqual(os.listxattr(mount.path("file")), ["user.note"])
            self.assertEqual(os.getxattr(mount.path("file"), "user.note"), b"text")
            with self.assertRaises(OSError) as caught:
                os.getxattr(mount.path("file"), "user.other")
            self.assertEqual(caught.exception.errno, errno.ENODATA)

    def test_restart(self):
        """An open file is read on after a restart of the server."""
        content = self.bytes(2_000_000)
        self.write("/file", content)
        with Mount("fs=docs,ro") as mount:
            with open(mount.path("file"), "rb", 0) as file:
                part = file.read(100_000)
                self.sql.close()
                support.restart_server()
                self.connect()
                self.assertEqual(digest(part + file.read()), digest(content))


if __name__ == "__main__":
    support.main()
