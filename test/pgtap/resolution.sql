-- Calls without blobstate resolve as in a database without the extension: to the same function or
-- operator, whether their arguments have types or are literals without one.
--
-- All names of functions and operators that the extension adds, with all combinations of types that the
-- functions of the server with that name have in that place, and literals without a type.  The function that a
-- call finds is read from a view that has it.  The differences that there are, are listed.
--
-- Seen to fail: with blobstate in place of blobstate_operand, or text in place of anycompatible, in any
-- function; with bigint in place of numeric in get_bit(); with integer as last parameter of set_byte() or as
-- the last two of overlay(); with name in place of cstring.
BEGIN;
SELECT plan(6);

-- A function of a user that only knows bytea.  (pgcrypto's, with a twin for text, wins all the more.)
CREATE FUNCTION public.digest(bytea, text) RETURNS bytea LANGUAGE sql RETURN $1;

CREATE TEMP TABLE own AS
	SELECT p.oid, p.proname::text AS name, p.pronargs FROM pg_proc AS p JOIN pg_depend AS d
		ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
			AND d.refclassid = 'pg_extension'::regclass
	WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'blobext');

-- The functions of others with the names that the extension has, too.  (A call by the name of a type is a cast.)
CREATE TEMP TABLE other AS
	SELECT proname::text AS name, pronargs, proargtypes::oid[] AS types FROM pg_proc
	WHERE proname IN (SELECT name FROM own EXCEPT SELECT typname FROM pg_type) AND oid NOT IN (SELECT oid FROM own)
		AND 'internal'::regtype <> ALL (proargtypes::oid[]) AND 'cstring'::regtype <> ALL (proargtypes::oid[]);

-- An argument: an expression of a type, or a literal.  The types of the place, and those that come to
-- such places: bytea, text, bigint.
CREATE FUNCTION pg_temp.arguments(function_name text, count integer, place integer) RETURNS text[] LANGUAGE sql AS $$
	SELECT array_agg(DISTINCT argument) || ARRAY['NULL'] FROM
		(SELECT format('NULL::%s', types[place - 1]::regtype) AS argument FROM other
			WHERE name = function_name AND pronargs = count AND types[place - 1]::regtype::text NOT LIKE 'any%'
				AND types[place - 1] <> '"any"'::regtype
		UNION VALUES ('NULL::bytea'), ('NULL::text')
		UNION SELECT 'NULL::bigint' FROM other WHERE name = function_name AND pronargs = count
			AND types[place - 1] = 'integer'::regtype
		UNION SELECT 'NULL::name' FROM other WHERE name = function_name AND pronargs = count
			AND types[place - 1] IN ('text'::regtype, 'name'::regtype)) AS a
$$;
CREATE TEMP TABLE call (expression text PRIMARY KEY, plain text);
INSERT INTO call
	WITH RECURSIVE part (name, pronargs, list, place) AS (
		SELECT DISTINCT name, pronargs::int, ('{}'::text[]) COLLATE "C", 0 FROM other
		UNION ALL
		SELECT name, pronargs, list || argument, place + 1
		FROM part, unnest(pg_temp.arguments(name, pronargs, place + 1)) AS argument WHERE place < pronargs)
	SELECT DISTINCT format('%I(%s)', name, array_to_string(list, ', ')) FROM part
	WHERE place = pronargs AND pronargs > 0 AND 'NULL' = ANY (list) OR place = pronargs AND list <@ ARRAY['NULL::bytea', 'NULL::text'];
INSERT INTO call
	SELECT DISTINCT format('%s %s %s', l, oprname, r) FROM pg_operator JOIN pg_depend AS d
			ON d.classid = 'pg_operator'::regclass AND d.objid = pg_operator.oid AND d.deptype = 'e',
		unnest(ARRAY['NULL', 'NULL::bytea', 'NULL::text', 'NULL::name', 'NULL::integer', 'NULL::text[]']) AS l,
		unnest(ARRAY['NULL', 'NULL::bytea', 'NULL::text', 'NULL::name', 'NULL::integer', 'NULL::text[]']) AS r
	WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'blobext') AND oprname NOT LIKE '*%';
SELECT cmp_ok((SELECT count(*) FROM call), '>', 600::bigint, 'more than 600 calls are compared');

-- The function or operator of the outermost call, with its schema; null: an error.
CREATE FUNCTION pg_temp.resolved(expression text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tree text;
	found text[];
BEGIN
	EXECUTE 'CREATE TEMP VIEW resolved AS SELECT ' || expression || ' AS result';
	SELECT ev_action::text INTO tree FROM pg_rewrite WHERE ev_class = 'pg_temp.resolved'::regclass;
	DROP VIEW pg_temp.resolved;
	-- Operands come behind their function; the library may put a relabelling around it.
	found = regexp_match(tree, '\{(FUNCEXPR|AGGREF|OPEXPR) :(?:funcid|aggfnoid|opno) (\d+)');
	IF found[1] = 'OPEXPR' THEN
		RETURN found[2]::oid::regoperator;
	END IF;
	RETURN coalesce((SELECT pronamespace::regnamespace || '.' FROM pg_proc WHERE oid = found[2]::oid)
		|| found[2]::oid::regprocedure, 'something else');
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;

-- Without the extension.
SAVEPOINT with_extension;
SET client_min_messages = error;
DROP EXTENSION blobext CASCADE;
RESET client_min_messages;
SELECT string_agg(expression || E'\t' || coalesce(pg_temp.resolved(expression), ''), E'\n') AS plain FROM call \gset
SELECT count(*) AS left_over FROM pg_depend WHERE refclassid = 'pg_type'::regclass AND refobjid >= 16384
	AND refobjid NOT IN (SELECT oid FROM pg_type) \gset
SELECT count(*) + :left_over AS left_over FROM pg_operator WHERE oid >= 16384 \gset
SELECT count(*) + :left_over AS left_over FROM pg_proc WHERE oid >= 16384 AND pronamespace = 'pg_catalog'::regnamespace \gset
ROLLBACK TO SAVEPOINT with_extension;
SELECT is(:left_over, 0, 'DROP EXTENSION leaves nothing in pg_catalog');
UPDATE call SET plain = nullif(split_part(line, E'\t', 2), '')
	FROM regexp_split_to_table(:'plain', E'\n') AS line WHERE split_part(line, E'\t', 1) = expression;
SELECT cmp_ok((SELECT count(*) FROM call WHERE plain IS NOT NULL), '>', 300::bigint,
	'many of them have a meaning without the extension');
SELECT is_empty($$SELECT * FROM call WHERE plain = 'something else' OR plain LIKE '%blobstate%'$$,
	'what they mean is read from the view');

-- With one argument that is a literal there is no way to prefer bytea: blobstate is the preferred type of
-- its category.  The result is the same, and of the same type, but for set_byte() and overlay().
SELECT bag_eq(
	$$SELECT expression, pg_temp.resolved(expression) FROM call
		WHERE plain IS NOT NULL AND pg_temp.resolved(expression) IS DISTINCT FROM plain$$,
	$$VALUES ('sha224(NULL)', 'public.sha224(blobstate)'), ('sha256(NULL)', 'public.sha256(blobstate)'),
		('sha384(NULL)', 'public.sha384(blobstate)'), ('sha512(NULL)', 'public.sha512(blobstate)'),
		('get_byte(NULL, NULL)', 'public.get_byte(blobstate,bigint)'),
		('set_byte(NULL, NULL, NULL)', 'public.set_byte(blobstate,bigint,bigint)'),
		('"overlay"(NULL, NULL::bytea, NULL)', 'pg_catalog."overlay"(blobstate,bytea,bigint)'),
		('"overlay"(NULL, NULL::bytea, NULL, NULL)', 'pg_catalog."overlay"(blobstate,bytea,bigint,bigint)'),
		('"position"(NULL, NULL::bytea)', NULL), ('btrim(NULL, NULL::bytea)', NULL), ('ltrim(NULL, NULL::bytea)', NULL),
		('rtrim(NULL, NULL::bytea)', NULL), ('string_agg(NULL, NULL::bytea)', NULL)$$,
	'calls that resolve in another way than without the extension');

-- The implicit cast of bytea: a bytea beside a literal would be taken by both.
SELECT bag_eq(
	$$SELECT expression FROM call WHERE plain IS NOT NULL AND pg_temp.resolved(expression) IS NULL$$,
	$$VALUES ('"position"(NULL, NULL::bytea)'), ('btrim(NULL, NULL::bytea)'), ('ltrim(NULL, NULL::bytea)'),
		('rtrim(NULL, NULL::bytea)'), ('string_agg(NULL, NULL::bytea)')$$,
	'calls that have become ambiguous: a literal that is searched, trimmed or gathered, with a typed bytea');

SELECT * FROM finish();
ROLLBACK;
