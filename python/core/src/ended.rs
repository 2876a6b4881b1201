//! The end of a job, in the form that Python's futures take.

use gpufleet::schema::{PrintfOutput, RanOn, SessionUse, Timings};
use gpufleet::{Array, FailedJob, JobError, JobResult, SubmitError, UnreadOutput};
use pyo3::{
    Bound, IntoPyObject, Py, PyAny, PyResult, Python, pyclass, pymethods,
    types::{PyList, PyTuple},
};

use crate::{
    arrays::Bytes,
    errors::{chain, class_of},
};

#[derive(Debug)]
pub enum Ended {
    Succeeded(Box<JobResult>),
    /// Has a result some of whose outputs may be in the blob store.
    Unread(Box<JobResult<UnreadOutput>>),
    Failed(Box<FailedJob>),
    /// The job was not submitted, or it is unknown whether it was.
    Refused(Box<SubmitError>),
    /// The client does not know the outcome.
    Lost(Box<JobError>),
}

/// The worker's measurements, and where the job ran.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Report {
    attempt: u32,
    round_trip: f64,
    measured: Timings,
    device: Option<RanOn>,
    printed: Option<PrintfOutput>,
    /// The exit code of a host program that failed, and the signal that ended it.
    exit: (Option<i32>, Option<i32>),
}

impl From<JobResult> for Ended {
    fn from(result: JobResult) -> Self {
        Self::Succeeded(Box::new(result))
    }
}

impl From<JobResult<UnreadOutput>> for Ended {
    fn from(result: JobResult<UnreadOutput>) -> Self {
        Self::Unread(Box::new(result))
    }
}

impl From<JobError> for Ended {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Failed(failed) => Self::Failed(failed),
            lost => Self::Lost(Box::new(lost)),
        }
    }
}

impl<T: Into<Self>> From<Result<T, JobError>> for Ended {
    fn from(result: Result<T, JobError>) -> Self {
        result.map_or_else(Self::from, T::into)
    }
}

impl Ended {
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Succeeded(result) => succeeded(py, *result, array),
            Self::Unread(result) => succeeded(py, *result, unread),
            Self::Failed(failed) => self::failed(py, *failed),
            Self::Refused(error) => {
                let retry_after = error.retry_after().map(|time| time.as_secs_f64());
                ("refused", class_of(&error), chain(&*error), retry_after).into_pyobject(py)
            }
            Self::Lost(error) => {
                let class = if matches!(*error, JobError::Closed { .. }) { "FleetClosed" } else { "ResultUnavailable" };
                ("lost", class, chain(&*error)).into_pyobject(py)
            }
        }
    }
}

fn succeeded<'py, O>(
    py: Python<'py>,
    result: JobResult<O>,
    output: impl Fn(Python<'py>, &str, O) -> PyResult<Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let JobResult { attempt, timings, ran_on, printf_output, round_trip, outputs, .. } = result;
    let round_trip = round_trip.as_secs_f64();
    let (device, printed) = (ran_on, printf_output);
    let report = Report { attempt, round_trip, measured: timings, device, printed, exit: (None, None) };
    let outputs = outputs.into_iter().map(|(name, array)| output(py, &name, array)).collect::<PyResult<Vec<_>>>()?;
    ("succeeded", Py::new(py, report)?, PyList::new(py, outputs)?).into_pyobject(py)
}

/// Returns the name, dtype, shape and bytes of an output.
fn array<'py>(py: Python<'py>, name: &str, array: Array) -> PyResult<Bound<'py, PyTuple>> {
    let shape = PyTuple::new(py, array.shape())?;
    (name, array.dtype().name(), shape, Bytes::from(array.into_blob_bytes())).into_pyobject(py)
}

/// Returns the name, dtype, shape, and bytes of an output, or its digest in place of the bytes if it is in the blob
/// store.
fn unread<'py>(py: Python<'py>, name: &str, unread: UnreadOutput) -> PyResult<Bound<'py, PyTuple>> {
    match unread {
        UnreadOutput::Array(array) => self::array(py, name, array),
        UnreadOutput::Stored(stored) => {
            let shape = PyTuple::new(py, stored.shape())?;
            (name, stored.dtype().name(), shape, stored.digest().to_string()).into_pyobject(py)
        }
    }
}

fn failed(py: Python<'_>, job: FailedJob) -> PyResult<Bound<'_, PyTuple>> {
    let ended = job.ended().to_owned();
    let FailedJob { attempt, failure, timings, ran_on, printf_output, session, round_trip, outputs, .. } = job;
    let round_trip = round_trip.as_secs_f64();
    let exit = session.map_or((None, None), |used| {
        let SessionUse { exit_code, signal, .. } = *used;
        (exit_code, signal)
    });
    let (device, printed) = (ran_on, printf_output);
    let report = Py::new(py, Report { attempt, round_trip, measured: timings, device, printed, exit })?;
    let failure = failure.map(|failure| {
        let source = failure.source.map(|source| (source.first_line, source.text));
        (failure.verdict.to_string(), failure.code.to_string(), failure.message, failure.detail, failure.line, source)
    });
    let outputs = outputs.into_iter().map(|(name, array)| unread(py, &name, array)).collect::<PyResult<Vec<_>>>()?;
    ("failed", report, ended, failure, PyList::new(py, outputs)?).into_pyobject(py)
}

#[pymethods]
impl Report {
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    /// From the submission to the arrival of the reply, in seconds.
    #[getter]
    fn round_trip(&self) -> f64 {
        self.round_trip
    }

    /// Returns the times in microseconds, by their names in the wire format.
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Timings {
            queue_us,
            wait_us,
            fetch_us,
            compile_us,
            load_us,
            copy_in_us,
            launches_us,
            copy_out_us,
            total_us,
            device_bytes_peak,
            module_cached,
        } = &self.measured;
        let times = [queue_us, wait_us, fetch_us, compile_us, load_us, copy_in_us, copy_out_us, total_us];
        let launches = PyTuple::new(py, launches_us)?;
        Ok((times, launches, device_bytes_peak, module_cached).into_pyobject(py)?.into_any())
    }

    /// Returns the worker, the index and the name of the device, and whether it is the emulated one.
    fn ran_on(&self) -> Option<(&str, u32, &str, bool)> {
        self.device.as_ref().map(|on| (on.worker.as_str(), on.device, on.device_name.as_str(), on.emulated))
    }

    /// Whether the device is the emulated one. Unlike `ran_on`, this makes no Python texts.
    #[getter]
    fn is_emulated(&self) -> bool {
        self.device.as_ref().is_some_and(|on| on.emulated)
    }

    /// Returns the text that the kernels printed, or the end of what a host program printed.
    fn printed(&self) -> Option<&str> {
        self.printed.as_ref().map(|printed| printed.text.as_str())
    }

    /// The number of bytes that a host program printed before the text of `printed`.
    #[getter]
    fn printed_before(&self) -> u64 {
        self.printed.as_ref().filter(|printed| printed.is_tail).map_or(0, |printed| printed.dropped_bytes)
    }

    /// The exit code of a host program that failed, and the signal that ended it.
    #[getter]
    fn exit(&self) -> (Option<i32>, Option<i32>) {
        self.exit
    }
}
