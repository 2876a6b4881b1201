//! A fleet that runs as long as its owner: services, ledger and workers.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    blobs::BlobEndpoint,
    error::LocalError,
    process::Process,
    progress::{Progress, Silent},
    services::{Endpoints, Services},
};

mod roles;
mod worker;

pub(crate) use roles::{
    AMQP_URL, DATABASE_URL, Executables, LEDGER, MIGRATE, RecorderOptions, WorkerOptions, forget, launch, ready_file,
    worker_name, worker_number,
};
pub use worker::Worker;

/// The device that workers use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cuda {
    /// The CPU emulator.
    #[default]
    Emulated,
    /// The system's driver if it finds a device, else the emulator.
    Auto,
    /// The system's driver.
    System,
    /// The driver library at this path.
    Library(PathBuf),
}

/// Configures a fleet.
#[derive(Debug, Clone)]
pub struct LocalFleetBuilder {
    label: String,
    workers: u32,
    ledger: bool,
    recorder_process: bool,
    services: Option<Arc<Services>>,
    logs: Option<PathBuf>,
    bin_dir: Option<PathBuf>,
    blobs: Option<PathBuf>,
    options: WorkerOptions,
    recorder: RecorderOptions,
}

/// A running fleet. If its owner exits without [`LocalFleet::stop`], the guard of the state directory stops the processes.
#[derive(Debug)]
pub struct LocalFleet {
    services: Arc<Services>,
    owns_services: bool,
    /// Prefix of process names, unique in the state directory.
    name: String,
    endpoints: Endpoints,
    programs: Executables,
    options: WorkerOptions,
    recorder: RecorderOptions,
    workers: Mutex<Vec<Arc<Worker>>>,
    serial: AtomicU32,
    ledger: Mutex<Option<Process>>,
}

impl Cuda {
    pub(crate) fn argument(&self) -> OsString {
        match self {
            Self::Emulated => "emulated".into(),
            Self::Auto => "auto".into(),
            Self::System => "system".into(),
            Self::Library(path) => path.clone().into_os_string(),
        }
    }
}

/// The text is neither a word of [`Cuda`] nor a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give system, emulated, auto, or the path of a library, which has a slash or .so")]
pub struct InvalidCuda;

/// Parses `emulated`, `auto`, `system`, or a path.
impl std::str::FromStr for Cuda {
    type Err = InvalidCuda;

    fn from_str(text: &str) -> Result<Self, InvalidCuda> {
        match text {
            "emulated" => Ok(Self::Emulated),
            "auto" => Ok(Self::Auto),
            "system" => Ok(Self::System),
            path if path.contains('/') || path.contains(".so") => Ok(Self::Library(path.into())),
            _ => Err(InvalidCuda),
        }
    }
}

impl Default for LocalFleetBuilder {
    fn default() -> Self {
        Self {
            label: "fleet".to_owned(),
            workers: 1,
            ledger: true,
            recorder_process: true,
            services: None,
            logs: None,
            bin_dir: None,
            blobs: None,
            options: WorkerOptions::default(),
            recorder: RecorderOptions::default(),
        }
    }
}

impl LocalFleetBuilder {
    /// Sets the number of workers that start with the fleet, by default 1. [`LocalFleet::add_worker`] starts more.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the pools that each worker serves, by default the pool `default`.
    pub fn pools<I: IntoIterator<Item = S>, S: Into<String>>(mut self, pools: I) -> Self {
        self.options.pools = pools.into_iter().map(Into::into).collect();
        self
    }

    pub fn cuda(mut self, cuda: Cuda) -> Self {
        self.options.cuda = cuda;
        self
    }

    /// Adds arguments for every `gpufleet-worker run`.
    pub fn worker_args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, arguments: I) -> Self {
        self.options.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to every worker's environment.
    pub fn worker_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.options.environment.push((name.into(), value.into()));
        self
    }

    /// Adds arguments for `gpufleet-ledger record`.
    pub fn recorder_args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, arguments: I) -> Self {
        self.recorder.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the recorder's environment.
    pub fn recorder_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.recorder.environment.push((name.into(), value.into()));
        self
    }

    /// Sets whether a ledger records the jobs. True by default.
    pub fn ledger(mut self, ledger: bool) -> Self {
        self.ledger = ledger;
        self
    }

    /// Sets whether the fleet starts a recorder process, as it does by default. Otherwise the owner of the fleet records the events; the
    /// tables exist in both cases.
    pub fn recorder_process(mut self, recorder_process: bool) -> Self {
        self.recorder_process = recorder_process;
        self
    }

    /// Names the fleet's vhost, database and processes, for logs. Lower-case letters, digits and dashes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Uses shared services, on which the fleet gets its own vhost and database.
    pub fn on(mut self, services: &Arc<Services>) -> Self {
        self.services = Some(Arc::clone(services));
        self
    }

    /// Keeps the logs in this directory. By default they are deleted with the fleet. Has no effect with
    /// [`LocalFleetBuilder::on`].
    pub fn logs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.logs = Some(directory.into());
        self
    }

    /// Sets the folder of `gpufleet-worker` and `gpufleet-ledger`. By default, [`crate::programs::ours`] finds them.
    pub fn bin_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.bin_dir = Some(directory.into());
        self
    }

    /// Sets the folder of the blob store, which must exist. Workers use it and [`Endpoints::blobs`] names it. By default there is none.
    pub fn blobs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.blobs = Some(folder.into());
        self
    }

    /// Starts everything, and returns when every worker accepts jobs.
    pub async fn start(self) -> Result<LocalFleet, LocalError> {
        self.start_with(&Silent).await
    }

    /// Starts everything, reports each step, and returns when every worker accepts jobs.
    pub async fn start_with(self, progress: &dyn Progress) -> Result<LocalFleet, LocalError> {
        let programs = Executables::find(self.bin_dir.as_deref())?;
        let owns_services = self.services.is_none();
        let services = match self.services {
            Some(services) => services,
            None => {
                let start = async {
                    match &self.logs {
                        Some(logs) => Services::ephemeral_with_logs(logs).await,
                        None => Services::ephemeral().await,
                    }
                };
                progress.step_async("start a private RabbitMQ and Postgres", start).await?
            }
        };
        // The tables of several fleets are made once and copied.
        let copies_tables = self.ledger && !owns_services;
        let (name, endpoints) = match copies_tables {
            true => services.space_with_tables(&self.label, &programs).await?,
            false => services.space(&self.label).await?,
        };
        let endpoints = Endpoints { blobs: self.blobs.map(BlobEndpoint::Folder), ..endpoints };
        let fleet = LocalFleet {
            services,
            owns_services,
            name,
            endpoints,
            programs,
            options: self.options,
            recorder: self.recorder,
            workers: Mutex::new(Vec::new()),
            serial: AtomicU32::new(0),
            ledger: Mutex::new(None),
        };
        if self.ledger {
            let start = async {
                if !copies_tables {
                    fleet.programs.migrate(fleet.services.state(), &fleet.endpoints).await?;
                }
                if self.recorder_process { fleet.start_ledger().await } else { Ok(()) }
            };
            progress.step_async("start the ledger", start).await?;
        }
        let count = self.workers;
        let what = format!("start {count} worker{}", if count == 1 { "" } else { "s" });
        let workers = progress.step_async(&what, fleet.start_workers(count)).await;
        workers.map(|()| fleet)
    }
}

impl LocalFleet {
    pub fn builder() -> LocalFleetBuilder {
        LocalFleetBuilder::default()
    }

    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Returns the name of the fleet's vhost and of its database.
    pub fn space(&self) -> &str {
        &self.name
    }

    pub fn logs(&self) -> &Path {
        self.services.state().logs()
    }

    /// Returns the worker with this index, in the order of their starts from 0. It may have ended.
    pub fn worker(&self, index: usize) -> Arc<Worker> {
        Arc::clone(&self.workers.lock().expect("no panic happens under this lock")[index])
    }

    pub fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.lock().expect("no panic happens under this lock").clone()
    }

    /// Starts one more worker with the fleet's options, and returns when the worker takes jobs.
    pub async fn add_worker(&self) -> Result<Arc<Worker>, LocalError> {
        let worker = self.launch_worker(&[])?;
        worker.wait_ready().await?;
        Ok(worker)
    }

    /// Returns the process of the recorder. `None` if the fleet has no ledger, or after [`LocalFleet::stop_ledger`].
    pub fn ledger(&self) -> Option<Process> {
        self.ledger.lock().expect("no panic happens under this lock").clone()
    }

    /// Starts the recorder, and returns when it is ready.
    pub async fn start_ledger(&self) -> Result<(), LocalError> {
        let name = format!("{}-{LEDGER}", self.name);
        let (state, endpoints) = (self.services.state(), &self.endpoints);
        let process = self.programs.start_recorder(state, &name, endpoints, &self.recorder).await?;
        *self.ledger.lock().expect("no panic happens under this lock") = Some(process);
        Ok(())
    }

    /// Stops the recorder cleanly. Meanwhile, events wait in the broker.
    pub async fn stop_ledger(&self) -> Result<(), LocalError> {
        let Some(process) = self.ledger.lock().expect("no panic happens under this lock").take() else { return Ok(()) };
        roles::stop_recorder(&process).await.map(drop)
    }

    /// Stops all processes of the fleet: first the workers, in parallel, then the ledger, then the services if they are
    /// not shared. Returns the names of the processes that had to be killed. If the future is cancelled, the guard
    /// stops the rest.
    pub async fn stop(&self) -> Result<Vec<String>, LocalError> {
        let workers = self.workers();
        let mut stopping = tokio::task::JoinSet::new();
        for worker in workers {
            stopping
                .spawn(async move { worker.terminate().await.map(|by_itself| (worker.name().to_owned(), by_itself)) });
        }
        let mut forced = Vec::new();
        let mut failure = None;
        while let Some(stopped) = stopping.join_next().await {
            match stopped.expect("stopping a worker does not panic") {
                Ok((_, true)) => {}
                Ok((name, false)) => forced.push(name),
                Err(error) => failure = Some(error),
            }
        }
        let recorder = self.ledger.lock().expect("no panic happens under this lock").take();
        if let Some(process) = recorder
            && !roles::stop_recorder(&process).await?
        {
            forced.push(process.name().to_owned());
        }
        if self.owns_services {
            self.services.stop().await?;
        }
        failure.map_or(Ok(forced), Err)
    }

    /// Starts one more worker with further arguments, without waiting until it takes jobs.
    pub fn launch_worker(&self, arguments: &[&str]) -> Result<Arc<Worker>, LocalError> {
        self.launch_worker_in(arguments, &[])
    }

    /// Starts one more worker with further arguments and environment variables, without waiting until it takes jobs.
    pub fn launch_worker_in(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Arc<Worker>, LocalError> {
        let number = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let name = worker_name(&self.name, number);
        let mut options = self.options.clone();
        options.arguments.extend(arguments.iter().map(OsString::from));
        options.environment.extend(environment.iter().map(|(name, value)| (name.into(), value.into())));
        let launch = self.programs.worker(self.services.state(), &name, &self.endpoints, &options);
        let worker = Arc::new(Worker::launch(name, self.services.state(), launch)?);
        self.workers.lock().expect("no panic happens under this lock").push(Arc::clone(&worker));
        Ok(worker)
    }

    /// Starts the workers at once, and waits until each is ready.
    async fn start_workers(&self, count: u32) -> Result<(), LocalError> {
        let workers: Vec<_> = (0..count).map(|_| self.launch_worker(&[])).collect::<Result<_, _>>()?;
        for worker in workers {
            worker.wait_ready().await?;
        }
        Ok(())
    }
}
