//! The blob store of a fleet: a folder, or a bucket of a private S3 server.

use std::{ffi::OsString, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

const BLOBS: &str = "GPUFLEET_BLOBS";
const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";

/// The address of a blob store, with all that a client needs to open it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BlobEndpoint {
    Folder(PathBuf),
    S3(Bucket),
}

/// A bucket of an S3 server, and the key for it. `Debug` hides the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// `s3://<bucket>?endpoint=<server>`.
    pub url: String,
    pub access_key_id: String,
    pub secret_access_key: String,
}

/// The kind of a local fleet's blob store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlobKind {
    #[default]
    Folder,
    S3,
}

impl BlobEndpoint {
    pub const fn kind(&self) -> BlobKind {
        match self {
            Self::Folder(_) => BlobKind::Folder,
            Self::S3(_) => BlobKind::S3,
        }
    }

    /// The variables with which a worker uses the store.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        match self {
            Self::Folder(folder) => vec![(BLOBS.into(), folder.into())],
            Self::S3(bucket) => {
                let key = bucket.key().map(|(name, value)| (name.into(), value.into()));
                [(BLOBS.into(), bucket.url.clone().into())].into_iter().chain(key).collect()
            }
        }
    }
}

impl Bucket {
    /// The variables with the key.
    pub(crate) fn key(&self) -> [(&'static str, &str); 2] {
        [(ACCESS_KEY_ID, &self.access_key_id), (SECRET_ACCESS_KEY, &self.secret_access_key)]
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

impl BlobKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::S3 => "s3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> BlobEndpoint {
        BlobEndpoint::S3(Bucket {
            url: "s3://gpufleet?endpoint=http://127.0.0.1:1".to_owned(),
            access_key_id: "canary-id".to_owned(),
            secret_access_key: "canary-secret".to_owned(),
        })
    }

    #[test]
    fn the_key_of_a_bucket_does_not_show() {
        let shown = format!("{:?}", bucket());
        assert!(shown.contains("s3://gpufleet?endpoint=http://127.0.0.1:1") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn an_endpoint_is_read_as_it_was_written() {
        let folder = BlobEndpoint::Folder("/state/blobs".into());
        assert_eq!(serde_json::to_string(&folder).unwrap(), r#""/state/blobs""#, "as in earlier versions");
        for endpoint in [folder, bucket()] {
            let text = serde_json::to_string(&endpoint).unwrap();
            assert_eq!(serde_json::from_str::<BlobEndpoint>(&text).unwrap(), endpoint);
        }
    }

    #[test]
    fn a_worker_gets_the_key_in_its_environment_and_not_in_the_url() {
        let variables = |endpoint: &BlobEndpoint| {
            let variables = endpoint.environment().into_iter();
            variables.map(|(name, value)| format!("{}={}", name.display(), value.display())).collect::<Vec<_>>()
        };
        assert_eq!(variables(&BlobEndpoint::Folder("/state/blobs".into())), ["GPUFLEET_BLOBS=/state/blobs"]);
        assert_eq!(
            variables(&bucket()),
            [
                "GPUFLEET_BLOBS=s3://gpufleet?endpoint=http://127.0.0.1:1",
                "AWS_ACCESS_KEY_ID=canary-id",
                "AWS_SECRET_ACCESS_KEY=canary-secret"
            ]
        );
    }
}
