"""A file system that 0.3.0 has made, and blobfs.upgrade() after ALTER EXTENSION blobfs UPDATE.

Seen to fail without blobfs.repair(): sizes stay as they were set by hand, the usage of the quota
with them, writers keep the table of marks and lack its functions.
"""

import unittest

import psycopg

DATABASE = "fs_upgrade"

DESCRIPTION = """
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proacl::text, obj_description(p.oid)
FROM pg_proc AS p WHERE p.pronamespace = '{0}'::regnamespace
UNION ALL
SELECT c.relname::text, c.relkind::text, c.relacl::text, obj_description(c.oid)
FROM pg_class AS c WHERE c.relnamespace = '{0}'::regnamespace
UNION ALL
SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), a.attacl::text,
    col_description(c.oid, a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = '{0}'::regnamespace AND a.attnum > 0
UNION ALL
SELECT t.tgname::text, pg_get_triggerdef(t.oid), t.tgenabled::text, NULL
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = '{0}'::regnamespace
UNION ALL
SELECT o.conname::text, pg_get_constraintdef(o.oid), NULL, NULL
FROM pg_constraint AS o WHERE o.connamespace = '{0}'::regnamespace
ORDER BY 1, 2"""


class Case(unittest.TestCase):
    def setUp(self):
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            connection.execute(f"CREATE DATABASE {DATABASE}")
            for role in ("upgrade_writer", "upgrade_reader"):
                connection.execute(f"DROP ROLE IF EXISTS {role}")
                connection.execute(f"CREATE ROLE {role}")
        self.sql = psycopg.connect(dbname=DATABASE, autocommit=True)
        self.sql.execute("CREATE EXTENSION blobext")
        self.sql.execute("CREATE EXTENSION blobfs VERSION '0.3.0'")
        self.make("fs_file")

    def make(self, fs):
        self.sql.execute(f"SELECT blobfs.create('{fs}')")
        self.sql.execute(f"SELECT blobfs.set_quota('{fs}', 1000, 100)")
        self.sql.execute(f"SELECT blobfs.set_notify('{fs}', true)")
        self.sql.execute(f"SELECT blobfs.grant('{fs}', 'upgrade_writer', 'write')")
        self.sql.execute(f"SELECT blobfs.grant('{fs}', 'upgrade_reader', 'read')")

    def tearDown(self):
        self.sql.close()
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {DATABASE}")
            connection.execute("DROP ROLE upgrade_writer, upgrade_reader")

    def one(self, query, *parameters):
        return self.sql.execute(query, parameters).fetchone()[0]

    def describe(self, fs):
        return [[field and field.replace(fs, "FS") for field in row]
                for row in self.sql.execute(DESCRIPTION.format(fs)).fetchall()]

    def test_upgrade(self):
        """All objects and privileges are those of a new file system; sizes and usage are true."""
        self.sql.execute("SELECT blobfs.write('fs_file', '/f', %s)", (b"x" * 600,))
        self.sql.execute("UPDATE fs_file.inode SET size = -5000 WHERE kind = 'f'")
        self.assertEqual(self.one("SELECT bytes FROM fs_file.usage"), -5000)
        old_channel = self.one("SELECT blobfs.channel('fs_file')")
        self.sql.execute("ALTER EXTENSION blobfs UPDATE")
        self.assertEqual(self.one("SELECT blobfs.channel('fs_file')"), old_channel,
                         "its triggers notify the old one still")
        with self.assertRaisesRegex(psycopg.Error, "has functions of an earlier version"):
            self.sql.execute("SELECT blobfs.grant('fs_file', 'upgrade_reader', 'read')")
        self.sql.execute("SELECT blobfs.upgrade('fs_file')")
        self.assertNotEqual(self.one("SELECT blobfs.channel('fs_file')"), old_channel)
        self.assertEqual(self.one("SELECT size FROM fs_file.inode WHERE kind = 'f'"), 600)
        self.assertEqual(self.one("SELECT bytes FROM fs_file.usage"), 600)
        self.assertEqual(self.sql.execute("SELECT * FROM blobfs.check('fs_file')").fetchall(), [])
        self.make("fs_new")
        self.assertEqual(self.describe("fs_file"), self.describe("fs_new"))
        self.sql.execute("SELECT blobfs.upgrade('fs_file')")
        self.assertEqual(self.describe("fs_file"), self.describe("fs_new"), "once more")

    def test_in_transaction(self):
        """Changes of the same transaction are counted once."""
        self.sql.execute("UPDATE fs_file.inode SET size = 10 WHERE ino = 1")
        self.sql.execute("ALTER EXTENSION blobfs UPDATE")
        with self.sql.transaction():
            self.sql.execute("SELECT blobfs.write('fs_file', '/f', %s)", (b"x" * 600,))
            self.sql.execute("SELECT blobfs.upgrade('fs_file')")
        self.assertEqual(self.sql.execute("SELECT bytes, inodes FROM fs_file.usage").fetchall(),
                         [(600, 2)])


if __name__ == "__main__":
    unittest.main()
