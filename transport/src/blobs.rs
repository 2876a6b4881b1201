//! The blob store: a folder that producers and workers share, in which an array waits under the name of what it contains.
//!
//! A blob is a file `sha256-<digits>`, whole from the moment at which it has that name: it is written under another one, brought to the
//! disk, and renamed. So anybody may write one, twice and at once, and nobody ever reads a part. What is read is checked against
//! its name.
//!
//! Folders of other machines can hang for longer than anybody waits. Every step here runs on a thread of its own, has a deadline, and
//! a store that hangs keeps no more than a few of them.

mod file;
mod prune;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use gpufleet_schema::BlobDigest;
use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};

pub use self::prune::Pruned;

/// Enough to keep a disk busy; what hangs holds a thread each.
const STEPS_AT_ONCE: usize = 16;
/// What a step may take in any case, for a folder that another machine serves.
const STEP_DEADLINE: Duration = Duration::from_secs(30);
/// The slowest store that is still worth waiting for.
const BYTES_PER_SECOND_MIN: u64 = 8 << 20;

/// A folder of blobs. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobStore {
    folder: Arc<Path>,
    steps: Arc<Semaphore>,
}

/// What a store could not do.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("use {} as a blob store: {problem}", folder.display())]
    Folder { folder: PathBuf, problem: String },
    #[error("find {digest} in the blob store {}", folder.display())]
    Missing { digest: BlobDigest, folder: PathBuf },
    #[error("use {digest}: it has {found} bytes, {wanted} are wanted")]
    Length { digest: BlobDigest, found: u64, wanted: u64 },
    #[error("use {digest}: the blob store {} has something else under its name; remove that file and store it again", folder.display())]
    Damaged { digest: BlobDigest, folder: PathBuf },
    #[error("{step} in the blob store {}: {source}", folder.display())]
    Io { step: &'static str, folder: PathBuf, source: io::Error },
    #[error("{step} in the blob store {} within {} s", folder.display(), waited.as_secs())]
    Timeout { step: &'static str, folder: PathBuf, waited: Duration },
}

impl BlobStore {
    /// A store in a folder that is there.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, BlobError> {
        let folder: PathBuf = folder.into();
        let store = Self { folder: Arc::from(folder.as_path()), steps: Arc::new(Semaphore::new(STEPS_AT_ONCE)) };
        let is_folder = store.step("look", 0, |folder| Ok(folder.metadata()?.is_dir())).await;
        let unfit = |problem: String| BlobError::Folder { folder: folder.clone(), problem };
        match is_folder {
            Ok(true) => Ok(store),
            Ok(false) => Err(unfit("it is no folder".to_owned())),
            Err(BlobError::Io { source, .. }) => Err(unfit(source.to_string())),
            Err(other) => Err(other),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores bytes, and returns once they are on the disk. What is there already stays, and counts as new.
    ///
    /// Cancelled, it may go on, and does no harm.
    pub async fn put<B>(&self, bytes: B) -> Result<BlobDigest, BlobError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let length = bytes.as_ref().len() as u64;
        self.step("store a blob", length, move |folder| {
            let digest = BlobDigest::of(bytes.as_ref());
            file::write(folder, digest, bytes.as_ref())?;
            Ok(digest)
        })
        .await
    }

    /// Whether it is there and has so many bytes. What it contains is found out by reading it.
    pub async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<(), BlobError> {
        let found = self.step("look", 0, move |folder| file::length(folder, digest)).await;
        self.expect_length(digest, found?, bytes)
    }

    /// Reads a blob of exactly so many bytes.
    pub async fn read(&self, digest: BlobDigest, bytes: u64) -> Result<Vec<u8>, BlobError> {
        self.check(digest, bytes).await?;
        let mut into = Vec::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        into.try_reserve_exact(length).map_err(|_| BlobError::Io {
            step: "read a blob",
            folder: self.folder.to_path_buf(),
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        into.resize(length, 0);
        let (into, read) = self.fill(digest, into).await?;
        read.map(|()| into)
    }

    /// Reads a blob into what has exactly its length, and gives that back; where the step came to no end in time it is lost.
    ///
    /// Cancelled, it goes on for as long as the store takes.
    pub async fn fill<B>(&self, digest: BlobDigest, mut into: B) -> Result<(B, Result<(), BlobError>), BlobError>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let wanted = into.as_mut().len() as u64;
        let (into, read) = self
            .step("read a blob", wanted, move |folder| {
                let read = file::read(folder, digest, into.as_mut());
                Ok((into, read))
            })
            .await?;
        let read = match read {
            Ok(file::Read::Whole) => Ok(()),
            Ok(file::Read::OtherLength(found)) => self.expect_length(digest, Some(found), wanted),
            Ok(file::Read::OtherContents) => Err(BlobError::Damaged { digest, folder: self.folder.to_path_buf() }),
            Ok(file::Read::Missing) => Err(self.missing(digest)),
            Err(source) => Err(BlobError::Io { step: "read a blob", folder: self.folder.to_path_buf(), source }),
        };
        Ok((into, read))
    }

    /// Removes the blobs that nobody has stored for so long, and what interrupted writers have left behind.
    pub async fn prune(&self, unused_for: Duration) -> Result<Pruned, BlobError> {
        self.step("remove blobs", u64::from(u32::MAX), move |folder| prune::prune(folder, unused_for)).await
    }

    fn expect_length(&self, digest: BlobDigest, found: Option<u64>, wanted: u64) -> Result<(), BlobError> {
        match found {
            None => Err(self.missing(digest)),
            Some(found) if found == wanted => Ok(()),
            Some(found) => Err(BlobError::Length { digest, found, wanted }),
        }
    }

    fn missing(&self, digest: BlobDigest) -> BlobError {
        BlobError::Missing { digest, folder: self.folder.to_path_buf() }
    }

    async fn step<T: Send + 'static>(
        &self,
        step: &'static str,
        bytes: u64,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlobError> {
        let deadline = STEP_DEADLINE + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        let folder = Arc::clone(&self.folder);
        let steps = Arc::clone(&self.steps);
        let working = async move {
            let permit = steps.acquire_owned().await.expect("the semaphore is never closed");
            let (done, doing) = oneshot::channel();
            // No thread of the runtime's: one that hangs would keep the process from its end.
            thread::Builder::new().name("blob-store".to_owned()).spawn(move || {
                let result = work(&folder);
                // A step that hangs keeps its place for as long as its thread.
                drop(permit);
                // Nobody may wait for it any more.
                drop(done.send(result));
            })?;
            doing.await.map_err(|_| io::Error::other("its thread has panicked"))?
        };
        match timeout(deadline, working).await {
            Ok(done) => done.map_err(|source| BlobError::Io { step, folder: self.folder.to_path_buf(), source }),
            Err(_) => Err(BlobError::Timeout { step, folder: self.folder.to_path_buf(), waited: deadline }),
        }
    }
}

#[cfg(test)]
mod tests;
