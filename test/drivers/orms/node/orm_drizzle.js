// Drizzle: a type of one's own in schema.js; drizzle-kit makes the migrations from it.
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const { countDistinct, eq, inArray } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { migrate } = require('drizzle-orm/node-postgres/migrator');
const { run, url } = require('./cases.js');
const { document } = require('./schema.js');

const db = drizzle(url);
const made = fs.mkdtempSync(`${__dirname}/drizzle-`);
const kit = (...words) => execFileSync(process.execPath, [`${__dirname}/node_modules/.bin/drizzle-kit`, ...words], { cwd: __dirname, encoding: 'utf8' });
const generate = () => kit('generate', '--dialect', 'postgresql', '--schema', 'schema.js', '--out', made.slice(__dirname.length + 1));
const ids = async (query) => (await query).map((row) => row.id);
const select = () => db.select({ id: document.id }).from(document);

run({
	async migrate() {
		generate();
		await migrate(db, { migrationsFolder: made });
	},
	changes: async () => (generate().includes('nothing to migrate') ? [] : ['?']),
	insert: (id, content) => db.insert(document).values({ id, content }),
	read: async (id) => (await db.select().from(document).where(eq(document.id, id)))[0].content,
	update: (id, content) => db.update(document).set({ content }).where(eq(document.id, id)),
	equal: (content) => ids(select().where(eq(document.content, content))),
	among: (list) => ids(select().where(inArray(document.content, list))),
	ordered: () => ids(select().orderBy(document.content)),
	distinct: async () => (await db.select({ n: countDistinct(document.content) }).from(document))[0].n,
	reflected: 'content: unknown("content")',
	async reflect() {
		kit('pull', '--dialect', 'postgresql', '--url', url, '--out', `${made.slice(__dirname.length + 1)}/pulled`);
		return /content: [^,]*/.exec(fs.readFileSync(`${made}/pulled/schema.ts`, 'utf8'))[0];
	},
});
