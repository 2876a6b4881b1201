//! One worker of a fleet.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::roles::WorkerLaunch;
use crate::{
    error::LocalError,
    process::{Process, Signal},
    state::StateDir,
};

/// Time limit for a start. Loading the driver, connecting and declaring takes a second, and much longer on a loaded
/// machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for a stop: a little more than the worker's grace period for running jobs (30 s).
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// A worker that was started. It may have ended.
#[derive(Debug)]
pub struct Worker {
    name: String,
    state: Arc<StateDir>,
    launch: WorkerLaunch,
    process: Mutex<Process>,
}

impl Worker {
    pub(crate) fn launch(name: String, state: &Arc<StateDir>, launch: WorkerLaunch) -> Result<Self, LocalError> {
        let process = Mutex::new(launch.spawn(state)?);
        Ok(Self { name, state: Arc::clone(state), launch, process })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    pub fn is_alive(&self) -> bool {
        self.process().is_alive()
    }

    /// The process, for example to suspend it or to read its log.
    pub fn process(&self) -> Process {
        self.process.lock().expect("no panic happens under this lock").clone()
    }

    /// Waits until the worker takes jobs.
    pub async fn wait_ready(&self) -> Result<(), LocalError> {
        self.process().ready(READY_WITHIN, async || self.launch.ready_file.exists()).await
    }

    /// Kills the supervisor with SIGKILL. Its executors end by themselves when they notice.
    pub async fn kill9(&self) -> Result<(), LocalError> {
        self.process().kill9().await
    }

    /// Asks the worker to drain and waits until it exits, but kills it after a grace period. Returns `false` if it had
    /// to be killed.
    pub async fn terminate(&self) -> Result<bool, LocalError> {
        let process = self.process();
        process.resume();
        process.stop(Signal::Terminate, STOP_WITHIN).await
    }

    /// Starts the worker again after it has ended, and returns when it takes jobs.
    pub async fn restart(&self) -> Result<(), LocalError> {
        self.terminate().await?;
        *self.process.lock().expect("no panic happens under this lock") = self.launch.spawn(&self.state)?;
        self.wait_ready().await
    }
}
