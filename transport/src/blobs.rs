//! The blob store: a folder that producers and workers share. Each array is stored under its digest.
//!
//! A blob is a file `sha256-<digits>`. A writer writes it under another name, syncs it to the disk and then renames it, so a file with
//! that name is always complete. Several writers may therefore store the same blob at once. A reader checks the content against the name.
//!
//! Every operation runs on a separate thread, and its caller gives up if the folder does not respond.

mod file;
mod prune;
mod step;
mod write;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{BlobDigest, Size, bounds::BLOBS_BYTES_MAX};

use self::{
    file::Found,
    step::{Kind, Progress, Steps, Stopped},
};

pub use self::prune::Pruned;

/// A folder of blobs. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobStore {
    folder: Arc<Path>,
    steps: Steps,
}

/// An operation on the blob store that failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("use {} as a blob store: {problem}", folder.display())]
    Folder { folder: PathBuf, problem: String },
    #[error("find {digest} in the blob store {}", folder.display())]
    Missing { digest: BlobDigest, folder: PathBuf },
    #[error("read {digest}: the blob has {found} bytes, expected {wanted}")]
    Length { digest: BlobDigest, found: u64, wanted: u64 },
    #[error("read {digest}: its content in the blob store {} does not match the digest; store the array again to repair it", folder.display())]
    Damaged { digest: BlobDigest, folder: PathBuf },
    #[error("read {digest}: the task declares {}; the maximum is {}", Size(*wanted), Size(BLOBS_BYTES_MAX))]
    TooLarge { digest: BlobDigest, wanted: u64 },
    #[error("{step} in the blob store {}: {source}", folder.display())]
    Io { step: &'static str, folder: PathBuf, source: io::Error },
    #[error("{step} in the blob store {}: not finished within {} s", folder.display(), waited.as_secs())]
    Timeout { step: &'static str, folder: PathBuf, waited: Duration },
}

impl BlobStore {
    /// Opens the store in an existing folder.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, BlobError> {
        let folder: PathBuf = folder.into();
        let store = Self { folder: Arc::from(folder.as_path()), steps: Steps::new() };
        let is_folder = store.step("look up a blob", Kind::Look, |folder, _| Ok(folder.metadata()?.is_dir())).await;
        let unfit = |problem: String| BlobError::Folder { folder: folder.clone(), problem };
        match is_folder {
            Ok(true) => Ok(store),
            Ok(false) => Err(unfit("it is not a folder".to_owned())),
            Err(BlobError::Io { source, .. }) => Err(unfit(source.to_string())),
            Err(other) => Err(other),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Checks that the store is writable: writes a small file and removes it.
    pub async fn probe(&self) -> Result<(), BlobError> {
        self.step("write a file", Kind::Look, |folder, _| write::probe(folder)).await
    }

    /// Stores bytes, and returns once they are on the disk. An existing blob is kept and its age starts again.
    ///
    /// If cancelled, the write ends at its next piece and leaves no partial blob.
    pub async fn put<B>(&self, bytes: B) -> Result<BlobDigest, BlobError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let length = bytes.as_ref().len() as u64;
        self.step("store a blob", Kind::Transfer { bytes: length }, move |folder, progress| {
            let digest = file::digest_of(bytes.as_ref(), progress)?;
            write::write(folder, digest, bytes.as_ref(), progress)?;
            Ok(digest)
        })
        .await
    }

    /// Checks that the blob exists and has this length. Its content is read only if the length differs.
    pub async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<(), BlobError> {
        match self.step("look up a blob", Kind::Look, move |folder, _| file::length(folder, digest)).await? {
            None => return self.told(digest, bytes, Found::Missing),
            Some(found) if found == bytes => return Ok(()),
            Some(_) => {}
        }
        let look = move |folder: &Path, progress: &Progress| file::look(folder, digest, bytes, progress);
        match self.step("read a blob", Kind::Transfer { bytes: 0 }, look).await? {
            Ok(_file) => Ok(()),
            Err(found) => self.told(digest, bytes, found),
        }
    }

    /// Reads a blob of exactly `bytes` bytes.
    pub async fn read(&self, digest: BlobDigest, bytes: u64) -> Result<Vec<u8>, BlobError> {
        // A sparse file of any length takes no space on a disk, and the length comes from an untrusted message.
        if bytes > BLOBS_BYTES_MAX {
            return Err(BlobError::TooLarge { digest, wanted: bytes });
        }
        self.check(digest, bytes).await?;
        let mut into = Vec::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        into.try_reserve_exact(length)
            .map_err(|_| self.stopped("read a blob", io::Error::from(io::ErrorKind::OutOfMemory)))?;
        into.resize(length, 0);
        let (into, read) = self.fill(digest, into).await?;
        read.map(|()| into)
    }

    /// Reads a blob into a buffer of exactly its length and returns the buffer. After a timeout the buffer is lost.
    ///
    /// If cancelled, the read ends at its next piece, or when the store responds.
    pub async fn fill<B>(&self, digest: BlobDigest, mut into: B) -> Result<(B, Result<(), BlobError>), BlobError>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let wanted = into.as_mut().len() as u64;
        let (into, read) = self
            .step("read a blob", Kind::Transfer { bytes: wanted }, move |folder, progress| {
                let read = file::read(folder, digest, into.as_mut(), progress);
                Ok((into, read))
            })
            .await?;
        let read = read.map_err(|source| self.stopped("read a blob", source));
        Ok((into, read.and_then(|found| self.told(digest, wanted, found))))
    }

    /// Removes blobs last stored longer ago than `unused_for`, and the partial files of interrupted writers.
    ///
    /// If cancelled, it ends at the next file.
    pub async fn prune(&self, unused_for: Duration) -> Result<Pruned, BlobError> {
        let prune = move |folder: &Path, progress: &Progress| prune::prune(folder, unused_for, progress);
        self.step("remove blobs", Kind::Prune, prune).await
    }

    fn told(&self, digest: BlobDigest, wanted: u64, found: Found) -> Result<(), BlobError> {
        let folder = || self.folder.to_path_buf();
        Err(match found {
            Found::AsWanted => return Ok(()),
            Found::Missing => BlobError::Missing { digest, folder: folder() },
            Found::OtherLength(found) => BlobError::Length { digest, found, wanted },
            Found::Damaged => BlobError::Damaged { digest, folder: folder() },
        })
    }

    async fn step<T: Send + 'static>(
        &self,
        step: &'static str,
        kind: Kind,
        work: impl FnOnce(&Path, &Progress) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlobError> {
        let folder = Arc::clone(&self.folder);
        let done = self.steps.run(kind, move |progress| work(&folder, progress)).await;
        done.map_err(|stopped| self.stopped(step, stopped))
    }

    fn stopped(&self, step: &'static str, stopped: impl Into<Stopped>) -> BlobError {
        let folder = self.folder.to_path_buf();
        match stopped.into() {
            Stopped::Io(source) => BlobError::Io { step, folder, source },
            Stopped::Timeout(waited) => BlobError::Timeout { step, folder, waited },
        }
    }
}

#[cfg(test)]
mod tests;
