//! The options of `gpufleet submit`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};
use gpufleet::schema::{JobId, Priority, bounds::ATTEMPTS_MAX};

use crate::{
    environment, exit,
    job_options::JobOptions,
    json,
    options::{BlobOptions, LedgerOptions, OutputOptions, ProducerOptions},
    progress::ProgressOptions,
    spec::{self, ArgsSpec, BlockSpec, Extents, FileSpec, FillSpec, ScalarSpec, ZerosSpec},
};

/// Submit a job and wait for its result
///
/// The program is a kernel of the catalog, CUDA C (--source), PTX (--ptx), a cubin (--cubin) or part of a task file
/// (--file).
///
/// The extension of a file decides how it is read and written. A .npy file has its own dtype and shape. A .png file is
/// u8 of shape [height,width] in grey and [height,width,channels] in colour. Any other file is raw bytes and needs a
/// dtype and a shape, as in x=x.bin:f32[1024,1024].
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n{}\n\n{}\n\n{}", json::SUBMIT, json::FOLLOW, json::DRY_RUN, exit::TABLE))]
#[command(mut_arg("follow", |arg| arg.help_heading("Waiting").conflicts_with_all(["detach", "dry_run"])))]
#[command(mut_arg("quiet", |arg| arg.help_heading("Waiting")))]
#[command(group = ArgGroup::new("program").args(["kernel", "source", "ptx", "cubin", "file"]).required(true))]
pub struct Options {
    /// Name of a catalog kernel; `gpufleet kernels` lists them
    pub kernel: Option<String>,
    /// CUDA C file, compiled on the worker
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub source: Option<PathBuf>,
    /// PTX file
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub ptx: Option<PathBuf>,
    /// Cubin file: machine code for one GPU architecture. The emulated device can't run it
    #[arg(long, value_name = "FILE", help_heading = "Program", requires = "entry")]
    pub cubin: Option<PathBuf>,
    /// Task file in TOML (extension .toml) or JSON. Its paths are relative to the file
    #[arg(short, long, value_name = "FILE", help_heading = "Program")]
    pub file: Option<PathBuf>,
    /// Kernel function to launch: NAME if it is extern "C", else ::NAME; for a template an instance, such as
    /// 'scale<float>' [default: the only kernel of the source or PTX]
    #[arg(long, value_name = "NAME", help_heading = "Program", conflicts_with_all = ["kernel", "file"])]
    pub entry: Option<String>,
    /// Option for the CUDA C compiler, such as --use_fast_math. Repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Program", conflicts_with_all = ["kernel", "file", "ptx", "cubin"])]
    pub compile_option: Vec<String>,
    /// Sign the program with this private key, for pools that run only signed programs. `gpufleet keygen` creates keys
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub sign_key: Option<PathBuf>,

    /// Value for a scalar of a catalog kernel. Repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Data", conflicts_with_all = ["source", "ptx", "cubin", "file"])]
    pub arg: Vec<ScalarSpec>,
    /// Buffer read from a file, or a kept output of another job: NAME=job:ID/OUTPUT. Repeatable
    #[arg(long = "in", value_name = "NAME=FILE", help_heading = "Data", conflicts_with = "file")]
    pub input: Vec<FileSpec>,
    /// Buffer read from a file or from another job, and returned as an output. Repeatable
    #[arg(long, value_name = "NAME=FILE", help_heading = "Data", conflicts_with = "file")]
    pub inout: Vec<FileSpec>,
    /// Input that the kernels only read, so that jobs can use one copy of it on the device. Repeatable
    #[arg(long, value_name = "NAME", help_heading = "Data", conflicts_with = "file")]
    pub share: Vec<String>,
    /// Buffer filled with zeros. Repeatable
    #[arg(long, value_name = "NAME=f32[1024]", help_heading = "Data", conflicts_with = "file")]
    pub zeros: Vec<ZerosSpec>,
    /// Buffer filled with one value. Repeatable
    #[arg(long, value_name = "NAME=f32[8]:1.5", help_heading = "Data", conflicts_with = "file")]
    pub fill: Vec<FillSpec>,
    /// File to write an output buffer to. With a dtype and a shape (y=y.bin:f32[1024]) also creates the buffer, filled
    /// with zeros. Repeatable
    #[arg(long, visible_alias = "save", value_name = "NAME=FILE", help_heading = "Data")]
    pub out: Vec<FileSpec>,

    /// Launch enough blocks to have at least this many threads in x, y and z
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file", "grid"])]
    pub cover: Option<Extents<u64>>,
    /// Launch exactly this many blocks in x, y and z
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub grid: Option<Extents<u32>>,
    /// Threads per block in x, y and z; auto lets the driver choose
    #[arg(long, value_name = "X,Y,Z|auto", default_value = "auto", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub block: BlockSpec,
    /// Dynamic shared memory per block, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = spec::whole(0..=u32::MAX), help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub shared: u32,
    /// Cooperative launch: all blocks run at once and may synchronize with each other
    #[arg(long, help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub cooperative: bool,
    /// Blocks per cluster in x, y and z; needs compute capability 9.0
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub cluster: Option<Extents<u32>>,
    /// The kernel's parameters in order: buffers by name (x@16 is the address of element 16), scalars as NAME=VALUE with
    /// the type in the source or as NAME:DTYPE=VALUE, structs as NAME:bytes=HEX@ALIGNMENT, the counter that the kernel increments up to
    /// TOTAL as NAME=@progress:TOTAL
    #[arg(long, visible_alias = "params", value_name = "x,y,n=1000", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub args: Option<ArgsSpec>,

    #[command(flatten)]
    pub job: JobOptions,
    /// Priority of the job: high, normal or low [default: normal]
    #[arg(long, help_heading = "Job")]
    pub priority: Option<Priority>,
    /// Longest time on the device, such as 30s or 2h; at most 7days [default: set by the pool, else 10m]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "Job")]
    pub time_limit: Option<Duration>,
    /// Longest time in the queue; a job that has not started by then expires [default: set by the pool, else none]
    #[arg(long, value_name = "DURATION", value_parser = spec::queue_limit, help_heading = "Job")]
    pub queue_limit: Option<Duration>,
    /// Number of executors that the job may lose before it is dead-lettered, 1 to 20 [default: 3]
    #[arg(long, value_name = "N", value_parser = spec::whole(1..=ATTEMPTS_MAX), help_heading = "Job")]
    pub attempts: Option<u32>,
    /// Id of the job, a UUID. Submitting the same id again runs the job again: the history keeps each run as an attempt of one job, which
    /// has the outcome of its latest submission [default: a new id]
    #[arg(long, value_name = "UUID", help_heading = "Job")]
    pub id: Option<JobId>,
    /// Prefer a worker that has the largest input on a device, if that input is in the blob store. The workers of the pool
    /// must offer it: gpufleet-worker run --pool POOL:affinity
    #[arg(long, env = environment::AFFINITY, help_heading = "Job")]
    pub affinity: bool,

    /// Wait for the result (the default)
    #[arg(long, conflicts_with = "detach", help_heading = "Waiting")]
    pub wait: bool,
    /// Print the job's id once the broker has stored the job, and exit. `gpufleet wait ID` waits for the outcome,
    /// `gpufleet fetch ID` writes the outputs to files
    #[arg(long, conflicts_with = "out", help_heading = "Waiting")]
    pub detach: bool,
    /// Keep the outputs for this long after the job has succeeded, such as 12h or 7days, for `gpufleet fetch`. Outputs of
    /// more than 64 KiB need a blob store [default: 1day with a blob store or --detach, else not at all]
    #[arg(long, value_name = "DURATION", value_parser = spec::keep, help_heading = "Waiting")]
    pub keep: Option<Duration>,
    /// Do not keep the outputs
    #[arg(long, conflicts_with = "keep", help_heading = "Waiting")]
    pub discard: bool,
    /// Check the job and the blob store, and print what would be submitted, without the bytes of arrays. This sends and
    /// stores nothing and needs no broker; inputs from other jobs need the ledger
    #[arg(long, help_heading = "Waiting")]
    pub dry_run: bool,
    /// Longest time to connect, submit and wait for the result, such as 30s or 2h. A submitted job keeps running after it
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = spec::duration, help_heading = "Waiting")]
    pub timeout: Duration,
    #[command(flatten)]
    pub progress: ProgressOptions,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub producer: ProducerOptions,
    #[command(flatten)]
    pub blobs: BlobOptions,
    #[command(flatten)]
    pub ledger: LedgerOptions,
}

const EXAMPLES: &str = "\
Examples:
  A kernel of the catalog:
    gpufleet submit saxpy --arg a=2.0 --in x=x.npy --inout y=y.npy --out y=result.npy
  Your own CUDA C, with its parameters in order:
    gpufleet submit --source edge.cu --cover 640,480 --block 16,16 \\
        --in photo=photo.png --out drawing=edges.png:u8[480,640] \\
        --args photo,drawing,height=480,width=640
  A task file:
    gpufleet submit -f task.toml
  With the output of another job:
    gpufleet submit saxpy --arg a=2 --in x=job:01a20400/y --inout y=y.npy --out y=next.npy
  With what the kernels print, while the job runs:
    gpufleet submit --source train.cu --grid 1 --args 'epochs=90,done=@progress:90' --follow
  Without waiting:
    gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --label run=7 --detach";
