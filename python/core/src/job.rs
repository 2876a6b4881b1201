//! The description of a job, which Python builds step by step.

use std::{collections::BTreeMap, time::Duration};

use gpufleet::{
    CheckedJob, StoredArray,
    schema::{Buffer, Number},
};
use pyo3::{
    Bound, PyAny, PyErr, PyResult, Python,
    exceptions::PyRuntimeError,
    pyclass, pymethods,
    types::{PyAnyMethods as _, PyBool, PyBoolMethods as _, PyDict, PyFloat, PyFloatMethods as _},
};

use crate::{
    arrays,
    errors::{invalid_job, value},
};

/// A job before it is submitted.
#[pyclass(module = "gpufleet._core")]
#[derive(Debug)]
pub struct Job {
    /// None once it was submitted.
    job: Option<gpufleet::Job>,
}

impl Job {
    pub fn take(&mut self) -> PyResult<gpufleet::Job> {
        self.job.take().ok_or_else(submitted_before)
    }

    fn new(job: gpufleet::Job) -> Self {
        Self { job: Some(job) }
    }

    fn change(&mut self, change: impl FnOnce(gpufleet::Job) -> gpufleet::Job) -> PyResult<()> {
        self.job = Some(change(self.take()?));
        Ok(())
    }
}

#[pymethods]
impl Job {
    /// A job that runs a catalog kernel, with its scalars.
    #[staticmethod]
    fn catalog(name: &str, scalars: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut job = gpufleet::Job::catalog(name);
        for (name, value) in scalars {
            job = job.scalar(name.extract::<String>()?, number(&value)?);
        }
        Ok(Self::new(job))
    }

    /// A job that runs CUDA C++.
    #[staticmethod]
    fn source(code: &str, options: Vec<String>) -> Self {
        Self::new(options.into_iter().fold(gpufleet::Job::source(code), gpufleet::Job::compile_option))
    }

    /// A job that runs PTX.
    #[staticmethod]
    fn ptx(text: &str) -> Self {
        Self::new(gpufleet::Job::ptx(text))
    }

    #[getter]
    fn id(&self) -> PyResult<String> {
        let job = self.job.as_ref().ok_or_else(submitted_before)?;
        Ok(job.id().to_string())
    }

    /// Another id, by which a repeated program describes the same job.
    fn set_id(&mut self, py: Python<'_>, id: &str) -> PyResult<()> {
        let id = id.parse().map_err(|error| invalid_job(py, &error))?;
        self.change(|job| job.with_id(id))
    }

    /// An input buffer with the elements of a C-contiguous array.
    fn input(&mut self, name: &str, dtype: &str, shape: Vec<u64>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = arrays::read(dtype, shape, array)?;
        self.change(|job| job.input_array(name, array))
    }

    fn zeros(&mut self, py: Python<'_>, name: &str, dtype: &str, shape: Vec<u64>) -> PyResult<()> {
        let dtype = arrays::dtype(py, dtype)?;
        self.change(|job| job.zeros(name, dtype, shape))
    }

    /// An input buffer whose elements are in the blob store.
    fn stored(&mut self, py: Python<'_>, name: &str, digest: &str, dtype: &str, shape: Vec<u64>) -> PyResult<()> {
        let digest = digest.parse().map_err(value)?;
        let array = StoredArray::new(digest, arrays::dtype(py, dtype)?, shape).map_err(value)?;
        self.change(|job| job.input_stored(name, &array))
    }

    /// Begins a launch. The following arguments belong to it.
    fn launch(&mut self, entry: &str, grid: Vec<u32>, block: Vec<u32>, shared_bytes: u32) -> PyResult<()> {
        self.change(|job| job.entry(entry).blocks(grid).block(block).shared_bytes(shared_bytes))
    }

    /// The next kernel parameter: the address of an element of a buffer.
    fn arg_buffer(&mut self, name: &str, element: u64) -> PyResult<()> {
        self.change(|job| job.arg_buffer_at(name, element))
    }

    /// The next kernel parameter: bytes in the device's layout.
    fn arg_bytes(&mut self, data: &[u8], align: u32) -> PyResult<()> {
        self.change(|job| job.arg_bytes(data, align))
    }

    fn output(&mut self, name: &str) -> PyResult<()> {
        self.change(|job| job.output(name))
    }

    /// The kernels only read this input.
    fn share(&mut self, name: &str) -> PyResult<()> {
        self.change(|job| job.share(name))
    }

    fn name(&mut self, name: &str) -> PyResult<()> {
        self.change(|job| job.name(name))
    }

    fn labels(&mut self, labels: BTreeMap<String, String>) -> PyResult<()> {
        self.change(|job| labels.into_iter().fold(job, |job, (key, value)| job.label(key, value)))
    }

    fn queue(&mut self, py: Python<'_>, pool: &str, priority: &str) -> PyResult<()> {
        let pool = pool.parse().map_err(|error| invalid_job(py, &error))?;
        let priority = priority.parse().map_err(|error| invalid_job(py, &error))?;
        self.change(|job| job.pool(pool).priority(priority))
    }

    /// The time limits and the time for which outputs are kept, in seconds, and the most executors that the job may lose.
    #[pyo3(signature = (time=None, queue=None, keep=None, attempts=None))]
    fn limits(
        &mut self,
        time: Option<f64>,
        queue: Option<f64>,
        keep: Option<f64>,
        attempts: Option<u32>,
    ) -> PyResult<()> {
        let (time, queue, keep) = (seconds(time)?, seconds(queue)?, seconds(keep)?);
        self.change(|job| {
            let job = time.into_iter().fold(job, gpufleet::Job::time_limit);
            let job = queue.into_iter().fold(job, gpufleet::Job::queue_limit);
            let job = keep.into_iter().fold(job, gpufleet::Job::keep);
            attempts.into_iter().fold(job, gpufleet::Job::attempts_max)
        })
    }

    /// What the device must have.
    #[pyo3(signature = (device=None, compute_capability=None))]
    fn requires(&mut self, device: Option<&str>, compute_capability: Option<(u32, u32)>) -> PyResult<()> {
        self.change(|job| {
            let job = device.into_iter().fold(job, gpufleet::Job::requires_device);
            compute_capability
                .into_iter()
                .fold(job, |job, (major, minor)| job.requires_compute_capability(major, minor))
        })
    }

    /// The dtypes and shapes of the buffers of a catalog kernel, once its inputs and scalars are known.
    fn shapes(&self, py: Python<'_>) -> PyResult<BTreeMap<String, (&'static str, Vec<u64>)>> {
        let job = self.job.clone().ok_or_else(submitted_before)?;
        let task = job.build().map_err(|error| invalid_job(py, &error))?.task;
        let task = gpufleet_kernels::resolve(task).map_err(|error| invalid_job(py, &error))?;
        let shape = |buffer: &Buffer| (buffer.name.clone(), (buffer.dtype.name(), buffer.shape.clone()));
        Ok(task.buffers.iter().map(shape).collect())
    }

    /// Raises `InvalidJob` if the job would be refused because of its description.
    fn check(&mut self, py: Python<'_>) -> PyResult<()> {
        let CheckedJob { task, pool, priority } = self.take()?.build().map_err(|error| invalid_job(py, &error))?;
        self.job = Some(gpufleet::Job::from_task(task).pool(pool).priority(priority));
        Ok(())
    }
}

/// Looks at the type first, because an attempt that fails makes an exception, which takes microseconds.
fn number(value: &Bound<'_, PyAny>) -> PyResult<Number> {
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(float.value().into());
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(truth.is_true().into());
    }
    value.extract::<i64>().map(Number::from).or_else(|_| value.extract::<u64>().map(Number::from))
}

fn submitted_before() -> PyErr {
    PyRuntimeError::new_err("the job was submitted before")
}

fn seconds(time: Option<f64>) -> PyResult<Option<Duration>> {
    time.map(Duration::try_from_secs_f64).transpose().map_err(value)
}
