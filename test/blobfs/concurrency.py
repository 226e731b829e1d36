"""Several sessions on one file system: waits, circles, deadlocks, marks, notifications.

Random sessions rename, link, unlink, make and remove directories crosswise, some in transactions of
several calls.  A deadlock may be found by the server (40P01) and is tried again; any other error
fails.  At the end blobfs.check() finds nothing, and each file that was made has one inode.

Seen to fail without the row of superblock in rename() (a circle of two directories), without the
second rename_check(), without the lock of the directory in rmdir(), without the second DELETE in
drop_link() (an inode without a name), and with a mark that is not compared.
"""

import random
import sys
import threading
import time
import unittest

import psycopg


def connect():
    return psycopg.connect(autocommit=True, options="-c deadlock_timeout=20ms")


class Case(unittest.TestCase):
    def setUp(self):
        self.connections = []
        self.a, self.b = self.session(), self.session()
        self.a.execute("SELECT blobfs.create('fs_two')")

    def session(self):
        self.connections.append(connect())
        return self.connections[-1]

    def tearDown(self):
        for connection in self.connections:
            connection.close()
        with connect() as connection:
            problems = connection.execute("SELECT * FROM blobfs.check('fs_two')").fetchall()
            connection.execute("SELECT blobfs.drop('fs_two')")
        self.assertEqual(problems, [])

    def status(self, connection, call, *arguments):
        return connection.execute(f"SELECT status FROM fs_two.{call}", arguments).fetchone()[0]

    def ino(self, path):
        return self.a.execute("SELECT ino FROM blobfs.resolve('fs_two', %s, false, true)",
                              (path,)).fetchone()[0]

    def in_background(self, connection, function):
        """Starts a function that waits for a lock; returns when it does, with what collects it."""
        results = []
        thread = threading.Thread(target=lambda: results.append(function()))
        thread.start()
        with connect() as observer:
            while not observer.execute(
                    "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)",
                    (connection.info.backend_pid,)).fetchone()[0]:
                self.assertTrue(thread.is_alive(), f"does not wait: {results}")
                time.sleep(0.005)

        def collect():
            thread.join()
            return results[0]
        return collect


class Waits(Case):
    def test_two_directories_do_not_become_a_circle(self):
        for path in ("/p/a/d", "/q/b/c"):
            self.a.execute("SELECT blobfs.mkdir('fs_two', %s, true)", (path,))
        p, q, c, d = (self.ino(x) for x in ("/p", "/q", "/q/b/c", "/p/a/d"))
        self.a.execute("BEGIN")
        self.assertEqual(self.status(self.a, "rename(%s, 'a', %s, 'a', 0)", p, c), 0)
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "rename(%s, 'b', %s, 'b', 0)", q, d))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 22)

    def test_a_directory_that_goes_takes_no_file(self):
        d = self.a.execute("SELECT blobfs.mkdir('fs_two', '/d')").fetchone()[0]
        self.a.execute("BEGIN")
        self.assertEqual(self.status(self.a, "rmdir(1, 'd')"), 0)
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "create(NULL, %s, 'f', 420, 0, 0, '', NULL)", d))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 2)

    def test_a_directory_that_gets_a_file_does_not_go(self):
        d = self.a.execute("SELECT blobfs.mkdir('fs_two', '/d')").fetchone()[0]
        self.a.execute("BEGIN")
        self.status(self.a, "create(NULL, %s, 'f', 420, 0, 0, '', NULL)", d)
        collect = self.in_background(self.b, lambda: self.status(self.b, "rmdir(1, 'd')"))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 39)

    def test_one_of_two_sessions_makes_a_name(self):
        self.a.execute("BEGIN")
        self.status(self.a, "create(NULL, 1, 'f', 420, 0, 0, 'a', NULL)")
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "create(NULL, 1, 'f', 420, 0, 0, 'b', NULL)"))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 17)

    def test_a_name_that_was_rolled_back_is_free(self):
        self.a.execute("BEGIN")
        self.status(self.a, "mkdir(NULL, 1, 'f', 493, 0, 0)")
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "mkdir(NULL, 1, 'f', 493, 0, 0)"))
        self.a.execute("ROLLBACK")
        self.assertEqual(collect(), 0)

    def test_two_appends_both_stay(self):
        f = self.a.execute("SELECT blobfs.write('fs_two', '/f', '')").fetchone()[0]
        version = self.a.execute("SELECT version FROM fs_two.getattr(%s)", (f,)).fetchone()[0]
        self.a.execute("BEGIN")
        self.status(self.a, "append(%s, %s, false, 'a', NULL)", f, version)
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "append(%s, %s, false, 'b', NULL)", f, version))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 0)
        row = self.a.execute("SELECT blobfs.read('fs_two', '/f')::bytea").fetchone()
        self.assertEqual(row[0], b"ab")

    def test_an_exact_write_notices_another(self):
        f = self.a.execute("SELECT blobfs.write('fs_two', '/f', '')").fetchone()[0]
        version = self.a.execute("SELECT version FROM fs_two.getattr(%s)", (f,)).fetchone()[0]
        self.a.execute("BEGIN")
        self.status(self.a, "write(%s, %s, true, 'a', NULL)", f, version)
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "write(%s, %s, true, 'b', NULL)", f, version))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 16)

    def test_a_link_to_a_file_that_goes(self):
        f = self.a.execute("SELECT blobfs.write('fs_two', '/f', '')").fetchone()[0]
        d = self.a.execute("SELECT blobfs.mkdir('fs_two', '/d')").fetchone()[0]
        self.a.execute("BEGIN")
        self.status(self.a, "unlink(1, 'f')")
        collect = self.in_background(
            self.b, lambda: self.status(self.b, "link(%s, %s, 'g')", f, d))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 116)

    def test_two_names_of_a_file_go(self):
        f = self.a.execute("SELECT blobfs.write('fs_two', '/f', 'x')").fetchone()[0]
        d = self.a.execute("SELECT blobfs.mkdir('fs_two', '/d')").fetchone()[0]
        self.assertEqual(self.status(self.a, "link(%s, %s, 'g')", f, d), 0)
        self.a.execute("BEGIN")
        self.assertEqual(self.status(self.a, "unlink(1, 'f')"), 0)
        collect = self.in_background(self.b, lambda: self.b.execute(
            "SELECT status, nlink FROM fs_two.unlink(%s, 'g')", (d,)).fetchone())
        self.a.execute("COMMIT")
        self.assertEqual(collect(), (0, 0))
        self.assertIsNone(self.a.execute("SELECT FROM fs_two.getattr(%s)", (f,)).fetchone())

    def test_a_name_is_renamed_while_another_session_unlinks_it(self):
        self.a.execute("SELECT blobfs.write('fs_two', '/f', '')")
        self.a.execute("BEGIN")
        self.assertEqual(self.status(self.a, "rename(1, 'f', 1, 'g', 0)"), 0)
        collect = self.in_background(self.b, lambda: self.status(self.b, "unlink(1, 'f')"))
        self.a.execute("COMMIT")
        self.assertEqual(collect(), 2)

    def test_a_snapshot_has_all_of_a_transaction_or_nothing(self):
        self.a.execute("BEGIN")
        for name in ("x", "y"):
            self.a.execute("SELECT blobfs.write('fs_two', %s, '')", (name,))
        number = self.b.execute("SELECT blobfs.snapshot('fs_two', 'during')").fetchone()[0]
        self.a.execute("COMMIT")
        names = self.b.execute("SELECT count(*) FROM fs_two.snapshot_readdir(%s, 1, '', 9)",
                               (number,)).fetchone()[0]
        self.assertEqual(names, 0)


class Marks(Case):
    def setUp(self):
        super().setUp()
        self.a.execute("SELECT fs_two.mount_begin(1, 0)")

    def recover(self):
        return self.b.execute("SELECT committed, mark FROM fs_two.mount_recover(1, 0)").fetchone()

    def test_the_old_transaction_commits_at_last(self):
        self.a.execute("BEGIN; SELECT fs_two.mark(1, 0, 1)")
        collect = self.in_background(self.b, self.recover)
        self.a.execute("COMMIT")
        self.assertEqual(collect()[0], 1)

    def test_the_old_connection_is_gone(self):
        self.a.execute("BEGIN; SELECT fs_two.mark(1, 0, 1)")
        collect = self.in_background(self.b, self.recover)
        with connect() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (self.a.info.backend_pid,))
        self.assertEqual(collect()[0], 0)

    def test_the_old_transaction_comes_too_late(self):
        self.a.execute("BEGIN")
        self.status(self.a, "create(NULL, 1, 'f', 420, 0, 0, '', NULL)")
        self.assertEqual(self.recover()[0], 0)
        with self.assertRaises(psycopg.Error) as caught:
            self.a.execute("SELECT fs_two.mark(1, 0, 1)")
        self.assertEqual(caught.exception.sqlstate, "BF125")
        self.a.execute("ROLLBACK")
        self.assertEqual(self.status(self.b, "unlink(1, 'f')"), 2)


class Pins(Case):
    def test_locks_of_another_role_do_not_stop_a_sweep(self):
        mount, key = self.a.execute("SELECT * FROM blobfs.attach('held')").fetchone()
        self.a.execute("DELETE FROM blobfs.connection")
        self.a.execute("BEGIN")
        self.a.execute("SELECT blobfs.join(%s, %s)", (mount, key))
        # A sweep that waits would wait for this test.
        self.b.execute("SET lock_timeout = '10s'")
        self.assertEqual(self.b.execute("SELECT blobfs.sweep()").fetchone()[0], 0)
        self.a.execute("COMMIT")
        self.a.execute("SELECT blobfs.detach(%s, %s)", (mount, key))

    def test_a_connection_that_ended_is_noticed(self):
        mount, key = self.a.execute("SELECT * FROM blobfs.attach('ends')").fetchone()
        self.a.close()
        self.connections[0] = self.a = connect()
        with connect() as other:
            while other.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type ="
                                " 'client backend'").fetchone()[0] > 3:
                time.sleep(0.01)
        self.assertEqual(self.b.execute("SELECT blobfs.sweep()").fetchone()[0], 0)
        row = self.b.execute("SELECT connections FROM blobfs.mounts() WHERE what = 'ends'")
        self.assertEqual(row.fetchone()[0], 0)
        self.b.execute("UPDATE blobfs.mount SET unconnected_since = '2000-01-01'")
        self.assertEqual(self.b.execute("SELECT blobfs.sweep()").fetchone()[0], 1)
        self.assertFalse(self.b.execute("SELECT blobfs.join(%s, %s)", (mount, key)).fetchone()[0])


class Notifications(Case):
    def heard(self):
        """The messages that have come, with all that was committed before."""
        self.b.execute("SELECT 1")
        messages, self.messages = self.messages, []
        return sorted(messages)

    def listen(self, channel):
        self.messages = []
        self.b.add_notify_handler(lambda n: self.messages.append((n.channel, n.payload)))
        self.b.execute(f"LISTEN {channel}")

    def test_a_file_system(self):
        """Changes of a file system are heard on its channel."""
        channel = self.a.execute("SELECT blobfs.channel('fs_two')").fetchone()[0]
        self.listen(channel)
        self.a.execute("SELECT blobfs.write('fs_two', '/before', '')")
        self.assertEqual(self.heard(), [])
        self.a.execute("SELECT blobfs.set_notify('fs_two', true)")
        f = self.a.execute("SELECT blobfs.write('fs_two', '/f', '')").fetchone()[0]
        hashed = self.a.execute("SELECT left(encode(sha256(salt || 'f'), 'hex'), 16)"
                                " FROM fs_two.superblock").fetchone()[0]
        heard = self.heard()
        self.assertIn((channel, f"e 1 {hashed}"), heard)
        self.assertEqual([m[1].split()[:2] for m in heard if m[1][0] == "i"], [["i", "1"]])
        self.a.execute("SELECT blobfs.append('fs_two', '/f', 'x')")
        version = self.a.execute("SELECT version FROM fs_two.getattr(%s)", (f,)).fetchone()[0]
        self.assertEqual(self.heard(), [(channel, f"i {f} {version}")])
        self.a.execute("SELECT blobfs.unlink('fs_two', '/f')")
        self.assertIn((channel, f"e 1 {hashed}"), self.heard())
        self.a.execute("SELECT blobfs.set_notify('fs_two', false)")
        self.a.execute("SELECT blobfs.write('fs_two', '/f', '')")
        self.assertEqual(self.heard(), [])

    def test_a_table(self):
        """Changes of a table are heard until notify_table() ends that."""
        self.a.execute("CREATE TABLE fs_two.document (path text, content public.blobstate)")
        channel = self.a.execute(
            "SELECT blobfs.notify_table('fs_two.document', true)").fetchone()[0]
        self.listen(channel)
        self.a.execute("INSERT INTO fs_two.document VALUES ('a', '')")
        self.assertEqual(self.heard(), [(channel, "t")])
        self.a.execute("SELECT blobfs.notify_table('fs_two.document', false)")
        self.a.execute("DELETE FROM fs_two.document")
        self.assertEqual(self.heard(), [])


class Quota(Case):
    def test_two_transactions_that_fit_alone(self):
        self.a.execute("SELECT blobfs.mkdir('fs_two', '/a'), blobfs.mkdir('fs_two', '/b')")
        self.a.execute("SELECT blobfs.set_quota('fs_two', 100)")
        write = "SELECT blobfs.write('fs_two', %s, repeat('x', 60)::bytea)"
        self.a.execute("BEGIN")
        self.a.execute(write, ("/a/f",))
        self.b.execute("BEGIN")
        self.b.execute(write, ("/b/f",))
        self.a.execute("COMMIT")
        with self.assertRaises(psycopg.Error) as caught:
            self.b.execute("COMMIT")
        self.assertEqual(caught.exception.sqlstate, "BF122")
        self.assertEqual(self.a.execute("SELECT bytes FROM fs_two.usage").fetchone()[0], 60)


class Crosswise(Case):
    """Four sessions, seeds fixed; the order of their calls is not."""

    SESSIONS = 4
    CALLS = 250
    DIRECTORIES = ["/d0", "/d1", "/d2", "/d0/e0", "/d1/e1"]

    def test_no_error_but_deadlocks(self):
        for path in self.DIRECTORIES:
            self.a.execute("SELECT blobfs.mkdir('fs_two', %s)", (path,))
        self.inos = [1] + [self.ino(path) for path in self.DIRECTORIES]
        self.made, self.gone, self.retried, self.errors = [], [], 0, []
        self.lock = threading.Lock()
        threads = [threading.Thread(target=self.load, args=(self.session(), number))
                   for number in range(self.SESSIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.errors, [])
        left = {r[0] for r in self.a.execute("SELECT ino FROM fs_two.inode WHERE kind = 'f'")}
        self.assertEqual(left, set(self.made) - set(self.gone))
        self.assertEqual(len(self.gone), len(set(self.gone)))
        print(f"# made {len(self.made)}, gone {len(self.gone)}, tried again {self.retried}")

    def load(self, connection, seed):
        generator = random.Random(seed)
        try:
            for _ in range(self.CALLS):
                calls = [self.choose(generator)
                         for _ in range(generator.choice([1, 1, 1, 3]))]
                while not self.transaction(connection, calls):
                    pass
        except Exception as error:      # pylint: disable=broad-except
            self.errors.append(repr(error))

    def choose(self, generator):
        def place():
            return [generator.choice(self.inos[:1] + self.inos[-7:]),
                    bytes([generator.choice(b"xyz")])]
        return generator.choice([
            ("create(NULL, %s, %s, 420, 0, 0, 'x', NULL)", place()),
            ("create(NULL, %s, %s, 420, 0, 0, 'x', NULL)", place()),
            ("mkdir(NULL, %s, %s, 493, 0, 0)", place()),
            ("unlink(%s, %s)", place()),
            ("rmdir(%s, %s)", place()),
            ("rename(%s, %s, %s, %s, %s)", place() + place() + [generator.choice([0, 0, 2])]),
            ("rename(%s, %s, %s, %s, %s)", place() + place() + [generator.choice([0, 0, 2])]),
            ("rename(1, %s, %s, %s, 0)", [f"d{generator.randrange(3)}".encode()] + place()),
            ("link((SELECT min(ino) FROM fs_two.inode WHERE kind = 'f'), %s, %s)", place())])

    def transaction(self, connection, calls):
        """False: a deadlock, to be tried again."""
        made, gone, directories = [], [], []
        try:
            with connection.transaction():
                for call, arguments in calls:
                    before = self.victim(connection, call, arguments)
                    status, ino, nlink = connection.execute(
                        f"SELECT status, ino, nlink FROM fs_two.{call}", arguments).fetchone()
                    if status == 0 and call.startswith("create"):
                        made.append(ino)
                    if status == 0 and call.startswith("mkdir"):
                        directories.append(ino)
                    if status == 0 and call.startswith("unlink") and nlink == 0:
                        gone.append(ino)
                    if before:
                        gone += [i for i in before if not connection.execute(
                            "SELECT 1 FROM fs_two.getattr(%s)", (i,)).fetchone()]
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            with self.lock:
                self.retried += 1
            return False
        with self.lock:
            self.made += made
            self.inos += directories
            self.gone += gone
        return True

    def victim(self, connection, call, arguments):
        """The file that a rename() may replace: the directory is locked first, so it stays."""
        if not call.startswith("rename") or arguments[-1] == 2:
            return []
        parent, name = (arguments[2], arguments[3]) if len(arguments) == 5 else arguments[1:3]
        connection.execute("SELECT FROM fs_two.inode WHERE ino = %s FOR NO KEY UPDATE", (parent,))
        return [r[0] for r in connection.execute(
            "SELECT ino FROM fs_two.lookup(%s, %s) WHERE kind = 'f'", (parent, name))]


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=0))
