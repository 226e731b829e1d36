package main

import (
	"context"
	"strings"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type gormDocument struct {
	ID      int    `gorm:"primaryKey;autoIncrement:false"`
	Content []byte `gorm:"type:blobstate"`
}

func (gormDocument) TableName() string { return "document" }

// Notes statements that change the table.
type alterations struct {
	logger.Interface
	seen string
}

func (a *alterations) Trace(_ context.Context, _ time.Time, statement func() (string, int64), _ error) {
	if sql, _ := statement(); strings.HasPrefix(sql, "ALTER") {
		a.seen += sql
	}
}

type gormORM struct {
	db  *gorm.DB
	log *alterations
}

func newGorm() orm {
	log := &alterations{Interface: logger.Discard}
	return gormORM{must(gorm.Open(postgres.Open(dsn()), &gorm.Config{Logger: log})), log}
}

func (o gormORM) do(db *gorm.DB) {
	must(0, db.Error)
}

func (o gormORM) ids(db *gorm.DB) (ids []int) {
	o.do(db.Model(&gormDocument{}).Pluck("id", &ids))
	return ids
}

func (o gormORM) migrate() { must(0, o.db.AutoMigrate(&gormDocument{})) }

func (o gormORM) changes() any {
	o.migrate()
	return o.log.seen
}

func (o gormORM) insert(id int, content []byte) { o.do(o.db.Create(&gormDocument{id, content})) }

func (o gormORM) read(id int) []byte {
	var document gormDocument
	o.do(o.db.First(&document, id))
	return document.Content
}

func (o gormORM) update(id int, content []byte) { o.do(o.db.Save(&gormDocument{id, content})) }

func (o gormORM) equal(content []byte) []int { return o.ids(o.db.Where("content = ?", content)) }

func (o gormORM) among(contents [][]byte) []int { return o.ids(o.db.Where("content IN ?", contents)) }

func (o gormORM) ordered() []int { return o.ids(o.db.Order("content")) }

func (o gormORM) distinct() int {
	var n int64
	o.do(o.db.Model(&gormDocument{}).Distinct("content").Count(&n))
	return int(n)
}

func (o gormORM) reflect() any {
	for _, column := range must(o.db.Migrator().ColumnTypes(&gormDocument{})) {
		if column.Name() == "content" {
			return column.ScanType().String()
		}
	}
	return "no column"
}
