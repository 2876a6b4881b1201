//! The description of a job.

mod buffers;
mod host;
mod launches;

use std::{borrow::Cow, time::Duration};

use gpufleet_schema::{
    Arg, Buffer, Data, Inline, Invalid, JobId, Launch, Number, PoolName, Priority, Program, SigningKey, Task,
    TraceContext,
};

#[cfg(feature = "ledger")]
use crate::chain::{self, InputError};
use crate::{ArrayFile, InvalidJob, claims};

/// The description of a job: a catalog kernel, or a program of your own with its launches.
///
/// [`Job::build`] and [`Fleet::submit`](crate::Fleet::submit) check the description; their errors name the invalid
/// field.
///
/// ```
/// use gpufleet::Job;
///
/// let scale = Job::source(r#"extern "C" __global__ void scale(float *x, float a, unsigned n) {
///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///         if (i < n) x[i] *= a;
///     }"#)
///     .input("x", &[1.0_f32, 2.0, 3.0])
///     .entry("scale")
///     .cover([3])
///     .arg_buffer("x")
///     .arg(2.0_f32)
///     .arg(3_u32)
///     .output("x");
/// assert!(scale.build().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    task: Task<'static>,
    pool: PoolName,
    priority: Priority,
    launches: Vec<Draft>,
    /// The contents of buffers that are in files, each with the index of its buffer.
    files: Vec<(usize, ArrayFile)>,
    signer: Option<SigningKey>,
    problem: Option<Invalid>,
}

/// A launch that may still lack its grid.
#[derive(Debug, Clone)]
struct Draft {
    launch: Launch,
    has_grid: bool,
}

/// A job that passed the checks, with the pool and priority that decide its queue.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedJob {
    pub task: Task<'static>,
    pub pool: PoolName,
    pub priority: Priority,
}

impl CheckedJob {
    /// Returns whether the buffer's array is stored only when the job is submitted. Its digest is not known before.
    pub fn is_pending(buffer: &Buffer<'_>) -> bool {
        matches!(buffer.data, Data::Blob(digest) if digest == *claims::PENDING)
    }
}

impl Job {
    /// Describes a job that runs a catalog kernel. Every worker has the catalog.
    pub fn catalog(kernel: impl Into<String>) -> Self {
        Self::of(Program::Catalog(kernel.into()))
    }

    /// Describes a job that runs CUDA C++, which the worker compiles with NVRTC. Declare kernels `extern "C"`, because C++ mangles other
    /// names, or launch them by a C++ name expression ([`Job::entry`]).
    pub fn source(code: impl Into<String>) -> Self {
        Self::of(Program::Source { code: Cow::Owned(code.into()), options: Vec::new() })
    }

    /// Describes a job that runs PTX.
    pub fn ptx(text: impl Into<String>) -> Self {
        Self::of(Program::Ptx(Cow::Owned(text.into())))
    }

    /// Describes a job that runs a cubin, a binary for one device architecture.
    pub fn cubin(image: Vec<u8>) -> Self {
        Self::of(Program::Cubin(Inline::from(image)))
    }

    /// Describes a session: a lease of device memory for a program on this machine ([`Fleet::open_session`](crate::Fleet::open_session)).
    /// The label shows people which program it is, such as `python train.py`. It is recorded, so it should have no secrets.
    pub fn session(label: impl Into<String>, memory_bytes: u64) -> Self {
        let mut job = Self::of(Program::Session { label: label.into(), idle_limit_ms: None });
        job.task.limits.memory_bytes_max = Some(memory_bytes);
        // Nothing runs again: a program that has lost its device memory can't go on.
        job.task.limits.attempts_max = Some(1);
        job
    }

    fn of(program: Program<'static>) -> Self {
        Self::from_task(Task::new(program))
    }

    /// Describes the job of a task, such as that of a task file.
    pub fn from_task(mut task: Task<'static>) -> Self {
        let launches = std::mem::take(&mut task.launches);
        let launches = launches.into_iter().map(|launch| Draft { launch, has_grid: true }).collect();
        Self {
            task,
            pool: PoolName::default(),
            priority: Priority::default(),
            launches,
            files: Vec::new(),
            signer: None,
            problem: None,
        }
    }

    /// Returns the job's id. It is part of the description, so submitting the same description twice makes one job.
    pub fn id(&self) -> JobId {
        self.task.job_id
    }

    /// Sets the parent of the job's spans, for a program that is traced. Workers and the recorder record their spans below it.
    #[must_use]
    pub fn traceparent(mut self, span: TraceContext) -> Self {
        self.task.traceparent = Some(span);
        self
    }

    /// Replaces the job's id, for example by one that is derived from the names of a pipeline and its step. A program that starts again
    /// then describes the same job.
    #[must_use]
    pub fn with_id(mut self, id: JobId) -> Self {
        self.task.job_id = id;
        self
    }

    /// Returns the program that the job runs.
    pub fn program(&self) -> &Program<'static> {
        &self.task.program
    }

    /// Returns the names of the buffers that the job returns, as given to [`Job::output`].
    pub fn outputs(&self) -> &[String] {
        &self.task.outputs
    }

    /// Sets the pool whose workers run the job. The default is the pool `default`.
    #[must_use]
    pub fn pool(mut self, pool: PoolName) -> Self {
        self.pool = pool;
        self
    }

    /// Sets the priority within the pool. The default is normal.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the name that the ledger shows to people.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.task.name = Some(name.into());
        self
    }

    /// Adds a label, by which jobs can be found and cancelled. A second value for a key replaces the first.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.task.labels.insert(key.into(), value.into());
        self
    }

    /// Adds an option for NVRTC, such as `--use_fast_math`. Only CUDA C++ takes options.
    #[must_use]
    pub fn compile_option(mut self, option: impl Into<String>) -> Self {
        match &mut self.task.program {
            Program::Source { options, .. } => options.push(option.into()),
            other => {
                let problem = format!("compile options are for CUDA C, this program is {}", other.kind());
                self.reject("program", problem);
            }
        }
        self
    }

    /// Signs the program, as pools with `allow=signed` require. [`Job::build`] signs the code and its compile options.
    #[must_use]
    pub fn signed_by(mut self, key: &SigningKey) -> Self {
        self.signer = Some(key.clone());
        self
    }

    /// Sets a scalar argument of a catalog kernel by name.
    #[must_use]
    pub fn scalar(mut self, name: impl Into<String>, value: impl Into<Number>) -> Self {
        self.task.arguments.insert(name.into(), value.into());
        self
    }

    /// Limits the time of one attempt on the device, rounded up to milliseconds. The worker stops a job that runs longer, and the job
    /// fails.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.task.limits.time_limit_ms = Some(milliseconds(limit));
        self
    }

    /// Limits the time that the job may wait in the queue before it expires, rounded up to milliseconds.
    #[must_use]
    pub fn queue_limit(mut self, limit: Duration) -> Self {
        self.task.limits.queue_limit_ms = Some(milliseconds(limit));
        self
    }

    /// Ends a session after this time without a driver call or a running kernel, rounded up to milliseconds. Without it, the limit of the
    /// pool applies. Only sessions take it.
    #[must_use]
    pub fn idle_limit(mut self, limit: Duration) -> Self {
        match &mut self.task.program {
            Program::Session { idle_limit_ms, .. } => *idle_limit_ms = Some(milliseconds(limit)),
            other => {
                let problem = format!("an idle limit is for sessions, this program is {}", other.kind());
                self.reject("program", problem);
            }
        }
        self
    }

    /// Keeps the outputs for this long after the job has succeeded, rounded up to milliseconds. Small outputs are kept in the ledger,
    /// others in the workers' blob store. `gpufleet fetch` reads them. A time of zero keeps nothing, which is the default.
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.task.keep_ms = Some(milliseconds(time)).filter(|ms| *ms > 0);
        self
    }

    /// Limits how many executors the job may lose. The loss that reaches this number dead-letters the job.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.task.limits.attempts_max = Some(attempts);
        self
    }

    /// Requires a device whose name contains this text, such as `H200`.
    #[must_use]
    pub fn requires_device(mut self, name: impl Into<String>) -> Self {
        self.task.requires.device = Some(name.into());
        self
    }

    /// Requires a device of at least this compute capability.
    #[must_use]
    pub fn requires_compute_capability(mut self, major: u32, minor: u32) -> Self {
        self.task.requires.compute_capability_min = Some([major, minor]);
        self
    }

    /// Requires a device with at least this much memory.
    #[must_use]
    pub fn requires_memory(mut self, bytes: u64) -> Self {
        self.task.requires.memory_bytes_min = Some(bytes);
        self
    }

    /// Checks everything that can be checked without a device. The arguments of a catalog kernel are compared with its
    /// signature, so that mistakes show before anything is sent. The task does not contain the catalog kernel's
    /// launches, because the worker derives them again.
    pub fn build(mut self) -> Result<CheckedJob, InvalidJob> {
        if let Some(problem) = self.problem.take() {
            return Err(problem.into());
        }
        for (index, draft) in self.launches.into_iter().enumerate() {
            if !draft.has_grid {
                let problem = "missing; say how many threads to cover, or how many blocks".to_owned();
                return Err(Invalid { field: format!("launches[{index}].grid"), problem }.into());
            }
            self.task.launches.push(draft.launch);
        }
        if let Some(key) = &self.signer {
            self.task.signature = key.sign(&self.task.program);
        }
        self.task.check()?;
        if let Program::Catalog(kernel) = &self.task.program {
            gpufleet_kernels::resolve(shallow(kernel, &self.task))?;
        }
        round_numbers(&mut self.task);
        Ok(CheckedJob { task: self.task, pool: self.pool, priority: self.priority })
    }

    /// Replaces inputs that are outputs of other jobs by the blobs or bytes that the ledger names.
    #[cfg(feature = "ledger")]
    pub async fn chained(mut self, ledger: &gpufleet_ledger::Ledger) -> Result<Self, InputError> {
        chain::resolve(&mut self.task.buffers, &self.pool, ledger).await?;
        Ok(self)
    }

    /// Returns whether a buffer is the output of another job.
    #[cfg(feature = "ledger")]
    pub fn is_chained(&self) -> bool {
        self.task.buffers.iter().any(chain::is_chained)
    }

    /// Keeps only the first problem, because later ones often follow from it.
    fn reject(&mut self, field: &str, problem: String) {
        self.problem.get_or_insert(Invalid { field: field.to_owned(), problem });
    }
}

/// Rounds numbers that have more digits than a float to their dtypes, because MessagePack has no decimals.
fn round_numbers(task: &mut Task<'_>) {
    if let Program::Catalog(name) = &task.program
        && let Some(kernel) = gpufleet_kernels::catalog().get(name)
    {
        for spec in &kernel.scalars {
            if let Some(number) = task.arguments.get_mut(&spec.name) {
                *number = number.rounded(spec.dtype);
            }
        }
    }
    for arg in task.launches.iter_mut().flat_map(|launch| &mut launch.args) {
        if let Arg::Scalar(dtype, number) = arg {
            *number = number.rounded(*dtype);
        }
    }
    for buffer in &mut task.buffers {
        if let Data::Fill(number) = &mut buffer.data {
            *number = number.rounded(buffer.dtype);
        }
    }
}

/// Converts a duration to milliseconds. It is rounded up, because zero would mean no time or no limit.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A copy that borrows the contents of all buffers. Inputs can be large, and resolving only needs their shapes.
fn shallow<'a>(kernel: &str, task: &'a Task<'static>) -> Task<'a> {
    let mut copy = Task::new(Program::Catalog(kernel.to_owned()));
    copy.arguments = task.arguments.clone();
    copy.buffers = task.buffers.iter().map(Buffer::borrowed).collect();
    copy.launches = task.launches.clone();
    copy.outputs = task.outputs.clone();
    copy
}

#[cfg(test)]
mod tests;
