"""pg_dump and pg_restore of a file system: the copy is the same tree, is sound, and goes on.

Then the extension is dropped and made again: tables stay, upgrade() brings the functions back.

Seen to fail with numbers of inodes beyond the sequence (check()), and with the constraint on names
among the tables, which the extension takes along when it goes.
"""

import subprocess
import sys
import unittest

import psycopg

TREE = """SELECT path, kind::text, mode, uid, gid, nlink, size, mtime, version,
        public.sha256(content)
    FROM fs_dump.path ORDER BY path, size"""
OTHERS = """SELECT i.ino, i.ctime, i.atime, i.rdev, i.target, i.xattr FROM fs_dump.inode AS i
    ORDER BY i.ino"""
SNAPSHOT = """SELECT s.name, i.ino, i.size, d.parent, d.name, public.sha256(i.content)
    FROM fs_dump.snapshot AS s JOIN fs_dump.snapshot_inode AS i USING (snapshot)
        LEFT JOIN fs_dump.snapshot_dentry AS d USING (snapshot, ino)
    ORDER BY s.name, i.ino, d.parent, d.name"""
ACL = """SELECT c.relname, array_agg(p ORDER BY p) FROM pg_class AS c,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
    WHERE c.relnamespace = 'fs_dump'::regnamespace AND c.relkind = 'r'
        AND has_table_privilege('fs_dump_reader', c.oid, p)
    GROUP BY c.relname ORDER BY c.relname"""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Dump(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run("createdb", "original")
        with psycopg.connect(dbname="original", autocommit=True) as connection:
            for statement in [
                    "CREATE EXTENSION blobfs CASCADE",
                    "CREATE ROLE fs_dump_reader",
                    "SELECT blobfs.create('fs_dump', 5, 6)",
                    "SELECT blobfs.grant('fs_dump', 'fs_dump_reader', 'write')",
                    "SELECT blobfs.mkdir('fs_dump', '/a/b', true)",
                    "SELECT blobfs.write('fs_dump', '/a/small', 'x')",
                    "SELECT blobfs.write('fs_dump', '/a/b/large', repeat('large ', 100000)::bytea)",
                    "SELECT blobfs.link('fs_dump', '/a/small', '/a/b/hard')",
                    "SELECT blobfs.symlink('fs_dump', 'a/small', '/link')",
                    r"SELECT fs_dump.create(NULL, 1, '\xff0a27245c', 420, 0, 0, '', 77)",
                    "SELECT fs_dump.mknod(NULL, 1, 'null', 'c', 438, 0, 0, 259)",
                    "SELECT fs_dump.setxattr(1, 'user.a', 'b', 0)",
                    "SELECT blobfs.snapshot('fs_dump', 'v1')",
                    "SELECT blobfs.unlink('fs_dump', '/a/b/large')",
                    "SELECT blobfs.set_notify('fs_dump', true)",
                    "SELECT blobfs.set_quota('fs_dump', 1000, NULL)",
                    "SELECT fs_dump.mount_begin(7, 0)",
                    "SELECT blobfs.attach('not dumped')"]:
                connection.execute(statement)
        cls.original = cls.describe("original")

    @staticmethod
    def describe(database):
        with psycopg.connect(dbname=database) as connection:
            return [connection.execute(query).fetchall() for query in
                    (TREE, OTHERS, SNAPSHOT, ACL, "SELECT * FROM blobfs.check('fs_dump')",
                     "SELECT bytes, inodes FROM fs_dump.usage")]

    def look(self, database):
        copy = self.describe(database)
        for name, one, other in zip(("tree", "inodes", "snapshot", "privileges", "check", "usage"),
                                    self.original, copy):
            self.assertEqual(one, other, name)
        self.assertEqual(copy[4], [])
        with psycopg.connect(dbname=database, autocommit=True) as connection:
            self.assertEqual(connection.execute("SELECT * FROM blobfs.mounts()").fetchall(), [])
            connection.execute("SET ROLE fs_dump_reader")
            connection.execute("SELECT blobfs.write('fs_dump', '/new', 'new')")
            with self.assertRaises(psycopg.errors.CheckViolation):
                connection.execute("UPDATE fs_dump.dentry SET name = '/' WHERE name = 'new'")
            connection.execute("SELECT blobfs.append('fs_dump', '/a/small', 'y')")
            with self.assertRaises(psycopg.Error) as caught:
                connection.execute("SELECT blobfs.truncate('fs_dump', '/new', 1000)")
            self.assertEqual(caught.exception.sqlstate, "BF122")
            connection.execute("RESET ROLE")
            self.assertEqual(
                connection.execute("SELECT blobfs.read('fs_dump', '/link')::bytea").fetchone()[0],
                b"xy")
            self.assertEqual(
                connection.execute("SELECT * FROM blobfs.check('fs_dump')").fetchall(), [])

    def test_plain(self):
        """A plain dump restores all file systems."""
        run("createdb", "plain")
        run("pg_dump", "-d", "original", "-f", "blobfs.sql")
        run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "plain", "-f", "blobfs.sql")
        self.look("plain")

    def test_custom_with_two_jobs(self):
        run("createdb", "custom")
        run("pg_dump", "-d", "original", "-Fc", "-f", "blobfs.custom")
        run("pg_restore", "--exit-on-error", "-j2", "-d", "custom", "blobfs.custom")
        self.look("custom")

    def test_one_schema_where_the_extension_is(self):
        run("createdb", "schema")
        run("psql", "-X", "-q", "-d", "schema", "-c", "CREATE EXTENSION blobfs CASCADE")
        run("pg_dump", "-d", "original", "-n", "fs_dump", "-Fc", "-f", "blobfs.schema")
        run("pg_restore", "--exit-on-error", "-d", "schema", "blobfs.schema")
        self.look("schema")

    def test_the_extension_goes_and_comes_back(self):
        run("createdb", "again")
        run("pg_dump", "-d", "original", "-f", "again.sql")
        run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "again", "-f", "again.sql")
        with psycopg.connect(dbname="again", autocommit=True) as connection:
            connection.execute("DROP EXTENSION blobfs CASCADE")
            connection.execute("CREATE EXTENSION blobfs")
            connection.execute("SELECT blobfs.upgrade('fs_dump')")
        self.look("again")

    def test_blobext_is_in_another_schema(self):
        run("createdb", "elsewhere")
        with psycopg.connect(dbname="elsewhere", autocommit=True) as connection:
            connection.execute("CREATE SCHEMA \"Ext é\"")
            connection.execute('CREATE EXTENSION blobext SCHEMA "Ext é"')
            for statement in [
                    "CREATE EXTENSION blobfs",
                    "SELECT blobfs.create('fs_dump')",
                    "SELECT blobfs.write('fs_dump', '/f', 'x'::bytea)",
                    "SELECT blobfs.append('fs_dump', '/f', 'y')",
                    "SELECT blobfs.truncate('fs_dump', '/f', 7)",
                    "SELECT fs_dump.patch(2, NULL, true, 1, '{3}', '{z}', 5, NULL)",
                    "SELECT fs_dump.patch(2, NULL, false, 1, '{3}', '{z}', 5, NULL)",
                    "SELECT blobfs.pin(mount, key, 1, blobfs.read('fs_dump', '/f'))"
                    " FROM blobfs.attach()",
                    "SELECT blobfs.snapshot('fs_dump', 's')"]:
                connection.execute(statement)
            self.assertEqual(
                connection.execute("SELECT blobfs.read('fs_dump', '/f', 0, 9)").fetchone()[0],
                b"x\0\0z\0")
            self.assertEqual(
                connection.execute("SELECT * FROM blobfs.check('fs_dump')").fetchall(), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=0))
