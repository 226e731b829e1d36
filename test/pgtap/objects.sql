-- Objects of the extension as the catalogs show them: comments, privileges, volatility.
BEGIN;
SELECT plan(18);

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

-- Whoever adds a function decides here who may call it.
CREATE TEMP TABLE administration AS SELECT unnest(ARRAY[
	'blobext_require_library(text)',
	'blobext_create_store(regclass)',
	'blobext_check(regclass)',
	'blobext_check_state()',
	'blobext_repair_bounds(boolean)',
	'blobext_space_usage()',
	'blobext_files()',
	'blobext_gc(boolean)',
	'blobext_gc_state()',
	'blob_import(text)',
	'blob_export(blobstate,text)']) AS signature;
SELECT bag_eq(
	$$SELECT signature FROM function WHERE NOT has_function_privilege('public', oid, 'EXECUTE')$$,
	$$SELECT signature FROM administration$$,
	'functions that PUBLIC may not execute');
SELECT bag_eq(
	$$SELECT signature FROM function WHERE has_function_privilege('public', oid, 'EXECUTE')$$,
	ARRAY[
		'blobstate_in(cstring,oid,integer)',
		'blobstate_out(blobstate)',
		'blobstate_recv(internal,oid,integer)',
		'blobstate_send(blobstate)',
		'blobstate_typmod_in(cstring[])',
		'blobstate_typmod_out(integer)',
		'blobstate_typanalyze(internal)',
		'blob_store(blobstate)',
		'blob_store(bytea)',
		'blob_store_support(internal)',
		'blobstate(blobstate,integer,boolean)',
		'blobstate(bytea)',
		'bytea(blobstate)',
		'length(blobstate)',
		'octet_length(blobstate)',
		'sha256(blobstate)',
		'blob_prefix(blobstate)',
		'blob_storage(blobstate)',
		'blob_extents(blobstate)',
		'blob_read(blobstate,bigint,bigint)',
		'"substring"(blobstate,bigint)',
		'"substring"(blobstate,bigint,bigint)',
		'substr(blobstate,bigint)',
		'substr(blobstate,bigint,bigint)',
		'blob_append(blobstate,bytea)', 'blob_concat(blobstate,blobstate)',
		'blob_prepend(bytea,blobstate)', 'blob_write(blobstate,bigint,bytea)',
		'blob_insert(blobstate,bigint,bytea)', 'blob_delete(blobstate,bigint,bigint)',
		'blob_truncate(blobstate,bigint)',
		'blob_chunk_count(blobstate,integer)', 'blob_chunks(blobstate,integer)',
		'blob_agg(bytea)', 'blob_agg(blobstate)', 'blob_agg_bytea_transfn(internal,bytea)',
		'blob_agg_blobstate_transfn(internal,blobstate)', 'blob_agg_finalfn(internal)',
		'blob_from_lo(oid)', 'blob_to_lo(blobstate)',
		'blob_eq(blobstate,blobstate)', 'blob_ne(blobstate,blobstate)', 'blob_lt(blobstate,blobstate)',
		'blob_le(blobstate,blobstate)', 'blob_gt(blobstate,blobstate)', 'blob_ge(blobstate,blobstate)', 'blob_cmp(blobstate,blobstate)',
		'blob_eq(blobstate,bytea)', 'blob_ne(blobstate,bytea)', 'blob_lt(blobstate,bytea)',
		'blob_le(blobstate,bytea)', 'blob_gt(blobstate,bytea)', 'blob_ge(blobstate,bytea)', 'blob_cmp(blobstate,bytea)',
		'blob_eq(bytea,blobstate)', 'blob_ne(bytea,blobstate)', 'blob_lt(bytea,blobstate)',
		'blob_le(bytea,blobstate)', 'blob_gt(bytea,blobstate)', 'blob_ge(bytea,blobstate)', 'blob_cmp(bytea,blobstate)',
		'blobstate_sortsupport(internal)', 'blob_hash(blobstate)', 'blob_hash(bytea)',
		'blob_hash_extended(blobstate,bigint)', 'blob_hash_extended(bytea,bigint)',
		'blob_digest_lt(blobstate,blobstate)', 'blob_digest_le(blobstate,blobstate)', 'blob_digest_gt(blobstate,blobstate)',
		'blob_digest_ge(blobstate,blobstate)', 'blob_digest_cmp(blobstate,blobstate)',
		'blob_digest_cmp(blobstate,bytea)', 'blob_digest_cmp(bytea,blobstate)',
		'blob_smaller(blobstate,blobstate)', 'blob_larger(blobstate,blobstate)',
		'min(blobstate)', 'max(blobstate)',
		'blobext_map_handler(internal)',
		'blobext_stat_counters()'],
	'functions that PUBLIC may execute');
SELECT bag_eq(
	$$SELECT object, privilege_type FROM member JOIN pg_class c ON c.oid = objid,
		aclexplode(coalesce(relacl, acldefault('r', relowner))) WHERE grantee = 0$$,
	$$VALUES ('view blobext_stat', 'SELECT')$$,
	'privileges of PUBLIC on relations');
-- As COPY has it; the owner may in any case.
SELECT bag_eq(
	$$SELECT signature, grantee::regrole::text FROM function, aclexplode(proacl)
		WHERE grantee NOT IN (0, proowner)$$,
	$$VALUES ('blobext_check_state()', 'pg_monitor'), ('blobext_gc_state()', 'pg_monitor'), ('blobext_space_usage()', 'pg_monitor'),
		('blobext_files()', 'pg_monitor'),
		('blob_import(text)', 'pg_read_server_files'),
		('blob_export(blobstate,text)', 'pg_write_server_files')$$,
	'privileges of other roles on functions');

SELECT is_empty($$SELECT signature FROM function WHERE proleakproof$$, 'nothing is LEAKPROOF');
SELECT is_empty($$SELECT signature FROM function WHERE prosecdef$$, 'nothing is SECURITY DEFINER');
SELECT is_empty($$SELECT signature FROM function WHERE prokind = 'f' AND prolang <> (SELECT oid FROM
		pg_language WHERE lanname = 'c') AND NOT EXISTS
		(SELECT FROM unnest(proconfig) c WHERE c LIKE 'search_path=%') AND prosqlbody IS NULL$$,
	'functions that are not in C fix their search_path, or were parsed when they were created');
SELECT is_empty($$SELECT signature FROM function
		WHERE NOT proisstrict AND prokind = 'f' AND prorettype <> 'internal'::regtype
			AND signature NOT IN ('blobext_map_handler(internal)', 'blobext_check(regclass)',
				'blob_chunks(blobstate,integer)')	-- so that it can be inlined
			AND pronargs > 0 AND signature NOT LIKE 'blob_agg_finalfn(%'$$,
	'functions are strict');

-- Where values are stored: never folded, never in a parallel worker.
SELECT bag_eq(
	$$SELECT signature FROM function WHERE provolatile = 'v'$$,
	ARRAY['blobstate_in(cstring,oid,integer)', 'blobstate_recv(internal,oid,integer)',
		'blob_store(blobstate)', 'blob_store(bytea)', 'blob_store_support(internal)',
		'blobstate(blobstate,integer,boolean)', 'blobext_require_library(text)', 'blobext_create_store(regclass)',
		'blobext_map_handler(internal)', 'blobext_check(regclass)', 'blobext_check_state()',
		'blobext_repair_bounds(boolean)', 'blobext_stat_counters()',
		'blobext_space_usage()', 'blobext_files()', 'blobext_gc(boolean)', 'blobext_gc_state()',
		'blob_append(blobstate,bytea)', 'blob_concat(blobstate,blobstate)',
		'blob_prepend(bytea,blobstate)', 'blob_write(blobstate,bigint,bytea)',
		'blob_insert(blobstate,bigint,bytea)', 'blob_delete(blobstate,bigint,bigint)',
		'blob_truncate(blobstate,bigint)',
		'blob_agg_bytea_transfn(internal,bytea)', 'blob_agg_blobstate_transfn(internal,blobstate)',
		'blob_agg_finalfn(internal)', 'blob_import(text)', 'blob_export(blobstate,text)',
		'blob_from_lo(oid)', 'blob_to_lo(blobstate)'],
	'volatile functions');
SELECT is_empty(
	$$SELECT signature FROM function WHERE proparallel <> 'u'
		AND signature IN ('blobstate_in(cstring,oid,integer)', 'blobstate_recv(internal,oid,integer)',
			'blob_store(blobstate)', 'blob_store(bytea)', 'blobstate(blobstate,integer,boolean)',
			'blob_append(blobstate,bytea)', 'blob_concat(blobstate,blobstate)',
			'blob_prepend(bytea,blobstate)', 'blob_write(blobstate,bigint,bytea)',
			'blob_insert(blobstate,bigint,bytea)', 'blob_delete(blobstate,bigint,bigint)',
			'blob_truncate(blobstate,bigint)', 'blob_agg(bytea)', 'blob_agg(blobstate)',
			'blob_agg_bytea_transfn(internal,bytea)', 'blob_agg_blobstate_transfn(internal,blobstate)',
			'blob_agg_finalfn(internal)', 'blob_import(text)', 'blob_export(blobstate,text)',
			'blob_from_lo(oid)', 'blob_to_lo(blobstate)',
			'blobext_check(regclass)', 'blobext_gc(boolean)', 'blobext_repair_bounds(boolean)')$$,
	'functions that store are PARALLEL UNSAFE');
-- The content of a value never changes, so reading it may be used in index expressions; but text
-- output depends on bytea_output.
SELECT bag_eq(
	$$SELECT signature FROM function WHERE provolatile = 's'$$,
	ARRAY['blobstate_out(blobstate)', 'blobstate_send(blobstate)',
		'blobstate_typanalyze(internal)'],
	'stable functions');

-- The type.
SELECT results_eq(
	$$SELECT typlen::int, typbyval, typalign::text, typstorage::text, typcategory::text,
		typispreferred FROM pg_type WHERE oid = 'blobstate'::regtype$$,
	$$VALUES (-1, false, 'i', 'm', 'U', true)$$,
	'properties of the type');
SELECT results_eq(
	$$SELECT extversion COLLATE "C", extrelocatable FROM pg_extension WHERE extname = 'blobext'$$,
	$$VALUES ('0.2.0'::text COLLATE "C", false)$$,
	'the extension');

-- Without any privilege of its own, a role can use the type.
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

SELECT * FROM finish();
ROLLBACK;
