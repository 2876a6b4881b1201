//! Reads the tasks that Python describes with the classes in `gpufleet._task`.

use std::{path::PathBuf, time::Duration};

use gpufleet::{
    Job, StoredArray,
    schema::{Number, text::recordable},
};
use pyo3::{
    Bound, Py, PyAny, PyResult, Python, intern,
    sync::PyOnceLock,
    types::{
        PyAnyMethods as _, PyBool, PyBoolMethods as _, PyBytes, PyBytesMethods as _, PyDict, PyDictMethods as _,
        PyFloat, PyFloatMethods as _, PyInt, PyString, PyType,
    },
};

use crate::{
    arguments::Arguments,
    arrays::{self, Elements},
    errors::{invalid_job, raise, value},
};

/// The Python classes of the parts of a task, by which the parts are distinguished.
struct Classes {
    input: Py<PyType>,
    zeros: Py<PyType>,
    stored: Py<PyType>,
    pointer: Py<PyType>,
    progress_counter: Py<PyType>,
    catalog: Py<PyType>,
    source: Py<PyType>,
    session: Py<PyType>,
    host: Py<PyType>,
}

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || {
            let module = py.import("gpufleet._task")?;
            let class = |name| PyResult::Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind());
            Ok(Self {
                input: class("Input")?,
                zeros: class("Zeros")?,
                stored: class("Stored")?,
                pointer: class("Pointer")?,
                progress_counter: class("ProgressCounter")?,
                catalog: class("Catalog")?,
                source: class("Source")?,
                session: class("SessionProgram")?,
                host: class("HostProgram")?,
            })
        })
    }
}

/// Makes a job of a task. `pool` is the pool if the task names none.
pub fn job(task: &Bound<'_, PyAny>, pool: &str) -> PyResult<Job> {
    let py = task.py();
    let classes = Classes::get(py)?;
    let mut job = program(&task.getattr(intern!(py, "program"))?, classes)?;
    for (name, buffer) in dict(task, intern!(py, "buffers"))? {
        job = self::buffer(job, text(&name)?, &buffer, classes)?;
    }
    for launch in task.getattr(intern!(py, "launches"))?.try_iter()? {
        job = self::launch(job, &launch?, classes)?;
    }
    for name in task.getattr(intern!(py, "outputs"))?.try_iter()? {
        job = job.output(text(&name?)?);
    }
    for name in task.getattr(intern!(py, "shared"))?.try_iter()? {
        job = job.share(text(&name?)?);
    }
    with_options(job, &task.getattr(intern!(py, "options"))?, pool)
}

/// Returns the files that go with a host program. Other programs have none.
pub fn upload(task: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let py = task.py();
    let program = task.getattr(intern!(py, "program"))?;
    match program.get_type().is(&Classes::get(py)?.host) {
        true => program.getattr(intern!(py, "upload"))?.extract(),
        false => Ok(Vec::new()),
    }
}

/// Makes a job of a task with zeros in place of the inputs, to find the shapes of a catalog kernel's buffers.
pub fn without_inputs(task: &Bound<'_, PyAny>) -> PyResult<Job> {
    let py = task.py();
    let classes = Classes::get(py)?;
    let mut job = program(&task.getattr(intern!(py, "program"))?, classes)?;
    for (name, buffer) in dict(task, intern!(py, "buffers"))? {
        let dtype = arrays::dtype(py, text(&buffer.getattr(intern!(py, "dtype"))?)?)?;
        let is_input = buffer.get_type().is(&classes.input);
        let sized = if is_input { buffer.getattr(intern!(py, "array"))? } else { buffer };
        job = job.zeros(text(&name)?, dtype, shape_of(&sized)?);
    }
    Ok(job)
}

fn program(program: &Bound<'_, PyAny>, classes: &Classes) -> PyResult<Job> {
    let py = program.py();
    if let Ok(arguments) = program.cast::<Arguments>() {
        return arguments.get().job(py);
    }
    let class = program.get_type();
    if class.is(&classes.catalog) {
        let mut job = Job::catalog(text(&program.getattr(intern!(py, "name"))?)?);
        for (name, value) in dict(program, intern!(py, "scalars"))? {
            let number = plain_number(&value)?.ok_or_else(|| self::value("a scalar of a kernel is not a number"))?;
            job = job.scalar(text(&name)?, number);
        }
        return Ok(job);
    }
    if class.is(&classes.source) {
        let job = Job::source(text(&program.getattr(intern!(py, "code"))?)?);
        let options = program.getattr(intern!(py, "options"))?.extract::<Vec<String>>()?;
        return Ok(options.into_iter().fold(job, Job::compile_option));
    }
    if class.is(&classes.session) {
        let label = recordable(text(&program.getattr(intern!(py, "label"))?)?);
        let job = Job::session(label, program.getattr(intern!(py, "memory_bytes"))?.extract()?);
        let idle_limit = program.getattr(intern!(py, "idle_limit"))?.extract::<Option<f64>>()?;
        let idle_limit = idle_limit.map(Duration::try_from_secs_f64).transpose().map_err(value)?;
        return Ok(idle_limit.into_iter().fold(job, Job::idle_limit));
    }
    if class.is(&classes.host) {
        return host_program(program);
    }
    Ok(Job::ptx(text(&program.getattr(intern!(py, "text"))?)?))
}

fn host_program(program: &Bound<'_, PyAny>) -> PyResult<Job> {
    let py = program.py();
    let command: Vec<String> = program.getattr(intern!(py, "command"))?.extract()?;
    let environment: Option<String> = program.getattr(intern!(py, "environment"))?.extract()?;
    let image: Option<String> = program.getattr(intern!(py, "image"))?.extract()?;
    let mut job = match image {
        Some(image) => Job::host_in_image(command, image),
        None => Job::host(command, environment.unwrap_or_default()),
    };
    for (name, value) in dict(program, intern!(py, "variables"))? {
        job = job.variable(text(&name)?, text(&value)?);
    }
    for glob in program.getattr(intern!(py, "download"))?.try_iter()? {
        job = job.download(text(&glob?)?);
    }
    Ok(job.network(program.getattr(intern!(py, "network"))?.extract()?))
}

fn buffer(job: Job, name: &str, buffer: &Bound<'_, PyAny>, classes: &Classes) -> PyResult<Job> {
    let py = buffer.py();
    let class = buffer.get_type();
    let dtype = arrays::dtype(py, text(&buffer.getattr(intern!(py, "dtype"))?)?)?;
    if class.is(&classes.input) {
        let array = buffer.getattr(intern!(py, "array"))?;
        let shape = shape_of(&array)?;
        // In the buffer protocol, an array without dimensions has no shape.
        let array = if shape.is_empty() { array.call_method1(intern!(py, "reshape"), (1,))? } else { array };
        return Ok(job.input_array(name, arrays::copy(py, dtype, shape, &Elements::of(&array)?)?));
    }
    if class.is(&classes.zeros) {
        return Ok(job.zeros(name, dtype, shape_of(buffer)?));
    }
    if class.is(&classes.stored) {
        let digest = text(&buffer.getattr(intern!(py, "digest"))?)?.parse().map_err(value)?;
        let array = StoredArray::new(digest, dtype, shape_of(buffer)?).map_err(value)?;
        return Ok(job.input_stored(name, &array));
    }
    Err(raise(py, "InvalidJob", &format!("buffer {name:?} is an array that no job has computed yet")))
}

fn launch(job: Job, launch: &Bound<'_, PyAny>, classes: &Classes) -> PyResult<Job> {
    let py = launch.py();
    let extents = |name| launch.getattr(name)?.extract::<Vec<u32>>();
    let mut job = job
        .entry(text(&launch.getattr(intern!(py, "entry"))?)?)
        .blocks(extents(intern!(py, "grid"))?)
        .block(extents(intern!(py, "block"))?)
        .shared_bytes(launch.getattr(intern!(py, "shared_bytes"))?.extract()?);
    for arg in launch.getattr(intern!(py, "args"))?.try_iter()? {
        let arg = arg?;
        let class = arg.get_type();
        job = if class.is(&classes.pointer) {
            let buffer = arg.getattr(intern!(py, "buffer"))?;
            job.arg_buffer_at(text(&buffer)?, arg.getattr(intern!(py, "element"))?.extract()?)
        } else if class.is(&classes.progress_counter) {
            job.arg_progress(arg.getattr(intern!(py, "total"))?.extract()?)
        } else {
            let data = arg.getattr(intern!(py, "data"))?;
            job.arg_bytes(data.cast::<PyBytes>()?.as_bytes(), arg.getattr(intern!(py, "align"))?.extract()?)
        };
    }
    Ok(job)
}

fn with_options(mut job: Job, options: &Bound<'_, PyAny>, pool: &str) -> PyResult<Job> {
    let py = options.py();
    let option = |name| {
        let value = options.getattr(name)?;
        PyResult::Ok((!value.is_none()).then_some(value))
    };
    if let Some(id) = option(intern!(py, "id"))? {
        job = job.with_id(text(&id)?.parse().map_err(|error| invalid_job(py, &error))?);
    }
    job = match option(intern!(py, "pool"))? {
        Some(own) => job.pool(text(&own)?.parse().map_err(|error| invalid_job(py, &error))?),
        None => job.pool(pool.parse().map_err(|error| invalid_job(py, &error))?),
    };
    if let Some(priority) = option(intern!(py, "priority"))? {
        job = job.priority(text(&priority)?.parse().map_err(|error| invalid_job(py, &error))?);
    }
    if let Some(name) = option(intern!(py, "name"))? {
        job = job.name(text(&name)?);
    }
    for (key, value) in dict(options, intern!(py, "labels"))? {
        job = job.label(text(&key)?, text(&value)?);
    }
    let seconds = |name| match option(name)? {
        Some(time) => Duration::try_from_secs_f64(time.extract()?).map(Some).map_err(value),
        None => Ok(None),
    };
    job = seconds(intern!(py, "time_limit"))?.into_iter().fold(job, Job::time_limit);
    job = seconds(intern!(py, "queue_limit"))?.into_iter().fold(job, Job::queue_limit);
    job = seconds(intern!(py, "keep"))?.into_iter().fold(job, Job::keep);
    if let Some(attempts) = option(intern!(py, "attempts"))? {
        job = job.attempts_max(attempts.extract()?);
    }
    with_requirements(job, options)
}

fn with_requirements(mut job: Job, options: &Bound<'_, PyAny>) -> PyResult<Job> {
    let py = options.py();
    let requires = dict(options, intern!(py, "requires"))?;
    if requires.is_empty() {
        return Ok(job);
    }
    let (device, compute_capability): (Option<String>, Option<(u32, u32)>) =
        options.call_method0(intern!(py, "requirements"))?.extract()?;
    if let Some(device) = device {
        job = job.requires_device(device);
    }
    if let Some((major, minor)) = compute_capability {
        job = job.requires_compute_capability(major, minor);
    }
    Ok(job)
}

/// Returns a number of one of Python's own types; `None` for any other value.
///
/// Checks the type first, because a failed conversion creates an exception, which takes microseconds.
pub fn plain_number(value: &Bound<'_, PyAny>) -> PyResult<Option<Number>> {
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(Some(float.value().into()));
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Some(truth.is_true().into()));
    }
    if !value.is_instance_of::<PyInt>() {
        return Ok(None);
    }
    value.extract::<i64>().map(Number::from).or_else(|_| value.extract::<u64>().map(Number::from)).map(Some)
}

fn shape_of(sized: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    sized.getattr(intern!(sized.py(), "shape"))?.extract()
}

fn dict<'py>(of: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyDict>> {
    Ok(of.getattr(name)?.cast_into::<PyDict>()?)
}

fn text<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    value.extract()
}
