//! Reads the arguments of catalog kernels, if they need no conversion.

use gpufleet::{
    Job,
    schema::{Dtype, Number},
};
use gpufleet_kernels::{Kernel, catalog};
use pyo3::{
    Bound, Py, PyAny, PyResult, Python, intern, pyclass, pymethods,
    sync::PyOnceLock,
    types::{PyAnyMethods as _, PyDict, PyDictMethods as _, PyString, PyTuple, PyTupleMethods as _, PyType},
};

use crate::{
    arrays::{self, Elements},
    errors::value,
    task,
};

/// The parameters of a catalog kernel, in the order of their Python signature.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Parameters {
    kernel: &'static Kernel,
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
struct Parameter {
    name: Py<PyString>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Scalar {
        name: &'static str,
        has_default: bool,
    },
    Array {
        name: &'static str,
        dtype: Dtype,
        numpy: Py<PyAny>,
        dimensions: usize,
    },
    /// An array that Python always converts: no NumPy dtype stands for its elements, or it has no dimensions, and so no shape in Python's
    /// buffer protocol.
    Converted,
}

/// Arguments of a catalog kernel that need no conversion.
#[pyclass(frozen, module = "gpufleet._core")]
#[derive(Debug)]
pub struct Arguments {
    kernel: &'static str,
    scalars: Vec<(&'static str, Number)>,
    arrays: Vec<(&'static str, Dtype, Elements)>,
    /// The total size of the arrays in bytes.
    #[pyo3(get)]
    input_bytes: usize,
}

#[pymethods]
impl Parameters {
    /// Makes the parameters of a kernel with these names. `dtypes` maps our dtype names to NumPy's dtypes.
    #[new]
    fn new(kernel: &str, names: Vec<Py<PyString>>, dtypes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let kernel = catalog().get(kernel).ok_or_else(|| value(format!("the catalog has no kernel {kernel:?}")))?;
        let parameters = names.into_iter().map(|name| parameter(kernel, name, dtypes)).collect::<PyResult<_>>()?;
        Ok(Self { kernel, parameters })
    }

    /// Returns the arguments if they are numbers and arrays exactly as the kernel takes them, which is usual. Otherwise returns `None`, and
    /// Python converts them or reports what is wrong.
    ///
    /// Positional arguments fill the parameters that are not given by name.
    fn read(&self, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<Option<Arguments>> {
        let py = args.py();
        let mut read = Arguments { kernel: &self.kernel.name, scalars: Vec::new(), arrays: Vec::new(), input_bytes: 0 };
        let (mut positional, mut named) = (args.iter(), kwargs.len());
        for Parameter { name, kind } in &self.parameters {
            let keyword = if named == 0 { None } else { kwargs.get_item(name)? };
            named -= usize::from(keyword.is_some());
            match (keyword.or_else(|| positional.next()), kind) {
                (Some(argument), kind) if read.take(py, kind, &argument)? => (),
                (None, Kind::Scalar { has_default: true, .. }) => (),
                _ => return Ok(None),
            }
        }
        let is_complete = named == 0 && positional.next().is_none();
        Ok(is_complete.then_some(read))
    }
}

impl Arguments {
    /// Takes an argument. Returns false if it must be converted.
    fn take(&mut self, py: Python<'_>, kind: &Kind, argument: &Bound<'_, PyAny>) -> PyResult<bool> {
        match kind {
            Kind::Scalar { name, .. } => {
                let number = task::plain_number(argument)?;
                self.scalars.extend(number.map(|number| (*name, number)));
                Ok(number.is_some())
            }
            Kind::Array { name, dtype, numpy, dimensions } => {
                if !argument.get_type().is(array_type(py)?)
                    || !argument.getattr(intern!(py, "dtype"))?.is(numpy)
                    || argument.getattr(intern!(py, "ndim"))?.extract::<usize>()? != *dimensions
                {
                    return Ok(false);
                }
                let Some(elements) = Elements::contiguous(argument)? else { return Ok(false) };
                self.input_bytes += elements.as_ref().len();
                self.arrays.push((name, *dtype, elements));
                Ok(true)
            }
            Kind::Converted => Ok(false),
        }
    }

    pub fn job(&self, py: Python<'_>) -> PyResult<Job> {
        let job = self.scalars.iter().fold(Job::catalog(self.kernel), |job, (name, number)| job.scalar(*name, *number));
        self.arrays.iter().try_fold(job, |job, (name, dtype, elements)| {
            Ok(job.input_array(*name, arrays::copy(py, *dtype, elements.shape(), elements)?))
        })
    }
}

fn parameter(kernel: &'static Kernel, name: Py<PyString>, dtypes: &Bound<'_, PyDict>) -> PyResult<Parameter> {
    let bound = name.bind(dtypes.py());
    let text: &str = bound.extract()?;
    let kind = if let Some(spec) = kernel.scalar(text) {
        Kind::Scalar { name: &spec.name, has_default: spec.default.is_some() }
    } else {
        let spec =
            kernel.buffer(text).ok_or_else(|| value(format!("kernel {} has no parameter {text:?}", kernel.name)))?;
        match dtypes.get_item(spec.dtype.name())? {
            Some(numpy) if !spec.shape.is_empty() => {
                let (dtype, numpy, dimensions) = (spec.dtype, numpy.unbind(), spec.shape.len());
                Kind::Array { name: &spec.name, dtype, numpy, dimensions }
            }
            _ => Kind::Converted,
        }
    };
    Ok(Parameter { name, kind })
}

/// Returns the class of NumPy's arrays. Instances of other classes may return other elements than they hold.
fn array_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "numpy", "ndarray")
}
