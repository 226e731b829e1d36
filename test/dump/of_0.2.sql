-- A database made with the objects of 0.2.0, as users wrote SQL then: casts to bytea, and literals
-- without a type, in everything that a dump has as text.
CREATE EXTENSION blobext VERSION '0.2.0';
CREATE TABLE t (id int PRIMARY KEY, b blobstate DEFAULT '\x646566', c bytea DEFAULT 'x',
	CHECK (b <> '\xff' AND length(b) < 100000000), CHECK (position('\xffff' IN b::bytea) = 0),
	size bigint GENERATED ALWAYS AS (length(b)) STORED);
INSERT INTO t (id, b, c) SELECT i, convert_to(repeat('text ', i * i * 100), 'UTF8'), int4send(i)
	FROM generate_series(1, 9) AS i;
INSERT INTO t (id) VALUES (10);
CREATE INDEX t_digest ON t (sha256(b));
CREATE INDEX t_bytes ON t (encode(substring(b, 1, 5), 'hex'),
	md5(substring(b::bytea FROM 1 FOR 9))) WHERE b > '\x00';
CREATE UNIQUE INDEX t_content ON t (b);
CREATE VIEW v AS SELECT id, b || '\x0001' AS longer, '\x00' || b AS other, b = 'def' AS is_default,
	b > c AS more, encode(b::bytea, 'hex') AS hex, md5(b::bytea) AS md5, sha512(b::bytea) AS sha512,
	convert_from(b::bytea, 'UTF8') AS text, get_byte(b::bytea, 0) AS first,
	b::bytea LIKE '%ext%' AS matches, position('t' IN b::bytea) AS at,
	overlay(b::bytea PLACING '\x00' FROM 2) AS laid, substring(b, 2, 3) AS part,
	trim(BOTH 't' FROM b::bytea) AS trimmed, bit_length(b::bytea) AS bits,
	encode('\x00', 'hex') AS literal, md5('x') AS md5_of_text, length('x') AS length_of_text,
	position('b' IN 'abc') AS in_text, 'abc' LIKE 'a%' AS like_text,
	substring('abc' FROM 2) AS rest,
	coalesce(b, 'none') AS known, (SELECT string_agg(b::bytea, ',') FROM t) AS joined
	FROM t;
CREATE FUNCTION of_sql(bytea) RETURNS text LANGUAGE sql
	AS $$SELECT encode($1, 'hex') || md5($1) || position('t' IN $1)
		|| encode(substring($1 FROM 2 FOR 3), 'escape')$$;
CREATE FUNCTION of_standard_sql(x bytea) RETURNS text LANGUAGE sql
	RETURN encode(x, 'base64') || get_byte(x, 0) || (x LIKE '%t%')
		|| encode(trim('t' FROM x), 'hex');
CREATE FUNCTION of_plpgsql(x blobstate) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	copy bytea := x;
BEGIN
	RETURN encode(overlay(copy PLACING '\x4142' FROM 1), 'hex') || convert_from('\x61', 'UTF8')
		|| md5(copy || 'x') || length(x) || encode(sha256('x'), 'hex') || bit_length('x')
		|| encode('\x00'::bytea || '\x01', 'hex');
END $$;
CREATE VIEW of_functions AS
	SELECT id, of_sql(b::bytea), of_standard_sql(b::bytea), of_plpgsql(b) FROM t;
