//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand};
use gpufleet_service::{Secret, logging::LogFormat};

/// The minimum time between two sweeps of the blob store. A sweep lists the whole store.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The minimum time to keep rows. Two days protect what has just ended, and events that have not been recorded yet. Jobs and attempts are
/// dropped by the month.
const KEPT_MIN: Duration = Duration::from_secs(2 * 24 * 3600);

/// The default number of database connections. A query takes milliseconds, so a few connections serve hundreds of requests per second. By
/// default, Postgres allows 100 connections in all.
#[cfg(feature = "serve")]
const CONNECTIONS_DEFAULT: u32 = 8;

/// Record gpufleet's jobs in Postgres.
#[derive(Debug, Parser)]
#[command(name = "gpufleet-ledger", version, after_help = super::exit::TABLE)]
pub(crate) struct Options {
    /// Format of log lines on standard error. The variable GPUFLEET_LOG filters them; without it, level info and above is logged.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT", env = "GPUFLEET_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or upgrade the ledger's tables, then exit. Run it once for each release; running it again changes nothing.
    Migrate(Migrate),
    /// Record the events of jobs and workers from RabbitMQ until SIGTERM or Ctrl-C. Several recorders may run at once.
    Record(Record),
    /// Drop the months of jobs and attempts, the days of device samples, and the actions that are older than the given time, then exit.
    Keep(Keep),
    /// Give label keys an index, so that `gpufleet history --label` finds jobs of any age.
    #[command(subcommand)]
    Labels(Labels),
    /// Serve the ledger as JSON over HTTP, for programs, for a console and for people without a database password, until SIGTERM or
    /// Ctrl-C. It only reads.
    #[cfg(feature = "serve")]
    Serve(Serve),
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Longest time to wait for a database that does not answer yet, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub(crate) wait: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) database: Database,
    /// URL of the broker: amqp://USER:PASSWORD@HOST:5672/VHOST, or one URL for each node, separated by commas. Set it in the environment to keep the password out of process lists.
    #[arg(long, env = "GPUFLEET_AMQP_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) amqp_url: Secret,
    /// File that exists while the recorder consumes events, for supervisors and health checks.
    #[arg(long, value_name = "PATH")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Address to serve Prometheus metrics on, as in 127.0.0.1:9471 [default: none]. The path is /metrics. With port 0, the recorder takes a
    /// free port and logs it.
    #[arg(long, value_name = "ADDRESS", env = "GPUFLEET_LEDGER_METRICS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Also delete old blobs that no job uses from this store: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME. Of several recorders
    /// one does so. The credentials of a bucket come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    #[arg(long, value_name = "STORE", env = "GPUFLEET_PRUNE_BLOBS")]
    pub(crate) prune_blobs: Option<OsString>,
    /// Time between two prunings, such as 30m.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1h", requires = "prune_blobs")]
    pub(crate) every: Duration,
    /// Also drop months of jobs that are older than this, as `gpufleet-ledger keep --jobs`. Of several recorders one does so.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) keep_jobs: Option<Duration>,
    /// Also drop months of attempts that are older than this, as `gpufleet-ledger keep --attempts`.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) keep_attempts: Option<Duration>,
    /// Also drop days of device samples that are older than this, as `gpufleet-ledger keep --samples`.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) keep_samples: Option<Duration>,
    /// Also delete actions that are older than this, as `gpufleet-ledger keep --actions`.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) keep_actions: Option<Duration>,
    /// Folder for a Parquet file of each month that is dropped.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) keep_archive: Option<PathBuf>,
    /// How often the recorder looks for old months.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1h")]
    pub(crate) keep_every: Duration,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("kept").args(["jobs", "attempts", "samples", "actions"]).required(true).multiple(true))]
pub(crate) struct Keep {
    #[command(flatten)]
    pub(crate) database: Database,
    /// How long to keep jobs, such as 400d. A month is dropped when all of it is older, with the attempts, kept outputs and inputs of its jobs.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) jobs: Option<Duration>,
    /// How long to keep attempts, if shorter. The history then shows older jobs without workers, devices and timings.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) attempts: Option<Duration>,
    /// How long to keep samples of devices (use, memory, temperature, power), such as 14d. A day is dropped when all of it is older.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) samples: Option<Duration>,
    /// How long to keep the record of what people did through the console, such as 400d.
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    pub(crate) actions: Option<Duration>,
    /// Folder for a Parquet file of each month, written and read back before the month is dropped.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) archive: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Labels {
    /// Give a label key an index. Recorders and readers keep working; it takes minutes for millions of jobs, and can be repeated.
    Add(LabelKey),
    /// List the label keys that have an index.
    List(LabelList),
    /// Remove the index of a label key.
    Remove(LabelKey),
}

#[derive(Debug, Args)]
pub(crate) struct LabelKey {
    /// The key of the label, such as run.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) database: Database,
}

#[derive(Debug, Args)]
pub(crate) struct LabelList {
    #[command(flatten)]
    pub(crate) database: Database,
}

#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address and port to listen on. Beyond loopback, a token is required.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9470")]
    pub(crate) listen: std::net::SocketAddr,
    /// File with the accepted tokens, one on each line. Callers send one as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "PATH", env = "GPUFLEET_API_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The accepted token, if there is no file. Set it in the environment to keep it out of process lists.
    #[arg(long, env = "GPUFLEET_API_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) api_token: Option<Secret>,
    /// URL of the database: postgres://USER:PASSWORD@HOST:5432/DATABASE. A user who may only read is enough. Set it in the environment to
    /// keep the password out of process lists.
    #[arg(long, env = "GPUFLEET_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: Option<Secret>,
    /// URL of a standby to read from instead.
    #[arg(long, env = "GPUFLEET_DATABASE_READ_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_read_url: Option<Secret>,
    /// Maximum number of connections to the database, 1 to 100.
    #[arg(long, value_name = "COUNT", default_value_t = CONNECTIONS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) connections: u32,
    /// Maximum lag of a standby, such as 5s. Beyond it, /readyz fails.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) lag_max: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Database {
    /// URL of the database: postgres://USER:PASSWORD@HOST:5432/DATABASE. Set it in the environment to keep the password out of process lists.
    #[arg(long, env = "GPUFLEET_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: Secret,
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    duration(text).and_then(|time| if time < INTERVAL_MIN { Err("expected at least 1s") } else { Ok(time) })
}

fn kept(text: &str) -> Result<Duration, &'static str> {
    duration(text).and_then(|time| if time < KEPT_MIN { Err("expected at least 2d") } else { Ok(time) })
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "expected a number with a unit, such as 30s or 10m")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_typed_password_never_shows() {
        let typed = ["gpufleet-ledger", "record", "--database-url", "canary", "--amqp-url", "canary"];
        let options = Options::try_parse_from(typed).unwrap();
        assert!(!format!("{options:?}").contains("canary"));
    }
}
