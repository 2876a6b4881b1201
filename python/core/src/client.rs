//! A connection to a fleet, with its own tokio runtime.

use std::{collections::BTreeMap, fs::File, mem::ManuallyDrop, path::PathBuf, sync::Arc, time::Duration};

use gpufleet::{
    AttachError, Fleet, StoredArray,
    schema::{ClientName, JobId, PoolName, Selection},
};
use pyo3::{
    Bound, IntoPyObject as _, PyAny, PyErr, PyRefMut, PyResult, Python,
    exceptions::PyRuntimeError,
    pyclass, pymethods,
    types::{PyAnyMethods as _, PyTuple},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc::unbounded_channel, oneshot},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    arrays::{self, Bytes, Elements},
    call,
    completions::{Completions, News, Token},
    connecting::Settings,
    ended::Ended,
    errors::{chain, raise, value},
    files,
    job::Job,
    progress,
    sending::{Request, Requests, Sending, read_outputs},
    session::{self, Session},
    waiting::{wait, wait_unless},
};

/// The number of threads of the runtime. Publishing and receiving is brief work, for which waking another thread takes longer than the
/// work itself; hashing and storing arrays have threads of their own.
const WORKER_THREADS: usize = 1;
/// Stands for no deadline, because a Python future waits for as long as its caller wants.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The deadline for asking the broker why a job waits.
const OBSTACLE_DEADLINE: Duration = Duration::from_secs(1);

/// A connection to a fleet.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Client {
    /// Dropped by hand, because a forked child must leak it: the threads of the runtime exist only in the parent.
    inner: ManuallyDrop<Inner>,
    pid: u32,
}

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    fleet: Fleet,
    completions: Arc<Completions>,
    requests: Requests,
    /// Tracks the tasks that send jobs and read outputs.
    tasks: TaskTracker,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: the value is being dropped, so nothing uses the field afterwards.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        inner.completions.close();
        drop(inner.fleet);
        inner.runtime.shutdown_background();
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, *, blobs=None, key=None, client=None, connect_seconds=None, confirm_seconds=None, keep_replies_seconds=None, user_id=true, affinity=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn new(
        py: Python<'_>,
        url: String,
        blobs: Option<String>,
        key: Option<(String, String)>,
        client: Option<String>,
        connect_seconds: Option<f64>,
        confirm_seconds: Option<f64>,
        keep_replies_seconds: Option<f64>,
        user_id: bool,
        affinity: bool,
    ) -> PyResult<Self> {
        let keeps_replies = client.is_some();
        let settings = Settings {
            url,
            blobs,
            key,
            client,
            connect_seconds,
            confirm_seconds,
            keep_replies_seconds,
            user_id,
            affinity,
        };
        let runtime =
            Builder::new_multi_thread().worker_threads(WORKER_THREADS).thread_name("gpufleet").enable_all().build()?;
        let connected = wait(py, &runtime, Box::pin(settings.connect()))?;
        let fleet = connected.map_err(|error| raise(py, "ConnectError", &chain(&error)))?;
        let (reading, results) = unbounded_channel();
        let (requests, taken) = Requests::new();
        let completions = Arc::new(Completions::new(reading));
        let sending = Sending::new(fleet.clone(), completions.clone(), keeps_replies);
        let tasks = sending.tasks().clone();
        runtime.spawn(read_outputs(fleet.clone(), completions.clone(), tasks.clone(), results));
        runtime.spawn(sending.run(taken));
        let inner = Inner { runtime, fleet, completions, requests, tasks };
        Ok(Self { inner: ManuallyDrop::new(inner), pid: std::process::id() })
    }

    /// The id of the process that made the connection. No other process may use the connection.
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// The client name, to which workers send the replies.
    #[getter]
    fn name(&self) -> String {
        self.inner.fleet.client().to_string()
    }

    /// Sends a job without waiting for the broker. `next` returns its outcome. If `unread` is true, outputs that are in the blob store stay
    /// there.
    #[pyo3(signature = (token, job, unread=false))]
    fn submit(&self, token: Token, mut job: PyRefMut<'_, Job>, unread: bool) -> PyResult<()> {
        let request = match unread {
            true => Request::Unread(token, job.describe()?),
            false => Request::One(token, job.take()?),
        };
        self.request(request)
    }

    /// Sends jobs that share messages, without waiting for the broker.
    fn submit_many(&self, tokens: Vec<Token>, jobs: Vec<PyRefMut<'_, Job>>) -> PyResult<()> {
        let jobs = jobs.into_iter().map(|mut job| job.take());
        let jobs = jobs.zip(tokens).map(|(job, token)| Ok((job?, token))).collect::<PyResult<_>>()?;
        self.request(Request::Many(jobs))
    }

    /// Sends a job and waits for its end in this thread, unless `is_over()` becomes true. The client must not have a client name, because
    /// the replies of such a client stay with the broker until they are read.
    fn run<'py>(
        &self,
        py: Python<'py>,
        mut job: PyRefMut<'py, Job>,
        is_over: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (inner, job) = (self.inner()?, job.take()?);
        let running = async {
            inner.requests.passed().await;
            call::run(&inner.fleet, &inner.completions, job).await
        };
        let is_over = || is_over.call0()?.extract();
        let ended = wait_unless(py, &inner.runtime, Box::pin(running), is_over)?;
        Ok(ended.map(|ended| ended.into_python(py)).transpose()?.map(Bound::into_any))
    }

    /// Sends a job and waits until the broker has confirmed it. Its reply stays with the broker, for a later program with the same client
    /// name. If the job was not submitted, returns the reason in the form of [`Ended::Refused`].
    fn detach<'py>(&self, py: Python<'py>, mut job: PyRefMut<'_, Job>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let inner = self.inner()?;
        let submitted = wait(py, &inner.runtime, Box::pin(inner.fleet.submit(job.describe()?)))?;
        let refused = submitted.err().map(|error| Ended::Refused(Box::new(error)).into_python(py));
        Ok(refused.transpose()?.map(Bound::into_any))
    }

    /// Submits the job of a session, and waits until a worker has opened it. If none does, returns the reason in the form of [`Ended`].
    /// Returns `None` once `is_over()` is true; the job may have been submitted then.
    fn open_session<'py>(
        slf: &Bound<'py, Self>,
        mut job: PyRefMut<'_, Job>,
        library: PathBuf,
        is_over: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, inner) = (slf.py(), slf.get().inner()?);
        let job = job.describe()?;
        let folder = session::folder(&library)?;
        let opening = session::open(&inner.fleet, job, folder.socket());
        let is_over = || is_over.call0()?.extract();
        match wait_unless(py, &inner.runtime, Box::pin(opening), is_over)? {
            Some(Ok(open)) => {
                let session = Session::new(slf.clone().unbind(), &inner.runtime, open, folder);
                Ok(Some(session.into_pyobject(py)?.into_any()))
            }
            Some(Err(problem)) => Ok(Some(problem.into_python(py)?.into_any())),
            None => Ok(None),
        }
    }

    /// Waits for a job of an earlier program with the same client name. If `read` is false, large outputs stay in the blob store.
    fn attach(&self, py: Python<'_>, token: Token, job_id: &str, read: bool) -> PyResult<()> {
        let inner = self.inner()?;
        let handle = wait(py, &inner.runtime, inner.fleet.attach(self::job_id(job_id)?))?;
        let handle = handle.map_err(|error: AttachError| raise(py, "AttachError", &chain(&error)))?;
        self.request(Request::Attached(token, handle, !read))
    }

    /// Returns how many replies wait for a client name that no connection uses. `None` if the name has no reply queue.
    fn replies_waiting(&self, py: Python<'_>, client: &str) -> PyResult<Option<u32>> {
        let (inner, client) = (self.inner()?, client_name(client)?);
        let waiting = wait(py, &inner.runtime, inner.fleet.replies_waiting(&client))?;
        waiting.map_err(|error| raise(py, "ConnectError", &chain(&error)))
    }

    /// Deletes the reply queue of a client name, including the replies in it.
    fn delete_replies(&self, py: Python<'_>, client: &str) -> PyResult<()> {
        let (inner, client) = (self.inner()?, client_name(client)?);
        let deleted = wait(py, &inner.runtime, inner.fleet.delete_replies(&client))?;
        deleted.map_err(|error| raise(py, "ConnectError", &chain(&error)))
    }

    /// Returns the jobs whose replies have arrived and were not taken, for a client with a client name.
    fn unread(&self) -> PyResult<Vec<String>> {
        Ok(self.inner()?.fleet.unread().iter().map(ToString::to_string).collect())
    }

    /// Waits until something has happened to jobs, and returns it: the confirmed jobs, the jobs that have ended, the end of each of these,
    /// the progress of running jobs, and why progress is not received. `None` once the connection is closed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let completions = self.inner()?.completions.clone();
        let Some(news) = py.detach(|| completions.take()) else { return Ok(None) };
        let News { confirmed, ended, progress, not_followed, .. } = news;
        let (tokens, ends): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let ends = ends.into_iter().map(|end| end.into_python(py)).collect::<PyResult<Vec<_>>>()?;
        let progress = progress.iter().map(|each| progress::into_python(py, each)).collect::<PyResult<Vec<_>>>()?;
        let not_followed = not_followed.map(|error| chain(&error));
        (confirmed, tokens, ends, progress, not_followed).into_pyobject(py).map(Some)
    }

    /// Receives the progress of this client's jobs in a pool from now on; `next` returns what comes. Waits for the broker's answer for this
    /// many seconds, so that nothing of a job that is submitted next is missed.
    #[pyo3(signature = (pool, seconds=0.0))]
    fn follow(&self, py: Python<'_>, pool: &str, seconds: f64) -> PyResult<()> {
        let inner = self.inner()?;
        let pool: PoolName = pool.parse().map_err(value)?;
        let within = Duration::try_from_secs_f64(seconds).map_err(value)?;
        let (asked, answered) = oneshot::channel();
        inner.runtime.spawn(progress::follow(inner.fleet.clone(), pool, inner.completions.clone(), asked));
        if within.is_zero() {
            return Ok(());
        }
        // Without an answer in time, the output comes with the outcome.
        wait(py, &inner.runtime, Box::pin(async { timeout(within, answered).await })).map(drop)
    }

    /// Waits for the next progress of a job that any client may have submitted. `None` if there is none within this time.
    fn next_progress<'py>(
        &self,
        py: Python<'py>,
        pool: &str,
        job_id: &str,
        seconds: f64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let inner = self.inner()?;
        let (pool, job_id): (PoolName, _) = (pool.parse().map_err(value)?, self::job_id(job_id)?);
        let within = Duration::try_from_secs_f64(seconds).map_err(value)?;
        let next = wait(py, &inner.runtime, progress::next_of(&inner.fleet, &pool, job_id, within))?;
        let next = next.map_err(|error| raise(py, "GpufleetError", &chain(&error)))?;
        next.map(|progress| progress::into_python(py, &progress)).transpose()
    }

    /// Orders the workers to cancel jobs, by id and by labels. If `wait` is true, returns when the broker has confirmed the order.
    fn cancel(
        &self,
        py: Python<'_>,
        jobs: Vec<String>,
        labels: BTreeMap<String, String>,
        by: String,
        wait: bool,
    ) -> PyResult<()> {
        let inner = self.inner()?;
        let jobs = jobs.iter().map(|id| job_id(id)).collect::<PyResult<Vec<_>>>()?;
        let (fleet, by_labels) = (inner.fleet.clone(), !labels.is_empty());
        let (given, outcome) = oneshot::channel();
        let order = async move {
            let order = fleet.cancel(Selection { jobs, labels }, Some(by)).await;
            // An error means that the caller does not wait for the outcome.
            drop(given.send(order));
        };
        // An order by labels refers to the jobs that were sent before it, so the broker must have them first.
        if by_labels {
            self.request(Request::Alone(Box::pin(order)))?;
        } else {
            inner.tasks.spawn_on(order, inner.runtime.handle());
        }
        if !wait {
            return Ok(());
        }
        let given = self::wait(py, &inner.runtime, outcome)?.map_err(value)?;
        given.map(drop).map_err(|error| raise(py, "CancelError", &chain(&error)))
    }

    /// Stores an array in the blob store, and returns its digest.
    fn store(&self, py: Python<'_>, dtype: &str, shape: Vec<u64>, array: &Bound<'_, PyAny>) -> PyResult<String> {
        let inner = self.inner()?;
        let (dtype, elements) = (arrays::dtype(py, dtype)?, Elements::of(array)?);
        let stored = wait(py, &inner.runtime, Box::pin(inner.fleet.store_shared(dtype, shape, elements)))?;
        Ok(stored.map_err(|error| raise(py, "StoreFailed", &chain(&error)))?.digest().to_string())
    }

    /// Reads an array from the blob store.
    fn read(&self, py: Python<'_>, digest: &str, dtype: &str, shape: Vec<u64>) -> PyResult<Bytes> {
        let inner = self.inner()?;
        let array = stored(py, digest, dtype, shape)?;
        let read = wait(py, &inner.runtime, Box::pin(inner.fleet.read_stored(&array)))?;
        Ok(read.map_err(|error| raise(py, "StoreFailed", &chain(&error)))?.into_blob_bytes().into())
    }

    /// Unpacks an archive of the blob store into a folder, and returns the paths of its files.
    fn unpack_stored(
        &self,
        py: Python<'_>,
        digest: &str,
        bytes: u64,
        folder: PathBuf,
        replaces: bool,
    ) -> PyResult<Vec<PathBuf>> {
        files::unpack_stored(py, self, &stored(py, digest, "u8", vec![bytes])?, &folder, replaces)
    }

    /// Returns why jobs or host programs of a pool wait, if the broker tells at once.
    #[pyo3(signature = (pool, of_programs=false))]
    fn obstacle(&self, py: Python<'_>, pool: &str, of_programs: bool) -> PyResult<Option<String>> {
        let inner = self.inner()?;
        let pool: PoolName = pool.parse().map_err(value)?;
        wait(py, &inner.runtime, obstacle(&inner.fleet, &pool, of_programs))
    }

    /// Waits until submissions and orders are confirmed, and closes the connection. Jobs that have not ended are reported as lost, but
    /// continue to run.
    fn close(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let inner = self.inner()?;
        let deadline = Duration::try_from_secs_f64(seconds).unwrap_or(NO_DEADLINE);
        inner.completions.closing();
        let (sent, all_sent) = oneshot::channel();
        // An error means that `close` no longer waits.
        self.request(Request::Alone(Box::pin(async { _ = sent.send(()) })))?;
        let close = async {
            let sent = timeout(deadline, all_sent).await;
            inner.tasks.close();
            let closed = timeout(deadline, async {
                inner.fleet.close().await;
                inner.tasks.wait().await;
            });
            (sent, closed.await).0.is_ok()
        };
        let waited = wait(py, &inner.runtime, Box::pin(close));
        inner.completions.close();
        if waited? { Ok(()) } else { Err(raise(py, "MaybeSubmitted", "the broker did not confirm all jobs in time")) }
    }
}

impl Client {
    fn inner(&self) -> PyResult<&Inner> {
        if self.pid == std::process::id() {
            return Ok(&self.inner);
        }
        Err(PyRuntimeError::new_err("the connection belongs to the process that forked this one"))
    }

    /// Returns the runtime, for a session of this client.
    pub fn runtime(&self) -> PyResult<&Runtime> {
        Ok(&self.inner()?.runtime)
    }

    /// Copies an array of the blob store to a file.
    pub fn copy_stored(&self, py: Python<'_>, array: &StoredArray, into: File) -> PyResult<File> {
        let inner = self.inner()?;
        let copied = wait(py, &inner.runtime, Box::pin(inner.fleet.copy_stored(array, into)))?;
        copied.map_err(|error| raise(py, "StoreFailed", &chain(&error)))
    }

    fn request(&self, request: Request) -> PyResult<()> {
        self.inner()?.requests.send(request).map_err(|_| PyRuntimeError::new_err("the connection's runtime has ended"))
    }
}

fn client_name(text: &str) -> PyResult<ClientName> {
    text.parse().map_err(value)
}

async fn obstacle(fleet: &Fleet, pool: &PoolName, of_programs: bool) -> Option<String> {
    let held_up = tokio::select! {
        biased;
        reason = fleet.held_up() => Some(reason),
        () = std::future::ready(()) => None,
    };
    if held_up.is_some() {
        return held_up;
    }
    let depth = async {
        match of_programs {
            true => fleet.program_depth(pool).await,
            false => fleet.pool_depth(pool).await,
        }
    };
    let depth = timeout(OBSTACLE_DEADLINE, depth).await.ok()?.ok()?;
    match depth.consumers {
        0 if of_programs => Some(format!("no worker of pool {pool} runs host programs")),
        0 => Some(format!("no worker serves pool {pool}")),
        _ if depth.messages > 0 => Some(format!("{} messages wait in pool {pool}", depth.messages)),
        _ => None,
    }
}

fn job_id(text: &str) -> PyResult<JobId> {
    text.parse().map_err(value)
}

fn stored(py: Python<'_>, digest: &str, dtype: &str, shape: Vec<u64>) -> PyResult<StoredArray> {
    let digest = digest.parse().map_err(value)?;
    StoredArray::new(digest, arrays::dtype(py, dtype)?, shape)
        .map_err(|error: gpufleet::ArrayError| -> PyErr { value(error) })
}
