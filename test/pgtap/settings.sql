-- Settings: their names, kinds, defaults, and which roles may change them when.
BEGIN;
SELECT plan(9);

SELECT results_eq(
	$$SELECT name COLLATE "C", vartype COLLATE "C", context COLLATE "C", boot_val COLLATE "C",
		min_val COLLATE "C", max_val COLLATE "C", unit COLLATE "C"
		FROM pg_settings WHERE name LIKE 'blobext.%' ORDER BY 1$$,
	$$VALUES
		('blobext.autogc' COLLATE "C", 'bool' COLLATE "C", 'sighup' COLLATE "C", 'on' COLLATE "C",
			NULL::text, NULL::text, NULL::text),
		('blobext.autogc_cost_delay', 'real', 'sighup', '20', '-1', '1000', 'ms'),
		('blobext.autogc_cost_limit', 'integer', 'sighup', '-1', '-1', '2147483647', NULL),
		('blobext.autogc_interval', 'integer', 'sighup', '900', '1', '2147483', 's'),
		('blobext.autogc_max_workers', 'integer', 'sighup', '2', '1', '64', NULL),
		('blobext.autogc_naptime', 'integer', 'sighup', '30', '1', '2147483', 's'),
		('blobext.autogc_scale_factor', 'real', 'sighup', '0.1', '0', '100', NULL),
		('blobext.autogc_threshold', 'integer', 'sighup', '16384', '0', '2147483647', 'kB'),
		('blobext.autogc_vacuum', 'bool', 'sighup', 'on', NULL, NULL, NULL),
		('blobext.background_sync', 'bool', 'user', 'on', NULL, NULL, NULL),
		('blobext.cache_size' COLLATE "C", 'integer' COLLATE "C", 'postmaster' COLLATE "C",
			'-1' COLLATE "C", '-1' COLLATE "C", '2147483647' COLLATE "C", 'kB' COLLATE "C"),
		('blobext.client_type', 'enum', 'user', 'bytea', NULL, NULL, NULL),
		('blobext.default_compression', 'enum', 'user', 'none', NULL, NULL, NULL),
		('blobext.digest_thread', 'enum', 'user', 'on', NULL, NULL, NULL),
		('blobext.direct_io', 'bool', 'postmaster', 'on', NULL, NULL, NULL),
		('blobext.gc_cost_delay', 'real', 'user', '0', '0', '1000', 'ms'),
		('blobext.gc_cost_limit', 'integer', 'user', '200', '1', '2147483647', NULL),
		('blobext.gc_wait_timeout', 'integer', 'user', '60000', '0', '2147483647', 'ms'),
		('blobext.gc_work_mem', 'integer', 'user', '-1', '-1', '2147483647', 'kB'),
		('blobext.heal_conninfo', 'string', 'sighup', '', NULL, NULL, NULL),
		('blobext.inline_limit', 'integer', 'user', '1900', '0', '1048576', 'B'),
		('blobext.io_method', 'enum', 'user', 'auto', NULL, NULL, NULL),
		('blobext.keep_free', 'integer', 'sighup', '1024', '-1', '2147483647', 'MB'),
		('blobext.log_autogc_min_duration', 'integer', 'sighup', '600000', '-1', '2147483647', 'ms'),
		('blobext.max_databases', 'integer', 'postmaster', '1000', '1', '100000', NULL),
		('blobext.max_store_size', 'integer', 'superuser', '-1', '-1', '2147483647', 'MB'),
		('blobext.min_free_disk', 'integer', 'sighup', '128', '0', '2147483647', 'MB'),
		('blobext.page_checksums', 'bool', 'sighup', 'on', NULL, NULL, NULL),
		('blobext.rewrite_limit', 'integer', 'user', '1024', '32', '1048576', 'kB'),
		('blobext.scrub_rate', 'integer', 'sighup', '0', '0', '1000000', 'MB'),
		('blobext.stream_results', 'bool', 'user', 'on', NULL, NULL, NULL),
		('blobext.tail_extents', 'bool', 'user', 'on', NULL, NULL, NULL),
		('blobext.verify_reads', 'bool', 'user', 'off', NULL, NULL, NULL),
		('blobext.wal_content', 'enum', 'postmaster', 'auto', NULL, NULL, NULL)$$,
	'these are all settings, with kind, context, default, limits and unit');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name LIKE 'blobext.%'
		AND (short_desc IS NULL OR short_desc !~ '^[A-Z].*\.$')$$,
	'settings are described as PostgreSQL describes its own');
SELECT throws_ok($$SET blobext.no_such_setting = 1$$, '42602', NULL, 'a setting with the prefix that is unknown is refused');
SELECT throws_ok($$SET blobext.io_method = 'none'$$, '22023', NULL, 'an unknown I/O method');
SELECT throws_ok($$SET blobext.inline_limit = -1$$, '22023', NULL, 'a negative blobext.inline_limit is refused');
SELECT throws_ok($$SET blobext.wal_content = off$$, '55P02', NULL,
	'whether content is logged is fixed at start');
SELECT lives_ok($$SET LOCAL blobext.inline_limit = '16kB'$$, 'units can be given');
SELECT is(current_setting('blobext.inline_limit'), '16kB', 'settings are shown with units');

-- With each I/O method that works here a value is stored and read alike.
CREATE FUNCTION by_method(method text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	content bytea := convert_to(repeat(method, 300000), 'UTF8');
	stored blobstate;
BEGIN
	PERFORM set_config('blobext.io_method', method, true);
	CREATE TEMP TABLE of_method ON COMMIT DROP AS SELECT content::blobstate AS b;
	SELECT b INTO stored FROM of_method;
	DROP TABLE of_method;
	RETURN blob_storage(stored) || ' ' || (stored::bytea = content)
		|| (blob_read(stored, 100000, 70000) = substring(content FROM 100001 FOR 70000));
EXCEPTION WHEN system_error OR feature_not_supported OR object_not_in_prerequisite_state THEN
	RETURN CASE WHEN method IN ('io_uring', 'aio') THEN 'extents truetrue' ELSE SQLERRM END;
END $$;
SELECT is(string_agg(DISTINCT by_method(method), ', '), 'extents truetrue', 'every I/O method stores and reads, or is refused as one that is missing')
	FROM unnest(ARRAY['auto', 'sync', 'aio', 'io_uring', 'aio']) method;

SELECT * FROM finish();
ROLLBACK;
