//! A bucket as a blob store, through the S3 API.
//!
//! A blob is the object `<prefix>/blake3-<digits>`. S3 shows an object only when it is complete, so readers never see a part of one. Large
//! blobs move in parts, several at a time. A reader hashes what it reads, because the checksums of S3 are those of the parts.
//!
//! An object's age starts when it was last written, by the clock of the server. An existing blob therefore gets a new age by being sent
//! again or, if it is large, by being copied onto itself. How that works beside a pruner is described in [`prune`].

mod connect;
mod download;
mod problem;
mod prune;
mod renewal;
mod upload;

use std::{
    collections::HashSet,
    io::{self, Write},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::TryStreamExt as _;
use gpufleet_schema::{BlobDigest, MessageId};
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload, Result as StoreResult, memory::InMemory, path::Path,
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};

use self::{
    problem::{Problem, io_error, is_unsupported},
    renewal::Renewer,
};
use super::{
    entry::{BlobEntry, Pruned},
    file::Found,
    location::Bucket,
    source::BlobSource,
    step::{self, Kind, STALL, Steps, Stopped},
};

/// Size of one part of a blob. S3 accepts parts from 5 MiB on.
const PART_BYTES: usize = 8 << 20;
/// Maximum size of a blob that is sent in one request.
const AT_ONCE_BYTES_MAX: u64 = PART_BYTES as u64;
/// Number of parts of one blob that move at once: enough for the latency of a distant server.
const PARTS_AT_ONCE: usize = 4;
/// Number of parts of all blobs that are in memory at once, which takes at most 128 MiB.
const PARTS_IN_MEMORY: usize = 16;
/// Names the digest in the metadata of an object, so that a writer recognises an object that another program has put in its place.
const MARK: &str = "gpufleet-digest";
/// The content of objects that matter by their age alone.
const PROBE: &[u8] = b"gpufleet";
/// The name of the object with that content. It stays, because a worker needs no right to delete objects.
const PROBE_NAME: &str = ".probe";

#[derive(Debug, Clone)]
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    renewer: Option<Arc<Renewer>>,
    /// The keys begin with it. Ends with a slash unless it is empty.
    prefix: Arc<str>,
    pub(super) steps: Steps,
    parts: Arc<Semaphore>,
    /// See [`Objects::refuses_to_replace`].
    refuses_to_replace: Arc<OnceCell<bool>>,
}

/// An object under a blob's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    bytes: u64,
    stored_at: SystemTime,
    /// Our writers have stored it.
    is_marked: bool,
}

impl Objects {
    pub(super) fn memory() -> Self {
        Self::new(Arc::new(InMemory::new()), None, "")
    }

    /// Connects to nothing yet. The error is for the user.
    pub(super) fn of_bucket(bucket: &Bucket) -> Result<Self, String> {
        let (store, renewer) = connect::s3(bucket)?;
        Ok(Self::new(store, Some(Arc::new(renewer)), &bucket.prefix))
    }

    fn new(store: Arc<dyn ObjectStore>, renewer: Option<Arc<Renewer>>, prefix: &str) -> Self {
        let prefix = if prefix.is_empty() { Arc::default() } else { format!("{prefix}/").into() };
        let parts = Arc::new(Semaphore::new(PARTS_IN_MEMORY));
        Self { store, renewer, prefix, steps: Steps::new(), parts, refuses_to_replace: Arc::default() }
    }

    /// Checks that the bucket exists and answers. Answers about objects don't distinguish a missing bucket from a missing object.
    pub(super) async fn is_there(&self) -> Result<(), Stopped> {
        let objects = self.clone();
        self.steps.spawn(Kind::Look, async move |_| objects.find_bucket().await).await
    }

    pub(super) async fn probe(&self) -> Result<(), Stopped> {
        let objects = self.clone();
        self.steps.spawn(Kind::Look, async move |_| objects.now().await.map(drop)).await
    }

    /// Stores the bytes of a source, and returns it with their digest.
    pub(super) async fn put<S: BlobSource>(&self, mut source: S) -> Result<(BlobDigest, S), Stopped> {
        let objects = self.clone();
        let kind = Kind::Upload { bytes: source.length() };
        self.steps
            .spawn(kind, async move |progress| {
                let digest = match source.length() {
                    0..=AT_ONCE_BYTES_MAX => objects.store_at_once(&mut source, &progress).await?,
                    _ => objects.store_in_parts(&mut source, &progress).await?,
                };
                Ok((digest, source))
            })
            .await
    }

    pub(super) async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<Found, Stopped> {
        let objects = self.clone();
        match self.steps.spawn(Kind::Look, async move |_| objects.find(digest).await).await? {
            None => return Ok(Found::Missing),
            Some(standing) if standing.bytes == bytes => return Ok(Found::AsWanted),
            Some(_) => {}
        }
        let objects = self.clone();
        let look = async move |progress: Arc<_>| objects.look(digest, bytes, &progress).await;
        self.steps.spawn(Kind::Transfer { bytes: 0 }, look).await
    }

    /// Copies a blob of this length. The inner error is that of `into`.
    pub(super) async fn copy<W>(
        &self,
        digest: BlobDigest,
        bytes: u64,
        mut into: W,
    ) -> Result<io::Result<(W, Found)>, Stopped>
    where
        W: Write + Send + 'static,
    {
        let objects = self.clone();
        self.steps
            .spawn(Kind::Transfer { bytes }, async move |progress| {
                let copied = objects.copy_to(digest, bytes, &mut into, &progress).await?;
                Ok(copied.map(|found| (into, found)))
            })
            .await
    }

    pub(super) async fn list(&self) -> Result<Vec<BlobEntry>, Stopped> {
        let objects = self.clone();
        self.steps.spawn(Kind::Walk, async move |progress| objects.entries(&progress).await).await
    }

    pub(super) async fn prune(&self, unused_for: Duration, live: Arc<HashSet<BlobDigest>>) -> Result<Pruned, Stopped> {
        let objects = self.clone();
        let prune = async move |progress: Arc<_>| objects.remove_unused(unused_for, &live, &progress).await;
        self.steps.spawn(Kind::Walk, prune).await
    }

    pub(super) async fn remove(&self, digest: BlobDigest) -> Result<bool, Stopped> {
        let objects = self.clone();
        self.steps
            .spawn(Kind::Look, async move |_| {
                if objects.find(digest).await?.is_none() {
                    return Ok(false);
                }
                objects.delete(&objects.key(digest)).await?;
                Ok(true)
            })
            .await
    }

    async fn head(&self, digest: BlobDigest) -> io::Result<Option<Standing>> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(&self.key(digest), options).await {
            Ok(found) => Ok(Some(Standing {
                bytes: found.meta.size,
                stored_at: found.meta.last_modified.into(),
                is_marked: found.attributes.get(&mark()).is_some_and(|value| **value == *digest.to_string()),
            })),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(io_error(&error)),
        }
    }

    /// Like `head`, for a reader: if the bucket is missing, that is an error, because the blob may still exist.
    async fn find(&self, digest: BlobDigest) -> io::Result<Option<Standing>> {
        match self.head(digest).await? {
            None => self.find_bucket().await.map(|()| None),
            found => Ok(found),
        }
    }

    async fn find_bucket(&self) -> io::Result<()> {
        // No object has this name, so the answer is short.
        let nothing = self.path(&format!(".none-{}", MessageId::new()));
        match self.store.list(Some(&nothing)).try_next().await {
            Ok(_) => Ok(()),
            Err(error) => Err(io_error(&error)),
        }
    }

    /// Creates an object; false if there is one already.
    async fn create(&self, path: &Path, content: PutPayload, attributes: Attributes) -> StoreResult<bool> {
        let options = PutOptions { mode: PutMode::Create, attributes, ..PutOptions::default() };
        match self.store.put_opts(path, content, options).await {
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            created => created.map(|_| true),
        }
    }

    /// Whether the server refuses to create an object that exists. Some servers replace it instead, so this tries it once per process.
    async fn refuses_to_replace(&self) -> io::Result<bool> {
        let tried = self.refuses_to_replace.get_or_try_init(async || {
            // The first attempt may create the probe object, and the second finds it.
            for _ in 0..2 {
                match self.create(&self.path(PROBE_NAME), PutPayload::from_static(PROBE), Attributes::new()).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(true),
                    Err(error) if is_unsupported(&error) => return Ok(false),
                    Err(error) => return Err(io_error(&error)),
                }
            }
            Ok(false)
        });
        tried.await.copied()
    }

    /// Returns the present time of the server, by which objects age. The clock of this machine may differ.
    async fn now(&self) -> io::Result<SystemTime> {
        let probe = self.path(PROBE_NAME);
        in_time(async { self.store.put(&probe, PutPayload::from_static(PROBE)).await }).await?;
        // Another process may have written it since, which makes it newer.
        let found = in_time(async { self.store.head(&probe).await }).await?;
        Ok(found.last_modified.into())
    }

    async fn entries(&self, progress: &step::Progress) -> io::Result<Vec<BlobEntry>> {
        let prefix = self.prefix.strip_suffix('/').map(Path::from);
        let mut objects = self.store.list(prefix.as_ref());
        let mut blobs = Vec::new();
        while let Some(object) = in_time(objects.try_next()).await? {
            progress.moved(1)?;
            blobs.extend(self.entry_of(&object));
        }
        Ok(blobs)
    }

    fn entry_of(&self, object: &ObjectMeta) -> Option<BlobEntry> {
        let digest = BlobDigest::of_file_name(object.location.as_ref().strip_prefix(&*self.prefix)?)?;
        Some(BlobEntry { digest, bytes: object.size, stored_at: object.last_modified.into() })
    }

    async fn delete(&self, path: &Path) -> io::Result<()> {
        in_time(async { self.store.delete(path).await }).await
    }

    pub(super) fn key(&self, digest: BlobDigest) -> Path {
        self.path(&digest.file_name())
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }
}

/// Limits a request of a step that may take long in total.
async fn in_time<T, E: Into<Problem>>(request: impl Future<Output = Result<T, E>>) -> io::Result<T> {
    match timeout(STALL, request).await {
        Ok(done) => done.map_err(|error| error.into().0),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", STALL.as_secs()))),
    }
}

fn mark() -> Attribute {
    Attribute::Metadata(MARK.into())
}

fn marked(digest: BlobDigest) -> Attributes {
    Attributes::from_iter([(mark(), digest.to_string())])
}
