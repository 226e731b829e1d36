/* blobext_plpython3u 0.4.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION blobext_plpython3u" to load this file. \quit

-- Only PL/Python can call these, because SQL has no values of type internal.
CREATE FUNCTION @extschema@.blobext_to_plpython3(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'blobext_to_plpython' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.blobext_to_plpython3(internal) IS
    'content of a blobstate as bytes of Python';

-- The type is that of the extension blobext.  A name alone would find any type "blobstate" in the
-- schema of this extension.
DO $do$
DECLARE
    blobstate text;
BEGIN
    SELECT t.oid::pg_catalog.regtype::text INTO STRICT blobstate
        FROM pg_catalog.pg_extension AS e
        JOIN pg_catalog.pg_depend AS d
            ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
            AND d.refobjid = e.oid AND d.deptype = 'e'
            AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
        JOIN pg_catalog.pg_type AS t ON t.oid = d.objid
        WHERE e.extname = 'blobext' AND t.typname = 'blobstate';
    EXECUTE 'CREATE FUNCTION @extschema@.blobext_from_plpython3(internal) RETURNS ' || blobstate ||
        ' AS ''MODULE_PATHNAME'', ''blobext_from_plpython'''
        ' LANGUAGE C STABLE STRICT PARALLEL SAFE';
    EXECUTE 'CREATE TRANSFORM FOR ' || blobstate || ' LANGUAGE plpython3u ('
        'FROM SQL WITH FUNCTION @extschema@.blobext_to_plpython3(internal), '
        'TO SQL WITH FUNCTION @extschema@.blobext_from_plpython3(internal))';
    EXECUTE 'COMMENT ON TRANSFORM FOR ' || blobstate || ' LANGUAGE plpython3u IS '
        '''blobstate as bytes of Python, in functions with TRANSFORM FOR TYPE blobstate''';
END
$do$;
COMMENT ON FUNCTION @extschema@.blobext_from_plpython3(internal) IS
    'blobstate of an object of Python that has bytes';
