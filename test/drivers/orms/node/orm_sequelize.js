// Sequelize: the name of the type as a string.
'use strict';
const { Sequelize, DataTypes } = require('sequelize');
const { run, url } = require('./cases.js');

const sequelize = new Sequelize(url, { logging: false });
const Document = sequelize.define('Document', {
	id: { type: DataTypes.INTEGER, primaryKey: true },
	content: { type: 'blobstate' },
}, { tableName: 'document', timestamps: false });
const ids = async (options) => (await Document.findAll({ attributes: ['id'], ...options })).map((row) => row.id);

run({
	migrate: () => sequelize.sync(),
	// It compares no types: "alter" sets them, to what they are.
	changes: async () => { await sequelize.sync({ alter: true }); return []; },
	insert: (id, content) => Document.create({ id, content }),
	read: async (id) => (await Document.findByPk(id)).content,
	update: async (id, content) => (await Document.findByPk(id)).update({ content }),
	equal: (content) => ids({ where: { content } }),
	among: (list) => ids({ where: { content: list } }),
	ordered: () => ids({ order: ['content'] }),
	distinct: () => Document.count({ distinct: true, col: 'content' }),
	reflected: 'USER-DEFINED',
	reflect: async () => (await sequelize.getQueryInterface().describeTable('document')).content.type,
}, () => sequelize.sync({ alter: true }));
