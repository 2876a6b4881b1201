//! A folder of this host that keeps blobs of a distant store, so that each host reads a blob over the network only once.
//!
//! A cached blob is a file as in a folder store, and every read checks it against its digest. A checksum beside the content, as compiled
//! modules have, is not needed: a blob's name is its digest, and hashing takes no longer than for a blob of a folder store. So another user
//! can't forge a cached blob. Only this user can read the folder.
//!
//! | event | reaction |
//! | --- | --- |
//! | several jobs need a blob that is not cached | one reads it, and the others wait for the file |
//! | that read fails | the others read the blob from the store |
//! | a cached file is damaged | it is removed, and the blob is read from the store |
//! | the disk is full or broken | the blob is read from the store; a warning and a metric report it |
//! | the folder exceeds its bound | one process at a time, under a lock, evicts the least recently used blobs |
//! | a process dies while it writes | its partial file is removed after a day |
//! | several workers share the folder | each finds the blobs of the others |

mod eviction;

use std::{
    collections::HashMap,
    fmt,
    fs::{self, DirBuilder},
    io::{self, Seek, Write},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use gpufleet_schema::BlobDigest;
use rustix::process::geteuid;
use tracing::warn;

use super::{
    backend::Backend,
    file::{self, Found},
    folder::Folder,
    part,
    step::{Kind, Stopped},
    write,
};

/// What a read or a check found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    Hit,
    /// The blob was read from the store.
    Miss,
    /// The cache could not be used, and the blob was read from the store.
    Failure,
}

/// A cache of blobs in a folder of this host. Clones share it.
#[derive(Clone)]
pub struct BlobCache {
    path: Arc<Path>,
    bytes_max: u64,
    folder: Folder,
    filling: Arc<Mutex<HashMap<BlobDigest, Weak<Filling>>>>,
    counted: Arc<dyn Fn(CacheUse) + Send + Sync>,
    warned: Arc<Mutex<Option<Instant>>>,
}

/// Held by the job that reads a blob into the cache. True after that has failed.
type Filling = tokio::sync::Mutex<bool>;

/// Why a folder can't be a cache.
#[derive(Debug, thiserror::Error)]
#[error("failed to use {} as a cache of blobs: {problem}", folder.display())]
pub struct BlobCacheError {
    folder: PathBuf,
    problem: String,
}

/// Where a blob is read from.
enum Source {
    Cache(CacheUse),
    Store,
    /// The store does not have it as wanted.
    None(Found),
}

/// Why a blob is not in the cache.
enum Unfilled {
    /// The store does not have it as wanted.
    Found(Found),
    Stopped(Stopped),
    /// Another job has failed to read it, or it is larger than the cache.
    NotTried,
    /// The cache is the problem.
    Cache(io::Error),
}

/// Minimum time between warnings, because a full disk concerns every job.
const WARNED_EVERY: Duration = Duration::from_secs(60);
/// Mode of the folder. It is closed to other users, because they could otherwise read the arrays.
const FOLDER_MODE: u32 = 0o700;

impl BlobCache {
    /// Opens a folder, creating it if missing, for at most `bytes_max` bytes. Reports each use to `counted`.
    pub fn open(
        folder: &Path,
        bytes_max: u64,
        counted: impl Fn(CacheUse) + Send + Sync + 'static,
    ) -> Result<Self, BlobCacheError> {
        own_folder(folder).map_err(|problem| BlobCacheError { folder: folder.to_owned(), problem })?;
        Ok(Self {
            path: Arc::from(folder),
            bytes_max,
            folder: Folder::new(folder),
            filling: Arc::default(),
            counted: Arc::new(counted),
            warned: Arc::default(),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.path
    }

    pub(super) async fn check(&self, store: &Backend, digest: BlobDigest, bytes: u64) -> Result<Found, Stopped> {
        // A cached blob may be missing in the store, but the job will find it here.
        if self.has(digest, bytes).await { Ok(Found::AsWanted) } else { store.check(digest, bytes).await }
    }

    /// Copies a blob. After a damaged file in the cache, `into` is written again from the start.
    pub(super) async fn copy<W>(
        &self,
        store: &Backend,
        digest: BlobDigest,
        bytes: u64,
        into: W,
    ) -> Result<io::Result<(W, Found)>, Stopped>
    where
        W: Write + Seek + Send + 'static,
    {
        let used = match self.source(store, digest, bytes).await? {
            Source::Cache(used) => used,
            Source::Store => return store.copy(digest, bytes, into).await,
            Source::None(found) => return Ok(Ok((into, found))),
        };
        let copied = match self.folder.copy(digest, bytes, into).await {
            Ok(copied) => copied,
            Err(stopped) => {
                // The next try reads from the store.
                self.discard(digest, Err(io::Error::other(stopped.to_string()))).await;
                return Err(stopped);
            }
        };
        let mut into = match copied {
            Ok((into, Found::AsWanted)) => {
                (self.counted)(used);
                return Ok(Ok((into, Found::AsWanted)));
            }
            Ok((into, found)) => {
                self.discard(digest, Ok(found)).await;
                into
            }
            Err(error) => return Ok(Err(error)),
        };
        match into.rewind() {
            Ok(()) => store.copy(digest, bytes, into).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Where to read the blob from.
    async fn source(&self, store: &Backend, digest: BlobDigest, bytes: u64) -> Result<Source, Stopped> {
        match self.obtain(store, digest, bytes).await {
            Ok(used) => return Ok(Source::Cache(used)),
            Err(Unfilled::Found(found)) => return Ok(Source::None(found)),
            Err(Unfilled::Stopped(stopped)) => return Err(stopped),
            Err(Unfilled::NotTried) => (self.counted)(CacheUse::Miss),
            Err(Unfilled::Cache(error)) => self.failed(&error),
        }
        Ok(Source::Store)
    }

    /// Reads the blob into the cache unless it is there.
    async fn obtain(&self, store: &Backend, digest: BlobDigest, bytes: u64) -> Result<CacheUse, Unfilled> {
        if self.has(digest, bytes).await {
            return Ok(CacheUse::Hit);
        }
        if bytes > self.bytes_max {
            return Err(Unfilled::NotTried);
        }
        let filling = self.filling(digest);
        let mut has_failed = filling.lock().await;
        if self.has(digest, bytes).await {
            return Ok(CacheUse::Hit);
        }
        if *has_failed {
            return Err(Unfilled::NotTried);
        }
        // A cancelled read leaves the mark, and the jobs that wait read from the store.
        *has_failed = true;
        self.read_into_cache(store, digest, bytes).await?;
        *has_failed = false;
        Ok(CacheUse::Miss)
    }

    async fn read_into_cache(&self, store: &Backend, digest: BlobDigest, bytes: u64) -> Result<(), Unfilled> {
        let part = self.step(part::create).await?;
        let (part, found) = match store.copy(digest, bytes, part).await {
            Ok(copied) => copied.map_err(Unfilled::Cache)?,
            Err(stopped) => return Err(Unfilled::Stopped(stopped)),
        };
        if found != Found::AsWanted {
            return Err(Unfilled::Found(found));
        }
        self.step(move |folder| part::publish(part, &file::path(folder, digest))).await?;
        let bytes_max = self.bytes_max;
        let evicted = self.step(move |folder| eviction::evict(folder, bytes_max)).await;
        if let Err(Unfilled::Cache(error)) = evicted {
            self.failed(&error);
        }
        Ok(())
    }

    /// Whether the blob is cached. Marks it as used.
    async fn has(&self, digest: BlobDigest, bytes: u64) -> bool {
        let look = self.step(move |folder| match file::open(folder, digest)? {
            Some((file, length)) if length == bytes => write::renew(&file).map(|()| true),
            _ => Ok(false),
        });
        look.await.unwrap_or(false)
    }

    async fn discard(&self, digest: BlobDigest, found: io::Result<Found>) {
        let problem = match found {
            // Another process has evicted it in the meantime.
            Ok(Found::Missing) => return,
            Ok(_) => io::Error::other(format!("the cached file of {digest} is damaged")),
            Err(error) => error,
        };
        self.failed(&problem);
        let removed = self.step(move |folder| fs::remove_file(file::path(folder, digest))).await;
        // What can't be removed is found damaged again.
        drop(removed);
    }

    fn failed(&self, error: &io::Error) {
        (self.counted)(CacheUse::Failure);
        let mut warned = self.warned.lock().expect("no thread panics while it holds the time");
        if warned.is_some_and(|warned| warned.elapsed() < WARNED_EVERY) {
            return;
        }
        *warned = Some(Instant::now());
        warn!(folder = %self.path.display(), %error, "blob cache not used, reading from the store");
    }

    /// The lock of the jobs that need this blob.
    fn filling(&self, digest: BlobDigest) -> Arc<Filling> {
        let mut all = self.filling.lock().expect("no thread panics while it holds the map");
        if let Some(filling) = all.get(&digest).and_then(Weak::upgrade) {
            return filling;
        }
        all.retain(|_, filling| filling.strong_count() > 0);
        let filling = Arc::default();
        all.insert(digest, Arc::downgrade(&filling));
        filling
    }

    async fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Unfilled> {
        self.folder.step(Kind::Look, |folder, _| work(folder)).await.map_err(|stopped| {
            Unfilled::Cache(match stopped {
                Stopped::Io(error) => error,
                timeout @ Stopped::Timeout(_) => io::Error::other(timeout),
            })
        })
    }
}

impl fmt::Debug for BlobCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes_max, .. } = self;
        f.debug_struct("BlobCache").field("path", path).field("bytes_max", bytes_max).finish_non_exhaustive()
    }
}

/// Creates the folder, or checks that it is closed to other users.
fn own_folder(folder: &Path) -> Result<(), String> {
    let created = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    created.map_err(|error| error.to_string())?;
    let metadata = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    let (owner, user, mode) = (metadata.uid(), geteuid().as_raw(), metadata.mode() & 0o777);
    if !metadata.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    if owner != user {
        return Err(format!("it belongs to user {owner}, but this process runs as user {user}"));
    }
    if mode & !FOLDER_MODE != 0 {
        return Err(format!(
            "other users can read or write it (mode {mode:o}); run `chmod {FOLDER_MODE:o} {}`",
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
