"""Files that are made when they are closed, with their content in one statement, and changes whose
answer is lost.

Seen to fail before files were made so: test_one_statement, test_one_statement_in_a_group,
test_visible, test_attributes, test_program_is_killed; with a mark in each call of a group
test_mark_once_in_a_group; without note_unknown() test_answer_of_unlink_lost; without getattr() in
set_attributes() test_answer_of_setattr_lost.
"""

import contextlib
import errno
import fcntl
import os
import subprocess
import threading

import support
from proxy import CountingProxy, Proxy
from support import FileSystemTest, Mount


class CreateTest(FileSystemTest):
    def is_at_server(self, name):
        return self.one("SELECT EXISTS (SELECT FROM docs.dentry"
                        " WHERE name = convert_to(%s, 'UTF8'))", name)

    @staticmethod
    def write(path, data):
        with open(path, "wb") as file:
            file.write(data)

    def mount(self, options="timeout=0", conninfo="", first="first"):
        """A mount that has made a file, after which it may put off the making of others."""
        mount = Mount("fs=docs," + options, conninfo)
        self.write(mount.path(first), b"first")
        return mount

    def open_new(self, mount, name="f", data=b"content"):
        """A file that the server does not know yet."""
        file = os.open(mount.path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(file, data)
        self.assertFalse(self.is_at_server(os.path.basename(name)))
        return file

    def test_one_statement(self):
        """A new file costs one statement and one look-up."""
        proxy = CountingProxy()
        with self.mount("timeout=1", proxy.conninfo()) as mount:
            proxy.texts.clear()
            content = self.bytes(10_000)
            for number in range(20):
                self.write(mount.path(f"f{number}"), content)
            self.assertEqual(proxy.count("docs.create("), 20)
            self.assertEqual(proxy.count("docs.lookup("), 20)
            self.assertLess(proxy.count("docs."), 45)       # and numbers of inodes
            for number in range(20):
                self.assertEqual(self.server_read(f"/f{number}"), content)
        proxy.close()

    def test_one_statement_in_a_group(self):
        proxy = CountingProxy()
        with self.mount("timeout=1", proxy.conninfo()) as mount:
            tx = mount.path(".blobfs/tx/one")
            os.makedirs(os.path.join(tx, "d"))
            proxy.texts.clear()
            content = self.bytes(10_000)
            for number in range(20):
                file = os.open(os.path.join(tx, "d", f"f{number}"),
                               os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(file, content)
                os.fchmod(file, 0o640)
                os.close(file)
            support.wait_until(lambda: proxy.count("docs.create(") == 20, "the last file")
            self.assertLess(proxy.count("docs."), 25)
            with self.assertRaises(FileExistsError):
                os.open(os.path.join(tx, "d/f3"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.rename(os.path.join(tx, "d/f4"), os.path.join(tx, "d/g4"))
            os.link(os.path.join(tx, "d/f5"), os.path.join(tx, "d/g5"))
            os.symlink("f6", os.path.join(tx, "d/g6"))
            os.rename(tx, mount.path(".blobfs/commit/one"))
            names = {f"f{number}" for number in range(20) if number != 4} | {"g4", "g5", "g6"}
            self.assertEqual(set(os.listdir(mount.path("d"))), names)
            for name in names:
                self.assertEqual(self.server_read(f"/d/{name}"), content)
            self.assertEqual(os.stat(mount.path("d/f0")).st_mode & 0o7777, 0o640)
        proxy.close()

    def test_mark_once_in_a_group(self):
        """Versions of the mark's row would be passed by each call again."""
        proxy = CountingProxy()
        with self.mount("timeout=1", proxy.conninfo()) as mount:
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            proxy.texts.clear()
            for number in range(5):
                os.mkdir(os.path.join(tx, f"d{number}"))
            self.assertEqual(proxy.count("docs.mkdir("), 5)
            self.assertEqual(proxy.count("docs.mark("), 1)
            os.rename(tx, mount.path(".blobfs/commit/one"))
        proxy.close()

    def test_visible(self):
        """A new file is seen elsewhere when it is closed or synced."""
        with self.mount() as mount, Mount("fs=docs,timeout=0") as second:
            file = self.open_new(mount)
            self.assertFalse(os.path.exists(second.path("f")))
            found = os.fstat(file)
            self.assertEqual((found.st_size, found.st_nlink, found.st_uid), (7, 1, os.getuid()))
            os.close(file)
            self.assertEqual(second.read("f"), b"content")
            self.assertEqual(os.stat(second.path("f")).st_ino, found.st_ino)
            file = self.open_new(mount, "g")
            os.fsync(file)
            self.assertEqual(second.read("g"), b"content")
            os.write(file, b" more")
            os.close(file)
            self.assertEqual(second.read("g"), b"content more")
            self.write(mount.path("empty"), b"")
            self.assertEqual(second.read("empty"), b"")

    def test_open_for_long(self):
        """Others see it after some time, empty, though it is open."""
        with self.mount() as mount, Mount("fs=docs,timeout=0") as second:
            file = self.open_new(mount)
            support.wait_until(lambda: os.path.exists(second.path("f")), "the name")
            self.assertEqual(second.read("f"), b"")
            self.assertEqual(os.pread(file, 100, 0), b"content")
            os.close(file)
            self.assertEqual(second.read("f"), b"content")

    def test_other_requests(self):
        """Each of them finds the file though it is open and was not made yet."""
        def check_content(path):
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"content")

        def list_directory(path):
            self.assertIn(os.path.basename(path), os.listdir(os.path.dirname(path)))

        def check_exclusive(path):
            with self.assertRaises(FileExistsError):
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

        def check_directory(path):
            with self.assertRaises(OSError) as raised:
                os.rmdir(os.path.dirname(path))
            self.assertEqual(raised.exception.errno, errno.ENOTEMPTY)

        def sync_directory(path):
            directory = os.open(os.path.dirname(path), os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
            self.assertTrue(self.is_at_server(os.path.basename(path)))

        requests = {
            "stat": lambda path: self.assertEqual(os.stat(path).st_size, 7),
            "read": check_content,
            "list": list_directory,
            "exclusive": check_exclusive,
            "rmdir": check_directory,
            "fsync": sync_directory,
            "chown": lambda path: os.chown(path, os.getuid(), os.getgid()),
            "utime": lambda path: os.utime(path, ns=(5 * 10 ** 9, 6 * 10 ** 9)),
            "xattr": lambda path: os.setxattr(path, "user.a", b"1"),
            "link": lambda path: os.link(path, path + ".link"),
            "rename": lambda path: os.rename(path, path + ".renamed"),
            "over": lambda path: os.rename(path, os.path.join(os.path.dirname(path), "../first")),
            "truncate": lambda path: os.truncate(path, 3),
            "unlink": os.unlink,
        }
        places = {"rename": "d/rename.renamed", "over": "first"}
        contents = {"truncate": b"con", "unlink": None}
        with self.mount("timeout=60,xattr") as mount:
            os.mkdir(mount.path("d"))
            for name, request in requests.items():
                with self.subTest(name):
                    file = self.open_new(mount, "d/" + name)
                    request(mount.path("d", name))
                    os.close(file)
                    place, content = places.get(name, "d/" + name), contents.get(name, b"content")
                    if content is None:
                        self.assertFalse(os.path.exists(mount.path(place)))
                        continue
                    self.assertEqual(self.server_read("/" + place), content)
                    self.assertEqual(mount.read(place), content)
            found = os.stat(mount.path("d/utime"))
            self.assertEqual((found.st_atime, found.st_mtime), (5, 6))
            self.assertEqual(os.stat(mount.path("d/link")).st_nlink, 2)
            self.assertEqual(os.getxattr(mount.path("d/xattr"), "user.a"), b"1")

    def test_directory_time(self):
        """A new file changes the time of its directory."""
        with self.mount() as mount:
            os.mkdir(mount.path("d"))
            os.utime(mount.path("d"), ns=(10 ** 18, 10 ** 18))
            file = self.open_new(mount, "d/f")
            self.assertGreater(os.stat(mount.path("d")).st_mtime_ns, 10 ** 18)
            os.close(file)

    def test_attributes(self):
        """Mode and time are changed before the file is made, and made with it."""
        with self.mount() as mount:
            file = self.open_new(mount)
            os.fchmod(file, 0o751)
            os.utime(file, ns=(5 * 10 ** 9, 6 * 10 ** 9))
            found = os.fstat(file)
            self.assertEqual((found.st_mode & 0o7777, found.st_atime, found.st_mtime),
                             (0o751, 5, 6))
            self.assertFalse(self.is_at_server("f"))
            os.close(file)
            found = os.stat(mount.path("f"))
            self.assertEqual((found.st_mode & 0o7777, found.st_atime, found.st_mtime),
                             (0o751, 5, 6))
            self.assertEqual(self.sql.execute("SELECT mode, atime, mtime FROM docs.lookup(1, 'f')")
                             .fetchone(), (0o751, 5 * 10 ** 9, 6 * 10 ** 9))

    def test_two_mounts_one_name(self):
        """Last close wins, as for a file that was there."""
        with self.mount() as first, self.mount(first="second") as second:
            one, two = self.open_new(first, data=b"one, long"), self.open_new(second, data=b"two")
            os.close(one)
            self.assertEqual(second.read("f"), b"two")      # its own, which is open
            os.close(two)
            for mount in (first, second):
                self.assertEqual(mount.read("f"), b"two")
                self.assertEqual(os.listdir(mount.directory).count("f"), 1)
            self.assertEqual(os.stat(first.path("f")).st_ino, os.stat(second.path("f")).st_ino)
            one, two = self.open_new(first, "g", b""), self.open_new(second, "g", b"two")
            os.close(two)
            os.close(one)
            self.assertEqual((first.read("g"), second.read("g")), (b"", b""))

    def test_name_is_taken(self):
        """close() fails where another session has taken the name."""
        with self.mount() as mount:
            file = self.open_new(mount)
            self.sql.execute("SELECT blobfs.mkdir('docs', '/f')")
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.EISDIR)
            support.wait_until(lambda: os.path.isdir(mount.path("f")), "the directory")
            self.write(mount.path("first"), b"again")
            self.write(mount.path("second"), b"second")
            if os.getuid() != 0:
                file = self.open_new(mount, "g")
                self.sql.execute("SELECT docs.create(NULL, 1, 'g', 384, 12345, 12345, 'theirs',"
                                 " NULL)")
                with self.assertRaises(PermissionError):
                    os.close(file)
                self.assertEqual(self.server_read("/g"), b"theirs")

    def test_exclusive(self):
        """O_EXCL is decided at open()."""
        with self.mount() as first, self.mount(first="second") as second:
            file = os.open(first.path("lock"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with self.assertRaises(FileExistsError):
                os.open(second.path("lock"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.close(file)

    def test_locks(self):
        """A lock between mounts is that of one file."""
        with self.mount("timeout=0,locks=db") as first, \
                self.mount("timeout=0,locks=db", first="second") as second:
            one, two = self.open_new(first), self.open_new(second)
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self.assertRaises(BlockingIOError):
                fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(one)
            support.wait_until(lambda: support.can_lock(two), "the lock")
            os.close(two)

    def test_quota(self):
        """EDQUOT at close(), and at open() of the next one."""
        self.sql.execute("SELECT blobfs.set_quota('docs', 100000, 4)")
        with self.mount() as mount:
            file = self.open_new(mount, data=self.bytes(200_000))
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.EDQUOT)
            with contextlib.suppress(FileNotFoundError):    # when the kernel has released it
                self.assertEqual(mount.read("f"), b"")
                os.unlink(mount.path("f"))
            self.write(mount.path("second"), self.bytes(50_000))
            with self.assertRaises(OSError) as raised:
                self.write(mount.path("second"), self.bytes(150_000))
            self.assertEqual(raised.exception.errno, errno.EDQUOT)
            self.write(mount.path("third"), b"")
            file = self.open_new(mount, "fourth")
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.EDQUOT)
            with self.assertRaises(OSError) as raised:
                os.open(mount.path("fifth"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self.assertEqual(raised.exception.errno, errno.EDQUOT)
            self.write(mount.path("first"), b"first")
            os.unlink(mount.path("third"))
            self.write(mount.path("third"), b"")
            file = self.open_new(mount, "sixth", self.bytes(70_000))
            os.unlink(mount.path("sixth"))
            os.close(file)
            self.assertEqual(set(os.listdir(mount.directory)), {"first", "second", "third"})
            usage = os.statvfs(mount.directory)
            self.assertEqual((usage.f_files, usage.f_ffree), (4, 0))

    def test_no_right(self):
        """A role that may not make files is told by open()."""
        self.sql.execute("DROP ROLE IF EXISTS reader")
        self.sql.execute("CREATE ROLE reader LOGIN")
        self.sql.execute("SELECT blobfs.grant('docs', 'reader', 'read')")
        with Mount("fs=docs", f"user=reader dbname={self.database}") as mount:
            for _ in range(2):
                with self.assertRaises(PermissionError):
                    os.open(mount.path("f"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.sql.execute("SELECT blobfs.grant('docs', 'reader', 'none')")
        self.sql.execute("DROP ROLE reader")

    def test_program_is_killed(self):
        """A new file of a killed program is not there."""
        with self.mount() as mount:
            self.open_new(mount)
            mount.kill()
            mount.start()
            self.assertEqual(os.listdir(mount.directory), ["first"])

    def run_with_cut(self, moment):
        proxy = Proxy()
        with self.mount("timeout=0", proxy.conninfo()) as mount:
            content = self.bytes(10_000)
            proxy.cut("docs.create(", moment)
            self.write(mount.path("f"), content)
            self.assertEqual(proxy.rules, [])
            self.assertEqual(self.server_read("/f"), content)
            self.assertEqual(mount.read("f"), content)
            file = self.open_new(mount, "g")
            proxy.cut("docs.create(", moment)
            self.assertIn("g", os.listdir(mount.directory))
            self.assertEqual(proxy.rules, [])
            os.close(file)
            self.assertEqual(self.server_read("/g"), b"content")
        proxy.close()

    def test_not_sent(self):
        """A new file whose request was not sent is stored."""
        self.run_with_cut("before")

    def test_answer_lost(self):
        """A new file whose answer was lost is stored once."""
        self.run_with_cut("after")

    def test_lost_in_between(self):
        """A new file whose connection was lost in between is stored once."""
        self.run_with_cut("during")

    def test_answer_of_unlink_lost(self):
        """Attributes of the inode are old, and an open file may have no name any more."""
        proxy = Proxy()
        with self.mount("timeout=100", proxy.conninfo()) as mount:
            self.write(mount.path("f"), b"content")
            os.link(mount.path("f"), mount.path("g"))
            self.assertEqual(os.stat(mount.path("f")).st_nlink, 2)
            proxy.cut("docs.unlink(", "after")
            os.unlink(mount.path("g"))
            self.assertEqual(os.stat(mount.path("f")).st_nlink, 1)
            file = os.open(mount.path("f"), os.O_RDWR)
            proxy.cut("docs.unlink(", "after")
            os.unlink(mount.path("f"))
            self.assertEqual(proxy.rules, [])
            os.write(file, b"more")
            self.assertEqual(os.fstat(file).st_nlink, 0)
            os.close(file)
        proxy.close()

    def test_answer_of_setattr_lost(self):
        proxy = Proxy()
        with self.mount("timeout=100", proxy.conninfo()) as mount:
            proxy.cut("docs.setattr(", "after")
            os.chmod(mount.path("first"), 0o751)
            self.assertEqual(proxy.rules, [])
            self.assertEqual(os.stat(mount.path("first")).st_mode & 0o7777, 0o751)
        proxy.close()

    def test_group_is_rolled_back(self):
        with self.mount() as mount:
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            file = os.open(os.path.join(tx, "f"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(file, b"content")
            os.rmdir(tx)
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.ESTALE)
            os.mkdir(tx)
            file = os.open(os.path.join(tx, "g"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(file, b"content")
            os.rename(tx, mount.path(".blobfs/commit/one"))
            os.close(file)
            self.assertEqual(set(os.listdir(mount.directory)), {"first", "g"})
            self.assertEqual(self.server_read("/g"), b"content")

    def test_many_at_once(self):
        """Threads make, list, rename and remove files of one directory."""
        with self.mount() as mount, Mount("fs=docs,timeout=0") as second:
            os.mkdir(mount.path("d"))
            faults = []

            def work(number):
                try:
                    for turn in range(30):
                        path = mount.path("d", f"{number}.{turn}")
                        data = f"{number} {turn}\n".encode() * 100
                        self.write(path, data)
                        if turn % 3 == 0:
                            os.rename(path, path + ".renamed")
                        elif turn % 3 == 1:
                            os.unlink(path)
                        elif turn % 5 == 0:
                            os.listdir(mount.path("d"))
                except OSError as error:
                    faults.append(error)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(faults, [])
            expected = {}
            for number in range(4):
                for turn in range(30):
                    if turn % 3 != 1:
                        name = f"{number}.{turn}" + (".renamed" if turn % 3 == 0 else "")
                        expected[name] = f"{number} {turn}\n".encode() * 100
            for other in (mount, second):
                self.assertEqual(set(os.listdir(other.path("d"))), set(expected))
                for name, data in expected.items():
                    self.assertEqual(other.read("d", name), data)

    def test_shell(self):
        """The shell closes a copy of the descriptor before its command writes."""
        with self.mount() as mount:
            subprocess.run(["sh", "-ec", "echo one > f; echo two >> f; (echo three; cat f) > g"],
                           cwd=mount.directory, check=True)
            self.assertEqual(self.server_read("/g"), b"three\none\ntwo\n")


if __name__ == "__main__":
    support.main()
