"""Operators, functions and types of a stranger, in a schema that search_path has before pg_catalog:
none of them runs when a superuser calls functions of the extension or of a file system.

For each operator and each function of pg_catalog the stranger has one of the same name and types,
which raises an error; for the types that the templates name, domains; for catalogs, empty tables.
All functions of schema blobfs and of a file system are called, which the test proves by the
server's counts, and by the text of its calls for those in SQL, which the server does not count.

Seen to fail without each of the two replacements of blobfs.instance() (statfs() and lookup() of a
file system run operators of the stranger); so do functions of 0.3.0 (test_upgraded), and its
script (test_installation).
"""

import time
import unittest

import psycopg

DATABASE = "strangers"
PATH = "-c search_path=stranger,pg_catalog,public -c track_functions=all"

PLANT = r"""
CREATE FUNCTION stranger.fire() RETURNS boolean LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'a function of the stranger runs as %', current_user; END$$;
CREATE TEMP TABLE planted (kind text);
DO $do$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
            pg_get_function_result(p.oid) AS result
        FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind <> 'p'
            AND p.prorettype <> 'trigger'::regtype
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION stranger.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L',
                item.name, item.arguments, item.result, 'BEGIN PERFORM stranger.fire(); END');
            INSERT INTO planted VALUES ('function');
        EXCEPTION WHEN invalid_function_definition OR feature_not_supported OR duplicate_function
            OR undefined_object OR syntax_error OR datatype_mismatch THEN
            NULL;       -- of types that PL/pgSQL does not have
        END;
    END LOOP;
    FOR item IN
        SELECT o.oprname AS name, o.oid, o.oprresult::regtype AS result,
            nullif(o.oprleft, 0)::regtype AS lefttype, o.oprright::regtype AS righttype
        FROM pg_operator AS o WHERE o.oprnamespace = 'pg_catalog'::regnamespace
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION stranger.operator_%s(%s) RETURNS %s'
                ' LANGUAGE plpgsql AS %L', item.oid,
                concat_ws(', ', item.lefttype, item.righttype), item.result,
                'BEGIN PERFORM stranger.fire(); END');
            EXECUTE format('CREATE OPERATOR stranger.%s (FUNCTION = stranger.operator_%s, %s'
                ' RIGHTARG = %s)', item.name, item.oid, 'LEFTARG = ' || item.lefttype || ',',
                item.righttype);
            INSERT INTO planted VALUES ('operator');
        EXCEPTION WHEN invalid_function_definition OR feature_not_supported THEN
            NULL;
        END;
    END LOOP;
    FOR item IN SELECT unnest('{text,bytea,int4,int8,bool,name,uuid,oid,regclass,timestamptz,float8,
        xid8,interval}'::text[]) AS name
    LOOP
        EXECUTE format('CREATE DOMAIN stranger.%1$I AS pg_catalog.%1$I CHECK (stranger.fire())',
            item.name);
    END LOOP;
    FOR item IN SELECT relname AS name FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace
        AND relkind IN ('r', 'v') AND relname NOT LIKE 'pg\_stat%'
    LOOP
        EXECUTE format('CREATE TABLE stranger.%I ()', item.name);
    END LOOP;
END $do$;
"""

AS_MOUNT = "blobfs.attach( blobfs.join( blobfs.pin( blobfs.pinned( blobfs.unpin( blobfs.detach("
CALLS = (
    ("SELECT blobfs.create('strange', %s, %s, %s)", (1, 2, 493)),
    ("SELECT blobfs.set_quota('strange', %s, %s)", (1 << 30, 1000)),
    ("SELECT blobfs.set_notify('strange', true)", ()),
    ("SELECT blobfs.write('strange', '/f', %s)", (b"hello",)),
    ("SELECT blobfs.write('strange', '/f', %s)", (b"other",)),
    ("SELECT blobfs.append('strange', '/f', %s)", (b"more",)),
    ("SELECT blobfs.truncate('strange', '/f', %s)", (3,)),
    ("SELECT blobfs.mkdir('strange', '/d/e', true)", ()),
    ("SELECT blobfs.symlink('strange', 'f', '/l')", ()),
    ("SELECT blobfs.readlink('strange', '/l')", ()),
    ("SELECT blobfs.link('strange', '/f', '/d/g')", ()),
    ("SELECT blobfs.rename('strange', '/d/e', '/e')", ()),
    ("SELECT blobfs.rename('strange', '/d/g', '/e/g')", ()),
    ("SELECT blobfs.unlink('strange', '/e/g')", ()),
    ("SELECT blobfs.write('strange', '/d/x', %s)", (b"x",)),
    ("SELECT blobfs.unlink('strange', '/d', true)", ()),
    ("SELECT * FROM blobfs.stat('strange', '/f')", ()),
    ("SELECT * FROM blobfs.list('strange')", ()),
    ("SELECT blobfs.read('strange', '/f')", ()),
    ("SELECT blobfs.read('strange', '/f', %s, %s)", (0, 2)),
    ("SELECT blobfs.name_text(%s)", (b"a\xff",)),
    ("SELECT blobfs.snapshot('strange', 'one')", ()),
    ("SELECT * FROM blobfs.check('strange')", ()),
    ("SELECT blobfs.channel('strange')", ()),
    ("SELECT blobfs.grant('strange', 'stranger_reader', 'write')", ()),
    ("SELECT blobfs.notify_table('public.own', true)", ()),
    ("INSERT INTO public.own VALUES ('a')", ()),
    ("SELECT * FROM blobfs.view_problems('public.own', 'path')", ()),
    ("SELECT * FROM blobfs.mounts()", ()),
    ("SELECT blobfs.is_mount(%s)", (5,)),
    ("SELECT * FROM strange.lookup(%s, %s)", (1, b"f")),
    ("SELECT * FROM strange.getattr(%s)", (1,)),
    ("SELECT * FROM strange.readdir(%s, %s, %s)", (1, b"", 9)),
    ("SELECT * FROM strange.readdir_content(%s, %s, %s, %s)", (1, b"", 9, 99)),
    ("SELECT * FROM strange.content(%s, NULL)", (2,)),
    ("SELECT * FROM strange.read(%s, NULL, %s, %s)", (2, 0, 9)),
    ("SELECT * FROM strange.readlink(%s)", (2,)),
    ("SELECT * FROM strange.names(%s)", (2,)),
    ("SELECT * FROM strange.statfs()", ()),
    ("SELECT * FROM strange.snapshots()", ()),
    ("SELECT * FROM strange.check()", ()),
    ("SELECT * FROM strange.channel()", ()),
    ("SELECT * FROM strange.reserve(%s)", (3,)),
    ("SELECT * FROM strange.setxattr(%s, %s, %s, %s)", (2, b"user.a", b"b", 0)),
    ("SELECT * FROM strange.setxattr(%s, %s, %s, %s)", (2, b"user.b", b"c", 0)),
    ("SELECT * FROM strange.getxattr(%s, %s)", (2, b"user.a")),
    ("SELECT * FROM strange.listxattr(%s)", (2,)),
    ("SELECT * FROM strange.removexattr(%s, %s)", (2, b"user.a")),
    ("SELECT * FROM strange.mknod(NULL, %s, %s, %s, %s, %s, %s, %s)",
     (1, b"p", "p", 420, 0, 0, 0)),
    ("SELECT * FROM strange.create(NULL, %s, %s, %s, %s, %s, NULL, NULL)", (1, b"n", 420, 0, 0)),
    ("SELECT * FROM strange.patch(%s, NULL, false, %s, %s, %s, %s, NULL)",
     (2, 1, [0], [b"a"], 5)),
    ("SELECT * FROM strange.write(%s, %s, true, NULL, NULL)", (2, 7)),
    ("SELECT * FROM strange.setattr(%s, %s, NULL, NULL, %s, NULL)", (2, 420, -1 << 63)),
    ("SELECT * FROM strange.path", ()),
    ("SELECT strange.mount_begin(%s, %s)", (1234, 1)),
    ("SELECT strange.mark(%s, %s, %s)", (1234, 1, 1)),
    ("SELECT * FROM strange.mount_recover(%s, %s)", (1234, 1)),
    ("SELECT strange.mount_end(%s)", (1234,)),
    ("SELECT * FROM strange.snapshot_lookup(%s, %s, %s)", (1, 1, b"f")),
    ("SELECT * FROM strange.snapshot_getattr(%s, %s)", (1, 1)),
    ("SELECT * FROM strange.snapshot_readdir(%s, %s, %s, %s)", (1, 1, b"", 9)),
    ("SELECT * FROM strange.snapshot_readdir_content(%s, %s, %s, %s, %s)", (1, 1, b"", 9, 99)),
    ("SELECT * FROM strange.snapshot_content(%s, %s, NULL)", (1, 2)),
    ("SELECT * FROM strange.snapshot_read(%s, %s, NULL, %s, %s)", (1, 2, 0, 9)),
    ("SELECT * FROM strange.snapshot_readlink(%s, %s)", (1, 2)),
    ("SELECT * FROM strange.snapshot_getxattr(%s, %s, %s)", (1, 2, b"user.a")),
    ("SELECT * FROM strange.snapshot_listxattr(%s, %s)", (1, 2)),
    ("SELECT blobfs.drop_snapshot('strange', 'one')", ()),
    ("SELECT blobfs.upgrade('strange')", ()),
    ("SELECT blobfs.sweep()", ()),
    ("SELECT blobfs.create('other_strange')", ()),
    ("SELECT blobfs.drop('other_strange')", ()),
    ("SELECT blobfs.set_notify('strange', false)", ()),
)

class Case(unittest.TestCase):
    def setUp(self):
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            connection.execute(f"CREATE DATABASE {DATABASE}")
        self.plain = psycopg.connect(dbname=DATABASE, autocommit=True)
        for role in ("stranger", "stranger_reader"):
            self.plain.execute(f"DROP ROLE IF EXISTS {role}")
            self.plain.execute(f"CREATE ROLE {role}")
        self.plain.execute("CREATE SCHEMA stranger AUTHORIZATION stranger;"
                           "GRANT USAGE ON SCHEMA stranger TO PUBLIC;"
                           "CREATE EXTENSION blobext;"
                           "CREATE TABLE public.own (path text COLLATE \"C\")")

    def plant(self):
        self.plain.execute("SET check_function_bodies = off")
        self.plain.execute(PLANT)
        for kind, least in (("function", 1500), ("operator", 700)):
            planted = self.plain.execute("SELECT count(*) FROM planted WHERE kind = %s",
                                         (kind,)).fetchone()[0]
            self.assertGreater(planted, least, kind)
        return psycopg.connect(dbname=DATABASE, autocommit=True, options=PATH)

    def tearDown(self):
        self.plain.close()
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {DATABASE} (FORCE)")
            connection.execute("DROP ROLE stranger, stranger_reader")

    def test_installation(self):
        """An operator in the schema of blobext that fits better does not run as the installer."""
        self.plain.execute("DROP EXTENSION blobext; CREATE EXTENSION blobext SCHEMA stranger")
        self.plain.execute("""
            CREATE FUNCTION stranger.equal(oid, regnamespace) RETURNS boolean LANGUAGE plpgsql AS
                $$BEGIN RAISE EXCEPTION 'a function of the stranger runs as %', current_user; END$$;
            CREATE OPERATOR stranger.= (FUNCTION = stranger.equal, LEFTARG = oid,
                RIGHTARG = regnamespace);
            CREATE SCHEMA blobfs""")
        with self.assertRaisesRegex(psycopg.Error, "a function of the stranger runs"):
            self.plain.execute("CREATE EXTENSION blobfs VERSION '0.3.0'")
        self.plain.execute("CREATE EXTENSION blobfs")

    def call_all(self, sql):
        for statement, parameters in CALLS:
            try:
                sql.execute(statement, parameters)
            except psycopg.Error as error:
                self.fail(f"{statement}: {error}")
        mount, key = sql.execute("SELECT * FROM blobfs.attach('x')").fetchone()
        sql.execute("SELECT blobfs.join(%s, %s)", (mount, key))
        sql.execute("SELECT blobfs.pin(%s, %s, %s, c) FROM strange.content(%s, NULL) AS c",
                    (mount, key, 1, 2))
        sql.execute("SELECT blobfs.pinned(%s, %s, %s)", (mount, key, 1))
        sql.execute("SELECT blobfs.unpin(%s, %s, %s)", (mount, key, [1]))
        sql.execute("SELECT blobfs.detach(%s, %s)", (mount, key))

    def test_functions(self):
        """No function of a stranger runs, whatever a superuser calls."""
        self.plain.execute("CREATE EXTENSION blobfs")
        sql = self.plant()
        with self.assertRaisesRegex(psycopg.Error, "a function of the stranger runs"):
            sql.execute("SELECT 'a'::pg_catalog.text || 'b'::pg_catalog.text")
        self.call_all(sql)
        with self.assertRaisesRegex(psycopg.Error, "would change without its version"):
            sql.execute("UPDATE strange.inode SET content = NULL"
                        " WHERE ino OPERATOR(pg_catalog.=) %s", (2,))
        with self.assertRaises(psycopg.Error) as caught:
            sql.execute("SELECT blobfs.fail(%s, 'x')", (2,))
        self.assertEqual(caught.exception.sqlstate, "BF002")
        sql.close()
        self.check_coverage()

    def check_coverage(self):
        """A statement of the test names each function, or the server has counted it."""
        text = "\n".join(call for call, _ in CALLS) + AS_MOUNT
        signatures = self.plain.execute("""
            SELECT proname, oid::regprocedure::text FROM pg_proc
            WHERE pronamespace IN ('blobfs'::regnamespace, 'strange'::regnamespace)
                AND proname NOT LIKE 'template%'""").fetchall()
        end = time.monotonic() + 60
        while True:         # the server counts a session when it has ended
            counted = {row[0] for row in self.plain.execute(
                "SELECT funcid::regprocedure::text FROM pg_stat_user_functions")}
            missed = [signature for name, signature in signatures
                      if signature not in counted and f".{name}(" not in text]
            if not missed or time.monotonic() > end:
                break
            time.sleep(0.05)
        self.assertEqual(missed, [])

    def test_upgraded(self):
        """Functions of 0.3.0 run the stranger's; blobfs.check() says so; upgrade() ends it."""
        self.plain.execute("CREATE EXTENSION blobfs VERSION '0.3.0'")
        self.plain.execute("SELECT blobfs.create('strange'), blobfs.write('strange', '/f', %s)",
                           (b"hello",))
        self.plain.execute("ALTER EXTENSION blobfs UPDATE")
        sql = self.plant()
        with self.assertRaisesRegex(psycopg.Error, "a function of the stranger runs|stranger"):
            sql.execute("SELECT * FROM strange.setxattr(%s, %s, %s, %s)", (2, b"user.a", b"b", 0))
        problem = self.plain.execute("SELECT problem FROM blobfs.check('strange')").fetchall()
        self.assertEqual(problem, [("functions are of an earlier version of the extension: "
                                    "SELECT blobfs.upgrade('strange')",)])
        sql.execute("SELECT blobfs.upgrade('strange')")
        self.assertEqual(self.plain.execute("SELECT * FROM blobfs.check('strange')").fetchall(), [])
        sql.execute("SELECT * FROM strange.setxattr(%s, %s, %s, %s)", (2, b"user.a", b"b", 0))
        sql.close()


if __name__ == "__main__":
    unittest.main()
