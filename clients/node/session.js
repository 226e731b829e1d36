'use strict';

/** A client of node-postgres, and the statements for values. */

const { setTimeout: pause } = require('node:timers/promises');
const { inspect } = require('node:util');

const PAUSES = [100, 500, 1000, 2000, 5000, 10000, 20000, 30000];
const NETWORK_ERRORS = new Set(['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT',
  'EHOSTUNREACH', 'ENETUNREACH', 'EAI_AGAIN', 'ENOTFOUND', 'ERR_STREAM_DESTROYED']);

/** No operator of the search path is called. */
const sql = (text) => text.replaceAll(' = ', ' OPERATOR(pg_catalog.=) ');

const MEMBERS = sql(`
  SELECT i.identity FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid AND d.deptype = 'e'
      AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS i
  WHERE e.extname = 'blobext'`);
const WANTED = ['.blobstate', '.length(TYPE)', '.sha256(TYPE)', '.blob_read(TYPE,bigint,bigint)',
  '.blob_upload_begin(bigint)', '.blob_upload_resume(TYPE,bigint)', '.blob_upload_end(bigint)',
  '.blob_upload_pieces'];

/** For each column of a key: its name, its equality, its value as a literal of its type. */
const KEY = sql(`
  WITH RECURSIVE base (name, type) AS (
    SELECT a.attname, a.atttypid FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = $1::pg_catalog.text::pg_catalog.regclass::pg_catalog.oid
      AND NOT a.attisdropped
    UNION ALL SELECT b.name, t.typbasetype FROM base AS b
      JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype = 'd')
  SELECT pg_catalog.format('%I', b.name) AS name, pg_catalog.format('OPERATOR(%I.%s)',
      COALESCE(n.nspname, 'pg_catalog'), COALESCE(o.oprname, '=')) AS equals,
    pg_catalog.format('%L::%I.%I', k.value, s.nspname, t.typname) AS value
  FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]),
      pg_catalog.unnest($3::pg_catalog.text[])) AS k (name, value)
    JOIN base AS b ON b.name = k.name
    JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typbasetype = 0::pg_catalog.oid
    JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_opclass AS c ON c.opcintype = t.oid AND c.opcdefault
      AND c.opcmethod = 403::pg_catalog.oid
    LEFT JOIN pg_catalog.pg_amop AS a ON a.amopfamily = c.opcfamily
      AND a.amopstrategy = 3::pg_catalog.int2 AND a.amoplefttype = t.oid
      AND a.amoprighttype = t.oid
    LEFT JOIN pg_catalog.pg_operator AS o ON o.oid = a.amopopr
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace`);

class BlobError extends Error {
  constructor(code, message) {
    super(message);
    this.name = 'BlobError';
    this.code = code;
  }
}

const unexpected = (what) => new BlobError('BLOB_UNEXPECTED', what);
const quote = (name) => '"' + name.replaceAll('"', '""') + '"';
const isLost = (error) => NETWORK_ERRORS.has(error.code) || /^(08...|57P0[123])$/.test(error.code)
  || /^Connection terminated|not queryable/.test(error.message);

/** A COPY by node-postgres' interface for queries. */
class Copy {
  constructor(text, take) {
    this.text = text;
    this.take = take;
    this.began = new Promise((resolve) => { this.begin = resolve; });
    this.done = new Promise((resolve, reject) => { this.resolve = resolve; this.reject = reject; });
    this.done.catch((error) => { this.error = error; this.begin(); });
  }

  submit(connection) { connection.query(this.text); }

  handleCopyInResponse(connection) {
    this.connection = connection;
    this.begin();
  }

  handleCopyData(message) {
    try {
      this.take(message.chunk);
    } catch (error) {
      this.problem ??= error;
    }
  }

  handleError(error) { this.reject(error); }

  handleReadyForQuery() { this.resolve(); }

  handleCommandComplete() {}

  handleRowDescription() {}

  /** Resolves when the socket has taken these buffers, as one message. */
  send(buffers, length) {
    const { stream } = this.connection;
    const header = Buffer.alloc(5, 'd');
    header.writeInt32BE(length + 4, 1);
    return new Promise((resolve, reject) => {
      stream.cork();
      [header, ...buffers.slice(0, -1)].forEach((buffer) => stream.write(buffer));
      stream.write(buffers.at(-1), (error) => (error ? reject(error) : resolve()));
      stream.uncork();
    });
  }
}

/** A client of a pool, replaced when it is lost; or the caller's client. */
class Session {
  constructor(source, closing = new AbortController()) {
    this.pool = 'totalCount' in source ? source : null;
    this.client = this.pool ? null : source;
    this.rows = new Map();
    this.closing = closing;
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
    this.members = undefined;
    this.rows.clear();
    if (!this.pool || !this.client)
      return;
    this.client.off('error', this.onError);
    if (error || this.isLost)
      this.client.once('error', () => {});
    this.client.release(error || this.isLost);
    this.client = null;
  }

  close() {
    this.closing.abort();
    this.release();
  }

  /** Does work that may be done again, if a client of the pool is lost meanwhile. */
  async retry(work) {
    for (let attempt = 0; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        if (!this.pool || attempt === PAUSES.length || !isLost(error))
          throw error;
        this.release(error);
      }
      await pause(PAUSES[attempt], undefined, { signal: this.closing.signal });
    }
  }

  async query(text, values) {
    return (await (await this.open()).query(text, values)).rows;
  }

  async copy(text, take) {
    const copy = new Copy(text, take);
    (await this.open()).query(copy);
    return copy;
  }

  /** Qualified names of the extension's objects. Others of these names count for nothing. */
  async findMembers() {
    const found = (await this.query(MEMBERS)).map((row) => row.identity);
    const members = {};
    for (const wanted of WANTED) {
      const end = wanted.replace('TYPE', members.blobstate);
      const identity = found.find((candidate) => candidate.endsWith(end));
      if (!identity)
        throw unexpected(`blobext is missing, or older than this package: no ${wanted.slice(1)}`);
      const [name, args] = /^\.(\w+)(.*)$/s.exec(end).slice(1);
      members[name] = identity.slice(0, identity.length - args.length);
    }
    return members;
  }

  /** Parts of statements for a value; all that is not the caller's own is qualified. */
  async row(value) {
    this.members ??= await this.findMembers();
    const { members: m } = this;
    const { schema, table: name, key, column = 'content' } = value;
    if (!this.rows.has(value)) {
      const table = (schema === undefined ? '' : quote(schema) + '.') + quote(name);
      const names = Object.keys(key);
      if (names.length === 0 || Object.values(key).some((each) => (each ?? null) === null))
        throw new TypeError('the key must have columns, and no null');
      const columns = await this.query(KEY, [table, names, Object.values(key)]);
      if (columns.length !== names.length)
        throw Object.assign(new Error(`not all columns of the key exist: ${names}`),
          { code: '42703' });
      const content = `(${quote(column)})::${m.blobstate}`;
      this.rows.set(value, {
        m, table, content, column: quote(column),
        summary: `${m.length}(${content})::pg_catalog.text AS size,
          ${m.sha256}(${content}) AS sha256`,
        names: columns.map((each) => each.name).join(', '),
        values: columns.map((each) => each.value).join(', '),
        where: columns.map((each) => `${each.name} ${each.equals} ${each.value}`).join(' AND '),
      });
    }
    return this.rows.get(value);
  }

  /** Size and digest of a statement's first row; undefined without a value. */
  async summary(text) {
    const [row] = await this.query(text);
    if (!row || row.size === null)
      return undefined;
    if (!/^\d{1,15}$/.test(row.size) || row.sha256?.length !== 32)
      throw unexpected("the server's answer is none of blobext's");
    return { size: Number(row.size), sha256: Buffer.from(row.sha256).toString('hex') };
  }

  async stat(value, suffix = '') {
    const { summary, table, where } = await this.row(value);
    const found = await this.summary(`SELECT ${summary} FROM ${table} WHERE ${where}${suffix}`);
    if (!found)
      throw new BlobError('BLOB_MISSING', `${value.table} has no value of ${inspect(value.key)}`);
    return found;
  }

  /** Gives a row a value, or makes the row. */
  async put(value, content) {
    const { table, column, where, names, values, summary } = await this.row(value);
    return await this.summary(`UPDATE ${table} SET ${column} = ${content} WHERE ${where}
        RETURNING ${summary}`)
      ?? this.summary(`INSERT INTO ${table} (${names}, ${column}) VALUES (${values}, ${content})`
        + ` RETURNING ${summary}`);
  }

  /** Begins a transaction, or a savepoint in that of the caller's client; returns what ends it. */
  async begin() {
    await this.open();
    const isNested = !this.pool && await this.query('SAVEPOINT blobext').then(() => true,
      (error) => {
        if (error.code !== '25P01')    // It is in no transaction.
          throw error;
        return false;
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

module.exports = { BlobError, Session, unexpected };
