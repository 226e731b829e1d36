-- What a client asks a database for before it uses a value: $1 its table, $2 columns of its key.
-- The same file is in each client that has one.  All names are qualified.

-- Members of the extension: others with their names count for nothing, wherever they are.
SELECT ''::pg_catalog.text, i.identity FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) e.oid
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
WHERE e.extname OPERATOR(pg_catalog.=) 'blobext' AND d.deptype OPERATOR(pg_catalog.=) 'e'
    AND d.refclassid OPERATOR(pg_catalog.=)
        'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    AND i.type OPERATOR(pg_catalog.=) ANY ('{type,function,view}'::pg_catalog.text[])
UNION ALL
-- The operator by which a column is compared: that of its type's B-tree.  A column that has none
-- of its own is compared by that of pg_catalog.
(WITH RECURSIVE base (name, type) AS (
    SELECT a.attname, a.atttypid FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid OPERATOR(pg_catalog.=)
            ($1::pg_catalog.text)::pg_catalog.regclass::pg_catalog.oid
        AND a.attname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[])
    UNION ALL SELECT b.name, t.typbasetype FROM base AS b
        JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) b.type
    WHERE t.typtype OPERATOR(pg_catalog.=) 'd')
SELECT b.name::pg_catalog.text, pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname)
FROM base AS b
    JOIN pg_catalog.pg_opclass AS c ON c.opcintype OPERATOR(pg_catalog.=) b.type AND c.opcdefault
    JOIN pg_catalog.pg_am AS m ON m.oid OPERATOR(pg_catalog.=) c.opcmethod
        AND m.amname OPERATOR(pg_catalog.=) 'btree'
    JOIN pg_catalog.pg_amop AS a ON a.amopfamily OPERATOR(pg_catalog.=) c.opcfamily
        AND a.amopstrategy OPERATOR(pg_catalog.=) 3::pg_catalog.int2
        AND a.amoplefttype OPERATOR(pg_catalog.=) b.type
        AND a.amoprighttype OPERATOR(pg_catalog.=) b.type
    JOIN pg_catalog.pg_operator AS o ON o.oid OPERATOR(pg_catalog.=) a.amopopr
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) o.oprnamespace)
