// Kysely: the type in migrations by sql`blobstate`, a Buffer in the interface of the table.
'use strict';
const { Kysely, Migrator, PostgresDialect, sql } = require('kysely');
const { Pool } = require('pg');
const { run, url } = require('./cases.js');

const db = new Kysely({ dialect: new PostgresDialect({ pool: new Pool({ connectionString: url }) }) });
const migrator = new Migrator({
	db,
	provider: {
		getMigrations: async () => ({
			1: {
				up: (kysely) => kysely.schema.createTable('document').addColumn('id', 'integer', (column) => column.primaryKey())
					.addColumn('content', sql`blobstate`).execute(),
			},
		}),
	},
});
const ids = async (query) => (await query.select('id').execute()).map((row) => row.id);
const documents = () => db.selectFrom('document');

run({
	async migrate() {
		const { error } = await migrator.migrateToLatest();
		if (error)
			throw error;
	},
	changes: async () => (await migrator.getMigrations()).filter((migration) => !migration.executedAt),
	insert: (id, content) => db.insertInto('document').values({ id, content }).execute(),
	read: async (id) => (await documents().selectAll().where('id', '=', id).executeTakeFirst()).content,
	update: (id, content) => db.updateTable('document').set({ content }).where('id', '=', id).execute(),
	equal: (content) => ids(documents().where('content', '=', content)),
	among: (list) => ids(documents().where('content', 'in', list)),
	ordered: () => ids(documents().orderBy('content')),
	distinct: async () => (await documents().select((eb) => eb.fn.count('content').distinct().as('n')).executeTakeFirst()).n,
	reflected: 'blobstate',
	reflect: async () => (await db.introspection.getTables()).find((table) => table.name === 'document')
		.columns.find((column) => column.name === 'content').dataType,
});
