'use strict';

/** Values of the PostgreSQL extension blobext as streams; index.d.ts says what each does. */

const { createHash } = require('node:crypto');
const { Readable, Writable } = require('node:stream');
const { BlobError, Session, unexpected } = require('./session.js');

const PIECE_BYTES = 4 * 1024 * 1024;
const ROW_BYTES = 256 * 1024;
const SECTION_BYTES = 64 * 1024 * 1024;

const changed = () => new BlobError('BLOB_CHANGED',
  'the value was replaced or removed since it was opened');

/** One upload of the server, in a transaction of its own. */
class Upload {
  constructor(session, value) {
    this.session = session;
    this.value = value;
    this.position = 0;
    this.hash = createHash('sha256');
  }

  /** Resuming goes on at the end of the value that the row has; returns what that is. */
  async begin(expected, resumes) {
    const { session, value } = this;
    this.transaction = await session.begin();
    try {
      const { m, content, table, where } = await session.row(value);
      const beginning = resumes ? await session.stat(value, ' FOR UPDATE')
        : { size: 0, sha256: this.hash.copy().digest('hex') };
      const call = resumes ? `${m.blob_upload_resume}(${content}, ` : `${m.blob_upload_begin}(`;
      const [row] = await session.query(`SELECT (${call}$1::pg_catalog.int8))::pg_catalog.text
          AS number` + (resumes ? ` FROM ${table} WHERE ${where}` : ''), [expected]);
      this.end = `${m.blob_upload_end}(${BigInt(row.number)}::pg_catalog.int8)`;
      this.copy = await session.copy(`COPY ${m.blob_upload_pieces} FROM STDIN (FORMAT binary)`);
      await this.copy.began;
      this.rowHeader = Buffer.alloc(18);
      this.rowHeader.writeInt16BE(2, 0);
      this.rowHeader.writeInt32BE(8, 2);
      this.rowHeader.writeBigInt64BE(BigInt(row.number), 6);
      await this.send([Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')], 19);
      this.position = beginning.size;
      return beginning;
    } catch (error) {
      await this.discard();
      throw error;
    }
  }

  async send(buffers, length) {
    try {
      if (!this.copy.error)
        await this.copy.send(buffers, length);
    } catch (error) {
      await this.copy.done;    // The reason that node-postgres gives.
      throw error;
    }
    if (this.copy.error)
      throw this.copy.error;
  }

  /** Adds bytes, in rows of COPY of a bounded size. */
  async write(bytes) {
    for (let at = 0; at < bytes.length; at += ROW_BYTES) {
      const piece = bytes.subarray(at, at + ROW_BYTES);
      this.rowHeader.writeInt32BE(piece.length, 14);
      await this.send([this.rowHeader, piece], 18 + piece.length);
      this.hash.update(piece);
      this.position += piece.length;
    }
  }

  /** Stores the value in its row, or in a new one, and commits. */
  async store() {
    await this.send([Buffer.from([0xff, 0xff])], 2);
    this.copy.connection.endCopyFrom();
    await this.copy.done;
    this.copy = null;
    const stored = await this.session.put(this.value, this.end);
    if (stored?.size !== this.position || stored.sha256 !== this.hash.copy().digest('hex'))
      throw new BlobError('BLOB_MISMATCH', 'the server has stored other bytes than were sent');
    await this.transaction.commit();
    this.transaction = null;
    return stored;
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
  constructor(session, value, summary) {
    Object.assign(this, { session, value, size: summary.size, sha256: summary.sha256 });
  }

  async read(offset, length) {
    if (offset < 0 || length < 0)
      throw new RangeError('offset and length must not be negative');
    const end = Math.min(offset + length, this.size);
    const pieces = [];
    for (let at = offset; at < end; at += PIECE_BYTES)
      pieces.push(await this.readPiece(at, Math.min(PIECE_BYTES, end - at)));
    return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
  }

  /** By COPY, because node-postgres has no binary results; rows with offset and content. */
  readPiece(offset, length) {
    return this.session.retry(async () => {
      const { m, content, table, where } = await this.session.row(this.value);
      const piece = Buffer.allocUnsafeSlow(length);
      let isFirst = true;
      let size = 0;
      const take = (message) => {
        const row = message.subarray(isFirst ? 11 + 4 + 4 : 0);
        isFirst = false;
        if (row.readInt16BE(0) === -1)    // The end.
          return;
        const header = 2 + 4 + 8 + 4;
        if (row.readBigInt64BE(2 + 4) !== BigInt(offset + size)
            || row.length - header !== Math.min(ROW_BYTES, length - size))
          throw unexpected('the server does not give this range');
        size += row.copy(piece, size, header);
      };
      const copy = await this.session.copy(`COPY (SELECT blobext_offset,
          ${m.blob_read}(${content}, blobext_offset, pg_catalog.int8smaller(${ROW_BYTES},
            ${BigInt(offset + length)} OPERATOR(pg_catalog.-) blobext_offset))
        FROM ${table}, pg_catalog.generate_series(${BigInt(offset)}::pg_catalog.int8,
          ${BigInt(offset + length - 1)}::pg_catalog.int8, ${ROW_BYTES}::pg_catalog.int8)
          AS blobext_series (blobext_offset)
        WHERE ${where} AND ${m.sha256}(${content}) OPERATOR(pg_catalog.=)
          pg_catalog.decode('${this.sha256}', 'hex')) TO STDOUT (FORMAT binary)`, take);
      await copy.done;
      if (copy.problem)
        throw copy.problem;
      if (size === 0)
        throw changed();
      if (size !== length)
        throw unexpected(`the server gives ${size} bytes in place of ${length}`);
      return piece;
    });
  }

  createReadStream(options) { return new BlobReadStream(async () => this, null, options); }

  close() { this.session.close(); }
}

async function openReader(source, value, closing) {
  const session = new Session(source, closing);
  try {
    return new BlobReader(session, value, await session.retry(() => session.stat(value)));
  } catch (error) {
    session.close();
    throw error;
  }
}

class BlobReadStream extends Readable {
  /** Closing is set if the reader is this stream's own: it ends the attempts to connect again. */
  constructor(open, closing, { start = 0, end = Infinity, ...options } = {}) {
    if (!(start >= 0 && end >= start - 1))
      throw new RangeError(`no range: ${start} to ${end}`);
    super({ highWaterMark: PIECE_BYTES, ...options });
    Object.assign(this, { open, closing, position: start, end, hashed: 0 });
    this.hash = createHash('sha256');
  }

  _construct(callback) {
    this.pending = this.open().then((reader) => {
      this.reader = reader;
      this.summary = { size: reader.size, sha256: reader.sha256 };
      this.end = Math.min(this.end + 1, reader.size);
    });
    this.pending.then(() => callback(), callback);
  }

  _read() {
    this.pending = this.readNext();
    this.pending.then((piece) => this.push(piece), (error) => this.destroy(error));
  }

  async readNext() {
    const { position, end, summary } = this;
    if (position >= end)
      return null;
    const piece = await this.reader.readPiece(position, Math.min(PIECE_BYTES, end - position));
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
    this.closing?.abort();
    await Promise.resolve(this.pending).catch(() => {});
    if (this.closing)
      this.reader?.close();
    callback(error);
  }
}

class BlobWriteStream extends Writable {
  constructor(session, value, { expected = 0, ...options } = {}) {
    super({ highWaterMark: 256 * 1024, ...options });
    Object.assign(this, { session, expected, upload: new Upload(session, value) });
  }

  /** What destroy() waits for. */
  run(work, callback) {
    this.pending = work.then(() => callback(), callback);
  }

  _construct(callback) { this.run(this.upload.begin(this.expected, false), callback); }

  _write(chunk, encoding, callback) { this.run(this.upload.write(chunk), callback); }

  _writev(chunks, callback) {
    this.run(this.upload.write(Buffer.concat(chunks.map((each) => each.chunk))), callback);
  }

  _final(callback) {
    this.run(this.upload.store().then((summary) => { this.summary = summary; }), callback);
  }

  async _destroy(error, callback) {
    await this.pending;
    await this.upload.discard();
    this.session.close();
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
    if (this.position !== beginning.size || this.hash.copy().digest('hex') !== beginning.sha256)
      throw new BlobError('BLOB_MISMATCH', 'the stage does not have the beginning of this content');
  }

  /** Some bytes, as many as limit at most; null at the end or without a limit. */
  async read(limit) {
    this.signal?.throwIfAborted();
    if (limit === 0)
      return null;
    while (this.rest.length === 0) {
      const { done, value } = await this.iterator.next();
      if (done) {
        this.isAtEnd = true;
        return null;
      }
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
    const session = new Session(this.source);
    try {
      return await session.retry(() => session.stat(value));
    } finally {
      session.close();
    }
  }

  open(value) { return openReader(this.source, value, new AbortController()); }

  createReadStream(value, options) {
    const closing = new AbortController();
    return new BlobReadStream(() => openReader(this.source, value, closing), closing, options);
  }

  createWriteStream(value, options) {
    return new BlobWriteStream(new Session(this.source), value, options);
  }

  async upload(value, open, { stage, signal } = {}) {
    const session = new Session(this.source);
    const input = new Input(open, signal);
    const abort = () => session.closing.abort();
    signal?.addEventListener('abort', abort);
    const send = async (target, resumes, limit) => {
      const upload = new Upload(session, target);
      try {
        await input.goTo(await upload.begin(0, resumes));
        upload.hash = input.hash;
        for (let left = limit, piece; (piece = await input.read(left)); left -= piece.length)
          await upload.write(piece);
        return await upload.store();
      } finally {
        await upload.discard();
      }
    };
    try {
      if (!stage)
        return await session.retry(() => send(value, false, Infinity));
      let staged;
      do {
        staged = await session.retry(async () => {
          const { table, names, values } = await session.row(stage);
          await session.query(`INSERT INTO ${table} (${names}) VALUES (${values})
            ON CONFLICT DO NOTHING`);
          return send(stage, true, SECTION_BYTES);
        });
      } while (!input.isAtEnd);
      return await session.retry(() => move(session, stage, value, staged));
    } finally {
      signal?.removeEventListener('abort', abort);
      await input.close();
      session.close();
    }
  }
}

/** Gives a staged value to its row. If the stage is gone, that was committed before. */
async function move(session, stage, value, staged) {
  const transaction = await session.begin();
  try {
    const { table, where, summary, content } = await session.row(stage);
    const from = ` FROM ${table} WHERE ${where}`;
    const isThere = await session.summary(`SELECT ${summary}${from} FOR UPDATE`);
    const stored = isThere ? await session.put(value, `(SELECT ${content}${from})`)
      : await session.stat(value);
    if (stored?.size !== staged.size || stored.sha256 !== staged.sha256)
      throw new BlobError('BLOB_MISMATCH', 'the row has another value than was uploaded');
    await session.query(`DELETE${from}`);
    await transaction.commit();
    return stored;
  } catch (error) {
    await transaction.rollBack();
    throw error;
  }
}

module.exports = { BlobError, Blobs };
