//! A job that has passed the checks.

use std::{collections::BTreeMap, path::PathBuf};

use gpufleet::{
    ArrayFile, CheckedJob,
    schema::{Buffer, Program},
};
use pyo3::{Bound, PyAny, PyResult, exceptions::PyRuntimeError, pyclass, pyfunction, pymethods};

use crate::{errors::invalid_job, files, task};

/// A job before it is submitted.
#[pyclass(module = "gpufleet._core")]
#[derive(Debug)]
pub struct Job {
    id: String,
    /// `None` once the job was submitted.
    job: Option<CheckedJob>,
    /// The archive of the files of a host program.
    upload: Option<ArrayFile>,
}

impl Job {
    pub fn take(&mut self) -> PyResult<CheckedJob> {
        if self.upload.is_some() {
            return Err(PyRuntimeError::new_err("a job with files is submitted by its description"));
        }
        self.job.take().ok_or_else(|| PyRuntimeError::new_err("the job was submitted before"))
    }

    /// Takes the job as a description, with its files.
    pub fn describe(&mut self) -> PyResult<gpufleet::Job> {
        let upload = self.upload.take();
        let job = described(self.take()?);
        Ok(upload.into_iter().fold(job, gpufleet::Job::upload_file))
    }
}

#[pymethods]
impl Job {
    /// Makes a job of a task, and checks it as far as that is possible without a device. `pool` is the pool if the task names none. Raises
    /// `InvalidJob`.
    #[new]
    fn new(task: &Bound<'_, PyAny>, pool: &str) -> PyResult<Self> {
        let py = task.py();
        let checked = task::job(task, pool)?.build().map_err(|error| invalid_job(py, &error))?;
        let paths: Vec<PathBuf> = task::upload(task)?;
        let upload = if paths.is_empty() { None } else { Some(files::pack(py, &paths)?) };
        Ok(Self { id: checked.task.job_id.to_string(), job: Some(checked), upload })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
    }
}

/// Returns the description of a job that has passed the checks.
pub fn described(job: CheckedJob) -> gpufleet::Job {
    let CheckedJob { task, pool, priority } = job;
    gpufleet::Job::from_task(task).pool(pool).priority(priority)
}

/// Returns the dtypes and shapes of a catalog kernel's buffers, which follow from its inputs and scalars.
#[pyfunction]
pub fn shapes(task: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, (&'static str, Vec<u64>)>> {
    let py = task.py();
    let task = task::without_inputs(task)?.build().map_err(|error| invalid_job(py, &error))?.task;
    debug_assert!(matches!(task.program, Program::Catalog(_)), "other programs say nothing about shapes");
    let task = gpufleet_kernels::resolve(task).map_err(|error| invalid_job(py, &error))?;
    let shape = |buffer: &Buffer| (buffer.name.clone(), (buffer.dtype.name(), buffer.shape.clone()));
    Ok(task.buffers.iter().map(shape).collect())
}
