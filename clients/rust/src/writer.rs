use crate::{Content, Error, Result, Store, Summary, Target, Value, Work};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite};
use tokio::sync::Mutex;
use tokio_postgres::{Client, CopyInSink};

/// Of a row of COPY: the server works on one while the next is made.
const ROW_BYTES: usize = 128 << 10;
/// An upload with a stage commits after so many bytes.
const SECTION_BYTES: u64 = 64 << 20;

/// A transaction in a COPY, on a connection of its own, whose end is that of what is not stored.
struct Sending {
    client: Arc<Client>,
    target: Target,
    stage: Option<Target>, // to remove with the commit
    number: i64,           // of the upload
    sink: Pin<Box<CopyInSink<Bytes>>>,
    seen: Content,
    is_whole: bool,   // seen has the digest of all content
    summary: Summary, // of what the row has
}

impl Sending {
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
        let (summary, number) = (Summary::of(&row)?, row.try_get(2)?);
        let mut sink = Box::pin(client.copy_in(target.sql("pieces")).await?);
        sink.feed(Bytes::from_static(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0")).await?;
        let seen = Content { size: summary.size, ..Default::default() };
        let (stage, is_whole) = (stage.map(|_| from), !resume);
        Ok(Sending { client, target, stage, number, sink, seen, is_whole, summary })
    }

    /// Sends a row without waiting for an answer.
    async fn send(mut self, content: Bytes) -> Result<Self> {
        let mut header = BytesMut::new();
        header.put_u16(2);
        header.put_u32(8);
        header.put_i64(self.number);
        header.put_u32(content.len() as u32);
        self.seen.update(&content);
        self.sink.feed(header.freeze()).await?;
        self.sink.feed(content).await?;
        Ok(self)
    }

    /// Stores the value in the row, or in a new one, and commits.
    async fn store(mut self) -> Result<Self> {
        self.sink.feed(Bytes::from_static(b"\xff\xff")).await?;
        self.sink.as_mut().finish().await?;
        let mut row = self.target.row(&self.client, "update", &[&self.number]).await?;
        if row.is_none() {
            row = self.target.row(&self.client, "insert", &[&self.number]).await?;
        }
        self.summary = Summary::of(&row.ok_or(Error::Missing)?)?;
        let seen = self.seen.summary();
        if self.summary.size != seen.size || self.is_whole && self.summary != seen {
            return Err(Error::Mismatch);
        }
        if let Some(stage) = &self.stage {
            stage.row(&self.client, "unstage", &[]).await?;
        }
        self.client.batch_execute("COMMIT").await?;
        Ok(self)
    }
}

/// A new value.  It has a connection in a transaction, in a COPY, until `shutdown()` stores the
/// value and commits.  Dropped before, it gives the value up: the row stays as it is.
pub struct Writer {
    row: BytesMut,            // the next one
    sending: Option<Sending>, // between two works; None after an error
    work: Option<Work<Sending>>,
    is_closing: bool,
}

impl Store {
    /// Begins a value that replaces that of the row, or is in a new row.  `expected` says how many
    /// bytes will come, or 0.
    pub async fn create(&self, value: &Value, expected: u64) -> Result<Writer> {
        Ok(Writer::new(Sending::begin(self, value, None, false, expected).await?))
    }

    /// Begins with the content that the row has, which is not written again.
    pub async fn append(&self, value: &Value, expected: u64) -> Result<Writer> {
        Ok(Writer::new(Sending::begin(self, value, None, true, expected).await?))
    }

    /// Stores a source from beginning to end.  It goes on after a lost connection: without a stage
    /// from the beginning, in one transaction; with one from the last section of 64 MB, also in
    /// another run of the program.  A stage is a row that keeps an unfinished upload.
    ///
    /// The digest of the stage tells whether it has the beginning of the source: the commit of a
    /// section may have been done although its answer was lost.
    pub async fn upload<S>(
        &self, value: &Value, source: &mut S, stage: Option<&Value>,
    ) -> Result<Summary>
    where
        S: AsyncRead + AsyncSeek + Send + Unpin,
    {
        let state = &Mutex::new((source, Content::default()));
        let section = |_| async move {
            let (source, seen) = &mut *state.lock().await;
            let size = source.seek(SeekFrom::End(0)).await?;
            let expected = if stage.is_some() { 0 } else { size };
            let mut sending = Sending::begin(self, value, stage, stage.is_some(), expected).await?;
            let beginning = sending.summary.size;
            if seen.size != beginning {
                *seen = Content::default();
            }
            source.seek(SeekFrom::Start(seen.size)).await?;
            while seen.size < beginning {
                seen.update(&read(source, beginning - seen.size).await?);
            }
            if seen.summary() != sending.summary {
                return Err(Error::Mismatch);
            }
            (sending.seen, sending.is_whole) = (std::mem::take(seen), true);
            let end = if stage.is_some() { size.min(beginning + SECTION_BYTES) } else { size };
            if let (true, Some(stage)) = (end < size, &sending.stage) {
                sending.target = stage.clone();
                sending.stage = None;
            }
            while sending.seen.size < end {
                let row = read(source, end - sending.seen.size).await?;
                sending = sending.send(row).await?;
            }
            sending = sending.store().await?;
            *seen = sending.seen;
            Ok((sending.summary, end == size))
        };
        loop {
            if let (summary, true) = self.retry(section).await? {
                return Ok(summary);
            }
        }
    }
}

/// The next bytes of a source, for a row.  That there are none is an error.
async fn read<S: AsyncRead + Unpin>(source: &mut S, most: u64) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    source.take(most.min(ROW_BYTES as u64)).read_to_end(&mut bytes).await?;
    (!bytes.is_empty()).then_some(bytes.into()).ok_or(Error::Mismatch)
}

impl Writer {
    fn new(sending: Sending) -> Self {
        let (row, work, is_closing) = Default::default();
        Writer { row, sending: Some(sending), work, is_closing }
    }

    /// That of the stored value, after `shutdown()`.
    pub fn summary(&self) -> Option<Summary> {
        self.sending.as_ref().filter(|_| self.is_closing).map(|sending| sending.summary)
    }

    /// Ends the work that has begun.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(work) = &mut self.work {
            let result = ready!(work.as_mut().poll(context));
            self.work = None;
            self.sending = Some(result?);
        }
        Poll::Ready(match self.sending {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_work(context))?;
        if !self.row.is_empty() {
            let row = self.row.split().freeze();
            self.work = self.sending.take().map(|sending| Box::pin(sending.send(row)) as Work<_>);
        }
        self.poll_work(context)
    }
}

/// Content is sent without waiting for an answer: an error of the server may come at `shutdown()`.
impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.row.len() >= ROW_BYTES {
            ready!(self.poll_send(context))?;
        }
        let length = from.len().min(ROW_BYTES - self.row.len());
        self.row.extend_from_slice(&from[..length]);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closing {
            ready!(self.poll_send(context))?;
            self.is_closing = true;
            self.work = self.sending.take().map(|sending| Box::pin(sending.store()) as Work<_>);
        }
        self.poll_work(context)
    }
}
