//! Errors of ledger queries, with advice.

use std::time::Duration;

use crate::{DatabaseUrl, database::QUERY_TIMEOUT, disposition::Disposition, migrate::SchemaMismatch};

/// Each message says what failed, why, and what to do, without a password.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(
        "the database at {url} does not answer: {problem}; check that Postgres is running and that the host and port are right"
    )]
    Unreachable { url: DatabaseUrl, problem: String },
    #[error(
        "the database at {url} refused user {user:?}: {problem}; check the user and the password in the database URL"
    )]
    Refused { url: DatabaseUrl, user: String, problem: String },
    #[error(
        "the database at {url} has no free connection: {problem}; wait, close other clients, or raise its connection limit"
    )]
    Full { url: DatabaseUrl, problem: String },
    #[error(
        "the database {database:?} does not exist at {url}; create it with `createdb`, then run `gpufleet-ledger migrate`"
    )]
    NoDatabase { url: DatabaseUrl, database: String },
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    #[error("the database did not answer within {} s; check its load and its locks", timeout.as_secs())]
    TimedOut { timeout: Duration },
    #[error("the database failed in {operation}")]
    Database { operation: &'static str, source: sqlx::Error },
}

impl LedgerError {
    /// The user-facing error for a failed connection attempt.
    pub(crate) fn connecting(url: &DatabaseUrl, error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()));
        match code.as_deref() {
            Some("28P01" | "28000") => Self::Refused {
                url: url.clone(),
                user: url.user().to_owned(),
                problem: error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default(),
            },
            Some("3D000") => Self::NoDatabase { url: url.clone(), database: url.database().to_owned() },
            _ if Disposition::is_full(&error) => Self::Full { url: url.clone(), problem: problem(&error) },
            _ => Self::Unreachable { url: url.clone(), problem: problem(&error) },
        }
    }

    pub(crate) fn timed_out() -> Self {
        Self::TimedOut { timeout: QUERY_TIMEOUT }
    }

    /// How to react to it while recording. An unreachable database and a refused login may both pass.
    pub(crate) fn disposition(&self) -> Disposition {
        match self {
            Self::Unreachable { .. }
            | Self::Full { .. }
            | Self::TimedOut { .. }
            | Self::Refused { .. }
            | Self::NoDatabase { .. } => Disposition::Retry,
            Self::Schema(_) => Disposition::Schema,
            Self::Database { source, .. } => Disposition::of(source),
        }
    }

    /// Whether the ledger's tables do not fit this program, or the user lacks privileges on them.
    pub fn is_about_tables(&self) -> bool {
        self.disposition() == Disposition::Schema
    }

    /// Whether waiting may help: the server is unreachable or starting, and does not refuse the login.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Full { .. } | Self::TimedOut { .. } => true,
            Self::Refused { .. } | Self::NoDatabase { .. } | Self::Schema(_) => false,
            Self::Database { source, .. } => Disposition::of(source) == Disposition::Retry,
        }
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The innermost cause, because sqlx's outer texts ("error communicating with database") explain less.
fn problem(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(source) => source.to_string(),
        sqlx::Error::Database(source) => source.message().to_owned(),
        sqlx::Error::PoolTimedOut => "no answer in time".to_owned(),
        other => other.to_string(),
    }
}
