//! The S3 client of a bucket.

use std::{env, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
};

use super::{problem::NO_CREDENTIALS, renewal::Renewer};
use crate::location::Bucket;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of a request by the client's own clock. Every step has a shorter one, which depends on its progress.
const REQUEST_DEADLINE: &str = "1day";
/// Number of retries of a request, because servers ask to slow down now and then. The caller handles a longer outage: it reports it to the
/// user or retries the job.
const RETRIES: usize = 3;
const RETRY_DEADLINE: Duration = Duration::from_secs(20);
/// If set, it decides whether a request's signature covers the bytes that it sends.
const UNSIGNED_PAYLOAD: &str = "AWS_UNSIGNED_PAYLOAD";

/// Sources of credentials other than a key. Private S3 servers offer none of them.
const OTHER_CREDENTIALS: [AmazonS3ConfigKey; 4] = [
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
    AmazonS3ConfigKey::SkipSignature,
];

/// The client, and the one for renewals. The error is for the user.
pub(super) fn s3(bucket: &Bucket) -> Result<(Arc<dyn ObjectStore>, Renewer), String> {
    // reqwest takes TLS from the provider of the process. An error means that there is one already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let failed = |error: object_store::Error| match error {
        object_store::Error::Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    let s3 = builder(bucket)?.build().map_err(failed)?;
    let client = reqwest::Client::builder().connect_timeout(CONNECT_DEADLINE).build();
    let client = client.map_err(|error| error.to_string())?;
    let renewer = Renewer { s3: s3.clone(), client, bucket: bucket.name.clone() };
    Ok((Arc::new(s3), renewer))
}

fn builder(bucket: &Bucket) -> Result<AmazonS3Builder, String> {
    let retry = RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_DEADLINE };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&bucket.name)
        .with_retry(retry)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_DEADLINE)
        .with_config(
            AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout),
            format!("{}s", CONNECT_DEADLINE.as_secs()),
        );
    // A signature of the bytes takes a SHA-256 of them. Readers check them against the blob's digest anyway.
    if env::var_os(UNSIGNED_PAYLOAD).is_none() {
        builder = builder.with_unsigned_payload(true);
    }
    if let Some(credentials) = &bucket.credentials {
        builder = builder.with_access_key_id(&credentials.access_key_id);
        builder = builder.with_secret_access_key(&credentials.secret_access_key);
    }
    if let Some(region) = &bucket.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &bucket.endpoint {
        // This key wins over AWS_ENDPOINT_URL_S3.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        builder = builder.with_allow_http(endpoint.starts_with("http://"));
        require_credentials(&builder)?;
    }
    Ok(builder)
}

/// Without credentials, the client would ask the metadata service of EC2 for them, and wait for it in vain on other machines.
fn require_credentials(builder: &AmazonS3Builder) -> Result<(), String> {
    let is_set =
        |key: &AmazonS3ConfigKey| builder.get_config_value(key).is_some_and(|value| !matches!(&*value, "" | "false"));
    let keys = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey].map(|key| is_set(&key));
    match keys {
        [true, true] => Ok(()),
        [false, false] if OTHER_CREDENTIALS.iter().any(is_set) => Ok(()),
        _ => Err(NO_CREDENTIALS.to_owned()),
    }
}
