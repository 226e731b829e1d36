-- No descriptor in a catalog: after ANALYZE of columns, index expressions and statistics objects of
-- every type that can hold blobstate.
CREATE FUNCTION unit_stored_values(relation regclass, only_descriptors boolean) RETURNS bigint
	AS :'library' LANGUAGE C STRICT;
CREATE FUNCTION content(n int) RETURNS blobstate LANGUAGE sql VOLATILE AS
	$$SELECT convert_to(repeat('prefix ' || n % 30, 400), 'UTF8')::public.blobstate$$;
CREATE VIEW catalog AS SELECT unnest(ARRAY['pg_statistic', 'pg_statistic_ext_data', 'pg_attrdef',
	'pg_attribute', 'pg_class', 'pg_constraint', 'pg_index', 'pg_statistic_ext', 'pg_rewrite',
	'pg_proc', 'pg_type', 'pg_policy', 'pg_trigger', 'pg_publication_rel']::regclass[]) AS relation;

SELECT plan(33);

-- Everything that a column, an index expression or a statistics expression can be.
CREATE DOMAIN plain_domain AS blobstate;
CREATE DOMAIN array_domain AS blobstate[];
CREATE TYPE pair AS (name text, content blobstate);
CREATE DOMAIN pair_domain AS pair;
CREATE TYPE pair_of_pairs AS (a pair, b pair[]);
CREATE TYPE content_range AS RANGE (subtype = blobstate, multirange_type_name = content_multirange);
CREATE TYPE late AS (name text);
CREATE TYPE of_late AS (inner_row late[]);
CREATE FUNCTION rows_of(b blobstate) RETURNS pair LANGUAGE plpgsql IMMUTABLE AS
	$$DECLARE p public.pair; BEGIN p.name := 'n'; p.content := b; RETURN p; END$$;

CREATE TABLE container (
	id int,
	single blobstate,
	small blobstate,
	of_plain_domain plain_domain,
	of_array blobstate[],
	of_array_domain array_domain,
	of_plain_domain_array plain_domain[],
	of_pair pair,
	of_pair_domain pair_domain,
	of_pair_array pair[],
	of_pair_of_pairs pair_of_pairs,
	of_range content_range,
	of_multirange content_multirange,
	of_range_array content_range[],
	of_late late,
	of_of_late of_late
);
ALTER TYPE late ADD ATTRIBUTE content blobstate;
CREATE INDEX container_array ON container ((ARRAY[single, small]));
CREATE INDEX container_row ON container ((rows_of(single)));
CREATE INDEX container_single ON container ((coalesce(single, small)));
CREATE STATISTICS container_numbers (ndistinct, dependencies) ON id, single, small FROM container;
CREATE STATISTICS container_expression ON (coalesce(small, single)) FROM container;
CREATE STATISTICS container_expressions (ndistinct, dependencies)
	ON (coalesce(single, small)), (id % 7) FROM container;
CREATE TABLE container_partitioned (id int, of_array blobstate[]) PARTITION BY RANGE (id);
CREATE TABLE container_partition PARTITION OF container_partitioned FOR VALUES FROM (0) TO (1000);
CREATE MATERIALIZED VIEW container_view AS SELECT id, ARRAY[single] AS of_array FROM container;
CREATE TABLE container_as AS SELECT id, ARRAY[single] AS of_array FROM container;
CREATE TABLE container_like (LIKE container INCLUDING ALL);
CREATE TABLE container_child () INHERITS (container_as);
CREATE TABLE bound (b blobstate) PARTITION BY LIST (b);
SELECT format('CREATE TABLE bound_1 PARTITION OF bound FOR VALUES IN (%L)', content(1)) \gexec
ALTER TABLE container_as ADD COLUMN b blobstate DEFAULT '\x00',
	ADD COLUMN r pair DEFAULT row('n', '\x00');
-- Large literals wherever an expression is kept.
CREATE TABLE literal (id int, b blobstate);
INSERT INTO literal VALUES (1);
ALTER TABLE literal ENABLE ROW LEVEL SECURITY;
CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
SELECT format(statement, content(1), content(2)) FROM unnest(ARRAY[
	'ALTER TABLE literal ADD COLUMN d blobstate DEFAULT %L',
	'ALTER TABLE literal ADD COLUMN r pair DEFAULT ROW(''n'', %L), ADD COLUMN a blobstate[]
		DEFAULT ARRAY[%2$L::blobstate]',
	'ALTER TABLE literal ADD COLUMN g blobstate GENERATED ALWAYS AS (coalesce(b, %L)) STORED',
	'ALTER TABLE literal ADD CHECK (b IS DISTINCT FROM %L::blobstate)',
	'CREATE INDEX ON literal (id) WHERE b = %L::blobstate',
	'CREATE INDEX ON literal ((coalesce(b, %L::blobstate)))',
	'CREATE STATISTICS literal_statistics ON (coalesce(b, %L::blobstate)) FROM literal',
	'CREATE DOMAIN literal_domain AS blobstate DEFAULT %L CHECK (VALUE <> %L::blobstate)',
	'CREATE VIEW literal_view AS SELECT id FROM literal WHERE b = %L::blobstate',
	'CREATE RULE literal_rule AS ON INSERT TO literal_view DO INSTEAD
		INSERT INTO literal (b) VALUES (%L)',
	'CREATE POLICY literal_policy ON literal USING (b = %L::blobstate)
		WITH CHECK (b < %L::blobstate)',
	'CREATE TRIGGER literal_trigger BEFORE UPDATE ON literal FOR EACH ROW
		WHEN (NEW.b = %L::blobstate) EXECUTE FUNCTION ignore()',
	'CREATE FUNCTION literal_function(b blobstate DEFAULT %L) RETURNS blobstate
		LANGUAGE sql RETURN coalesce(b, %2$L::blobstate)']) statement
	\gexec

INSERT INTO container
	SELECT n, b, '\x01', b, ARRAY[b, b], ARRAY[b], ARRAY[b]::plain_domain[], p, p, ARRAY[p],
		ROW(p, ARRAY[p])::pair_of_pairs, r, content_multirange(r), ARRAY[r], ROW('n', b)::late,
		ROW(ARRAY[ROW('n', b)::late])::of_late
	FROM (SELECT n, blob_store(content(n)) AS b FROM generate_series(1, 300) n OFFSET 0) v,
		LATERAL (SELECT ROW('n', b)::pair AS p, content_range(b, NULL) AS r OFFSET 0) w;
INSERT INTO container_like SELECT * FROM container;
INSERT INTO container_partitioned SELECT id, of_array FROM container;
INSERT INTO container_as SELECT id, of_array FROM container;
INSERT INTO container_child SELECT id, of_array FROM container;
REFRESH MATERIALIZED VIEW container_view;
INSERT INTO bound SELECT content(1);
SELECT cmp_ok(unit_stored_values('container', true), '>=', 15 * 300::bigint,
	'the table has descriptors in all kinds of containers');
SELECT cmp_ok(unit_stored_values('container_like', true), '>=', 15 * 300::bigint,
	'the copy of the table has descriptors in all kinds of containers');
ANALYZE;

SELECT is(unit_stored_values(relation, true), 0::bigint, 'no descriptor in ' || relation)
	FROM catalog ORDER BY relation::text;
SELECT cmp_ok(unit_stored_values('pg_statistic', false), '>=', 120::bigint,
	'inline values in pg_statistic');
SELECT cmp_ok(unit_stored_values(relation, false), '>', 0::bigint,
	'inline values lie in ' || relation)
	FROM unnest(ARRAY['pg_attrdef', 'pg_constraint', 'pg_index', 'pg_statistic_ext', 'pg_rewrite',
		'pg_proc', 'pg_type', 'pg_policy', 'pg_trigger', 'pg_attribute']::regclass[]) relation;
SELECT cmp_ok(unit_stored_values('pg_statistic_ext_data', false), '>', 0::bigint,
	'values of expressions in pg_statistic_ext_data');
SELECT cmp_ok(unit_stored_values('pg_class', false), '=', 1::bigint,
	'one partition bound lies in pg_class');

-- The same without the statistics target of 0: PostgreSQL stores the values that it finds.
UPDATE pg_attribute SET attstattarget = -1 WHERE attstattarget = 0 AND attnum > 0
	AND attrelid = 'container'::regclass;
UPDATE pg_statistic_ext SET stxkind = '{d,f,m}' WHERE stxname = 'container_numbers';
ANALYZE container;
SELECT cmp_ok(unit_stored_values('pg_statistic', true), '>', 100::bigint,
	'this test sees descriptors in pg_statistic');
SELECT cmp_ok(unit_stored_values('pg_statistic_ext_data', true), '>', 0::bigint,
	'this test sees descriptors in pg_statistic_ext_data');
DELETE FROM pg_statistic;
ALTER TYPE blobstate SET (ANALYZE = NONE);
SET client_min_messages = error;
ANALYZE container (single);
SELECT cmp_ok((SELECT unit_stored_values('pg_statistic', true)), '>', 0::bigint,
	'this test sees what the type''s own ANALYZE function avoids');
SELECT lives_ok('SELECT md5(s::text) FROM pg_stats s', 'pg_stats can be read all the same');
SELECT * FROM finish();
