// Knex: specificType() in migrations.
'use strict';
const { run, url } = require('./cases.js');
const knex = require('knex')({ client: 'pg', connection: url });

const migration = {
	name: '1',
	up: (builder) => builder.schema.createTable('document', (table) => {
		table.integer('id').primary();
		table.specificType('content', 'blobstate');
	}),
	down: (builder) => builder.schema.dropTable('document'),
};
const migrationSource = {
	getMigrations: async () => [migration],
	getMigrationName: (one) => one.name,
	getMigration: async (one) => one,
};

run({
	migrate: () => knex.migrate.latest({ migrationSource }),
	changes: async () => (await knex.migrate.list({ migrationSource }))[1],
	insert: (id, content) => knex('document').insert({ id, content }),
	read: async (id) => (await knex('document').where({ id }).first()).content,
	update: (id, content) => knex('document').where({ id }).update({ content }),
	equal: (content) => knex('document').where({ content }).pluck('id'),
	among: (list) => knex('document').whereIn('content', list).pluck('id'),
	ordered: () => knex('document').orderBy('content').pluck('id'),
	distinct: async () => (await knex('document').countDistinct('content as n'))[0].n,
	reflected: 'USER-DEFINED',
	reflect: async () => (await knex('document').columnInfo('content')).type,
});
