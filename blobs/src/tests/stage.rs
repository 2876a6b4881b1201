//! A store of each kind for one test, and what other programs can do to its blobs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use gpufleet_local_s3::Server;
use gpufleet_schema::BlobDigest;
use object_store::{ObjectStoreExt as _, PutPayload};
use tempfile::TempDir;

use crate::{Backend, BlobLocation, BlobStore, file};

pub(super) struct Stage {
    pub(super) store: BlobStore,
    /// Where the files of the blobs are, if there are any.
    folder: Option<PathBuf>,
    pub(super) server: Option<Server>,
    _scratch: TempDir,
}

pub(super) const BUCKET: &str = "blobs";

impl Stage {
    pub(super) async fn folder() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let store = BlobStore::open(scratch.path()).await.unwrap();
        Self { store, folder: Some(scratch.path().to_owned()), server: None, _scratch: scratch }
    }

    pub(super) async fn memory() -> Self {
        let store = BlobStore::open(BlobLocation::memory()).await.unwrap();
        Self { store, folder: None, server: None, _scratch: tempfile::tempdir().unwrap() }
    }

    pub(super) async fn s3() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let server = Server::start(scratch.path()).unwrap();
        let bucket = server.create_bucket(BUCKET).unwrap();
        let store = BlobStore::open(location(&server, &server.endpoint())).await.unwrap();
        Self { store, folder: Some(bucket.join("some/prefix")), server: Some(server), _scratch: scratch }
    }

    /// The file of a blob.
    pub(super) fn path(&self, digest: BlobDigest) -> PathBuf {
        file::path(self.folder.as_ref().unwrap(), digest)
    }

    /// Sets back the time at which a blob was stored; not possible in memory.
    pub(super) fn make_old(&self, digest: BlobDigest, age: Duration) {
        if self.folder.is_some() {
            set_back(&self.path(digest), age);
        }
    }

    /// Another program puts other bytes under the name of a blob.
    pub(super) async fn overwrite(&self, digest: BlobDigest, bytes: &[u8]) {
        match &self.store.backend {
            Backend::Folder(_) => fs::write(self.path(digest), bytes).unwrap(),
            Backend::Objects(objects) => {
                objects.store.put(&objects.key(digest), PutPayload::from(bytes.to_vec())).await.unwrap();
            }
        }
    }
}

/// The store on a server, through this endpoint.
pub(super) fn location(server: &Server, endpoint: &str) -> BlobLocation {
    let location: BlobLocation = format!("s3://{BUCKET}/some/prefix?endpoint={endpoint}").parse().unwrap();
    let credentials = server.credentials();
    location.with_credentials(&credentials.access_key_id, &credentials.secret_access_key)
}

fn set_back(path: &Path, age: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}
