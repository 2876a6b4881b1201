//! A folder as a blob store. Each operation runs on a separate thread, because a network file system can hang.

use std::{
    collections::HashSet,
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::BlobDigest;

use super::{
    bytes::BlobBytes,
    entry::{BlobEntry, Pruned},
    file::{self, Found},
    prune,
    source::{BlobSource, Owned, READ_ONCE_BYTES_MAX},
    step::{Kind, Progress, Steps, Stopped},
    write,
};

#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: Arc<Path>,
    steps: Steps,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: Arc::from(path), steps: Steps::new() }
    }

    pub(super) async fn is_there(&self) -> Result<bool, Stopped> {
        self.step(Kind::Look, |folder, _| Ok(folder.metadata()?.is_dir())).await
    }

    pub(super) async fn probe(&self) -> Result<(), Stopped> {
        self.step(Kind::Look, |folder, _| write::probe(folder).map(drop)).await
    }

    /// Stores the bytes, and returns them with their digest.
    pub(super) async fn put<S: BlobSource>(&self, mut bytes: S) -> Result<(BlobDigest, S), Stopped> {
        self.step(Kind::Transfer { bytes: bytes.length() }, move |folder, progress| {
            let digest = match bytes.length() {
                0..=READ_ONCE_BYTES_MAX => put(folder, &mut Owned::read(&mut bytes, progress)?, progress)?,
                _ if bytes.is_remote() => write::write_unnamed(folder, &mut bytes, progress)?,
                _ => put(folder, &mut bytes, progress)?,
            };
            Ok((digest, bytes))
        })
        .await
    }

    pub(super) async fn check(&self, digest: BlobDigest, bytes: u64) -> Result<Found, Stopped> {
        match self.step(Kind::Look, move |folder, _| file::length(folder, digest)).await? {
            None => return Ok(Found::Missing),
            Some(found) if found == bytes => return Ok(Found::AsWanted),
            Some(_) => {}
        }
        let look = move |folder: &Path, progress: &Progress| file::look(folder, digest, bytes, progress);
        let looked = self.step(Kind::Transfer { bytes: 0 }, look).await?;
        Ok(looked.map_or_else(|found| found, |_file| Found::AsWanted))
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
        self.step(Kind::Transfer { bytes }, move |folder, progress| {
            let copied = file::copy(folder, digest, bytes, &mut into, progress)?;
            Ok(copied.map(|found| (into, found)))
        })
        .await
    }

    /// Maps a blob of this length, if its file can be mapped.
    pub(super) async fn map(
        &self,
        digest: BlobDigest,
        bytes: u64,
    ) -> Result<Result<Option<BlobBytes>, Found>, Stopped> {
        let map = move |folder: &Path, progress: &Progress| file::map(folder, digest, bytes, progress);
        self.step(Kind::Transfer { bytes }, map).await
    }

    pub(super) async fn list(&self) -> Result<Vec<BlobEntry>, Stopped> {
        self.step(Kind::Walk, prune::list).await
    }

    pub(super) async fn prune(&self, unused_for: Duration, live: Arc<HashSet<BlobDigest>>) -> Result<Pruned, Stopped> {
        self.step(Kind::Walk, move |folder, progress| prune::prune(folder, unused_for, &live, progress)).await
    }

    pub(super) async fn remove(&self, digest: BlobDigest) -> Result<bool, Stopped> {
        self.step(Kind::Look, move |folder, _| prune::remove(folder, digest)).await
    }

    pub(super) async fn step<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Path, &Progress) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let path = Arc::clone(&self.path);
        self.steps.run(kind, move |progress| work(&path, progress)).await
    }
}

fn put(folder: &Path, bytes: &mut impl BlobSource, progress: &Progress) -> io::Result<BlobDigest> {
    let digest = file::digest_of(bytes, progress)?;
    write::write(folder, digest, bytes, progress)?;
    Ok(digest)
}
