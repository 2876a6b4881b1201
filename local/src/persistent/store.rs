//! The blob store of a fleet that keeps running. It stays when the fleet is stopped, because jobs may wait in the broker.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Role, read_endpoints};
use crate::{
    blobs::{BlobEndpoint, BlobKind},
    error::LocalError,
    process::Process,
    programs,
    progress::Progress,
    s3,
    state::StateDir,
};

/// The folder for arrays that are too large for messages.
const FOLDER: &str = "blobs";

/// The store of a fleet, before it is started.
#[derive(Debug)]
pub(super) enum Store {
    /// Running workers were started without a store, so they could not read its blobs.
    None,
    Folder,
    /// The program of the server.
    S3(PathBuf),
}

impl Store {
    /// Chooses the store that the fleet has already, or else the wanted one. Fails if its program is missing, before
    /// anything is started.
    pub(super) fn choose(
        state: &Arc<StateDir>,
        bin_dir: Option<&Path>,
        wanted: Option<BlobKind>,
    ) -> Result<Self, LocalError> {
        let workers_run = workers_run(state)?;
        if workers_run && read_endpoints(state.path()).is_some_and(|endpoints| endpoints.blobs.is_none()) {
            return Ok(Self::None);
        }
        match existing(state, workers_run).or(wanted).unwrap_or_default() {
            BlobKind::Folder => Ok(Self::Folder),
            BlobKind::S3 => programs::ours(bin_dir, s3::PROGRAM).map(Self::S3),
        }
    }

    pub(super) async fn start(
        &self,
        state: &Arc<StateDir>,
        progress: &dyn Progress,
    ) -> Result<Option<BlobEndpoint>, LocalError> {
        match self {
            Self::None => Ok(None),
            Self::Folder => state.private_dir(FOLDER).map(BlobEndpoint::Folder).map(Some),
            Self::S3(program) => {
                let bucket = progress.step_async("start the S3 server", s3::start(state, program)).await?;
                Ok(Some(BlobEndpoint::S3(bucket)))
            }
        }
    }
}

/// The kind of the store that processes of the fleet use. The addresses of the fleet don't name it before the first start
/// is complete.
fn existing(state: &StateDir, workers_run: bool) -> Option<BlobKind> {
    if state.record(s3::NAME).exists() {
        return Some(BlobKind::S3);
    }
    workers_run.then_some(BlobKind::Folder)
}

fn workers_run(state: &Arc<StateDir>) -> Result<bool, LocalError> {
    let names = state.recorded()?;
    Ok(names.iter().any(|name| Role::of(name) == Role::Worker && Process::attach(state, name).is_some()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_fleet_keeps_its_store_until_it_is_stopped() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDir::persistent(&scratch.path().join("fleet")).unwrap();
        assert_eq!(existing(&state, false), None);
        assert_eq!(existing(&state, true), Some(BlobKind::Folder));
        fs::write(state.record(s3::NAME), "").unwrap();
        assert_eq!(existing(&state, false), Some(BlobKind::S3));
    }

    #[test]
    fn a_missing_server_program_is_an_error_before_anything_starts() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDir::persistent(&scratch.path().join("fleet")).unwrap();
        let choose = |wanted| Store::choose(&state, Some(scratch.path()), wanted);
        assert!(matches!(choose(None), Ok(Store::Folder)));
        let error = choose(Some(BlobKind::S3)).unwrap_err().to_string();
        assert!(error.contains("find the program gpufleet-local-s3: build it"), "{error}");
    }
}
