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
/// A read elsewhere than behind the last one: what comes with the bytes that are wanted costs little.
const LEAST_BYTES: u64 = 64 << 10;

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

    /// Requests the piece at an offset, in place of another one: as many bytes as are wanted, and
    /// exist.
    fn request(&mut self, offset: u64, wanted: u64) {
        let (store, target, sha256) =
            (self.store.clone(), self.target.clone(), self.summary.sha256.to_vec());
        let length = wanted.clamp(LEAST_BYTES, PIECE_BYTES).min(self.summary.size - offset);
        let (from, count) = (offset as i64, length as i64);
        self.fetched = offset;
        self.fetching = JoinSet::new();
        self.fetching.spawn(async move {
            let read = |client: Arc<Client>| {
                let (target, sha256) = (&target, &sha256);
                async move { target.row(&client, "read", &[&from, &count, sha256]).await }
            };
            let row = store.retry(read).await?.ok_or(Error::Changed)?;
            let is_whole = row.try_get::<_, &[u8]>(0)?.len() as u64 == length;
            is_whole.then_some(row).ok_or(Error::Unexpected)
        });
    }

    /// What there is at the position: of the last piece, or of another one, which has what is
    /// wanted, or more if it follows the last one.  Then the one behind it is requested, too, so
    /// that the server works while the program does.
    fn poll_piece(&mut self, context: &mut Context<'_>, wanted: u64) -> Poll<io::Result<&[u8]>> {
        let (position, size) = (self.position, self.summary.size);
        if position < size && !(self.start..self.end).contains(&position) {
            let is_next = position > 0 && position == self.end;
            if self.fetching.is_empty() || self.fetched != position {
                self.request(position, if is_next { PIECE_BYTES } else { wanted });
            }
            let done = ready!(self.fetching.poll_join_next(context));
            let row = done.ok_or(Error::Unexpected)?.map_err(io::Error::other)??;
            let piece: &[u8] = row.try_get(0).map_err(Error::Postgres)?;
            (self.start, self.end) = (position, position + piece.len() as u64);
            if is_next && self.end < size {
                self.request(self.end, PIECE_BYTES);
            }
            if self.seen.size == position {
                self.seen.update(piece);
            }
            self.piece = Some(row);
        }
        if self.seen.size == size && self.seen.summary() != self.summary {
            return Poll::Ready(Err(Error::Mismatch.into()));
        }
        let at = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        let piece = self.piece.as_ref().and_then(|row| row.get::<_, &[u8]>(0).get(at..));
        Poll::Ready(Ok(piece.unwrap_or_default()))
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let content = ready!(self.poll_piece(context, into.remaining() as u64))?;
        let length = content.len().min(into.remaining());
        into.put_slice(&content[..length]);
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}

/// Pieces as they come from the server: `tokio::io::copy_buf()` makes no copy of them.
impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_piece(context, PIECE_BYTES)
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
