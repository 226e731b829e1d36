'use strict';

/** Values of the PostgreSQL extension blobext as streams; index.d.ts says what each does. */

const { createHash } = require('node:crypto');
const { readFileSync } = require('node:fs');
const { join } = require('node:path');
const { Readable, Writable } = require('node:stream');
const { setTimeout: pause } = require('node:timers/promises');
const { inspect } = require('node:util');

const ROW_BYTES = 128 * 1024;
const PIECE_BYTES = 128 * 1024;
const SECTION_BYTES = 64 * 1024 * 1024;
const LAST_PAUSE_MS = 30_000;
const LOST = new RegExp('^(08...|57P0[123]|ECONN(REFUSED|RESET|ABORTED)|EPIPE|ETIMEDOUT'
  + '|E(HOST|NET)UNREACH|EAI_AGAIN|ENOTFOUND|ERR_STREAM_DESTROYED)$');
const COPY_BEGIN = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');
const COPY_END = Buffer.from([0xff, 0xff]);

/** The statements for a value, and the values of its key as literals. */
const STATEMENTS = `SELECT s.*, ARRAY(SELECT pg_catalog.quote_literal(k)
    FROM pg_catalog.unnest($4::pg_catalog.text[]) AS k) AS key
  FROM (${readFileSync(join(__dirname, 'statements.sql'), 'utf8')}) AS s`;

class BlobError extends Error {
  constructor(code, message) {
    super(message);
    this.name = 'BlobError';
    this.code = code;
  }
}

const unexpected = (what) => new BlobError('BLOB_UNEXPECTED', what);
const quote = (name) => '"' + name.replaceAll('"', '""') + '"';
const int8 = (number) => `'${BigInt(number)}'`;

/** Terms for the parameters of a statement, because COPY has none. A name may have a "$1". */
const fill = (text, terms) => text.replace(/"(?:[^"]|"")*"|\$(\d+)/g,
  (found, number) => (number ? terms[number - 1] : found));

/**
 * V8 frees Buffers when its young heap is full, where one of any size has some 100 bytes. This
 * takes a part of the size of content there, so that Buffers are freed as fast as content comes.
 */
const weigh = (bytes) => new Array(Math.ceil(bytes / 12));

/** A COPY by node-postgres' interface for queries. */
class Copy {
  constructor(text) {
    this.text = text;
    this.began = new Promise((resolve) => { this.handleCopyInResponse = resolve; });
    this.done = new Promise((resolve, reject) => {
      this.handleReadyForQuery = resolve;
      this.handleError = reject;
    });
    this.done.catch((error) => { this.error = error; });
  }

  submit(connection) {
    this.connection = connection;
    connection.query(this.text);
  }

  /** The first message has the first row. Its memory is used again. */
  handleCopyData({ chunk }) { this.row ??= Buffer.from(chunk); }

  handleCommandComplete() {}

  handleRowDescription() {}

  /** Resolves when the socket has taken both. */
  async send(header, bytes) {
    const { stream } = this.connection;
    const problem = this.error ?? await new Promise((resolve) => {
      stream.cork();
      stream.write(header);
      stream.write(bytes, resolve);
      stream.uncork();
    });
    if (problem || this.error)
      await this.done;    // Rejects with the reason that node-postgres gives.
  }
}

/** A client of a pool, replaced when it is lost, unless a signal says no; or the caller's client. */
class Session {
  constructor(source, signal) {
    this.pool = 'totalCount' in source ? source : null;
    this.client = this.pool ? null : source;
    this.known = new Map();
    this.signal = signal;
    this.onError = () => { this.isLost = true; };
  }

  async open() {
    if (!this.client) {
      this.isLost = false;
      this.client = await this.pool.connect();
      this.client.on('error', this.onError);
    }
    return this.client;
  }

  /** Gives the pool its client back; one with an error is ended. */
  release(error) {
    this.known.clear();
    if (!this.pool || !this.client)
      return;
    this.client.off('error', this.onError);
    if (error || this.isLost)
      this.client.once('error', () => {});
    this.client.release(error || this.isLost);
    this.client = null;
  }

  /** Does work that may be done again, if a client of the pool is lost meanwhile. */
  async retry(work) {
    for (let milliseconds = 100; ; milliseconds *= 2) {
      try {
        return await work();
      } catch (error) {
        if (!this.pool || milliseconds > LAST_PAUSE_MS || !(LOST.test(error.code)
            || /^Connection terminated|not queryable/.test(error.message)))
          throw error;
        this.release(error);
      }
      await pause(milliseconds, undefined, { signal: this.signal });
    }
  }

  async query(text, values) { return (await (await this.open()).query(text, values)).rows; }

  async copy(text) { return (await this.open()).query(new Copy(text)); }

  async statements(value) {
    const { schema, table: name, key, column = 'content' } = value;
    if (!this.known.has(value)) {
      const table = (schema === undefined ? '' : quote(schema) + '.') + quote(name);
      const [names, values] = [Object.keys(key), Object.values(key)];
      if (names.length === 0 || values.some((each) => (each ?? null) === null))
        throw new TypeError('the key must have columns, and no null');
      const [found] = await this.query(STATEMENTS, [table, column, names, values]);
      if (!found)
        throw unexpected('the extension blobext is missing, or older than this package');
      this.known.set(value, found);
    }
    return this.known.get(value);
  }

  /** The first row that one of some statements for a value gives: a summary, one more column. */
  async first(value, names, ...own) {
    const statements = await this.statements(value);
    for (const name of names) {
      const terms = name === 'begin' ? own : [...statements.key, ...own];
      const [row] = await this.query({ text: fill(statements[name], terms), rowMode: 'array' });
      if (row && !(/^\d{1,15}$/.test(row[0]) && row[1]?.length === 32))
        throw unexpected("the server's answer is none of blobext's");
      if (row)
        return { size: Number(row[0]), sha256: row[1].toString('hex'), number: row[2] };
    }
    throw new BlobError('BLOB_MISSING', `${value.table} has no value of ${inspect(value.key)}`);
  }

  async run(value, name) {
    const statements = await this.statements(value);
    await this.query(fill(statements[name], statements.key));
  }

  /** Begins a transaction, or a savepoint in that of the caller's client; returns what ends it. */
  async begin() {
    await this.open();
    const isNested = !this.pool && await this.query('SAVEPOINT blobext').catch((error) => {
      if (error.code !== '25P01')    // It is in no transaction.
        throw error;
    });
    if (!isNested)
      await this.query('BEGIN');
    return {
      commit: () => this.query(isNested ? 'RELEASE blobext' : 'COMMIT'),
      rollBack: () => this.query(isNested ? 'ROLLBACK TO blobext; RELEASE blobext' : 'ROLLBACK')
        .catch((error) => this.release(error)),
    };
  }
}

const describe = ({ size, sha256 }) => ({ size, sha256 });
const isOf = ({ size, sha256 }, bytes, hash) => size === bytes
  && sha256 === hash.copy().digest('hex');

/** One upload of the server, in a transaction of its own. */
class Upload {
  constructor(session) {
    this.session = session;
    this.hash = createHash('sha256');
  }

  /** With a stage it goes on at the end of what that has; returns what that is. */
  async begin(value, expected, stage) {
    const { session } = this;
    const { pieces } = await session.statements(value);
    this.transaction = await session.begin();
    try {
      if (stage)
        await session.run(stage, 'stage');
      const beginning = stage ? await session.first(stage, ['resume'], int8(0))
        : await session.first(value, ['begin'], int8(expected));
      this.number = int8(beginning.number);
      this.header = Buffer.from('d....\0\x02\0\0\0\b........----', 'latin1');
      this.header.writeBigInt64BE(BigInt(beginning.number), 11);
      this.copy = await session.copy(pieces);
      await Promise.race([this.copy.began, this.copy.done]);
      this.copy.connection.sendCopyFromChunk(COPY_BEGIN);
      this.position = beginning.size;
      return beginning;
    } catch (error) {
      await this.discard();
      throw error;
    }
  }

  /** Adds bytes, in rows of COPY of a bounded size, each a message. */
  async write(bytes) {
    for (let at = 0; at < bytes.length; at += ROW_BYTES) {
      const piece = bytes.subarray(at, at + ROW_BYTES);
      this.header.writeInt32BE(piece.length + this.header.length - 1, 1);
      this.header.writeInt32BE(piece.length, 19);
      await this.copy.send(this.header, piece);
      this.hash.update(piece);
      this.weight = weigh(piece.length);
      this.position += piece.length;
    }
  }

  /** Stores the value in its row, or in a new one, and commits; a stage is removed then. */
  async store(value, stage) {
    if (this.copy.error)
      throw this.copy.error;
    this.copy.connection.sendCopyFromChunk(COPY_END);
    this.copy.connection.endCopyFrom();
    await this.copy.done;
    this.copy = null;
    const stored = await this.session.first(value, ['update', 'insert'], this.number);
    if (!isOf(stored, this.position, this.hash))
      throw new BlobError('BLOB_MISMATCH', 'the server has stored other bytes than were sent');
    if (stage)
      await this.session.run(stage, 'unstage');
    await this.transaction.commit();
    this.transaction = null;
    return describe(stored);
  }

  /** Gives the value up, unless it is stored. */
  async discard() {
    const { transaction, copy } = this;
    this.transaction = null;
    if (!transaction)
      return;
    if (copy?.connection && !copy.error)
      copy.connection.sendCopyFail('given up');
    await copy?.done.catch(() => {});
    await transaction.rollBack();
  }
}

/** One version of a value; reads go on after a lost connection. */
class BlobReader {
  constructor(source, value) {
    this.closing = new AbortController();
    this.session = new Session(source, this.closing.signal);
    this.value = value;
  }

  async open() {
    const found = await this.session.retry(() => this.session.first(this.value, ['stat']))
      .catch((error) => {
        this.close();
        throw error;
      });
    return Object.assign(this, describe(found));
  }

  async read(offset, length) {
    if (offset < 0 || length < 0)
      throw new RangeError('offset and length must not be negative');
    const pieces = [];
    for (let at = offset, end = Math.min(offset + length, this.size); at < end; at += PIECE_BYTES)
      pieces.push(await this.readPiece(at, end));
    return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
  }

  /** Up to an end, or of a bounded size. By COPY: node-postgres has no binary results. */
  readPiece(start, end) {
    const length = Math.min(PIECE_BYTES, end - start);
    return this.session.retry(async () => {
      const { read, key } = await this.session.statements(this.value);
      const content = fill(read, [...key, int8(start), int8(length), `'\\x${this.sha256}'`]);
      const copy = await this.session.copy(`COPY (${content}) TO STDOUT (FORMAT binary)`);
      await copy.done;
      if (copy.row?.length === COPY_BEGIN.length + COPY_END.length)
        throw new BlobError('BLOB_CHANGED', 'the value was replaced or removed meanwhile');
      if (copy.row?.length !== COPY_BEGIN.length + 2 + 4 + length)
        throw unexpected('the server does not give this range');
      this.weight = weigh(length);
      return copy.row.subarray(-length);
    });
  }

  createReadStream(options) { return new BlobReadStream(this, false, options); }

  close() {
    this.closing.abort();
    this.session.release();
  }
}

class BlobReadStream extends Readable {
  constructor(reader, isOwner, { start = 0, end = Infinity, ...options } = {}) {
    if (!(start >= 0 && end >= start - 1))
      throw new RangeError(`no range: ${start} to ${end}`);
    super({ highWaterMark: 2 * PIECE_BYTES, ...options });
    Object.assign(this, { reader, isOwner, position: start, end, hashed: 0 });
    this.hash = createHash('sha256');
  }

  _construct(callback) {
    this.pending = (async () => {
      this.summary = describe(this.isOwner ? await this.reader.open() : this.reader);
      this.end = Math.min(this.end + 1, this.summary.size);
    })();
    this.pending.then(() => callback(), callback);
  }

  _read() {
    this.pending = this.readNext();
    this.pending.then((piece) => this.push(piece), (error) => this.destroy(error));
  }

  async readNext() {
    const { reader, position, end, summary } = this;
    if (position >= end)
      return null;
    const piece = await reader.readPiece(position, end);
    this.position += piece.length;
    if (this.hashed === position) {
      this.hash.update(piece);
      this.hashed += piece.length;
      if (this.hashed === summary.size && this.hash.digest('hex') !== summary.sha256)
        throw new BlobError('BLOB_MISMATCH', 'what was read has another digest than the value');
    }
    return piece;
  }

  async _destroy(error, callback) {
    if (this.isOwner)
      this.reader.closing.abort();
    await Promise.resolve(this.pending).catch(() => {});
    if (this.isOwner)
      this.reader.close();
    callback(error);
  }
}

class BlobWriteStream extends Writable {
  constructor(session, value, { expected = 0, ...options } = {}) {
    super({ highWaterMark: 64 * 1024, ...options });
    Object.assign(this, { session, value, expected, upload: new Upload(session) });
  }

  /** What destroy() waits for. */
  run(work, callback) {
    this.pending = work.then(() => callback(), callback);
  }

  _construct(callback) { this.run(this.upload.begin(this.value, this.expected), callback); }

  _write(chunk, encoding, callback) { this.run(this.upload.write(chunk), callback); }

  _writev(chunks, callback) {
    this.run(this.upload.write(Buffer.concat(chunks.map((each) => each.chunk))), callback);
  }

  _final(callback) {
    const keep = (summary) => { this.summary = summary; };
    this.run(this.upload.store(this.value).then(keep), callback);
  }

  async _destroy(error, callback) {
    await this.pending;
    await this.upload.discard();
    this.session.release();
    callback(error);
  }
}

/** Content that is read from its beginning as often as needed, with the digest of what was read. */
class Input {
  constructor(open, signal) { Object.assign(this, { open, signal, isAtEnd: false }); }

  /** Goes to the end of what the server has, which must be the beginning of this content. */
  async goTo(beginning) {
    if (this.position !== beginning.size) {
      await this.close();
      this.iterator = this.open()[Symbol.asyncIterator]();
      Object.assign(this, { isAtEnd: false, position: 0, rest: Buffer.alloc(0) });
      this.hash = createHash('sha256');
      for (let piece; (piece = await this.read(beginning.size - this.position));)
        this.hash.update(piece);
    }
    if (!isOf(beginning, this.position, this.hash))
      throw new BlobError('BLOB_MISMATCH', 'the stage does not have the beginning of this content');
  }

  /** Some bytes, as many as limit at most; null at the end or without a limit. */
  async read(limit) {
    this.signal?.throwIfAborted();
    if (limit === 0)
      return null;
    while (this.rest.length === 0) {
      const { done, value } = await this.iterator.next();
      this.isAtEnd = done;
      if (done)
        return null;
      this.rest = Buffer.from(value.buffer ?? value, value.byteOffset, value.byteLength);
    }
    const piece = this.rest.subarray(0, limit);
    this.rest = this.rest.subarray(limit);
    this.position += piece.length;
    return piece;
  }

  async close() { await this.iterator?.return?.(); }
}

class Blobs {
  constructor(source) { this.source = source; }

  async stat(value) {
    const reader = await this.open(value);
    reader.close();
    return describe(reader);
  }

  open(value) { return new BlobReader(this.source, value).open(); }

  createReadStream(value, options) {
    return new BlobReadStream(new BlobReader(this.source, value), true, options);
  }

  createWriteStream(value, options) {
    return new BlobWriteStream(new Session(this.source), value, options);
  }

  /** With a stage: a section that does not reach the end goes into that, the last into the row. */
  async upload(value, open, { stage, signal } = {}) {
    const session = new Session(this.source, signal);
    const input = new Input(open, signal);
    const send = async () => {
      const upload = new Upload(session);
      try {
        await input.goTo(await upload.begin(value, 0, stage));
        upload.hash = input.hash;
        const limit = stage ? SECTION_BYTES : Infinity;
        for (let left = limit, piece; (piece = await input.read(left)); left -= piece.length)
          await upload.write(piece);
        return await (input.isAtEnd ? upload.store(value, stage) : upload.store(stage));
      } finally {
        await upload.discard();
      }
    };
    try {
      let stored;
      do
        stored = await session.retry(send);
      while (!input.isAtEnd);
      return stored;
    } finally {
      await input.close();
      session.release();
    }
  }
}

module.exports = { BlobError, Blobs };
