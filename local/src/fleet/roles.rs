//! The command lines of gpufleet's programs. Passwords are passed in the environment, which other users can't read.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::Cuda;
use crate::{
    blobs::BlobEndpoint,
    error::{FileContext as _, LocalError, LogTail},
    process::{Process, ProcessSpec, Signal},
    programs,
    services::Endpoints,
    state::StateDir,
};

pub(crate) const LEDGER: &str = "ledger";
/// The prefix of the process names of migrations.
pub(crate) const MIGRATE: &str = "migrate";
pub(crate) const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
pub(crate) const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
/// The prefixes of the variables that gpufleet's programs and their S3 client read. A developer may have set them for
/// another fleet.
const READ_BY_OURS: [&str; 2] = ["GPUFLEET_", "AWS_"];
/// The beginnings of the variables that describe this machine or its log instead of a fleet.
const OF_THIS_MACHINE: [&str; 3] = ["GPUFLEET_EMULATOR", "GPUFLEET_NVRTC", "GPUFLEET_LOG"];
/// The variable for the folder of compiled programs. Each worker has a folder of its own, so that it does not find
/// programs that other workers compiled, unless its arguments say so.
const CACHE_DIR: &str = "GPUFLEET_CACHE_DIR";
/// Time limit for the recorder's start. Connecting and declaring takes a moment, and much longer on a loaded machine.
const LEDGER_READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for migrations, which take a fraction of a second on an empty database.
const MIGRATE_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for the recorder to stop: long enough to write the current batch.
const LEDGER_STOP_WITHIN: Duration = Duration::from_secs(20);

/// The paths of gpufleet's programs.
#[derive(Debug, Clone)]
pub(crate) struct Executables {
    worker: PathBuf,
    ledger: PathBuf,
}

/// The settings that all workers of a fleet share.
#[derive(Debug, Clone)]
pub(crate) struct WorkerOptions {
    pub(crate) pools: Vec<String>,
    pub(crate) cuda: Cuda,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// The settings of a fleet's recorder.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecorderOptions {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// The settings to start one worker any number of times.
pub(crate) struct WorkerLaunch {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    pub(crate) ready_file: PathBuf,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            pools: vec!["default".to_owned()],
            cuda: Cuda::default(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }
}

/// `Debug` leaves out the environment, because it contains a password.
impl std::fmt::Debug for WorkerLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerLaunch")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

pub(crate) fn worker_name(fleet: &str, number: u32) -> String {
    format!("{fleet}-w{number}")
}

/// The number of the worker with this name, if the fleet has one.
pub(crate) fn worker_number(fleet: &str, name: &str) -> Option<u32> {
    name.strip_prefix(fleet)?.strip_prefix("-w")?.parse().ok()
}

impl Executables {
    pub(crate) fn find(chosen: Option<&Path>) -> Result<Self, LocalError> {
        let find = |name| programs::ours(chosen, name);
        Ok(Self { worker: find("gpufleet-worker")?, ledger: find("gpufleet-ledger")? })
    }

    pub(crate) fn worker(
        &self,
        state: &StateDir,
        name: &str,
        endpoints: &Endpoints,
        options: &WorkerOptions,
    ) -> WorkerLaunch {
        let ready_file = ready_file(state, name);
        let mut arguments: Vec<OsString> =
            vec!["run".into(), "--name".into(), name.into(), "--cuda".into(), options.cuda.argument()];
        arguments.extend(options.pools.iter().flat_map(|pool| [OsString::from("--pool"), pool.into()]));
        arguments.extend([OsString::from("--ready-file"), ready_file.clone().into_os_string()]);
        arguments.extend(options.arguments.iter().cloned());
        let mut environment = vec![(CACHE_DIR.into(), state.path().join("modules").join(name).into_os_string())];
        environment.extend(endpoints.blobs.iter().flat_map(BlobEndpoint::environment));
        environment.extend(options.environment.iter().cloned());
        environment.push((AMQP_URL.into(), endpoints.amqp_url.clone().into()));
        WorkerLaunch { name: name.to_owned(), program: self.worker.clone(), arguments, environment, ready_file }
    }

    /// Brings the fleet's database to the newest schema.
    pub(crate) async fn migrate(&self, state: &Arc<StateDir>, endpoints: &Endpoints) -> Result<(), LocalError> {
        let name = format!("{MIGRATE}-{}", std::process::id());
        let launch = launch(&name, &self.ledger).args(["migrate"]);
        let process = with_endpoints(launch, endpoints).spawn(state)?;
        if !process.wait(MIGRATE_WITHIN).await {
            process.kill_tree().await?;
            return Err(LocalError::NotReady { name, seconds: MIGRATE_WITHIN.as_secs(), tail: process.log_tail() });
        }
        match process.exit_status() {
            Some(status) if status.success() => Ok(()),
            status => {
                let outcome = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
                Err(LocalError::Ended { name, outcome, tail: LogTail::read(&process.log()) })
            }
        }
    }

    /// Starts the recorder, and returns when it is ready.
    pub(crate) async fn start_recorder(
        &self,
        state: &Arc<StateDir>,
        name: &str,
        endpoints: &Endpoints,
        options: &RecorderOptions,
    ) -> Result<Process, LocalError> {
        let ready_file = ready_file(state, name);
        forget(&ready_file)?;
        let mut launch =
            launch(name, &self.ledger).args(["record".as_ref(), "--ready-file".as_ref(), ready_file.as_os_str()]);
        launch = launch.args(&options.arguments);
        for (name, value) in &options.environment {
            launch = launch.env(name, value);
        }
        let process = with_endpoints(launch, endpoints).spawn(state)?;
        process.ready(LEDGER_READY_WITHIN, async || ready_file.exists()).await?;
        Ok(process)
    }
}

impl WorkerLaunch {
    pub(crate) fn spawn(&self, state: &Arc<StateDir>) -> Result<Process, LocalError> {
        forget(&self.ready_file)?;
        let mut spec = launch(&self.name, &self.program).args(&self.arguments);
        for (name, value) in &self.environment {
            spec = spec.env(name, value);
        }
        spec.spawn(state)
    }
}

/// Stops the recorder. Returns `false` if it had to be killed.
pub(crate) async fn stop_recorder(process: &Process) -> Result<bool, LocalError> {
    process.resume();
    process.stop(Signal::Terminate, LEDGER_STOP_WITHIN).await
}

/// One of gpufleet's programs, without the variables in the environment that were set for another fleet.
pub(crate) fn launch(name: &str, program: &Path) -> ProcessSpec {
    let inherited = env::vars_os().map(|(name, _)| name).filter(|name| is_foreign(&name.to_string_lossy()));
    inherited.fold(ProcessSpec::new(name, program), ProcessSpec::env_remove)
}

fn is_foreign(variable: &str) -> bool {
    READ_BY_OURS.iter().any(|prefix| variable.starts_with(prefix))
        && !OF_THIS_MACHINE.iter().any(|kept| variable.starts_with(kept))
}

fn with_endpoints(spec: ProcessSpec, endpoints: &Endpoints) -> ProcessSpec {
    spec.env(AMQP_URL, &endpoints.amqp_url).env(DATABASE_URL, &endpoints.database_url)
}

/// The file that exists while the worker or recorder of this name is ready.
pub(crate) fn ready_file(state: &StateDir, name: &str) -> PathBuf {
    state.path().join(format!("{name}.ready"))
}

/// Deletes the ready file of an earlier run, which would make the new process look ready too soon.
pub(crate) fn forget(ready_file: &Path) -> Result<(), LocalError> {
    match fs::remove_file(ready_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", ready_file),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_inherits_the_machines_settings_and_not_another_fleets() {
        for foreign in ["GPUFLEET_AMQP_URL", "GPUFLEET_TRUSTED_KEYS", "GPUFLEET_WORKER_DIES", "AWS_SESSION_TOKEN"] {
            assert!(is_foreign(foreign), "{foreign}");
        }
        for kept in ["GPUFLEET_EMULATOR_LIB", "GPUFLEET_EMULATOR_MEMORY", "GPUFLEET_NVRTC", "GPUFLEET_LOG", "PATH"] {
            assert!(!is_foreign(kept), "{kept}");
        }
    }
}
