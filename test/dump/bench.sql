\set size random(0, 200000)
\set seed random(1, 1000000)
BEGIN;
INSERT INTO bench (content, b) SELECT x, x FROM s.bytes(:size, :seed) x;
SELECT blob_read(b, :size / 2, 100) FROM bench TABLESAMPLE system (10) LIMIT 5;
END;
