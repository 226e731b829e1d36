"""Mounts that read in transactions: -o snapshot=ID, -o isolation=snapshot.

Seen to fail before there were these options: all.
"""

import errno
import os

import psycopg

import support
from support import Mount, MountTest, digest, refused


class IsolationTest(MountTest):
    def setUp(self):
        self.make_table("item", "bytea")
        self.content = {"d/large": self.bytes(3_000_000), "d/small": b"small"}
        for path, content in self.content.items():
            self.put("item", path, content)
        self.table = "table=item,path=path,content=content"

    def change(self):
        """Other content and other names; VACUUM leaves only old rows that some session sees."""
        self.sql.execute("DELETE FROM item")
        self.put("item", "d/large", b"new")
        self.put("item", "new", b"new")
        self.sql.execute("VACUUM item")

    def check_old(self, mount):
        self.assertEqual(os.listdir(mount.directory), ["d"])
        self.assertEqual(set(os.listdir(mount.path("d"))), {"large", "small"})
        for path, content in self.content.items():
            self.assertEqual(digest(mount.read(path)), digest(content))

    def test_snapshot(self):
        """A mount of an exported snapshot shows that moment."""
        with psycopg.connect() as exporter:
            exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            name = exporter.execute("SELECT pg_export_snapshot()").fetchone()[0]
            self.change()
            with Mount(f"{self.table},timeout=0,snapshot={name}") as mount:
                exporter.rollback()
                self.check_old(mount)
                with self.assertRaises(OSError) as raised:
                    os.mkdir(mount.path("e"))
                self.assertEqual(raised.exception.errno, errno.EROFS)
                with Mount(f"{self.table},timeout=0") as other:
                    self.assertEqual(other.read("d/large"), b"new")
                self.check_old(mount)
        self.assertIn("snapshot", refused(f"{self.table},snapshot={name}"))
        self.assertIn("snapshot", refused(f"{self.table},snapshot=none"))
        self.assertIn("exclude each other", refused(f"{self.table},notify,snapshot={name}"))

    def test_snapshot_of_a_file_system(self):
        self.sql.execute("SELECT blobfs.create('docs')")
        self.addCleanup(lambda: self.sql.execute("SELECT blobfs.drop('docs')"))
        content = self.bytes(500_000)
        self.sql.execute("SELECT blobfs.write('docs', '/f', %s)", (content,))
        with psycopg.connect() as exporter:
            exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            name = exporter.execute("SELECT pg_export_snapshot()").fetchone()[0]
            with Mount(f"fs=docs,timeout=0,snapshot={name}") as mount:
                exporter.rollback()
                self.sql.execute("SELECT blobfs.write('docs', '/g', 'new'),"
                                 " blobfs.unlink('docs', '/f')")
                self.sql.execute("VACUUM docs.inode")
                self.assertEqual(os.listdir(mount.directory), ["f"])
                self.assertEqual(digest(mount.read("f")), digest(content))

    def test_lost_connections(self):
        """The snapshot goes with its transactions."""
        with psycopg.connect() as exporter:
            exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            name = exporter.execute("SELECT pg_export_snapshot()").fetchone()[0]
            with Mount(f"{self.table},timeout=0,snapshot={name}") as mount:
                self.end_connections()
                self.check_old(mount)           # made anew, while the server has the snapshot
                exporter.rollback()
                self.end_connections()
                with self.assertRaises(OSError) as raised:
                    os.listdir(mount.path("d"))
                self.assertEqual(raised.exception.errno, errno.ESTALE)

    def end_connections(self):
        self.sql.execute("SELECT pg_terminate_backend(pid, 100000) FROM pg_stat_activity"
                         " WHERE application_name = 'blobfs'")

    def test_errors(self):
        """A statement that fails does not end the transaction."""
        self.sql.execute("CREATE OR REPLACE FUNCTION fail(content bytea) RETURNS bytea"
                         " LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF length(content) = 3 THEN"
                         " RAISE 'no'; END IF; RETURN content; END $$")
        self.sql.execute("CREATE OR REPLACE VIEW failing AS SELECT path,"
                         " CASE WHEN path = 'bad' AND length(content) = 3 THEN fail(content)"
                         " ELSE content END AS content FROM item")
        self.addCleanup(lambda: self.sql.execute("DROP VIEW failing"))
        self.put("item", "bad", b"bad")
        with psycopg.connect() as exporter:
            exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            name = exporter.execute("SELECT pg_export_snapshot()").fetchone()[0]
            with Mount("table=failing,path=path,content=content,connections=2,"
                       f"snapshot={name}") as mount:
                for _ in range(3):
                    with self.assertRaises(OSError):
                        mount.read("bad")
                for path, content in self.content.items():
                    self.assertEqual(digest(mount.read(path)), digest(content))

    def test_isolation(self):
        """An open file has its version though no pin keeps it: the column is a bytea."""
        with Mount(f"{self.table},timeout=0,isolation=snapshot") as mount:
            with open(mount.path("d/large"), "rb", 0) as file, \
                    open(mount.path("d/small"), "rb", 0) as small:
                self.change()
                self.assertEqual(mount.read("d/large"), b"new")
                self.assertEqual(digest(file.read()), digest(self.content["d/large"]))
                self.assertEqual(small.read(), b"small")

    def test_too_many(self):
        """Open files beyond the connections are refused until one is closed."""
        with Mount(f"{self.table},connections=4,isolation=snapshot") as mount:
            for _ in range(3):
                files = []
                support.wait_until(lambda: self.open_one(mount, files) and len(files) == 2,
                                   "connections that closed files have given back")
                with self.assertRaises(OSError) as raised:
                    mount.read("d/small")
                self.assertEqual(raised.exception.errno, errno.ENFILE)
                self.assertEqual(os.stat(mount.path("d/small")).st_size, 5)
                for file in files:
                    self.assertEqual(digest(file.read()), digest(self.content["d/large"]))
                    file.close()
            support.wait_until(lambda: self.one(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'blobfs'"
                " AND state <> 'idle'") == 0, "the ends of the transactions")

    @staticmethod
    def open_one(mount, files):
        try:
            files.append(open(mount.path("d/large"), "rb"))
        except OSError as error:
            assert error.errno == errno.ENFILE, error
            return False
        return True

    def test_options(self):
        """Options of isolation that do not fit are refused."""
        self.sql.execute("SELECT blobfs.create('docs')")
        self.addCleanup(lambda: self.sql.execute("SELECT blobfs.drop('docs')"))
        self.assertIn('needs "ro"', refused("fs=docs,isolation=snapshot"))
        self.assertIn("3 at least", refused("fs=docs,ro,isolation=snapshot,connections=2"))
        self.assertIn("exclude each other", refused("fs=docs,ro,isolation=snapshot,noopen"))
        self.assertIn('"serial"', refused("fs=docs,ro,isolation=serial"))
        with Mount("fs=docs,ro,isolation=snapshot") as mount:
            self.assertEqual(os.listdir(mount.directory), [])


if __name__ == "__main__":
    support.main()
