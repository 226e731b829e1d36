use sea_orm::entity::prelude::*;
use sea_orm::sea_query::Expr;
use sea_orm::{ConnectionTrait, Database, DbBackend, QueryOrder, QuerySelect, Schema, Set};
use std::future::Future;
use tokio::runtime::Runtime;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "document")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i32,
    #[sea_orm(column_type = "custom(\"blobstate\")", nullable)]
    pub content: Option<Vec<u8>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

pub struct Sea {
    runtime: Runtime,
    db: DatabaseConnection,
}

pub fn open() -> Sea {
    let runtime = Runtime::new().unwrap();
    let db = runtime.block_on(Database::connect(crate::url())).unwrap();
    Sea { runtime, db }
}

impl Sea {
    fn wait<T>(&self, future: impl Future<Output = Result<T, DbErr>>) -> T {
        self.runtime.block_on(future).unwrap()
    }
    fn ids(&self, query: Select<Entity>) -> Vec<i32> {
        self.wait(query.select_only().column(Column::Id).into_tuple().all(&self.db))
    }
}

impl crate::Orm for Sea {
    fn migrate(&mut self) {
        let table = Schema::new(DbBackend::Postgres).create_table_from_entity(Entity);
        self.wait(self.db.execute(DbBackend::Postgres.build(&table)));
    }
    fn insert(&mut self, id: i32, content: Option<Vec<u8>>) {
        self.wait(ActiveModel { id: Set(id), content: Set(content) }.insert(&self.db));
    }
    fn read(&mut self, id: i32) -> Option<Vec<u8>> {
        self.wait(Entity::find_by_id(id).one(&self.db)).unwrap().content
    }
    fn update(&mut self, id: i32, content: Vec<u8>) {
        self.wait(ActiveModel { id: Set(id), content: Set(Some(content)) }.update(&self.db));
    }
    fn equal(&mut self, content: &[u8]) -> Vec<i32> {
        self.ids(Entity::find().filter(Column::Content.eq(content)))
    }
    fn among(&mut self, contents: &[&[u8]]) -> Vec<i32> {
        self.ids(Entity::find().filter(Column::Content.is_in(contents.iter().copied())))
    }
    fn ordered(&mut self) -> Vec<i32> {
        self.ids(Entity::find().order_by_asc(Column::Content))
    }
    fn distinct(&mut self) -> i64 {
        let count = Expr::col(Column::Content).count_distinct();
        let query = Entity::find().select_only().column_as(count, "n").into_tuple();
        self.wait(query.one(&self.db)).unwrap()
    }
}
