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

/// The server's limit for a statement. A slower statement waits for a lock or for a failing server. The limit is a little shorter than the
/// client's deadline, so that an abandoned statement does not keep its locks.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(25);
/// The server's limit for a statement of the read API, whose caller is waiting. A slower list has a filter without an index.
pub(crate) const SERVED_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request waits for one of the pool's connections, or for the server to accept another one.
pub(crate) const POOL_TIMEOUT: Duration = Duration::from_secs(3);
/// The client's deadline for a transaction or a query, because a frozen server keeps its connections open.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The deadline for opening a connection. It takes milliseconds in a local network, and up to two seconds over a long distance.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection must answer a ping within this time; otherwise a new one is opened.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The retries while the server has no free connection. A full server starts a process for each refusal. The pauses leave a fifth of the
/// connect timeout for the refusals themselves.
pub(crate) const FULL_RETRIES: ConstantBuilder =
    ConstantBuilder::new().with_delay(Duration::from_millis(250)).with_max_times(32);

/// The parameters that sqlx understands. It logs any other parameter with its value, which might be a mistyped password.
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
    /// Returns the connection options for `purpose`.
    pub(crate) fn options(&self, purpose: Purpose) -> PgConnectOptions {
        let options = PgConnectOptions::clone(&self.options).application_name(purpose.application_name());
        let timeout = match purpose {
            Purpose::Serve => SERVED_STATEMENT_TIMEOUT,
            _ => STATEMENT_TIMEOUT,
        };
        let timeout = format!("{}s", timeout.as_secs());
        match purpose {
            Purpose::Record => options.options([("statement_timeout", timeout.as_str())]),
            // A history query has many optional filters in one text. A plan for its actual values drops the absent filters and uses an
            // index for each present one; a generic plan would scan.
            Purpose::Query | Purpose::Serve => options.options([
                ("statement_timeout", timeout.as_str()),
                ("plan_cache_mode", "force_custom_plan"),
                ("default_transaction_read_only", "on"),
            ]),
            // A migration that moves rows, an index build and an archive may take long, so they have no time limit.
            Purpose::Migrate => options,
            // `drop index if exists` prints a notice for each absent index, which is the normal case.
            Purpose::Maintain => options.options([("client_min_messages", "warning")]),
        }
    }

    /// Returns the database's name. Without one in the URL, Postgres uses the user's name.
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
            // sqlx's error quotes the value of the invalid parameter, which may be a misplaced password.
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
