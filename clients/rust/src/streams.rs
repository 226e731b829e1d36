use crate::{column, summary, Error, Result, Retry, Store, Summary, Target, Value};
use crate::{BEGIN, COPY, DELETE_STAGE, INSERT, READ, RESUME, STAT, UPDATE};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Sink, SinkExt};
use sha2::{Digest, Sha256};
use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio_postgres::{Client, CopyInSink, Row};

/// A read: a message of this size costs little beside its bytes, and memory a few times it.
const PIECE_BYTES: u64 = 2 << 20;
/// Of a row of COPY: the server works on one while the next is made.
pub(crate) const ROW_BYTES: usize = 128 << 10;
const HEADER_BYTES: usize = 2 + 4 + 8 + 4;

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// One version of a value.  Reads fail with [`Error::Changed`] once it is replaced: two versions
/// are never mixed.  Content that is read from beginning to end is compared with the digest.
pub struct Reader {
    store: Store,
    target: Arc<Target>,
    summary: Summary,
    position: u64,
    piece: Option<(u64, u64, Row)>, // content: its offset and length
    fetching: Option<(u64, Work<Row>)>,
    hash: Sha256, // of the first hashed bytes
    hashed: u64,
}

impl Store {
    /// Opens a value to read.
    pub async fn open(&self, value: &Value) -> Result<Reader> {
        let mut retry = Retry::default();
        loop {
            match self.try_open(value).await {
                Err(error) => retry.after(error).await?,
                result => return result,
            }
        }
    }

    async fn try_open(&self, value: &Value) -> Result<Reader> {
        let client = self.client().await?;
        let target = self.target(&client, value).await?;
        let summary = summary(&target.rows(&client, STAT, &[]).await?)?;
        let (store, hash) = (self.clone(), Sha256::new());
        let (position, hashed, piece, fetching) = Default::default();
        Ok(Reader { store, target, summary, position, piece, fetching, hash, hashed })
    }
}

impl Reader {
    /// Size and digest.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Reads exactly this many bytes, which the value has.
    fn fetch(&self, offset: u64, length: u64) -> Work<Row> {
        let (store, target, sha256) =
            (self.store.clone(), self.target.clone(), self.summary.sha256.to_vec());
        Box::pin(async move {
            let mut retry = Retry::default();
            loop {
                let once = async {
                    let (from, count) = (offset as i64, length as i64);
                    let client = store.client().await?;
                    target.rows(&client, READ, &[&from, &count, &sha256]).await
                };
                match once.await {
                    Err(error) => retry.after(error).await?,
                    Ok(rows) => {
                        let row = rows.into_iter().next().ok_or(Error::Changed)?;
                        if column::<&[u8]>(&row, 0)?.len() as u64 != length {
                            return Err(Error::Unexpected("the server gives another length"));
                        }
                        return Ok(row);
                    }
                }
            }
        })
    }

    /// A range, fewer bytes at the end.  It does not move the position.
    pub async fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(length).min(self.summary.size);
        let mut content = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let row = self.fetch(at, PIECE_BYTES.min(end - at)).await?;
            content.extend_from_slice(column(&row, 0)?);
            at = offset + content.len() as u64;
        }
        Ok(content)
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let content = ready!(self.as_mut().poll_fill_buf(context))?;
        let length = content.len().min(into.remaining());
        into.put_slice(&content[..length]);
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}

/// Pieces as they come from the server: `tokio::io::copy_buf()` makes no copy of them.
impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        let Summary { size, sha256 } = this.summary;
        if this.position >= size {
            if this.hashed == size && this.hash.clone().finalize()[..] != sha256 {
                return Poll::Ready(Err(Error::Mismatch.into()));
            }
            return Poll::Ready(Ok(&[]));
        }
        let position = this.position;
        let has = matches!(&this.piece, Some((start, length, _))
            if position >= *start && position - start < *length);
        if !has {
            this.piece = None;
            if this.fetching.is_none() {
                let length = PIECE_BYTES.min(size - position);
                this.fetching = Some((position, this.fetch(position, length)));
            }
            if let Some((start, work)) = &mut this.fetching {
                let (start, result) = (*start, ready!(work.as_mut().poll(context)));
                this.fetching = None;
                let row = result?;
                let content = column::<&[u8]>(&row, 0)?;
                if this.hashed == start {
                    this.hash.update(content);
                    this.hashed += content.len() as u64;
                }
                this.piece = Some((start, content.len() as u64, row));
            }
        }
        match &this.piece {
            Some((start, _, row)) => {
                Poll::Ready(Ok(&column::<&[u8]>(row, 0)?[(position - start) as usize..]))
            }
            None => Poll::Ready(Ok(&[])),
        }
    }

    fn consume(mut self: Pin<&mut Self>, length: usize) {
        self.position += length as u64;
    }
}

/// A position may be beyond the end, where there is nothing to read.
impl AsyncSeek for Reader {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.summary.size.checked_add_signed(offset),
        };
        self.position = position.ok_or(Error::Position)?;
        self.fetching = None;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

/// A new value.  It has a connection in a transaction, in a COPY, until `shutdown()` stores the
/// value and commits.  Dropped before, it gives the value up: the row stays as it is.
pub struct Writer {
    client: Arc<Client>,
    pub(crate) target: Arc<Target>,
    pub(crate) staging: Option<Arc<Target>>, // to remove with the commit
    number: i64,                             // of the upload
    sink: Option<Pin<Box<CopyInSink<Bytes>>>>,
    row: BytesMut,                   // the next one: header and content
    pub(crate) hash: Option<Sha256>, // of all content; None if the beginning was not seen
    pub(crate) summary: Summary,
    closing: Option<Work<Summary>>,
    is_stored: bool,
}

impl Store {
    /// Begins a value that replaces that of the row, or is in a new row.  `expected` says how many
    /// bytes will come, or 0.
    pub async fn create(&self, value: &Value, expected: u64) -> Result<Writer> {
        self.begin(value, false, expected).await
    }

    /// Begins with the content that the row has, which is not written again.
    pub async fn append(&self, value: &Value, expected: u64) -> Result<Writer> {
        self.begin(value, true, expected).await
    }

    async fn begin(&self, value: &Value, resume: bool, expected: u64) -> Result<Writer> {
        let client = Arc::new((self.0.connect)().await?);
        let target = self.target(&client, value).await?;
        client.batch_execute("BEGIN").await?;
        let expected = i64::try_from(expected).unwrap_or(i64::MAX);
        let (rows, at) = match resume {
            true => (target.rows(&client, RESUME, &[&expected]).await?, 2),
            false => (client.query(&target.sql(BEGIN), &[&expected]).await?, 0),
        };
        let summary = match resume {
            true => summary(&rows)?,
            false => Summary { size: 0, sha256: [0; 32] },
        };
        let number = column(rows.first().ok_or(Error::Missing)?, at)?;
        let mut sink = Box::pin(client.copy_in(&target.sql(COPY)).await?);
        sink.feed(Bytes::from_static(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0")).await?;
        let (sink, row) = (Some(sink), BytesMut::new());
        let hash = (!resume).then(Sha256::new);
        let (staging, closing, is_stored) = Default::default();
        Ok(Writer { client, target, staging, number, sink, row, hash, summary, closing, is_stored })
    }
}

impl Writer {
    /// That of the stored value, after `shutdown()`.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let sink = self.sink.as_mut().ok_or_else(closed)?;
        if self.row.len() > HEADER_BYTES {
            ready!(sink.as_mut().poll_ready(context)).map_err(Error::from)?;
            let length = self.row.len() - HEADER_BYTES;
            self.row[HEADER_BYTES - 4..HEADER_BYTES]
                .copy_from_slice(&(length as u32).to_be_bytes());
            self.summary.size += length as u64;
            if let Some(hash) = &mut self.hash {
                hash.update(&self.row[HEADER_BYTES..]);
            }
            sink.as_mut().start_send(self.row.split().freeze()).map_err(Error::from)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Stores the value in the row, or in a new one, and commits.
    fn finish(&mut self) -> Option<Work<Summary>> {
        let mut sink = self.sink.take()?;
        let (client, target) = (self.client.clone(), self.target.clone());
        let (staging, number, size) = (self.staging.take(), self.number, self.summary.size);
        let digest = self.hash.clone().map(|hash| hash.finalize());
        Some(Box::pin(async move {
            sink.feed(Bytes::from_static(b"\xff\xff")).await?;
            sink.as_mut().finish().await?;
            let mut rows = target.rows(&client, UPDATE, &[&number]).await?;
            if rows.is_empty() {
                rows = target.rows(&client, INSERT, &[&number]).await?;
            }
            let stored = summary(&rows)?;
            if stored.size != size || digest.is_some_and(|digest| digest[..] != stored.sha256) {
                return Err(Error::Mismatch);
            }
            if let Some(staging) = staging {
                staging.rows(&client, DELETE_STAGE, &[]).await?;
            }
            client.batch_execute("COMMIT").await?;
            Ok(stored)
        }))
    }
}

/// Content is sent without waiting for an answer: an error of the server may come at `shutdown()`.
impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.row.len() >= HEADER_BYTES + ROW_BYTES || self.sink.is_none() {
            ready!(self.poll_send(context))?;
        }
        if self.row.is_empty() {
            let number = self.number;
            self.row.reserve(HEADER_BYTES + ROW_BYTES);
            self.row.put_u16(2);
            self.row.put_u32(8);
            self.row.put_i64(number);
            self.row.put_u32(0);
        }
        let length = from.len().min(HEADER_BYTES + ROW_BYTES - self.row.len());
        self.row.extend_from_slice(&from[..length]);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        match &mut self.sink {
            Some(sink) => {
                Poll::Ready(Ok(ready!(sink.as_mut().poll_flush(context)).map_err(Error::from)?))
            }
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() && !self.is_stored {
            ready!(self.poll_send(context))?;
            self.closing = self.finish();
        }
        if let Some(work) = &mut self.closing {
            let result = ready!(work.as_mut().poll(context));
            self.closing = None;
            self.summary = result?;
            self.is_stored = true;
        }
        Poll::Ready(Ok(()))
    }
}
