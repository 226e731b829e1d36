/* blobfs 0.3.0: file systems in tables, see README.md in the directory of this file */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION blobfs" to load this file. \quit

-- ---------------------------------------------------------------------------
-- The schema: its owner could put functions beside those of the extension
-- ---------------------------------------------------------------------------

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS r
            ON r.oid = n.nspowner
            WHERE n.nspname = 'blobfs' AND r.rolname <> current_user AND NOT r.rolsuper)
        OR EXISTS (SELECT FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'blobfs'::pg_catalog.regnamespace) THEN
        RAISE EXCEPTION 'schema "blobfs" exists, and is not the extension''s' USING
            ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Rename or drop it.';
    END IF;
END $$;
GRANT USAGE ON SCHEMA blobfs TO PUBLIC;

-- ---------------------------------------------------------------------------
-- Rows of results
-- ---------------------------------------------------------------------------

CREATE TYPE blobfs.attr AS (
    ino bigint, kind "char", mode integer, uid bigint, gid bigint, nlink integer, size bigint,
    mtime bigint, ctime bigint, atime bigint, rdev bigint, version bigint);
COMMENT ON TYPE blobfs.attr IS 'attributes of an inode; times in nanoseconds since 1970';

CREATE TYPE blobfs.entry AS (
    name bytea, ino bigint, kind "char", mode integer, uid bigint, gid bigint, nlink integer,
    size bigint, mtime bigint, ctime bigint, atime bigint, rdev bigint, version bigint);
COMMENT ON TYPE blobfs.entry IS 'entry of a directory: a name, and the attributes of its inode';

CREATE TYPE blobfs.entry_content AS (
    name bytea, ino bigint, kind "char", mode integer, uid bigint, gid bigint, nlink integer,
    size bigint, mtime bigint, ctime bigint, atime bigint, rdev bigint, version bigint,
    content blobstate);
COMMENT ON TYPE blobfs.entry_content IS 'entry of a directory with the content of a small file';

CREATE TYPE blobfs.result AS (
    status integer, ino bigint, kind "char", mode integer, uid bigint, gid bigint, nlink integer,
    size bigint, mtime bigint, ctime bigint, atime bigint, rdev bigint, version bigint);
COMMENT ON TYPE blobfs.result IS
    'result of a change: 0 and the attributes of the inode, or the errno of Linux';

-- ---------------------------------------------------------------------------
-- Mounts and pins
--
-- No role has privileges on these tables.  The functions act for a caller that knows the key of a
-- mount.  Unlogged: after a crash of the server there is no mount, and so no pin.
-- ---------------------------------------------------------------------------

CREATE UNLOGGED TABLE blobfs.mount (
    id bigint PRIMARY KEY,
    key uuid NOT NULL,
    role oid NOT NULL,
    what text NOT NULL,
    attached timestamptz NOT NULL DEFAULT now(),
    unconnected_since timestamptz
);
COMMENT ON TABLE blobfs.mount IS 'mounts that programs have registered';
COMMENT ON COLUMN blobfs.mount.id IS 'random number';
COMMENT ON COLUMN blobfs.mount.key IS 'secret of the program; proves that a pin is its own';
COMMENT ON COLUMN blobfs.mount.role IS 'role of the session that registered the mount';
COMMENT ON COLUMN blobfs.mount.what IS 'what the program says that it mounts';
COMMENT ON COLUMN blobfs.mount.attached IS 'when the mount was registered';
COMMENT ON COLUMN blobfs.mount.unconnected_since IS
    'when a sweep first saw that no connection of the mount was left';

CREATE UNLOGGED TABLE blobfs.connection (
    mount bigint NOT NULL,
    pid integer NOT NULL,
    started timestamptz NOT NULL,
    PRIMARY KEY (mount, pid)
);
COMMENT ON TABLE blobfs.connection IS 'server processes of the connections of mounts';
COMMENT ON COLUMN blobfs.connection.mount IS 'the mount';
COMMENT ON COLUMN blobfs.connection.pid IS 'the server process';
COMMENT ON COLUMN blobfs.connection.started IS 'when it started, for numbers are used again';

CREATE UNLOGGED TABLE blobfs.pin (
    mount bigint NOT NULL,
    handle bigint NOT NULL,
    content blobstate NOT NULL,
    size bigint GENERATED ALWAYS AS (length(content)) STORED,
    PRIMARY KEY (mount, handle)
);
ALTER TABLE blobfs.pin ALTER COLUMN content SET STATISTICS 0;
COMMENT ON TABLE blobfs.pin IS 'values that open files of mounts keep';
COMMENT ON COLUMN blobfs.pin.mount IS 'the mount';
COMMENT ON COLUMN blobfs.pin.handle IS 'number of the open file, chosen by the program';
COMMENT ON COLUMN blobfs.pin.content IS 'the value';
COMMENT ON COLUMN blobfs.pin.size IS 'its size in bytes';

-- A mount without a connection may be about to come back: it is dead a minute later.  Rows that
-- another session has locked are left to the next sweep, for a role may keep locks on rows of its
-- own mounts as long as it likes.
CREATE FUNCTION blobfs.sweep() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dead bigint[];
BEGIN
    DELETE FROM blobfs.connection AS c USING (
        SELECT g.mount, g.pid FROM blobfs.connection AS g
        WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) AS a
            WHERE a.pid = g.pid AND a.backend_start = g.started)
        FOR UPDATE SKIP LOCKED) AS gone
    WHERE c.mount = gone.mount AND c.pid = gone.pid;
    UPDATE blobfs.mount AS m SET unconnected_since = clock_timestamp() FROM (
        SELECT u.id FROM blobfs.mount AS u
        WHERE u.unconnected_since IS NULL
            AND NOT EXISTS (SELECT FROM blobfs.connection AS c WHERE c.mount = u.id)
        FOR UPDATE SKIP LOCKED) AS unconnected
    WHERE m.id = unconnected.id;
    WITH gone AS (
        DELETE FROM blobfs.mount AS m USING (
            SELECT u.id FROM blobfs.mount AS u
            WHERE u.unconnected_since < clock_timestamp() - interval '1 minute'
                AND NOT EXISTS (SELECT FROM blobfs.connection AS c WHERE c.mount = u.id)
            FOR UPDATE SKIP LOCKED) AS unconnected
        WHERE m.id = unconnected.id
        RETURNING m.id)
    SELECT array_agg(g.id) INTO dead FROM gone AS g;
    DELETE FROM blobfs.pin AS p WHERE p.mount = ANY (dead);
    RETURN coalesce(cardinality(dead), 0);
END $$;
COMMENT ON FUNCTION blobfs.sweep() IS
    'removes mounts whose connections have been gone for a minute, with their pins; how many';

CREATE FUNCTION blobfs.attach(what text DEFAULT '', OUT mount bigint, OUT key uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM blobfs.sweep();
    key := gen_random_uuid();
    mount := ('x' || left(replace(gen_random_uuid()::text, '-', ''), 12))::bit(48)::bigint + 1;
    INSERT INTO blobfs.mount (id, key, role, what)
    VALUES (mount, key, (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = session_user),
        left(what, 1000));
    PERFORM blobfs.join(mount, key);
END $$;
COMMENT ON FUNCTION blobfs.attach(text) IS
    'registers a mount and this connection of it; sweeps dead mounts';

CREATE FUNCTION blobfs.join(mount bigint, key uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    UPDATE blobfs.mount AS m SET unconnected_since = NULL WHERE m.id = mount AND m.key = key;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO blobfs.connection AS c
    SELECT mount, a.pid, a.backend_start FROM pg_stat_get_activity(pg_backend_pid()) AS a
    ON CONFLICT ON CONSTRAINT connection_pkey DO UPDATE SET started = excluded.started
    WHERE c.started <> excluded.started;
    RETURN true;
END $$;
COMMENT ON FUNCTION blobfs.join(bigint, uuid) IS
    'registers this connection of a mount; false if there is no such mount (any more)';

CREATE FUNCTION blobfs.detach(mount bigint, key uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    DELETE FROM blobfs.mount AS m WHERE m.id = mount AND m.key = key;
    IF FOUND THEN
        DELETE FROM blobfs.pin AS p WHERE p.mount = mount;
        DELETE FROM blobfs.connection AS c WHERE c.mount = mount;
    END IF;
    PERFORM blobfs.sweep();
END $$;
COMMENT ON FUNCTION blobfs.detach(bigint, uuid) IS 'removes a mount and its pins';

CREATE FUNCTION blobfs.is_mount(mount bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    RETURN EXISTS (SELECT FROM blobfs.mount AS m WHERE m.id = mount);
END $$;
COMMENT ON FUNCTION blobfs.is_mount(bigint) IS 'whether a mount of this number is registered';

-- The row of the mount is locked so that the pin does not come after detach() or sweep().
CREATE FUNCTION blobfs.pin(mount bigint, key uuid, handle bigint, content blobstate)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM FROM blobfs.mount AS m WHERE m.id = mount AND m.key = key FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO blobfs.pin VALUES (mount, handle, content)
    ON CONFLICT ON CONSTRAINT pin_pkey DO UPDATE SET content = excluded.content;
    RETURN true;
END $$;
COMMENT ON FUNCTION blobfs.pin(bigint, uuid, bigint, blobstate) IS
    'keeps a value for an open file of a mount; false if there is no such mount (any more)';

CREATE FUNCTION blobfs.pinned(mount bigint, key uuid, handle bigint) RETURNS blobstate
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT p.content FROM blobfs.pin AS p
        WHERE p.mount = mount AND p.handle = handle
            AND EXISTS (SELECT FROM blobfs.mount AS m WHERE m.id = mount AND m.key = key));
END $$;
COMMENT ON FUNCTION blobfs.pinned(bigint, uuid, bigint) IS
    'the value that an open file of a mount keeps; NULL if there is none';

CREATE FUNCTION blobfs.unpin(mount bigint, key uuid, handles bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    removed integer;
BEGIN
    DELETE FROM blobfs.pin AS p
    WHERE p.mount = mount AND p.handle = ANY (handles)
        AND EXISTS (SELECT FROM blobfs.mount AS m WHERE m.id = mount AND m.key = key);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
COMMENT ON FUNCTION blobfs.unpin(bigint, uuid, bigint[]) IS
    'lets values of files go that a mount has closed; returns how many';

CREATE FUNCTION blobfs.mounts(OUT role name, OUT what text, OUT attached timestamptz,
        OUT connections bigint, OUT pins bigint, OUT pinned_bytes bigint)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT pg_get_userbyid(m.role), m.what, m.attached,
        (SELECT count(*) FROM blobfs.connection AS c WHERE c.mount = m.id),
        p.pins, p.bytes
    FROM blobfs.mount AS m
        LEFT JOIN LATERAL (SELECT count(*) AS pins,
                coalesce(sum(p.size), 0)::bigint AS bytes
            FROM blobfs.pin AS p WHERE p.mount = m.id) AS p ON true
    ORDER BY m.attached;
END $$;
COMMENT ON FUNCTION blobfs.mounts() IS 'mounts, and what their open files keep';
REVOKE ALL ON FUNCTION blobfs.mounts() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobfs.mounts() TO pg_monitor;

-- ---------------------------------------------------------------------------
-- Names
-- ---------------------------------------------------------------------------

-- PostgreSQL reads the expressions of a table's constraints anew in each statement, so the only one
-- of a table that is written all the time is short.
CREATE FUNCTION blobfs.is_name(name bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.length(name) BETWEEN 1 AND 255
        AND pg_catalog."position"(name, '\x2f'::bytea) = 0
        AND pg_catalog."position"(name, '\x00'::bytea) = 0
        AND name <> '\x2e'::bytea AND name <> '\x2e2e'::bytea;
END $$;
COMMENT ON FUNCTION blobfs.is_name(bytea) IS 'whether bytes can be the name of a file';

-- Only a name that is not plain ASCII costs a subtransaction.
CREATE FUNCTION blobfs.name_text(name bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    escaped text := encode(name, 'escape');
BEGIN
    IF position('\' IN escaped) = 0 THEN
        RETURN escaped;
    END IF;
    RETURN convert_from(name, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN escaped;
END $$;
COMMENT ON FUNCTION blobfs.name_text(bytea) IS
    'a name as text: as it is if it is valid UTF-8, else with bytes as \nnn';

-- ---------------------------------------------------------------------------
-- The template of a file system
--
-- blobfs.create() and blobfs.upgrade() run these texts, in which @fs@ is the schema, @blobext@ that
-- of the extension blobext, @attr@ the attributes of an inode "i", @now@ microseconds since 1970,
-- @rest_of_change@ the rest of a function that changes content of a known version.
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobfs.template_tables() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC SELECT $template$
CREATE TABLE @fs@.superblock (
    format integer PRIMARY KEY CHECK (format = 1),
    rename_lock boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT pg_catalog.now(),
    salt bytea NOT NULL DEFAULT pg_catalog.decode(
        pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''), 'hex'),
    quota_bytes bigint CHECK (quota_bytes >= 0),
    quota_inodes bigint CHECK (quota_inodes >= 0)
);
COMMENT ON TABLE @fs@.superblock IS 'one row: properties of the file system';
COMMENT ON COLUMN @fs@.superblock.format IS 'version of these tables';
COMMENT ON COLUMN @fs@.superblock.rename_lock IS
    'without meaning: who moves a directory to another one locks the row';
COMMENT ON COLUMN @fs@.superblock.created IS 'when the file system was made';
COMMENT ON COLUMN @fs@.superblock.salt IS 'makes hashes of names in notifications hard to guess';
COMMENT ON COLUMN @fs@.superblock.quota_bytes IS 'most bytes of all files; NULL: no limit';
COMMENT ON COLUMN @fs@.superblock.quota_inodes IS 'most inodes; NULL: no limit';

CREATE SEQUENCE @fs@.ino_seq AS bigint START 2;
COMMENT ON SEQUENCE @fs@.ino_seq IS 'numbers of inodes';

CREATE TABLE @fs@.inode (
    ino bigint PRIMARY KEY,
    version bigint NOT NULL,
    size bigint NOT NULL,
    mtime bigint NOT NULL,
    ctime bigint NOT NULL,
    atime bigint NOT NULL,
    uid bigint NOT NULL,
    gid bigint NOT NULL,
    rdev bigint NOT NULL DEFAULT 0,
    mode integer NOT NULL,
    nlink integer NOT NULL,
    kind "char" NOT NULL,
    target bytea,
    xattr bytea[],
    content @blobext@.blobstate
) WITH (fillfactor = 90);
ALTER TABLE @fs@.inode ALTER COLUMN content SET STATISTICS 0,
    ALTER COLUMN xattr SET STATISTICS 0, ALTER COLUMN target SET STATISTICS 0;
COMMENT ON TABLE @fs@.inode IS 'files, directories and so on, without their names';
COMMENT ON COLUMN @fs@.inode.ino IS 'number of the inode; 1 is the root';
COMMENT ON COLUMN @fs@.inode.version IS 'changes with the content, and only grows';
COMMENT ON COLUMN @fs@.inode.size IS 'size of the content, or of the target, in bytes';
COMMENT ON COLUMN @fs@.inode.mtime IS 'last change of the content; nanoseconds since 1970';
COMMENT ON COLUMN @fs@.inode.ctime IS 'last change of the inode; nanoseconds since 1970';
COMMENT ON COLUMN @fs@.inode.atime IS 'last access, as it was set; nanoseconds since 1970';
COMMENT ON COLUMN @fs@.inode.uid IS 'user, as the mount says';
COMMENT ON COLUMN @fs@.inode.gid IS 'group, as the mount says';
COMMENT ON COLUMN @fs@.inode.rdev IS 'number of a device';
COMMENT ON COLUMN @fs@.inode.mode IS 'permission bits, 07777';
COMMENT ON COLUMN @fs@.inode.nlink IS 'number of names; of a directory 2 and its subdirectories';
COMMENT ON COLUMN @fs@.inode.kind IS
    'f file, d directory, l symbolic link, p fifo, s socket, c and b devices';
COMMENT ON COLUMN @fs@.inode.target IS 'where a symbolic link leads';
COMMENT ON COLUMN @fs@.inode.xattr IS 'extended attributes: names and values in turn';
COMMENT ON COLUMN @fs@.inode.content IS 'content of a file';

CREATE TABLE @fs@.dentry (
    parent bigint NOT NULL,
    ino bigint NOT NULL,
    name bytea NOT NULL,
    PRIMARY KEY (parent, name)
) WITH (fillfactor = 90);
CREATE INDEX dentry_ino_idx ON @fs@.dentry (ino);
COMMENT ON TABLE @fs@.dentry IS 'names: entries of directories, without . and ..';
COMMENT ON INDEX @fs@.dentry_ino_idx IS 'names of an inode';
COMMENT ON COLUMN @fs@.dentry.parent IS 'inode of the directory';
COMMENT ON COLUMN @fs@.dentry.ino IS 'inode that has the name';
COMMENT ON COLUMN @fs@.dentry.name IS 'the name, any bytes but / and NUL';

CREATE TABLE @fs@.mount (
    id bigint,
    slot integer,
    mark bigint NOT NULL,
    changed timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (id, slot)
) WITH (fillfactor = 50);
COMMENT ON TABLE @fs@.mount IS 'marks: which transactions of a mount were committed';
COMMENT ON COLUMN @fs@.mount.id IS 'the mount, as blobfs.attach() returned it';
COMMENT ON COLUMN @fs@.mount.slot IS 'a writing connection of it';
COMMENT ON COLUMN @fs@.mount.mark IS 'number of its last transaction that was committed';
COMMENT ON COLUMN @fs@.mount.changed IS 'when that began';

CREATE TABLE @fs@.snapshot (
    snapshot bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name bytea NOT NULL UNIQUE,
    created bigint NOT NULL
);
COMMENT ON TABLE @fs@.snapshot IS 'snapshots of the whole tree';
COMMENT ON SEQUENCE @fs@.snapshot_snapshot_seq IS 'numbers of snapshots';
COMMENT ON COLUMN @fs@.snapshot.snapshot IS 'number of the snapshot';
COMMENT ON COLUMN @fs@.snapshot.name IS 'its name, as that of a file';
COMMENT ON COLUMN @fs@.snapshot.created IS 'when it was made; nanoseconds since 1970';

CREATE TABLE @fs@.snapshot_inode (
    snapshot bigint NOT NULL,
    LIKE @fs@.inode INCLUDING COMMENTS,
    PRIMARY KEY (snapshot, ino)
);
ALTER TABLE @fs@.snapshot_inode ALTER COLUMN content SET STATISTICS 0,
    ALTER COLUMN xattr SET STATISTICS 0, ALTER COLUMN target SET STATISTICS 0;
COMMENT ON TABLE @fs@.snapshot_inode IS 'rows of inode, as they were; content is shared';
COMMENT ON COLUMN @fs@.snapshot_inode.snapshot IS 'the snapshot';

CREATE TABLE @fs@.snapshot_dentry (
    snapshot bigint NOT NULL,
    LIKE @fs@.dentry INCLUDING COMMENTS,
    PRIMARY KEY (snapshot, parent, name)
);
COMMENT ON TABLE @fs@.snapshot_dentry IS 'rows of dentry, as they were';
COMMENT ON COLUMN @fs@.snapshot_dentry.snapshot IS 'the snapshot';

INSERT INTO @fs@.superblock (format) VALUES (1);
INSERT INTO @fs@.inode (ino, version, size, mtime, ctime, atime, uid, gid, mode, nlink, kind)
SELECT 1, n.us, 0, n.us * 1000, n.us * 1000, n.us * 1000, 0, 0, 493, 2, 'd'
FROM (SELECT @now@ AS us) AS n;
$template$; END;
COMMENT ON FUNCTION blobfs.template_tables() IS 'text that makes the tables of a file system';

-- Functions that read, of the present tree or of a snapshot: the server inlines them into the
-- statement that calls them, so they are neither VOLATILE nor STRICT, and set nothing.  Those of a
-- snapshot have its number as first argument, and a condition more for each table.
CREATE FUNCTION blobfs.template_reading(of_snapshot boolean) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    template text := $template$
CREATE OR REPLACE FUNCTION @fs@.@s@lookup(@number@parent bigint, name bytea)
    RETURNS SETOF blobfs.attr
    LANGUAGE sql STABLE AS $blobfs$
    SELECT @attr@
    FROM @fs@.@s@dentry AS d JOIN @fs@.@s@inode AS i ON @its_i@i.ino = d.ino
    WHERE @its_d@d.parent = @s@lookup.parent AND d.name = @s@lookup.name
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@lookup(@bigint@bigint, bytea) IS
    'attributes of the inode that has a name in a directory@there@';

CREATE OR REPLACE FUNCTION @fs@.@s@getattr(@number@ino bigint) RETURNS SETOF blobfs.attr
    LANGUAGE sql STABLE AS $blobfs$
    SELECT @attr@ FROM @fs@.@s@inode AS i WHERE @its_i@i.ino = @s@getattr.ino
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@getattr(@bigint@bigint) IS 'attributes of an inode@there@';

CREATE OR REPLACE FUNCTION @fs@.@s@readdir(@number@parent bigint, after bytea, max_rows integer)
    RETURNS SETOF blobfs.entry
    LANGUAGE sql STABLE AS $blobfs$
    SELECT d.name, @attr@
    FROM @fs@.@s@dentry AS d JOIN @fs@.@s@inode AS i ON @its_i@i.ino = d.ino
    WHERE @its_d@d.parent = @s@readdir.parent AND d.name > @s@readdir.after
    ORDER BY d.name LIMIT @s@readdir.max_rows
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@readdir(@bigint@bigint, bytea, integer) IS
    'the entries of a directory@there@ behind a name, in the order of names';

CREATE OR REPLACE FUNCTION @fs@.@s@readdir_content(@number@parent bigint, after bytea,
        max_rows integer, max_bytes bigint) RETURNS SETOF blobfs.entry_content
    LANGUAGE sql STABLE AS $blobfs$
    SELECT d.name, @attr@, CASE WHEN i.size <= @s@readdir_content.max_bytes THEN i.content END
    FROM @fs@.@s@dentry AS d JOIN @fs@.@s@inode AS i ON @its_i@i.ino = d.ino
    WHERE @its_d@d.parent = @s@readdir_content.parent AND d.name > @s@readdir_content.after
    ORDER BY d.name LIMIT @s@readdir_content.max_rows
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@readdir_content(@bigint@bigint, bytea, integer, bigint) IS
    'the entries of a directory@there@ behind a name, with the content of small files';

CREATE OR REPLACE FUNCTION @fs@.@s@content(@number@ino bigint, version bigint)
    RETURNS SETOF @blobext@.blobstate
    LANGUAGE sql STABLE AS $blobfs$
    SELECT i.content FROM @fs@.@s@inode AS i
    WHERE @its_i@i.ino = @s@content.ino AND i.kind = 'f'
        AND (@s@content.version IS NULL OR i.version = @s@content.version)
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@content(@bigint@bigint, bigint) IS
    'content of a file@there@; no row if it has another version';

CREATE OR REPLACE FUNCTION @fs@.@s@read(@number@ino bigint, version bigint, "offset" bigint,
        length bigint) RETURNS SETOF bytea
    LANGUAGE sql STABLE AS $blobfs$
    SELECT @blobext@.blob_read(i.content, @s@read."offset", @s@read.length)
    FROM @fs@.@s@inode AS i
    WHERE @its_i@i.ino = @s@read.ino AND i.kind = 'f'
        AND (@s@read.version IS NULL OR i.version = @s@read.version)
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@read(@bigint@bigint, bigint, bigint, bigint) IS
    'a range of the content of a file@there@; no row if it has another version';

CREATE OR REPLACE FUNCTION @fs@.@s@readlink(@number@ino bigint) RETURNS SETOF bytea
    LANGUAGE sql STABLE AS $blobfs$
    SELECT i.target FROM @fs@.@s@inode AS i
    WHERE @its_i@i.ino = @s@readlink.ino AND i.kind = 'l'
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@readlink(@bigint@bigint) IS 'where a symbolic link@there@ leads';

CREATE OR REPLACE FUNCTION @fs@.@s@getxattr(@number@ino bigint, name bytea) RETURNS SETOF bytea
    LANGUAGE sql STABLE AS $blobfs$
    SELECT i.xattr[n + 1] FROM @fs@.@s@inode AS i, pg_catalog.generate_series(
        1, pg_catalog.cardinality(i.xattr), 2) AS n
    WHERE @its_i@i.ino = @s@getxattr.ino AND i.xattr[n] = @s@getxattr.name
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@getxattr(@bigint@bigint, bytea) IS
    'an extended attribute of an inode@there@';

CREATE OR REPLACE FUNCTION @fs@.@s@listxattr(@number@ino bigint) RETURNS SETOF bytea
    LANGUAGE sql STABLE AS $blobfs$
    SELECT i.xattr[n] FROM @fs@.@s@inode AS i, pg_catalog.generate_series(
        1, pg_catalog.cardinality(i.xattr), 2) AS n
    WHERE @its_i@i.ino = @s@listxattr.ino
$blobfs$;
COMMENT ON FUNCTION @fs@.@s@listxattr(@bigint@bigint) IS
    'names of the extended attributes of an inode@there@';
$template$;
    words text[] := CASE WHEN of_snapshot
        THEN '{@s@, snapshot_, @number@, "snapshot bigint, ", @bigint@, "bigint, ",
            @its_d@, "d.snapshot = $1 AND ", @its_i@, "i.snapshot = $1 AND ",
            @there@, " of a snapshot"}'
        ELSE '{@s@, "", @number@, "", @bigint@, "", @its_d@, "", @its_i@, "", @there@, ""}' END;
BEGIN
    FOR n IN 1 .. cardinality(words) BY 2 LOOP
        template := replace(template, words[n], words[n + 1]);
    END LOOP;
    RETURN template;
END $$;
COMMENT ON FUNCTION blobfs.template_reading(boolean) IS
    'text that makes the functions that read the present tree, or a snapshot';

-- Locks.  A function that changes entries of a directory locks its row first, by hold() or by
-- lock_inodes().  So entries that it reads after that stay as they are.  Order: the row of
-- superblock (only to move a directory to another one), directories by number, others by number.
CREATE FUNCTION blobfs.template_writing() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC SELECT $template$
-- The row is written once in a transaction, or a transaction of many files would make as many
-- versions of it.
CREATE OR REPLACE FUNCTION @fs@.hold(directory bigint, links integer, now_ns bigint)
    RETURNS boolean
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
BEGIN
    IF links = 0 AND EXISTS (SELECT FROM @fs@.inode AS i WHERE i.ino = directory
            AND i.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid) THEN
        RETURN true;
    END IF;
    UPDATE @fs@.inode AS i SET nlink = i.nlink + links, mtime = now_ns, ctime = now_ns
    WHERE i.ino = directory AND i.kind = 'd';
    RETURN FOUND;
END $blobfs$;
COMMENT ON FUNCTION @fs@.hold(bigint, integer, bigint) IS
    'locks a directory whose entries will change, and sets its times; false if it is gone';

CREATE OR REPLACE FUNCTION @fs@.lock_inodes(inos bigint[]) RETURNS void
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
BEGIN
    PERFORM FROM @fs@.inode AS i WHERE i.ino = ANY (inos) ORDER BY i.ino FOR NO KEY UPDATE;
END $blobfs$;
COMMENT ON FUNCTION @fs@.lock_inodes(bigint[]) IS 'locks inodes in the order of their numbers';

CREATE OR REPLACE FUNCTION @fs@.reserve(count integer) RETURNS SETOF bigint
    LANGUAGE sql VOLATILE AS $blobfs$
    SELECT pg_catalog.nextval('@fs@.ino_seq') FROM pg_catalog.generate_series(1, reserve.count)
$blobfs$;
COMMENT ON FUNCTION @fs@.reserve(integer) IS 'numbers for inodes that the caller will make';

CREATE OR REPLACE FUNCTION @fs@.create(ino bigint, parent bigint, name bytea, mode integer,
        uid bigint, gid bigint, content @blobext@.blobstate, mtime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    now_ns bigint := now_us * 1000;
    directory record;
    result blobfs.result;
BEGIN
    SELECT i.kind, i.mode, i.gid,
        i.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid AS is_held,
        EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = parent AND d.name = name) AS is_there
    INTO directory FROM @fs@.inode AS i WHERE i.ino = parent;
    IF directory.kind IS DISTINCT FROM 'd' OR directory.is_there
            OR pg_catalog.length(name) > 255 THEN
        result.status := CASE WHEN directory.kind IS NULL THEN 2
            WHEN directory.kind <> 'd' THEN 20 WHEN directory.is_there THEN 17 ELSE 36 END;
        RETURN result;
    END IF;
    IF NOT directory.is_held THEN
        UPDATE @fs@.inode AS i SET mtime = now_ns, ctime = now_ns WHERE i.ino = parent;
        IF NOT FOUND THEN
            result.status := 2;
            RETURN result;
        END IF;
    END IF;
    ino := coalesce(ino, pg_catalog.nextval('@fs@.ino_seq'));
    INSERT INTO @fs@.dentry (parent, ino, name) VALUES (parent, ino, name) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        result.status := 17;
        RETURN result;
    END IF;
    INSERT INTO @fs@.inode AS i (ino, version, size, mtime, ctime, atime, uid, gid, mode, nlink,
        kind, content)
    VALUES (ino, now_us, coalesce(@blobext@.length(content), 0), coalesce(mtime, now_ns), now_ns,
        coalesce(mtime, now_ns), uid,
        CASE WHEN directory.mode & 1024 = 0 THEN gid ELSE directory.gid END, mode, 1, 'f',
        coalesce(content, ''))
    RETURNING 0, @attr@ INTO result;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.create(bigint, bigint, bytea, integer, bigint, bigint,
    @blobext@.blobstate, bigint) IS 'makes a file with its content';

-- create() is its own copy of this, because it is what programs call most.
CREATE OR REPLACE FUNCTION @fs@.make(ino bigint, parent bigint, name bytea, kind "char",
        mode integer, uid bigint, gid bigint, rdev bigint, target bytea) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    now_ns bigint := now_us * 1000;
    directory record;
    result blobfs.result;
BEGIN
    SELECT i.kind, i.mode, i.gid, i.nlink,
        EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = parent AND d.name = name) AS is_there
    INTO directory FROM @fs@.inode AS i WHERE i.ino = parent;
    result.status := CASE WHEN directory.kind IS NULL THEN 2 WHEN directory.kind <> 'd' THEN 20
        WHEN directory.is_there THEN 17 WHEN pg_catalog.length(name) > 255 THEN 36
        WHEN kind = 'd' AND directory.nlink = 2147483647 THEN 31
        WHEN kind = 'l' AND pg_catalog.length(target) > 4095 THEN 36
        WHEN kind = 'l' AND pg_catalog.length(target) = 0 THEN 2 ELSE 0 END;
    IF result.status <> 0 THEN
        RETURN result;
    END IF;
    IF NOT @fs@.hold(parent, CASE WHEN kind = 'd' THEN 1 ELSE 0 END, now_ns) THEN
        result.status := 2;
        RETURN result;
    END IF;
    ino := coalesce(ino, pg_catalog.nextval('@fs@.ino_seq'));
    INSERT INTO @fs@.dentry (parent, ino, name) VALUES (parent, ino, name) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        IF kind = 'd' THEN
            PERFORM @fs@.hold(parent, -1, now_ns);
        END IF;
        result.status := 17;
        RETURN result;
    END IF;
    INSERT INTO @fs@.inode AS i (ino, version, size, mtime, ctime, atime, uid, gid, rdev, mode,
        nlink, kind, target, content)
    VALUES (ino, now_us, coalesce(pg_catalog.length(target), 0), now_ns, now_ns, now_ns, uid,
        CASE WHEN directory.mode & 1024 = 0 THEN gid ELSE directory.gid END, rdev,
        CASE WHEN kind = 'd' THEN mode | (directory.mode & 1024) ELSE mode END,
        CASE WHEN kind = 'd' THEN 2 ELSE 1 END, kind, target,
        CASE WHEN kind = 'f' THEN ''::@blobext@.blobstate END)
    RETURNING 0, @attr@ INTO result;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.make(bigint, bigint, bytea, "char", integer, bigint, bigint, bigint,
    bytea) IS 'behind mkdir(), mknod() and symlink()';

CREATE OR REPLACE FUNCTION @fs@.mkdir(ino bigint, parent bigint, name bytea, mode integer,
        uid bigint, gid bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    RETURN @fs@.make(ino, parent, name, 'd', mode, uid, gid, 0, NULL);
END $blobfs$;
COMMENT ON FUNCTION @fs@.mkdir(bigint, bigint, bytea, integer, bigint, bigint) IS
    'makes a directory';

CREATE OR REPLACE FUNCTION @fs@.mknod(ino bigint, parent bigint, name bytea, kind "char",
        mode integer, uid bigint, gid bigint, rdev bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
DECLARE
    result blobfs.result;
BEGIN
    IF kind IN ('f', 'p', 's', 'c', 'b') THEN
        RETURN @fs@.make(ino, parent, name, kind, mode, uid, gid, rdev, NULL);
    END IF;
    result.status := 22;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.mknod(bigint, bigint, bytea, "char", integer, bigint, bigint, bigint) IS
    'makes an empty file, a fifo, a socket or a device';

CREATE OR REPLACE FUNCTION @fs@.symlink(ino bigint, parent bigint, name bytea, target bytea,
        uid bigint, gid bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    RETURN @fs@.make(ino, parent, name, 'l', 511, uid, gid, 0, target);
END $blobfs$;
COMMENT ON FUNCTION @fs@.symlink(bigint, bigint, bytea, bytea, bigint, bigint) IS
    'makes a symbolic link';

CREATE OR REPLACE FUNCTION @fs@.link(ino bigint, parent bigint, name bytea) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    directory record;
    linked record;
    result blobfs.result;
BEGIN
    SELECT i.kind,
        EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = parent AND d.name = name) AS is_there
    INTO directory FROM @fs@.inode AS i WHERE i.ino = parent;
    SELECT i.kind, i.nlink INTO linked FROM @fs@.inode AS i WHERE i.ino = ino;
    result.status := CASE WHEN directory.kind IS NULL THEN 2 WHEN directory.kind <> 'd' THEN 20
        WHEN linked.kind IS NULL THEN 116 WHEN linked.kind = 'd' THEN 1
        WHEN directory.is_there THEN 17 WHEN pg_catalog.length(name) > 255 THEN 36
        WHEN linked.nlink = 2147483647 THEN 31 ELSE 0 END;
    IF result.status <> 0 THEN
        RETURN result;
    END IF;
    IF NOT @fs@.hold(parent, 0, now_ns) THEN
        result.status := 2;
        RETURN result;
    END IF;
    IF EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = parent AND d.name = name) THEN
        result.status := 17;
        RETURN result;
    END IF;
    UPDATE @fs@.inode AS i SET nlink = i.nlink + 1, ctime = now_ns WHERE i.ino = ino
    RETURNING 0, @attr@ INTO result;
    IF NOT FOUND THEN
        result.status := 116;
        RETURN result;
    END IF;
    INSERT INTO @fs@.dentry (parent, ino, name) VALUES (parent, ino, name);
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.link(bigint, bigint, bytea) IS 'gives an inode another name';

CREATE OR REPLACE FUNCTION @fs@.drop_link(ino bigint, now_ns bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    result blobfs.result;
BEGIN
    DELETE FROM @fs@.inode AS i WHERE i.ino = ino AND i.nlink = 1 RETURNING 0, @attr@ INTO result;
    IF FOUND THEN
        result.nlink := 0;
        RETURN result;
    END IF;
    UPDATE @fs@.inode AS i SET nlink = i.nlink - 1, ctime = now_ns WHERE i.ino = ino
    RETURNING 0, @attr@ INTO result;
    -- The other names have gone while the UPDATE waited.
    IF result.nlink = 0 THEN
        DELETE FROM @fs@.inode AS i WHERE i.ino = ino;
    END IF;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.drop_link(bigint, bigint) IS
    'takes a name from an inode that is no directory; the last one takes the inode along';

CREATE OR REPLACE FUNCTION @fs@.unlink(parent bigint, name bytea) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    entry record;
    result blobfs.result;
BEGIN
    LOOP
        SELECT d.ino, i.kind INTO entry
        FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
        WHERE d.parent = parent AND d.name = name;
        IF entry.kind IS NULL OR entry.kind = 'd' THEN
            result.status := CASE WHEN entry.kind = 'd' THEN 21
                WHEN EXISTS (SELECT FROM @fs@.inode AS i WHERE i.ino = parent AND i.kind <> 'd')
                THEN 20 ELSE 2 END;
            RETURN result;
        END IF;
        IF NOT @fs@.hold(parent, 0, now_ns) THEN
            result.status := 2;
            RETURN result;
        END IF;
        DELETE FROM @fs@.dentry AS d
        WHERE d.parent = parent AND d.name = name AND d.ino = entry.ino;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN @fs@.drop_link(entry.ino, now_ns);
END $blobfs$;
COMMENT ON FUNCTION @fs@.unlink(bigint, bytea) IS 'removes a name that is not a directory''s';

CREATE OR REPLACE FUNCTION @fs@.rmdir(parent bigint, name bytea) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    entry record;
    result blobfs.result;
BEGIN
    LOOP
        SELECT d.ino, i.kind INTO entry
        FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
        WHERE d.parent = parent AND d.name = name;
        IF entry.kind IS DISTINCT FROM 'd' THEN
            result.status := CASE WHEN entry.kind IS NOT NULL THEN 20
                WHEN EXISTS (SELECT FROM @fs@.inode AS i WHERE i.ino = parent AND i.kind <> 'd')
                THEN 20 ELSE 2 END;
            RETURN result;
        END IF;
        IF EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = entry.ino) THEN
            result.status := 39;
            RETURN result;
        END IF;
        PERFORM @fs@.lock_inodes(ARRAY[parent, entry.ino]);
        CONTINUE WHEN EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = entry.ino);
        DELETE FROM @fs@.dentry AS d
        WHERE d.parent = parent AND d.name = name AND d.ino = entry.ino;
        EXIT WHEN FOUND;
    END LOOP;
    DELETE FROM @fs@.inode AS i WHERE i.ino = entry.ino RETURNING 0, @attr@ INTO result;
    PERFORM @fs@.hold(parent, -1, now_ns);
    result.nlink := 0;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.rmdir(bigint, bytea) IS 'removes an empty directory';

CREATE OR REPLACE FUNCTION @fs@.is_below(ino bigint, ancestor bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE AS $blobfs$
#variable_conflict use_variable
BEGIN
    -- As deep as no tree is, so that a damaged one with a circle ends the search, too.
    FOR depth IN 1 .. 100000 LOOP
        EXIT WHEN ino = ancestor;
        ino := (SELECT d.parent FROM @fs@.dentry AS d WHERE d.ino = ino);
        IF ino IS NULL THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $blobfs$;
COMMENT ON FUNCTION @fs@.is_below(bigint, bigint) IS
    'whether a directory is another one, or somewhere in it';

-- The entries that rename() finds, and whether it may go on.
CREATE OR REPLACE FUNCTION @fs@.rename_check(parent bigint, name bytea, new_parent bigint,
        new_name bytea, flags integer, OUT status integer, OUT source bigint,
        OUT source_kind "char", OUT target bigint, OUT target_kind "char")
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    parent_kind "char" := (SELECT i.kind FROM @fs@.inode AS i WHERE i.ino = parent);
    new_parent_kind "char" := (SELECT i.kind FROM @fs@.inode AS i WHERE i.ino = new_parent);
BEGIN
    SELECT d.ino, i.kind INTO source, source_kind
    FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
    WHERE d.parent = parent AND d.name = name;
    SELECT d.ino, i.kind INTO target, target_kind
    FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
    WHERE d.parent = new_parent AND d.name = new_name;
    status := CASE
        WHEN flags NOT IN (0, 1, 2) THEN 22
        WHEN parent_kind <> 'd' OR new_parent_kind <> 'd' THEN 20
        WHEN pg_catalog.length(new_name) > 255 THEN 36
        WHEN source IS NULL OR new_parent_kind IS NULL OR flags = 2 AND target IS NULL THEN 2
        WHEN flags = 1 AND target IS NOT NULL THEN 17
        WHEN source = target THEN 0
        WHEN source_kind = 'd' AND @fs@.is_below(new_parent, source) THEN 22
        WHEN flags = 2 AND target_kind = 'd' AND @fs@.is_below(parent, target) THEN 22
        WHEN flags = 2 OR target IS NULL THEN 0
        WHEN source_kind = 'd' AND target_kind <> 'd' THEN 20
        WHEN source_kind <> 'd' AND target_kind = 'd' THEN 21
        WHEN target_kind = 'd' AND EXISTS (SELECT FROM @fs@.dentry AS d WHERE d.parent = target)
        THEN 39 ELSE 0 END;
END $blobfs$;
COMMENT ON FUNCTION @fs@.rename_check(bigint, bytea, bigint, bytea, integer) IS
    'behind rename(): what has these names, and whether it may be renamed';

CREATE OR REPLACE FUNCTION @fs@.rename(parent bigint, name bytea, new_parent bigint,
        new_name bytea, flags integer) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    names record;
    again record;
    moved integer;      -- what a directory that moves adds to the links of the new parent
    replaced integer := 0;
    result blobfs.result;
BEGIN
    SELECT * INTO names FROM @fs@.rename_check(parent, name, new_parent, new_name, flags);
    LOOP
        IF names.status <> 0 OR names.source = names.target THEN
            SELECT names.status, @attr@ INTO result FROM @fs@.inode AS i
            WHERE names.status = 0 AND i.ino = names.source;
            result.status := names.status;
            RETURN result;
        END IF;
        -- Two moves of directories at a time could make a circle of them.
        IF parent <> new_parent AND (names.source_kind = 'd' OR names.target_kind = 'd') THEN
            PERFORM FROM @fs@.superblock FOR UPDATE;
        END IF;
        PERFORM @fs@.lock_inodes(ARRAY[parent, new_parent]
            || CASE WHEN names.source_kind = 'd' THEN names.source END
            || CASE WHEN names.target_kind = 'd' THEN names.target END);
        IF names.source_kind <> 'd' AND names.target_kind <> 'd' THEN
            PERFORM @fs@.lock_inodes(ARRAY[names.source, names.target]);
        END IF;
        SELECT * INTO again FROM @fs@.rename_check(parent, name, new_parent, new_name, flags);
        EXIT WHEN again IS NOT DISTINCT FROM names;
        names := again;
    END LOOP;

    moved := CASE WHEN parent = new_parent THEN 0
        ELSE (names.source_kind = 'd')::integer
            - (flags = 2 AND names.target_kind = 'd')::integer END;
    IF flags = 2 THEN
        UPDATE @fs@.dentry AS d SET ino = names.target
        WHERE d.parent = parent AND d.name = name;
        UPDATE @fs@.dentry AS d SET ino = names.source
        WHERE d.parent = new_parent AND d.name = new_name;
        UPDATE @fs@.inode AS i SET ctime = now_ns WHERE i.ino = names.target;
    ELSE
        IF names.target IS NOT NULL THEN
            DELETE FROM @fs@.dentry AS d WHERE d.parent = new_parent AND d.name = new_name;
            IF names.target_kind = 'd' THEN
                DELETE FROM @fs@.inode AS i WHERE i.ino = names.target;
                replaced := 1;
            ELSE
                PERFORM @fs@.drop_link(names.target, now_ns);
            END IF;
        END IF;
        UPDATE @fs@.dentry AS d SET parent = new_parent, name = new_name
        WHERE d.parent = parent AND d.name = name;
    END IF;
    IF parent <> new_parent THEN
        PERFORM @fs@.hold(parent, -moved, now_ns);
    END IF;
    PERFORM @fs@.hold(new_parent, moved - replaced, now_ns);
    UPDATE @fs@.inode AS i SET ctime = now_ns WHERE i.ino = names.source
    RETURNING 0, @attr@ INTO result;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.rename(bigint, bytea, bigint, bytea, integer) IS
    'renames an entry, as renameat2() does';

CREATE OR REPLACE FUNCTION @fs@.setattr(ino bigint, mode integer, uid bigint, gid bigint,
        mtime bigint, atime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    result blobfs.result;
BEGIN
    UPDATE @fs@.inode AS i SET mode = coalesce(mode, i.mode), uid = coalesce(uid, i.uid),
        gid = coalesce(gid, i.gid), ctime = now_ns,
        mtime = CASE WHEN mtime = -9223372036854775807 - 1 THEN now_ns
            ELSE coalesce(mtime, i.mtime) END,
        atime = CASE WHEN atime = -9223372036854775807 - 1 THEN now_ns
            ELSE coalesce(atime, i.atime) END
    WHERE i.ino = ino
    RETURNING 0, @attr@ INTO result;
    IF NOT FOUND THEN
        result.status := 116;
    END IF;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.setattr(bigint, integer, bigint, bigint, bigint, bigint) IS
    'changes attributes of an inode; NULL leaves one as it is';

-- The status when no row fitted.
CREATE OR REPLACE FUNCTION @fs@.refusal(ino bigint, known bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    result blobfs.result;
BEGIN
    SELECT CASE WHEN i.kind = 'd' THEN 21 WHEN i.kind <> 'f' THEN 22 WHEN i.version < known THEN 116
        ELSE 16 END, @attr@ INTO result FROM @fs@.inode AS i WHERE i.ino = ino;
    IF NOT FOUND THEN
        result.status := 116;
    END IF;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.refusal(bigint, bigint) IS
    'behind functions that change content: why they did not';

CREATE OR REPLACE FUNCTION @fs@.write(ino bigint, known bigint, exact boolean,
        content @blobext@.blobstate, mtime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    result blobfs.result;
BEGIN
    UPDATE @fs@.inode AS i SET content = coalesce(content, ''),
        size = coalesce(@blobext@.length(content), 0),
        @rest_of_change@
END $blobfs$;
COMMENT ON FUNCTION @fs@.write(bigint, bigint, boolean, @blobext@.blobstate, bigint) IS
    'replaces the content of a file';

CREATE OR REPLACE FUNCTION @fs@.append(ino bigint, known bigint, exact boolean, data bytea,
        mtime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    result blobfs.result;
BEGIN
    UPDATE @fs@.inode AS i SET content = @blobext@.blob_append(i.content, coalesce(data, '')),
        size = i.size + coalesce(pg_catalog.length(data), 0),
        @rest_of_change@
END $blobfs$;
COMMENT ON FUNCTION @fs@.append(bigint, bigint, boolean, bytea, bigint) IS
    'adds bytes at the end of a file, as it is now';

CREATE OR REPLACE FUNCTION @fs@.patched(content @blobext@.blobstate, keep bigint,
        offsets bigint[], pieces bytea[], size bigint) RETURNS @blobext@.blobstate
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    IF keep < @blobext@.length(content) THEN
        content := @blobext@.blob_truncate(content, keep);
    END IF;
    content := @blobext@.blob_patch(content, offsets, pieces);
    RETURN CASE WHEN size IS NULL THEN content ELSE @blobext@.blob_truncate(content, size) END;
END $blobfs$;
COMMENT ON FUNCTION @fs@.patched(@blobext@.blobstate, bigint, bigint[], bytea[], bigint) IS
    'behind patch(): the new content';

CREATE OR REPLACE FUNCTION @fs@.patch(ino bigint, known bigint, exact boolean, keep bigint,
        offsets bigint[], pieces bytea[], size bigint, mtime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    result blobfs.result;
BEGIN
    UPDATE @fs@.inode AS i SET (content, size) = (SELECT p.content, @blobext@.length(p.content)
            FROM @fs@.patched(i.content, keep, offsets, pieces, size) AS p (content)),
        @rest_of_change@
END $blobfs$;
COMMENT ON FUNCTION @fs@.patch(bigint, bigint, boolean, bigint, bigint[], bytea[], bigint, bigint)
    IS 'cuts a file off, writes ranges of it and sets its size, in one change';

CREATE OR REPLACE FUNCTION @fs@.truncate(ino bigint, known bigint, exact boolean, size bigint,
        mtime bigint) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_us bigint := @now@;
    result blobfs.result;
BEGIN
    UPDATE @fs@.inode AS i SET content = @blobext@.blob_truncate(i.content, size), size = size,
        @rest_of_change@
END $blobfs$;
COMMENT ON FUNCTION @fs@.truncate(bigint, bigint, boolean, bigint, bigint) IS
    'cuts a file off, or extends it by zeros';

CREATE OR REPLACE FUNCTION @fs@.setxattr(ino bigint, name bytea, value bytea, flags integer)
    RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    all_xattr bytea[];
    place integer;
    result blobfs.result;
BEGIN
    SELECT i.xattr INTO all_xattr FROM @fs@.inode AS i WHERE i.ino = ino FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        result.status := 116;
        RETURN result;
    END IF;
    place := (SELECT n FROM pg_catalog.generate_series(1, pg_catalog.cardinality(all_xattr), 2) AS n
        WHERE all_xattr[n] = name);
    result.status := CASE WHEN flags = 1 AND place IS NOT NULL THEN 17
        WHEN flags = 2 AND place IS NULL THEN 61
        WHEN pg_catalog.length(name) NOT BETWEEN 1 AND 255 THEN 34
        WHEN pg_catalog.length(value) > 65536 THEN 7 ELSE 0 END;
    IF place IS NULL THEN
        all_xattr := all_xattr || ARRAY[name, value];
    ELSE
        all_xattr[place + 1] := value;
    END IF;
    IF result.status = 0 AND pg_catalog.pg_column_size(all_xattr) > 1048576 THEN
        result.status := 28;
    END IF;
    IF result.status = 0 THEN
        UPDATE @fs@.inode AS i SET xattr = all_xattr, ctime = now_ns WHERE i.ino = ino
        RETURNING 0, @attr@ INTO result;
    END IF;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.setxattr(bigint, bytea, bytea, integer) IS
    'sets an extended attribute of an inode';

CREATE OR REPLACE FUNCTION @fs@.removexattr(ino bigint, name bytea) RETURNS blobfs.result
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    now_ns bigint := @now@ * 1000;
    all_xattr bytea[];
    place integer;
    result blobfs.result;
BEGIN
    SELECT i.xattr INTO all_xattr FROM @fs@.inode AS i WHERE i.ino = ino FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        result.status := 116;
        RETURN result;
    END IF;
    place := (SELECT n FROM pg_catalog.generate_series(1, pg_catalog.cardinality(all_xattr), 2) AS n
        WHERE all_xattr[n] = name);
    IF place IS NULL THEN
        result.status := 61;
        RETURN result;
    END IF;
    all_xattr := nullif(all_xattr[: place - 1] || all_xattr[place + 2 :], '{}');
    UPDATE @fs@.inode AS i SET xattr = all_xattr, ctime = now_ns WHERE i.ino = ino
    RETURNING 0, @attr@ INTO result;
    RETURN result;
END $blobfs$;
COMMENT ON FUNCTION @fs@.removexattr(bigint, bytea) IS 'removes an extended attribute of an inode';

-- Marks of mounts that are gone are removed when they have not moved for a day: a transaction that
-- is still in doubt was not committed then.
CREATE OR REPLACE FUNCTION @fs@.mount_begin(id bigint, slot integer) RETURNS bigint
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    fresh bigint;
BEGIN
    DELETE FROM @fs@.mount AS m USING (
        SELECT o.id, o.slot FROM @fs@.mount AS o
        WHERE o.changed < pg_catalog.now() - interval '1 day' AND NOT blobfs.is_mount(o.id)
        FOR UPDATE SKIP LOCKED) AS old
    WHERE m.id = old.id AND m.slot = old.slot AND m.id <> id;
    INSERT INTO @fs@.mount AS m (id, slot, mark) VALUES (id, slot, 0)
    ON CONFLICT ON CONSTRAINT mount_pkey DO UPDATE SET mark = m.mark + 4294967296
    RETURNING m.mark INTO fresh;
    RETURN fresh;
END $blobfs$;
COMMENT ON FUNCTION @fs@.mount_begin(bigint, integer) IS
    'makes the mark of a writing connection, and removes those of mounts that are gone';

CREATE OR REPLACE FUNCTION @fs@.mark(id bigint, slot integer, mark bigint,
        status integer DEFAULT 0) RETURNS void
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
BEGIN
    IF status = 0 THEN
        UPDATE @fs@.mount AS m SET mark = mark, changed = pg_catalog.now()
        WHERE m.id = id AND m.slot = slot AND m.mark = mark - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this connection of the mount has been given up' USING
                ERRCODE = 'BF125',
                DETAIL = 'Another connection has found out what became of its last transaction.';
        END IF;
    END IF;
END $blobfs$;
COMMENT ON FUNCTION @fs@.mark(bigint, integer, bigint, integer) IS
    'numbers the transaction of a writing connection';

CREATE OR REPLACE FUNCTION @fs@.mount_recover(id bigint, slot integer, OUT committed bigint,
        OUT mark bigint) RETURNS SETOF record
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
BEGIN
    SELECT m.mark INTO committed FROM @fs@.mount AS m WHERE m.id = id AND m.slot = slot
    FOR NO KEY UPDATE;
    IF FOUND THEN
        mark := committed + 4294967296;
        UPDATE @fs@.mount AS m SET mark = mark WHERE m.id = id AND m.slot = slot;
        RETURN NEXT;
    END IF;
END $blobfs$;
COMMENT ON FUNCTION @fs@.mount_recover(bigint, integer) IS
    'the last transaction of a lost connection that was committed; no later one of it can be';

CREATE OR REPLACE FUNCTION @fs@.mount_end(id bigint) RETURNS void
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
BEGIN
    DELETE FROM @fs@.mount AS m WHERE m.id = id;
END $blobfs$;
COMMENT ON FUNCTION @fs@.mount_end(bigint) IS 'removes the marks of a mount';
$template$; END;
COMMENT ON FUNCTION blobfs.template_writing() IS 'text that makes the functions that change';

-- Functions for the whole tree.
CREATE FUNCTION blobfs.template_whole() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC SELECT $template$
CREATE OR REPLACE VIEW @fs@.path WITH (security_invoker = true) AS
    WITH RECURSIVE tree (path, ino) AS (
        SELECT '/'::text, 1::bigint
        UNION ALL
        SELECT CASE WHEN t.path = '/' THEN '/' ELSE t.path || '/' END || blobfs.name_text(d.name),
            d.ino
        FROM tree AS t JOIN @fs@.dentry AS d ON d.parent = t.ino AND d.ino <> 1)
    SELECT t.path, i.ino, i.kind, i.mode, i.uid, i.gid, i.nlink, i.size,
        pg_catalog.to_timestamp(i.mtime / 1e9::double precision) AS mtime, i.version, i.content
    FROM tree AS t JOIN @fs@.inode AS i ON i.ino = t.ino;
COMMENT ON VIEW @fs@.path IS 'the whole tree: a row for each name';
COMMENT ON COLUMN @fs@.path.path IS 'path, with bytes that are not UTF-8 as \nnn';
COMMENT ON COLUMN @fs@.path.ino IS 'number of the inode';
COMMENT ON COLUMN @fs@.path.kind IS 'f file, d directory, l link, p fifo, s socket, c and b device';
COMMENT ON COLUMN @fs@.path.mode IS 'permission bits';
COMMENT ON COLUMN @fs@.path.uid IS 'user';
COMMENT ON COLUMN @fs@.path.gid IS 'group';
COMMENT ON COLUMN @fs@.path.nlink IS 'number of names';
COMMENT ON COLUMN @fs@.path.size IS 'size in bytes';
COMMENT ON COLUMN @fs@.path.mtime IS 'last change of the content';
COMMENT ON COLUMN @fs@.path.version IS 'version of the content';
COMMENT ON COLUMN @fs@.path.content IS 'content of a file';

CREATE OR REPLACE FUNCTION @fs@.resolve(path bytea, follow boolean, OUT status integer,
        OUT parent bigint, OUT name bytea, OUT ino bigint, OUT kind "char")
    LANGUAGE plpgsql STABLE AS $blobfs$
#variable_conflict use_variable
DECLARE
    rest bytea := path;
    slash integer;
    link bytea;
    links integer := 0;
BEGIN
    status := 0;
    ino := 1;
    kind := 'd';
    LOOP
        rest := pg_catalog.ltrim(rest, '\x2f'::bytea);
        EXIT WHEN rest = '';
        IF kind IS DISTINCT FROM 'd' THEN
            status := CASE WHEN kind IS NULL THEN 2 ELSE 20 END;
            RETURN;
        END IF;
        slash := pg_catalog."position"(rest || '\x2f'::bytea, '\x2f'::bytea);
        name := pg_catalog."substring"(rest, 1, slash - 1);
        rest := pg_catalog."substring"(rest, slash);
        parent := ino;
        IF name = '\x2e' OR name = '\x2e2e' THEN
            IF name = '\x2e2e' THEN
                ino := coalesce((SELECT d.parent FROM @fs@.dentry AS d WHERE d.ino = ino), 1);
            END IF;
            parent := NULL;
            name := NULL;
            CONTINUE;
        END IF;
        SELECT i.ino, i.kind, i.target INTO ino, kind, link
        FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
        WHERE d.parent = parent AND d.name = name;
        IF kind = 'l' AND (follow OR rest <> '') THEN
            links := links + 1;
            IF links > 40 THEN
                status := 40;
                RETURN;
            END IF;
            ino := CASE WHEN pg_catalog."substring"(link, 1, 1) = '\x2f' THEN 1 ELSE parent END;
            kind := 'd';
            rest := link || '\x2f'::bytea || rest;
            parent := NULL;
            name := NULL;
        END IF;
    END LOOP;
END $blobfs$;
COMMENT ON FUNCTION @fs@.resolve(bytea, boolean) IS
    'the inode of a path, NULL if only the last name is not there; follows symbolic links';

CREATE OR REPLACE FUNCTION @fs@.names(ino bigint) RETURNS TABLE (parent bigint, name bytea)
    LANGUAGE sql STABLE AS $blobfs$
    SELECT d.parent, d.name FROM @fs@.dentry AS d WHERE d.ino = names.ino
$blobfs$;
COMMENT ON FUNCTION @fs@.names(bigint) IS 'all names of an inode';

-- At most 500 pages are looked at, so the numbers of a large file system without quota are
-- estimates.
CREATE OR REPLACE FUNCTION @fs@.statfs(OUT total_bytes bigint, OUT used_bytes bigint,
        OUT total_inodes bigint, OUT used_inodes bigint, OUT quota boolean) RETURNS SETOF record
    LANGUAGE plpgsql STABLE AS $blobfs$
#variable_conflict use_column
DECLARE
    share double precision := least(100, 500 * 8192 * 100.0
        / greatest(pg_catalog.pg_relation_size('@fs@.inode'), 1));
BEGIN
    SELECT (pg_catalog.count(*) * 100 / share)::bigint,
        (coalesce(pg_catalog.sum(i.size), 0) * 100 / share)::bigint
    INTO used_inodes, used_bytes
    FROM @fs@.inode AS i TABLESAMPLE SYSTEM (share);
    SELECT s.quota_bytes, s.quota_inodes, s.quota_bytes IS NOT NULL OR s.quota_inodes IS NOT NULL
    INTO total_bytes, total_inodes, quota FROM @fs@.superblock AS s;
    total_bytes := coalesce(total_bytes, used_bytes + 1099511627776);
    total_inodes := coalesce(total_inodes, used_inodes + 1073741824);
    RETURN NEXT;
END $blobfs$;
COMMENT ON FUNCTION @fs@.statfs() IS
    'use of the file system; without a quota there is always room for 1 TiB more';

-- ---- names: the constraints go with the extension, and come back by blobfs.upgrade() ----

ALTER TABLE @fs@.dentry DROP CONSTRAINT IF EXISTS dentry_name_check,
    ADD CONSTRAINT dentry_name_check CHECK (blobfs.is_name(name));
ALTER TABLE @fs@.snapshot DROP CONSTRAINT IF EXISTS snapshot_name_check,
    ADD CONSTRAINT snapshot_name_check CHECK (blobfs.is_name(name));

-- ---- check ----

CREATE OR REPLACE FUNCTION @fs@.check() RETURNS TABLE (problem text, ino bigint, parent bigint,
        name bytea)
    LANGUAGE sql STABLE AS $blobfs$
    WITH RECURSIVE reached (ino) AS (
        SELECT 1::bigint
        UNION
        SELECT d.ino FROM reached AS r JOIN @fs@.dentry AS d ON d.parent = r.ino),
    named AS (
        SELECT d.ino, pg_catalog.count(*) AS names FROM @fs@.dentry AS d GROUP BY d.ino),
    subdirectories AS (
        SELECT d.parent, pg_catalog.count(*) AS entries
        FROM @fs@.dentry AS d JOIN @fs@.inode AS i ON i.ino = d.ino
        WHERE i.kind = 'd' GROUP BY d.parent),
    last_ino AS (
        SELECT CASE WHEN q.is_called THEN q.last_value ELSE q.last_value - 1 END AS ino
        FROM @fs@.ino_seq AS q)
    SELECT 'there is no root directory', 1::bigint, NULL::bigint, NULL::bytea
    WHERE NOT EXISTS (SELECT FROM @fs@.inode AS i WHERE i.ino = 1 AND i.kind = 'd')
    UNION ALL
    SELECT 'a name of an inode that is not there', d.ino, d.parent, d.name
    FROM @fs@.dentry AS d LEFT JOIN @fs@.inode AS i ON i.ino = d.ino WHERE i.ino IS NULL
    UNION ALL
    SELECT 'a name in what is no directory', d.ino, d.parent, d.name
    FROM @fs@.dentry AS d LEFT JOIN @fs@.inode AS i ON i.ino = d.parent
    WHERE i.kind IS DISTINCT FROM 'd'
    UNION ALL
    SELECT 'the root has a name', d.ino, d.parent, d.name FROM @fs@.dentry AS d WHERE d.ino = 1
    UNION ALL
    SELECT 'cannot be reached from the root', i.ino, NULL, NULL
    FROM @fs@.inode AS i LEFT JOIN reached AS r ON r.ino = i.ino WHERE r.ino IS NULL
    UNION ALL
    SELECT pg_catalog.format('has nlink %s and %s names', i.nlink, coalesce(n.names, 0)), i.ino,
        NULL, NULL
    FROM @fs@.inode AS i LEFT JOIN named AS n ON n.ino = i.ino
    WHERE i.kind <> 'd' AND i.nlink <> coalesce(n.names, 0)
    UNION ALL
    SELECT pg_catalog.format('directory has %s names', n.names), i.ino, NULL, NULL
    FROM @fs@.inode AS i JOIN named AS n ON n.ino = i.ino WHERE i.kind = 'd' AND n.names > 1
    UNION ALL
    SELECT pg_catalog.format('directory has nlink %s and %s subdirectories', i.nlink,
        coalesce(s.entries, 0)), i.ino, NULL, NULL
    FROM @fs@.inode AS i LEFT JOIN subdirectories AS s ON s.parent = i.ino
    WHERE i.kind = 'd' AND i.nlink <> coalesce(s.entries, 0) + 2
    UNION ALL
    SELECT pg_catalog.format('has size %s, and its content %s', i.size,
        coalesce(@blobext@.length(i.content), pg_catalog.length(i.target), 0)), i.ino, NULL, NULL
    FROM @fs@.inode AS i
    WHERE i.size <> coalesce(@blobext@.length(i.content), pg_catalog.length(i.target), 0)
    UNION ALL
    SELECT pg_catalog.format('has content or target that kind "%s" does not have, or lacks it',
        i.kind), i.ino, NULL, NULL
    FROM @fs@.inode AS i
    WHERE (i.kind = 'f') <> (i.content IS NOT NULL) OR (i.kind = 'l') <> (i.target IS NOT NULL)
        OR i.kind NOT IN ('f', 'd', 'l', 'p', 's', 'c', 'b')
    UNION ALL
    SELECT 'has an attribute out of its range', i.ino, NULL, NULL
    FROM @fs@.inode AS i
    WHERE i.mode NOT BETWEEN 0 AND 4095 OR i.uid NOT BETWEEN 0 AND 4294967295
        OR i.gid NOT BETWEEN 0 AND 4294967295 OR i.version <= 0 OR i.ino <= 0
    UNION ALL
    SELECT 'has names and values of extended attributes that do not match', i.ino, NULL, NULL
    FROM @fs@.inode AS i WHERE pg_catalog.cardinality(i.xattr) % 2 <> 0
        OR pg_catalog.array_position(i.xattr, NULL) IS NOT NULL
    UNION ALL
    SELECT pg_catalog.format('its number would be given out again after %s', l.ino), i.ino, NULL,
        NULL
    FROM @fs@.inode AS i, last_ino AS l WHERE i.ino > l.ino AND i.ino <> 1
    UNION ALL
    SELECT pg_catalog.format('snapshot %s has a name of an inode that it has not', d.snapshot),
        d.ino, d.parent, d.name
    FROM @fs@.snapshot_dentry AS d LEFT JOIN @fs@.snapshot_inode AS i
        ON i.snapshot = d.snapshot AND i.ino = d.ino
    WHERE i.ino IS NULL
    UNION ALL
    SELECT pg_catalog.format('snapshot %s is not registered', i.snapshot), i.ino, NULL, NULL
    FROM @fs@.snapshot_inode AS i LEFT JOIN @fs@.snapshot AS s ON s.snapshot = i.snapshot
    WHERE s.snapshot IS NULL
$blobfs$;
COMMENT ON FUNCTION @fs@.check() IS 'a row for each problem of the tables; none is right';

-- ---- snapshots ----

CREATE OR REPLACE FUNCTION @fs@.snapshot_make(name bytea) RETURNS bigint
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    made bigint;
BEGIN
    -- One statement, so that both tables are copied as one snapshot of the server has them.
    WITH s AS (
        INSERT INTO @fs@.snapshot AS n (name, created) VALUES (name, @now@ * 1000)
        RETURNING n.snapshot),
    d AS (
        INSERT INTO @fs@.snapshot_dentry (snapshot, parent, ino, name)
        SELECT s.snapshot, o.parent, o.ino, o.name FROM s, @fs@.dentry AS o),
    i AS (
        INSERT INTO @fs@.snapshot_inode (snapshot, ino, version, size, mtime, ctime, atime, uid,
            gid, rdev, mode, nlink, kind, target, xattr, content)
        SELECT s.snapshot, o.ino, o.version, o.size, o.mtime, o.ctime, o.atime, o.uid, o.gid,
            o.rdev, o.mode, o.nlink, o.kind, o.target, o.xattr, o.content FROM s, @fs@.inode AS o)
    SELECT s.snapshot INTO made FROM s;
    RETURN made;
END $blobfs$;
COMMENT ON FUNCTION @fs@.snapshot_make(bytea) IS 'keeps the tree as it is now; content is shared';

CREATE OR REPLACE FUNCTION @fs@.snapshot_drop(name bytea) RETURNS boolean
    LANGUAGE plpgsql AS $blobfs$
#variable_conflict use_variable
DECLARE
    dropped bigint;
BEGIN
    DELETE FROM @fs@.snapshot AS s WHERE s.name = name RETURNING s.snapshot INTO dropped;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM @fs@.snapshot_dentry AS d WHERE d.snapshot = dropped;
    DELETE FROM @fs@.snapshot_inode AS i WHERE i.snapshot = dropped;
    RETURN true;
END $blobfs$;
COMMENT ON FUNCTION @fs@.snapshot_drop(bytea) IS 'removes a snapshot; false if there is none';

CREATE OR REPLACE FUNCTION @fs@.snapshots()
    RETURNS TABLE (snapshot bigint, name bytea, created bigint)
    LANGUAGE sql STABLE AS $blobfs$
    SELECT s.snapshot, s.name, s.created FROM @fs@.snapshot AS s ORDER BY s.name
$blobfs$;
COMMENT ON FUNCTION @fs@.snapshots() IS 'the snapshots of the file system';

-- ---- content and version change together ----

CREATE OR REPLACE FUNCTION @fs@.inode_guard() RETURNS trigger
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    RAISE EXCEPTION 'content of inode % would change without its version', NEW.ino USING
        ERRCODE = 'integrity_constraint_violation',
        HINT = 'Use blobfs.write() and the like, which set the version.';
END $blobfs$;
COMMENT ON FUNCTION @fs@.inode_guard() IS
    'refuses changes of content that mounts could not notice';
CREATE OR REPLACE TRIGGER inode_guard AFTER UPDATE OF content ON @fs@.inode
    FOR EACH ROW WHEN (OLD.version = NEW.version) EXECUTE FUNCTION @fs@.inode_guard();

-- ---- notifications, if blobfs.set_notify() has made the triggers ----

CREATE OR REPLACE FUNCTION @fs@.notify_dentry() RETURNS trigger
    LANGUAGE plpgsql AS $blobfs$
DECLARE
    channel text := 'blobfs_' || TG_RELID::text;
    salt bytea := (SELECT s.salt FROM @fs@.superblock AS s);
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM pg_catalog.pg_notify(channel, 'e ' || OLD.parent || ' ' || pg_catalog.left(
            pg_catalog.encode(pg_catalog.sha256(salt || OLD.name), 'hex'), 16));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM pg_catalog.pg_notify(channel, 'e ' || NEW.parent || ' ' || pg_catalog.left(
            pg_catalog.encode(pg_catalog.sha256(salt || NEW.name), 'hex'), 16));
    END IF;
    RETURN NULL;
END $blobfs$;
COMMENT ON FUNCTION @fs@.notify_dentry() IS 'notifies mounts of a name that has changed';

CREATE OR REPLACE FUNCTION @fs@.notify_inode() RETURNS trigger
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    PERFORM pg_catalog.pg_notify(
        'blobfs_' || '@fs@.dentry'::pg_catalog.regclass::pg_catalog.oid::text,
        'i ' || NEW.ino || ' ' || NEW.version);
    RETURN NULL;
END $blobfs$;
COMMENT ON FUNCTION @fs@.notify_inode() IS 'notifies mounts of an inode that has changed';

-- ---- quota, if blobfs.set_quota() has made these tables and triggers ----

CREATE OR REPLACE FUNCTION @fs@.quota_note() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
#variable_conflict use_variable
DECLARE
    bytes bigint := 0;
    inodes bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        bytes := bytes - OLD.size;
        inodes := inodes - 1;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        bytes := bytes + NEW.size;
        inodes := inodes + 1;
    END IF;
    INSERT INTO @fs@.usage_change VALUES (pg_current_xact_id(), bytes, inodes);
    INSERT INTO @fs@.usage_commit VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
    -- A single change that is too much fails at once; the sum is looked at before the commit.
    PERFORM @fs@.quota_refuse(bytes, inodes, u.bytes + bytes, u.inodes + inodes)
    FROM @fs@.usage AS u;
    RETURN NULL;
END $blobfs$;
COMMENT ON FUNCTION @fs@.quota_note() IS 'notes what a change of an inode adds to the usage';

CREATE OR REPLACE FUNCTION @fs@.quota_refuse(more_bytes bigint, more_inodes bigint,
        bytes bigint, inodes bigint) RETURNS void
    LANGUAGE plpgsql STABLE AS $blobfs$
DECLARE
    quota record;
BEGIN
    SELECT s.quota_bytes, s.quota_inodes INTO quota FROM @fs@.superblock AS s;
    IF more_bytes > 0 AND bytes > quota.quota_bytes
            OR more_inodes > 0 AND inodes > quota.quota_inodes THEN
        RAISE EXCEPTION 'quota of the file system exceeded' USING
            ERRCODE = 'BF122',
            DETAIL = pg_catalog.format('%s of %s bytes and %s of %s inodes would be used.', bytes,
                coalesce(quota.quota_bytes::text, 'any'), inodes,
                coalesce(quota.quota_inodes::text, 'any')),
            HINT = 'Remove files, or call blobfs.set_quota().';
    END IF;
END $blobfs$;
COMMENT ON FUNCTION @fs@.quota_refuse(bigint, bigint, bigint, bigint) IS
    'an error if more was added, and the usage is more than the quota';

-- Deferred: all changes of a transaction at once, so that the row of usage, which one transaction
-- at a time can write, is written once and late.
CREATE OR REPLACE FUNCTION @fs@.quota_settle() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
DECLARE
    sum_bytes bigint;
    sum_inodes bigint;
    total record;
BEGIN
    WITH own AS (
        DELETE FROM @fs@.usage_change AS c WHERE c.xid = NEW.xid RETURNING c.bytes, c.inodes)
    SELECT coalesce(sum(o.bytes), 0), coalesce(sum(o.inodes), 0) INTO sum_bytes, sum_inodes
    FROM own AS o;
    DELETE FROM @fs@.usage_commit AS c WHERE c.xid = NEW.xid;
    UPDATE @fs@.usage AS u SET bytes = u.bytes + sum_bytes, inodes = u.inodes + sum_inodes
    RETURNING u.bytes, u.inodes INTO total;
    PERFORM @fs@.quota_refuse(sum_bytes, sum_inodes, total.bytes, total.inodes);
    RETURN NULL;
END $blobfs$;
COMMENT ON FUNCTION @fs@.quota_settle() IS
    'adds the changes of a transaction to the usage, and compares it with the quota';

-- They have the rights of the owner: no other role may make triggers of them, for its own tables.
REVOKE ALL ON FUNCTION @fs@.quota_note(), @fs@.quota_settle() FROM PUBLIC;
$template$; END;
COMMENT ON FUNCTION blobfs.template_whole() IS
    'text that makes the functions for the whole tree, for snapshots, notifications and quota';

-- ---------------------------------------------------------------------------
-- File systems: make, update, remove, grant
-- ---------------------------------------------------------------------------

-- The schema is quoted as an identifier, also within literals.  A name that would end a body of a
-- function, or a literal, is refused.
CREATE FUNCTION blobfs.instance(template text, fs name) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    blobext text := (SELECT quote_ident(n.nspname) FROM pg_extension AS e
        JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'blobext');
BEGIN
    IF fs ~ '[''$\\]' THEN
        RAISE EXCEPTION 'a file system cannot be named %', quote_ident(fs) USING
            ERRCODE = 'invalid_name',
            HINT = 'Choose a name without '', $ and \.';
    END IF;
    template := replace(template, '@rest_of_change@', $rest$
        version = greatest(i.version + 1, now_us),
        mtime = coalesce(mtime, now_us * 1000), ctime = now_us * 1000
    WHERE i.ino = ino AND i.kind = 'f'
        AND (known IS NULL OR i.version = known OR NOT exact AND i.version > known)
    RETURNING 0, @attr@ INTO result;
    IF NOT FOUND THEN
        RETURN @fs@.refusal(ino, known);
    END IF;
    RETURN result;$rest$);
    template := replace(template, '@now@',
        '(pg_catalog.date_part(''epoch'', pg_catalog.clock_timestamp()) * 1000000)::bigint');
    template := replace(template, '@attr@', 'i.ino, i.kind, i.mode, i.uid, i.gid, i.nlink, '
        'i.size, i.mtime, i.ctime, i.atime, i.rdev, i.version');
    RETURN replace(replace(template, '@blobext@', blobext), '@fs@', quote_ident(fs));
END $$;
COMMENT ON FUNCTION blobfs.instance(text, name) IS 'a template for one file system';

CREATE FUNCTION blobfs.require(fs name) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass(format('%I.superblock', fs)) IS NULL THEN
        RAISE EXCEPTION 'there is no file system "%"', fs USING
            ERRCODE = 'BF002',
            HINT = 'SELECT blobfs.create(...) makes one.';
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.require(name) IS 'an error unless a schema is a file system';

-- Tables and functions that a superuser made would be the superuser's: the owner's functions could
-- not use the former, and some of the latter have the rights of their owner.
CREATE FUNCTION blobfs.require_owner(fs name) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = fs);
BEGIN
    PERFORM blobfs.require(fs);
    IF owner <> current_user THEN
        RAISE EXCEPTION 'file system "%" belongs to role "%"', fs, owner USING
            ERRCODE = 'insufficient_privilege',
            HINT = format('SET ROLE %I first.', owner);
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.require_owner(name) IS
    'an error unless a schema is a file system of the current role';

CREATE FUNCTION blobfs.upgrade(fs name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
BEGIN
    PERFORM blobfs.require_owner(fs);
    EXECUTE blobfs.instance(blobfs.template_reading(false), fs);
    EXECUTE blobfs.instance(blobfs.template_reading(true), fs);
    EXECUTE blobfs.instance(blobfs.template_writing(), fs);
    EXECUTE blobfs.instance(blobfs.template_whole(), fs);
END $$;
COMMENT ON FUNCTION blobfs.upgrade(name) IS
    'makes the functions of a file system anew, as this version of the extension has them';

CREATE FUNCTION blobfs.create(fs name, uid bigint DEFAULT 0, gid bigint DEFAULT 0,
        mode integer DEFAULT 493) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE blobfs.instance('CREATE SCHEMA @fs@;', fs);
    EXECUTE blobfs.instance('COMMENT ON SCHEMA @fs@ IS ''file system of the extension blobfs'';',
        fs);
    EXECUTE blobfs.instance(blobfs.template_tables(), fs);
    PERFORM blobfs.upgrade(fs);
    EXECUTE format('UPDATE %I.inode SET uid = $1, gid = $2, mode = $3 WHERE ino = 1', fs)
    USING uid, gid, mode;
END $$;
COMMENT ON FUNCTION blobfs.create(name, bigint, bigint, integer) IS
    'makes a file system: a schema of the caller; uid, gid and mode are those of its root';

CREATE FUNCTION blobfs.drop(fs name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    EXECUTE format('DROP SCHEMA %I CASCADE', fs);
END $$;
COMMENT ON FUNCTION blobfs.drop(name) IS 'removes a file system with all that is in its schema';

CREATE FUNCTION blobfs.grant(fs name, role name, access text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    IF access IS NULL OR access NOT IN ('none', 'read', 'write') THEN
        RAISE EXCEPTION 'unknown access "%"', access USING
            ERRCODE = 'invalid_parameter_value',
            HINT = 'There are "none", "read" and "write".';
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %1$I FROM %2$I;'
        'REVOKE ALL ON ALL SEQUENCES IN SCHEMA %1$I FROM %2$I;'
        'REVOKE UPDATE (rename_lock) ON %1$I.superblock FROM %2$I;'
        'REVOKE ALL ON SCHEMA %1$I FROM %2$I', fs, role);
    IF access = 'none' THEN
        RETURN;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %1$I TO %2$I;'
        'GRANT SELECT ON %1$I.superblock, %1$I.inode, %1$I.dentry, %1$I.path, %1$I.snapshot,'
        ' %1$I.snapshot_inode, %1$I.snapshot_dentry TO %2$I', fs, role);
    IF access = 'write' THEN
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %1$I.inode, %1$I.dentry TO %2$I;'
            'GRANT SELECT, INSERT, UPDATE, DELETE ON %1$I.mount TO %2$I;'
            'GRANT USAGE ON SEQUENCE %1$I.ino_seq TO %2$I;'
            'GRANT UPDATE (rename_lock) ON %1$I.superblock TO %2$I', fs, role);
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.grant(name, name, text) IS
    'gives a role the privileges that a mount needs: none, read or write';

-- ---------------------------------------------------------------------------
-- Functions by path, for SQL.  They run with the rights of the caller.
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobfs.fail(status integer, path text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF status <> 0 THEN
        RAISE EXCEPTION '%: %', path, CASE status
            WHEN 1 THEN 'operation not permitted' WHEN 2 THEN 'no such file or directory'
            WHEN 16 THEN 'another version was expected' WHEN 17 THEN 'file exists'
            WHEN 20 THEN 'not a directory' WHEN 21 THEN 'is a directory'
            WHEN 22 THEN 'invalid argument' WHEN 31 THEN 'too many links'
            WHEN 36 THEN 'file name too long' WHEN 39 THEN 'directory not empty'
            WHEN 40 THEN 'too many levels of symbolic links' WHEN 116 THEN 'stale file handle'
            ELSE 'error ' || status END
        USING ERRCODE = 'BF' || lpad(status::text, 3, '0');
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.fail(integer, text) IS
    'the error for a status; SQLSTATE is BF and the errno of Linux';

CREATE FUNCTION blobfs.resolve(fs name, path text, follow boolean, must_be boolean,
        OUT parent bigint, OUT name bytea, OUT ino bigint, OUT kind "char")
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    status integer;
BEGIN
    PERFORM blobfs.require(fs);
    EXECUTE format('SELECT status, parent, name, ino, kind FROM %I.resolve($1, $2)', fs)
    INTO status, parent, name, ino, kind USING convert_to(path, 'UTF8'), follow;
    IF status = 0 AND must_be AND ino IS NULL THEN
        status := 2;
    END IF;
    PERFORM blobfs.fail(status, path);
END $$;
COMMENT ON FUNCTION blobfs.resolve(name, text, boolean, boolean) IS
    'the inode of a path; an error if it is not there and must be';

-- A call that changes something, by its text; $1 to $6 are what it may need.
CREATE FUNCTION blobfs.change(fs name, call text, path text, parent bigint, entry bytea,
        ino bigint, content blobstate DEFAULT NULL, bytes bytea DEFAULT NULL,
        number bigint DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    result record;
BEGIN
    EXECUTE format('SELECT r.status, r.ino FROM %I.' || call || ' AS r', fs)
    INTO result USING parent, entry, ino, content, bytes, number;
    PERFORM blobfs.fail(result.status, path);
    RETURN result.ino;
END $$;
COMMENT ON FUNCTION blobfs.change(name, text, text, bigint, bytea, bigint, blobstate, bytea, bigint)
    IS 'behind the functions by path that change something';

CREATE FUNCTION blobfs.owner_of(fs name, ino bigint, OUT uid bigint, OUT gid bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    EXECUTE format('SELECT uid, gid FROM %I.getattr($1)', fs) INTO uid, gid USING ino;
END $$;
COMMENT ON FUNCTION blobfs.owner_of(name, bigint) IS
    'user and group of a directory: what SQL makes in it has the same';

CREATE FUNCTION blobfs.stat(fs name, path text) RETURNS SETOF blobfs.attr
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT * FROM %I.getattr($1)', fs)
    USING (SELECT r.ino FROM blobfs.resolve(fs, path, false, true) AS r);
END $$;
COMMENT ON FUNCTION blobfs.stat(name, text) IS 'attributes of what has a path';

CREATE FUNCTION blobfs.list(fs name, path text DEFAULT '/') RETURNS TABLE (name text,
        kind "char", mode text, uid bigint, gid bigint, nlink integer, size bigint,
        mtime timestamptz, ino bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    directory record;
BEGIN
    SELECT * INTO directory FROM blobfs.resolve(fs, path, true, true);
    PERFORM blobfs.fail(CASE WHEN directory.kind = 'd' THEN 0 ELSE 20 END, path);
    RETURN QUERY EXECUTE format('SELECT blobfs.name_text(name), kind,'
        ' right(''0000'' || (mode >> 9) || (mode >> 6 & 7) || (mode >> 3 & 7) || (mode & 7), 4),'
        ' uid, gid, nlink, size, to_timestamp(mtime / 1e9::float8), ino'
        ' FROM %I.readdir($1, '''', NULL)', fs)
    USING directory.ino;
END $$;
COMMENT ON FUNCTION blobfs.list(name, text) IS 'the entries of a directory';

CREATE FUNCTION blobfs.read(fs name, path text) RETURNS blobstate
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    file record;
    result record;
BEGIN
    SELECT * INTO file FROM blobfs.resolve(fs, path, true, true);
    PERFORM blobfs.fail(CASE file.kind WHEN 'f' THEN 0 WHEN 'd' THEN 21 ELSE 22 END, path);
    EXECUTE format('SELECT c AS content FROM %I.content($1, NULL) AS c', fs)
    INTO result USING file.ino;
    RETURN result.content;
END $$;
COMMENT ON FUNCTION blobfs.read(name, text) IS 'content of a file';

CREATE FUNCTION blobfs.read(fs name, path text, "offset" bigint, length bigint) RETURNS bytea
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    file record;
    result bytea;
BEGIN
    SELECT * INTO file FROM blobfs.resolve(fs, path, true, true);
    PERFORM blobfs.fail(CASE file.kind WHEN 'f' THEN 0 WHEN 'd' THEN 21 ELSE 22 END, path);
    EXECUTE format('SELECT b FROM %I.read($1, NULL, $2, $3) AS b', fs)
    INTO result USING file.ino, "offset", length;
    RETURN result;
END $$;
COMMENT ON FUNCTION blobfs.read(name, text, bigint, bigint) IS 'a range of the content of a file';

CREATE FUNCTION blobfs.write(fs name, path text, content blobstate) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    file record;
    owner record;
BEGIN
    SELECT * INTO file FROM blobfs.resolve(fs, path, true, false);
    IF file.ino IS NOT NULL THEN
        RETURN blobfs.change(fs, 'write($3, NULL, false, $4, NULL)', path, NULL, NULL, file.ino,
            content);
    END IF;
    SELECT * INTO owner FROM blobfs.owner_of(fs, file.parent);
    RETURN blobfs.change(fs, format('create(NULL, $1, $2, 420, %s, %s, $4, NULL)', owner.uid,
        owner.gid), path, file.parent, file.name, NULL, content);
END $$;
COMMENT ON FUNCTION blobfs.write(name, text, blobstate) IS
    'makes a file, or replaces its content; returns the number of its inode';

CREATE FUNCTION blobfs.write(fs name, path text, content bytea) RETURNS bigint
    LANGUAGE sql BEGIN ATOMIC SELECT blobfs.write(fs, path, content::blobstate); END;
COMMENT ON FUNCTION blobfs.write(name, text, bytea) IS
    'makes a file, or replaces its content; returns the number of its inode';

CREATE FUNCTION blobfs.append(fs name, path text, data bytea) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN blobfs.change(fs, 'append($3, NULL, false, $5, NULL)', path, NULL, NULL,
        (SELECT r.ino FROM blobfs.resolve(fs, path, true, true) AS r), NULL, data);
END $$;
COMMENT ON FUNCTION blobfs.append(name, text, bytea) IS 'adds bytes at the end of a file';

CREATE FUNCTION blobfs.truncate(fs name, path text, size bigint) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN blobfs.change(fs, 'truncate($3, NULL, false, $6, NULL)', path, NULL, NULL,
        (SELECT r.ino FROM blobfs.resolve(fs, path, true, true) AS r), NULL, NULL, size);
END $$;
COMMENT ON FUNCTION blobfs.truncate(name, text, bigint) IS
    'cuts a file off, or extends it by zeros';

CREATE FUNCTION blobfs.mkdir(fs name, path text, parents boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    directory record;
    owner record;
    component text;
    so_far text := '';
BEGIN
    IF parents THEN
        FOREACH component IN ARRAY string_to_array(trim(trailing '/' FROM path), '/') LOOP
            so_far := so_far || component || '/';
            SELECT * INTO directory FROM blobfs.resolve(fs, so_far, true, false);
            IF directory.ino IS NULL THEN
                directory.ino := blobfs.mkdir(fs, so_far);
            ELSIF directory.kind <> 'd' THEN
                PERFORM blobfs.fail(17, so_far);
            END IF;
        END LOOP;
        RETURN coalesce(directory.ino, 1);
    END IF;
    SELECT * INTO directory FROM blobfs.resolve(fs, path, false, false);
    PERFORM blobfs.fail(CASE WHEN directory.ino IS NULL THEN 0 ELSE 17 END, path);
    SELECT * INTO owner FROM blobfs.owner_of(fs, directory.parent);
    RETURN blobfs.change(fs, format('mkdir(NULL, $1, $2, 493, %s, %s)', owner.uid, owner.gid),
        path, directory.parent, directory.name, NULL);
END $$;
COMMENT ON FUNCTION blobfs.mkdir(name, text, boolean) IS
    'makes a directory, if asked for with those above it; returns the number of its inode';

CREATE FUNCTION blobfs.symlink(fs name, target text, path text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    link record;
    owner record;
BEGIN
    SELECT * INTO link FROM blobfs.resolve(fs, path, false, false);
    PERFORM blobfs.fail(CASE WHEN link.ino IS NULL THEN 0 ELSE 17 END, path);
    SELECT * INTO owner FROM blobfs.owner_of(fs, link.parent);
    RETURN blobfs.change(fs, format('symlink(NULL, $1, $2, $5, %s, %s)', owner.uid, owner.gid),
        path, link.parent, link.name, NULL, NULL, convert_to(target, 'UTF8'));
END $$;
COMMENT ON FUNCTION blobfs.symlink(name, text, text) IS
    'makes a symbolic link; returns the number of its inode';

CREATE FUNCTION blobfs.readlink(fs name, path text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    link record;
    target bytea;
BEGIN
    SELECT * INTO link FROM blobfs.resolve(fs, path, false, true);
    PERFORM blobfs.fail(CASE WHEN link.kind = 'l' THEN 0 ELSE 22 END, path);
    EXECUTE format('SELECT t FROM %I.readlink($1) AS t', fs) INTO target USING link.ino;
    RETURN blobfs.name_text(target);
END $$;
COMMENT ON FUNCTION blobfs.readlink(name, text) IS 'where a symbolic link leads';

CREATE FUNCTION blobfs.link(fs name, path text, new_path text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    file record;
    made record;
BEGIN
    SELECT * INTO file FROM blobfs.resolve(fs, path, false, true);
    SELECT * INTO made FROM blobfs.resolve(fs, new_path, false, false);
    PERFORM blobfs.fail(CASE WHEN made.ino IS NULL THEN 0 ELSE 17 END, new_path);
    RETURN blobfs.change(fs, 'link($3, $1, $2)', new_path, made.parent, made.name, file.ino);
END $$;
COMMENT ON FUNCTION blobfs.link(name, text, text) IS
    'gives a file another name; returns the number of its inode';

CREATE FUNCTION blobfs.rename(fs name, path text, new_path text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source record;
    target record;
BEGIN
    SELECT * INTO source FROM blobfs.resolve(fs, path, false, true);
    SELECT * INTO target FROM blobfs.resolve(fs, new_path, false, false);
    PERFORM blobfs.fail(CASE WHEN source.name IS NULL OR target.name IS NULL THEN 16 ELSE 0 END,
        path);
    RETURN blobfs.change(fs, 'rename($1, $2, $6, $5, 0)', path, source.parent, source.name, NULL,
        NULL, target.name, target.parent);
END $$;
COMMENT ON FUNCTION blobfs.rename(name, text, text) IS
    'renames or moves, also over what is there; returns the number of the inode';

CREATE FUNCTION blobfs.unlink(fs name, path text, recursive boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry record;
    child record;
BEGIN
    SELECT * INTO entry FROM blobfs.resolve(fs, path, false, true);
    PERFORM blobfs.fail(CASE WHEN entry.name IS NULL THEN 16 ELSE 0 END, path);
    IF entry.kind <> 'd' THEN
        RETURN blobfs.change(fs, 'unlink($1, $2)', path, entry.parent, entry.name, NULL);
    END IF;
    IF recursive THEN
        PERFORM blobfs.empty(fs, path, entry.ino);
    END IF;
    RETURN blobfs.change(fs, 'rmdir($1, $2)', path, entry.parent, entry.name, NULL);
END $$;
COMMENT ON FUNCTION blobfs.unlink(name, text, boolean) IS
    'removes a name, or an empty directory, if asked for one with all that is in it';

CREATE FUNCTION blobfs.empty(fs name, path text, ino bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry record;
BEGIN
    FOR entry IN EXECUTE format('SELECT * FROM %I.readdir($1, '''', NULL)', fs) USING ino LOOP
        IF entry.kind = 'd' THEN
            PERFORM blobfs.empty(fs, path, entry.ino);
        END IF;
        PERFORM blobfs.change(fs, CASE WHEN entry.kind = 'd' THEN 'rmdir' ELSE 'unlink' END
            || '($1, $2)', path, ino, entry.name, NULL);
    END LOOP;
END $$;
COMMENT ON FUNCTION blobfs.empty(name, text, bigint) IS 'removes all that is in a directory';

CREATE FUNCTION blobfs.check(fs name) RETURNS TABLE (problem text, ino bigint, parent bigint,
        name bytea)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    RETURN QUERY EXECUTE format('SELECT * FROM %I."check"()', fs);
END $$;
COMMENT ON FUNCTION blobfs.check(name) IS
    'a row for each problem of the tables of a file system; none is right';

-- ---------------------------------------------------------------------------
-- Snapshots, notifications, quota
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobfs.snapshot(fs name, snapshot text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM blobfs.require(fs);
    EXECUTE format('SELECT %I.snapshot_make($1)', fs) INTO made
    USING convert_to(snapshot, 'UTF8');
    RETURN made;
END $$;
COMMENT ON FUNCTION blobfs.snapshot(name, text) IS
    'keeps the tree as it is now under a name; content is shared';

CREATE FUNCTION blobfs.drop_snapshot(fs name, snapshot text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was_there boolean;
BEGIN
    PERFORM blobfs.require(fs);
    EXECUTE format('SELECT %I.snapshot_drop($1)', fs) INTO was_there
    USING convert_to(snapshot, 'UTF8');
    PERFORM blobfs.fail(CASE WHEN was_there THEN 0 ELSE 2 END, snapshot);
END $$;
COMMENT ON FUNCTION blobfs.drop_snapshot(name, text) IS 'removes a snapshot';

CREATE FUNCTION blobfs.channel(fs name) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    RETURN 'blobfs_' || to_regclass(format('%I.dentry', fs))::oid;
END $$;
COMMENT ON FUNCTION blobfs.channel(name) IS
    'the channel of the notifications of a file system, for LISTEN';

CREATE FUNCTION blobfs.set_notify(fs name, notify boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    IF notify THEN
        EXECUTE format('CREATE OR REPLACE TRIGGER notify_dentry'
            ' AFTER INSERT OR UPDATE OR DELETE ON %1$I.dentry'
            ' FOR EACH ROW EXECUTE FUNCTION %1$I.notify_dentry();'
            'CREATE OR REPLACE TRIGGER notify_inode AFTER UPDATE ON %1$I.inode'
            ' FOR EACH ROW EXECUTE FUNCTION %1$I.notify_inode()', fs);
    ELSE
        EXECUTE format('DROP TRIGGER IF EXISTS notify_dentry ON %1$I.dentry;'
            'DROP TRIGGER IF EXISTS notify_inode ON %1$I.inode', fs);
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.set_notify(name, boolean) IS
    'whether changes are notified to mounts; NOTIFY lets one transaction at a time commit';

CREATE FUNCTION blobfs.notify_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('blobfs_' || TG_RELID::text, 't');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION blobfs.notify_change() IS 'notifies mounts of a table that it has changed';

CREATE FUNCTION blobfs.notify_table(relation regclass, notify boolean) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF notify THEN
        EXECUTE format('CREATE OR REPLACE TRIGGER blobfs_notify'
            ' AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
            ' FOR EACH STATEMENT EXECUTE FUNCTION blobfs.notify_change()', relation);
    ELSE
        EXECUTE format('DROP TRIGGER IF EXISTS blobfs_notify ON %s', relation);
    END IF;
    RETURN 'blobfs_' || relation::oid;
END $$;
COMMENT ON FUNCTION blobfs.notify_table(regclass, boolean) IS
    'whether changes of a table are notified to mounts of it; returns the channel, for LISTEN';

CREATE FUNCTION blobfs.set_quota(fs name, bytes bigint, inodes bigint DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require_owner(fs);
    EXECUTE format('LOCK TABLE %I.inode IN SHARE ROW EXCLUSIVE MODE', fs);
    EXECUTE format('UPDATE %I.superblock SET quota_bytes = $1, quota_inodes = $2', fs)
    USING bytes, inodes;
    IF bytes IS NULL AND inodes IS NULL THEN
        EXECUTE format('DROP TRIGGER IF EXISTS quota_note ON %1$I.inode;'
            'DROP TRIGGER IF EXISTS quota_note_size ON %1$I.inode;'
            'DROP TABLE IF EXISTS %1$I.usage, %1$I.usage_change, %1$I.usage_commit', fs);
    ELSIF to_regclass(format('%I.usage', fs)) IS NULL THEN
        EXECUTE blobfs.instance(blobfs.template_quota(), fs);
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.set_quota(name, bigint, bigint) IS
    'limits a file system; NULL: no limit. Snapshots do not count';

CREATE FUNCTION blobfs.template_quota() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC SELECT $template$
CREATE TABLE @fs@.usage (bytes bigint NOT NULL, inodes bigint NOT NULL);
COMMENT ON TABLE @fs@.usage IS 'one row: what all files take, as of committed transactions';
COMMENT ON COLUMN @fs@.usage.bytes IS 'sum of sizes';
COMMENT ON COLUMN @fs@.usage.inodes IS 'number of inodes';
CREATE TABLE @fs@.usage_change (xid pg_catalog.xid8 NOT NULL, bytes bigint, inodes bigint);
CREATE INDEX ON @fs@.usage_change (xid);
COMMENT ON TABLE @fs@.usage_change IS 'what running transactions have changed';
COMMENT ON COLUMN @fs@.usage_change.xid IS 'the transaction';
COMMENT ON COLUMN @fs@.usage_change.bytes IS 'bytes more';
COMMENT ON COLUMN @fs@.usage_change.inodes IS 'inodes more';
CREATE TABLE @fs@.usage_commit (xid pg_catalog.xid8 PRIMARY KEY);
COMMENT ON TABLE @fs@.usage_commit IS 'running transactions that have changed something';
COMMENT ON COLUMN @fs@.usage_commit.xid IS 'the transaction';
INSERT INTO @fs@.usage SELECT coalesce(pg_catalog.sum(i.size), 0), pg_catalog.count(*)
FROM @fs@.inode AS i;
CREATE TRIGGER quota_note AFTER INSERT OR DELETE ON @fs@.inode
    FOR EACH ROW EXECUTE FUNCTION @fs@.quota_note();
CREATE TRIGGER quota_note_size AFTER UPDATE ON @fs@.inode
    FOR EACH ROW WHEN (OLD.size <> NEW.size) EXECUTE FUNCTION @fs@.quota_note();
CREATE CONSTRAINT TRIGGER quota_settle AFTER INSERT ON @fs@.usage_commit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @fs@.quota_settle();
$template$; END;
COMMENT ON FUNCTION blobfs.template_quota() IS 'text that makes what a quota needs';

-- ---------------------------------------------------------------------------
-- Tables that are mounted as they are
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobfs.view_problems(relation regclass, path_column name, prefix text DEFAULT '')
    RETURNS TABLE (path text, problem text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY EXECUTE format($query$
        WITH base AS (SELECT t.%2$I::text AS path FROM %1$s AS t),
        shown AS (
            SELECT b.path, substr(b.path, length($1) + 1) AS shown_path
            FROM base AS b WHERE starts_with(b.path, $1)),
        component AS (
            SELECT s.path, c.name FROM shown AS s,
                unnest(string_to_array(s.shown_path, '/')) AS c (name))
        SELECT b.path, 'has no path' FROM base AS b WHERE b.path IS NULL
        UNION ALL
        SELECT b.path, 'does not begin with the prefix' FROM base AS b
        WHERE NOT starts_with(b.path, $1)
        UNION ALL
        SELECT s.path, 'is empty' FROM shown AS s WHERE s.shown_path = ''
        UNION ALL
        SELECT DISTINCT c.path, CASE WHEN c.name = '' THEN 'has an empty name in it'
            WHEN octet_length(c.name) > 255 THEN 'has a name of more than 255 bytes in it'
            ELSE format('has the name "%%s" in it', c.name) END
        FROM component AS c WHERE c.name IN ('', '.', '..') OR octet_length(c.name) > 255
        UNION ALL
        SELECT b.path, format('%%s rows have it', count(*)) FROM base AS b
        WHERE b.path IS NOT NULL GROUP BY b.path HAVING count(*) > 1
        UNION ALL
        SELECT DISTINCT f.path, 'is hidden: other paths make it a directory'
        FROM (SELECT s.path, s.shown_path || '/' AS below FROM shown AS s
                WHERE s.shown_path <> '') AS f
            JOIN (SELECT DISTINCT array_to_string((string_to_array(s.shown_path, '/'))[: n], '/')
                    || '/' AS directory
                FROM shown AS s, generate_series(1,
                    cardinality(string_to_array(s.shown_path, '/')) - 1) AS n) AS d
            ON d.directory = f.below
    $query$, relation, path_column) USING prefix;
END $$;
COMMENT ON FUNCTION blobfs.view_problems(regclass, name, text) IS
    'paths of a table that a mount does not show, or not as they are, and why';
