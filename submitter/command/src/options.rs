//! Options that several commands have.

use std::ffi::OsString;

use super::{complaint::Complaint, environment, output};
use clap::{Args, ValueEnum};
pub use gpufleet_service::Secret;
use serde::Serialize;

/// The broker.
#[derive(Debug, Args)]
pub struct BrokerOptions {
    /// URL of the broker: amqp://USER:PASSWORD@HOST:5672/VHOST, or one for each node, separated by commas [default: the fleet of `gpufleet
    /// local up`]
    #[arg(long, value_name = "URL", env = environment::AMQP_URL, hide_env_values = true, help_heading = "Connection")]
    pub amqp_url: Option<Secret>,
}

/// The broker, and how jobs are sent to it.
#[derive(Debug, Args)]
pub struct ProducerOptions {
    #[command(flatten)]
    pub broker: BrokerOptions,
    /// Send jobs without the broker user's name. Needed if the broker's name for the user differs from the one in the URL, because it
    /// then rejects the jobs. The ledger records no user for them
    #[arg(long, env = environment::NO_USER_ID, help_heading = "Connection")]
    pub no_user_id: bool,
}

/// The blob store, for arrays that are too large for a message.
#[derive(Debug, Args)]
pub struct BlobOptions {
    /// Blob store that the workers share: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME. Inputs and outputs of 1 MiB or more
    /// go through it; messages carry only their digests. The credentials of a bucket come from AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY [default: the store of `gpufleet local up` if that fleet is used, else none]
    #[arg(long, value_name = "STORE", env = environment::BLOBS, help_heading = "Connection")]
    pub blobs: Option<OsString>,
}

/// The ledger's database.
#[derive(Debug, Args)]
pub struct LedgerOptions {
    /// URL of the ledger's database: postgres://USER:PASSWORD@HOST:5432/DATABASE [default: the fleet of `gpufleet local up`]
    #[arg(long, value_name = "URL", env = environment::DATABASE_URL, hide_env_values = true, help_heading = "Connection")]
    pub database_url: Option<Secret>,
}

/// How the data is printed.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Output format
    #[arg(id = "output", short = 'o', long = "output", value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub format: Format,
}

/// The format of printed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    Table,
    /// JSON for programs
    Json,
}

impl Format {
    /// Prints the data: for programs as it is, for people as the text.
    pub fn print<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> Result<(), Complaint> {
        match self {
            Self::Table => output::emit(&text(data)),
            Self::Json => output::emit_json(data),
        }
    }
}

/// How a command prints its result, which may be the last of several lines of JSON.
#[derive(Debug, Clone, Copy)]
pub struct ResultFormat {
    pub format: Format,
    pub is_json_line: bool,
}

impl ResultFormat {
    pub fn print<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> Result<(), Complaint> {
        match self.format {
            Format::Json if self.is_json_line => output::emit_json_line(data),
            format => format.print(data, text),
        }
    }
}
