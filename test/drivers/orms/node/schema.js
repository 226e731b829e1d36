// The schema of Drizzle, which drizzle-kit reads, too.
'use strict';
const { customType, integer, pgTable } = require('drizzle-orm/pg-core');

const blobstate = customType({ dataType: () => 'blobstate' });
exports.document = pgTable('document', { id: integer('id').primaryKey(), content: blobstate('content') });
