//! Describing a job.

use std::{borrow::Cow, time::Duration};

use gpufleet_kernels::ResolveError;
use gpufleet_schema::{
    Arg, Block, Buffer, Data, Dtype, Grid, Inline, Invalid, JobId, Launch, Number, PoolName, Priority, Program,
    SigningKey, Task,
};

use crate::{Array, Element, StoredArray};

/// A job being described: a catalog kernel, or a program of your own with its launches.
///
/// Nothing is checked until [`Job::build`] or [`Fleet::submit`](crate::Fleet::submit), which then name the field that is wrong.
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
    signer: Option<SigningKey>,
    problem: Option<Invalid>,
}

/// A launch whose grid may still be missing.
#[derive(Debug, Clone)]
struct Draft {
    launch: Launch,
    has_grid: bool,
}

/// A description that can't become a job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidJob {
    #[error(transparent)]
    Task(#[from] Invalid),
    /// The catalog's own word on a catalog kernel's arguments.
    #[error(transparent)]
    Catalog(#[from] ResolveError),
}

/// A job that passed the checks: what is sent, and to which queue.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedJob {
    pub task: Task<'static>,
    pub pool: PoolName,
    pub priority: Priority,
}

impl Job {
    /// A kernel that every worker has, by its name.
    pub fn catalog(kernel: impl Into<String>) -> Self {
        Self::of(Program::Catalog(kernel.into()))
    }

    /// CUDA C. The worker compiles it with NVRTC; entries are found by name, so declare them `extern "C"`.
    pub fn source(code: impl Into<String>) -> Self {
        Self::of(Program::Source { code: Cow::Owned(code.into()), options: Vec::new() })
    }

    /// PTX text.
    pub fn ptx(text: impl Into<String>) -> Self {
        Self::of(Program::Ptx(Cow::Owned(text.into())))
    }

    /// A binary for one device architecture.
    pub fn cubin(image: Vec<u8>) -> Self {
        Self::of(Program::Cubin(Inline::from(image)))
    }

    fn of(program: Program<'static>) -> Self {
        Self::from_task(Task::new(program))
    }

    /// A job from a task that was made elsewhere, such as a task file.
    pub fn from_task(mut task: Task<'static>) -> Self {
        let launches = std::mem::take(&mut task.launches);
        let launches = launches.into_iter().map(|launch| Draft { launch, has_grid: true }).collect();
        Self { task, pool: PoolName::default(), priority: Priority::default(), launches, signer: None, problem: None }
    }

    /// The job's id. It is chosen here, so that submitting the same description twice makes one job.
    pub fn id(&self) -> JobId {
        self.task.job_id
    }

    pub fn program(&self) -> &Program<'static> {
        &self.task.program
    }

    /// The buffers that were named to come back.
    pub fn outputs(&self) -> &[String] {
        &self.task.outputs
    }

    #[must_use]
    pub fn pool(mut self, pool: PoolName) -> Self {
        self.pool = pool;
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// A name for people, shown in the history.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.task.name = Some(name.into());
        self
    }

    /// A label to find the job by.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.task.labels.insert(key.into(), value.into());
        self
    }

    /// An option for NVRTC. Only CUDA C takes any.
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

    /// Signs the program, as pools with `allow=signed` want it. What is signed is the code and its compile options as [`Job::build`] finds
    /// them.
    #[must_use]
    pub fn signed_by(mut self, key: &SigningKey) -> Self {
        self.signer = Some(key.clone());
        self
    }

    /// A scalar of a catalog kernel, by its name.
    #[must_use]
    pub fn scalar(mut self, name: impl Into<String>, value: impl Into<Number>) -> Self {
        self.task.arguments.insert(name.into(), value.into());
        self
    }

    /// A one-dimensional buffer with these contents.
    #[must_use]
    pub fn input<T: Element>(self, name: impl Into<String>, elements: &[T]) -> Self {
        self.input_array(name, Array::from_slice(elements))
    }

    /// A buffer with these contents, in the array's shape.
    #[must_use]
    pub fn input_array(self, name: impl Into<String>, array: Array) -> Self {
        self.buffer(array.into_buffer(name.into()))
    }

    /// A buffer of several dimensions, slowest first.
    #[must_use]
    pub fn input_shaped<T: Element>(self, name: impl Into<String>, shape: impl Into<Vec<u64>>, elements: &[T]) -> Self {
        let data = Data::Inline(Inline::from(T::to_bytes(elements)));
        self.buffer(Buffer { name: name.into(), dtype: T::DTYPE, shape: shape.into(), data })
    }

    /// A buffer whose contents wait in the blob store.
    #[must_use]
    pub fn input_stored(self, name: impl Into<String>, array: &StoredArray) -> Self {
        self.buffer(array.to_buffer(name.into()))
    }

    /// A buffer that starts as zeros, which cost nothing to send.
    #[must_use]
    pub fn zeros(self, name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<u64>>) -> Self {
        self.buffer(Buffer { name: name.into(), dtype, shape: shape.into(), data: Data::Zeros })
    }

    /// A buffer with one value everywhere.
    #[must_use]
    pub fn fill<T: Element>(self, name: impl Into<String>, shape: impl Into<Vec<u64>>, value: T) -> Self {
        self.buffer(Buffer {
            name: name.into(),
            dtype: T::DTYPE,
            shape: shape.into(),
            data: Data::Fill(value.number()),
        })
    }

    #[must_use]
    pub fn buffer(mut self, buffer: Buffer<'static>) -> Self {
        self.task.buffers.push(buffer);
        self
    }

    /// Names a buffer that comes back. A catalog kernel returns all its outputs when none is named.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.task.outputs.push(name.into());
        self
    }

    /// Begins a launch of this entry: a kernel's symbol, or in CUDA C++ a name expression such as `kernel<float>` or `::kernel`. The grid, block and arguments that follow are its own, up to the next `entry`.
    #[must_use]
    pub fn entry(mut self, entry: impl Into<String>) -> Self {
        self.launches.push(Draft { launch: Launch::new(entry, Grid::Blocks(vec![1])), has_grid: false });
        self
    }

    /// As many blocks as give at least this many threads in x, y and z.
    #[must_use]
    pub fn cover(self, threads: impl Into<Vec<u64>>) -> Self {
        self.grid(Grid::Cover(threads.into()))
    }

    /// This many blocks in x, y and z.
    #[must_use]
    pub fn blocks(self, blocks: impl Into<Vec<u32>>) -> Self {
        self.grid(Grid::Blocks(blocks.into()))
    }

    #[must_use]
    pub fn grid(self, grid: Grid) -> Self {
        self.draft("grid", |draft| {
            draft.launch.grid = grid;
            draft.has_grid = true;
        })
    }

    /// Threads of one block in x, y and z. Without it the driver's occupancy calculator decides.
    #[must_use]
    pub fn block(self, threads: impl Into<Vec<u32>>) -> Self {
        let threads = threads.into();
        self.draft("block", |draft| draft.launch.block = Block::Threads(threads))
    }

    /// Dynamic shared memory of one block.
    #[must_use]
    pub fn shared_bytes(self, bytes: u32) -> Self {
        self.draft("shared_bytes", |draft| draft.launch.shared_bytes = bytes)
    }

    /// Runs all blocks at once, so that they can wait for each other (`cooperative_groups::this_grid().sync()`). More blocks than the device
    /// runs at once are refused.
    #[must_use]
    pub fn cooperative(self) -> Self {
        self.draft("cooperative", |draft| draft.launch.cooperative = true)
    }

    /// Blocks of a cluster in x, y and z, for devices of compute capability 9.0 or higher. The grid has to consist of whole clusters.
    #[must_use]
    pub fn cluster(self, blocks: impl Into<Vec<u32>>) -> Self {
        let blocks = blocks.into();
        self.draft("cluster", |draft| draft.launch.cluster = blocks)
    }

    /// Launches this many times in a row.
    #[must_use]
    pub fn repeat(self, times: u32) -> Self {
        self.draft("repeat", |draft| draft.launch.repeat = times)
    }

    /// The next kernel parameter: the address of a buffer.
    #[must_use]
    pub fn arg_buffer(self, name: impl Into<String>) -> Self {
        let arg = Arg::Buffer(name.into());
        self.draft("args", |draft| draft.launch.args.push(arg))
    }

    /// The next kernel parameter: the address of an element of a buffer.
    #[must_use]
    pub fn arg_buffer_at(self, name: impl Into<String>, element: u64) -> Self {
        let name = name.into();
        let arg = if element == 0 { Arg::Buffer(name) } else { Arg::BufferAt { name, offset: element } };
        self.draft("args", |draft| draft.launch.args.push(arg))
    }

    /// The next kernel parameter: a structure by value, as bytes laid out as the device lays it out (little endian, with padding), and its
    /// alignment.
    #[must_use]
    pub fn arg_bytes(self, bytes: impl Into<Vec<u8>>, align: u32) -> Self {
        let bytes = bytes.into();
        self.draft("args", |draft| draft.launch.args.push(Arg::Bytes { bytes, align }))
    }

    /// The next kernel parameter: a scalar of exactly this type.
    #[must_use]
    pub fn arg<T: Element>(self, value: T) -> Self {
        self.arg_scalar(T::DTYPE, value.number())
    }

    /// The next kernel parameter: a scalar whose type is known at run time only.
    #[must_use]
    pub fn arg_scalar(self, dtype: Dtype, number: Number) -> Self {
        self.draft("args", |draft| draft.launch.args.push(Arg::Scalar(dtype, number)))
    }

    /// Time on the device before the job is stopped.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.task.limits.time_limit_ms = Some(milliseconds(limit));
        self
    }

    /// Time in the queue before the job expires.
    #[must_use]
    pub fn queue_limit(mut self, limit: Duration) -> Self {
        self.task.limits.queue_limit_ms = Some(milliseconds(limit));
        self
    }

    /// How often the job may lose its executor.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.task.limits.attempts_max = Some(attempts);
        self
    }

    /// A part of the name that the device must have, such as `H200`.
    #[must_use]
    pub fn requires_device(mut self, name: impl Into<String>) -> Self {
        self.task.requires.device = Some(name.into());
        self
    }

    /// The lowest compute capability that the device may have.
    #[must_use]
    pub fn requires_compute_capability(mut self, major: u32, minor: u32) -> Self {
        self.task.requires.compute_capability_min = Some([major, minor]);
        self
    }

    /// Checks everything that can be checked without a device. A catalog kernel's arguments are compared with its signature
    /// here, so that a slip is told before anything is sent; what is sent stays short, and the worker fills it in again.
    pub fn build(mut self) -> Result<CheckedJob, InvalidJob> {
        if let Some(problem) = self.problem.take() {
            return Err(problem.into());
        }
        for (index, draft) in self.launches.into_iter().enumerate() {
            if !draft.has_grid {
                let problem = "is missing; say how many threads to cover, or how many blocks".to_owned();
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
        Ok(CheckedJob { task: self.task, pool: self.pool, priority: self.priority })
    }

    fn draft(mut self, what: &str, change: impl FnOnce(&mut Draft)) -> Self {
        match self.launches.last_mut() {
            Some(draft) => change(draft),
            None => self.reject("launches", format!("{what} belongs to a launch; call entry() first")),
        }
        self
    }

    /// Keeps the first thing that went wrong: later ones often follow from it.
    fn reject(&mut self, field: &str, problem: String) {
        self.problem.get_or_insert(Invalid { field: field.to_owned(), problem });
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A copy that borrows the contents of all buffers: resolving needs shapes only, and inputs can be large.
fn shallow<'a>(kernel: &str, task: &'a Task<'static>) -> Task<'a> {
    let data = |data: &'a Data<'static>| match data {
        Data::Inline(inline) => Data::Inline(inline.borrowed()),
        other => other.clone(),
    };
    let buffers = task.buffers.iter().map(|buffer| Buffer {
        name: buffer.name.clone(),
        dtype: buffer.dtype,
        shape: buffer.shape.clone(),
        data: data(&buffer.data),
    });
    let mut copy = Task::new(Program::Catalog(kernel.to_owned()));
    copy.arguments = task.arguments.clone();
    copy.buffers = buffers.collect();
    copy.launches = task.launches.clone();
    copy.outputs = task.outputs.clone();
    copy
}

#[cfg(test)]
mod tests;
