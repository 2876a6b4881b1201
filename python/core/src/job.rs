//! A job that has passed the checks.

use std::collections::BTreeMap;

use gpufleet::{
    CheckedJob,
    schema::{Buffer, Program},
};
use pyo3::{Bound, PyAny, PyResult, exceptions::PyRuntimeError, pyclass, pyfunction, pymethods};

use crate::{errors::invalid_job, task};

/// A job before it is submitted.
#[pyclass(module = "gpufleet._core")]
#[derive(Debug)]
pub struct Job {
    id: String,
    /// `None` once the job was submitted.
    job: Option<CheckedJob>,
}

impl Job {
    pub fn take(&mut self) -> PyResult<CheckedJob> {
        self.job.take().ok_or_else(|| PyRuntimeError::new_err("the job was submitted before"))
    }
}

#[pymethods]
impl Job {
    /// Makes a job of a task, and checks it as far as that is possible without a device. `pool` is the pool if the task names none. Raises
    /// `InvalidJob`.
    #[new]
    fn new(task: &Bound<'_, PyAny>, pool: &str) -> PyResult<Self> {
        let checked = task::job(task, pool)?.build().map_err(|error| invalid_job(task.py(), &error))?;
        Ok(Self { id: checked.task.job_id.to_string(), job: Some(checked) })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
    }
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
