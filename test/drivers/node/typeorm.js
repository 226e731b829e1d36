// TypeORM: with "blobstate" among the types of its driver it stores and reads Buffers, and
// synchronize() leaves the column alone; with type "bytea" it drops the column, which is the warning
// of docs/drivers.md: if that fails, the warning is no longer true.
'use strict';
require('reflect-metadata');
const crypto = require('crypto');
const { DataSource, EntitySchema } = require('typeorm');

let failures = 0;

function check(what, holds) {
	if (!holds) {
		console.log(`not ok - TypeORM: ${what}`);
		failures++;
	}
}

function open(table, type) {
	const Document = new EntitySchema({
		name: 'Document', tableName: table,
		columns: { id: { type: 'int', primary: true }, content: { type, nullable: true } },
	});
	const source = new DataSource({
		type: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT),
		username: process.env.PGUSER, database: process.env.PGDATABASE, entities: [Document],
	});
	if (type === 'blobstate')
		source.driver.supportedDataTypes.push('blobstate');
	return source.initialize();
}

async function plannedBy(source) {
	return (await source.driver.createSchemaBuilder().log()).upQueries.map((query) => query.query);
}

async function roundTrips(source, table) {
	const documents = source.getRepository('Document');
	const values = [Buffer.alloc(0), Buffer.from('a\\134b'), Buffer.from('\\x00'),
		Buffer.from([...Array(256).keys()]), crypto.randomBytes(5000), crypto.randomBytes(10000000), null];

	for (const [id, bytes] of values.entries()) {
		await documents.save({ id: 100 + id, content: bytes });
		const found = (await documents.findOneBy({ id: 100 + id })).content;
		const what = `of ${bytes === null ? 'NULL' : `${bytes.length} bytes`}`;
		check(`a value ${what} is read`, bytes === null ? found === null : bytes.equals(found));
		if (bytes === null)
			continue;
		const [row] = await source.query(
			`SELECT content::bytea AS stored, pg_typeof(content)::text AS type FROM ${table} WHERE id = $1`, [100 + id]);
		check(`a value ${what} is stored`, bytes.equals(row.stored) && row.type === 'blobstate');
		check(`a value ${what} is found`, (await documents.findOneBy({ content: bytes })).id === 100 + id);
	}
}

async function main() {
	const source = await open('orm_made', 'blobstate');
	await source.synchronize();
	await roundTrips(source, 'orm_made');
	check('synchronize() has nothing to do after it has made the table', (await plannedBy(source)).length === 0);
	await source.query("CREATE TABLE orm_found (id integer PRIMARY KEY, content blobstate)");
	await source.query("INSERT INTO orm_found VALUES (1, 'kept')");
	await source.destroy();

	const declared = await open('orm_found', 'blobstate');
	check('synchronize() leaves a column alone', (await plannedBy(declared)).length === 0);
	await declared.synchronize();
	await roundTrips(declared, 'orm_found');
	const [row] = await declared.query("SELECT content = 'kept'::bytea AS kept FROM orm_found WHERE id = 1");
	check('synchronize() keeps the content', row.kept);
	await declared.destroy();

	const undeclared = await open('orm_found', 'bytea');
	check('with bytea synchronize() would drop the column, as the document warns',
		(await plannedBy(undeclared)).includes('ALTER TABLE "orm_found" DROP COLUMN "content"'));
	await undeclared.destroy();
	process.exit(failures === 0 ? 0 : 1);
}

main().catch((error) => { console.error(error); process.exit(1); });
