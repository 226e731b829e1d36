-- C modules tested by functions of a library of its own; the variable library names it.
CREATE FUNCTION unit_tier_formula() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_waste() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_table() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_plan(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_descriptor(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_descriptor_damage() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_inline() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_digest(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_free_runs(seed bigint, operations bigint) RETURNS bigint
	AS :'library' LANGUAGE C;
CREATE FUNCTION unit_free_runs_large() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_pending(seed bigint, rounds bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compare(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compare_shared() RETURNS bigint AS :'library' LANGUAGE C;

SELECT plan(14);
SELECT diag('seed ' || :seed);
SELECT cmp_ok(unit_tier_formula(), '>', 100::bigint, 'tier formula, the table of the paper');
SELECT cmp_ok(unit_tier_waste(), '=', 4::bigint, 'waste, figures of the paper');
SELECT cmp_ok(unit_tier_table(), '>', 1000::bigint, 'tier table of this build');
SELECT cmp_ok(unit_tier_plan(:seed), '>', 100000::bigint, 'division into extents');
SELECT cmp_ok(unit_descriptor(:seed), '>', 10000::bigint, 'descriptor, packed and unpacked');
SELECT cmp_ok(unit_descriptor_damage(), '>', 200::bigint, 'descriptor, damaged');
SELECT cmp_ok(unit_inline(), '>', 600::bigint, 'inline values');
SELECT cmp_ok(unit_digest(:seed), '>', 2000::bigint, 'digest, resumable');
SELECT cmp_ok(unit_free_runs(:seed, 20000), '>', 60000::bigint, 'free runs against a bitmap');
SELECT cmp_ok(unit_free_runs(:seed + 1, 20000), '>', 60000::bigint, 'free runs, another seed');
SELECT cmp_ok(unit_free_runs_large(), '=', 50003::bigint, 'many free runs');
SELECT cmp_ok(unit_pending(:seed, 600), '>', 1000000::bigint, 'freed runs that wait');
SELECT cmp_ok(unit_compare(:seed), '>=', 3000::bigint, 'comparison, with shared extents');
SELECT cmp_ok(unit_compare_shared(), '>', 29::bigint, 'comparison does not read shared extents');
SELECT * FROM finish();
