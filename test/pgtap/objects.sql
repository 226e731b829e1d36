-- Objects of the extension as the catalogs show them: comments, privileges, volatility.
--
-- Seen to fail when PUBLIC could execute functions of type internal, when no comment spoke of space, and
-- with any object left out of the lists.
BEGIN;
SELECT plan(25);

CREATE TEMP VIEW member AS
	SELECT classid, objid, pg_describe_object(classid, objid, 0) AS object
	FROM pg_depend
	WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'blobext');
CREATE TEMP VIEW function AS
	SELECT p.*, p.oid::regprocedure::text AS signature
	FROM pg_proc p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid;

SELECT cmp_ok((SELECT count(*) FROM member), '>', 25::bigint, 'the extension has members');

SELECT is_empty(
	$$SELECT object FROM member WHERE obj_description(objid, classid::regclass::name) IS NULL
		AND NOT (classid = 'pg_type'::regclass AND EXISTS
			(SELECT FROM pg_type WHERE oid = objid AND (typrelid <> 0 OR typelem <> 0)))$$,
	'every object has a comment');
SELECT is_empty(
	$$SELECT object, attname FROM member JOIN pg_attribute ON attrelid = objid
		WHERE classid = 'pg_class'::regclass AND attnum > 0
			AND col_description(attrelid, attnum) IS NULL$$,
	'every column of a relation has a comment');
SELECT is((SELECT obj_description(oid, 'pg_extension') IS NOT NULL FROM pg_extension
	WHERE extname = 'blobext'), true, 'the extension has a comment');

-- Objects that PUBLIC may use, each with the reason.  A developer who adds an object decides here:
-- each object of the extension must be in one of these lists.  Operators, casts, operator classes
-- and access methods have no privileges of their own, so every role may use all there are.
CREATE TEMP TABLE public_may (object text PRIMARY KEY, reason text NOT NULL CHECK (reason <> ''));
INSERT INTO public_may SELECT object, 'the type: whoever makes a table may use it' FROM unnest(ARRAY[
	'type blobstate', 'type blobstate[]']) AS object;
INSERT INTO public_may SELECT object, 'the type of parameters of functions that PUBLIC may call' FROM unnest(ARRAY[
	'type blobstate_operand', 'type blobstate_operand[]']) AS object;
INSERT INTO public_may SELECT object, 'row type: says no more than the catalogs do' FROM unnest(ARRAY[
	'type blobext_map', 'type blobext_map[]', 'type blobext_stat', 'type blobext_stat[]',
	'type blobext_space', 'type blobext_space[]', 'type blobext_gc_status', 'type blobext_gc_status[]',
	'type blobext_gc_databases', 'type blobext_gc_databases[]', 'type blobext_scrub', 'type blobext_scrub[]',
	'type blobext_databases', 'type blobext_databases[]',
	'type blobext_check_progress', 'type blobext_check_progress[]',
	'type blobext_dedup_progress', 'type blobext_dedup_progress[]',
	'type blobext_fetch_progress', 'type blobext_fetch_progress[]',
	'type blobext_damaged_pages', 'type blobext_damaged_pages[]',
	'type blobext_add_checksums_progress', 'type blobext_add_checksums_progress[]',
	'type blobext_defragment_progress', 'type blobext_defragment_progress[]',
	'type blobext_seal_progress', 'type blobext_seal_progress[]',
	'type blob_upload_pieces', 'type blob_upload_pieces[]']) AS object;
INSERT INTO public_may SELECT object, 'type I/O: takes content and gives content, no descriptor'
	FROM unnest(ARRAY[
	'function blobstate_in(cstring,oid,integer)', 'function blobstate_out(blobstate)',
	'function blobstate_recv(internal,oid,integer)', 'function blobstate_send(blobstate)',
	'function blobstate_typmod_in(cstring[])', 'function blobstate_typmod_out(integer)']) AS object;
INSERT INTO public_may SELECT object, 'the server puts it into statements, which run it as their user; '
		'stores what it is given, as an INSERT would' FROM unnest(ARRAY[
	'function blob_store(blobstate)', 'function blob_store(bytea)',
	'function blob_store(blobstate,regclass,smallint)', 'function blob_store(bytea,regclass,smallint)', 'function blob_store_contained(anyelement)',
	'function blobstate(blobstate,integer,boolean)', 'cast from blobstate to blobstate']) AS object;
INSERT INTO public_may SELECT object, 'conversion of a value that the caller has' FROM unnest(ARRAY[
	'function blobstate(bytea)', 'function bytea(blobstate)',
	'cast from bytea to blobstate', 'cast from blobstate to bytea']) AS object;
INSERT INTO public_may SELECT object, 'says something of a value that the caller has' FROM unnest(ARRAY[
	'function length(blobstate)', 'function octet_length(blobstate)', 'function sha256(blobstate)',
	'function bit_length(blobstate)',
	'function blob_prefix(blobstate)', 'function blob_storage(blobstate)',
	'function blob_stored_length(blobstate)', 'function blob_compression(blobstate)', 'function blob_digest_is_open(blobstate)',
	'function blob_recompress_is_due(blobstate,text)', 'function blob_footprint(blobstate)',
	'function blob_extents(blobstate)', 'function blob_chunk_count(blobstate,integer)']) AS object;
INSERT INTO public_may SELECT object, 'reads a value that the caller has' FROM unnest(ARRAY[
	'function blob_read(blobstate,bigint,bigint)',
	'function "substring"(blobstate,bigint)', 'function "substring"(blobstate,bigint,bigint)',
	'function public."substring"(blobstate,bigint)', 'function public."substring"(blobstate,bigint,bigint)',
	'function md5(blobstate)', 'function sha224(blobstate)', 'function sha384(blobstate)', 'function sha512(blobstate)',
	'function digest(blobstate_operand,anycompatible)', 'function encode(blobstate_operand,anycompatible)',
	'function convert_from(blobstate_operand,cstring)', 'function bit_count(blobstate)',
	'function get_byte(blobstate,bigint)', 'function get_bit(blobstate,numeric)',
	'function "position"(blobstate_operand,bytea)', 'function blob_like(blobstate,bytea)',
	'function blob_not_like(blobstate,bytea)', 'operator ~~(blobstate,bytea)', 'operator !~~(blobstate,bytea)',
	'operator public.~~(blobstate,bytea)', 'operator public.!~~(blobstate,bytea)',
	'function substr(blobstate,bigint)', 'function substr(blobstate,bigint,bigint)',
	'function blob_chunks(blobstate,integer)', 'function blob_summary(blobstate)']) AS object;
INSERT INTO public_may SELECT object, 'makes a value of what the caller has; takes space, as whoever may '
		'make a table can' FROM unnest(ARRAY[
	'function blob_append(blobstate,bytea)', 'function blob_concat(blobstate,blobstate)',
	'function blob_prepend(bytea,blobstate)', 'function blob_write(blobstate,bigint,bytea)',
	'function blob_insert(blobstate,bigint,bytea)', 'function blob_delete(blobstate,bigint,bigint)',
	'function blob_patch(blobstate,bigint[],bytea[])', 'function blob_recompress(blobstate,text)',
	'function blob_truncate(blobstate,bigint)', 'function blob_agg(bytea)', 'function blob_agg(blobstate)',
	'function set_byte(blobstate,bigint,bigint)', 'function set_bit(blobstate,numeric,bigint)',
	'function "overlay"(blobstate,bytea,bigint)', 'function "overlay"(blobstate,bytea,bigint,bigint)',
	'function btrim(blobstate_operand,bytea)', 'function ltrim(blobstate_operand,bytea)',
	'function rtrim(blobstate_operand,bytea)', 'function string_agg(blobstate_operand,bytea)',
	'operator ||(blobstate,bytea)', 'operator ||(blobstate,blobstate)', 'operator ||(bytea,blobstate)',
	'operator public.||(blobstate,bytea)', 'operator public.||(blobstate,blobstate)',
	'operator public.||(bytea,blobstate)'])
	AS object;
INSERT INTO public_may SELECT object, 'an upload of the same role in the same transaction only; takes '
		'space, as whoever may make a table can' FROM unnest(ARRAY[
	'function blob_upload_begin(bigint)', 'function blob_upload_resume(blobstate,bigint)',
	'function blob_upload_write(bigint,bytea)', 'function blob_upload_end(bigint)',
	'function blob_upload_abort(bigint)', 'view blob_upload_pieces']) AS object;
INSERT INTO public_may SELECT object, 'checks the privileges that lo_get(), lo_create() and lo_put() check'
	FROM unnest(ARRAY['function blob_from_lo(oid)', 'function blob_to_lo(blobstate)']) AS object;
INSERT INTO public_may SELECT format('function blob_%s(%s,%s)', name, t1, t2),
		'compares values that the caller has; behind an operator, GREATEST, ORDER BY'
	FROM unnest(ARRAY['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'cmp']) AS name,
		(VALUES ('blobstate', 'blobstate'), ('blobstate', 'bytea'), ('bytea', 'blobstate')) AS t (t1, t2);
INSERT INTO public_may SELECT format('operator %s%s(%s,%s)', schema, name, t1, t2),
		'compares values that the caller has'
	FROM unnest(ARRAY['', 'public.']) AS schema, unnest(ARRAY['=', '<>', '<', '<=', '>', '>=']) AS name,
		(VALUES ('blobstate', 'blobstate'), ('blobstate', 'bytea'), ('bytea', 'blobstate')) AS t (t1, t2);
INSERT INTO public_may SELECT object, 'compares digests of values that the caller has' FROM unnest(ARRAY[
	'function blob_digest_lt(blobstate,blobstate)', 'function blob_digest_le(blobstate,blobstate)',
	'function blob_digest_gt(blobstate,blobstate)', 'function blob_digest_ge(blobstate,blobstate)',
	'function blob_digest_cmp(blobstate,blobstate)', 'function blob_digest_cmp(blobstate,bytea)',
	'function blob_digest_cmp(bytea,blobstate)',
	'operator *<(blobstate,blobstate)', 'operator *<=(blobstate,blobstate)',
	'operator *>(blobstate,blobstate)', 'operator *>=(blobstate,blobstate)']) AS object;
INSERT INTO public_may SELECT object, 'hashes what the caller has; the executor asks for the privilege '
		'where it hashes an IN list' FROM unnest(ARRAY[
	'function blob_hash(blobstate)', 'function blob_hash(bytea)',
	'function blob_hash_extended(blobstate,bigint)', 'function blob_hash_extended(bytea,bigint)'])
	AS object;
INSERT INTO public_may SELECT object, 'gives back one of the values that the caller has' FROM unnest(ARRAY[
	'function blob_smaller(blobstate,blobstate)', 'function blob_larger(blobstate,blobstate)',
	'function min(blobstate)', 'function max(blobstate)']) AS object;
INSERT INTO public_may SELECT object, 'indexes of the caller''s own tables' FROM unnest(ARRAY[
	'operator class blobstate_ops for access method btree',
	'operator class blobstate_ops for access method hash',
	'operator class blobstate_digest_ops for access method btree',
	'operator family blobstate_ops for access method btree',
	'operator family blobstate_ops for access method hash',
	'operator family blobstate_digest_ops for access method btree',
	'operator family blobstate_named_ops for access method btree']) AS object;
INSERT INTO public_may VALUES
	('access method blobext_map', 'has no privileges; refuses any table but the map by itself'),
	('function blobext_set_compression(regclass,text,text)', 'runs SECURITY LABEL with the rights of its caller'),
	('function blobext_set_digest(regclass,text,text)', 'runs SECURITY LABEL with the rights of its caller'),
	('function blobext_seal(regclass,text,integer,bigint,bigint,bigint)', 'runs SELECT and UPDATE with the rights of its caller'),
	('function blobext_recompress(regclass,text,integer,bigint)', 'runs UPDATE with the rights of its caller'),
	('function blobext_space(regclass,text)', 'runs SELECT with the rights of its caller'),
	('function blobext_room()', 'whoever may store finds it out, by storing until it is refused'),
	('function blobext_fragmentation(regclass,text,double precision,integer)',
		'runs SELECT with the rights of its caller'),
	('function blobext_defragment(regclass,text,double precision,integer,integer,integer,bigint,bigint,bigint,bigint,bigint)',
		'runs SELECT and UPDATE with the rights of its caller'),
	('function blobext_browse(regclass,text)', 'runs CREATE VIEW with the rights of its caller'),
	('function blobext_dedup(regclass,text,boolean,integer,bigint,bigint,bigint,bigint)',
		'runs SELECT and UPDATE with the rights of its caller'),
	('function blob_intern(regclass,text,blobstate,boolean)', 'runs SELECT with the rights of its caller'),
	('function blob_intern(regclass,text,bytea,boolean)', 'likewise'),
	('view blobext_stat', 'counters of the server, no content; like pg_stat_database'),
	('function blobext_stat_counters()', 'view blobext_stat runs it as the user of the view');

CREATE TEMP TABLE public_may_not (object text PRIMARY KEY, reason text NOT NULL CHECK (reason <> ''));
INSERT INTO public_may_not SELECT object, 'part of CREATE EXTENSION' FROM unnest(ARRAY[
	'function blobext_require_library(text)', 'function blobext_create_store(regclass)']) AS object;
INSERT INTO public_may_not SELECT object, 'the server calls it, and asks nobody whether it may'
	FROM unnest(ARRAY[
	'function blob_store_support(internal)', 'function blob_operator_support(internal)',
	'function blobstate_typanalyze(internal)',
	'function blobstate_sortsupport(internal)', 'function blobext_map_handler(internal)']) AS object;
INSERT INTO public_may_not SELECT object, 'the aggregate runs it as its owner' FROM unnest(ARRAY[
	'function blob_agg_bytea_transfn(internal,bytea)',
	'function blob_agg_blobstate_transfn(internal,blobstate)', 'function blob_agg_finalfn(internal)',
	'function blob_string_agg_transfn(internal,blobstate,bytea)'])
	AS object;
INSERT INTO public_may_not SELECT object, 'reads all values, or waits for all sessions: the owner''s'
	FROM unnest(ARRAY['function blobext_check(regclass,text)', 'function blobext_gc(boolean)',
	'function blobext_add_checksums(regclass,bigint,bigint,bigint)',
	'function blobext_repair_bounds(boolean)']) AS object;
INSERT INTO public_may_not SELECT object, 'connects to other servers, and writes content' FROM unnest(ARRAY[
	'function blobext_fetch(text,regclass,boolean)']) AS object;
INSERT INTO public_may_not SELECT object, 'gives content of all values: granted by the operator' FROM unnest(ARRAY[
	'function blobext_source(pg_lsn)',
	'function blobext_source_read(text,bigint,bigint,bigint,bigint,bigint,pg_lsn,integer,boolean,boolean,pg_lsn)']) AS object;
INSERT INTO public_may_not SELECT object, 'says what others do or have: for pg_monitor' FROM unnest(ARRAY[
	'function blobext_check_state()', 'view blobext_check_progress',
	'function blobext_dedup_state()', 'view blobext_dedup_progress',
	'function blobext_fetch_state()', 'view blobext_fetch_progress',
	'function blobext_add_checksums_state()', 'view blobext_add_checksums_progress',
	'function blobext_defragment_state()', 'view blobext_defragment_progress',
	'function blobext_seal_state()', 'view blobext_seal_progress',
	'function blobext_damage_state()', 'view blobext_damaged_pages',
	'function blobext_space_state()', 'view blobext_space', 'function blobext_files()',
	'function blobext_gc_state()', 'function blobext_gc_kept()', 'view blobext_gc_status', 'view blobext_gc_databases',
	'function blobext_scrub_results()', 'view blobext_scrub',
	'function blobext_database_counters()', 'function blobext_store_sizes()', 'function blobext_store_limit(oid)', 'view blobext_databases']) AS object;
INSERT INTO public_may_not VALUES
	('function blobext_enable_checksums()', 'older standbys stop at what it logs'),
	('function blob_upload_piece()', 'the trigger of view blob_upload_pieces, which runs it'),
	('function blob_import(text)', 'reads files of the server: for pg_read_server_files'),
	('function blob_export(blobstate,text)', 'writes files of the server: for pg_write_server_files'),
	('table blobext_map', 'extents of everybody''s values');

-- All members with the types that come with them, and whether PUBLIC may use them; null: a kind of
-- object that these lists do not know.
CREATE TEMP VIEW own_type AS
	SELECT t.oid FROM pg_type AS t JOIN member
		ON classid = 'pg_type'::regclass AND objid = t.oid OR classid = 'pg_class'::regclass AND objid = typrelid;
CREATE TEMP VIEW used AS
	SELECT CASE classid WHEN 'pg_proc'::regclass THEN 'function ' || objid::regprocedure
			WHEN 'pg_operator'::regclass THEN 'operator ' || objid::regoperator
			WHEN 'pg_type'::regclass THEN 'type ' || format_type(objid, NULL)
			ELSE object END AS object,
		CASE WHEN classid = 'pg_proc'::regclass THEN has_function_privilege('public', objid, 'EXECUTE')
			WHEN classid = 'pg_type'::regclass THEN has_type_privilege('public', objid, 'USAGE')
			WHEN classid = 'pg_class'::regclass THEN
				has_table_privilege('public', objid,
					'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
				OR has_any_column_privilege('public', objid, 'SELECT, INSERT, UPDATE, REFERENCES')
			WHEN classid IN ('pg_operator'::regclass, 'pg_cast'::regclass, 'pg_am'::regclass,
				'pg_opclass'::regclass, 'pg_opfamily'::regclass) THEN true
			END AS by_public
	FROM (SELECT * FROM member
		UNION SELECT 'pg_type'::regclass, t.oid, NULL FROM pg_type AS t
			WHERE t.oid IN (SELECT oid FROM own_type)
				OR typcategory = 'A' AND typelem IN (SELECT oid FROM own_type)) AS m;
SELECT bag_eq('SELECT DISTINCT object FROM used WHERE by_public', 'SELECT object FROM public_may',
	'what PUBLIC may use is listed, with reasons');
SELECT bag_eq('SELECT object FROM used WHERE NOT by_public', 'SELECT object FROM public_may_not',
	'what PUBLIC may not use is listed, with reasons');
SELECT is_empty('SELECT object FROM used WHERE by_public IS NULL', 'nothing else is in the extension');
SELECT bag_eq(
	$$SELECT object, privilege_type FROM member JOIN pg_class c ON c.oid = objid,
		aclexplode(coalesce(relacl, acldefault('r', relowner))) WHERE grantee = 0$$,
	$$VALUES ('view blobext_stat', 'SELECT'), ('view blob_upload_pieces', 'INSERT')$$,
	'privileges of PUBLIC on relations');

-- A function that is not listed is noticed.
SAVEPOINT unlisted;
CREATE FUNCTION unlisted() RETURNS integer LANGUAGE sql RETURN 1;
ALTER EXTENSION blobext ADD FUNCTION unlisted();
SELECT results_eq('SELECT object FROM used WHERE by_public EXCEPT SELECT object FROM public_may',
	ARRAY['function unlisted()'], 'a function that is not listed');
ROLLBACK TO SAVEPOINT unlisted;

-- The comment of each function that makes a value anew at each call says that it takes space.
SELECT bag_eq(
	$$SELECT object FROM member LEFT JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
		WHERE obj_description(objid, classid::regclass::name) LIKE
			'%takes space of the store until the collector finds that nothing refers to it'$$,
	$$SELECT object FROM member JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
		WHERE prorettype = 'blobstate'::regtype AND proparallel = 'u'
			AND (provolatile = 'v' OR prokind = 'a')
			AND proname <> 'blob_intern'	-- gives back what it is given, or what a row has
		UNION ALL VALUES ('operator ||(blobstate,bytea)'), ('operator ||(blobstate,blobstate)'),
			('operator ||(bytea,blobstate)'), ('operator public.||(blobstate,bytea)'),
			('operator public.||(blobstate,blobstate)'), ('operator public.||(bytea,blobstate)'), ('cast from blobstate to blobstate')$$,
	'what takes space says so');

-- As COPY has it; the owner may in any case.
SELECT bag_eq(
	$$SELECT signature, grantee::regrole::text FROM function, aclexplode(proacl)
		WHERE grantee NOT IN (0, proowner)$$,
	$$VALUES ('blobext_check_state()', 'pg_monitor'), ('blobext_dedup_state()', 'pg_monitor'),
		('blobext_fetch_state()', 'pg_monitor'), ('blobext_gc_state()', 'pg_monitor'), ('blobext_gc_kept()', 'pg_monitor'), ('blobext_space_state()', 'pg_monitor'),
		('blobext_add_checksums_state()', 'pg_monitor'), ('blobext_defragment_state()', 'pg_monitor'), ('blobext_seal_state()', 'pg_monitor'), ('blobext_scrub_results()', 'pg_monitor'),
		('blobext_files()', 'pg_monitor'), ('blobext_database_counters()', 'pg_monitor'),
		('blobext_store_sizes()', 'pg_monitor'), ('blobext_store_limit(oid)', 'pg_monitor'), ('blobext_damage_state()', 'pg_monitor'),
		('blob_import(text)', 'pg_read_server_files'),
		('blob_export(blobstate,text)', 'pg_write_server_files')$$,
	'privileges of other roles on functions');

-- Equality takes nothing but the datums, as byteaeq() does; see "Row security" in docs/reference.md.  Order reads content, and
-- blob_intern() relies on blob_storage().
SELECT set_eq($$SELECT signature FROM function WHERE proleakproof$$,
	$$VALUES ('blob_eq(blobstate,blobstate)'), ('blob_eq(blobstate,bytea)'), ('blob_eq(bytea,blobstate)'),
		('blob_ne(blobstate,blobstate)'), ('blob_ne(blobstate,bytea)'), ('blob_ne(bytea,blobstate)')$$,
	'equality is LEAKPROOF, and nothing else');
SELECT is_empty($$SELECT signature FROM function WHERE prosecdef$$, 'nothing is SECURITY DEFINER');
SELECT is_empty($$SELECT signature FROM function WHERE prokind = 'f' AND prolang <> (SELECT oid FROM
		pg_language WHERE lanname = 'c') AND NOT EXISTS
		(SELECT FROM unnest(proconfig) c WHERE c LIKE 'search_path=%') AND prosqlbody IS NULL$$,
	'functions that are not in C fix their search_path, or were parsed when they were created');
SELECT is_empty($$SELECT signature FROM function
		WHERE NOT proisstrict AND prokind = 'f' AND prorettype <> 'internal'::regtype
			AND signature NOT IN ('blobext_map_handler(internal)', 'blobext_check(regclass,text)',
				'blobext_fetch(text,regclass,boolean)',
				'blob_chunks(blobstate,integer)',	-- so that it can be inlined
				'blob_upload_write(bigint,bytea)',	-- NULL is an error
				'blobext_set_compression(regclass,text,text)',	-- NULL removes its part of the label
				'blobext_set_digest(regclass,text,text)',	-- the same
				'blobext_fragmentation(regclass,text,double precision,integer)',	-- NULL is an error
				'blobext_browse(regclass,text)')	-- the view may be left out
			AND pronargs > 0 AND signature NOT LIKE 'blob_agg_finalfn(%'$$,
	'functions are strict, but for those that are listed');

-- Where values are stored: never folded, never in a parallel worker.
SELECT bag_eq(
	$$SELECT signature FROM function WHERE provolatile = 'v'$$,
	ARRAY['blobstate_in(cstring,oid,integer)', 'blobstate_recv(internal,oid,integer)',
		'blob_store(blobstate)', 'blob_store(bytea)', 'blob_store_support(internal)',
		'blob_store(blobstate,regclass,smallint)', 'blob_store(bytea,regclass,smallint)', 'blob_store_contained(anyelement)',
		'blobext_set_compression(regclass,text,text)', 'blobext_set_digest(regclass,text,text)', 'blob_recompress(blobstate,text)',
		'blobext_seal(regclass,text,integer,bigint,bigint,bigint)', 'blobext_seal_state()',
		'blobext_recompress(regclass,text,integer,bigint)',
		'blobstate(blobstate,integer,boolean)', 'blobext_require_library(text)', 'blobext_create_store(regclass)',
		'blobext_map_handler(internal)', 'blobext_check(regclass,text)', 'blobext_check_state()', 'blobext_damage_state()',
		'blobext_fetch(text,regclass,boolean)', 'blobext_fetch_state()', 'blobext_source(pg_lsn)',
		'blobext_source_read(text,bigint,bigint,bigint,bigint,bigint,pg_lsn,integer,boolean,boolean,pg_lsn)',
		'blobext_repair_bounds(boolean)', 'blobext_stat_counters()',
		'blobext_database_counters()', 'blobext_store_sizes()', 'blobext_room()',
		'blobext_scrub_results()',
		'blobext_space_state()', 'blobext_enable_checksums()', 'blobext_add_checksums(regclass,bigint,bigint,bigint)',
		'blobext_add_checksums_state()', 'blobext_defragment(regclass,text,double precision,integer,integer,integer,bigint,bigint,bigint,bigint,bigint)',
		'blobext_defragment_state()', 'blobext_files()', 'blobext_gc(boolean)', 'blobext_gc_state()', 'blobext_gc_kept()',
		'blob_append(blobstate,bytea)', 'blob_concat(blobstate,blobstate)',
		'blob_prepend(bytea,blobstate)', 'blob_write(blobstate,bigint,bytea)',
		'blob_insert(blobstate,bigint,bytea)', 'blob_delete(blobstate,bigint,bigint)',
		'blob_truncate(blobstate,bigint)', 'blob_patch(blobstate,bigint[],bytea[])',
		'set_byte(blobstate,bigint,bigint)', 'set_bit(blobstate,numeric,bigint)',
		'"overlay"(blobstate,bytea,bigint)', '"overlay"(blobstate,bytea,bigint,bigint)',
		'btrim(blobstate_operand,bytea)', 'ltrim(blobstate_operand,bytea)', 'rtrim(blobstate_operand,bytea)',
		'blob_string_agg_transfn(internal,blobstate,bytea)',
		'blob_agg_bytea_transfn(internal,bytea)', 'blob_agg_blobstate_transfn(internal,blobstate)',
		'blob_agg_finalfn(internal)', 'blob_import(text)', 'blob_export(blobstate,text)',
		'blob_from_lo(oid)', 'blob_to_lo(blobstate)',
		'blob_upload_begin(bigint)', 'blob_upload_resume(blobstate,bigint)',
		'blob_upload_write(bigint,bytea)', 'blob_upload_end(bigint)', 'blob_upload_abort(bigint)',
		'blob_upload_piece()', 'blobext_browse(regclass,text)',
		'blobext_dedup(regclass,text,boolean,integer,bigint,bigint,bigint,bigint)', 'blobext_dedup_state()',
		'blob_intern(regclass,text,blobstate,boolean)', 'blob_intern(regclass,text,bytea,boolean)'],
	'these functions are volatile, and no others');
SELECT is_empty(
	$$SELECT signature FROM function WHERE proparallel <> 'u'
		AND signature IN ('blobstate_in(cstring,oid,integer)', 'blobstate_recv(internal,oid,integer)',
			'blob_store(blobstate)', 'blob_store(bytea)', 'blobstate(blobstate,integer,boolean)',
			'blob_store(blobstate,regclass,smallint)', 'blob_store(bytea,regclass,smallint)', 'blob_store_contained(anyelement)',
			'blobext_set_compression(regclass,text,text)', 'blobext_set_digest(regclass,text,text)', 'blob_recompress(blobstate,text)',
			'blob_append(blobstate,bytea)', 'blob_concat(blobstate,blobstate)',
			'blob_prepend(bytea,blobstate)', 'blob_write(blobstate,bigint,bytea)',
			'blob_insert(blobstate,bigint,bytea)', 'blob_delete(blobstate,bigint,bigint)',
			'blob_truncate(blobstate,bigint)', 'blob_patch(blobstate,bigint[],bytea[])',
			'set_byte(blobstate,bigint,bigint)', 'set_bit(blobstate,numeric,bigint)',
			'"overlay"(blobstate,bytea,bigint)', '"overlay"(blobstate,bytea,bigint,bigint)',
			'btrim(blobstate_operand,bytea)', 'ltrim(blobstate_operand,bytea)', 'rtrim(blobstate_operand,bytea)',
			'string_agg(blobstate_operand,bytea)', 'blob_string_agg_transfn(internal,blobstate,bytea)', 'blob_agg(bytea)', 'blob_agg(blobstate)',
			'blob_agg_bytea_transfn(internal,bytea)', 'blob_agg_blobstate_transfn(internal,blobstate)',
			'blob_agg_finalfn(internal)', 'blob_import(text)', 'blob_export(blobstate,text)',
			'blob_from_lo(oid)', 'blob_to_lo(blobstate)',
			'blob_upload_begin(bigint)', 'blob_upload_resume(blobstate,bigint)',
			'blob_upload_write(bigint,bytea)', 'blob_upload_end(bigint)', 'blob_upload_abort(bigint)',
			'blob_upload_piece()', 'blobext_browse(regclass,text)', 'blobext_check(regclass,text)',
			'blobext_fetch(text,regclass,boolean)', 'blobext_gc(boolean)', 'blobext_repair_bounds(boolean)')$$,
	'functions that store are PARALLEL UNSAFE');
-- The content of a value never changes, so reading it may be used in index expressions; but text
-- output depends on bytea_output.
SELECT bag_eq(
	$$SELECT signature FROM function WHERE provolatile = 's'$$,
	ARRAY['blobstate_out(blobstate)', 'blobstate_send(blobstate)', 'blob_recompress_is_due(blobstate,text)',
		'blobext_space(regclass,text)', 'blob_footprint(blobstate)',
		'blobext_fragmentation(regclass,text,double precision,integer)',
		'blobext_store_limit(oid)', 'blobstate_typanalyze(internal)'],
	'these functions are stable, and no others');

-- The type.
SELECT results_eq(
	$$SELECT typlen::int, typbyval, typalign::text, typstorage::text, typcategory::text,
		typispreferred FROM pg_type WHERE oid = 'blobstate'::regtype$$,
	$$VALUES (-1, false, 'i', 'm', 'U', true)$$,
	'the type has these properties');
SELECT results_eq(
	$$SELECT extversion COLLATE "C", extrelocatable FROM pg_extension WHERE extname = 'blobext'$$,
	$$VALUES ('0.4.0'::text COLLATE "C", false)$$,
	'the extension has this version and cannot be relocated');

-- Without any privilege of its own, a role can use the type, and the functions that the server
-- calls for it.
CREATE ROLE nobody_special;
GRANT CREATE ON SCHEMA public TO nobody_special;
SET ROLE nobody_special;
CREATE TABLE public.of_nobody AS SELECT sha256('a'::bytea)::blobstate AS small,
	convert_to(repeat('a', 5000), 'UTF8')::blobstate AS large;
INSERT INTO public.of_nobody SELECT * FROM public.of_nobody;
SELECT results_eq(
	$$SELECT DISTINCT length(small), blob_storage(large), blob_read(large, 4999, 5),
		(SELECT count(*) > 10 FROM blobext_stat) FROM public.of_nobody$$,
	$$VALUES (32::bigint, 'extents', 'a'::bytea, true)$$,
	'an ordinary role stores and reads values');
INSERT INTO public.of_nobody (small) SELECT decode(md5(i::text), 'hex') FROM generate_series(1, 50) AS i;
CREATE INDEX ON public.of_nobody (small);
CREATE INDEX ON public.of_nobody USING hash (small);
CREATE INDEX ON public.of_nobody (small blobstate_digest_ops);
ANALYZE public.of_nobody;
SELECT results_eq(
	$$SELECT blob_storage(blob_agg(large)), length(blob_agg(large::bytea)), min(small) = max(small),
		count(*) FILTER (WHERE small IN (SELECT small FROM public.of_nobody)), count(DISTINCT small),
		(SELECT n_distinct < 0 FROM pg_stats WHERE tablename = 'of_nobody' AND attname = 'small'),
		(SELECT count(*) FROM (SELECT small FROM public.of_nobody ORDER BY small) AS s)
		FROM public.of_nobody$$,
	$$VALUES ('extents', 10000::bigint, false, 52::bigint, 51::bigint, true, 52::bigint)$$,
	'aggregates, sorts, indexes and statistics of an ordinary role');

-- A number that is no relation's, for each function that takes one.
RESET ROLE;
CREATE FUNCTION pg_temp.state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN '00000';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.call_of(called oid) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT %s(%s)', called::regproc, string_agg(CASE type
		WHEN 'regclass'::regtype THEN '4294967295::regclass'
		WHEN 'oid'::regtype THEN '4294967295::oid'
		WHEN 'text'::regtype THEN quote_literal('b') || '::text'
		WHEN 'boolean'::regtype THEN 'true'
		ELSE format('%L::%s', '1', type::regtype) END, ', ' ORDER BY n))
	FROM pg_proc, unnest(proargtypes::oid[]) WITH ORDINALITY AS a (type, n) WHERE pg_proc.oid = called
$$;
CREATE TEMP TABLE takes_relation AS
	SELECT p.oid FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	JOIN pg_extension AS e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	WHERE e.extname = 'blobext' AND p.prokind = 'f' AND 2281 <> ALL (p.proargtypes::oid[]) AND
		2275 <> ALL (p.proargtypes::oid[]) AND
		('regclass'::regtype = ANY (p.proargtypes::oid[]) OR 'oid'::regtype = ANY (p.proargtypes::oid[]));
SELECT is_empty($$SELECT oid::regprocedure, pg_temp.state_of(pg_temp.call_of(oid)) FROM takes_relation
	WHERE pg_temp.state_of(pg_temp.call_of(oid)) LIKE 'XX%'$$, 'no function has an internal error for a number that is no relation''s');
SELECT cmp_ok((SELECT count(*) FROM takes_relation), '>', 9::bigint, 'there are functions that take a relation');
SELECT is((SELECT array_agg(DISTINCT pg_temp.state_of(call)) FROM unnest(ARRAY[
	'SELECT * FROM blobext_check(4294967295)', 'SELECT * FROM blobext_check(4294967295, NULL)',
	$$SELECT * FROM blobext_space(4294967295, 'b')$$, $$SELECT blobext_set_compression(4294967295, 'b', 'zstd')$$,
	$$SELECT blobext_set_digest(4294967295, 'b', 'deferred')$$,
	$$SELECT blobext_browse(4294967295)$$, $$SELECT blob_intern(4294967295, 'b', ''::bytea)$$]) AS call), ARRAY['42P01'],
	'functions say that there is no such relation');

SELECT * FROM finish();
ROLLBACK;
