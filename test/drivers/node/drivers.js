// The matrix of test/run drivers for drivers of JavaScript.
//
//	node drivers.js node_postgres | postgres_js
//
// The server is that of PGHOST, PGPORT, PGUSER and PGDATABASE.  Values go in and come back bare, as
// Buffer, and are compared byte by byte.
'use strict';

const assert = require('node:assert');
const crypto = require('node:crypto');

class NodePostgres {
	async connect() {
		const pg = require('pg');
		this.Cursor = require('pg-cursor');
		this.client = new pg.Client();
		await this.client.connect();
	}
	async run(statement, ...parameters) {
		return (await this.client.query(statement, parameters)).rows;
	}
	async runNamed(statement, ...parameters) {
		return (await this.client.query({name: 'named', text: statement, values: parameters})).rows;
	}
	async *stream(statement) {
		const cursor = this.client.query(new this.Cursor(statement));
		for (let rows = await cursor.read(1); rows.length > 0; rows = await cursor.read(1))
			yield* rows;
		await cursor.close();
	}
	array(buffers) { return buffers; }
	close() { return this.client.end(); }
}

class PostgresJs {
	async connect() {
		this.sql = require('postgres')({host: process.env.PGHOST, max: 1, onnotice() {}});
	}
	run(statement, ...parameters) { return this.sql.unsafe(statement, parameters); }
	runNamed(statement, ...parameters) {
		return this.sql.unsafe(statement, parameters, {prepare: true});
	}
	async *stream(statement) {
		for await (const rows of this.sql.unsafe(statement).cursor(1))
			yield* rows;
	}
	array(buffers) { return this.sql.array(buffers, 1001); }
	close() { return this.sql.end(); }
}

const all = Buffer.from(Array.from({length: 256}, (_, i) => i));
const values = [Buffer.alloc(0), Buffer.from('\\'), Buffer.from('\\x4142'), Buffer.from('\\134\\\\'),
	all, Buffer.from([0]), Buffer.from([0xff, 0xfe, 0x5c]), Buffer.from('\'"{},'),
	Buffer.concat(Array(1000).fill(all)), crypto.randomBytes(10_000_000)];
const insert = 'INSERT INTO t (id, content) VALUES ($1, $2)';

function same(got, wanted, what) {
	assert(Buffer.isBuffer(got), `${what}: ${typeof got}`);
	assert(got.equals(wanted), `${what}: other bytes`);
}

async function insertAll(driver) {
	for (const [i, value] of values.entries())
		await driver.run(insert, i, value);
}

async function checkDigests(driver) {
	const rows = await driver.run("SELECT encode(sha256(content), 'hex') AS digest FROM t ORDER BY id");
	assert.deepStrictEqual(rows.map(row => row.digest),
		values.map(value => crypto.createHash('sha256').update(value).digest('hex')));
}

const tests = {
	async 'insert and select'(driver) {
		await insertAll(driver);
		await checkDigests(driver);
		const rows = await driver.run('SELECT content FROM t ORDER BY id');
		values.forEach((value, i) => same(rows[i].content, value, `value ${i}`));
	},
	async 'prepared'(driver) {
		await insertAll(driver);
		for (const [i, value] of values.entries())
			same((await driver.runNamed('SELECT content FROM t WHERE id = $1', i))[0].content, value,
				`value ${i}`);
	},
	async 'NULL'(driver) {
		await driver.run(insert, 1, null);
		assert.strictEqual((await driver.run('SELECT content FROM t'))[0].content, null);
	},
	async 'read, modify, write'(driver) {
		await insertAll(driver);
		for (const i of values.keys()) {
			const [row] = await driver.run('SELECT content FROM t WHERE id = $1', i);
			await driver.run('UPDATE t SET content = $1 WHERE id = $2', row.content, i);
		}
		await checkDigests(driver);
	},
	async '= $1'(driver) {
		await insertAll(driver);
		for (const [i, value] of values.entries()) {
			const rows = await driver.run('SELECT id FROM t WHERE content = $1', value);
			assert.deepStrictEqual(rows.map(row => row.id), [i]);
		}
	},
	async '= ANY ($1)'(driver) {
		await insertAll(driver);
		const rows = await driver.run('SELECT id FROM t WHERE content = ANY ($1) ORDER BY id',
			driver.array(values.slice(1, 9)));
		assert.deepStrictEqual(rows.map(row => row.id), [1, 2, 3, 4, 5, 6, 7, 8]);
	},
	async 'an array as result'(driver) {
		await insertAll(driver);
		const [row] = await driver.run(
			'SELECT array_agg(content ORDER BY id) AS a FROM t WHERE id < 9');
		values.slice(0, 9).forEach((value, i) => same(row.a[i], value, `element ${i}`));
	},
	async 'RETURNING'(driver) {
		for (const [i, value] of values.entries())
			same((await driver.run(insert + ' RETURNING content', i, value))[0].content, value,
				`value ${i}`);
	},
	async 'batch'(driver) {
		await Promise.all(values.map((value, i) => driver.run(insert, i, value)));
		await checkDigests(driver);
	},
	async 'stream'(driver) {
		await insertAll(driver);
		let i = 0;
		for await (const row of driver.stream('SELECT content FROM t ORDER BY id'))
			same(row.content, values[i], `value ${i++}`);
		assert.strictEqual(i, values.length);
	},
};

async function main() {
	const driver = new {node_postgres: NodePostgres, postgres_js: PostgresJs}[process.argv[2]]();
	await driver.connect();
	for (const [name, test] of Object.entries(tests)) {
		await driver.run('DROP TABLE IF EXISTS t');
		await driver.run('CREATE TABLE t (id integer PRIMARY KEY, content blobstate)');
		try {
			await test(driver);
			console.log(`ok - ${name}`);
		} catch (error) {
			console.log(`not ok - ${name}: ${String(error).slice(0, 300)}`);
			process.exitCode = 1;
		}
	}
	await driver.close();
}

main();
