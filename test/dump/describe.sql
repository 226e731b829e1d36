-- Values and definitions that a dump must bring back: contents and forms; and a sound store.
SELECT 't', id, size, sha256(b), sha256(b::bytea), sha256(d), sha256(a[1]), sha256(a[2]), a[3],
	(p).name, sha256((p).body::bytea) FROM s.t ORDER BY id;
SELECT 'parted', tableoid::regclass, id, sha256(b::bytea) FROM parted ORDER BY id;
SELECT 'loose', length(b), sha256(b::bytea) FROM loose ORDER BY 2, 3;
SELECT 'unlogged', id, sha256(b::bytea) FROM unlogged ORDER BY 2, 3;
SELECT 'v', id, length, sha256(b), sha256(computed) FROM v ORDER BY id;
SELECT 'm', id, sha256(b), sha256(computed::bytea) FROM m ORDER BY id;
-- Every value over the limit is in extents, every other is not.
WITH value AS (SELECT b FROM s.t UNION ALL SELECT d FROM s.t UNION ALL SELECT unnest(a) FROM s.t
	UNION ALL SELECT b FROM parted UNION ALL SELECT b FROM loose
	UNION ALL SELECT b FROM unlogged UNION ALL SELECT b FROM m UNION ALL SELECT computed FROM m)
SELECT blob_storage(b), count(*), min(length(b)) > 1024, max(length(b)) > 1024 FROM value
	WHERE b IS NOT NULL GROUP BY 1 ORDER BY 1;
SELECT 'composite', blob_storage((p).body), count(*) FROM s.t WHERE (p).body IS NOT NULL
	GROUP BY 2 ORDER BY 2;
SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod) FROM pg_attribute a
	WHERE attnum > 0 AND (attrelid::regclass::text LIKE ANY
		('{s.t,parted%,loose,unlogged,v,m,as_bytea,of_bytea}'))
	ORDER BY attrelid::regclass::text, attname;
SELECT pg_get_viewdef('v'::regclass), pg_get_viewdef('m'::regclass);
SELECT pg_get_ruledef(oid) FROM pg_rewrite WHERE rulename = 'r';
SELECT 'of_bytea', id, sha256(convert_to(o::text, 'UTF8')) FROM of_bytea AS o ORDER BY id;
SELECT pg_get_viewdef('of_bytea'::regclass);
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'as_bytea'::regclass;
SELECT indexdef FROM pg_indexes WHERE tablename = 'as_bytea';
SELECT 'label', objname, label FROM pg_seclabels WHERE provider = 'blobext' ORDER BY 2;
SELECT 'packed', tableoid::regclass, blob_compression(b), blob_compression(d),
	blob_compression(a[1]), blob_compression(a[2]), sha256(b::bytea), sha256(d::bytea),
	sha256(a[2]::bytea) FROM packed ORDER BY id;
SELECT 'problem', * FROM blobext_check();
