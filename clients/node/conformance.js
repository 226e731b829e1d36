'use strict';

/** The adapter of this package for clients/conformance, whose README.md says what it does. */

const { createHash } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const readline = require('node:readline');
const { pipeline } = require('node:stream/promises');
const { Pool } = require('pg');
const { Blobs } = require('./index.js');

const SCHEMA = 'Odd "Schema"';
const KINDS = {
  BLOB_MISSING: 'missing', BLOB_CHANGED: 'changed', BLOB_MISMATCH: 'mismatch',
  BLOB_UNEXPECTED: 'unexpected',
};
const LOST = /^(08...|57P0[123]|ECONNRESET|EPIPE|ECONNREFUSED)$/;

const pool = new Pool();    // by PGHOST, PGPORT, ..., PGAPPNAME
pool.on('error', () => {});    // A connection that is lost while it is idle.
const blobs = new Blobs(pool);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const print = (...fields) => process.stdout.write(fields.join('\t') + '\n');
const value = (id) => ({
  schema: SCHEMA, table: 'Odd Name', column: 'my content', key: { id: BigInt(id), Kind: "a'b" },
});
const describe = ({ size, sha256 }) => [size, sha256];
const digest = (bytes) => [bytes.length, createHash('sha256').update(bytes).digest('hex')];

/** Passes bytes on, and pauses where the script wants it. */
function pauseAt(where, controller) {
  let total = 0;
  let at = where === '-' ? Infinity : Number(where);
  return async function* pass(source) {
    for await (const chunk of source) {
      yield chunk;
      total += chunk.length;
      if (total < at)
        continue;
      at = Infinity;
      print('paused');
      if ((await lines.next()).value === 'cancel') {
        controller.abort();
        controller.signal.throwIfAborted();
      }
    }
  };
}

let reader;
let position = 0;
const commands = {
  async stat(id) { return describe(await blobs.stat(value(id))); },

  async open(id) {
    reader = await blobs.open(value(id));
    position = 0;
    return [reader.size];
  },

  async seek(offset, whence) {
    const to = Number(offset) + { start: 0, current: position, end: reader.size }[whence];
    reader.createReadStream({ start: to }).destroy();    // which says whether it is a position
    position = to;
    return [position];
  },

  async next(length) {
    const hash = createHash('sha256');
    let count = 0;
    const stream = reader.createReadStream({ start: position, end: position + Number(length) - 1 });
    for await (const piece of stream) {
      hash.update(piece);
      count += piece.length;
    }
    position += count;
    return [count, hash.digest('hex')];
  },

  async close() {
    reader.close();
    return [];
  },

  async range(id, offset, length) {
    const range = await blobs.open(value(id));
    try {
      return digest(await range.read(Number(offset), Number(length)));
    } finally {
      range.close();
    }
  },

  async download(id, path, where) {
    const controller = new AbortController();
    const source = blobs.createReadStream(value(id));
    await new Promise((resolve, reject) => {    // There is no file if there is no value.
      source.once('readable', resolve).once('error', reject);
    });
    const file = fs.createWriteStream(path);
    const closed = once(file, 'close');    // Until then a write may be under way.
    try {
      await pipeline(source, pauseAt(where, controller), file, { signal: controller.signal });
    } finally {
      await closed;
    }
    return describe(source.summary);
  },

  async write(id, path, where) {
    const controller = new AbortController();
    const target = blobs.createWriteStream(value(id), { expected: fs.statSync(path).size });
    await pipeline(fs.createReadStream(path), pauseAt(where, controller), target,
      { signal: controller.signal });
    return describe(target.summary);
  },

  async upload(id, path, stage, where) {
    const controller = new AbortController();
    const pass = pauseAt(where, controller);
    const row = { schema: SCHEMA, table: 'blob_stage', key: { name: stage } };
    return describe(await blobs.upload(value(id), () => pass(fs.createReadStream(path)),
      { signal: controller.signal, stage: stage === '-' ? undefined : row }));
  },
};

async function main() {
  for (let line; !(line = await lines.next()).done;) {
    const [name, ...fields] = line.value.split('\t');
    try {
      print(...(Object.hasOwn(commands, name) ? ['ok', ...await commands[name](...fields)]
        : ['error', 'unknown']));
    } catch (error) {
      const isServer = /^(?=.*[0-9])[0-9A-Z]{5}$/.test(error.code);
      print('error', error.name === 'AbortError' ? 'cancelled'
        : error instanceof RangeError ? 'position'
          : KINDS[error.code] ?? (LOST.test(error.code) || /^Connection term/.test(error.message)
            ? 'lost' : 'server'), isServer ? error.code : '-', error.message.replace(/\s+/g, ' '));
    }
  }
  await pool.end();
}

main();
