//! The blob store: a folder or a bucket that producers and workers share. Each array is stored under its digest.
//!
//! A blob in a folder is a file `blake3-<digits>`. A writer writes it under another name, syncs it to the disk and then renames it, so a
//! file with that name is always complete. Several writers may therefore store the same blob at once. A reader checks the content
//! against the name.
//!
//! The caller of an operation gives up if the store does not respond.

mod backend;
mod bytes;
mod cache;
mod entry;
mod file;
mod folder;
mod location;
mod objects;
mod part;
mod prune;
mod source;
mod step;
mod write;

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Seek, Write},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{BlobDigest, Size, bounds::BLOBS_BYTES_MAX};

use self::{
    backend::{Backend, Unopened},
    file::Found,
    source::{InFile, Owned, Shared},
    step::Stopped,
};

pub use self::{
    bytes::BlobBytes,
    cache::{BlobCache, BlobCacheError, CacheUse},
    entry::{BlobEntry, Pruned},
    location::{BlobLocation, InvalidBlobLocation},
    source::BlobSource,
};

/// A place for blobs. Clones share its connections and its limits.
#[derive(Debug, Clone)]
pub struct BlobStore {
    location: Arc<BlobLocation>,
    backend: Backend,
    cache: Option<BlobCache>,
}

/// Maximum memory that is reserved for a blob before its length is checked.
const RESERVED_BYTES_MAX: u64 = 8 << 20;

/// An operation on the blob store that failed. `store` is its location.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("failed to use {store} as a blob store: {problem}")]
    Unusable { store: Arc<BlobLocation>, problem: String },
    #[error("failed to find {digest} in the blob store {store}")]
    Missing { digest: BlobDigest, store: Arc<BlobLocation> },
    #[error("failed to read {digest}: the blob has {found} bytes, expected {wanted}")]
    Length { digest: BlobDigest, found: u64, wanted: u64 },
    #[error(
        "failed to read {digest}: its content in the blob store {store} does not match the digest; store the array again to repair it"
    )]
    Damaged { digest: BlobDigest, store: Arc<BlobLocation> },
    #[error("failed to read {digest}: the task declares {}; the maximum is {}", Size(*wanted), Size(BLOBS_BYTES_MAX))]
    TooLarge { digest: BlobDigest, wanted: u64 },
    #[error("failed to write {digest} to its file: {source}")]
    Output { digest: BlobDigest, source: io::Error },
    #[error("failed to {step} in the blob store {store}: {source}")]
    Io { step: &'static str, store: Arc<BlobLocation>, source: io::Error },
    #[error("failed to {step} in the blob store {store}: not finished within {} s", waited.as_secs())]
    Timeout { step: &'static str, store: Arc<BlobLocation>, waited: Duration },
}

impl BlobStore {
    /// Opens an existing store.
    pub async fn open(location: impl Into<BlobLocation>) -> Result<Self, BlobError> {
        let location = Arc::new(location.into());
        let store = || Arc::clone(&location);
        match Backend::open(&location).await {
            Ok(backend) => Ok(Self { backend, location, cache: None }),
            Err(Unopened::Unusable(problem)) => Err(BlobError::Unusable { store: store(), problem }),
            Err(Unopened::Stopped(stopped)) => Err(error(store(), "look for blobs", stopped)),
        }
    }

    /// Adds a cache for what this process reads. A folder needs none, because the kernel caches its files.
    #[must_use]
    pub fn with_cache(mut self, cache: BlobCache) -> Self {
        self.cache = Some(cache);
        self
    }

    pub fn location(&self) -> &BlobLocation {
        &self.location
    }

    /// Checks that the store is writable, by a small file or object.
    pub async fn probe(&self) -> Result<(), BlobError> {
        self.backend.probe().await.map_err(self.stopped("write a file"))
    }

    /// Stores bytes, and returns once they are on the disk. An existing blob is kept and its age starts again.
    ///
    /// If cancelled, the write ends at its next piece and leaves no partial blob.
    pub async fn put(&self, bytes: impl Into<Vec<u8>>) -> Result<BlobDigest, BlobError> {
        let bytes: Vec<u8> = bytes.into();
        Ok(self.put_from(Owned(bytes.into())).await?.0)
    }

    /// Stores bytes that another process may change. If they change meanwhile, that is an error.
    pub async fn put_shared<B>(&self, bytes: B) -> Result<BlobDigest, BlobError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        Ok(self.put_from(Shared(bytes)).await?.0)
    }

    /// Stores a part of a file, with little memory. If the file changes meanwhile, that is an error.
    pub async fn put_file(&self, file: File, range: Range<u64>) -> Result<BlobDigest, BlobError> {
        Ok(self.put_from(InFile { file, range }).await?.0)
    }

    /// Stores the bytes of a source, and returns their digest and the source. An error of the source comes back in [`BlobError::Io`].
    pub async fn put_from<S: BlobSource>(&self, source: S) -> Result<(BlobDigest, S), BlobError> {
        self.backend.put(source).await.map_err(self.stopped("store a blob"))
    }

    /// Checks that the blob exists and has this length. Its content is read only if the length differs.
    pub async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<(), BlobError> {
        let found = match &self.cache {
            Some(cache) => cache.check(&self.backend, digest, bytes).await,
            None => self.backend.check(digest, bytes).await,
        };
        self.verdict(digest, bytes, found.map_err(self.stopped("look up a blob"))?)
    }

    /// Reads a blob of exactly `bytes` bytes into memory. The cache is not used.
    pub async fn read(&self, digest: BlobDigest, bytes: u64) -> Result<Vec<u8>, BlobError> {
        // A sparse file of any length takes no space on a disk, and the length comes from an untrusted message.
        if bytes > BLOBS_BYTES_MAX {
            return Err(BlobError::TooLarge { digest, wanted: bytes });
        }
        if bytes > RESERVED_BYTES_MAX {
            self.check(digest, bytes).await?;
        }
        let mut array = Vec::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let out_of_memory = |_| Stopped::Io(io::ErrorKind::OutOfMemory.into());
        array.try_reserve_exact(length).map_err(out_of_memory).map_err(self.stopped("read a blob"))?;
        self.read_to(digest, bytes, array).await
    }

    /// Returns the content of a blob of exactly `bytes` bytes, mapped from its file if that is possible. The cache is not used.
    pub async fn view(&self, digest: BlobDigest, bytes: u64) -> Result<BlobBytes, BlobError> {
        if bytes > BLOBS_BYTES_MAX {
            return Err(BlobError::TooLarge { digest, wanted: bytes });
        }
        match self.backend.map(digest, bytes).await.map_err(self.stopped("read a blob"))? {
            Ok(Some(mapped)) => Ok(mapped),
            Ok(None) => Ok(self.read(digest, bytes).await?.into()),
            Err(found) => Err(self.verdict(digest, bytes, found).expect_err("what was found is not the blob")),
        }
    }

    /// Writes a blob of exactly `bytes` bytes to a file with little memory, and returns the file. After an error the file has unchecked
    /// bytes, so give it its name only after success. The cache is not used.
    ///
    /// If cancelled, the copy ends at its next piece, or when the store responds.
    pub async fn read_to<W>(&self, digest: BlobDigest, bytes: u64, into: W) -> Result<W, BlobError>
    where
        W: Write + Send + 'static,
    {
        self.copied(digest, bytes, self.backend.copy(digest, bytes, into).await)
    }

    /// Reads an input of a job through the cache of this store. If the cache has a damaged copy, `into` is written again from the
    /// start.
    pub async fn read_into<W>(&self, digest: BlobDigest, bytes: u64, into: W) -> Result<W, BlobError>
    where
        W: Write + Seek + Send + 'static,
    {
        match &self.cache {
            Some(cache) => self.copied(digest, bytes, cache.copy(&self.backend, digest, bytes, into).await),
            None => self.read_to(digest, bytes, into).await,
        }
    }

    /// Lists the blobs in no particular order.
    pub async fn list(&self) -> Result<Vec<BlobEntry>, BlobError> {
        self.backend.list().await.map_err(self.stopped("list the blobs"))
    }

    /// Removes blobs last stored longer ago than `unused_for` that are not `live`, and the remains of interrupted writers.
    ///
    /// If cancelled, it ends at the next blob.
    pub async fn prune(&self, unused_for: Duration, live: Arc<HashSet<BlobDigest>>) -> Result<Pruned, BlobError> {
        self.backend.prune(unused_for, live).await.map_err(self.stopped("remove blobs"))
    }

    /// Removes a blob; false if there is none. A job that still needs it fails.
    pub async fn remove(&self, digest: BlobDigest) -> Result<bool, BlobError> {
        self.backend.remove(digest).await.map_err(self.stopped("remove a blob"))
    }

    /// Judges a copy. Its inner error is that of the writer.
    fn copied<W>(
        &self,
        digest: BlobDigest,
        wanted: u64,
        copied: Result<io::Result<(W, Found)>, Stopped>,
    ) -> Result<W, BlobError> {
        let copied = copied.map_err(self.stopped("read a blob"))?;
        let (into, found) = copied.map_err(|source| BlobError::Output { digest, source })?;
        self.verdict(digest, wanted, found).map(|()| into)
    }

    fn verdict(&self, digest: BlobDigest, wanted: u64, found: Found) -> Result<(), BlobError> {
        let store = || Arc::clone(&self.location);
        Err(match found {
            Found::AsWanted => return Ok(()),
            Found::Missing => BlobError::Missing { digest, store: store() },
            Found::OtherLength(found) => BlobError::Length { digest, found, wanted },
            Found::Damaged => BlobError::Damaged { digest, store: store() },
        })
    }

    fn stopped(&self, step: &'static str) -> impl Fn(Stopped) -> BlobError {
        let store = Arc::clone(&self.location);
        move |stopped| error(Arc::clone(&store), step, stopped)
    }
}

fn error(store: Arc<BlobLocation>, step: &'static str, stopped: Stopped) -> BlobError {
    match stopped {
        Stopped::Io(source) => BlobError::Io { step, store, source },
        Stopped::Timeout(waited) => BlobError::Timeout { step, store, waited },
    }
}

#[cfg(test)]
mod tests;
