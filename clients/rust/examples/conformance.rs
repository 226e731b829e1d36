//! The adapter of this crate for clients/conformance, whose README.md says what it does.

use blobext::{Error, Reader, Store, Summary, Value};
use sha2::{Digest, Sha256};
use std::env::var;
use std::io::{self, BufRead, SeekFrom, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::fs::File;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt, ReadBuf,
};
use tokio_postgres::NoTls;

fn value(id: &str) -> Value {
    let key: i64 = id.parse().unwrap();
    Value::new([r#"Odd "Schema""#, "Odd Name"])
        .key("id", key)
        .key("Kind", "a'b")
        .column("my content")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn summary(summary: Summary) -> String {
    format!("ok\t{}\t{}", summary.size, hex(&summary.sha256))
}

fn content(data: &[u8]) -> String {
    format!("ok\t{}\t{}", data.len(), hex(&Sha256::digest(data)))
}

fn position(text: &str) -> Result<u64, Error> {
    text.parse::<i64>().unwrap().try_into().map_err(|_| Error::Position)
}

fn line() -> Option<String> {
    let mut line = String::new();
    (io::stdin().lock().read_line(&mut line).unwrap() > 0)
        .then(|| line.trim_end_matches('\n').into())
}

fn print(text: &str) {
    println!("{text}");
    io::stdout().flush().unwrap();
}

/// A file that stops once after a number of bytes; a cancelled one stays pending.
struct Pause {
    file: File,
    at: Option<u64>,
    done: u64,
    cancel: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Pause {
    fn new(file: File, at: &str, cancel: tokio::sync::oneshot::Sender<()>) -> Self {
        Pause { file, at: at.parse().ok(), done: 0, cancel: Some(cancel) }
    }

    fn count(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.at.is_some_and(|at| self.done >= at) {
            self.at = None;
            print("paused");
            if line().as_deref() == Some("cancel") {
                self.cancel.take().unwrap().send(()).unwrap();
            }
        }
    }
}

impl AsyncRead for Pause {
    fn poll_read(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cancel.is_none() {
            return Poll::Pending;
        }
        let before = into.filled().len();
        let result = Pin::new(&mut self.file).poll_read(context, into);
        self.count(into.filled().len() - before);
        result
    }
}

impl AsyncSeek for Pause {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.file).start_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.file).poll_complete(context)
    }
}

impl AsyncWrite for Pause {
    fn poll_write(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cancel.is_none() {
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.file).poll_write(context, from);
        if let Poll::Ready(Ok(bytes)) = result {
            self.count(bytes);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

async fn run(
    store: &Store, reader: &mut Option<Reader>, fields: &[&str],
    cancel: tokio::sync::oneshot::Sender<()>,
) -> Result<String, Error> {
    match fields {
        ["stat", id] => Ok(summary(store.open(&value(id)).await?.summary())),
        ["open", id] => {
            let opened = reader.insert(store.open(&value(id)).await?);
            Ok(format!("ok\t{}", opened.summary().size))
        }
        ["seek", offset, whence] => {
            let to = match *whence {
                "start" => SeekFrom::Start(position(offset)?),
                "current" => SeekFrom::Current(offset.parse().unwrap()),
                _ => SeekFrom::End(offset.parse().unwrap()),
            };
            Ok(format!("ok\t{}", reader.as_mut().unwrap().seek(to).await?))
        }
        ["next", length] => {
            let mut data = Vec::new();
            let reader = reader.as_mut().unwrap();
            reader.take(length.parse().unwrap()).read_to_end(&mut data).await?;
            Ok(content(&data))
        }
        ["close"] => {
            *reader = None;
            Ok("ok".into())
        }
        ["range", id, offset, length] => {
            let mut reader = store.open(&value(id)).await?;
            reader.seek(SeekFrom::Start(position(offset)?)).await?;
            let mut data = Vec::new();
            reader.take(position(length)?).read_to_end(&mut data).await?;
            Ok(content(&data))
        }
        ["download", id, path, at] => {
            let mut reader = store.open(&value(id)).await?;
            let mut file = Pause::new(File::create(path).await?, at, cancel);
            let copied = tokio::io::copy_buf(&mut reader, &mut file).await;
            file.flush().await?; // A write of tokio's goes on after an error, too.
            copied?;
            Ok(summary(reader.summary()))
        }
        ["write", id, path, at] => {
            let file = Pause::new(File::open(path).await?, at, cancel);
            let mut file = tokio::io::BufReader::with_capacity(1 << 18, file);
            let mut writer = store.create(&value(id), 0).await?;
            tokio::io::copy_buf(&mut file, &mut writer).await?;
            writer.shutdown().await?;
            Ok(summary(writer.summary().unwrap()))
        }
        ["upload", id, path, stage, at] => {
            let mut file = Pause::new(File::open(path).await?, at, cancel);
            let row = Value::new([r#"Odd "Schema""#, "blob_stage"]).key("name", stage.to_string());
            let stage = (*stage != "-").then_some(row);
            Ok(summary(store.upload(&value(id), &mut file, stage.as_ref()).await?))
        }
        _ => Ok("error\tunknown".into()),
    }
}

fn describe(error: Error) -> String {
    let mut state = "-".to_string();
    let kind = match &error {
        Error::Missing => "missing",
        Error::Changed => "changed",
        Error::Mismatch => "mismatch",
        Error::Unexpected => "unexpected",
        Error::Position => "position",
        Error::Postgres(cause) => {
            state = cause.code().map_or(state, |code| code.code().into());
            if error.is_lost() {
                "lost"
            } else {
                "server"
            }
        }
        _ => "io",
    };
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("error\t{kind}\t{state}\t{text}")
}

// Not in one thread: connections are served while this one waits for a command.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut config = tokio_postgres::Config::new();
    config.host(var("PGHOST").unwrap()).port(var("PGPORT").unwrap().parse().unwrap());
    config.user(var("PGUSER").unwrap()).dbname(var("PGDATABASE").unwrap());
    config.application_name(var("PGAPPNAME").unwrap());
    let store = Store::new(config, NoTls);
    let mut reader = None;
    while let Some(command) = line() {
        let fields: Vec<&str> = command.split('\t').collect();
        let (cancel, cancelled) = tokio::sync::oneshot::channel();
        let answer = tokio::select! {
            biased;
            Ok(()) = cancelled => "error\tcancelled\t-\tcancelled by the script".to_string(),
            result = run(&store, &mut reader, &fields, cancel) => result.unwrap_or_else(describe),
        };
        print(&answer);
    }
}
