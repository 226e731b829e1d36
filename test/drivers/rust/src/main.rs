//! The matrix of test/run drivers for drivers of Rust.
//!
//!     drivers tokio_postgres | sqlx
//!
//! The server is that of PGHOST, PGPORT, PGUSER and PGDATABASE.  Values go in and come back bare, as
//! bytes, and are compared byte by byte.  The first difference ends the program.

use futures_util::{pin_mut, SinkExt, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use std::env::var;

const INSERT: &str = "INSERT INTO t (id, content) VALUES ($1, $2)";
const RESET: &str = "DROP TABLE IF EXISTS t;
    CREATE TABLE t (id integer PRIMARY KEY, content blobstate)";

fn values() -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..=255).collect();
    let mut state = 1u64;
    let large = (0..10_000_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect();
    vec![
        vec![],
        b"\\".to_vec(),
        b"\\x4142".to_vec(),
        b"\\134\\\\".to_vec(),
        all.clone(),
        vec![0],
        vec![0xff, 0xfe, b'\\'],
        b"'\"{},".to_vec(),
        all.repeat(1000),
        large,
    ]
}

fn done(name: &str) {
    println!("ok - {name}");
}

async fn tokio_postgres_matrix() -> Result<(), Box<dyn std::error::Error>> {
    let options = format!(
        "host={} port={} user={} dbname={}",
        var("PGHOST")?, var("PGPORT")?, var("PGUSER")?, var("PGDATABASE")?
    );
    let (mut client, connection) =
        tokio_postgres::connect(&options, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let values = values();

    client.batch_execute(RESET).await?;
    for (i, value) in values.iter().enumerate() {
        client.execute(INSERT, &[&(i as i32), value]).await?;
    }
    for (i, row) in client
        .query("SELECT content, sha256(content) FROM t ORDER BY id", &[])
        .await?
        .iter()
        .enumerate()
    {
        assert!(row.get::<_, &[u8]>(0) == values[i], "value {i}");
        assert!(row.get::<_, &[u8]>(1) == &Sha256::digest(&values[i])[..], "digest {i}");
    }
    done("insert and select");

    for (i, value) in values.iter().enumerate() {
        let row = client.query_one("SELECT id FROM t WHERE content = $1", &[value]).await?;
        assert_eq!(row.get::<_, i32>(0), i as i32);
    }
    done("= $1");

    let wanted: Vec<&[u8]> = values[1..9].iter().map(|value| &value[..]).collect();
    let rows = client
        .query("SELECT id FROM t WHERE content = ANY ($1) ORDER BY id", &[&wanted])
        .await?;
    let ids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, (1..9).collect::<Vec<i32>>());
    done("= ANY ($1)");

    let row = client
        .query_one("SELECT array_agg(content ORDER BY id) FROM t WHERE id < 9", &[])
        .await?;
    assert!(row.get::<_, Vec<Vec<u8>>>(0) == values[..9]);
    done("an array as result");

    let none: Option<&[u8]> = None;
    client.execute(INSERT, &[&100, &none]).await?;
    let row = client.query_one("SELECT content FROM t WHERE id = 100", &[]).await?;
    assert_eq!(row.get::<_, Option<&[u8]>>(0), None);
    client.execute("DELETE FROM t WHERE id = 100", &[]).await?;
    done("NULL");

    let rows = client.query_raw("SELECT content FROM t ORDER BY id", &[] as &[i32]).await?;
    pin_mut!(rows);
    let mut count = 0;
    while let Some(row) = rows.try_next().await? {
        assert!(row.get::<_, &[u8]>(0) == values[count], "value {count}");
        count += 1;
    }
    assert_eq!(count, values.len());
    done("stream");

    let copied = client.copy_out("COPY (SELECT content FROM t ORDER BY id) TO STDOUT").await?;
    let text: Vec<bytes::Bytes> = copied.try_collect().await?;
    client.batch_execute("TRUNCATE t").await?;
    let sink = client.copy_in("COPY t (content, id) FROM STDIN").await?;
    pin_mut!(sink);
    for (i, line) in text.concat().split(|byte| *byte == b'\n').enumerate() {
        if i < values.len() {
            let mut row = line.to_vec();
            row.extend_from_slice(format!("\t{i}\n").as_bytes());
            sink.send(bytes::Bytes::from(row)).await?;
        }
    }
    sink.finish().await?;
    for (i, row) in
        client.query("SELECT content FROM t ORDER BY id", &[]).await?.iter().enumerate()
    {
        assert!(row.get::<_, &[u8]>(0) == values[i], "value {i}");
    }
    done("COPY");

    client.batch_execute("TRUNCATE t").await?;
    let transaction = client.transaction().await?;
    let statement = transaction.prepare(&format!("{INSERT} RETURNING content")).await?;
    for (i, value) in values.iter().enumerate() {
        let row = transaction.query_one(&statement, &[&(i as i32), value]).await?;
        assert!(row.get::<_, &[u8]>(0) == *value, "value {i}");
    }
    transaction.commit().await?;
    done("batch, RETURNING");
    Ok(())
}

async fn sqlx_matrix() -> Result<(), Box<dyn std::error::Error>> {
    use sqlx::{Connection, Executor, Row};

    let options = sqlx::postgres::PgConnectOptions::new()
        .host(&var("PGHOST")?)
        .port(var("PGPORT")?.parse()?)
        .username(&var("PGUSER")?)
        .database(&var("PGDATABASE")?);
    let mut connection = sqlx::PgConnection::connect_with(&options).await?;
    let values = values();

    connection.execute(RESET).await?;
    for (i, value) in values.iter().enumerate() {
        sqlx::query(INSERT).bind(i as i32).bind(value).execute(&mut connection).await?;
    }
    let rows = sqlx::query("SELECT content, sha256(content) FROM t ORDER BY id")
        .fetch_all(&mut connection)
        .await?;
    assert_eq!(rows.len(), values.len());
    for (i, row) in rows.iter().enumerate() {
        assert!(row.try_get::<Vec<u8>, _>(0)? == values[i], "value {i}");
        assert!(row.try_get::<Vec<u8>, _>(1)? == &Sha256::digest(&values[i])[..], "digest {i}");
    }
    done("insert and select");

    for (i, value) in values.iter().enumerate() {
        let row = sqlx::query("SELECT id FROM t WHERE content = $1")
            .bind(value)
            .fetch_one(&mut connection)
            .await?;
        assert_eq!(row.try_get::<i32, _>(0)?, i as i32);
    }
    done("= $1");

    let rows = sqlx::query("SELECT id FROM t WHERE content = ANY ($1) ORDER BY id")
        .bind(&values[1..9])
        .fetch_all(&mut connection)
        .await?;
    assert_eq!(rows.len(), 8);
    done("= ANY ($1)");

    let row = sqlx::query("SELECT array_agg(content ORDER BY id) FROM t WHERE id < 9")
        .fetch_one(&mut connection)
        .await?;
    assert!(row.try_get::<Vec<Vec<u8>>, _>(0)? == values[..9]);
    done("an array as result");

    let mut count = 0;
    {
        let mut rows =
            sqlx::query("SELECT content FROM t ORDER BY id").fetch(&mut connection);
        while let Some(row) = rows.next().await {
            assert!(row?.try_get::<Vec<u8>, _>(0)? == values[count], "value {count}");
            count += 1;
        }
    }
    assert_eq!(count, values.len());
    done("stream");

    connection.execute("TRUNCATE t").await?;
    let statement = format!("{INSERT} RETURNING content");
    for (i, value) in values.iter().enumerate() {
        let row = sqlx::query(&statement)
            .bind(i as i32)
            .bind(value)
            .fetch_one(&mut connection)
            .await?;
        assert!(row.try_get::<Vec<u8>, _>(0)? == *value, "value {i}");
    }
    sqlx::query(INSERT).bind(100).bind(None::<Vec<u8>>).execute(&mut connection).await?;
    let row = sqlx::query("SELECT content FROM t WHERE id = 100")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(row.try_get::<Option<Vec<u8>>, _>(0)?, None);
    done("RETURNING, NULL");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("tokio_postgres") => tokio_postgres_matrix().await,
        Some("sqlx") => sqlx_matrix().await,
        _ => Err("usage: drivers tokio_postgres | sqlx".into()),
    }
}
