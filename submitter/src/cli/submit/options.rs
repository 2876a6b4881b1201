//! What can be typed after `gpufleet submit`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};
use gpufleet::schema::{PoolName, Priority};

use crate::cli::{
    environment, exit, json,
    options::{BlobOptions, Format, ProducerOptions},
    spec::{self, ArgsSpec, BlockSpec, Extents, FileSpec, FillSpec, LabelSpec, ScalarSpec, ZerosSpec},
};

/// Submit a job and wait for its result
///
/// A kernel of the catalog:
///     gpufleet submit saxpy --arg a=2.0 --in x=x.npy --inout y=y.npy --out y=result.npy
///
/// Your own CUDA C, with its parameters in order (an entry that is not extern "C" is written ::NAME):
///     gpufleet submit --source edge.cu --entry edges --cover 640,480 --block 16,16
///         --in photo=photo.png --out drawing=edges.png:u8[480,640]
///         --args photo,drawing,height:i32=480,width:i32=640
///
/// A task file, with paths relative to it:
///     gpufleet submit -f task.toml
///
/// Files: .npy holds its dtype and shape. .png is u8, [height,width] for grey and
/// [height,width,channels] for colours. Anything else is raw bytes and needs its form, as in
/// x=x.bin:f32[1024,1024].
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = format!("{}\n\n{}", json::SUBMIT, exit::TABLE))]
#[command(group = ArgGroup::new("program").args(["kernel", "source", "ptx", "file"]).required(true))]
pub struct Options {
    /// A kernel of the catalog; `gpufleet kernels` lists them
    pub kernel: Option<String>,
    /// CUDA C, compiled on the worker
    #[arg(long, value_name = "FILE", help_heading = "Program", requires = "entry")]
    pub source: Option<PathBuf>,
    /// PTX
    #[arg(long, value_name = "FILE", help_heading = "Program", requires = "entry")]
    pub ptx: Option<PathBuf>,
    /// A task file, in JSON or TOML
    #[arg(short, long, value_name = "FILE", help_heading = "Program")]
    pub file: Option<PathBuf>,
    /// The kernel function to launch; of a C++ template an instance, such as 'scale<float>'
    #[arg(long, value_name = "NAME", help_heading = "Program", conflicts_with_all = ["kernel", "file"])]
    pub entry: Option<String>,
    /// An option for the CUDA C compiler, such as --use_fast_math. May be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Program", conflicts_with_all = ["kernel", "file", "ptx"])]
    pub compile_option: Vec<String>,

    /// Sign the program with the private key in this file, for pools that run only what is signed; `gpufleet keygen` makes one
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub sign_key: Option<PathBuf>,

    /// A scalar of a catalog kernel
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Data", conflicts_with_all = ["source", "ptx", "file"])]
    pub arg: Vec<ScalarSpec>,
    /// A buffer with a file's contents
    #[arg(long = "in", value_name = "NAME=FILE", help_heading = "Data", conflicts_with = "file")]
    pub input: Vec<FileSpec>,
    /// The same, and it comes back
    #[arg(long, value_name = "NAME=FILE", help_heading = "Data", conflicts_with = "file")]
    pub inout: Vec<FileSpec>,
    /// A buffer of zeros
    #[arg(long, value_name = "NAME=f32[1024]", help_heading = "Data", conflicts_with = "file")]
    pub zeros: Vec<ZerosSpec>,
    /// A buffer with one value everywhere
    #[arg(long, value_name = "NAME=f32[8]:1.5", help_heading = "Data", conflicts_with = "file")]
    pub fill: Vec<FillSpec>,
    /// Write a buffer that comes back to a file. With a form (y=y.bin:f32[1024]) it also makes the buffer, as zeros
    #[arg(long, value_name = "NAME=FILE", help_heading = "Data")]
    pub out: Vec<FileSpec>,

    /// Launch as many blocks as give at least this many threads in x, y, z
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file", "grid"])]
    pub cover: Option<Extents<u64>>,
    /// Launch exactly this many blocks in x, y, z
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub grid: Option<Extents<u32>>,
    /// Threads of a block in x, y, z; auto lets the driver choose
    #[arg(long, value_name = "X,Y,Z|auto", default_value = "auto", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub block: BlockSpec,
    /// Dynamic shared memory of a block, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub shared: u32,
    /// Run all blocks at once, so that they can wait for each other
    #[arg(long, help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub cooperative: bool,
    /// Blocks of a cluster in x, y, z; needs compute capability 9.0
    #[arg(long, value_name = "X,Y,Z", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub cluster: Option<Extents<u32>>,
    /// The kernel's parameters in order: buffers by name (x@16 is the address of element 16), scalars as
    /// NAME:DTYPE=VALUE, structures as NAME:bytes=HEX@ALIGNMENT
    #[arg(long, value_name = "x,y,n:u32=1000", help_heading = "Launch", conflicts_with_all = ["kernel", "file"])]
    pub args: Option<ArgsSpec>,

    /// A name for the history
    #[arg(long, help_heading = "Job")]
    pub name: Option<String>,
    /// A label to find the job by. May be given several times
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Job")]
    pub label: Vec<LabelSpec>,
    /// The pool that runs it [default: default]
    #[arg(long, env = environment::POOL, help_heading = "Job")]
    pub pool: Option<PoolName>,
    /// high, normal or low [default: normal]
    #[arg(long, help_heading = "Job")]
    pub priority: Option<Priority>,
    /// Time on the device, at most 7 days [default: the pool's, else 10m]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "Job")]
    pub time_limit: Option<Duration>,
    /// Time in the queue; a job that has not started by then expires [default: the pool's, else none]
    #[arg(long, value_name = "DURATION", value_parser = spec::duration, help_heading = "Job")]
    pub queue_limit: Option<Duration>,
    /// A part of the name that the device must have, such as H200
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub device: Option<String>,

    /// Wait for the result; this is the default
    #[arg(long, conflicts_with = "detach", help_heading = "Waiting")]
    pub wait: bool,
    /// Print the job's id as soon as the broker has it. The job's outputs are lost; `gpufleet show ID` tells how it ended
    #[arg(long, conflicts_with = "out", help_heading = "Waiting")]
    pub detach: bool,
    /// Wait at most so long. The job goes on then, but its outputs are lost
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = spec::duration, help_heading = "Waiting")]
    pub timeout: Duration,
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    #[command(flatten)]
    pub producer: ProducerOptions,
    #[command(flatten)]
    pub blobs: BlobOptions,
}
