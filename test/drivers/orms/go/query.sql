-- name: Insert :exec
INSERT INTO document (id, content) VALUES (@id, @content);
-- name: Read :one
SELECT content FROM document WHERE id = @id;
-- name: Update :exec
UPDATE document SET content = @content WHERE id = @id;
-- name: Equal :many
SELECT id FROM document WHERE content = @content;
-- name: Among :many
SELECT id FROM document WHERE content = ANY (@contents::bytea[]);
-- name: Ordered :many
SELECT id FROM document ORDER BY content;
-- name: CountDistinct :one
SELECT count(DISTINCT content) FROM document;
