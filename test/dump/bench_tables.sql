CREATE TABLE bench (id serial, content bytea, b blobstate);
