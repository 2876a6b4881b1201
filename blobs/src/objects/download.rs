//! Reads blobs: in ranges, several at a time, hashed in their order.

use std::{
    io::{self, Write},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
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
        let content = self.hash_to(digest, found, &mut io::sink(), progress).await??;
        Ok(if content == Some(digest) { Found::OtherLength(found) } else { Found::Damaged })
    }

    /// The outer error is of the store, the inner one of `into`. The first range shows whether the blob has the length, so that a small one
    /// takes one request.
    pub(super) async fn copy_to(
        &self,
        digest: BlobDigest,
        wanted: u64,
        into: &mut (impl Write + Send),
        progress: &Arc<Progress>,
    ) -> io::Result<io::Result<Found>> {
        // An empty blob has no range.
        if wanted == 0 {
            match self.look(digest, wanted, progress).await? {
                Found::AsWanted => {}
                other => return Ok(Ok(other)),
            }
        }
        let content = match self.hash_to(digest, wanted, into, progress).await? {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(match content {
            Some(content) if content == digest => Found::AsWanted,
            Some(_) => Found::Damaged,
            None => match self.look(digest, wanted, progress).await? {
                // Another program has replaced it in the meantime.
                Found::AsWanted => Found::Damaged,
                other => other,
            },
        }))
    }

    /// Copies an object of this length, and returns the digest of its content; none if it is gone or has another length.
    async fn hash_to(
        &self,
        digest: BlobDigest,
        length: u64,
        into: &mut (impl Write + Send),
        progress: &Arc<Progress>,
    ) -> io::Result<io::Result<Option<BlobDigest>>> {
        let reads = pieces(length, PART_BYTES).map(async |range| {
            let room = self.parts.acquire().await.expect("the semaphore is never closed");
            let part = self.read_range(digest, range, length, progress).await?;
            Ok::<_, io::Error>(part.map(|part| (part, room)))
        });
        let mut reads = stream::iter(reads).buffered(PARTS_AT_ONCE);
        let mut hasher = digest.hasher();
        while let Some(part) = reads.try_next().await? {
            let Some((part, _room)) = part else { return Ok(Ok(None)) };
            let written = blocking(|| {
                part.iter().try_for_each(|bytes| {
                    hasher.update(bytes);
                    into.write_all(bytes)
                })
            });
            if let Err(error) = written {
                return Ok(Err(error));
            }
            progress.moved(1)?;
        }
        Ok(into.flush().map(|()| Some(hasher.finish())))
    }

    /// Reads a range of an object as it arrives, without a copy; none if the object is gone or has another length.
    async fn read_range(
        &self,
        digest: BlobDigest,
        range: Range<u64>,
        length: u64,
        progress: &Progress,
    ) -> io::Result<Option<Vec<Bytes>>> {
        let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
        let found = match self.store.get_opts(&self.key(digest), options).await {
            Ok(found) if found.range == range && found.meta.size == length => found,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) if is_beyond_the_end(&error) => return Ok(None),
            Err(error) => return Err(io_error(&error)),
        };
        let mut stream = found.into_stream();
        let (mut part, mut missing) = (Vec::new(), range.end - range.start);
        while let Some(bytes) = stream.try_next().await.map_err(|error| io_error(&error))? {
            let Some(rest) = missing.checked_sub(bytes.len() as u64) else { return Ok(None) };
            missing = rest;
            progress.moved(bytes.len())?;
            part.push(bytes);
        }
        Ok((missing == 0).then_some(part))
    }
}

/// Whether the range begins after the end of the object.
fn is_beyond_the_end(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("416") || text.contains("InvalidRange") || text.contains("Wanted range starting at")
}
