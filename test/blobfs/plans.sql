-- Plans of what the program calls: functions that read are inlined, all use the indexes whatever the tables hold.
--
-- Seen to fail with lookup() declared STRICT, and with readdir() that orders by another column.
SET client_min_messages = warning;
SELECT plan(12);
SELECT blobfs.create('fs_plans');
-- The settings of the program, see mount/sql/README.md
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE FUNCTION pg_temp.explain(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    plan text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS off) EXECUTE ' || name LOOP
        plan := plan || trim(line) || E'\n';
    END LOOP;
    RETURN plan;
END $$;
PREPARE lookup AS SELECT * FROM fs_plans.lookup($1, $2);
PREPARE getattr AS SELECT * FROM fs_plans.getattr($1);
PREPARE readdir AS SELECT * FROM fs_plans.readdir($1, $2, $3);
PREPARE readdir_content AS SELECT * FROM fs_plans.readdir_content($1, $2, $3, $4);
PREPARE content AS SELECT * FROM fs_plans.content($1, $2);
PREPARE read AS SELECT * FROM fs_plans.read($1, $2, $3, $4);
PREPARE names AS SELECT * FROM fs_plans.names($1);
PREPARE snapshot_lookup AS SELECT * FROM fs_plans.snapshot_lookup($1, $2, $3);
PREPARE snapshot_readdir AS SELECT * FROM fs_plans.snapshot_readdir($1, $2, $3, $4);
SELECT unalike(pg_temp.explain(call), '%Function Scan%', 'the planner inlines the call ' || call)
FROM unnest(ARRAY['lookup(1, ''a'')', 'getattr(1)', 'content(1, 1)', 'read(1, 1, 0, 1)', 'names(1)',
    'snapshot_lookup(1, 1, ''a'')']) AS call;
SELECT matches(pg_temp.explain('lookup(1, ''a'')'), '^Nested Loop\n-> +Index Scan using dentry_pkey.*\n(.*\n)*-> +Index Scan using inode_pkey',
    'lookup() by two primary keys');
SELECT unalike(pg_temp.explain(call), '%Sort%', 'in the order of the index: ' || call)
FROM unnest(ARRAY['readdir(1, '''', 1)', 'readdir_content(1, '''', 1, 1)', 'snapshot_readdir(1, 1, '''', 1)']) AS call;
SELECT matches(pg_temp.explain('readdir(1, '''', 1)'), 'Index Cond: \(\(parent = \$1\) AND \(name > \$2\)\)',
    'readdir() begins behind the name');
SELECT matches(pg_temp.explain('names(1)'), 'dentry_ino_idx', 'names() by the index on ino');
SELECT blobfs.drop('fs_plans');
SELECT * FROM finish();
