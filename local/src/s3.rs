//! A private S3 server on loopback: the program `gpufleet-local-s3`, which serves a folder.
//!
//! The port and the key stay the same, because jobs and commands may still use them after a restart.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    blobs::Bucket,
    error::LocalError,
    fleet::{forget, launch, ready_file},
    ports,
    process::Process,
    secret,
    state::StateDir,
};

/// The name of the process and of its folder.
pub(crate) const NAME: &str = "s3";
pub(crate) const PROGRAM: &str = "gpufleet-local-s3";
const BUCKET: &str = "gpufleet";
const ACCESS_KEY_ID: &str = "gpufleet";
/// Time limit for a start, which takes a moment, and longer on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Starts the server of this state directory if it does not run, and returns its bucket when the server is ready. Objects
/// of an earlier run are kept.
pub(crate) async fn start(state: &Arc<StateDir>, program: &Path) -> Result<Bucket, LocalError> {
    let folder = state.private_dir(NAME)?;
    let secrets = state.private_dir("secrets")?;
    let secret_access_key = secret::kept_in(&secrets.join(NAME))?;
    let record = secrets.join("s3-port");
    let recorded = ports::recorded(&record)?;
    let port = recorded.map_or_else(ports::free, Ok)?;
    let url = format!("s3://{BUCKET}?endpoint=http://127.0.0.1:{port}");
    let bucket = Bucket { url, access_key_id: ACCESS_KEY_ID.to_owned(), secret_access_key };
    if !is_ready_already(state).await? {
        match recorded {
            Some(port) => ports::reclaim(state, "the S3 server", port, &record).await?,
            // The port is written before the start, so that a later command finds it if this one is interrupted.
            None => secret::write_private(&record, &port.to_string())?,
        }
        serve(state, program, &folder, port, &bucket).await?;
    }
    Ok(bucket)
}

/// Waits for a server that an interrupted command started. `false` if there is none, or if it has ended.
async fn is_ready_already(state: &Arc<StateDir>) -> Result<bool, LocalError> {
    let Some(process) = Process::attach(state, NAME) else { return Ok(false) };
    let file = ready_file(state, NAME);
    process.ready_or_ended(READY_WITHIN, async || file.exists()).await
}

async fn serve(
    state: &Arc<StateDir>,
    program: &Path,
    folder: &Path,
    port: u16,
    bucket: &Bucket,
) -> Result<(), LocalError> {
    let file = ready_file(state, NAME);
    forget(&file)?;
    let mut server = launch(NAME, program)
        .args([folder.as_os_str(), "--bucket".as_ref(), BUCKET.as_ref(), "--ready-file".as_ref(), file.as_os_str()])
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    for (name, value) in bucket.key() {
        server = server.env(name, value);
    }
    server.spawn(state)?.ready(READY_WITHIN, async || file.exists()).await
}
