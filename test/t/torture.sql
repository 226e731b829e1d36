-- Tables and functions of torture.pl.
--
-- A value never goes without the digest that it should have, computed by sha256(bytea) from plain
-- content.  Every function that touches a value verifies it first.

CREATE EXTENSION amcheck;
CREATE TYPE pair AS (digest bytea, b blobstate);
CREATE DOMAIN stored AS blobstate;
CREATE SEQUENCE ids;

-- a: plain.  q: truncated.  n: unlogged.  m: a materialized view of a.
CREATE TABLE a (id bigint PRIMARY KEY DEFAULT nextval('ids'), note integer DEFAULT 0, digest bytea,
	b blobstate);
CREATE TABLE q (LIKE a INCLUDING ALL);
CREATE UNLOGGED TABLE n (LIKE a INCLUDING ALL);
CREATE MATERIALIZED VIEW m AS SELECT id, digest, b FROM a WHERE id % 3 = 0;

-- u: unique by content.
CREATE TABLE u (LIKE a INCLUDING ALL);
CREATE UNIQUE INDEX u_b ON u (b);
CREATE INDEX u_digest ON u (b blobstate_digest_ops) WHERE note >= 0;

-- p: partitions, one of them with an index by content.
CREATE TABLE p (id bigint DEFAULT nextval('ids'), part integer, digest bytea, b blobstate)
	PARTITION BY LIST (part);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
CREATE INDEX ON p (id);
CREATE INDEX p1_b ON p1 (b);

-- l: values in arrays of rows (often toasted), and in a domain.
CREATE TABLE l (id bigint PRIMARY KEY DEFAULT nextval('ids'), pairs pair[], digest bytea, d stored);

-- Changes of these leave digests open.
SELECT blobext_set_digest('q', 'b', 'deferred'), blobext_set_digest('n', 'b', 'deferred'), blobext_set_digest('l', 'd', 'deferred');

-- All values, wherever they are.
CREATE VIEW everything AS
	SELECT 'a' AS place, id, digest, b FROM a
	UNION ALL SELECT 'q', id, digest, b FROM q
	UNION ALL SELECT 'n', id, digest, b FROM n
	UNION ALL SELECT 'u', id, digest, b FROM u
	UNION ALL SELECT 'p', id, digest, b FROM p
	UNION ALL SELECT 'm', id, digest, b FROM m
	UNION ALL SELECT 'l', id, digest, d FROM l
	UNION ALL SELECT 'l', id, (x).digest, (x).b FROM l, unnest(pairs) AS x;

-- Pages of the content are not alike, neither those of one value nor those of different keys.  It
-- repeats itself after this number of digests.
CREATE FUNCTION content(key text, size integer, period integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT decode(left(repeat(string_agg(encode(sha256(convert_to(key || i, 'UTF8')), 'hex'), ''
		ORDER BY i) || '5c', size / (32 * period + 1) + 1), size * 2), 'hex')
	FROM generate_series(1, period) AS i $$;

-- That of one key in eight cannot be compressed: it repeats itself after more than a frame.
CREATE FUNCTION content(key text, size integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT content(key, size,
		CASE WHEN hashtext(key) % 8 = 0 THEN least(size / 32 + 1, 6250) ELSE 9 END) $$;

-- The same behind a long common prefix, so that only contents tell keys apart.
CREATE FUNCTION similar_content(key text, size integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT content('prefix', 500 + size / 2) || content(key, size / 2) $$;

-- True, or an error.  TT001: the content is not that of the digest.
CREATE FUNCTION verified(digest bytea, b blobstate) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	c bytea := b::bytea;
BEGIN
	IF digest IS NULL AND b IS NULL THEN
		RETURN true;
	END IF;
	IF sha256(c) IS DISTINCT FROM digest OR sha256(b) IS DISTINCT FROM digest
		OR length(b) IS DISTINCT FROM length(c) THEN
		RAISE EXCEPTION USING ERRCODE = 'TT001', MESSAGE = format(
			'value of %s bytes, digest %s, descriptor''s %s, content''s %s, first bytes %s, extents %s',
			length(b), digest, sha256(b), sha256(c), substr(c, 1, 16),
			(SELECT string_agg(first_page || '+' || pages, ' ') FROM blob_extents(b)));
	END IF;
	RETURN true;
END $$;

-- A value after a change, and the digest that it should have.  position: taken modulo the length.
CREATE FUNCTION changed(digest bytea, b blobstate, kind text, place bigint, size bigint, data bytea)
RETURNS pair LANGUAGE plpgsql AS $$
DECLARE
	c bytea := b::bytea;
	at integer := place % (length(c) + 1);
	new blobstate;
BEGIN
	PERFORM verified(digest, b);
	CASE kind
		WHEN 'append' THEN
			c := c || data;
			new := blob_append(b, data);
		WHEN 'concat' THEN
			c := c || c;
			new := b || b;
		WHEN 'write' THEN
			c := substr(c, 1, at) || data || substr(c, at + length(data) + 1);
			new := blob_write(b, at, data);
		WHEN 'patch' THEN
			c := substr(c, 1, at) || data || '\x00ff' || substr(c, at + length(data) + 3);
			new := blob_patch(b, ARRAY[at, at + length(data)], ARRAY[data, '\x00ff']);
		WHEN 'beyond' THEN
			c := c || decode(repeat('00', place::integer % 20000), 'hex') || data;
			new := blob_write(b, length(b) + place % 20000, data);
			new := CASE WHEN length(data) > 0 THEN new ELSE blob_truncate(new, length(c)) END;
		WHEN 'stream' THEN
			c := c || data || c;
			new := (SELECT blob_agg(x ORDER BY n) FROM (
				SELECT row_number() OVER () AS n, s.data AS x FROM blob_chunks(b, 5000) AS s
				UNION ALL SELECT 1000000, data
				UNION ALL SELECT 2000000 + row_number() OVER (), s.data FROM blob_chunks(b, 70000) AS s)
				AS pieces);
		WHEN 'insert' THEN
			c := substr(c, 1, at) || data || substr(c, at + 1);
			new := blob_insert(b, at, data);
		WHEN 'delete' THEN
			c := substr(c, 1, at) || substr(c, at + size::integer + 1);
			new := blob_delete(b, at, size);
		WHEN 'truncate' THEN
			c := substr(c, 1, at);
			new := blob_truncate(b, at);
		WHEN 'recompress' THEN
			new := blob_recompress(b, (ARRAY['none', 'lz4', 'zstd'])[1 + place % 3]);
		WHEN 'fork' THEN
			-- Both versions want the room behind the same value; one of them is lost.
			new := b || content('fork', size::integer);
			c := c || data;
			new := b || data;
	END CASE;
	RETURN ROW(sha256(c), new);
END $$;

-- Rows of a table that no other session is about to change, as the key chooses them.
CREATE FUNCTION chosen(tab text, key text, wanted integer) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT id FROM %I ORDER BY md5(id || $1) LIMIT $2
		FOR UPDATE SKIP LOCKED', tab) USING key, wanted;
END $$;

-- Time passes, in no transaction for long.
CREATE PROCEDURE nap(pause float8) LANGUAGE plpgsql AS $$
DECLARE
	wake_up timestamptz := clock_timestamp() + pause * interval '1 s';
BEGIN
	COMMIT;
	WHILE clock_timestamp() < wake_up LOOP
		PERFORM pg_sleep(0.02);
		COMMIT;
	END LOOP;
END $$;

-- Carries values in variables over the ends of transactions.
CREATE PROCEDURE carry(key text, mode integer, pause float8) LANGUAGE plpgsql AS $$
DECLARE
	old pair;
	fresh pair;
	r record;
	c bytea := content(key, 3000 + mode * 2000);
BEGIN
	SELECT digest, b INTO old FROM a ORDER BY md5(id || key) LIMIT 1;
	fresh := ROW(sha256(c), blob_store(c));
	IF mode & 1 <> 0 THEN
		DELETE FROM a WHERE digest = old.digest;
	END IF;
	IF mode & 2 <> 0 THEN
		ROLLBACK;
	ELSE
		COMMIT;
	END IF;
	CALL nap(pause);
	old := changed(old.digest, old.b, 'append', 0, 0, c);
	IF mode & 4 <> 0 THEN
		ROLLBACK;
	ELSE
		COMMIT;
	END IF;
	CALL nap(pause);
	PERFORM verified(old.digest, old.b), verified(fresh.digest, fresh.b);
	IF mode & 8 <> 0 THEN
		FOR r IN SELECT digest, b FROM u UNION ALL SELECT digest, b FROM p LOOP
			PERFORM verified(r.digest, r.b);
			COMMIT;
		END LOOP;
	END IF;
	INSERT INTO q (digest, b) VALUES (old.digest, old.b), (fresh.digest, fresh.b);
	INSERT INTO l (pairs, digest, d) VALUES (ARRAY[old, fresh], old.digest, old.b);
END $$;

-- A value that a subtransaction stored, kept in a variable when the subtransaction is rolled back.
CREATE FUNCTION survive(key text, size integer, pause float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c bytea := content(key, size);
	kept pair;
BEGIN
	BEGIN
		INSERT INTO a (digest, b) VALUES (sha256(c), c) RETURNING digest, b INTO kept;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	PERFORM pg_sleep(pause);
	PERFORM verified(kept.digest, kept.b);
	INSERT INTO a (digest, b) VALUES (kept.digest, kept.b);
END $$;

-- The remaining rows of a cursor: verified, and stored once more.
CREATE FUNCTION drain(c refcursor) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n integer := 0;
BEGIN
	LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		PERFORM verified(r.digest, r.b);
		INSERT INTO q (digest, b) VALUES (r.digest, r.b);
		n := n + 1;
	END LOOP;
	RETURN n;
END $$;

-- Extents that are allocated and that no value has, and the reverse; after a complete collection.
CREATE VIEW differences AS
	WITH reachable AS (
		SELECT DISTINCT first_page, pages FROM everything, blob_extents(b) WHERE pages > 0)
	SELECT CASE WHEN r IS NULL THEN 'leaked' ELSE 'lost' END AS problem, first_page, pages
	FROM (SELECT first_page, pages FROM blobext_map) AS allocated
		FULL JOIN reachable AS r USING (first_page, pages)
	WHERE r IS NULL OR allocated IS NULL;
