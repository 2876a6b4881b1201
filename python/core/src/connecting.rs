//! The settings of a connection.

use std::time::Duration;

use gpufleet::{BlobLocation, ConnectError, Fleet, FleetBuilder, InvalidBlobLocation};

/// The settings of a connection, from Python. They contain secrets, so there is no `Debug`.
pub struct Settings {
    pub url: String,
    pub blobs: Option<String>,
    /// The access key of a bucket; by default from the environment.
    pub key: Option<(String, String)>,
    pub client: Option<String>,
    pub connect_seconds: Option<f64>,
    pub confirm_seconds: Option<f64>,
    pub keep_replies_seconds: Option<f64>,
    pub user_id: bool,
    pub affinity: bool,
}

impl Settings {
    pub async fn connect(self) -> Result<Fleet, ConnectError> {
        let mut builder = Fleet::builder().user_id(self.user_id).affinity(self.affinity);
        if let Some(store) = self.blobs {
            builder = builder.blobs(location(store, self.key)?);
        }
        if let Some(client) = self.client {
            builder = builder.client(client);
        }
        let builder = with(builder, self.connect_seconds, FleetBuilder::connect_deadline);
        let builder = with(builder, self.confirm_seconds, FleetBuilder::confirm_deadline);
        let builder = with(builder, self.keep_replies_seconds, FleetBuilder::keep_replies);
        builder.connect(&self.url).await
    }
}

fn location(store: String, key: Option<(String, String)>) -> Result<BlobLocation, InvalidBlobLocation> {
    let location: BlobLocation = store.parse()?;
    Ok(match key {
        Some((id, secret)) => location.with_credentials(id, secret),
        None => location,
    })
}

fn with(
    builder: FleetBuilder,
    seconds: Option<f64>,
    set: impl FnOnce(FleetBuilder, Duration) -> FleetBuilder,
) -> FleetBuilder {
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => set(builder, time),
        None => builder,
    }
}
