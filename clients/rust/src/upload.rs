use crate::streams::ROW_BYTES;
use crate::{Error, Result, Retry, Store, Summary, Value, INSERT_STAGE};
use sha2::{Digest, Sha256};
use std::io::SeekFrom;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWriteExt, BufReader};

/// An upload with a stage commits after so many bytes.
const SECTION_BYTES: u64 = 64 << 20;

/// A row that keeps an unfinished upload.
#[derive(Clone)]
pub struct Stage(Value);

impl Stage {
    /// The table has the columns `name text PRIMARY KEY` and `content blobstate NOT NULL`, by
    /// default empty.
    pub fn new<const N: usize>(table: [&str; N], name: &str) -> Self {
        Stage(Value::new(table).key("name", name.to_string()))
    }
}

impl Store {
    /// Stores a source from beginning to end.  It goes on after a lost connection: without a stage
    /// from the beginning, in one transaction; with one from the last section of 64 MB, also in
    /// another run of the program.
    pub async fn upload<S>(
        &self, value: &Value, source: &mut S, stage: Option<&Stage>,
    ) -> Result<Summary>
    where
        S: AsyncRead + AsyncSeek + Send + Unpin,
    {
        let mut retry = Retry::default();
        let mut seen = None;
        loop {
            match self.section(value, source, stage, &mut seen).await {
                Ok((summary, false)) => return Ok(summary),
                Ok((_, true)) => retry = Retry::default(),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// Sends what fits into a transaction, and says whether there is more.  The digest of the stage
    /// tells whether it has the beginning of the source: the commit of a section may have been done
    /// although its answer was lost.  The last one is stored in the target, and the stage removed.
    async fn section<S>(
        &self, value: &Value, source: &mut S, stage: Option<&Stage>, seen: &mut Option<Sha256>,
    ) -> Result<(Summary, bool)>
    where
        S: AsyncRead + AsyncSeek + Send + Unpin,
    {
        let end = source.seek(SeekFrom::End(0)).await?;
        source.rewind().await?;
        let mut is_last = true;
        let mut writer = match stage {
            None => self.create(value, end).await?,
            Some(Stage(stage)) => {
                let client = self.client().await?;
                let staging = self.target(&client, stage).await?;
                staging.rows(&client, INSERT_STAGE, &[]).await?;
                let mut writer = self.append(stage, 0).await?;
                let Summary { size, sha256 } = writer.summary;
                let hash = match seen.take() {
                    Some(seen) if seen.clone().finalize()[..] == sha256 => {
                        source.seek(SeekFrom::Start(size)).await?;
                        seen
                    }
                    _ => hash(source, size).await?,
                };
                if size > end || hash.clone().finalize()[..] != sha256 {
                    return Err(Error::Mismatch);
                }
                writer.hash = Some(hash);
                is_last = end - size <= SECTION_BYTES;
                if is_last {
                    writer.staging = Some(staging);
                    writer.target = self.target(&client, value).await?;
                }
                writer
            }
        };
        let length = if stage.is_some() { SECTION_BYTES } else { u64::MAX };
        let mut source = BufReader::with_capacity(ROW_BYTES, source.take(length));
        tokio::io::copy_buf(&mut source, &mut writer).await?;
        writer.shutdown().await?;
        *seen = writer.hash.take();
        Ok((writer.summary, !is_last))
    }
}

/// SHA-256 of the first bytes of a source, which is read up to there.
async fn hash<S: AsyncRead + Unpin>(source: &mut S, length: u64) -> Result<Sha256> {
    let (mut hash, mut beginning) = (Sha256::new(), source.take(length));
    let mut buffer = vec![0; 1 << 20];
    loop {
        match beginning.read(&mut buffer).await? {
            0 => return Ok(hash),
            n => hash.update(&buffer[..n]),
        }
    }
}
