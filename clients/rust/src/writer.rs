use crate::{Content, Error, Result, Store, Summary, Target, Value};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, DuplexStream};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_postgres::{Client, CopyInSink};

/// Of a row of COPY: the server works on one while the next is made.
const ROW_BYTES: u64 = 128 << 10;
/// An upload with a stage commits after so many bytes.
const SECTION_BYTES: u64 = 64 << 20;

/// A transaction in a COPY, on a connection of its own, whose end is that of what is not stored.
struct Upload {
    client: Arc<Client>,
    target: Target,
    stage: Option<Target>, // to remove with the commit
    number: i64,
    sink: Pin<Box<CopyInSink<Bytes>>>,
    seen: Content,
    is_whole: bool,     // seen has the digest of all content
    beginning: Summary, // what the row had
}

impl Upload {
    async fn begin(
        store: &Store, value: &Value, stage: Option<&Value>, resume: bool, expected: u64,
    ) -> Result<Self> {
        let client = (store.0.connect)().await?;
        let target = store.target(&client, value).await?;
        client.batch_execute("BEGIN").await?;
        let mut from = target.clone();
        if let Some(stage) = stage {
            from = store.target(&client, stage).await?;
            from.row(&client, "stage", &[]).await?;
        }
        let expected = expected as i64;
        let row = match resume {
            true => from.row(&client, "resume", &[&expected]).await?,
            false => client.query_opt(target.sql("begin"), &[&expected]).await?,
        };
        let row = row.ok_or(Error::Missing)?;
        let (beginning, number) = (Summary::of(&row)?, row.try_get(2)?);
        let mut sink = Box::pin(client.copy_in(target.sql("pieces")).await?);
        sink.feed(Bytes::from_static(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0")).await?;
        let seen = Content { size: beginning.size, ..Default::default() };
        let (stage, is_whole) = (stage.map(|_| from), !resume);
        Ok(Upload { client, target, stage, number, sink, seen, is_whole, beginning })
    }

    /// Sends a source up to a size, in rows, without waiting for answers.
    async fn send(&mut self, source: &mut (impl AsyncRead + Unpin), size: u64) -> Result<()> {
        while let Some(row) = read(source, size - self.seen.size).await? {
            self.seen.update(&row);
            let mut header = BytesMut::new();
            header.put_u16(2);
            header.put_u32(8);
            header.put_i64(self.number);
            header.put_u32(row.len() as u32);
            self.sink.feed(header.freeze()).await?;
            self.sink.feed(row).await?;
        }
        Ok(())
    }

    /// Stores the value in the row, or in a new one, and commits.
    async fn store(&mut self) -> Result<Summary> {
        self.sink.feed(Bytes::from_static(b"\xff\xff")).await?;
        self.sink.as_mut().finish().await?;
        let mut row = self.target.row(&self.client, "update", &[&self.number]).await?;
        if row.is_none() {
            row = self.target.row(&self.client, "insert", &[&self.number]).await?;
        }
        let stored = Summary::of(&row.ok_or(Error::Missing)?)?;
        let seen = self.seen.summary();
        if stored.size != seen.size || self.is_whole && stored != seen {
            return Err(Error::Mismatch);
        }
        if let Some(stage) = &self.stage {
            stage.row(&self.client, "unstage", &[]).await?;
        }
        self.client.batch_execute("COMMIT").await?;
        Ok(stored)
    }
}

/// The next bytes of a source, for a row; None at the end, or without a limit.
async fn read(source: &mut (impl AsyncRead + Unpin), limit: u64) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::with_capacity(ROW_BYTES as usize);
    source.take(limit.min(ROW_BYTES)).read_to_end(&mut bytes).await?;
    Ok((!bytes.is_empty()).then_some(bytes.into()))
}

/// A new value.  A task sends it in a transaction, until `shutdown()` stores the value and commits.
/// Dropped before, it gives the value up: the row stays as it is.
pub struct Writer {
    task: JoinSet<Result<Summary>>, // it ends when it is dropped
    commit: Option<oneshot::Sender<()>>,
    pipe: DuplexStream,
    summary: Option<Summary>,
}

impl Store {
    /// Begins a value that replaces that of the row, or is in a new row.  `expected` says how many
    /// bytes will come, or 0.
    pub async fn create(&self, value: &Value, expected: u64) -> Result<Writer> {
        Ok(Writer::new(Upload::begin(self, value, None, false, expected).await?))
    }

    /// Begins with the content that the row has, which is not written again.
    pub async fn append(&self, value: &Value, expected: u64) -> Result<Writer> {
        Ok(Writer::new(Upload::begin(self, value, None, true, expected).await?))
    }

    /// Stores a source from beginning to end.  It goes on after a lost connection: without a stage
    /// from the beginning, in one transaction; with one from the last section of 64 MB, also in
    /// another run of the program.  A stage is a row that keeps an unfinished upload.
    pub async fn upload<S>(
        &self, value: &Value, source: &mut S, stage: Option<&Value>,
    ) -> Result<Summary>
    where
        S: AsyncRead + AsyncSeek + Send + Unpin,
    {
        let size = source.seek(SeekFrom::End(0)).await?;
        let state = &tokio::sync::Mutex::new((source, Content::default()));
        loop {
            let section =
                |_| async { self.section(value, stage, size, &mut *state.lock().await).await };
            match self.retry(section).await? {
                stored if stored.size == size => return Ok(stored),
                _ => continue,
            }
        }
    }

    /// One transaction.  The digest of the stage tells whether it has the beginning of the source:
    /// the commit of a section may have been done although its answer was lost.
    async fn section<S: AsyncRead + AsyncSeek + Unpin>(
        &self, value: &Value, stage: Option<&Value>, size: u64, (source, seen): &mut (S, Content),
    ) -> Result<Summary> {
        let expected = if stage.is_some() { 0 } else { size };
        let mut upload = Upload::begin(self, value, stage, stage.is_some(), expected).await?;
        let beginning = upload.beginning;
        if seen.size != beginning.size {
            *seen = Content::default();
        }
        source.seek(SeekFrom::Start(seen.size)).await?;
        while let Some(piece) = read(source, beginning.size - seen.size).await? {
            seen.update(&piece);
        }
        if seen.summary() != beginning {
            return Err(Error::Mismatch);
        }
        (upload.seen, upload.is_whole) = (std::mem::take(seen), true);
        let mut end = size;
        if let (Some(stage), true) = (&upload.stage, size > beginning.size + SECTION_BYTES) {
            end = beginning.size + SECTION_BYTES;
            upload.target = stage.clone();
            upload.stage = None;
        }
        upload.send(source, end).await?;
        if upload.seen.size < end {
            return Err(Error::Mismatch);
        }
        let stored = upload.store().await?;
        *seen = upload.seen;
        Ok(stored)
    }
}

impl Writer {
    fn new(mut upload: Upload) -> Self {
        let (pipe, mut content) = tokio::io::duplex(2 * ROW_BYTES as usize);
        let (commit, is_complete) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            upload.send(&mut content, u64::MAX).await?;
            is_complete.await.map_err(io::Error::other)?;
            upload.store().await
        });
        Writer { task, commit: Some(commit), pipe, summary: None }
    }

    /// That of the stored value, after `shutdown()`.
    pub fn summary(&self) -> Option<Summary> {
        self.summary
    }

    /// Waits for the end of the task, whose error says why it takes nothing more.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = ready!(self.task.poll_join_next(context)).ok_or(io::ErrorKind::BrokenPipe)?;
        self.summary = Some(end.map_err(io::Error::other)??);
        Poll::Ready(Ok(()))
    }
}

/// Content is sent without waiting for an answer: an error of the server may come at `shutdown()`.
impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Ok(length) = ready!(Pin::new(&mut self.pipe).poll_write(context, from)) {
            return Poll::Ready(Ok(length));
        }
        ready!(self.poll_end(context))?;
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A task that has ended takes no word; its error is told below.
        let _ = self.commit.take().map(|commit| commit.send(()));
        ready!(Pin::new(&mut self.pipe).poll_shutdown(context))?;
        match self.summary {
            Some(_) => Poll::Ready(Ok(())),
            None => self.poll_end(context),
        }
    }
}
