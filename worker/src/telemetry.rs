//! Writes log lines to stderr.

use std::{fmt, str::FromStr};

use gpufleet_service::log_filter;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// A word that is not a log format.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a log format; use text or json")]
pub struct UnknownLogFormat(String);

impl FromStr for LogFormat {
    type Err = UnknownLogFormat;

    fn from_str(text: &str) -> Result<Self, UnknownLogFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownLogFormat(text.chars().take(32).collect())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Starts logging to stderr. `GPUFLEET_LOG` selects the lines; by default gpufleet logs from `info` and other crates
/// from `warn`.
pub fn init(format: LogFormat) {
    let filter = log_filter("warn,gpufleet_worker=info,gpufleet_transport=info");
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
