"""Events between two steps of a request, or between two requests: a name that is given away, an
answer that is lost twice, a transaction that ends while others wait for it.

Seen to fail with the program before it had is_gone() (test_name_is_given_away), the comparison of
halves of marks in find_out() (test_answer_is_lost_twice), is_doubtful (test_outcome_is_unknown),
is_term_over() (test_transaction_is_rolled_back_before_others), pool_bound() in writer_flush()
(test_sync_in_a_transaction), is_given_up (test_file_of_an_ended_transaction), was_reserved
(test_own_transaction_is_notified), notify_committed() (test_look_up_is_overtaken), is_read in
begin_writing() (test_reader_beside_a_writer), pages_are_right()
(test_open_after_others), copy_closed() in kept_expired()
(test_replaced_while_written), the search for a written node (test_writer_of_an_old_node) and that
by path (test_paths_of_one_hash) in search_key(), has_version() (with the compiler's checks of
addresses: test_version_changes_during_a_read), is_connection_string() (test_password),
start_command() (test_command_is_interrupted), and idle_session_timeout (test_idle_session).
"""

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
import urllib.parse

import psycopg

import support
from proxy import Proxy
from support import PROGRAM, FileSystemTest, Mount


class RacesTest(FileSystemTest):
    def put_row(self, table, path, data):
        self.sql.execute(f"INSERT INTO {table} VALUES (%s, %s)", (path, data))

    @staticmethod
    def write(path, data):
        with open(path, "wb") as file:
            file.write(data)

    @staticmethod
    def start(function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        return thread

    def wait_for_lock(self, call):
        """Until a call of the program waits for a lock at the server."""
        support.wait_until(lambda: self.one(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND strpos(query, %s) > 0 AND pid <> pg_backend_pid()", call) == 1, call)

    def wait_for_listener(self):
        """Until names live long; the program notes that it listens just after the server does."""
        support.wait_until(lambda: self.one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND query LIKE 'LISTEN%%' AND state = 'idle'") == 1, "the listener")
        time.sleep(0.3)

    # ---- names ----

    def test_name_is_given_away(self):
        """rename() finds a file behind the new name, which others rename before it: it is not
        gone, and bytes that are written to it are not lost."""
        with Mount("fs=docs,timeout=0") as mount, psycopg.connect() as other:
            self.write(mount.path("f"), b"old")
            self.write(mount.path("new"), b"other file")
            with open(mount.path("f"), "r+b", buffering=0) as file:
                file.write(b"written")
                other.execute("SELECT blobfs.rename('docs', '/f', '/g')")
                thread = self.start(os.rename, mount.path("new"), mount.path("f"))
                self.wait_for_lock("docs.rename(")
                other.commit()
                thread.join()
                file.write(b" more")
            self.assertEqual(self.server_read("/g"), b"written more")
            self.assertEqual(self.server_read("/f"), b"other file")

    def test_writer_of_an_old_node(self):
        """A version that is not the row's any more is opened for writing, by its open file:
        look-ups find its working copy, so the file can be opened by its name, too."""
        with Mount("fs=docs,timeout=0") as mount:
            self.put("/f", b"first")
            with open(mount.path("f"), "rb") as reader:
                self.put("/f", b"second")
                self.assertEqual(os.stat(mount.path("f")).st_size, 6)
                with open(f"/proc/self/fd/{reader.fileno()}", "r+b", buffering=0), \
                        open(mount.path("f"), "r+b", buffering=0) as writer:
                    writer.write(b"S")
            self.assertEqual(self.server_read("/f"), b"Second")

    def test_paths_of_one_hash(self):
        """The numbers of a table's inodes are hashes, which others may choose: a path leads to its
        own row all the same."""
        names = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"]
        self.make_table("document")
        for name in names:
            self.put_row("document", f"{name}/in_{name}", name.encode())
        self.put_row("document", "7mohtcOFVz", b"same")
        self.put_row("document", "c1E51sSEyx", b"same")
        with Mount("table=document,path=path,content=content") as mount:
            self.assertEqual(len({os.stat(mount.path(name)).st_ino for name in names}), 1)
            for name in names:
                self.assertEqual(os.listdir(mount.path(name)), [f"in_{name}"])
                self.assertEqual(mount.read(name, f"in_{name}"), name.encode())
            self.assertEqual((mount.read("7mohtcOFVz"), mount.read("c1E51sSEyx")),
                             (b"same", b"same"))
            with open(mount.path("7mohtcOFVz"), "rb") as file, \
                    open(mount.path("c1E51sSEyx"), "rb") as other:
                self.sql.execute("DELETE FROM document WHERE path = '7mohtcOFVz'")
                self.assertEqual((file.read(), other.read()), (b"same", b"same"))

    # ---- lost answers ----

    def test_answer_is_lost_twice(self):
        """The answer to a commit, and that to the question what became of it."""
        proxy = Proxy()
        with Mount("fs=docs", proxy.conninfo()) as mount:
            self.write(mount.path("log"), b"one\n")
            proxy.cut("docs.append(", "after")
            proxy.cut("mount_recover(", "after")
            with open(mount.path("log"), "ab") as file:
                file.write(b"two\n")
            self.assertEqual(proxy.rules, [])
            self.assertEqual(self.server_read("/log"), b"one\ntwo\n")
        proxy.close()

    def test_outcome_is_unknown(self):
        """close() fails as the server is away; when it is back, nothing is appended twice."""
        proxy = Proxy()
        with Mount("fs=docs,timeo=1", proxy.conninfo()) as mount:
            self.write(mount.path("log"), b"one\n")
            file = os.open(mount.path("log"), os.O_WRONLY | os.O_APPEND)
            os.write(file, b"two\n")
            proxy.cut("docs.append(", "after")
            for _ in range(1000):
                proxy.cut("mount_recover(", "before")
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.EIO)
            proxy.rules.clear()
        # Its release has tried once more.
        self.assertEqual(self.server_read("/log"), b"one\ntwo\n")
        proxy.close()

    # ---- transactions of many files ----

    def test_transaction_is_rolled_back_before_others(self):
        """Requests that wait for a transaction's connection when it ends do nothing."""
        names = [f"d{number}/f" for number in range(8)]
        with Mount("fs=docs,timeout=600") as mount, psycopg.connect() as blocker:
            self.write(mount.path("held"), b"")
            for name in names:
                os.mkdir(os.path.dirname(mount.path(name)))
                self.write(mount.path(name), b"stays")
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            for name in names + ["held"]:
                os.stat(os.path.join(tx, name))     # the kernel asks for no name below
            blocker.execute("SELECT FROM docs.inode AS i JOIN docs.dentry AS d ON d.ino = i.ino"
                            " WHERE d.name = 'held' FOR UPDATE OF i")

            def attempt(function, *arguments):
                try:
                    function(*arguments)
                except OSError:
                    pass

            threads = [self.start(attempt, os.chmod, os.path.join(tx, "held"), 0o600)]
            self.wait_for_lock("docs.setattr(")
            threads += [self.start(attempt, os.unlink, os.path.join(tx, name)) for name in names]
            time.sleep(0.3)
            threads.append(self.start(os.rmdir, tx))
            time.sleep(0.3)
            blocker.rollback()
            for thread in threads:
                thread.join()
            for name in names:
                self.assertEqual(self.one("SELECT count(*) FROM docs.path WHERE path = %s",
                                          "/" + name), 1, name)

    def test_sync_in_a_transaction(self):
        """fsync() there makes nothing durable: that of a directory outside still does it."""
        proxy = Proxy()
        with Mount("fs=docs,timeout=0", proxy.conninfo()) as mount:
            os.mkdir(mount.path("d"))
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            with open(os.path.join(tx, "f"), "wb", buffering=0) as file:
                file.write(b"x")
                os.fsync(file.fileno())
            proxy.cut("SELECT docs.mark(", "before")
            directory = os.open(mount.directory, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
            self.assertEqual(proxy.rules, [])
            os.rmdir(tx)
        proxy.close()

    def test_file_of_an_ended_transaction(self):
        """Bytes that are written to an open file after the end of its transaction are not lost
        silently."""
        with Mount("fs=docs,timeout=0") as mount:
            for commits in (True, False):
                tx = mount.path(".blobfs/tx/one")
                os.mkdir(tx)
                file = os.open(os.path.join(tx, f"f{commits}"), os.O_WRONLY | os.O_CREAT)
                os.write(file, b"in it")
                if commits:
                    os.rename(tx, mount.path(".blobfs/commit/one"))
                else:
                    os.rmdir(tx)
                os.write(file, b", after it")
                with self.assertRaises(OSError) as raised:
                    os.close(file)
                self.assertEqual(raised.exception.errno, errno.ESTALE)
            self.assertEqual(os.listdir(mount.directory), ["fTrue"])
            self.assertEqual(self.server_read("/fTrue"), b"in it")

    def test_own_transaction_is_notified(self):
        """With long-lived names the tree outside sees what a transaction has changed."""
        self.sql.execute("SELECT blobfs.set_notify('docs', true)")
        with Mount("fs=docs,notify") as mount:
            self.wait_for_listener()
            self.write(mount.path("f"), b"old")
            self.write(mount.path("g"), b"old")
            self.assertEqual((mount.read("f"), mount.read("g")), (b"old", b"old"))
            tx = mount.path(".blobfs/tx/one")
            os.mkdir(tx)
            self.write(os.path.join(tx, "f"), b"written")
            self.write(os.path.join(tx, "new"), b"renamed")
            os.rename(os.path.join(tx, "new"), os.path.join(tx, "g"))
            time.sleep(1.5)             # the timeout, for which any name is trusted
            os.rename(tx, mount.path(".blobfs/commit/one"))
            support.wait_until(lambda: (mount.read("f"), mount.read("g")) ==
                               (b"written", b"renamed"), "the new content")

    def test_look_up_is_overtaken(self):
        """With long-lived names: a look-up of a file, by another name, that was answered before a
        commit of this mount and reaches it later."""
        self.sql.execute("SELECT blobfs.set_notify('docs', true)")
        self.put("/f", b"old")
        self.sql.execute("SELECT blobfs.link('docs', '/f', '/g')")
        proxy = Proxy()
        with Mount("fs=docs,notify", proxy.conninfo()) as mount:
            self.wait_for_listener()
            self.assertEqual(mount.read("g"), b"old")
            proxy.cut("docs.lookup(", "held")
            thread = self.start(os.stat, mount.path("f"))
            self.assertTrue(proxy.holds.wait(support.PATIENCE_SECONDS))
            self.write(mount.path("g"), b"new")
            time.sleep(0.5)             # its working copy ends behind close()
            proxy.release()
            thread.join()
            time.sleep(1.5)             # the timeout, for which any name is trusted
            self.assertEqual(mount.read("f"), b"new")
        proxy.close()

    def test_command_is_interrupted(self):
        """A signal ends the command of "blobfs tx", and its transaction with it."""
        with Mount("fs=docs,timeout=0") as mount:
            tried = subprocess.run([PROGRAM, "tx", mount.directory, "--", "true"], check=False,
                                   capture_output=True, text=True)
            if "namespace" in tried.stderr:
                self.skipTest("this user may not make a mount namespace: " + tried.stderr)
            for number, send in ((signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill),
                                 (signal.SIGTERM, os.killpg)):
                with subprocess.Popen(
                        [PROGRAM, "tx", mount.directory, "--", "sleep", "1000"],
                        stderr=subprocess.DEVNULL, start_new_session=True,
                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as command:
                    support.wait_until(lambda: os.listdir(mount.path(".blobfs/tx")),
                                       "the transaction")
                    send(command.pid, number)
                    self.assertEqual(command.wait(support.PATIENCE_SECONDS), 128 + number)
                self.assertEqual(os.listdir(mount.path(".blobfs/tx")), [])

    # ---- open files ----

    def test_reader_beside_a_writer(self):
        """A reader that was there before a handle that only writes keeps its version."""
        content = self.bytes(500_000)
        with Mount("fs=docs,timeout=0") as mount:
            for removes in (True, False):
                self.put("/f", content)
                reader = os.open(mount.path("f"), os.O_RDONLY)
                writer = os.open(mount.path("f"), os.O_WRONLY)
                if removes:
                    os.unlink(mount.path("f"))
                else:
                    self.put("/f", b"other")
                os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
                self.assertEqual(os.pread(reader, len(content), 0), content)
                os.close(writer)
                self.assertEqual(os.pread(reader, len(content), 0), content)
                os.close(reader)

    def test_open_after_others(self):
        """A file that is open for writing here, and appended to by others, is read with their bytes
        at once: no zeros of a page that ended before."""
        with Mount("fs=docs,timeout=0") as mount:
            self.put("/f", b"")
            content = b""
            with open(mount.path("f"), "ab"):
                for number in range(300):
                    line = f"{number}\n".encode()
                    self.sql.execute("SELECT blobfs.append('docs', '/f', %s)", (line,))
                    content += line
                    self.assertEqual(mount.read("f"), content)
            for number in range(100):
                with open(mount.path("f"), "ab") as file:
                    self.sql.execute("SELECT blobfs.append('docs', '/f', 'theirs ')")
                    file.write(b"ours ")
                content += b"theirs ours "
                self.assertEqual(mount.read("f"), content)

    def test_replaced_while_written(self):
        """A file that is replaced while it is open for writing leaves nothing behind in the
        program: neither a spool file nor a pin."""
        with Mount("fs=docs") as mount:
            directory = f"/proc/{mount.process.pid}/fd"

            def count_spools():
                count = 0
                for name in os.listdir(directory):
                    try:
                        link = os.readlink(os.path.join(directory, name))
                        count += int(name) > 2 and "(deleted)" in link
                    except FileNotFoundError:
                        pass
                return count

            self.assertEqual(count_spools(), 0)
            self.write(mount.path("f"), b"old" * 100_000)
            for _ in range(5):
                with open(mount.path("f"), "r+b", buffering=0) as file:
                    file.write(b"new" * 50_000)     # more than a copy has in memory
                    self.write(mount.path("g"), b"other" * 100_000)
                    os.rename(mount.path("g"), mount.path("f"))
                    self.assertGreater(count_spools(), 0)
            support.wait_until(lambda: count_spools() == 0, "no spool file")
            support.wait_until(lambda: self.one("SELECT sum(pins) FROM blobfs.mounts()") == 0,
                               "no pin")

    def test_version_changes_during_a_read(self):
        """A read that was begun with one version, and comes to its statement with a shorter one.

        It comes so late because it first asks for other files of the directory; for that the file
        must not be in the cache, half of which others hold."""
        content = self.bytes(120_000)
        for number in range(40):
            self.put(f"/a{number:02}", self.bytes(131_072))
        with Mount("fs=docs,cache=8,timeout=600") as mount, psycopg.connect() as blocker:
            files = [os.open(mount.path(f"a{number:02}"), os.O_RDONLY) for number in range(40)]
            self.put("/z", content)
            ino = self.one("SELECT ino FROM blobfs.stat('docs', '/z')")
            reader = os.open(mount.path("z"), os.O_RDONLY)
            blocker.execute("LOCK TABLE docs.dentry IN ACCESS EXCLUSIVE MODE")
            found = []
            threads = [self.start(lambda: found.append(os.pread(reader, len(content), 0)))]
            self.wait_for_lock("readdir_content")
            threads.append(self.start(os.truncate, mount.path("z"), 10))
            support.wait_until(lambda: self.one("SELECT size FROM docs.inode WHERE ino = %s",
                                                ino) == 10, "the shorter version")
            blocker.rollback()
            for thread in threads:
                thread.join()
            # Until the kernel has set the shorter size, it fills a short answer with zeros.
            self.assertIn(found[0], (content[:len(found[0])],
                                     content[:10] + bytes(max(0, len(found[0]) - 10))))
            self.assertEqual(mount.read("z"), content[:10])
            for file in files + [reader]:
                os.close(file)

    # ---- connections ----

    def test_password(self):
        """It is not shown among the mounts, in whatever form it is given."""
        host, port = urllib.parse.quote(os.environ["PGHOST"], safe=""), os.environ["PGPORT"]
        user = self.one("SELECT current_user")
        for conninfo in (f"postgresql://{user}:secret@{host}:{port}/{self.database}",
                         f"dbname={self.database} password=secret",
                         f"dbname={self.database} sslpassword=secret"):
            with Mount("fs=docs", conninfo):
                with open("/proc/self/mountinfo", encoding="utf8") as file:
                    self.assertNotIn("secret", file.read())

    def test_idle_session(self):
        """A setting that ends idle sessions does not take locks of files away."""
        self.sql.execute(f"ALTER DATABASE {self.database} SET idle_session_timeout = '100ms'")
        try:
            with Mount("fs=docs,locks=db") as one, Mount("fs=docs,locks=db") as two:
                self.write(one.path("f"), b"")
                with open(one.path("f"), "r+b") as file, open(two.path("f"), "r+b") as other:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    time.sleep(1)
                    with self.assertRaises(BlockingIOError):
                        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            self.sql.execute(f"ALTER DATABASE {self.database} RESET idle_session_timeout")


if __name__ == "__main__":
    support.main()
