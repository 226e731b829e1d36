-- C modules tested by functions of a library of its own; the variable library names it.
CREATE FUNCTION unit_tier_formula() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_waste() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_clock() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_table() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tier_plan(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_descriptor(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_descriptor_damage() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_footprint() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed_damage(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed_node(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed_reading(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed_flips(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tree_form() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tree_open() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_tree(seed bigint, changes bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compressed_garbage(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_inline() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_toasted_form() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_digest(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_hasher(seed bigint, rounds int) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_free_runs(seed bigint, operations bigint) RETURNS bigint
	AS :'library' LANGUAGE C;
CREATE FUNCTION unit_free_runs_large() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_pending(seed bigint, rounds bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_changed(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_page_sums(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_hole_pace(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compare(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_compare_shared() RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_sample_groups(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_sample_distinct(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_sample_common(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_sample_histogram(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_sample_correlation(seed bigint) RETURNS bigint AS :'library' LANGUAGE C;
CREATE FUNCTION unit_methods() RETURNS bigint AS :'library' LANGUAGE C;

SELECT plan(36);
SELECT diag('seed ' || :seed);
SELECT cmp_ok(unit_tier_formula(), '>', 100::bigint,
	'the formula of tiers gives the table of the paper');
SELECT cmp_ok(unit_tier_waste(), '=', 4::bigint,
	'the waste of the last extent is that of the paper');
SELECT cmp_ok(unit_tier_table(), '>', 1000::bigint, 'the table of tiers follows the formula');
SELECT cmp_ok(unit_tier_plan(:seed), '>', 100000::bigint,
	'sizes are divided into extents that hold them');
SELECT cmp_ok(unit_descriptor(:seed), '>', 10000::bigint,
	'a descriptor that is packed is unpacked to the same');
SELECT cmp_ok(unit_descriptor_damage(), '>', 200::bigint, 'a damaged descriptor is refused');
SELECT cmp_ok(unit_compressed(:seed), '>', 50000::bigint,
	'a compressed form that is packed is unpacked to the same');
SELECT cmp_ok(unit_compressed_damage(:seed), '>', 9000::bigint,
	'a damaged compressed form is refused');
SELECT cmp_ok(unit_compressed_node(:seed), '>', 34000::bigint,
	'the directory of frames finds each frame');
SELECT cmp_ok(unit_compressed_reading(:seed), '>', 500::bigint,
	'content that became frames comes back');
SELECT cmp_ok(unit_compressed_flips(:seed), '>', 300::bigint,
	'flipped bits of frames and directory are noticed');
SELECT cmp_ok(unit_compressed_garbage(:seed), '>', 1000::bigint,
	'decompression of random bytes ends within its bounds');
SELECT cmp_ok(unit_tree_form(), '>', 300::bigint, 'a damaged form of a tree is refused');
SELECT cmp_ok(unit_tree_open(), '>', 70::bigint, 'an open digest is told from others, and sealed');
SELECT cmp_ok(unit_tree(:seed, 400), '>', 20000::bigint,
	'random changes of trees keep content, live bytes and half-full nodes');
SELECT cmp_ok(unit_footprint(), '>=', 11::bigint,
	'runs of pages end with a file, and where the next extent lies elsewhere');
SELECT cmp_ok(unit_inline(), '>', 600::bigint, 'inline values are packed and unpacked to the same');
SELECT cmp_ok(unit_toasted_form(), '=', 9::bigint, 'the form of toasted values is recognized');
SELECT cmp_ok(unit_digest(:seed), '>', 2000::bigint,
	'a digest that is resumed is that of all bytes');
SELECT cmp_ok(unit_hasher(:seed, 1500), '>', 30::bigint,
	'digests of the thread are those of the backend');
SELECT cmp_ok(unit_free_runs(:seed, 20000), '>', 60000::bigint, 'free runs are those of a bitmap');
SELECT cmp_ok(unit_free_runs(:seed + 1, 20000), '>', 60000::bigint,
	'free runs are those of a bitmap with another seed');
SELECT cmp_ok(unit_free_runs_large(), '=', 50003::bigint,
	'many free runs are found, in whatever order they were given');
SELECT cmp_ok(unit_pending(:seed, 600), '>', 1000000::bigint,
	'freed runs come out once a checkpoint covers them');
SELECT cmp_ok(unit_changed(:seed), '>', 100000::bigint,
	'a set of changed blocks has the blocks that were added, and no others');
SELECT cmp_ok(unit_hole_pace(:seed), '>', 10000::bigint, 'holes are made evenly, and in time');
SELECT cmp_ok(unit_page_sums(:seed), '>', 100000::bigint,
	'each page of a living extent has the checksum that was set last');
SELECT cmp_ok(unit_compare(:seed), '>=', 3000::bigint, 'comparison, with shared extents');
SELECT cmp_ok(unit_compare_shared(), '>', 29::bigint, 'comparison does not read shared extents');
SELECT cmp_ok(unit_sample_groups(:seed), '>', 2::bigint, 'sample: groups of equal values');
SELECT cmp_ok(unit_sample_distinct(:seed), '>', 2::bigint,
	'sample: the estimate of distinct values is right');
SELECT cmp_ok(unit_sample_common(:seed), '>', 2::bigint,
	'sample: the most common values are found');
SELECT cmp_ok(unit_sample_histogram(:seed), '>', 2::bigint,
	'sample: the histogram has its bounds in order');
SELECT cmp_ok(unit_sample_correlation(:seed), '>', 2::bigint,
	'sample: the correlation is that of the order');
SELECT cmp_ok(unit_methods(), '>', 40::bigint,
	'only heap''s functions see rows in what passes for heap');
SELECT cmp_ok(unit_clock(), '=', 9::bigint,
	'times are before or after others, also where the clock was set back');
SELECT * FROM finish();
