//! The options of `gpufleet map`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use gpufleet::schema::{Number, PoolName, Priority};

use crate::{
    environment, exit, json,
    options::{BlobOptions, OutputOptions, ProducerOptions},
    spec::{self, ColumnSpec, LabelSpec, ScalarSpec},
};

/// Run a kernel over columns of a Parquet file
///
/// Writes a Parquet file with the same rows in the same order. The kernel's outputs become columns: one with the name
/// of an existing column replaces it, others are appended. The kernel is one of the catalog, or one in a file of CUDA C
/// (--source). It must compute each row on its own, as saxpy does.
///
/// In a file of CUDA C, a parameter `const T *` is an input, `T *` an output, and a number gets its value from --arg. The
/// command reads the types from the file. A parameter that --columns names is also an input. One number is the number of
/// rows (--rows), because there are more threads than rows.
///
/// The rows are sent in batches, a few at a time. If the command is interrupted or killed, the same command continues
/// after the finished batches. They are in the folder OUT.parts until OUT is complete.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::MAP, exit::TABLE))]
pub struct Options {
    /// Parquet file to read, and Parquet file to write, which is replaced if it exists
    #[arg(long, num_args = 2, value_names = ["IN", "OUT"], required = true)]
    pub parquet: Vec<PathBuf>,
    /// Name of a catalog kernel; `gpufleet kernels` lists them. With --source, name of an extern "C" kernel in the file
    #[arg(long, value_name = "NAME")]
    pub kernel: String,
    /// CUDA C file that has the kernel, compiled on the worker
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub source: Option<PathBuf>,
    /// Parameter of the kernel that gets the number of rows of a batch [default: n]
    #[arg(long, value_name = "NAME", help_heading = "Program", requires = "source")]
    pub rows: Option<String>,
    /// Option for the CUDA C compiler, such as --use_fast_math. Repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Program", requires = "source")]
    pub compile_option: Vec<String>,
    /// Sign the program with this private key, for pools that run only signed programs. `gpufleet keygen` creates keys
    #[arg(long, value_name = "FILE", help_heading = "Program", requires = "source")]
    pub sign_key: Option<PathBuf>,
    /// Columns for the kernel's inputs, in order, or by name: x=price,y=volume
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', required = true, help_heading = "Data")]
    pub columns: Vec<ColumnSpec>,
    /// Value for a scalar of the kernel. Repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Data")]
    pub arg: Vec<ScalarSpec>,
    /// Columns for the kernel's outputs, in order, or by name: y=result [default: the names of the outputs]
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', help_heading = "Data")]
    pub out_columns: Vec<ColumnSpec>,
    /// Existing columns to leave out
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', help_heading = "Data")]
    pub drop: Vec<String>,
    /// Leave out all existing columns, so that only the kernel's outputs are written
    #[arg(long, conflicts_with = "drop", help_heading = "Data")]
    pub drop_all: bool,
    /// Number that the kernel gets in place of nulls. Without it, nulls in its columns are an error
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, help_heading = "Data")]
    pub fill_null: Option<Number>,

    /// Rows of one job, which are also the rows of one row group in OUT [default: 131072, and fewer in wide tables]
    #[arg(long, value_name = "ROWS", value_parser = spec::whole(1..=u32::MAX), help_heading = "Batches")]
    pub batch_rows: Option<u32>,
    /// Maximum number of jobs in flight. More jobs keep more devices busy and take more memory
    #[arg(long, value_name = "JOBS", default_value_t = 8, value_parser = spec::whole(1..=1024), help_heading = "Batches")]
    pub in_flight: u32,
    /// Longest time in which no batch finishes, such as 30s or 2h
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = spec::duration, help_heading = "Batches")]
    pub timeout: Duration,

    /// Name of the jobs in the history
    #[arg(long, value_parser = spec::name, help_heading = "Job")]
    pub name: Option<String>,
    /// Label to find the jobs by. Repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Job")]
    pub label: Vec<LabelSpec>,
    /// Pool to run the jobs in [default: default]
    #[arg(long, env = environment::POOL, help_heading = "Job")]
    pub pool: Option<PoolName>,
    /// Priority of the jobs: high, normal or low [default: normal]
    #[arg(long, help_heading = "Job")]
    pub priority: Option<Priority>,
    /// Longest time of one job on the device, such as 30s or 2h; at most 7days [default: set by the pool, else 10m]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "Job")]
    pub time_limit: Option<Duration>,
    /// Run only on a device whose name contains this text, such as H200
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub device_name: Option<String>,

    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub producer: ProducerOptions,
    #[command(flatten)]
    pub blobs: BlobOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet map --parquet in.parquet out.parquet --kernel saxpy --columns x,y --arg a=2
  gpufleet map --parquet options.parquet prices.parquet --kernel black_scholes \\
      --columns spot,strike,years --arg rate=0.03 --arg volatility=0.2 --drop strike,years
  gpufleet map --parquet in.parquet out.parquet --kernel saxpy --arg a=2 \\
      --columns x=price,y=fee --out-columns y=total --fill-null 0
  gpufleet map --parquet in.parquet out.parquet --source scale.cu --kernel scale \\
      --columns x=price --arg factor=1.19 --out-columns gross";

impl Options {
    /// The file to read and the file to write.
    pub fn files(&self) -> [&Path; 2] {
        [&self.parquet[0], &self.parquet[1]]
    }
}
