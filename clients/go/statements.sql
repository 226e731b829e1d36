-- The statements of a client for the values of a column: $1 is the table, quoted, $2 the column, $3
-- the columns of the key.  Parameters are the values of the key, then the statement's own.  No row
-- if the extension is missing or too old.  The same file is in each client that has one.
--
-- All names are qualified, and arguments have the types of the functions' parameters: nothing of
-- another role is called, here and in the statements.
WITH RECURSIVE given (place, name, key) AS (
    SELECT $1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text[]),
-- Its schema, if all that is called is a member: others with these names count for nothing.  From
-- PostgreSQL 17 on the row type of a view, which has the view's name, is a member, too.
extension (x) AS (
    SELECT i.schema FROM pg_catalog.pg_extension AS e
        JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) e.oid
            AND d.deptype OPERATOR(pg_catalog.=) 'e' AND d.refclassid OPERATOR(pg_catalog.=)
                'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS i
        JOIN pg_catalog.unnest('{%1$s.blobstate, %1$s.length(%1$s.blobstate),
            %1$s.sha256(%1$s.blobstate), "%1$s.blob_read(%1$s.blobstate,bigint,bigint)",
            %1$s.blob_upload_begin(bigint), "%1$s.blob_upload_resume(%1$s.blobstate,bigint)",
            %1$s.blob_upload_end(bigint), %1$s.blob_upload_pieces}'::pg_catalog.text[]) AS m (name)
            ON i.identity OPERATOR(pg_catalog.=) pg_catalog.format(m.name, i.schema)
    WHERE e.extname OPERATOR(pg_catalog.=) 'blobext'
    GROUP BY i.schema HAVING pg_catalog.count(DISTINCT m.name) OPERATOR(pg_catalog.=) 8),
-- A column is compared by the operator of its type's B-tree, one without by that of pg_catalog.
base (name, type) AS (
    SELECT a.attname, a.atttypid FROM given AS g JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) g.place::pg_catalog.regclass::pg_catalog.oid
        AND a.attname OPERATOR(pg_catalog.=) ANY (g.key)
    UNION ALL SELECT b.name, t.typbasetype FROM base AS b
        JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) b.type
    WHERE t.typtype OPERATOR(pg_catalog.=) 'd'),
compared (name, operator) AS (
    SELECT b.name, pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM base AS b
        JOIN pg_catalog.pg_opclass AS c ON c.opcintype OPERATOR(pg_catalog.=) b.type
            AND c.opcdefault AND c.opcmethod OPERATOR(pg_catalog.=) 403::pg_catalog.oid
        JOIN pg_catalog.pg_amop AS a ON a.amopfamily OPERATOR(pg_catalog.=) c.opcfamily
            AND a.amopstrategy OPERATOR(pg_catalog.=) 3::pg_catalog.int2
            AND a.amoplefttype OPERATOR(pg_catalog.=) b.type
            AND a.amoprighttype OPERATOR(pg_catalog.=) b.type
        JOIN pg_catalog.pg_operator AS o ON o.oid OPERATOR(pg_catalog.=) a.amopopr
        JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) o.oprnamespace),
-- Names, parameters and comparisons of the key; parameters and parts of the statements.
key (size, names, parameters, terms) AS (
    SELECT pg_catalog.count(*), pg_catalog.string_agg(pg_catalog.format('%I', k.name), ', '),
        pg_catalog.string_agg(pg_catalog.format('$%s', k.n), ', '),
        pg_catalog.string_agg(pg_catalog.format('%I %s $%s', k.name,
            COALESCE(c.operator, 'OPERATOR(pg_catalog.=)'), k.n), ' AND ')
    FROM given AS g CROSS JOIN pg_catalog.unnest(g.key) WITH ORDINALITY AS k (name, n)
        LEFT JOIN compared AS c ON c.name OPERATOR(pg_catalog.=) k.name),
own (first, second, third) AS (
    SELECT pg_catalog.format('$%s::pg_catalog.int8', size OPERATOR(pg_catalog.+) 1),
        pg_catalog.format('$%s::pg_catalog.int8', size OPERATOR(pg_catalog.+) 2),
        pg_catalog.format('$%s::pg_catalog.bytea', size OPERATOR(pg_catalog.+) 3) FROM key),
part (content, summary, found) AS (
    SELECT c.content, pg_catalog.format('%1$s.length(%2$s), %1$s.sha256(%2$s)', x, c.content),
        pg_catalog.format('FROM %s WHERE %s AND %s IS NOT NULL', place, terms, c.content)
    FROM given CROSS JOIN extension CROSS JOIN key
        CROSS JOIN LATERAL pg_catalog.format('(%I)::%s.blobstate', name, x) AS c (content))
SELECT pg_catalog.format('SELECT %s %s', summary, found) AS stat,
    pg_catalog.format('SELECT %1$s.blob_read(%2$s, %3$s, %4$s) %5$s
        AND %1$s.sha256(%2$s) OPERATOR(pg_catalog.=) %6$s',
        x, content, first, second, found, third) AS read,
    pg_catalog.format('SELECT 0::pg_catalog.int8, pg_catalog.sha256(''''::pg_catalog.bytea),
        %s.blob_upload_begin($1::pg_catalog.int8)', x) AS begin,
    pg_catalog.format('SELECT %s, %s.blob_upload_resume(%s, %s) %s FOR UPDATE',
        summary, x, content, first, found) AS resume,
    pg_catalog.format('COPY %s.blob_upload_pieces FROM STDIN (FORMAT binary)', x) AS pieces,
    pg_catalog.format('UPDATE %s SET %I = %s.blob_upload_end(%s) WHERE %s RETURNING %s',
        place, name, x, first, terms, summary) AS update,
    pg_catalog.format('INSERT INTO %s (%s, %I) VALUES (%s, %s.blob_upload_end(%s)) RETURNING %s',
        place, names, name, parameters, x, first, summary) AS insert,
    pg_catalog.format('INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO NOTHING',
        place, names, parameters) AS stage,
    pg_catalog.format('DELETE FROM %s WHERE %s', place, terms) AS unstage
FROM given CROSS JOIN extension CROSS JOIN key CROSS JOIN own CROSS JOIN part
