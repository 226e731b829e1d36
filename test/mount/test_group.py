"""Transactions of many files: directories of .blobfs/tx, and "blobfs tx".

Seen to fail: without group_bind() in request_node() every test here; without copies_commit()
test_open_files; without the snapshot in search() of copies.c test_one_file_in_two; without
group_fail() test_error_after_close and test_lost_connection_after_close; with a COMMIT that waits
for the sender's queue test_other_transaction_waits; without is_queued in make_now(), on a loaded
machine, test_sent_after_close, in about every third run.
"""

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time

import support
from proxy import Proxy
from support import PROGRAM, FileSystemTest, Mount, digest


class GroupTest(FileSystemTest):
    @staticmethod
    def write(path, data):
        with open(path, "wb") as file:
            file.write(data)

    def make_tree(self, root):
        os.makedirs(os.path.join(root, "a/b"))
        self.write(os.path.join(root, "a/b/small"), b"small")
        self.write(os.path.join(root, "a/large"), self.bytes(12_000_000))
        os.symlink("small", os.path.join(root, "a/b/link"))
        os.rename(os.path.join(root, "a/b/small"), os.path.join(root, "a/small"))
        with open(os.path.join(root, "a/small"), "ab") as file:
            file.write(b" and more")

    def test_commit(self):
        """A transaction is seen elsewhere when it is renamed to commit."""
        with Mount("fs=docs,timeout=0") as mount:
            tx = mount.path(".blobfs/tx/one")
            self.assertNotIn(".blobfs", os.listdir(mount.directory))
            os.mkdir(tx)
            self.make_tree(tx)
            self.assertEqual(os.listdir(mount.path(".blobfs/tx")), ["one"])
            self.assertEqual(os.listdir(mount.directory), [])
            with open(os.path.join(tx, "a/small"), "rb") as file:
                self.assertEqual(file.read(), b"small and more")
            os.rename(tx, mount.path(".blobfs/commit/one"))
            self.assertEqual(mount.read("a/small"), b"small and more")
            self.assertEqual(os.stat(mount.path("a/large")).st_size, 12_000_000)
            self.assertEqual(os.listdir(mount.path(".blobfs/tx")), [])
            with self.assertRaises(OSError):
                os.listdir(tx)
            os.mkdir(tx)			# the name is free again
            os.rmdir(tx)

    def test_roll_back(self):
        """A transaction whose directory is removed has changed nothing."""
        with Mount("fs=docs,timeout=0") as mount:
            self.write(mount.path("f"), b"old")
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            self.make_tree(tx)
            self.write(os.path.join(tx, "f"), b"new")
            self.assertEqual(mount.read("f"), b"old")
            os.rmdir(tx)
            self.assertEqual(mount.read("f"), b"old")
            self.assertEqual(os.listdir(mount.directory), ["f"])

    def test_one_file_in_two(self):
        """The file of the mount and that of a transaction are two files of one name."""
        with Mount("fs=docs,timeout=0") as mount:
            self.write(mount.path("f"), b"0123456789")
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            with open(mount.path("f"), "r+b", buffering=0) as outside, \
                    open(os.path.join(tx, "f"), "r+b", buffering=0) as inside:
                inside.write(b"in")
                self.assertEqual(outside.read(), b"0123456789")
                inside.seek(0)
                self.assertEqual(inside.read(), b"in23456789")
            os.rename(tx, mount.path(".blobfs/commit/one"))
            self.assertEqual(mount.read("f"), b"in23456789")

    def test_many_ranges_of_a_file_that_the_transaction_has_made(self):
        """A write() of more ranges than a working copy keeps apart reads what lies between them, in
        the transaction.  Seen to fail without request_node() in op_write()."""
        content = bytearray(self.bytes(1_000_000))
        with Mount("fs=docs,timeout=0") as mount:
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            self.write(os.path.join(tx, "f"), content)
            file = os.open(os.path.join(tx, "f"), os.O_RDWR)
            for place in range(0, len(content), 8):
                # Another file, so that a thread has served its requests before.
                if place % 100_000 == 0:
                    os.stat(mount.directory)
                os.pwrite(file, b"x", place)
            os.close(file)
            os.rename(tx, mount.path(".blobfs/commit/one"))
            content[::8] = b"x" * len(content[::8])
            self.assertEqual(digest(self.server_read("/f")), digest(bytes(content)))

    def test_open_files(self):
        """Commit sends what open files have."""
        with Mount("fs=docs,timeout=0") as mount:
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            with open(os.path.join(tx, "f"), "wb", buffering=0) as file:
                file.write(b"written")
                os.rename(tx, mount.path(".blobfs/commit/one"))
                self.assertEqual(self.server_read("/f"), b"written")

    def test_limits(self):
        """Transactions are as many as connections allow, and of one name each."""
        with Mount("fs=docs,connections=4") as mount:
            for name in "ab":
                os.mkdir(mount.path(".blobfs/tx", name))
            with self.assertRaises(OSError) as raised:
                os.mkdir(mount.path(".blobfs/tx/c"))
            self.assertEqual(raised.exception.errno, errno.EAGAIN)
            with self.assertRaises(FileExistsError):
                os.mkdir(mount.path(".blobfs/tx/a"))
            self.write(mount.path("f"), b"beside them")
            for call in (lambda: os.mkdir(mount.path(".blobfs/d")),
                         lambda: self.write(mount.path(".blobfs/tx/f"), b""),
                         lambda: os.rename(mount.path("f"), mount.path(".blobfs/tx/a/f")),
                         lambda: os.rename(mount.path(".blobfs/tx/a"), mount.path("a")),
                         lambda: os.link(mount.path("f"), mount.path(".blobfs/tx/a/f"))):
                with self.assertRaises(OSError):
                    call()
            os.rmdir(mount.path(".blobfs/tx/a"))
            os.mkdir(mount.path(".blobfs/tx/c"))

    def test_lost_connection(self):
        """A transaction whose connection is lost is gone; one whose COMMIT was answered is not."""
        proxy = Proxy()
        with Mount("fs=docs,timeout=0", proxy.conninfo()) as mount:
            tx = mount.path(".blobfs/tx/one")
            for pattern, moment, is_there in [("docs.mkdir(", "after", False),
                                              ("COMMIT", "before", False),
                                              ("COMMIT", "after", True)]:
                os.mkdir(tx)
                proxy.cut(pattern, moment)
                if pattern == "COMMIT":
                    os.mkdir(os.path.join(tx, "d"))
                    if is_there:
                        os.rename(tx, mount.path(".blobfs/commit/one"))
                    else:
                        with self.assertRaises(OSError):
                            os.rename(tx, mount.path(".blobfs/commit/one"))
                else:
                    with self.assertRaises(OSError):
                        os.mkdir(os.path.join(tx, "d"))
                    with self.assertRaises(OSError):
                        os.mkdir(os.path.join(tx, "e"))
                    with self.assertRaises(OSError):
                        os.rename(tx, mount.path(".blobfs/commit/one"))
                self.assertEqual(os.path.exists(mount.path("d")), is_there, (pattern, moment))
                self.assertEqual(os.listdir(mount.path(".blobfs/tx")), [])
        proxy.close()

    def begin_with_directory(self, mount):
        """A transaction and a directory that it has made: small files there are sent after
        close()."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(mount.path("first"))
        self.write(mount.path("first"), b"made at once")
        tx = mount.path(".blobfs/tx/one")
        os.makedirs(os.path.join(tx, "d"))
        return tx, os.path.join(tx, "d")

    def test_sent_after_close(self):
        """Files are changed right after close(); the last ones are under way at COMMIT, and at
        rollback."""
        with Mount("fs=docs,timeout=0") as mount:
            for commits in False, True:
                tx, directory = self.begin_with_directory(mount)
                expected = {}
                for number in range(300):
                    name = f"f{number}"
                    path = os.path.join(directory, name)
                    size = self.random.choice([0, 1, 10_000, 100_000, 200_000])
                    expected[name] = self.bytes(size)
                    self.write(path, expected[name])
                    what = self.random.choice(["", "", "append", "read", "move", "remove", "cut"])
                    if what == "append":
                        with open(path, "ab") as file:
                            file.write(b"more")
                        expected[name] += b"more"
                    elif what == "read":
                        with open(path, "rb") as file:
                            self.assertEqual(file.read(), expected[name])
                    elif what == "move":
                        os.rename(path, path + "x")
                        expected[name + "x"] = expected.pop(name)
                    elif what == "remove":
                        os.unlink(path)
                        del expected[name]
                    elif what == "cut":
                        os.truncate(path, len(expected[name]) // 2)
                        expected[name] = expected[name][:len(expected[name]) // 2]
                if commits:
                    os.rename(tx, mount.path(".blobfs/commit/one"))
                    found = {name: self.server_read(f"d/{name}")
                             for name in os.listdir(mount.path("d"))}
                    self.assertEqual(found, expected)
                else:
                    os.rmdir(tx)
                    self.assertFalse(os.path.exists(mount.path("d")))

    def test_error_after_close(self):
        """An error after close() is that of COMMIT, and nothing of the transaction remains."""
        self.sql.execute("ALTER TABLE docs.dentry ADD CONSTRAINT not_bad CHECK (name <> 'bad')")
        with Mount("fs=docs,timeout=0") as mount:
            tx, directory = self.begin_with_directory(mount)
            for name in "good", "bad":
                self.write(os.path.join(directory, name), b"x")
            with self.assertRaises(OSError) as raised:
                os.rename(tx, mount.path(".blobfs/commit/one"))
            self.assertEqual(raised.exception.errno, errno.EINVAL)
            self.assertEqual(os.listdir(mount.directory), ["first"])
            self.assertEqual(os.listdir(mount.path(".blobfs/tx")), [])

    def test_lost_connection_after_close(self):
        proxy = Proxy()
        for moment in "before", "after":
            with Mount("fs=docs,timeout=0", proxy.conninfo()) as mount:
                tx, directory = self.begin_with_directory(mount)
                proxy.cut("docs.create(", moment)
                self.write(os.path.join(directory, "f"), b"x")
                with self.assertRaises(OSError):
                    os.rename(tx, mount.path(".blobfs/commit/one"))
                self.assertEqual(os.listdir(mount.directory), ["first"])
        proxy.close()

    def begin_that_waits(self, mount):
        """A transaction with a closed file that waits in the server for pg_advisory_unlock(7).  Its
        next requests would wait for the connection."""
        self.sql.execute("""
            CREATE FUNCTION wait() RETURNS trigger AS $$
            BEGIN
                WHILE NOT pg_try_advisory_xact_lock(7) LOOP PERFORM pg_sleep(0.01); END LOOP;
                RETURN NEW;
            END $$ LANGUAGE plpgsql;
            CREATE TRIGGER waits BEFORE INSERT ON docs.dentry FOR EACH ROW
            WHEN (NEW.name = 'waits') EXECUTE FUNCTION wait();
            SELECT pg_advisory_lock(7)""")
        self.write(mount.path("first"), b"made at once")
        for directory in "one", "other":
            os.mkdir(mount.path(directory))
        tx = mount.path(".blobfs/tx/waiting")
        os.mkdir(tx)
        os.mkdir(os.path.join(tx, "one", "w"))
        self.write(os.path.join(tx, "one", "w", "waits"), b"waited")
        support.wait_until(lambda: self.one("SELECT count(*) FROM pg_stat_activity"
                                            " WHERE wait_event = 'PgSleep'") == 1,
                           "the first file waits")
        return tx

    def test_other_transaction_waits(self):
        """One whose files wait at the server delays no other, be it committed or rolled back."""
        with Mount("fs=docs,timeout=0") as mount:
            waiting = self.begin_that_waits(mount)
            try:
                for ends in "commit", "roll back":
                    self.end_beside(mount, ends)
            finally:
                self.sql.execute("SELECT pg_advisory_unlock(7)")
            os.rename(waiting, mount.path(".blobfs/commit/waiting"))
            self.assertEqual(self.server_read("one/w/waits"), b"waited")
        self.sql.execute("DROP TRIGGER waits ON docs.dentry; DROP FUNCTION wait()")

    def end_beside(self, mount, ends):
        tx = mount.path(".blobfs/tx/beside")
        directory = os.path.join(tx, "other", "d")
        os.mkdir(tx)
        os.mkdir(directory)
        for number in range(100):
            self.write(os.path.join(directory, f"f{number}"), b"%d" % number)
        if ends == "commit":
            end = threading.Thread(target=os.rename, args=(tx, mount.path(".blobfs/commit/beside")))
        else:
            end = threading.Thread(target=os.rmdir, args=(tx,))
        end.start()
        support.wait_until(lambda: not end.is_alive(), ends)
        self.assertEqual(os.path.exists(mount.path("other/d")), ends == "commit")
        if ends == "commit":
            for number in range(100):
                self.assertEqual(self.server_read(f"other/d/f{number}"), b"%d" % number)
            self.sql.execute("SELECT blobfs.unlink('docs', 'other/d', true)")

    def test_program_is_killed(self):
        """A transaction of a killed program has changed nothing."""
        with Mount("fs=docs") as mount:
            os.mkdir(mount.path(".blobfs/tx/one"))
            self.write(mount.path(".blobfs/tx/one/f"), b"x")
            mount.kill()
            mount.start()
            self.assertEqual(os.listdir(mount.directory), [])

    def run_tx(self, mount, command):
        return subprocess.run([PROGRAM, "tx", mount.directory, "--", "sh", "-ec", command],
                              cwd=mount.directory, check=False, capture_output=True, text=True)

    def test_command(self):
        """A command in a transaction commits, or changes nothing if it fails."""
        with Mount("fs=docs,timeout=0") as mount:
            done = self.run_tx(mount, f"mkdir d; echo hello > {mount.directory}/d/f; cat d/f; ls")
            if "namespace" in done.stderr:
                self.skipTest("this user may not make a mount namespace: " + done.stderr)
            self.assertEqual((done.returncode, done.stdout), (0, "hello\nd\n"), done.stderr)
            self.assertEqual(mount.read("d/f"), b"hello\n")
            done = self.run_tx(mount, "rm -r d; echo x > g; exit 3")
            self.assertEqual(done.returncode, 3)
            self.assertIn("nothing was changed", done.stderr)
            self.assertEqual(os.listdir(mount.directory), ["d"])
            self.assertEqual(os.listdir(mount.path(".blobfs/tx")), [])


if __name__ == "__main__":
    support.main()
