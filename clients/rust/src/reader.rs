use crate::{Content, Error, Result, Store, Summary, Target, Value};
use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, ReadBuf};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Row};

/// A read: a message of this size costs little beside its bytes, and memory a few times it.
const PIECE_BYTES: u64 = 2 << 20;

/// One version of a value.  Reads fail with [`Error::Changed`] once it is replaced: two versions
/// are never mixed.  Content that is read from beginning to end is compared with the digest.
pub struct Reader {
    store: Store,
    target: Target,
    summary: Summary,
    position: u64,
    piece: Option<Row>, // content from start to end
    start: u64,
    end: u64,
    fetching: JoinSet<Result<Row>>, // of the piece at fetched; it ends when it is dropped
    fetched: u64,
    seen: Content, // the beginning, as far as it was read without a gap
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
        let (piece, fetching, seen) = Default::default();
        let (store, [position, start, end, fetched]) = (self.clone(), [0; 4]);
        Ok(Reader { store, target, summary, position, piece, start, end, fetching, fetched, seen })
    }
}

impl Reader {
    /// Size and digest.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Requests a piece: a row whose first column has as many bytes as are wanted, and exist.
    fn fetch(&self, offset: u64, length: u64) -> impl Future<Output = Result<Row>> + 'static {
        let (store, target, sha256) =
            (self.store.clone(), self.target.clone(), self.summary.sha256.to_vec());
        let length = length.min(PIECE_BYTES).min(self.summary.size - offset);
        async move {
            let (from, count) = (offset as i64, length as i64);
            let read = |client: Arc<Client>| {
                let (target, sha256) = (&target, &sha256);
                async move { target.row(&client, "read", &[&from, &count, sha256]).await }
            };
            let row = store.retry(read).await?.ok_or(Error::Changed)?;
            let is_whole = row.try_get::<_, &[u8]>(0)?.len() as u64 == length;
            is_whole.then_some(row).ok_or(Error::Unexpected)
        }
    }

    /// Requests the piece at an offset, in place of another one.
    fn request(&mut self, offset: u64) {
        let piece = self.fetch(offset, PIECE_BYTES);
        self.fetching = JoinSet::new();
        self.fetching.spawn(piece);
        self.fetched = offset;
    }

    /// A range, fewer bytes at the end.  It does not move the position.
    pub async fn read_range(&mut self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(length).min(self.summary.size);
        let mut content = Vec::new();
        let mut at = offset;
        while at < end {
            content.extend_from_slice(self.fetch(at, end - at).await?.try_get(0)?);
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

/// Pieces as they come from the server: `tokio::io::copy_buf()` makes no copy of them.  When one
/// follows the one before, the next is requested, so that the server works while the program does.
impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        let (position, size) = (this.position, this.summary.size);
        if position < size && !(this.start..this.end).contains(&position) {
            if this.fetching.is_empty() || this.fetched != position {
                this.request(position);
            }
            let done = ready!(this.fetching.poll_join_next(context));
            let row = done.ok_or(Error::Unexpected)?.map_err(io::Error::other)??;
            let piece: &[u8] = row.try_get(0).map_err(Error::Postgres)?;
            let is_next = position > 0 && position == this.end;
            (this.start, this.end) = (position, position + piece.len() as u64);
            if is_next && this.end < size {
                this.request(this.end);
            }
            if this.seen.size == position {
                this.seen.update(piece);
            }
            this.piece = Some(row);
        }
        if this.seen.size == size && this.seen.summary() != this.summary {
            return Poll::Ready(Err(Error::Mismatch.into()));
        }
        let at = usize::try_from(position - this.start).unwrap_or(usize::MAX);
        let piece = this.piece.as_ref().and_then(|row| row.get::<_, &[u8]>(0).get(at..));
        Poll::Ready(Ok(piece.unwrap_or_default()))
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
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
