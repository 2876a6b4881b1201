//! The database's URL and connection settings. The password in the URL is never printed.

use std::{fmt, str::FromStr, time::Duration};

use backon::ConstantBuilder;
use sqlx::postgres::PgConnectOptions;

/// The purpose of a connection, which determines its name and settings on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Record,
    Query,
    Serve,
    Migrate,
    Maintain,
}

/// A Postgres URL. `Display` and `Debug` leave the password out.
#[derive(Clone)]
pub struct DatabaseUrl {
    // Boxed to keep errors small, because they contain the URL.
    options: Box<PgConnectOptions>,
}

/// A text that is not a Postgres URL. The error omits the text, because it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the database URL {problem}; expected postgres://USER:PASSWORD@HOST:5432/DATABASE")]
pub struct InvalidDatabaseUrl {
    problem: String,
}

/// A statement that takes longer waits for a lock or for a failing server. The server gives up shortly before the client does, so that
/// an abandoned statement does not keep its locks.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(25);
/// A caller of the read API waits on the other side of a connection; a list that takes longer has a filter without an index.
pub(crate) const SERVED_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// A request waits this long for one of the pool's connections, or for the server to accept another.
pub(crate) const POOL_TIMEOUT: Duration = Duration::from_secs(3);
/// The client's deadline for a transaction or a query, because a frozen server keeps its connections open.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Opening a connection takes milliseconds in a local network and up to two seconds over a long distance.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection must answer a ping within this time; otherwise a new one is opened.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Attempts to connect to a full server, which starts a process for each refusal. Their pauses leave a fifth of the connect timeout for the
/// refusals themselves.
pub(crate) const FULL_RETRIES: ConstantBuilder =
    ConstantBuilder::new().with_delay(Duration::from_millis(250)).with_max_times(32);

/// Parameters that sqlx understands. It logs any other with its value, which might be a mistyped password.
const PARAMETERS: [&str; 17] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

impl DatabaseUrl {
    /// The connection options for `purpose`.
    pub(crate) fn options(&self, purpose: Purpose) -> PgConnectOptions {
        let options = PgConnectOptions::clone(&self.options).application_name(purpose.application_name());
        let timeout = match purpose {
            Purpose::Serve => SERVED_STATEMENT_TIMEOUT,
            _ => STATEMENT_TIMEOUT,
        };
        let timeout = format!("{}s", timeout.as_secs());
        match purpose {
            Purpose::Record => options.options([("statement_timeout", timeout.as_str())]),
            // A history query has many optional filters in one text. Planned for its actual values, each absent filter
            // vanishes and each present one finds its index; a generic plan would scan.
            Purpose::Query | Purpose::Serve => options.options([
                ("statement_timeout", timeout.as_str()),
                ("plan_cache_mode", "force_custom_plan"),
                ("default_transaction_read_only", "on"),
            ]),
            // A migration that moves rows, the build of an index and an archive may take long, so they have no time limit.
            Purpose::Migrate => options,
            // Notices tell of indexes that are not there, as they should be.
            Purpose::Maintain => options.options([("client_min_messages", "warning")]),
        }
    }

    /// The database's name; Postgres takes the user's when none is given.
    pub(crate) fn database(&self) -> &str {
        self.options.get_database().unwrap_or_else(|| self.options.get_username())
    }

    pub(crate) fn user(&self) -> &str {
        self.options.get_username()
    }
}

impl Purpose {
    const fn application_name(self) -> &'static str {
        match self {
            Self::Record => "gpufleet-ledger record",
            Self::Query => "gpufleet history",
            Self::Serve => "gpufleet-ledger serve",
            Self::Migrate => "gpufleet-ledger migrate",
            Self::Maintain => "gpufleet-ledger maintain",
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidDatabaseUrl> {
        let refuse = |problem: String| Err(InvalidDatabaseUrl { problem });
        let url = match url::Url::parse(text) {
            Ok(url) => url,
            Err(source) => return refuse(format!("is invalid ({source})")),
        };
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return refuse("does not begin with postgres://".to_owned());
        }
        let mut names = url.query_pairs().map(|(name, _)| name);
        if let Some(name) = names.find(|name| !PARAMETERS.contains(&name.as_ref()) && !name.starts_with("options")) {
            let name: String = name.chars().take(32).collect();
            return refuse(format!("has the parameter {name:?}, which is unknown"));
        }
        match PgConnectOptions::from_str(text) {
            Ok(options) => Ok(Self { options: Box::new(options) }),
            // sqlx quotes the value of a parameter that it can't read, and any of them may be the wrong one.
            Err(_) => refuse("has a parameter with an invalid value".to_owned()),
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.options.get_username())?;
        match self.options.get_socket() {
            Some(socket) => write!(f, "{}", socket.display())?,
            None => write!(f, "{}", self.options.get_host())?,
        }
        write!(f, ":{}/{}", self.options.get_port(), self.database())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_shows() {
        for text in [
            "postgres://ann:canary@db.example:5433/fleet",
            "postgres://ann@db.example:5433/fleet?password=canary",
            "postgresql://ann:canary@db.example:5433/fleet?sslmode=disable",
        ] {
            let url: DatabaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), "postgres://ann@db.example:5433/fleet");
            assert!(!format!("{url:?}").contains("canary"));
        }
        for text in [
            "canary",
            "http://ann:canary@db/fleet",
            "postgres://ann:canary@db:notaport/fleet",
            "postgres://ann@db/fleet?passwort=canary",
            "postgres://ann@db/fleet?sslmode=canary",
        ] {
            let error = text.parse::<DatabaseUrl>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }

    #[test]
    fn sessions_that_only_ask_are_read_only_and_bounded() {
        let url: DatabaseUrl = "postgres://ann@db/fleet".parse().unwrap();
        for (purpose, timeout) in [(Purpose::Query, "25s"), (Purpose::Serve, "10s")] {
            let options = url.options(purpose);
            let settings = options.get_options().unwrap();
            assert!(settings.contains("default_transaction_read_only=on"), "{settings}");
            assert!(settings.contains(&format!("statement_timeout={timeout}")), "{settings}");
        }
    }

    #[test]
    fn a_unix_socket_is_a_place_too() {
        let url: DatabaseUrl = "postgres://ann@localhost/fleet?host=/run/postgresql&port=5433".parse().unwrap();
        assert_eq!(url.to_string(), "postgres://ann@/run/postgresql:5433/fleet");
    }
}
