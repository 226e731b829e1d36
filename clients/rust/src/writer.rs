use crate::{Content, Error, Result, Store, Summary, Target, Value};
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, DuplexStream};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_postgres::{binary_copy::BinaryCopyInWriter, types::Type, Client};

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
    rows: Pin<Box<BinaryCopyInWriter>>,
    seen: Content,
}

impl Upload {
    /// With a stage it goes on at the end of what that has; returns what that is, too.
    async fn begin(
        store: &Store, value: &Value, stage: Option<&Value>, expected: u64,
    ) -> Result<(Self, Summary)> {
        let client = (store.0.connect)().await?;
        let target = store.target(&client, value).await?;
        client.batch_execute("BEGIN").await?;
        let (stage, row) = match stage {
            None => (None, client.query_opt(target.sql("begin"), &[&(expected as i64)]).await?),
            Some(stage) => {
                let stage = store.target(&client, stage).await?;
                stage.row(&client, "stage", &[]).await?;
                let row = stage.row(&client, "resume", &[&0_i64]).await?;
                (Some(stage), row)
            }
        };
        let row = row.ok_or(Error::Missing)?;
        let (beginning, number) = (Summary::of(&row)?, row.try_get(2)?);
        let sink = client.copy_in(target.sql("pieces")).await?;
        let rows = Box::pin(BinaryCopyInWriter::new(sink, &[Type::INT8, Type::BYTEA]));
        let seen = Content::default();
        Ok((Upload { client, target, stage, number, rows, seen }, beginning))
    }

    /// Sends a source up to a size, in rows, without waiting for answers.
    async fn send(&mut self, source: &mut (impl AsyncRead + Unpin), size: u64) -> Result<()> {
        while let Some(row) = read(source, size - self.seen.size).await? {
            self.seen.update(&row);
            self.rows.as_mut().write(&[&self.number, &row]).await?;
        }
        Ok(())
    }

    /// Stores the value in the row, or in a new one, and commits.
    async fn store(&mut self) -> Result<Summary> {
        self.rows.as_mut().finish().await?;
        let mut row = self.target.row(&self.client, "update", &[&self.number]).await?;
        if row.is_none() {
            row = self.target.row(&self.client, "insert", &[&self.number]).await?;
        }
        let stored = Summary::of(&row.ok_or(Error::Missing)?)?;
        if stored != self.seen.summary() {
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
async fn read(source: &mut (impl AsyncRead + Unpin), limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(ROW_BYTES as usize);
    source.take(limit.min(ROW_BYTES)).read_to_end(&mut bytes).await?;
    Ok((!bytes.is_empty()).then_some(bytes))
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
        let (mut upload, _) = Upload::begin(self, value, None, expected).await?;
        let (pipe, mut content) = tokio::io::duplex(2 * ROW_BYTES as usize);
        let (commit, is_complete) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            upload.send(&mut content, u64::MAX).await?;
            is_complete.await.map_err(io::Error::other)?;
            upload.store().await
        });
        Ok(Writer { task, commit: Some(commit), pipe, summary: None })
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
            let stored = self.retry(section).await?;
            if stored.size == size {
                return Ok(stored);
            }
        }
    }

    /// One transaction.  The digest of the stage tells whether it has the beginning of the source:
    /// the commit of a section may have been done although its answer was lost.
    async fn section<S: AsyncRead + AsyncSeek + Unpin>(
        &self, value: &Value, stage: Option<&Value>, size: u64, (source, seen): &mut (S, Content),
    ) -> Result<Summary> {
        let (mut upload, beginning) = Upload::begin(self, value, stage, size).await?;
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
        upload.seen = std::mem::take(seen);
        let mut end = size;
        if upload.stage.is_some() && size - beginning.size > SECTION_BYTES {
            end = beginning.size + SECTION_BYTES;
            upload.target = upload.stage.take().unwrap();
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
