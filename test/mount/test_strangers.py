"""A role that may make schemas, functions and types does nothing to roles that mount.

Seen to fail with the program that took names for proofs; without pool_lose() in pool_reconnect()
test_owner_changes: the connection was used at the second attempt, and the stranger's function.
"""

import errno
import os
import sys

import psycopg

import support
from support import Mount, MountTest, refused, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "blobfs"))
from strangers import PLANT  # pylint: disable=wrong-import-position

TABLE = "table=item,path=path,content=content"

# What calls of the program would find, each of which notes the role as which it runs.
SUPPLIED = """
CREATE SCHEMA blobfs;
GRANT USAGE ON SCHEMA blobfs TO PUBLIC;
CREATE TABLE blobfs.caught (role text);
GRANT INSERT ON blobfs.caught TO PUBLIC;
CREATE FUNCTION blobfs.attach(what text, OUT mount bigint, OUT key uuid) LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); mount := 1; key := gen_random_uuid();
    END$$;
CREATE FUNCTION blobfs.join(bigint, uuid) RETURNS boolean LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); RETURN true; END$$;
CREATE FUNCTION blobfs.detach(bigint, uuid) RETURNS void LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); END$$;
CREATE FUNCTION blobfs.pin(bigint, uuid, bigint, public.blobstate) RETURNS boolean
    LANGUAGE plpgsql AS $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); RETURN true; END$$;
CREATE FUNCTION blobfs.pinned(bigint, uuid, bigint) RETURNS public.blobstate LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); RETURN NULL; END$$;
CREATE FUNCTION blobfs.unpin(bigint, uuid, bigint[]) RETURNS integer LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); RETURN 1; END$$;
CREATE FUNCTION blobfs.channel(name) RETURNS text LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO blobfs.caught VALUES (current_user); RETURN 'x'; END$$;
CREATE SCHEMA docs;
CREATE TABLE docs.dentry ();
"""


class StrangerTest(MountTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sql.execute("DROP ROLE IF EXISTS stranger")
        cls.sql.execute("CREATE ROLE stranger LOGIN")
        cls.sql.execute(f'GRANT CREATE ON DATABASE "{cls.database}" TO stranger')
        cls.sql.execute("GRANT CREATE ON SCHEMA public TO stranger")

    @classmethod
    def tearDownClass(cls):
        cls.sql.execute("DROP OWNED BY stranger CASCADE")
        cls.sql.execute("DROP ROLE stranger")
        super().tearDownClass()

    def as_stranger(self, commands):
        with psycopg.connect(user="stranger", autocommit=True) as stranger:
            stranger.execute(commands)

    def fill(self, table="item"):
        for name in ("d/large", "d/1", "d/2", "e/1"):
            self.put(table, name, b"x" * (3_000_000 if "large" in name else 100))


class SchemaTest(StrangerTest):
    extensions = ("blobext",)

    def test_schema_of_a_stranger(self):
        """Without the extension blobfs nothing of a schema of its name runs."""
        self.as_stranger(SUPPLIED)
        self.make_table("item")
        self.fill()
        with Mount(TABLE + ",timeout=0") as mount:
            with open(mount.path("d/large"), "rb") as file:
                self.assertEqual(file.read(1), b"x")
                self.sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                 " WHERE application_name = 'blobfs'")
                self.assertEqual(len(file.read()), 2_999_999)
        self.assertIn("no extension blobfs", refused("fs=docs"))
        self.assertIn("no extension blobfs", refused("fs=docs,notify"))
        self.assertEqual(self.sql.execute("SELECT role FROM blobfs.caught").fetchall(), [])


class OwnerTest(StrangerTest):
    message = 'functions of role "stranger" would run with the rights of this role'

    def test_file_system(self):
        """A superuser does not run functions of a file system of a role that is none."""
        self.as_stranger("SELECT blobfs.create('docs'), blobfs.write('docs', '/f', 'x'::bytea)")
        self.assertIn(self.message, refused("fs=docs,ro"))
        conninfo = f"user=stranger dbname={os.environ['PGDATABASE']}"
        with Mount("fs=docs", conninfo) as mount:
            self.assertEqual(mount.read("f"), b"x")
        self.sql.execute("DROP ROLE IF EXISTS mounter")
        for powers, message in (("", None), ("CREATEROLE", self.message),
                                ("BYPASSRLS", self.message), ("REPLICATION", self.message),
                                ("IN ROLE pg_write_server_files", self.message)):
            self.sql.execute(f"CREATE ROLE mounter LOGIN {powers}")
            self.as_stranger("SELECT blobfs.grant('docs', 'mounter', 'write')")
            conninfo = f"user=mounter dbname={os.environ['PGDATABASE']}"
            if message:
                self.assertIn(message, refused("fs=docs", conninfo), powers)
            else:
                with Mount("fs=docs,ro", conninfo) as mount:
                    self.assertEqual(mount.read("f"), b"x")
            self.sql.execute("DROP OWNED BY mounter; DROP ROLE mounter")

    def test_owner_of_a_function(self):
        """One function of another role in a superuser's file system is enough."""
        self.sql.execute("SELECT blobfs.create('mine')")
        with Mount("fs=mine"):
            pass
        self.sql.execute("GRANT CREATE ON SCHEMA mine TO stranger")
        self.as_stranger("CREATE FUNCTION mine.lookup(integer, text) RETURNS integer"
                         " LANGUAGE sql AS 'SELECT 1'")
        self.assertIn(self.message, refused("fs=mine"))

    def test_owner_changes(self):
        """A new connection that would run functions of a stranger is not used, nor tried twice."""
        self.sql.execute("SELECT blobfs.create('changing')")
        with Mount("fs=changing,timeout=0,timeo=1") as mount:
            self.assertEqual(os.listdir(mount.directory), [])
            self.sql.execute("GRANT CREATE ON SCHEMA changing TO stranger")
            self.as_stranger("CREATE FUNCTION changing.lookup(integer, text) RETURNS integer"
                             " LANGUAGE sql AS 'SELECT 1'")
            self.sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE application_name = 'blobfs'")
            with self.assertRaises(OSError) as raised:
                os.stat(mount.path("f"))
            self.assertEqual(raised.exception.errno, errno.EIO)
            self.assertIn(self.message, mount.messages())
            self.sql.execute("DROP FUNCTION changing.lookup(integer, text)")
            with self.assertRaises(FileNotFoundError):
                os.stat(mount.path("f"))

    def test_view(self):
        """Nor does it those of a view; a table has none, also when it becomes a view."""
        self.as_stranger("""
            CREATE TABLE of_stranger (path text COLLATE "C" PRIMARY KEY, content blobstate);
            INSERT INTO of_stranger SELECT p, 'x'::bytea::blobstate
                FROM unnest('{f,g}'::text[]) AS p;
            CREATE TABLE caught (role text);
            CREATE FUNCTION catch(b blobstate) RETURNS blobstate LANGUAGE plpgsql AS
                $$BEGIN INSERT INTO public.caught VALUES (current_user); RETURN b; END$$;
            CREATE VIEW shown AS SELECT path, catch(content) AS content FROM of_stranger""")
        self.assertIn(self.message, refused("table=shown,path=path,content=content"))
        with Mount("table=of_stranger,path=path,content=content,timeout=0") as mount:
            self.assertEqual(mount.read("f"), b"x")
            self.as_stranger("ALTER TABLE of_stranger RENAME TO of_stranger_2;"
                             "CREATE VIEW of_stranger AS SELECT path, catch(content) AS content"
                             " FROM of_stranger_2")
            try:
                mount.read("g")
            except OSError:
                pass
        if self.one("SELECT count(*) FROM pg_settings"
                    " WHERE name = 'restrict_nonsystem_relation_kind'"):
            self.assertEqual(self.sql.execute("SELECT role FROM caught").fetchall(), [])

    def test_names_of_types(self):
        """A type is what its OID says; casts and functions of a stranger's type do not run."""
        self.as_stranger("""
            CREATE SCHEMA other;
            CREATE TYPE other.text AS ENUM ('a');
            CREATE TYPE other.blobstate AS (b bytea);
            CREATE TYPE other.bytea AS (b pg_catalog.bytea);
            CREATE TYPE other.timestamptz AS ENUM ('a');
            CREATE TABLE faked (path pg_catalog.text, of_text other.text,
                of_blobstate other.blobstate, of_bytea other.bytea, changed other.timestamptz,
                content public.blobstate)""")
        for options, name in (("path=of_text,content=content", "other.text"),
                              ("path=path,content=of_blobstate", "other.blobstate"),
                              ("path=path,content=of_bytea", "other.bytea"),
                              ("path=path,content=content,mtime=changed", "other.timestamptz")):
            self.assertIn(f"is of type {name}", refused(f"table=faked,{options}"))

    def test_domain(self):
        """Functions for a domain fit better than those of blobstate, and do not run."""
        self.as_stranger("""
            CREATE DOMAIN dom AS blobstate;
            CREATE DOMAIN dom_of_dom AS dom;
            CREATE TABLE of_domain (path text COLLATE "C" PRIMARY KEY, content dom_of_dom);
            INSERT INTO of_domain VALUES ('f', repeat('x', 300000)::bytea::blobstate);
            CREATE FUNCTION fire() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'stranger'; END$$;
            CREATE FUNCTION length(dom_of_dom) RETURNS bigint
                LANGUAGE sql AS 'SELECT fire(); SELECT 1::bigint';
            CREATE FUNCTION sha256(dom_of_dom) RETURNS bytea
                LANGUAGE sql AS $$SELECT fire(); SELECT ''::bytea$$;
            CREATE FUNCTION blob_read(dom_of_dom, bigint, bigint) RETURNS bytea
                LANGUAGE sql AS $$SELECT fire(); SELECT ''::bytea$$""")
        with Mount("table=of_domain,path=path,content=content") as mount:
            self.assertEqual(mount.read("f"), b"x" * 300_000)
            self.assertEqual(mount.messages(), "")


class PathTest(StrangerTest):
    """Each operator, function and type of pg_catalog has one of a stranger before it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sql.execute("CREATE SCHEMA stranger; GRANT USAGE ON SCHEMA stranger TO PUBLIC")
        cls.sql.execute("SET check_function_bodies = off")
        cls.sql.execute(PLANT)
        cls.conninfo = f"dbname={os.environ['PGDATABASE']}" \
            " options='-c search_path=stranger,pg_catalog,public'"

    def check_table(self, table, options=""):
        with Mount(f"table={table},path=path,content=content,xattr{options}",
                   self.conninfo) as mount:
            self.assertEqual(sorted(os.listdir(mount.directory)), ["d", "e"])
            self.assertEqual(sorted(os.listdir(mount.path("d"))), ["1", "2", "large"])
            for name in ("1", "2"):
                self.assertEqual(mount.read("d", name), b"x" * 100)
            self.assertEqual(mount.read("d", "large"), b"x" * 3_000_000)
            self.assertTrue(os.path.isdir(mount.path("e")))
            self.assertEqual(os.getxattr(mount.path("d/1"), "user.size"), b"100")
            self.assertNotIn("stranger", mount.messages())

    def test_tables(self):
        """No function of a stranger runs when a table is mounted."""
        self.make_table("public.item")
        self.fill("public.item")
        self.check_table("item")
        self.check_table("item", ",nopin")
        self.make_table("public.plain", "bytea", "text")
        self.fill("public.plain")
        self.check_table("plain")
        self.sql.execute("CREATE VIEW public.seen AS SELECT path, content FROM public.plain")
        self.check_table("seen")
        with self.assertRaisesRegex(AssertionError, "a function of the stranger runs"):
            self.check_table("item", ",where=1=1")

    def test_file_system(self):
        """No function of a stranger runs when a file system is mounted."""
        self.sql.execute("SELECT blobfs.create('docs', %s, %s), blobfs.set_notify('docs', true)",
                         (os.getuid(), os.getgid()))
        with Mount("fs=docs,xattr,locks=db,notify", self.conninfo) as mount:
            os.mkdir(mount.path("d"))
            for name, size in (("f", 100), ("g", 3_000_000)):
                with open(mount.path("d", name), "wb") as file:
                    self.assertTrue(support.can_lock(file))
                    file.write(b"x" * size)
                    os.fsync(file.fileno())
                    file.write(b"more")
                with open(mount.path("d", name), "r+b") as file:
                    file.seek(10)
                    file.write(b"y")
                    file.truncate(90)
                self.assertEqual(len(mount.read("d", name)), 90)
            os.symlink("d", mount.path("link"))
            self.assertEqual(os.readlink(mount.path("link")), "d")
            os.link(mount.path("d/f"), mount.path("d/h"))
            os.rename(mount.path("d/h"), mount.path("i"))
            os.setxattr(mount.path("i"), "user.a", b"b")
            self.assertEqual(os.getxattr(mount.path("i"), "user.a"), b"b")
            self.assertEqual(len(os.getxattr(mount.path("i"), "user.sha256")), 64)
            self.assertIn("user.a", os.listxattr(mount.path("i")))
            os.removexattr(mount.path("i"), "user.a")
            os.chmod(mount.path("i"), 0o600)
            self.assertGreater(os.statvfs(mount.directory).f_files, 0)
            self.sql.execute("SELECT blobfs.snapshot('docs', 'one')")
            self.assertEqual(sorted(os.listdir(mount.path(".snapshots/one/d"))), ["f", "g"])
            self.assertEqual(len(mount.read(".snapshots/one/d/g")), 90)
            self.sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE application_name = 'blobfs'")
            wait_until(lambda: len(mount.read("i")) == 90, "the file")
            os.unlink(mount.path("i"))
            self.assertNotIn("stranger", mount.messages())
        with Mount("fs=docs,at=one", self.conninfo) as mount:
            self.assertEqual(sorted(os.listdir(mount.path("d"))), ["f", "g"])
        self.assertEqual(self.sql.execute("SELECT * FROM blobfs.check('docs')").fetchall(), [])


if __name__ == "__main__":
    support.main()
