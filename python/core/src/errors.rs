//! Raises the exceptions of the Python package.

use std::{error::Error, fmt::Display};

use gpufleet::SubmitError;
use pyo3::{Bound, PyAny, PyErr, PyResult, Python, exceptions::PyValueError, types::PyAnyMethods as _};

/// Returns the exception for an argument that the package's own Python code should not have passed.
pub fn value(problem: impl Display) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

/// Returns the exception for a job that was refused before it was sent.
pub fn invalid_job(py: Python<'_>, problem: &(dyn Error + 'static)) -> PyErr {
    raise(py, "InvalidJob", &chain(problem))
}

/// Returns an exception of the module `gpufleet._errors`, by the name of its class.
pub fn raise(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let made = |py: Python<'_>| -> PyResult<PyErr> {
        let class: Bound<'_, PyAny> = py.import("gpufleet._errors")?.getattr(class)?;
        Ok(PyErr::from_value(class.call1((message,))?))
    };
    made(py).unwrap_or_else(|error| error)
}

/// Returns the name of the exception class for a job that was not submitted.
pub fn class_of(error: &SubmitError) -> &'static str {
    match error {
        SubmitError::Invalid(_) => "InvalidJob",
        SubmitError::TooLarge { .. } => "JobTooLarge",
        SubmitError::NoQueue { .. }
        | SubmitError::NoSlots { .. }
        | SubmitError::NoSessions { .. }
        | SubmitError::NoPrograms { .. } => "NoQueue",
        SubmitError::Refused { .. } => "QueueFull",
        SubmitError::Unknown { .. } => "MaybeSubmitted",
        SubmitError::Blob { .. } | SubmitError::File { .. } => "StoreFailed",
        closed if closed.is_closed() => "FleetClosed",
        _ => "SubmitError",
    }
}

/// Formats an error and its causes on one line. A cause whose text its parent already contains is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
