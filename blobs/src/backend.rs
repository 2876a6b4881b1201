//! The two ways to keep blobs: a folder, or the objects of a bucket.

use std::{
    collections::HashSet,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::BlobDigest;

use super::{
    bytes::BlobBytes,
    entry::{BlobEntry, Pruned},
    file::Found,
    folder::Folder,
    location::{BlobLocation, Place},
    objects::Objects,
    source::BlobSource,
    step::Stopped,
};

#[derive(Debug, Clone)]
pub(super) enum Backend {
    Folder(Folder),
    Objects(Objects),
}

/// Why a store can't be opened.
#[derive(Debug)]
pub(super) enum Unopened {
    /// Only the user can help.
    Unusable(String),
    Stopped(Stopped),
}

impl Backend {
    pub(super) async fn open(location: &BlobLocation) -> Result<Self, Unopened> {
        match &location.0 {
            Place::Folder(path) => {
                let folder = Folder::new(path);
                match folder.is_there().await {
                    Ok(true) => Ok(Self::Folder(folder)),
                    Ok(false) => Err(Unopened::Unusable("it is not a folder".to_owned())),
                    Err(Stopped::Io(source)) => Err(Unopened::Unusable(source.to_string())),
                    Err(timeout) => Err(Unopened::Stopped(timeout)),
                }
            }
            Place::Bucket(bucket) => {
                let objects = Objects::of_bucket(bucket).map_err(Unopened::Unusable)?;
                objects.is_there().await.map_err(Unopened::of_bucket)?;
                Ok(Self::Objects(objects))
            }
            Place::Memory => Ok(Self::Objects(Objects::memory())),
        }
    }

    pub(super) async fn probe(&self) -> Result<(), Stopped> {
        match self {
            Self::Folder(folder) => folder.probe().await,
            Self::Objects(objects) => objects.probe().await,
        }
    }

    pub(super) async fn put<S: BlobSource>(&self, source: S) -> Result<(BlobDigest, S), Stopped> {
        match self {
            Self::Folder(folder) => folder.put(source).await,
            Self::Objects(objects) => objects.put(source).await,
        }
    }

    pub(super) async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<Found, Stopped> {
        match self {
            Self::Folder(folder) => folder.check(digest, bytes).await,
            Self::Objects(objects) => objects.check(digest, bytes).await,
        }
    }

    pub(super) async fn copy<W>(
        &self,
        digest: BlobDigest,
        bytes: u64,
        into: W,
    ) -> Result<io::Result<(W, Found)>, Stopped>
    where
        W: Write + Send + 'static,
    {
        match self {
            Self::Folder(folder) => folder.copy(digest, bytes, into).await,
            Self::Objects(objects) => objects.copy(digest, bytes, into).await,
        }
    }

    /// Maps a blob of this length. None if this can't be done, so that it has to be copied.
    pub(super) async fn map(
        &self,
        digest: BlobDigest,
        bytes: u64,
    ) -> Result<Result<Option<BlobBytes>, Found>, Stopped> {
        match self {
            Self::Folder(folder) => folder.map(digest, bytes).await,
            Self::Objects(_) => Ok(Ok(None)),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<BlobEntry>, Stopped> {
        match self {
            Self::Folder(folder) => folder.list().await,
            Self::Objects(objects) => objects.list().await,
        }
    }

    pub(super) async fn prune(&self, unused_for: Duration, live: Arc<HashSet<BlobDigest>>) -> Result<Pruned, Stopped> {
        match self {
            Self::Folder(folder) => folder.prune(unused_for, live).await,
            Self::Objects(objects) => objects.prune(unused_for, live).await,
        }
    }

    pub(super) async fn remove(&self, digest: BlobDigest) -> Result<bool, Stopped> {
        match self {
            Self::Folder(folder) => folder.remove(digest).await,
            Self::Objects(objects) => objects.remove(digest).await,
        }
    }
}

impl Unopened {
    /// A server that is away may come back; one that refuses the request will not change its mind.
    fn of_bucket(stopped: Stopped) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound, PermissionDenied};
        match stopped {
            Stopped::Io(source)
                if matches!(source.kind(), InvalidData | InvalidInput | NotFound | PermissionDenied) =>
            {
                Self::Unusable(source.to_string())
            }
            other => Self::Stopped(other),
        }
    }
}
