//! Writes blobs: small ones in one request, larger ones in parts, several at a time.
//!
//! Each part is copied once and hashed from that copy if the bytes may be in memory shared with an untrusted process. The upload is
//! completed only if the hash of all parts is the digest; otherwise a wrong blob could replace a correct one.

use std::{io, sync::Arc, time::Duration};

use gpufleet_schema::{BlobDigest, BlobHasher};
use object_store::{
    MultipartUpload, ObjectStore as _, PutMultipartOptions, PutOptions, PutPayload, Result as StoreResult,
};
use tokio::{task::JoinSet, time::timeout};

use super::{Objects, PART_BYTES, PARTS_AT_ONCE, marked, problem::io_error};
use crate::{
    source::{BlobSource, pieces},
    step::{self, Progress, blocking},
    write::CHANGED,
};

/// Time limit for aborting an upload on the server. A lifecycle rule removes parts that the server still has.
const ABORT_DEADLINE: Duration = Duration::from_secs(30);

/// An upload that is aborted unless it was completed.
struct Unfinished(Option<Box<dyn MultipartUpload>>);

impl Objects {
    pub(super) async fn upload(
        &self,
        digest: BlobDigest,
        source: &mut impl BlobSource,
        progress: &Arc<Progress>,
    ) -> io::Result<()> {
        if source.length() <= PART_BYTES as u64 {
            return self.upload_at_once(digest, source, progress).await;
        }
        let options = PutMultipartOptions { attributes: marked(digest), ..PutMultipartOptions::default() };
        let begun = self.store.put_multipart_opts(&self.key(digest), options).await;
        let mut upload = Unfinished(Some(begun.map_err(|error| io_error(&error))?));
        self.upload_parts(&mut upload, digest, source, progress).await?;
        upload.complete().await.map_err(|error| io_error(&error))
    }

    async fn upload_at_once(
        &self,
        digest: BlobDigest,
        source: &mut impl BlobSource,
        progress: &Progress,
    ) -> io::Result<()> {
        let _room = self.parts.acquire().await.expect("the semaphore is never closed");
        let mut hasher = digest.hasher();
        let bytes = blocking(|| part_of(source, 0..source.length(), &mut hasher))?;
        if source.may_change() && hasher.finish() != digest {
            return Err(io::Error::other(CHANGED));
        }
        progress.moved(bytes.len())?;
        let options = PutOptions { attributes: marked(digest), ..PutOptions::default() };
        let sent = self.store.put_opts(&self.key(digest), PutPayload::from(bytes), options).await;
        sent.map(drop).map_err(|error| io_error(&error))
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
        for range in pieces(source.length(), PART_BYTES) {
            if sending.len() == PARTS_AT_ONCE {
                sent(&mut sending, progress).await?;
            }
            let room = Arc::clone(&self.parts).acquire_owned().await.expect("the semaphore is never closed");
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
        if source.may_change() && hasher.finish() != digest {
            return Err(io::Error::other(CHANGED));
        }
        Ok(())
    }
}

fn part_of(source: &mut impl BlobSource, range: std::ops::Range<u64>, hasher: &mut BlobHasher) -> io::Result<Vec<u8>> {
    let mut part = vec![0; (range.end - range.start) as usize];
    source.read_at(&mut part, range.start)?;
    if source.may_change() {
        hasher.update(&part);
    }
    Ok(part)
}

/// Waits for the next part that was sent.
async fn sent(sending: &mut JoinSet<StoreResult<usize>>, progress: &Progress) -> io::Result<()> {
    let Some(done) = sending.join_next().await else { return Ok(()) };
    let length = done.map_err(io::Error::other)?.map_err(|error| io_error(&error))?;
    progress.moved(length)
}

impl Unfinished {
    fn part(&mut self, bytes: Vec<u8>) -> object_store::UploadPart {
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
