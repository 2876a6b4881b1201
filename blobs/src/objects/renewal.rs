//! Gives a large object a new age without sending it again: the server copies it onto itself.
//!
//! S3 refuses such a copy unless it replaces the metadata, which the S3 client has no way to ask for. So this signs that one request
//! itself. A server that can't do it is no error: the caller sends the blob again.

use std::time::Duration;

use gpufleet_schema::BlobDigest;
use object_store::{
    HeaderMap, HeaderValue,
    aws::AmazonS3,
    path::Path,
    signer::{SignedUrlOptions, Signer as _},
};
use reqwest::Method;
use tokio::time::timeout;
use tracing::debug;

/// How S3 writes the mark of [`super::MARK`].
const MARK_HEADER: &str = "x-amz-meta-gpufleet-digest";
/// Time limit for a copy. A server copies a gigabyte in about a second.
const COPY_DEADLINE: Duration = Duration::from_secs(25);
/// Validity of the signature, which need not outlive the request.
const SIGNATURE_VALID: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Renewer {
    pub(super) s3: AmazonS3,
    pub(super) client: reqwest::Client,
    pub(super) bucket: String,
}

impl Renewer {
    /// Gives the object a new age by a copy. Returns false if it may still have its old age.
    pub(super) async fn copy_onto_itself(&self, key: &Path, digest: BlobDigest) -> bool {
        match timeout(COPY_DEADLINE, self.copy(key, digest)).await {
            Ok(Ok(())) => true,
            Ok(Err(problem)) => {
                debug!(%problem, "failed to copy a blob onto itself, storing it again");
                false
            }
            Err(_) => false,
        }
    }

    async fn copy(&self, key: &Path, digest: BlobDigest) -> Result<(), String> {
        let headers = self.headers(key, digest).ok_or("the key can't be a header")?;
        let mut options = SignedUrlOptions::new();
        options.signed_headers = headers.clone();
        let signed = self.s3.signed_url_opts(Method::PUT, key, SIGNATURE_VALID, &options).await;
        // Neither error may show the signed URL.
        let url = signed.map_err(|_| "the request can't be signed")?;
        let answer = self.client.put(url).headers(headers).send().await;
        let answer = answer.map_err(|error| error.without_url().to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.without_url().to_string())?;
        // S3 reports some errors with the status of success.
        match status.is_success() && !text.contains("<Error>") {
            true => Ok(()),
            false => Err(format!("the server answered {status}")),
        }
    }

    fn headers(&self, key: &Path, digest: BlobDigest) -> Option<HeaderMap> {
        // Neither a bucket's name nor our keys have characters to escape.
        let source = HeaderValue::from_str(&format!("/{}/{key}", self.bucket)).ok()?;
        let mark = HeaderValue::from_str(&digest.to_string()).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-copy-source", source);
        headers.insert("x-amz-metadata-directive", HeaderValue::from_static("REPLACE"));
        headers.insert(MARK_HEADER, mark);
        Some(headers)
    }
}
