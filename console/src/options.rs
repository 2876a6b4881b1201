//! The command line, as it was typed.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use axum::http::HeaderName;
use clap::Parser;
use gpufleet_service::{Secret, logging::LogFormat};
use ipnet::IpNet;

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped by a signal
  1  internal error
  2  wrong usage: an invalid option, or an address that is taken";

/// Show a fleet in the browser
///
/// The console asks the read API of the ledger (`gpufleet-ledger serve`), so it needs no database password. With a broker it also shows
/// queues and dead letters. It only reads unless --actions is given.
#[derive(Debug, Parser)]
#[command(name = "gpufleet-console", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Options {
    /// Address and port to listen on. Beyond loopback, viewers must be known: give --token-file, or --user-header and --trusted-proxy.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    pub listen: SocketAddr,
    /// URL of the read API, as `gpufleet-ledger serve` offers: https://HOST:9470
    #[arg(long, value_name = "URL", env = "GPUFLEET_API_URL")]
    pub api: String,
    /// Token for the read API. Set it in the environment to keep it out of process lists.
    #[arg(long, value_name = "TOKEN", env = "GPUFLEET_API_TOKEN", hide_env_values = true)]
    pub api_token: Option<Secret>,
    /// URL of the broker: amqp://USER:PASSWORD@HOST:5672/VHOST, or one URL for each node, separated by commas. Without it, queues and dead letters are not shown, and there are no
    /// actions. Set it in the environment to keep the password out of process lists.
    #[arg(long, value_name = "URL", env = "GPUFLEET_AMQP_URL", hide_env_values = true)]
    pub amqp_url: Option<Secret>,
    /// Blob store of the workers, for kept outputs that are stored there: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME. The
    /// credentials of a bucket come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    #[arg(long, value_name = "STORE", env = "GPUFLEET_BLOBS")]
    pub blobs: Option<OsString>,
    /// File with the tokens of viewers, one on each line. The browser asks for one and exchanges it for a cookie.
    #[arg(long, value_name = "PATH", env = "GPUFLEET_CONSOLE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Header in which a proxy names the viewer, such as X-Forwarded-User. It counts only from a proxy of --trusted-proxy.
    #[arg(long, value_name = "NAME", requires = "trusted_proxy", conflicts_with = "token_file")]
    pub user_header: Option<HeaderName>,
    /// Network of the proxies that may name viewers, such as 10.0.0.0/8 or 127.0.0.1/32. Repeatable.
    #[arg(long, value_name = "CIDR", requires = "user_header")]
    pub trusted_proxy: Vec<IpNet>,
    /// Name by which browsers know the console, such as console.example.org. Repeatable; names of this machine and addresses need none.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Let viewers cancel jobs, and replay or discard dead letters. Needs a broker.
    #[arg(long)]
    pub actions: bool,
    /// Format of the log on stderr.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text, env = "GPUFLEET_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// File that exists while the console serves; its content is the URL.
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_typed_password_never_shows() {
        let typed = ["gpufleet-console", "--api", "http://h", "--api-token", "canary", "--amqp-url", "canary"];
        assert!(!format!("{:?}", Options::try_parse_from(typed).unwrap()).contains("canary"));
    }
}
