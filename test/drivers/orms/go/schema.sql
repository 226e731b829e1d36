CREATE TABLE document (id integer PRIMARY KEY, content blobstate);
