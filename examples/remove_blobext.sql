-- Takes blobext out of a database, with its content kept: columns of type blobstate become bytea,
-- and those of arrays of it arrays of bytea.  docs/operations.md, "Removal", says when.
--
--   psql -d DATABASE -f examples/remove_blobext.sql
--
-- Indexes and constraints on such columns stand in the way: a B-tree of bytea has room for keys of
-- some kB at most, and none of the extension's operator classes is for bytea.  So all of them are
-- dropped, and made again for bytea afterwards.  Those that cannot be are named, with the reason;
-- their definitions stay in the table blobext_removed.
--
-- Everything is one transaction: at an error nothing has changed.  Run it as a superuser.
\set ON_ERROR_STOP 1
BEGIN;
-- No function or operator of another role is called.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE TABLE public.blobext_removed (
    position int GENERATED ALWAYS AS IDENTITY, definition text NOT NULL, problem text);

CREATE TEMPORARY TABLE blob_column ON COMMIT DROP AS
    SELECT attrelid, attnum, attname, attinhcount,
        CASE WHEN b.oid = t.oid THEN 'bytea' ELSE 'bytea[]' END AS new_type
    FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid JOIN pg_type AS t ON t.oid = atttypid
        JOIN (pg_extension JOIN pg_type AS b ON b.typnamespace = extnamespace)
            ON extname = 'blobext' AND b.typname = 'blobstate'
                AND b.oid IN (t.oid, t.typelem)
    WHERE relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped;

-- Those of a partitioned table stand for those of its partitions.
CREATE TEMPORARY TABLE blob_index ON COMMIT DROP AS
    SELECT DISTINCT indexrelid FROM pg_index JOIN blob_column ON attrelid = indrelid
    WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = indexrelid)
        AND (attnum = ANY (indkey) OR EXISTS (
            SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = indexrelid
                AND refclassid = 'pg_class'::regclass AND refobjid = indrelid
                AND refobjsubid = attnum));

-- Foreign keys go first, and come back last.
DO $$
DECLARE
    extension_path text := (SELECT 'pg_catalog, ' || quote_ident(nspname)
        FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
        WHERE extname = 'blobext');
    item record;
    definition text;
BEGIN
    FOR item IN
        SELECT contype <> 'f' AS is_index, c.oid AS constraint_id, indexrelid AS index_id,
            conrelid::regclass AS relation, conname
        FROM pg_constraint AS c JOIN blob_index ON indexrelid = conindid WHERE conparentid = 0
        UNION ALL
        SELECT true, NULL, indexrelid, NULL, NULL FROM blob_index WHERE NOT EXISTS (
            SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype <> 'f')
        ORDER BY 1
    LOOP
        -- Names of the extension are written without its schema: bytea has the same functions.
        IF item.is_index THEN
            PERFORM set_config('search_path', extension_path, true);
        END IF;
        IF item.constraint_id IS NULL THEN
            definition := replace(pg_get_indexdef(item.index_id), ' ON ONLY ', ' ON ');
        ELSE
            definition := pg_get_constraintdef(item.constraint_id);
        END IF;
        PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
        IF item.constraint_id IS NULL THEN
            EXECUTE format('DROP INDEX %s', item.index_id::regclass);
        ELSE
            definition := format('ALTER TABLE %s ADD CONSTRAINT %I %s', item.relation, item.conname,
                definition);
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', item.relation, item.conname);
        END IF;
        INSERT INTO public.blobext_removed (definition)
            VALUES (regexp_replace(definition, '::blobstate\M', '::bytea', 'g'));
    END LOOP;

    FOR item IN
        SELECT format('ALTER TABLE %s %s', attrelid::regclass, string_agg(format(
            'ALTER COLUMN %I TYPE %s USING %I::%s', attname, new_type, attname, new_type), ', '))
            AS change
        FROM blob_column WHERE attinhcount = 0 GROUP BY attrelid
    LOOP
        EXECUTE item.change;
    END LOOP;
END
$$;

DROP EXTENSION IF EXISTS blobfs;
DROP EXTENSION blobext;

DO $$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT * FROM public.blobext_removed ORDER BY position DESC LOOP
        BEGIN
            EXECUTE item.definition;
            DELETE FROM public.blobext_removed WHERE position = item.position;
        EXCEPTION WHEN OTHERS THEN
            UPDATE public.blobext_removed SET problem = SQLERRM WHERE position = item.position;
        END;
    END LOOP;
    IF NOT EXISTS (SELECT FROM public.blobext_removed) THEN
        DROP TABLE public.blobext_removed;
    END IF;
END
$$;
SELECT to_regclass('public.blobext_removed') IS NOT NULL AS some_are_left \gset
\if :some_are_left
SELECT definition, problem FROM public.blobext_removed ORDER BY position;
\endif
COMMIT;
