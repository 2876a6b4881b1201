//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A sweep lists the whole store.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Record gpufleet's jobs in Postgres.
#[derive(Debug, Parser)]
#[command(name = "gpufleet-ledger", version, after_help = super::exit::TABLE)]
pub(crate) struct Options {
    /// Format of log lines on standard error. The variable RUST_LOG filters them; without it, level info and above is logged.
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
    /// URL of the broker: amqp://USER:PASSWORD@HOST:5672/VHOST. Set it in the environment to keep the password out of process lists.
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

fn duration(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "expected a number with a unit, such as 30s or 10m")
}

/// A secret text that is never printed, not even in an error.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
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
