//! Signatures of kernels in CUDA C++.

use gpufleet_kernels::declaration::{self, Parameter};
use pyo3::{Bound, IntoPyObject as _, PyAny, PyResult, Python, pyfunction};

/// Reads the parameters of a kernel. Returns `("read", parameters)`, or `("open", problem)` if they are unknown, or
/// `("refused", problem)` if no host can launch the kernel.
///
/// A parameter is its name, its type, the words of its base type, whether it is a pointer, and whether the kernel only
/// reads the array.
#[pyfunction]
pub fn signature<'py>(py: Python<'py>, code: &str, entry: &str, options: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
    match py.detach(|| declaration::parameters(code, entry, &options)) {
        Ok(parameters) => {
            let parameters: Vec<_> = parameters.into_iter().map(parts).collect();
            Ok(("read", parameters).into_pyobject(py)?.into_any())
        }
        Err(problem) => {
            let kind = if problem.is_refusal() { "refused" } else { "open" };
            Ok((kind, problem.to_string()).into_pyobject(py)?.into_any())
        }
    }
}

/// Returns the names of the `extern "C"` kernels, in order.
#[pyfunction]
pub fn c_kernels(py: Python<'_>, code: &str, options: Vec<String>) -> Vec<String> {
    let kernels = py.detach(|| declaration::kernels(code, &options));
    kernels.declared.into_iter().filter(|kernel| kernel.is_c).map(|kernel| kernel.name).collect()
}

fn parts(parameter: Parameter) -> (Option<String>, String, Vec<String>, bool, bool) {
    let spelled = parameter.spelled();
    (parameter.name, spelled, parameter.base, parameter.is_pointer, parameter.is_input)
}
