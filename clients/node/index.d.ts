import { Readable, ReadableOptions, Writable, WritableOptions } from 'node:stream';
import { Client, Pool, PoolClient } from 'pg';

/** Where a value is. Names are spelled as in the catalog. */
export interface BlobValue {
  /** Without it the search path finds the table. */
  schema?: string;
  table: string;
  /** "content" by default. */
  column?: string;
  /** The columns of a primary key, with their values. */
  key: Record<string, string | number | bigint | boolean | Date>;
}

/** Size in bytes and SHA-256 (64 lower-case digits) of a value. */
export interface BlobSummary {
  size: number;
  sha256: string;
}

/** Errors of the server stay those of node-postgres, with SQLSTATE as code. */
export class BlobError extends Error {
  /**
   * - BLOB_MISSING: there is no such row, or its value is NULL.
   * - BLOB_CHANGED: another session has replaced or removed the value since it was opened.
   * - BLOB_MISMATCH: bytes that were stored or read have another digest than they should have.
   * - BLOB_UNEXPECTED: the extension is missing or older than this package, or the server's answer
   *   is none of blobext's.
   */
  code: 'BLOB_MISSING' | 'BLOB_CHANGED' | 'BLOB_MISMATCH' | 'BLOB_UNEXPECTED';
}

export interface ReadOptions extends ReadableOptions {
  /** Offset of the first byte. */
  start?: number;
  /** Offset of the last byte, as of fs.createReadStream(); may be beyond the end. */
  end?: number;
}

export interface WriteOptions extends WritableOptions {
  /** Number of bytes, as far as known: the server allocates extents side by side. */
  expected?: number;
}

export interface UploadOptions {
  /**
   * A row that keeps the beginning meanwhile; its table has the key and a column of type blobstate,
   * which is '' by default. The upload commits each 64 MB, and goes on there after a lost
   * connection, also in another process.
   */
  stage?: BlobValue;
  signal?: AbortSignal;
}

/** Reads one version of a value. */
export interface BlobReadStream extends Readable {
  /** Of the whole value; undefined until it is open. */
  readonly summary?: BlobSummary;
}

/**
 * A new value, in one transaction: end() stores it, in the row of the key or in a new one, and
 * destroy() gives it up.
 */
export interface BlobWriteStream extends Writable {
  /** What the server has stored; undefined until 'finish'. */
  readonly summary?: BlobSummary;
}

/**
 * One version of a value, at any positions. A read rejects with BLOB_CHANGED if another session
 * has replaced it meanwhile. Not for several reads at the same time.
 */
export interface BlobReader {
  readonly size: number;
  readonly sha256: string;
  /** Bytes from an offset on, fewer at the end. */
  read(offset: number, length: number): Promise<Buffer>;
  createReadStream(options?: ReadOptions): BlobReadStream;
  /** Gives the pool its client back. */
  close(): void;
}

export class Blobs {
  /**
   * With a pool each stream has a client of its own, and another one when that is lost. With a
   * client all is done in its transaction, if it is in one, and nothing is tried again.
   */
  constructor(source: Pool | PoolClient | Client);
  /** Size and digest, without a read of content. */
  stat(value: BlobValue): Promise<BlobSummary>;
  open(value: BlobValue): Promise<BlobReader>;
  createReadStream(value: BlobValue, options?: ReadOptions): BlobReadStream;
  createWriteStream(value: BlobValue, options?: WriteOptions): BlobWriteStream;
  /**
   * Stores content, and begins again, or goes on with the stage, after a lost connection.
   * `open` gives the content from its beginning, each time that it is called.
   */
  upload(value: BlobValue, open: () => AsyncIterable<Uint8Array | string>,
    options?: UploadOptions): Promise<BlobSummary>;
}
