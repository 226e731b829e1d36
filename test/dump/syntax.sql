-- One object of each kind that keeps an expression, with each construct for which SQL finds an
-- operator or a function.  Variables: "version" of the extension; "constructs": a condition on the
-- constructs.
CREATE EXTENSION blobext VERSION :'version';
CREATE TABLE t (id int PRIMARY KEY, b blobstate, c blobstate, d bytea);
CREATE TABLE u (id int PRIMARY KEY, b blobstate);
CREATE TABLE log (id int);
INSERT INTO t SELECT i, decode(repeat(to_hex(i % 7 + 16), i * 30), 'hex'),
	decode(repeat(to_hex(i % 5 + 16), 100), 'hex'),
	decode(repeat(to_hex(i % 7 + 16), i * 30), 'hex') FROM generate_series(1, 100) AS i;
INSERT INTO u SELECT id, c FROM t;

-- $b and $c stand for values of type blobstate, $d for one of bytea.  "finds" says how the operator
-- is found where the expression is printed and read again: by a name with its schema, or by the
-- search_path.
CREATE TABLE construct (name text PRIMARY KEY, expression text, finds text,
	is_volatile boolean DEFAULT false, has_query boolean DEFAULT false);
INSERT INTO construct (name, expression, finds) VALUES
	('equal', '$b = $c OR $b = $d OR $d = $b', 'name'),
	('unequal', $$NOT ($b <> '\x' AND $c <> $d) OR '\x00'::bytea <> $b$$, 'name'),
	('order', '$b < $c OR $b <= $d OR $c > $b OR $d >= $b', 'name'),
	('in_list', $$$b IN ($c, '\x01', '\x02')$$, 'name'),
	('not_in_list', $$$b NOT IN ('\x01', '\x02')$$, 'name'),
	('any_of_array', $$$b = ANY (ARRAY[$c, '\x01'])$$, 'name'),
	('all_of_array', $$$b <> ALL (ARRAY['\x01', '\x02']::blobstate[])$$, 'name'),
	('between', $$$b BETWEEN '\x00' AND $c$$, 'name'),
	('between_symmetric', $$$b NOT BETWEEN SYMMETRIC $c AND $d$$, 'name'),
	('like', $$$b LIKE '\020%' OR $b NOT LIKE '%\021'$$, 'name'),
	('like_any', $$$b LIKE ANY (ARRAY['\020%', '\021%']::bytea[])$$, 'name'),
	('digests', '$b *< $c OR $b *>= $c', 'name'),
	('row_of_digests', '($b, $c) *< ($c, $b)', 'name'),
	('row_of_values', '($b, $c) < ($c, $b)', 'name'),
	('row_with_bytea', '($b, $d) <= ($d, $c)', 'name'),
	('row_equal', '(1, $b) = (1, $c)', 'name'),
	('row_mixed', '(1, $b) >= (1, $c)', 'path'),
	('nullif', 'nullif($b, $c) IS NULL', 'path'),
	('nullif_literal', $$nullif($b, '\x') IS NULL$$, 'path'),
	('nullif_bytea', 'nullif($b, $d) IS NULL', 'path'),
	('nullif_array', 'nullif(ARRAY[$b], ARRAY[$c]) IS NULL', 'name'),
	('is_distinct', '$b IS DISTINCT FROM $c', 'path'),
	('is_not_distinct', '$b IS NOT DISTINCT FROM $d', 'path'),
	('row_is_distinct', '($b, $d) IS DISTINCT FROM ($c, $b)', 'path'),
	('case', $$CASE $b WHEN $c THEN true WHEN '\x01' THEN false ELSE true END$$, 'path'),
	('case_bytea', 'CASE $d WHEN $b THEN true END', 'path'),
	('greatest', 'GREATEST($b, $c) >= LEAST($c, $b)', 'name'),
	('coalesce', $$COALESCE($b, $c, '\x01') = $c$$, 'name'),
	('functions', $$length($b) > 0 AND octet_length($b) >= bit_length($c) AND md5($b) <> '' AND
		sha256($c) <> '\x'$$, 'name'),
	('more_functions', $$encode($b, 'hex') <> 'x' AND get_byte($b, 0) < 256 AND
		blob_prefix($b) <> $d AND digest($b, 'sha1') IS NOT NULL
		AND convert_from($c, 'LATIN1') <> ''$$, 'name'),
	('syntax_of_strings', $$POSITION('\x01' IN $b) >= 0 AND SUBSTRING($b FROM 1 FOR 2) <> '\x' AND
		substr($b, 2) <> '\x00'$$, 'name'),
	('casts', $$$b::bytea = $d AND $d::blobstate = $b AND CAST('\x01' AS blobstate) < $b$$, 'name');
INSERT INTO construct (name, expression, finds, is_volatile) VALUES
	('concatenation', $$$b || '\x01' <> $c || $b AND $d || $b >= $c$$, 'name', true),
	('overlay', $$OVERLAY($b PLACING '\x01' FROM 1) <> $b AND TRIM(BOTH '\x10' FROM $b) <> $b$$,
		'name', true);
INSERT INTO construct (name, expression, finds, is_volatile, has_query) VALUES
	('using', 'EXISTS (SELECT FROM t AS t1 JOIN t AS t2 USING (b))', 'path', true, true),
	('natural', 'EXISTS (SELECT FROM t NATURAL JOIN u)', 'path', true, true),
	('in_query', '$b IN (SELECT q.b FROM u AS q)', 'name', true, true),
	('not_in_query', '$b NOT IN (SELECT q.b FROM u AS q)', 'name', true, true),
	('any_of_query', '$b > ANY (SELECT q.b FROM u AS q)', 'name', true, true),
	('row_in_query', '(1, $b) IN (SELECT q.id, q.b FROM u AS q)', 'path', true, true),
	('row_of_values_in_query', '($b, $c) IN (SELECT q.c, q.b FROM t AS q)', 'name', true, true),
	('row_of_query', '(1, $b) = (SELECT q.id, q.b FROM u AS q LIMIT 1)', 'path', true, true),
	('distinct', 'EXISTS (SELECT DISTINCT ON (q.b) q.b, q.id FROM u AS q ORDER BY q.b DESC)',
		'name', true, true),
	('order_using', 'EXISTS (SELECT q.b FROM u AS q ORDER BY q.b USING *<, q.id)', 'name', true,
		true),
	('aggregates', $$EXISTS (SELECT max(q.b), count(DISTINCT q.b), array_agg(q.id ORDER BY q.b
		USING >)
		FROM u AS q GROUP BY q.b HAVING min(q.b) <> '\x')$$, 'name', true, true),
	('windows', 'EXISTS (SELECT rank() OVER (PARTITION BY q.b ORDER BY q.b DESC) FROM u AS q)',
		'name', true, true),
	('sets', 'EXISTS (SELECT q.b FROM u AS q UNION SELECT q.b FROM t AS q EXCEPT SELECT q.c FROM t
		AS q)', 'name', true, true),
	('recursion', 'EXISTS (WITH RECURSIVE r AS (SELECT q.b FROM u AS q UNION SELECT q.b FROM r
		JOIN t AS q USING (b)) SELECT FROM r)',
		'path', true, true);
DELETE FROM construct WHERE NOT (:constructs);

-- $e stands for the expression, $n for its name; b, c, d: what stands for its values.
CREATE TABLE kind (name text PRIMARY KEY, command text, b text DEFAULT 'b', c text DEFAULT 'c', d
	text DEFAULT 'd',
	may_be_volatile boolean DEFAULT false, may_query boolean DEFAULT false);
INSERT INTO kind (name, command, may_be_volatile, may_query) VALUES
	('view', 'CREATE VIEW $n AS SELECT id, $e AS r FROM t', true, true),
	('view_condition', 'CREATE VIEW $n AS SELECT id FROM t WHERE $e', true, true),
	('materialized_view', 'CREATE MATERIALIZED VIEW $n AS SELECT id, $e AS r FROM t', true, true),
	('policy', 'CREATE TABLE $n (LIKE t); CREATE POLICY p ON $n USING ($e) WITH CHECK ($e)', true,
		true),
	('check', 'CREATE TABLE $n (LIKE t, CONSTRAINT $n CHECK ($e))', true, false),
	('generated', 'CREATE TABLE $n (id int, b blobstate, c blobstate, d bytea, r boolean GENERATED
		ALWAYS AS ($e) STORED)', false, false),
	('index_predicate', 'CREATE INDEX $n ON t (id) WHERE $e', false, false),
	('index_expression', 'CREATE INDEX $n ON t (($e), id)', false, false),
	('statistics', 'CREATE STATISTICS $n ON ($e) FROM t', false, false),
	('partition_key', 'CREATE TABLE $n (id int, b blobstate, c blobstate, d bytea) PARTITION BY
		LIST (($e))', false, false),
	('function', 'CREATE FUNCTION $n(b blobstate, c blobstate, d bytea) RETURNS boolean RETURN
		$e', true, true),
	('function_body', 'CREATE FUNCTION $n(b blobstate, c blobstate, d bytea) RETURNS SETOF int
		BEGIN ATOMIC
		UPDATE log SET id = id + 1 WHERE $e; SELECT q.id FROM log AS q WHERE $e; END', true, true),
	('exclusion', 'CREATE TABLE $n (LIKE t, EXCLUDE USING hash (b WITH =) WHERE ($e))', false,
		false);
INSERT INTO kind VALUES
	('trigger', 'CREATE TABLE $n (LIKE t); CREATE TRIGGER $n BEFORE UPDATE ON $n FOR EACH ROW WHEN
		($e)
		EXECUTE FUNCTION suppress_redundant_updates_trigger()', 'OLD.b', 'NEW.c', 'NEW.d', true,
			false),
	('rule', 'CREATE TABLE $n (LIKE t); CREATE RULE $n AS ON UPDATE TO $n WHERE $e DO ALSO INSERT
		INTO log VALUES (1)',
		'OLD.b', 'NEW.c', 'NEW.d', true, true),
	('rule_action', 'CREATE TABLE $n (LIKE t); CREATE RULE $n AS ON INSERT TO $n DO ALSO UPDATE
		log SET id = 1 WHERE $e',
		'NEW.b', 'NEW.c', 'NEW.d', true, true),
	('domain', 'CREATE DOMAIN $n AS blobstate CHECK ($e)', 'VALUE', 'VALUE', 'VALUE::bytea', true,
		false),
	('default', 'CREATE TABLE $n (id int, r boolean DEFAULT ($e))', $$'\x01'::blobstate$$,
		$$'\x02'::blobstate$$, $$'\x03'::bytea$$, true, false),
	('argument', 'CREATE FUNCTION $n(r boolean DEFAULT ($e)) RETURNS boolean RETURN r',
		$$'\x01'::blobstate$$, $$'\x02'::blobstate$$, $$'\x03'::bytea$$, true, false),
	('partition_bound', 'CREATE TABLE $n (r boolean) PARTITION BY LIST (r); CREATE TABLE $n_1
		PARTITION OF $n FOR VALUES IN ($e)',
		$$'\x01'::blobstate$$, $$'\x02'::blobstate$$, $$'\x03'::bytea$$, true, false);
DO $$
DECLARE
	next record;
BEGIN
	FOR next IN SELECT replace(replace(command, '$e', replace(replace(replace(expression, '$b',
		b), '$c', c), '$d', d)),
			'$n', kind.name || '_' || construct.name) AS command
		FROM kind, construct
		WHERE is_volatile <= may_be_volatile AND has_query <= may_query ORDER BY 1 LOOP
		EXECUTE next.command;
	END LOOP;
END $$;

-- What names an operator, or finds one by its type.
CREATE TABLE excluding (b blobstate, EXCLUDE USING btree (b WITH =), EXCLUDE USING btree (b
	blobstate_digest_ops WITH =),
	n int, EXCLUDE USING btree (n WITH =, b WITH =) DEFERRABLE);
CREATE TABLE parent (b blobstate PRIMARY KEY);
CREATE TABLE child (b blobstate REFERENCES parent);
CREATE TABLE ranges (b blobstate) PARTITION BY RANGE (b);
CREATE TABLE ranges_1 PARTITION OF ranges FOR VALUES FROM ('\x01') TO ('\x05');
CREATE TABLE lists (b blobstate) PARTITION BY LIST (b);
CREATE TABLE lists_1 PARTITION OF lists FOR VALUES IN ('\x01', NULL);
CREATE TABLE hashes (b blobstate) PARTITION BY HASH (b);
CREATE TABLE hashes_1 PARTITION OF hashes FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE AGGREGATE smallest(blobstate) (SFUNC = blob_smaller, STYPE = blobstate, SORTOP = <);
CREATE TABLE merged (b blobstate PRIMARY KEY, n int);
CREATE FUNCTION upsert(x blobstate) RETURNS void BEGIN ATOMIC
	INSERT INTO merged AS m VALUES (x, 1) ON CONFLICT (b) DO UPDATE SET n = m.n + 1 WHERE m.b >=
		excluded.b;
END;
