-- A table spread over two more servers, by PostgreSQL's own means: hash partitions that are foreign
-- tables of postgres_fdw.
--
--	psql -v host_0=db0 -v port_0=5432 -v host_1=db1 -v port_1=5432 -v database=blobs
--		-f sharding.sql coordinator
--
-- blobext is preloaded on all three servers; the shards have the extension and this table:
--
--	CREATE TABLE document_shard (id bigint PRIMARY KEY, name text, content blobstate);

CREATE EXTENSION IF NOT EXISTS blobext;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;

-- With "extensions", comparisons of blobstate run on the shards; without it, all content would
-- travel to the coordinator to be compared there.
CREATE SERVER shard_0 FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'host_0', port :'port_0',
	dbname :'database', extensions 'blobext', async_capable 'true');
CREATE SERVER shard_1 FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'host_1', port :'port_1',
	dbname :'database', extensions 'blobext', async_capable 'true');
CREATE USER MAPPING FOR CURRENT_USER SERVER shard_0;
CREATE USER MAPPING FOR CURRENT_USER SERVER shard_1;

-- The default of fetch_size is 100 rows: too many if they have large values.
CREATE TABLE document (id bigint NOT NULL, name text, content blobstate) PARTITION BY HASH (id);
CREATE FOREIGN TABLE document_0 PARTITION OF document FOR VALUES WITH (MODULUS 2, REMAINDER 0)
	SERVER shard_0 OPTIONS (table_name 'document_shard', fetch_size '4');
CREATE FOREIGN TABLE document_1 PARTITION OF document FOR VALUES WITH (MODULUS 2, REMAINDER 1)
	SERVER shard_1 OPTIONS (table_name 'document_shard', fetch_size '4');
