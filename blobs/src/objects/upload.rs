//! Stores blobs: small ones in one request, larger ones in parts, several at a time.
//!
//! S3 needs the name of a blob first and can't rename, so a blob is hashed before it is sent. A small one is read into memory once, where
//! it can't change. The parts of a larger one are hashed again as they are sent, unless this process owns its bytes. The upload is
//! completed only if that gives the same digest; otherwise a wrong blob could replace a correct one.

use std::{io, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use gpufleet_schema::{BlobDigest, BlobHasher};
use object_store::{
    MultipartUpload, ObjectStore as _, PutMultipartOptions, PutOptions, PutPayload, Result as StoreResult,
};
use tokio::{task::JoinSet, time::timeout};

use super::{Objects, PART_BYTES, PARTS_AT_ONCE, marked, problem::io_error};
use crate::{
    file::digest_of,
    source::{BlobSource, Owned, pieces},
    step::{self, Progress, blocking},
    write::CHANGED,
};

/// Number of attempts to store a blob that a pruner keeps removing.
const STORE_TRIES: u32 = 5;
/// The largest number of parts of an upload that S3 accepts.
const PARTS_MAX: u64 = 10_000;
/// Time limit for aborting an upload on the server. A lifecycle rule removes parts that the server still has.
const ABORT_DEADLINE: Duration = Duration::from_secs(30);

/// An upload that is aborted unless it was completed.
struct Unfinished(Option<Box<dyn MultipartUpload>>);

impl Objects {
    /// Stores a small blob: a new one in one request. An existing one is sent again, which repairs it and renews its age.
    pub(super) async fn store_at_once(
        &self,
        source: &mut impl BlobSource,
        progress: &Arc<Progress>,
    ) -> io::Result<BlobDigest> {
        let _room = self.parts.acquire().await.expect("the semaphore is never closed");
        let (digest, bytes) = blocking(|| {
            let mut owned = Owned::read(source, progress)?;
            Ok::<_, io::Error>((digest_of(&mut owned, progress)?, owned.0))
        })?;
        if self.refuses_to_replace().await? && self.is_created(digest, &bytes).await? {
            return Ok(digest);
        }
        for _ in 0..STORE_TRIES {
            let options = PutOptions { attributes: marked(digest), ..PutOptions::default() };
            let sent = self.store.put_opts(&self.key(digest), bytes.clone().into(), options).await;
            sent.map_err(|error| io_error(&error))?;
            if self.outlives_pruning(digest, progress).await? {
                return Ok(digest);
            }
        }
        Err(removed_each_time())
    }

    /// Stores a blob in parts. An existing one is not sent again if the server can renew its age, unless it has another length or lacks our
    /// mark.
    pub(super) async fn store_in_parts(
        &self,
        source: &mut impl BlobSource,
        progress: &Arc<Progress>,
    ) -> io::Result<BlobDigest> {
        let digest = blocking(|| digest_of(source, progress))?;
        for _ in 0..STORE_TRIES {
            let standing = self.head(digest).await?;
            let is_whole = standing.is_some_and(|standing| standing.is_marked && standing.bytes == source.length());
            if !(is_whole && self.renew(digest).await) {
                self.upload(digest, source, progress).await?;
            }
            // Only an object that was there before can be in the hands of a pruner.
            if standing.is_none() || self.outlives_pruning(digest, progress).await? {
                return Ok(digest);
            }
        }
        Err(removed_each_time())
    }

    /// Creates a blob; false if it exists, or if the server did not say. It may close the connection before it has read a blob that it
    /// refuses.
    async fn is_created(&self, digest: BlobDigest, bytes: &Bytes) -> io::Result<bool> {
        match self.create(&self.key(digest), bytes.clone().into(), marked(digest)).await.map_err(|e| io_error(&e)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(false),
            created => created,
        }
    }

    async fn renew(&self, digest: BlobDigest) -> bool {
        match &self.renewer {
            Some(renewer) => renewer.copy_onto_itself(&self.key(digest), digest).await,
            None => false,
        }
    }

    async fn upload(
        &self,
        digest: BlobDigest,
        source: &mut impl BlobSource,
        progress: &Arc<Progress>,
    ) -> io::Result<()> {
        let options = PutMultipartOptions { attributes: marked(digest), ..PutMultipartOptions::default() };
        let begun = self.store.put_multipart_opts(&self.key(digest), options).await;
        let mut upload = Unfinished(Some(begun.map_err(|error| io_error(&error))?));
        self.upload_parts(&mut upload, digest, source, progress).await?;
        upload.complete().await.map_err(|error| io_error(&error))
    }

    async fn upload_parts(
        &self,
        upload: &mut Unfinished,
        digest: BlobDigest,
        source: &mut impl BlobSource,
        progress: &Progress,
    ) -> io::Result<()> {
        let mut hasher = digest.hasher();
        // Dropped, it ends the requests.
        let mut sending = JoinSet::new();
        let units = units_of_part(source.length());
        for range in pieces(source.length(), units as usize * PART_BYTES) {
            if sending.len() == PARTS_AT_ONCE {
                sent(&mut sending, progress).await?;
            }
            let room = Arc::clone(&self.parts).acquire_many_owned(units).await.expect("the semaphore is never closed");
            let part = blocking(|| part_of(source, range, &mut hasher))?;
            let length = part.len();
            let request = upload.part(part);
            sending.spawn(async move {
                let sent = request.await;
                drop(room);
                sent.map(|()| length)
            });
        }
        while !sending.is_empty() {
            sent(&mut sending, progress).await?;
        }
        if source.owned().is_none() && hasher.finish() != digest {
            return Err(io::Error::other(CHANGED));
        }
        Ok(())
    }
}

fn removed_each_time() -> io::Error {
    io::Error::other("other processes remove the blob each time")
}

/// The size of a part, in units of [`PART_BYTES`]: several only if S3 would not accept as many parts.
fn units_of_part(length: u64) -> u32 {
    length.div_ceil(PARTS_MAX * PART_BYTES as u64) as u32
}

/// A part to send. One that the process does not own is copied, and hashed from the copy.
fn part_of(source: &mut impl BlobSource, range: Range<u64>, hasher: &mut BlobHasher) -> io::Result<Bytes> {
    if let Some(bytes) = source.owned() {
        return Ok(bytes.slice(range.start as usize..range.end as usize));
    }
    let mut part = vec![0; (range.end - range.start) as usize];
    source.read_at(&mut part, range.start)?;
    hasher.update(&part);
    Ok(part.into())
}

/// Waits for the next part that was sent.
async fn sent(sending: &mut JoinSet<StoreResult<usize>>, progress: &Progress) -> io::Result<()> {
    let Some(done) = sending.join_next().await else { return Ok(()) };
    let length = done.map_err(io::Error::other)?.map_err(|error| io_error(&error))?;
    progress.moved(length)
}

impl Unfinished {
    fn part(&mut self, bytes: Bytes) -> object_store::UploadPart {
        self.0.as_mut().expect("only completing takes the upload").put_part(PutPayload::from(bytes))
    }

    async fn complete(&mut self) -> StoreResult<()> {
        let upload = self.0.as_mut().expect("only completing takes the upload");
        upload.complete().await?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(mut upload) = self.0.take() else { return };
        let abort = async move { timeout(ABORT_DEADLINE, upload.abort()).await };
        // The step may be cancelled, and what it drops can't wait.
        step::spawn_detached(abort);
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::bounds::BUFFER_BYTES_MAX;

    use super::*;
    use crate::objects::PARTS_IN_MEMORY;

    #[test]
    fn the_parts_of_the_largest_blob_are_few_enough_for_s3_and_small_enough_for_memory() {
        assert_eq!(units_of_part(9 << 20), 1);
        for length in [80_000 << 20, (80_000 << 20) + 1, BUFFER_BYTES_MAX] {
            let units = units_of_part(length);
            assert!(length.div_ceil(u64::from(units) * PART_BYTES as u64) <= PARTS_MAX, "{length}");
            assert!(units as usize <= PARTS_IN_MEMORY, "{length}");
        }
    }
}
