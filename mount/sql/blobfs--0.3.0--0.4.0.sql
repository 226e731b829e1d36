/* blobfs 0.3.0 to 0.4.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobfs" or "ALTER EXTENSION blobfs UPDATE" to load this file. \quit

-- The script for CREATE EXTENSION is made of that of 0.3.0 and of this one (Makefile), so new
-- objects are written here only.

-- ---------------------------------------------------------------------------
-- Names
-- ---------------------------------------------------------------------------

-- The constraint of a table that is written all the time calls it: a setting would cost more than
-- the function, so the operators are qualified.
CREATE OR REPLACE FUNCTION blobfs.is_name(name bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.length(name) OPERATOR(pg_catalog.>=) 1
        AND pg_catalog.length(name) OPERATOR(pg_catalog.<=) 255
        AND pg_catalog."position"(name, '\x2f'::pg_catalog.bytea) OPERATOR(pg_catalog.=) 0
        AND pg_catalog."position"(name, '\x00'::pg_catalog.bytea) OPERATOR(pg_catalog.=) 0
        AND name OPERATOR(pg_catalog.<>) '\x2e'::pg_catalog.bytea
        AND name OPERATOR(pg_catalog.<>) '\x2e2e'::pg_catalog.bytea;
END $$;

-- ---------------------------------------------------------------------------
-- The template of a file system
-- ---------------------------------------------------------------------------

-- What 0.4.0 has in place of functions of the other templates, and beside them: it runs last.
CREATE FUNCTION blobfs.template_guard() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC SELECT $template$
-- ---- the size is that of the content, also in a row that SQL writes ----

-- A setting would cost as much as the rest, so the operators are qualified.
CREATE OR REPLACE FUNCTION @fs@.inode_size() RETURNS trigger
    LANGUAGE plpgsql VOLATILE AS $blobfs$
BEGIN
    NEW.size := coalesce(@blobext@.length(NEW.content), pg_catalog.length(NEW.target), 0);
    IF pg_catalog.length(NEW.target) OPERATOR(pg_catalog.>) 4095 THEN
        RAISE EXCEPTION 'target of a symbolic link is longer than 4095 bytes' USING
            ERRCODE = 'check_violation';
    END IF;
    IF pg_catalog.pg_column_size(NEW.xattr) OPERATOR(pg_catalog.>) 1048576 THEN
        RAISE EXCEPTION 'extended attributes of an inode are larger than 1 MB' USING
            ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $blobfs$;
COMMENT ON FUNCTION @fs@.inode_size() IS
    'sets the size to that of the content, or of the target, and limits what no quota counts';
CREATE OR REPLACE TRIGGER inode_size BEFORE INSERT OR UPDATE OF size, content, target, xattr
    ON @fs@.inode FOR EACH ROW EXECUTE FUNCTION @fs@.inode_size();

-- ---- content and version change together: maintenance stores the same content anew ----

CREATE OR REPLACE TRIGGER inode_guard AFTER UPDATE OF content ON @fs@.inode
    FOR EACH ROW WHEN (OLD.version = NEW.version
        AND NOT coalesce(@blobext@.blob_eq(OLD.content, NEW.content),
            OLD.content IS NULL AND NEW.content IS NULL))
    EXECUTE FUNCTION @fs@.inode_guard();

-- ---- marks: no role has privileges on the table, and only a mount knows its number ----

COMMENT ON COLUMN @fs@.mount.id IS
    'the mount: a random number, which is its key, for no other role reads this table';

-- Marks of mounts that are gone are removed when they have not moved for a day: a transaction that
-- is still in doubt was not committed then.
CREATE OR REPLACE FUNCTION @fs@.mount_begin(id bigint, slot integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
#variable_conflict use_variable
DECLARE
    fresh bigint;
BEGIN
    DELETE FROM @fs@.mount AS m USING (
        SELECT o.id, o.slot FROM @fs@.mount AS o WHERE o.changed < now() - interval '1 day'
        FOR UPDATE SKIP LOCKED) AS old
    WHERE m.id = old.id AND m.slot = old.slot AND m.id <> id;
    INSERT INTO @fs@.mount AS m (id, slot, mark) VALUES (id, slot, 0)
    ON CONFLICT ON CONSTRAINT mount_pkey DO UPDATE SET mark = m.mark + 4294967296
    RETURNING m.mark INTO fresh;
    RETURN fresh;
END $blobfs$;

CREATE OR REPLACE FUNCTION @fs@.mark(id bigint, slot integer, mark bigint,
        status integer DEFAULT 0) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
#variable_conflict use_variable
BEGIN
    IF status = 0 THEN
        UPDATE @fs@.mount AS m SET mark = mark, changed = now()
        WHERE m.id = id AND m.slot = slot AND m.mark = mark - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this connection of the mount has been given up' USING
                ERRCODE = 'BF125',
                DETAIL = 'Another connection has found out what became of its last transaction.';
        END IF;
    END IF;
END $blobfs$;

CREATE OR REPLACE FUNCTION @fs@.mount_recover(id bigint, slot integer, OUT committed bigint,
        OUT mark bigint) RETURNS SETOF record
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
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

CREATE OR REPLACE FUNCTION @fs@.mount_end(id bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $blobfs$
#variable_conflict use_variable
BEGIN
    DELETE FROM @fs@.mount AS m WHERE m.id = id;
END $blobfs$;

-- blobfs.grant() gives them to roles that may write.
REVOKE ALL ON FUNCTION @marks@ FROM PUBLIC;

-- ---- notifications: the channel is known to roles that may read the file system ----

CREATE OR REPLACE FUNCTION @fs@.channel() RETURNS text
    LANGUAGE sql STABLE AS $blobfs$
    SELECT 'blobfs_' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
        s.salt || 'channel'::pg_catalog.bytea), 'hex'), 32) FROM @fs@.superblock AS s
$blobfs$;
COMMENT ON FUNCTION @fs@.channel() IS
    'the channel of notifications, a secret of those who may read the file system';

CREATE OR REPLACE FUNCTION @fs@.notify_dentry() RETURNS trigger
    LANGUAGE plpgsql AS $blobfs$
DECLARE
    channel text := @fs@.channel();
    salt bytea := (SELECT s.salt FROM @fs@.superblock AS s);
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM pg_notify(channel, 'e ' || OLD.parent || ' ' || left(
            encode(sha256(salt || OLD.name), 'hex'), 16));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM pg_notify(channel, 'e ' || NEW.parent || ' ' || left(
            encode(sha256(salt || NEW.name), 'hex'), 16));
    END IF;
    RETURN NULL;
END $blobfs$;

CREATE OR REPLACE FUNCTION @fs@.notify_inode() RETURNS trigger
    LANGUAGE plpgsql AS $blobfs$
BEGIN
    PERFORM pg_notify(@fs@.channel(), 'i ' || NEW.ino || ' ' || NEW.version);
    RETURN NULL;
END $blobfs$;

-- ---- room ----

-- At most 500 pages are looked at, so what a large file system without quota uses is an estimate.
-- Room is what the quota and the server leave, whichever is less.
CREATE OR REPLACE FUNCTION @fs@.statfs(OUT total_bytes bigint, OUT used_bytes bigint,
        OUT total_inodes bigint, OUT used_inodes bigint, OUT quota boolean) RETURNS SETOF record
    LANGUAGE plpgsql STABLE AS $blobfs$
#variable_conflict use_column
DECLARE
    share double precision := least(100, 500 * 8192 * 100.0
        / greatest(pg_catalog.pg_relation_size('@fs@.inode'), 1));
    room bigint := coalesce(@blobext@.blobext_room(), 1099511627776);
BEGIN
    SELECT (pg_catalog.count(*) * 100 / share)::bigint,
        (coalesce(pg_catalog.sum(i.size), 0) * 100 / share)::bigint
    INTO used_inodes, used_bytes
    FROM @fs@.inode AS i TABLESAMPLE SYSTEM (share);
    SELECT s.quota_bytes, s.quota_inodes, s.quota_bytes IS NOT NULL OR s.quota_inodes IS NOT NULL
    INTO total_bytes, total_inodes, quota FROM @fs@.superblock AS s;
    total_bytes := least(total_bytes, used_bytes + room);
    total_inodes := coalesce(total_inodes, used_inodes + 1073741824);
    RETURN NEXT;
END $blobfs$;
COMMENT ON FUNCTION @fs@.statfs() IS
    'use of the file system; in total what is used, and what the quota and the server leave';
$template$; END;
COMMENT ON FUNCTION blobfs.template_guard() IS
    'text that makes what guards sizes, marks and notifications of a file system, and its room';

-- An object that an older blobext does not have would be looked up by its name, and a role that may
-- make functions in that schema could supply it.
CREATE FUNCTION blobfs.require_blobext(template text) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    extension oid := (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'blobext');
    missing text;
BEGIN
    SELECT m.used[1] INTO missing FROM regexp_matches(template, '@blobext@\.([a-z_0-9]+)', 'g')
        AS m (used)
    WHERE NOT EXISTS (SELECT FROM pg_depend AS d LEFT JOIN pg_proc AS p
            ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = extension
            AND d.deptype = 'e' AND m.used[1] IN (p.proname, t.typname));
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'the extension blobext of this database has no object "%"', missing USING
            ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'ALTER EXTENSION blobext UPDATE';
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.require_blobext(text) IS
    'an error unless the objects of blobext that a template names are members of that extension';

-- The schema is quoted as an identifier, also within literals.  A name that would end a body of a
-- function, or a literal, is refused.
--
-- No operator, function or type of a body is looked up by the search_path of the role that calls
-- it.  Functions in SQL are parsed when they are made, and the server still inlines them.  Those in
-- PL/pgSQL set the path, but for one that says why not (VOLATILE).
CREATE OR REPLACE FUNCTION blobfs.instance(template text, fs name) RETURNS text
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
    template := regexp_replace(template, 'LANGUAGE plpgsql( STABLE)? AS \$blobfs\$',
        'LANGUAGE plpgsql\1 SET search_path = pg_catalog, pg_temp AS $blobfs$', 'g');
    template := regexp_replace(template,
        'LANGUAGE sql (STABLE|VOLATILE) AS \$blobfs\$((?:[^$]|\$[0-9])*)\n\$blobfs\$;',
        'LANGUAGE sql \1 BEGIN ATOMIC\2; END;', 'g');
    template := replace(template, '@marks@', '@fs@.mount_begin(bigint, integer), '
        '@fs@.mark(bigint, integer, bigint, integer), @fs@.mount_recover(bigint, integer), '
        '@fs@.mount_end(bigint)');
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
    PERFORM blobfs.require_blobext(template);
    RETURN replace(replace(template, '@blobext@', blobext), '@fs@', quote_ident(fs));
END $$;

-- ---------------------------------------------------------------------------
-- File systems: make, update, remove, grant
-- ---------------------------------------------------------------------------

-- The owner of a file system may replace its functions.  A role with powers of its own would lend
-- them to the owner of each file system that it reads.
CREATE FUNCTION blobfs.require_trusted(fs name) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner name := (SELECT o.rolname
        FROM pg_namespace AS n JOIN pg_roles AS o ON o.oid = n.nspowner, pg_roles AS r
        WHERE n.nspname = fs AND r.rolname = current_user AND o.oid <> r.oid AND NOT o.rolsuper
            AND (r.rolsuper OR r.rolcreaterole AND NOT o.rolcreaterole
                OR r.rolreplication AND NOT o.rolreplication
                OR r.rolbypassrls AND NOT o.rolbypassrls
                OR EXISTS (SELECT FROM pg_roles AS g
                    WHERE starts_with(g.rolname, 'pg_') AND g.rolname <> 'pg_database_owner'
                        AND pg_has_role(r.oid, g.oid, 'MEMBER')
                        AND NOT pg_has_role(o.oid, g.oid, 'MEMBER'))));
BEGIN
    PERFORM blobfs.require(fs);
    IF owner IS NOT NULL THEN
        RAISE EXCEPTION 'functions of file system "%" would run with the rights of role "%"', fs,
                current_user USING
            ERRCODE = 'insufficient_privilege',
            DETAIL = format('Role "%s", which owns them, has fewer.', owner),
            HINT = format('Connect as role %I, or as another one without rights of its own.',
                owner);
    END IF;
END $$;
COMMENT ON FUNCTION blobfs.require_trusted(name) IS
    'an error if functions of a file system would lend its owner powers of the current role';

CREATE FUNCTION blobfs.is_upgraded(fs name) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN to_regprocedure(format('%I.channel()', fs)) IS NOT NULL;
END $$;
COMMENT ON FUNCTION blobfs.is_upgraded(name) IS
    'whether a file system has the functions that this version of the extension makes';

-- Sizes that were set by hand, and privileges on the table of marks, are of 0.3.0.  The usage is
-- counted anew where sizes were wrong; under the lock no other transaction has changes of rows.
CREATE FUNCTION blobfs.repair(fs name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    has_quota boolean := to_regclass(format('%I.usage', fs)) IS NOT NULL;
    mount regclass := to_regclass(format('%I.mount', fs));
    grantee record;
    wrong bigint;
BEGIN
    EXECUTE format('LOCK TABLE %I.inode IN SHARE ROW EXCLUSIVE MODE', fs);
    IF has_quota THEN
        EXECUTE format('ALTER TABLE %I.inode DISABLE TRIGGER quota_note_size', fs);
    END IF;
    EXECUTE blobfs.instance('UPDATE @fs@.inode AS i SET size = i.size WHERE i.size <> '
        'coalesce(@blobext@.length(i.content), length(i.target), 0)', fs);
    GET DIAGNOSTICS wrong = ROW_COUNT;
    IF has_quota THEN
        EXECUTE format('ALTER TABLE %I.inode ENABLE TRIGGER quota_note_size', fs);
    END IF;
    IF has_quota AND wrong > 0 THEN
        EXECUTE format('DELETE FROM %1$I.usage_change;'
            'UPDATE %1$I.usage SET (bytes, inodes) ='
            ' (SELECT coalesce(sum(i.size), 0), count(*) FROM %1$I.inode AS i)', fs);
    END IF;
    FOR grantee IN
        SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC'
                ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS role,
            bool_or(a.privilege_type = 'INSERT') AS may_insert
        FROM pg_class AS c, LATERAL (
                SELECT e.* FROM aclexplode(c.relacl) AS e
                UNION ALL
                SELECT e.* FROM pg_attribute AS t, aclexplode(t.attacl) AS e
                WHERE t.attrelid = c.oid) AS a
        WHERE c.oid = mount AND a.grantee <> c.relowner
        GROUP BY a.grantee
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', mount, grantee.role);
        IF grantee.may_insert THEN
            EXECUTE blobfs.instance('GRANT EXECUTE ON FUNCTION @marks@ TO ', fs) || grantee.role;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION blobfs.repair(name) IS
    'behind upgrade(): sizes that were set by hand, privileges on the table of marks';

-- Versions of files are numbers, so nothing asks for the digest of a file that was changed.  A
-- label of the owner's stays; so do digests where the owner has made a key of the column.
CREATE FUNCTION blobfs.defer_digests(fs name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT a.attrelid::regclass AS relation, l.label
        FROM pg_attribute AS a LEFT JOIN pg_seclabel AS l ON l.provider = 'blobext'
            AND l.classoid = 'pg_class'::regclass AND l.objoid = a.attrelid
            AND l.objsubid = a.attnum
        WHERE a.attname = 'content' AND a.attrelid IN (to_regclass(format('%I.inode', fs)),
            to_regclass(format('%I.snapshot_inode', fs)))
    LOOP
        CONTINUE WHEN part.label ~ 'digest';
        BEGIN
            EXECUTE format('SECURITY LABEL FOR blobext ON COLUMN %s.content IS %L', part.relation,
                concat_ws(', ', part.label, 'digest deferred'));
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            RAISE WARNING 'changes of files of "%" compute their digests: %', fs, SQLERRM;
        END;
    END LOOP;
END $$;
COMMENT ON FUNCTION blobfs.defer_digests(name) IS
    'behind upgrade(): a change of a file costs what it changes';

-- A pin is a copy of a value: to compute its digest would be to read the file.
SECURITY LABEL FOR blobext ON COLUMN blobfs.pin.content IS 'digest deferred';

CREATE OR REPLACE FUNCTION blobfs.upgrade(fs name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
BEGIN
    PERFORM blobfs.require_owner(fs);
    EXECUTE blobfs.instance(blobfs.template_reading(false), fs);
    EXECUTE blobfs.instance(blobfs.template_reading(true), fs);
    EXECUTE blobfs.instance(blobfs.template_writing(), fs);
    EXECUTE blobfs.instance(blobfs.template_whole(), fs);
    EXECUTE blobfs.instance(blobfs.template_guard(), fs);
    PERFORM blobfs.repair(fs);
    PERFORM blobfs.defer_digests(fs);
END $$;

CREATE OR REPLACE FUNCTION blobfs.grant(fs name, role name, access text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require(fs);
    IF access IS NULL OR access NOT IN ('none', 'read', 'write') THEN
        RAISE EXCEPTION 'unknown access "%"', access USING
            ERRCODE = 'invalid_parameter_value',
            HINT = 'There are "none", "read" and "write".';
    END IF;
    IF NOT blobfs.is_upgraded(fs) THEN
        RAISE EXCEPTION 'file system "%" has functions of an earlier version of the extension', fs
        USING
            ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('SELECT blobfs.upgrade(%L)', fs);
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %1$I FROM %2$I;'
        'REVOKE ALL ON ALL SEQUENCES IN SCHEMA %1$I FROM %2$I;'
        'REVOKE UPDATE (rename_lock) ON %1$I.superblock FROM %2$I;'
        'REVOKE ALL ON SCHEMA %1$I FROM %2$I', fs, role);
    EXECUTE blobfs.instance('REVOKE ALL ON FUNCTION @marks@ FROM ', fs) || quote_ident(role);
    IF access = 'none' THEN
        RETURN;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %1$I TO %2$I;'
        'GRANT SELECT ON %1$I.superblock, %1$I.inode, %1$I.dentry, %1$I.path, %1$I.snapshot,'
        ' %1$I.snapshot_inode, %1$I.snapshot_dentry TO %2$I', fs, role);
    IF access = 'write' THEN
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %1$I.inode, %1$I.dentry TO %2$I;'
            'GRANT USAGE ON SEQUENCE %1$I.ino_seq TO %2$I;'
            'GRANT UPDATE (rename_lock) ON %1$I.superblock TO %2$I', fs, role);
        EXECUTE blobfs.instance('GRANT EXECUTE ON FUNCTION @marks@ TO ', fs) || quote_ident(role);
    END IF;
END $$;

-- ---------------------------------------------------------------------------
-- Functions that run those of a file system
-- ---------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION blobfs.resolve(fs name, path text, follow boolean, must_be boolean,
        OUT parent bigint, OUT name bytea, OUT ino bigint, OUT kind "char")
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    status integer;
BEGIN
    PERFORM blobfs.require_trusted(fs);
    EXECUTE format('SELECT status, parent, name, ino, kind FROM %I.resolve($1, $2)', fs)
    INTO status, parent, name, ino, kind USING convert_to(path, 'UTF8'), follow;
    IF status = 0 AND must_be AND ino IS NULL THEN
        status := 2;
    END IF;
    PERFORM blobfs.fail(status, path);
END $$;

CREATE OR REPLACE FUNCTION blobfs.check(fs name) RETURNS TABLE (problem text, ino bigint,
        parent bigint, name bytea)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM blobfs.require_trusted(fs);
    IF NOT blobfs.is_upgraded(fs) THEN
        RETURN QUERY SELECT format('functions are of an earlier version of the extension: '
            'SELECT blobfs.upgrade(%L)', fs), NULL::bigint, NULL::bigint, NULL::bytea;
    END IF;
    RETURN QUERY EXECUTE format('SELECT * FROM %I."check"()', fs);
END $$;

CREATE OR REPLACE FUNCTION blobfs.snapshot(fs name, snapshot text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM blobfs.require_trusted(fs);
    EXECUTE format('SELECT %I.snapshot_make($1)', fs) INTO made
    USING convert_to(snapshot, 'UTF8');
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION blobfs.drop_snapshot(fs name, snapshot text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was_there boolean;
BEGIN
    PERFORM blobfs.require_trusted(fs);
    EXECUTE format('SELECT %I.snapshot_drop($1)', fs) INTO was_there
    USING convert_to(snapshot, 'UTF8');
    PERFORM blobfs.fail(CASE WHEN was_there THEN 0 ELSE 2 END, snapshot);
END $$;

-- The triggers of a file system that has not been upgraded notify the channel of 0.3.0.
CREATE OR REPLACE FUNCTION blobfs.channel(fs name) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    channel text;
BEGIN
    PERFORM blobfs.require_trusted(fs);
    IF NOT blobfs.is_upgraded(fs) THEN
        RETURN 'blobfs_' || to_regclass(format('%I.dentry', fs))::oid;
    END IF;
    EXECUTE format('SELECT %I.channel()', fs) INTO channel;
    RETURN channel;
END $$;
