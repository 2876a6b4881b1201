//! Reads blobs: in ranges, several at a time, hashed in their order.

use std::{
    io::{self, Write},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_schema::{BlobDigest, bounds::BLOBS_BYTES_MAX};
use object_store::{Error, GetOptions, ObjectStore as _};

use super::{Objects, PART_BYTES, PARTS_AT_ONCE, problem::io_error};
use crate::{
    file::Found,
    source::pieces,
    step::{Progress, blocking},
};

impl Objects {
    /// Checks whether the blob has this length. If not, reads it to find out whether the blob or the task is wrong.
    pub(super) async fn look(&self, digest: BlobDigest, wanted: u64, progress: &Arc<Progress>) -> io::Result<Found> {
        let Some(standing) = self.find(digest).await? else { return Ok(Found::Missing) };
        let found = standing.bytes;
        if found == wanted {
            return Ok(Found::AsWanted);
        }
        // Reading more than that would take too long.
        if found > BLOBS_BYTES_MAX {
            return Ok(Found::OtherLength(found));
        }
        progress.expect(found);
        let whole = self.hash_to(digest, found, &mut io::sink(), progress).await??;
        Ok(if whole { Found::OtherLength(found) } else { Found::Damaged })
    }

    /// The outer error is of the store, the inner one of `into`.
    pub(super) async fn copy_to(
        &self,
        digest: BlobDigest,
        wanted: u64,
        into: &mut (impl Write + Send),
        progress: &Arc<Progress>,
    ) -> io::Result<io::Result<Found>> {
        match self.look(digest, wanted, progress).await? {
            Found::AsWanted => {}
            other => return Ok(Ok(other)),
        }
        let whole = self.hash_to(digest, wanted, into, progress).await?;
        Ok(whole.map(|whole| if whole { Found::AsWanted } else { Found::Damaged }))
    }

    /// Copies an object of this length, and returns whether its content matches the digest.
    async fn hash_to(
        &self,
        digest: BlobDigest,
        length: u64,
        into: &mut (impl Write + Send),
        progress: &Arc<Progress>,
    ) -> io::Result<io::Result<bool>> {
        let reads = pieces(length, PART_BYTES).map(async |range| {
            let room = self.parts.acquire().await.expect("the semaphore is never closed");
            let mut part = vec![0; (range.end - range.start) as usize];
            let is_filled = self.read_range(digest, range.start, &mut part, progress).await?.is_some();
            Ok::<_, io::Error>(is_filled.then_some((part, room)))
        });
        let mut reads = stream::iter(reads).buffered(PARTS_AT_ONCE);
        let mut hasher = digest.hasher();
        while let Some(part) = reads.try_next().await? {
            let Some((part, _room)) = part else { return Ok(Ok(false)) };
            let written = blocking(|| {
                hasher.update(&part);
                into.write_all(&part)
            });
            if let Err(error) = written {
                return Ok(Err(error));
            }
            progress.moved(1)?;
        }
        Ok(into.flush().map(|()| hasher.finish() == digest))
    }

    /// Reads a range of an object, and returns it; none if the object is gone or has another length in the meantime.
    async fn read_range<'a>(
        &self,
        digest: BlobDigest,
        offset: u64,
        into: &'a mut [u8],
        progress: &Progress,
    ) -> io::Result<Option<&'a mut [u8]>> {
        let range = offset..offset + into.len() as u64;
        let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
        let found = match self.store.get_opts(&self.key(digest), options).await {
            Ok(found) if found.range == range => found,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) if is_beyond_the_end(&error) => return Ok(None),
            Err(error) => return Err(io_error(&error)),
        };
        let mut stream = found.into_stream();
        let mut filled = 0;
        while let Some(bytes) = stream.try_next().await.map_err(|error| io_error(&error))? {
            let Some(room) = into.get_mut(filled..filled + bytes.len()) else { return Ok(None) };
            room.copy_from_slice(&bytes);
            filled += bytes.len();
            progress.moved(bytes.len())?;
        }
        Ok((filled == into.len()).then_some(into))
    }
}

/// Whether the range begins after the end of the object.
fn is_beyond_the_end(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("416") || text.contains("InvalidRange") || text.contains("range started at")
}
