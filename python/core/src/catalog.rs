//! The kernel catalog and the failure codes, from which Python makes signatures and exceptions.

use gpufleet::schema::{FailureCode, Number};
use gpufleet_kernels::{BufferSpec, Kernel, ScalarSpec, catalog};
use pyo3::{Bound, IntoPyObject, PyAny, PyResult, Python, pyfunction, types::PyList};

/// Returns all catalog kernels, each as name, summary, formula, scalars and buffers.
#[pyfunction]
pub fn kernels(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let kernels = catalog().iter().map(|kernel| self::kernel(py, kernel)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, kernels)
}

/// Returns the names of all failure codes.
#[pyfunction]
pub fn failure_codes() -> Vec<&'static str> {
    FailureCode::ALL.iter().map(|code| code.name()).collect()
}

fn kernel<'py>(py: Python<'py>, kernel: &Kernel) -> PyResult<Bound<'py, PyAny>> {
    let scalars = kernel.scalars.iter().map(|spec| scalar(py, spec)).collect::<PyResult<Vec<_>>>()?;
    let buffers: Vec<_> = kernel.buffers.iter().map(buffer).collect();
    Ok((&kernel.name, &kernel.summary, &kernel.formula, scalars, buffers).into_pyobject(py)?.into_any())
}

/// Returns the name, dtype, default and description of a scalar.
fn scalar<'py>(py: Python<'py>, spec: &ScalarSpec) -> PyResult<Bound<'py, PyAny>> {
    let default = spec.default.map(|default| number(py, default)).transpose()?;
    Ok((&spec.name, spec.dtype.name(), default, spec.description.as_deref()).into_pyobject(py)?.into_any())
}

/// Returns the name, role, dtype, extents as expressions, and description of a buffer.
fn buffer(spec: &BufferSpec) -> (String, &'static str, &'static str, Vec<String>, Option<String>) {
    let shape = spec.shape.iter().map(ToString::to_string).collect();
    (spec.name.clone(), spec.role.name(), spec.dtype.name(), shape, spec.description.clone())
}

fn number(py: Python<'_>, number: Number) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        Number::Signed(value) => value.into_pyobject(py)?.into_any(),
        Number::Unsigned(value) => value.into_pyobject(py)?.into_any(),
        Number::Float(value) | Number::Decimal(value, _) => value.into_pyobject(py)?.into_any(),
        Number::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
    })
}
