// TypeORM: with "blobstate" among the types of its driver, synchronize() makes the column and leaves
// it alone.  With type "bytea" it would drop the column, which is the warning of docs/orms.md: if
// that fails, the warning is no longer true.
'use strict';
require('reflect-metadata');
const assert = require('node:assert');
const { DataSource, EntitySchema, In } = require('typeorm');
const { run, url } = require('./cases.js');

function open(type) {
	const Document = new EntitySchema({
		name: 'Document', tableName: 'document',
		columns: { id: { type: 'int', primary: true }, content: { type, nullable: true } },
	});
	const source = new DataSource({ type: 'postgres', url, entities: [Document] });
	if (type === 'blobstate')
		source.driver.supportedDataTypes.push('blobstate');
	return source.initialize();
}

const planned = async (source) => (await source.driver.createSchemaBuilder().log()).upQueries.map((query) => query.query);
const ids = async (found) => (await found).map((document) => document.id);
let source, documents;

run({
	async migrate() {
		source = await open('blobstate');
		documents = source.getRepository('Document');
		await source.synchronize();
	},
	changes: () => planned(source),
	insert: (id, content) => documents.insert({ id, content }),
	read: async (id) => (await documents.findOneBy({ id })).content,
	update: (id, content) => documents.save({ id, content }),
	equal: (content) => ids(documents.findBy({ content })),
	among: (list) => ids(documents.findBy({ content: In(list) })),
	ordered: () => ids(documents.find({ order: { content: 'ASC' } })),
	distinct: async () => (await documents.createQueryBuilder('d').select('count(DISTINCT d.content)', 'n').getRawOne()).n,
	noReflection: 'TypeORM makes no entities from tables',
}, async () => {
	assert((await planned(await open('bytea'))).includes('ALTER TABLE "document" DROP COLUMN "content"'),
		'with bytea synchronize() would drop the column');
	await source.synchronize();
});
