//! A session of this process: the lease of a worker's device, and the relay of the driver calls.

use std::{
    ffi::OsString,
    io,
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, channel},
    },
};

use gpufleet::{
    Fleet, Job, JobError, SubmitError,
    schema::{JobId, RanOn, SessionUse},
    session::{Lease, ReachError, Relay, SessionFolder},
};
use pyo3::{
    Bound, IntoPyObject as _, Py, PyErr, PyResult, Python, exceptions::PyRuntimeError, pyclass, pymethods,
    types::PyTuple,
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

use crate::{
    attending::{News, Open, REPLY_WITHIN, SessionEnd, attend},
    client::Client,
    ended::Ended,
    errors::{chain, raise},
    waiting::wait,
};

/// An open session.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Session {
    /// Has the runtime.
    client: Py<Client>,
    job_id: JobId,
    ran_on: RanOn,
    memory_bytes: u64,
    time_limit_ms: u64,
    round_trip: f64,
    environment: Vec<(&'static str, OsString)>,
    /// Dropped by hand, because a forked child must leave the folder to its parent.
    inner: ManuallyDrop<Inner>,
    pid: u32,
}

#[derive(Debug)]
struct Inner {
    news: Mutex<Receiver<News>>,
    /// `None` once the session was ended.
    ending: Mutex<Option<Ending>>,
}

/// What ends a session.
#[derive(Debug)]
struct Ending {
    code: oneshot::Sender<i32>,
    attending: JoinHandle<SessionEnd>,
    /// Removed with its socket after the end.
    _folder: SessionFolder,
}

/// Why no session is open.
#[derive(Debug)]
pub enum NotOpen {
    Refused(Box<SubmitError>),
    /// The job ended before a worker offered a session.
    Ended(Option<JobError>),
    Unreached(ReachError),
    Relay(io::Error),
}

/// Creates the folder with the links to the driver library.
pub fn folder(library: &Path) -> PyResult<SessionFolder> {
    SessionFolder::create(library).map_err(|error| {
        let problem = format!("failed to create the folder of the session: {error}; check that TMPDIR is writable");
        PyErr::from(io::Error::new(error.kind(), problem))
    })
}

/// Submits the job of a session, waits until a worker has opened it, and starts the relay.
pub async fn open(fleet: &Fleet, job: Job, socket: PathBuf) -> Result<Open, NotOpen> {
    let mut handle = fleet.open_session(job).await.map_err(|error| NotOpen::Refused(Box::new(error)))?;
    let Some(offer) = handle.next_offer().await else {
        return Err(NotOpen::Ended(handle.wait(REPLY_WITHIN).await.err()));
    };
    let lease = Lease::open(&offer).await.map_err(NotOpen::Unreached)?;
    let (relay, rejections) = Relay::start(&socket, vec![lease.route()]).map_err(NotOpen::Relay)?;
    Ok(Open { handle, offer, lease, relay, rejections })
}

impl NotOpen {
    /// Returns how the job ended or was refused, or raises another error.
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Refused(error) => Ended::Refused(error).into_python(py),
            Self::Ended(Some(error)) => Ended::from(error).into_python(py),
            Self::Ended(None) => {
                let problem =
                    "the job ended without a session; install the same version of the worker and this package";
                Err(raise(py, "ConnectError", problem))
            }
            Self::Unreached(error) => Err(raise(py, "ConnectError", &chain(&error))),
            Self::Relay(error) => Err(error.into()),
        }
    }
}

impl Session {
    pub fn new(client: Py<Client>, runtime: &Runtime, open: Open, folder: SessionFolder) -> Self {
        let (tell, news) = channel();
        let (code, ended) = oneshot::channel();
        let (offer, round_trip) = (open.offer.clone(), open.lease.round_trip().as_secs_f64());
        let environment = folder.environment(None).into();
        let attending = runtime.spawn(attend(open, ended, tell));
        let ending = Mutex::new(Some(Ending { code, attending, _folder: folder }));
        Self {
            client,
            job_id: offer.job_id,
            ran_on: offer.ran_on,
            memory_bytes: offer.memory_bytes,
            time_limit_ms: offer.time_limit_ms,
            round_trip,
            environment,
            inner: ManuallyDrop::new(Inner { news: Mutex::new(news), ending }),
            pid: std::process::id(),
        }
    }

    fn inner(&self) -> PyResult<&Inner> {
        if self.pid == std::process::id() {
            return Ok(&self.inner);
        }
        Err(PyRuntimeError::new_err("the session belongs to the process that forked this one"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: the value is being dropped, so nothing uses the field afterwards.
            unsafe { ManuallyDrop::drop(&mut self.inner) }
        }
    }
}

#[pymethods]
impl Session {
    #[getter]
    fn job_id(&self) -> String {
        self.job_id.to_string()
    }

    /// The worker, the index and the name of the device, and whether it is the emulated one.
    #[getter]
    fn ran_on(&self) -> (&str, u32, &str, bool) {
        let on = &self.ran_on;
        (on.worker.as_str(), on.device, on.device_name.as_str(), on.emulated)
    }

    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The time for which the session may be open, in seconds.
    #[getter]
    fn time_limit(&self) -> f64 {
        self.time_limit_ms as f64 / 1e3
    }

    /// The time of a message to the worker and back, in seconds.
    #[getter]
    fn round_trip(&self) -> f64 {
        self.round_trip
    }

    /// The environment variables of a program that uses the session.
    #[getter]
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.environment.clone()
    }

    /// Waits for a line for the user. The flag says that the session has ended. `None` after `finish`.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(String, bool)>> {
        let news = &self.inner()?.news;
        Ok(match py.detach(|| lock(news).recv()) {
            Ok(News::Line(line)) => Some((line, false)),
            Ok(News::Ended(line)) => Some((line, true)),
            Err(_) => None,
        })
    }

    /// Tells the worker how the program ended, and waits until it has closed the session. Returns whether the session ended before, why the
    /// fleet ended it, the counters, and how the job failed. `None` if the session was finished before.
    fn finish<'py>(&self, py: Python<'py>, code: i32) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(Ending { code: told, attending, _folder }) = lock(&self.inner()?.ending).take() else {
            return Ok(None);
        };
        // An error means that the task has panicked, which the next line raises.
        _ = told.send(code);
        let ended = wait(py, self.client.get().runtime()?, attending)?;
        let SessionEnd { is_early, reason, used, failed } =
            ended.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let failed = failed.map(|failed| failed.into_python(py)).transpose()?;
        (is_early, reason, counters(&used), failed).into_pyobject(py).map(Some)
    }
}

/// Returns the counters in the order of the Python class. The number of processes is left out, because it is always one.
fn counters(used: &SessionUse) -> (u64, u64, u64, u64, u64, u64) {
    let SessionUse { calls, waits, sent_bytes, received_bytes, busy_us, memory_bytes_peak, .. } = *used;
    (calls, waits, sent_bytes, received_bytes, busy_us, memory_bytes_peak)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
