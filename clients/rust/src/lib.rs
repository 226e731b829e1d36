//! Values of the PostgreSQL extension blobext as streams, on tokio-postgres.
//!
//! A [`Reader`] is `AsyncRead + AsyncSeek` over one version of a value, a [`Writer`] is
//! `AsyncWrite` for a new one.  Both have a piece of the content in memory, whatever its size.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::{io, time::Duration};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{types::ToSql, Client, Config, Row, Socket};

/// What can go wrong.  The streams have it in an `io::Error`; `From` takes it out again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("no such row, or its value is NULL")]
    Missing,
    #[error("the value was replaced or removed since it was opened")]
    Changed,
    #[error("the content does not have the expected digest")]
    Mismatch,
    #[error("the extension blobext is missing, or older than 0.3.0")]
    Unexpected,
    #[error("a position before the beginning")]
    Position,
    /// Of the server, with its SQLSTATE, or of the connection.
    #[error("{}", message(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// Of the source of an upload.
    #[error(transparent)]
    Io(io::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |server| server.to_string())
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.downcast::<Error>().unwrap_or_else(Error::Io)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}

impl Error {
    /// Whether a connection was lost, or could not be made, so that another attempt may help.
    pub fn is_lost(&self) -> bool {
        let Error::Postgres(error) = self else { return false };
        let cause = std::error::Error::source(error);
        match error.code() {
            Some(state) => state.code().starts_with("08") || state.code().starts_with("57P0"),
            None => error.is_closed() || cause.is_some_and(|cause| cause.is::<io::Error>()),
        }
    }
}

type Key = Vec<(String, Arc<dyn ToSql + Send + Sync>)>;

/// Where a value is.  Names are spelled as in the catalogs.
#[derive(Clone)]
pub struct Value {
    table: String,
    key: Key,
    column: String,
}

impl Value {
    /// Of the column `content` of a table: `["table"]`, or `["schema", "table"]`.
    pub fn new<const N: usize>(table: [&str; N]) -> Self {
        let table = table.map(|name| format!("\"{}\"", name.replace('"', "\"\""))).join(".");
        Value { table, key: Vec::new(), column: "content".into() }
    }

    /// A column that identifies the row, with its value.
    pub fn key(mut self, column: &str, value: impl ToSql + Send + Sync + 'static) -> Self {
        self.key.push((column.into(), Arc::new(value)));
        self
    }

    /// Another column than `content`.
    pub fn column(mut self, column: &str) -> Self {
        self.column = column.into();
        self
    }
}

/// What the server knows of a value without reading its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub size: u64,
    pub sha256: [u8; 32],
}

impl Summary {
    /// The first columns of a row.
    fn of(row: &Row) -> Result<Self> {
        let sha256 = row.try_get::<_, &[u8]>(1)?.try_into().map_err(|_| Error::Unexpected)?;
        Ok(Summary { size: row.try_get::<_, i64>(0)? as u64, sha256 })
    }
}

/// Digest and size of what it was given.
#[derive(Clone, Default)]
struct Content {
    hash: Sha256,
    size: u64,
}

impl Content {
    fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }

    fn summary(&self) -> Summary {
        Summary { size: self.size, sha256: self.hash.clone().finalize().into() }
    }
}

/// A value with its statements, whose parameters are those of the key, then others.
#[derive(Clone)]
struct Target {
    statements: Arc<Row>,
    key: Key,
}

impl Target {
    fn sql(&self, name: &str) -> &str {
        self.statements.get(name)
    }

    async fn row(
        &self, client: &Client, name: &str, own: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>> {
        let key = self.key.iter().map(|(_, value)| &**value as &(dyn ToSql + Sync));
        let all: Vec<_> = key.chain(own.iter().copied()).collect();
        Ok(client.query_opt(self.sql(name), &all).await?)
    }
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

struct Inner {
    connect: Box<dyn Fn() -> Work<Arc<Client>> + Send + Sync>,
    client: tokio::sync::Mutex<Option<Arc<Client>>>,
    known: Mutex<HashMap<String, Arc<Row>>>, // statements of a table, a column and a key
}

/// Gives streams of the values of one database.  Readers share a connection, and go on over another
/// one when it is lost; each writer has its own.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl Store {
    /// `tls` is `NoTls`, or of one of the crates for TLS with tokio-postgres.
    pub fn new<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket, Stream: Send, TlsConnect: Send> + Clone + Send + Sync + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connect = move || -> Work<Arc<Client>> {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(connection);
                Ok(Arc::new(client))
            })
        };
        let (client, known) = Default::default();
        Store(Arc::new(Inner { connect: Box::new(connect), client, known }))
    }

    /// The connection of the readers.
    async fn client(&self) -> Result<Arc<Client>> {
        let mut known = self.0.client.lock().await;
        match &*known {
            Some(client) if !client.is_closed() => Ok(client.clone()),
            _ => Ok(known.insert((self.0.connect)().await?).clone()),
        }
    }

    async fn target(&self, client: &Client, value: &Value) -> Result<Target> {
        let Value { table, key, column } = value;
        let names: Vec<&str> = key.iter().map(|(name, _)| name.as_str()).collect();
        let about = format!("{:?}", (table, column, &names));
        let known = self.0.known.lock().unwrap().get(&about).cloned();
        let statements = match known {
            Some(statements) => statements,
            None => {
                let sources = include_str!("../statements.sql");
                let row = client.query_opt(sources, &[table, column, &names]).await?;
                let row = Arc::new(row.ok_or(Error::Unexpected)?);
                self.0.known.lock().unwrap().entry(about).or_insert(row).clone()
            }
        };
        Ok(Target { statements, key: key.clone() })
    }

    /// Does work again that may be done twice, after a connection was lost.
    async fn retry<T, F>(&self, work: impl Fn(Arc<Client>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        loop {
            match async { work(self.client().await?).await }.await {
                Err(error) if error.is_lost() && pause < Duration::from_secs(30) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
    }
}
