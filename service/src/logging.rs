//! Log lines on stderr.

use std::io;

use crate::log_filter;
use clap::ValueEnum;

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Starts the log. [`LOG`](crate::LOG) selects its lines; without it, those from `info` are written.
pub fn start(format: LogFormat) {
    let lines = tracing_subscriber::fmt().with_env_filter(log_filter("info")).with_writer(io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
