//! The cases of test/drivers/orms/README.md for ORMs of Rust: orms diesel | sea_orm.
mod diesel_orm;
mod sea;

use std::env::{args, var};
use std::fmt::Debug;

/// What the cases need of an ORM. An Err is what the ORM has none of.
pub trait Orm {
    fn migrate(&mut self);
    fn insert(&mut self, id: i32, content: Option<Vec<u8>>);
    fn read(&mut self, id: i32) -> Option<Vec<u8>>;
    fn update(&mut self, id: i32, content: Vec<u8>);
    fn equal(&mut self, content: &[u8]) -> Vec<i32>;
    fn among(&mut self, contents: &[&[u8]]) -> Vec<i32>;
    fn ordered(&mut self) -> Vec<i32>;
    fn distinct(&mut self) -> i64;
}

pub fn url() -> String {
    let part = |name| var(name).expect(name);
    format!("postgres://{}@{}:{}/{}", part("PGUSER"), part("PGHOST"), part("PGPORT"), part("PGDATABASE"))
}

fn check<T: PartialEq + Debug>(name: &str, got: T, wanted: T) {
    if got != wanted {
        println!("not ok - {name}: {got:?}, wanted: {wanted:?}");
        std::process::exit(1);
    }
    println!("ok - {name}");
}

fn all_right(orm: &mut dyn Orm, values: &[Vec<u8>]) -> bool {
    values.iter().zip(1..).all(|(value, id)| orm.read(id).as_ref() == Some(value))
}

fn main() {
    let name = args().nth(1).expect("name of the ORM");
    let orm: &mut dyn Orm = match name.as_str() {
        "diesel" => &mut diesel_orm::open(),
        "sea_orm" => &mut sea::open(),
        _ => panic!("no ORM {name}"),
    };
    let directory = var("ORM_VALUES").expect("ORM_VALUES");
    let values: Vec<Vec<u8>> =
        (1..).map_while(|id| std::fs::read(format!("{directory}/{id}")).ok()).collect();
    let last = values.len() as i32;
    let ids: Vec<i32> = (1..=last).collect();

    orm.migrate();
    println!("left out - migrate: the migrations of {name} are tools of their own");
    for (value, id) in values.iter().zip(1..) {
        orm.insert(id, Some(value.clone()));
    }
    orm.insert(last + 1, None);
    check("insert and read", all_right(orm, &values), true);
    check("NULL", orm.read(last + 1), None);
    for &id in &ids {
        let mut value = orm.read(id).unwrap();
        value.push(b'\\');
        orm.update(id, value);
        value = orm.read(id).unwrap();
        value.pop();
        orm.update(id, value);
    }
    check("update", all_right(orm, &values), true);
    check("=", values.iter().flat_map(|value| orm.equal(value)).collect(), ids.clone());
    let mut some = orm.among(&[&values[0], &values[values.len() - 1], b"none"]);
    some.sort();
    check("IN", some, vec![1, last]);
    check("ORDER BY", orm.ordered(), (1..=last + 1).collect());
    orm.insert(last + 2, values.last().cloned());
    check("count distinct", orm.distinct(), last as i64);
    println!("left out - reflect: the generator of {name} is a tool of its own");
}
