-- The tables of the photo album; after file_kind.sql and image_size.sql, see README.md.

-- The size and the kind of a photo follow from its content. The columns are for showing them: they
-- are computed once, when the row is stored. Content of other kinds than PNG and JPEG is refused.
CREATE TABLE photo (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL,
    uploaded_at timestamptz NOT NULL DEFAULT now(),
    content     blobstate NOT NULL,
    kind        text NOT NULL GENERATED ALWAYS AS (file_kind(content)) STORED,
    size        image_dimensions NOT NULL GENERATED ALWAYS AS (image_size(content)) STORED,
    CONSTRAINT photo_is_an_image CHECK (image_size(content) IS NOT NULL)
);

-- The same photo is stored once, whatever it is called: the digest is in the row, so no content is
-- read to compare.
CREATE UNIQUE INDEX photo_content ON photo (content blobstate_digest_ops);

-- The semantic index: photos by their width, which is nowhere but in their content.
CREATE INDEX photo_width ON photo (((image_size(content)).width));

-- Values that have come in and are yet to become photos, or to be found as duplicates. It is one
-- transaction, so none of them is ever seen by others.
CREATE TABLE upload (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    content blobstate NOT NULL
);
