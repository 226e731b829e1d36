//! Values of the PostgreSQL extension blobext as streams, on tokio-postgres.
//!
//! A [`Reader`] is `AsyncRead + AsyncSeek` over one version of a value, a [`Writer`] is
//! `AsyncWrite` for a new one.  Both have a piece of the content in memory, whatever its size.

mod streams;
mod upload;

pub use streams::{Reader, Writer};
pub use upload::Stage;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::{fmt, io, time::Duration};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row};

/// What can go wrong.  The streams have it as source of an `io::Error`; `From` takes it out again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such row, or its value is NULL.
    Missing,
    /// The value was replaced or removed since it was opened.
    Changed,
    /// The content does not have the expected digest.
    Mismatch,
    /// The server's objects or answers are none of the extension's.
    Unexpected(&'static str),
    /// A position before the beginning.
    Position,
    /// Of the server, or of the connection.
    Postgres(tokio_postgres::Error),
    /// Of the source of an upload.
    Io(io::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing => f.write_str("no such row, or its value is NULL"),
            Error::Changed => f.write_str("the value was replaced or removed since it was opened"),
            Error::Mismatch => f.write_str("the content does not have the expected digest"),
            Error::Unexpected(what) => f.write_str(what),
            Error::Position => f.write_str("a position before the beginning"),
            Error::Postgres(error) => match error.as_db_error() {
                Some(server) => server.fmt(f),
                None => error.fmt(f),
            },
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::Postgres(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.downcast::<Error>().unwrap_or_else(Error::Io)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Missing => io::ErrorKind::NotFound,
            Error::Position => io::ErrorKind::InvalidInput,
            Error::Io(error) => return error,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl Error {
    /// Whether a connection was lost, or could not be made, so that another attempt may help.
    pub fn is_lost(&self) -> bool {
        let Error::Postgres(error) = self else { return false };
        match error.code() {
            Some(state) => state.code().starts_with("08") || state.code().starts_with("57P0"),
            None => {
                error.is_closed()
                    || std::error::Error::source(error).is_some_and(|cause| cause.is::<io::Error>())
            }
        }
    }
}

/// Where a value is.  Names are spelled as in the catalogs.
#[derive(Clone)]
pub struct Value {
    table: String,
    key: Vec<(String, Arc<dyn ToSql + Send + Sync>)>,
    column: String,
}

impl Value {
    /// Of the column `content` of a table: `["table"]`, or `["schema", "table"]`.
    pub fn new<const N: usize>(table: [&str; N]) -> Self {
        let table = table.map(quote).join(".");
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

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What the server knows of a value without reading its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub size: u64,
    pub sha256: [u8; 32],
}

type Connecting = Pin<Box<dyn Future<Output = Result<Client>> + Send>>;
type Facts = Arc<Vec<(String, String)>>;

struct Inner {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    client: tokio::sync::Mutex<Option<Arc<Client>>>,
    facts: Mutex<HashMap<String, Facts>>,
}

/// Gives streams of the values of one database.  Readers share a connection, and go on over another
/// one when it is lost; each writer has its own.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// What is used of the extension; T is the type blobstate.
const MEMBERS: [&str; 8] = [
    "blobstate",
    "blob_upload_pieces",
    "length(T)",
    "sha256(T)",
    "blob_read(T,bigint,bigint)",
    "blob_upload_begin(bigint)",
    "blob_upload_resume(T,bigint)",
    "blob_upload_end(bigint)",
];

// Statements, see Target.
const STAT: &str = "SELECT {summary} FROM {table} WHERE {where}";
const READ: &str = "SELECT {blob_read}({content}, {1}::pg_catalog.int8, {2}::pg_catalog.int8) \
    FROM {table} WHERE {where} AND {sha256}({content}) OPERATOR(pg_catalog.=) \
    {3}::pg_catalog.bytea";
const BEGIN: &str = "SELECT {blob_upload_begin}($1::pg_catalog.int8)";
const RESUME: &str = "SELECT {summary}, {blob_upload_resume}({content}, {1}::pg_catalog.int8) \
    FROM {table} WHERE {where} FOR UPDATE";
const COPY: &str = "COPY {blob_upload_pieces} FROM STDIN (FORMAT binary)";
const UPDATE: &str = "UPDATE {table} SET {column} = {blob_upload_end}({1}::pg_catalog.int8) \
    WHERE {where} RETURNING {summary}";
const INSERT: &str = "INSERT INTO {table} ({keys}, {column}) VALUES ({values}, \
    {blob_upload_end}({1}::pg_catalog.int8)) RETURNING {summary}";
const INSERT_STAGE: &str = "INSERT INTO {table} ({keys}) VALUES ({values}) ON CONFLICT DO NOTHING";
const DELETE_STAGE: &str = "DELETE FROM {table} WHERE {where}";

/// Makes the statements for a value.  All names are qualified, and arguments have the types of the
/// functions' parameters: nothing of another role is called.  Parameters are the values of the key,
/// and then {1}, {2}, {3}.
struct Target {
    parts: HashMap<String, String>,
    key: Vec<Arc<dyn ToSql + Send + Sync>>,
}

impl Target {
    fn new(value: &Value, facts: &[(String, String)]) -> Result<Self> {
        let mut parts = HashMap::new();
        for member in MEMBERS {
            let name = member.split('(').next().unwrap_or(member);
            let blobstate = parts.get("blobstate").map_or("", String::as_str);
            let end = format!(".{}", member.replace('T', blobstate));
            let found = facts.iter().filter(|(column, _)| column.is_empty());
            let schema = found.into_iter().find_map(|(_, identity)| identity.strip_suffix(&end));
            let schema = schema.ok_or(Error::Unexpected(
                "the extension blobext is missing, or older than 0.3.0",
            ))?;
            parts.insert(name.to_string(), format!("{schema}.{name}"));
        }
        let (mut keys, mut values, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (name, _)) in value.key.iter().enumerate() {
            let own = facts.iter().find(|(column, _)| column == name);
            let operator = own.map_or("OPERATOR(pg_catalog.=)", |(_, operator)| operator);
            terms.push(format!("{} {operator} ${}", quote(name), i + 1));
            keys.push(quote(name));
            values.push(format!("${}", i + 1));
        }
        for i in 1..=3 {
            parts.insert(i.to_string(), format!("${}", keys.len() + i));
        }
        // The column may have a domain over blobstate.
        let content = format!("({})::{}", quote(&value.column), parts["blobstate"]);
        let (length, sha256) = (&parts["length"], &parts["sha256"]);
        parts.insert("summary".into(), format!("{length}({content}), {sha256}({content})"));
        parts.insert("content".into(), content);
        parts.insert("table".into(), value.table.clone());
        parts.insert("column".into(), quote(&value.column));
        parts.insert("keys".into(), keys.join(", "));
        parts.insert("values".into(), values.join(", "));
        parts.insert("where".into(), terms.join(" AND "));
        Ok(Target { parts, key: value.key.iter().map(|(_, value)| value.clone()).collect() })
    }

    fn sql(&self, template: &str) -> String {
        let mut pieces = template.split(['{', '}']);
        let mut sql = pieces.next().unwrap_or("").to_string();
        while let (Some(name), Some(text)) = (pieces.next(), pieces.next()) {
            sql = sql + &self.parts[name] + text;
        }
        sql
    }

    async fn rows(
        &self, client: &Client, template: &str, more: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let mut all: Vec<&(dyn ToSql + Sync)> = Vec::new();
        all.extend(self.key.iter().map(|value| &**value as &(dyn ToSql + Sync)));
        all.extend(more);
        Ok(client.query(&self.sql(template), &all).await?)
    }
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, number: usize) -> Result<T> {
    let none = Error::Unexpected("the server's answer is none of blobext's");
    row.try_get(number).map_err(|_| none)
}

/// The first two columns of the first row.
fn summary(rows: &[Row]) -> Result<Summary> {
    let row = rows.first().ok_or(Error::Missing)?;
    let size = column::<Option<i64>>(row, 0)?.ok_or(Error::Missing)?;
    let sha256 = column::<&[u8]>(row, 1)?.try_into();
    match (size.try_into(), sha256) {
        (Ok(size), Ok(sha256)) => Ok(Summary { size, sha256 }),
        _ => Err(Error::Unexpected("the server's answer is none of blobext's")),
    }
}

impl Store {
    /// `connect` makes a connection, and spawns the future that serves it.  Each must be a new one:
    /// what is not finished ends with its connection.
    pub fn new<F, C>(connect: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = std::result::Result<Client, tokio_postgres::Error>> + Send + 'static,
    {
        let connect = move || -> Connecting {
            let connecting = connect();
            Box::pin(async move { Ok(connecting.await?) })
        };
        let (client, facts) = Default::default();
        Store(Arc::new(Inner { connect: Box::new(connect), client, facts }))
    }

    /// Without TLS.
    pub fn from_config(config: Config) -> Self {
        let config = Arc::new(config);
        Self::new(move || {
            let config = config.clone();
            async move {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                Ok(client)
            }
        })
    }

    /// The connection of the readers.
    async fn client(&self) -> Result<Arc<Client>> {
        let mut known = self.0.client.lock().await;
        match &*known {
            Some(client) if !client.is_closed() => Ok(client.clone()),
            _ => Ok(known.insert(Arc::new((self.0.connect)().await?)).clone()),
        }
    }

    async fn target(&self, client: &Client, value: &Value) -> Result<Arc<Target>> {
        let names: Vec<&str> = value.key.iter().map(|(name, _)| name.as_str()).collect();
        let about = format!("{:?}", (&value.table, &names));
        let known = self.0.facts.lock().unwrap_or_else(|e| e.into_inner()).get(&about).cloned();
        let facts = match known {
            Some(facts) => facts,
            None => {
                let rows =
                    client.query(include_str!("../find.sql"), &[&value.table, &names]).await?;
                let pair = |row| Ok::<_, Error>((column(row, 0)?, column(row, 1)?));
                let facts = Arc::new(rows.iter().map(pair).collect::<Result<Vec<_>>>()?);
                let mut all = self.0.facts.lock().unwrap_or_else(|e| e.into_inner());
                all.insert(about, facts.clone());
                facts
            }
        };
        Ok(Arc::new(Target::new(value, &facts)?))
    }

    /// Size and digest of a value.
    pub async fn stat(&self, value: &Value) -> Result<Summary> {
        Ok(self.open(value).await?.summary())
    }
}

/// Attempts after a connection was lost.
#[derive(Default)]
struct Retry(usize);

impl Retry {
    const PAUSES: [u64; 8] = [100, 500, 1000, 2000, 5000, 10000, 20000, 30000];

    /// Returns when work that may be done twice is to be done again, or with its error.
    async fn after(&mut self, error: Error) -> Result<()> {
        match Self::PAUSES.get(self.0) {
            Some(pause) if error.is_lost() => {
                tokio::time::sleep(Duration::from_millis(*pause)).await
            }
            _ => return Err(error),
        }
        self.0 += 1;
        Ok(())
    }
}
