SET client_min_messages = error;
SET blobext.rewrite_limit = '64kB';
\ir helpers.psql
\set ON_ERROR_STOP 0
CREATE TABLE w (id int, content blobstate);
INSERT INTO w SELECT i, bytes(300000, 1) FROM generate_series(1,2) i;
UPDATE w SET content = blob_write(content, 190000, bytes(777, 1));
SELECT id, blob_digest_is_open(content), e.* FROM w, blob_extents(content) e;
UPDATE w SET content = blob_write(content, 180000, bytes(777, 1));
SELECT id, blob_digest_is_open(content), e.* FROM w, blob_extents(content) e;
SELECT blobext_set_digest('w', 'content', 'deferred');
UPDATE w SET content = bytes(300000, 1);
UPDATE w SET content = blob_write(content, 190000, bytes(777, 1));
SELECT id, blob_digest_is_open(content), e.* FROM w, blob_extents(content) e;
UPDATE w SET content = blob_write(content, 180000, bytes(777, 1));
SELECT id, blob_digest_is_open(content), e.* FROM w, blob_extents(content) e;
UPDATE w SET content = blob_truncate(content, 170000);
SELECT id, blob_digest_is_open(content), e.* FROM w, blob_extents(content) e;
