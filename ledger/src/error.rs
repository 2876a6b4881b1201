//! Errors of ledger queries, with advice.

use std::time::Duration;

use crate::{DatabaseUrl, database::QUERY_TIMEOUT, disposition::Disposition, migrate::SchemaMismatch};

/// An error of the ledger. Each message says what failed, why, and what to do, and contains no password.
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
        "the database {place} can't be used through a connection pooler that shares sessions, such as PgBouncer with pool_mode = transaction: \
         {problem}; set pool_mode = session and ignore_startup_parameters = options, or use the URL of the database itself"
    )]
    Pooler { place: String, problem: String },
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
    /// Returns the user-facing error for a failed connection attempt.
    pub(crate) fn connecting(url: &DatabaseUrl, error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()));
        match code.as_deref() {
            Some("28P01" | "28000") => Self::Refused {
                url: url.clone(),
                user: url.user().to_owned(),
                problem: error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default(),
            },
            Some("3D000") => Self::NoDatabase { url: url.clone(), database: url.database().to_owned() },
            _ if Disposition::is_about_pooler(&error) => {
                Self::Pooler { place: format!("at {url}"), problem: problem(&error) }
            }
            _ if Disposition::is_full(&error) => Self::Full { url: url.clone(), problem: problem(&error) },
            _ => Self::Unreachable { url: url.clone(), problem: problem(&error) },
        }
    }

    /// Returns the error for a failed operation on an open connection.
    pub(crate) fn failed(operation: &'static str, source: sqlx::Error) -> Self {
        match Disposition::is_about_pooler(&source) {
            true => Self::Pooler { place: format!("failed in {operation}, and"), problem: problem(&source) },
            false => Self::Database { operation, source },
        }
    }

    pub(crate) fn timed_out() -> Self {
        Self::TimedOut { timeout: QUERY_TIMEOUT }
    }

    /// Returns how to react to the error while recording. An unreachable database and a refused login may be temporary.
    pub(crate) fn disposition(&self) -> Disposition {
        match self {
            Self::Unreachable { .. }
            | Self::Full { .. }
            | Self::TimedOut { .. }
            | Self::Refused { .. }
            | Self::Pooler { .. }
            | Self::NoDatabase { .. } => Disposition::Retry,
            Self::Schema(_) => Disposition::Schema,
            Self::Database { source, .. } => Disposition::of(source),
        }
    }

    /// Returns whether the ledger's tables do not fit this program, or the user lacks privileges on them.
    pub fn is_about_tables(&self) -> bool {
        self.disposition() == Disposition::Schema
    }

    /// Returns whether waiting may help: the server is unreachable or starting, and does not refuse the login.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Full { .. } | Self::TimedOut { .. } => true,
            Self::Refused { .. } | Self::Pooler { .. } | Self::NoDatabase { .. } | Self::Schema(_) => false,
            Self::Database { source, .. } => Disposition::of(source) == Disposition::Retry,
        }
    }
}

/// Formats an error and its causes on one line.
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

/// Returns the innermost cause, because sqlx's outer texts ("error communicating with database") explain less.
fn problem(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(source) => source.to_string(),
        sqlx::Error::Database(source) => source.message().to_owned(),
        sqlx::Error::PoolTimedOut => "no answer in time".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, fmt};

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// A database error with this code and this message.
    #[derive(Debug)]
    struct Told(&'static str, &'static str);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.1)
        }
    }

    impl std::error::Error for Told {}

    impl DatabaseError for Told {
        fn message(&self) -> &str {
            self.1
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[test]
    fn a_pooler_that_shares_sessions_is_named_and_not_the_tables() {
        for (code, message) in [
            ("42P05", "prepared statement \"sqlx_s_1\" already exists"),
            ("26000", "prepared statement \"sqlx_s_2\" does not exist"),
        ] {
            let error = LedgerError::failed("looking for a job", Told(code, message).into_database());
            assert!(!error.is_about_tables() && !error.may_pass());
            let text = error.to_string();
            assert!(text.contains(message) && text.contains("pool_mode = session"), "{text}");
        }
        let refused = Told("08P01", "unsupported startup parameter: options").into_database();
        let url: DatabaseUrl = "postgres://u:canary@pooler:6432/d".parse().unwrap();
        let text = LedgerError::connecting(&url, refused).to_string();
        assert!(text.contains("ignore_startup_parameters") && !text.contains("canary"), "{text}");
    }

    impl Told {
        fn into_database(self) -> sqlx::Error {
            sqlx::Error::Database(Box::new(self))
        }
    }
}
