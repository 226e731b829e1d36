use crate::{Content, Error, Result, Store, Summary, Target, Value, Work};
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, ReadBuf};
use tokio_postgres::Client;

/// A read: a message of this size costs little beside its bytes, and memory a few times it.
const PIECE_BYTES: u64 = 2 << 20;

/// One version of a value.  Reads fail with [`Error::Changed`] once it is replaced: two versions
/// are never mixed.  Content that is read from beginning to end is compared with the digest.
pub struct Reader {
    store: Store,
    target: Target,
    summary: Summary,
    position: u64,
    piece: Vec<u8>, // content from start on
    start: u64,
    fetching: Option<Work<Vec<u8>>>, // the piece at the position
    seen: Content,                   // the beginning, as far as it was read without a gap
}

impl Store {
    /// Opens a value to read.  It asks for the summary.
    pub async fn open(&self, value: &Value) -> Result<Reader> {
        let (target, summary) = self
            .retry(|client| async move {
                let target = self.target(&client, value).await?;
                let row = target.row(&client, "stat", &[]).await?;
                Ok((target, Summary::of(&row.ok_or(Error::Missing)?)?))
            })
            .await?;
        let (position, piece, start, fetching, seen) = Default::default();
        Ok(Reader { store: self.clone(), target, summary, position, piece, start, fetching, seen })
    }
}

impl Reader {
    /// Size and digest.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    fn fetch(&self, offset: u64, length: u64) -> Work<Vec<u8>> {
        let (store, target, sha256) =
            (self.store.clone(), self.target.clone(), self.summary.sha256.to_vec());
        let length = length.min(PIECE_BYTES).min(self.summary.size - offset);
        Box::pin(async move {
            let (from, count) = (offset as i64, length as i64);
            let read = |client: Arc<Client>| {
                let (target, sha256) = (&target, &sha256);
                async move { target.row(&client, "read", &[&from, &count, sha256]).await }
            };
            let row = store.retry(read).await?.ok_or(Error::Changed)?;
            let piece: Vec<u8> = row.try_get(0)?;
            (piece.len() as u64 == length).then_some(piece).ok_or(Error::Unexpected)
        })
    }

    /// A range, fewer bytes at the end.  It does not move the position.
    pub async fn read_range(&mut self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(length).min(self.summary.size);
        let mut content = Vec::new();
        let mut at = offset;
        while at < end {
            content.append(&mut self.fetch(at, end - at).await?);
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
        let has = this.start..this.start + this.piece.len() as u64;
        if this.position < this.summary.size && !has.contains(&this.position) {
            let work = this.fetching.take();
            let work = work.unwrap_or_else(|| this.fetch(this.position, PIECE_BYTES));
            let result = ready!(this.fetching.insert(work).as_mut().poll(context));
            this.fetching = None;
            (this.piece, this.start) = (result?, this.position);
            if this.seen.size == this.start {
                this.seen.update(&this.piece);
            }
        }
        if this.seen.size == this.summary.size && this.seen.summary() != this.summary {
            return Poll::Ready(Err(Error::Mismatch.into()));
        }
        let at = usize::try_from(this.position - this.start).unwrap_or(usize::MAX);
        Poll::Ready(Ok(this.piece.get(at..).unwrap_or_default()))
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
