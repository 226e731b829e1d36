// The cases of test/drivers/orms/README.md for ORMs of Node.js.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');

exports.url = `postgresql://${process.env.PGUSER}@${process.env.PGHOST}:${process.env.PGPORT}/${process.env.PGDATABASE}`;

// Objects of an ORM have the methods that are called here; changes() and reflect() may be missing.
async function cases(orm) {
	const directory = process.env.ORM_VALUES;
	const contents = new Map(fs.readdirSync(directory).map(Number).sort((a, b) => a - b)
		.map((id) => [id, fs.readFileSync(path.join(directory, String(id)))]));
	const last = contents.size;
	const ids = [...contents.keys()];
	const check = async (name, got, wanted) => {
		assert.deepStrictEqual(await got, wanted, name);
		console.log(`ok - ${name}`);
	};
	// As bytes, whatever kind of array the ORM gives.
	const bytes = (value) => {
		assert(value instanceof Uint8Array, `bytes, not ${typeof value}`);
		return Buffer.from(value);
	};
	const allRight = async () => {
		for (const [id, value] of contents)
			if (!value.equals(bytes(await orm.read(id))))
				return id;
		return 'all';
	};

	await orm.migrate();
	if (orm.changes)
		await check('migrate', orm.changes(), []);
	else
		console.log(`left out - migrate: ${orm.noMigration}`);
	for (const [id, value] of contents)
		await orm.insert(id, value);
	await orm.insert(last + 1, null);
	await check('insert and read', allRight(), 'all');
	await check('NULL', orm.read(last + 1), null);
	for (const id of ids) {
		await orm.update(id, Buffer.concat([await orm.read(id), Buffer.from('\\')]));
		await orm.update(id, bytes(await orm.read(id)).subarray(0, -1));
	}
	await check('update', allRight(), 'all');
	const found = [];
	for (const value of contents.values())
		found.push(...await orm.equal(value));
	await check('=', found, ids);
	await check('IN', (await orm.among([contents.get(1), contents.get(last), Buffer.from('none')])).sort(), [1, last]);
	await check('ORDER BY', orm.ordered(), [...ids, last + 1]);
	await orm.insert(last + 2, contents.get(last));
	await check('count distinct', orm.distinct().then(Number), last);
	if (orm.reflect)
		await check('reflect', orm.reflect(), orm.reflected);
	else
		console.log(`left out - reflect: ${orm.noReflection}`);
}

exports.run = (orm, then = () => {}) => cases(orm).then(then).then(() => process.exit(0), (error) => {
	console.log(`not ok - ${String(error.stack ?? error).slice(0, 1000)}`);
	process.exit(1);
});
