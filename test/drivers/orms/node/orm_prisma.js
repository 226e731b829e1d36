// Prisma's client with a driver adapter, which needs no engine but that in its package: Bytes in
// prisma/schema.prisma.  Its migrations come with a program from a host of its own.
'use strict';
const { execFileSync } = require('node:child_process');
const { PrismaPg } = require('@prisma/adapter-pg');
const { run, url } = require('./cases.js');

// "generate" looks for that program and does not run it.
execFileSync(process.execPath, [`${__dirname}/node_modules/.bin/prisma`, 'generate', '--schema', 'prisma/schema.prisma'], {
	cwd: __dirname,
	env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1', PRISMA_HIDE_UPDATE_MESSAGE: '1' },
});
const { PrismaClient } = require('./prisma_client');
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
const ids = async (options) => (await prisma.document.findMany({ select: { id: true }, ...options })).map((row) => row.id);

run({
	noMigration: 'the program schema-engine is in no package',
	migrate: () => prisma.$executeRawUnsafe('CREATE TABLE document (id integer PRIMARY KEY, content blobstate)'),
	insert: (id, content) => prisma.document.create({ data: { id, content } }),
	read: async (id) => (await prisma.document.findUnique({ where: { id } })).content,
	update: (id, content) => prisma.document.update({ where: { id }, data: { content } }),
	equal: (content) => ids({ where: { content } }),
	among: (list) => ids({ where: { content: { in: list } } }),
	ordered: () => ids({ orderBy: { content: 'asc' } }),
	distinct: async () => (await prisma.document.groupBy({ by: ['content'], where: { content: { not: null } } })).length,
	noReflection: 'the same',
});
