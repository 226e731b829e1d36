use diesel::prelude::*;

/// In schema.rs, which finds it by import_types in diesel.toml.
pub type Blobstate = diesel::sql_types::Binary;

diesel::table! {
    use diesel::sql_types::*;
    use super::Blobstate;

    document (id) {
        id -> Integer,
        content -> Nullable<Blobstate>,
    }
}

pub fn open() -> PgConnection {
    PgConnection::establish(&crate::url()).unwrap()
}

impl crate::Orm for PgConnection {
    fn migrate(&mut self) {
        let up = "CREATE TABLE document (id integer PRIMARY KEY, content blobstate)";
        diesel::sql_query(up).execute(self).unwrap();
    }
    fn insert(&mut self, id: i32, content: Option<Vec<u8>>) {
        let row = (document::id.eq(id), document::content.eq(content));
        diesel::insert_into(document::table).values(row).execute(self).unwrap();
    }
    fn read(&mut self, id: i32) -> Option<Vec<u8>> {
        document::table.find(id).select(document::content).first(self).unwrap()
    }
    fn update(&mut self, id: i32, content: Vec<u8>) {
        let row = document::table.find(id);
        diesel::update(row).set(document::content.eq(content)).execute(self).unwrap();
    }
    fn equal(&mut self, content: &[u8]) -> Vec<i32> {
        let rows = document::table.filter(document::content.eq(content));
        rows.select(document::id).load(self).unwrap()
    }
    fn among(&mut self, contents: &[&[u8]]) -> Vec<i32> {
        let rows = document::table.filter(document::content.eq_any(contents));
        rows.select(document::id).load(self).unwrap()
    }
    fn ordered(&mut self) -> Vec<i32> {
        document::table.order(document::content).select(document::id).load(self).unwrap()
    }
    fn distinct(&mut self) -> i64 {
        let count = diesel::dsl::count(document::content).aggregate_distinct();
        document::table.select(count).first(self).unwrap()
    }
}
