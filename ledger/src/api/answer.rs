//! Turns errors into answers. The database's message goes to the log; the answer names neither the database nor its user.

use tracing::{debug, warn};

use super::limits;
use crate::{
    LedgerError,
    disposition::Disposition,
    error::chain,
    problem::{Problem, ProblemKind},
};

/// The answer to a request: a value or a problem.
pub(super) type Answered<T> = Result<T, Problem>;

/// How the OpenAPI document describes the problems. Every path under `/v1` can answer with them.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "only the document needs it")]
pub(super) enum Refused {
    #[response(status = "4XX", content_type = "application/problem+json")]
    Caller(Problem),
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Problem),
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let problem = about(&error);
        match problem.kind {
            // The caller caused it, so it is not a warning.
            ProblemKind::BadRequest => debug!(cause = cause(&error), "request refused by the database"),
            kind => warn!(?kind, cause = cause(&error), "request failed"),
        }
        problem
    }
}

fn about(error: &LedgerError) -> Problem {
    let unavailable = |detail| {
        let next = "try again later; if it lasts, the operator should look at the server's log and at Postgres";
        Problem::new(ProblemKind::DatabaseUnavailable, "The ledger is not available", detail, next)
    };
    let unusable = || {
        let detail = "the ledger's tables do not fit this release of the server, or its role may not read them";
        let next =
            "the operator should compare the releases, run `gpufleet-ledger migrate`, and check the role's privileges";
        Problem::new(ProblemKind::TablesUnusable, "The ledger can't be read", detail, next)
    };
    match error {
        LedgerError::Unreachable { .. } => unavailable("the database can't be reached"),
        LedgerError::Refused { .. } => unavailable("the database refused the server's user"),
        LedgerError::NoDatabase { .. } => unavailable("the database does not exist"),
        LedgerError::Full { .. } => unavailable("all connections to the database are in use"),
        LedgerError::Pooler { .. } => unavailable("a connection pooler in front of the database shares sessions"),
        LedgerError::TimedOut { .. } => limits::too_slow(),
        LedgerError::Schema(_) => unusable(),
        LedgerError::Database { source, .. } if is_timeout(source) => limits::too_slow(),
        LedgerError::Database { source, .. } => match Disposition::of(source) {
            Disposition::Retry => unavailable("the connection to the database failed"),
            Disposition::Schema => unusable(),
            // The request's parameters are the only data in the query, so one of them is invalid.
            Disposition::BadData => Problem::new(
                ProblemKind::BadRequest,
                "The request has an invalid value",
                "the database can't represent one of the parameters",
                "use times between the years 1 and 9999, and texts without the character U+0000",
            ),
            Disposition::Defect => Problem::new(
                ProblemKind::Internal,
                "The server failed",
                "it has a defect",
                "the operator should report the message in the server's log",
            ),
        },
    }
}
/// Returns whether the server cancelled the statement (57014), after `statement_timeout` or because an administrator did.
fn is_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "57014")
}

/// Returns the cause of an error for the log, without the database's address.
pub(crate) fn cause(error: &LedgerError) -> String {
    match error {
        LedgerError::Unreachable { problem, .. } => format!("the database does not answer: {problem}"),
        LedgerError::Refused { problem, .. } => format!("the database refused the user: {problem}"),
        LedgerError::Full { problem, .. } => format!("the database has no free connection: {problem}"),
        LedgerError::NoDatabase { .. } => "the database does not exist".to_owned(),
        LedgerError::Pooler { problem, .. } => {
            format!("a connection pooler in front of the database shares sessions: {problem}")
        }
        LedgerError::Schema(_) | LedgerError::TimedOut { .. } | LedgerError::Database { .. } => chain(error),
    }
}

pub(super) async fn no_such_page() -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        "There is no such page",
        "the API has no page at this path",
        "see /openapi.json for the pages; the jobs are at /v1/jobs",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_an_answer_nor_the_log_names_the_database() {
        let url: crate::DatabaseUrl = "postgres://canary-user:canary@canary.example:5433/canary".parse().unwrap();
        let problem = || "connection refused".to_owned();
        for error in [
            LedgerError::Unreachable { url: url.clone(), problem: problem() },
            LedgerError::Refused { url: url.clone(), user: "canary".to_owned(), problem: problem() },
            LedgerError::Full { url: url.clone(), problem: problem() },
            LedgerError::NoDatabase { url, database: "canary".to_owned() },
        ] {
            assert!(!cause(&error).contains("canary"), "{}", cause(&error));
            let problem = about(&error);
            assert_eq!(problem.status, 503);
            assert!(!problem.to_string().contains("canary"), "{problem}");
        }
    }
}
