//! Classifies database errors. Only this module reads SQLSTATE codes.

/// How to react to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The server, the network or a concurrent transaction caused it: the same work may succeed later.
    Retry,
    /// The data caused it: the same work always fails.
    BadData,
    /// The tables do not match this program, or it lacks a privilege on them.
    Schema,
    /// This program caused it: it misread an answer or misused the library.
    Defect,
}

impl Disposition {
    pub fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => match error.code() {
                Some(code) => Self::of_sqlstate(&code),
                None => Self::Retry,
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Retry,
            sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => Self::BadData,
            sqlx::Error::TypeNotFound { .. } | sqlx::Error::Migrate(_) => Self::Schema,
            sqlx::Error::Configuration(_)
            | sqlx::Error::RowNotFound
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::AnyDriverError(_)
            | sqlx::Error::InvalidSavePointStatement
            | sqlx::Error::ConfigFile(_) => Self::Defect,
            // sqlx may add kinds. Retrying an unknown one is safe: it loses no data and logs the error.
            _ => Self::Retry,
        }
    }

    /// Classifies by the class of the code, which is its first two characters. Exceptions are named.
    fn of_sqlstate(code: &str) -> Self {
        match (code.get(..2).unwrap_or_default(), code) {
            // 40P01 deadlock detected, 40001 serialization failure.
            ("40", _) => Self::Retry,
            // Connection lost; 57P01 admin shutdown, 57P03 cannot connect now, 57014 statement timeout.
            ("08" | "57", _) => Self::Retry,
            // Disk full, out of memory, too many connections.
            ("53", _) => Self::Retry,
            // 55P03 lock not available, 55006 object in use.
            ("55", _) => Self::Retry,
            // A standby is read-only until it is promoted (25006); a transaction timed out idle (25P03).
            ("25", _) => Self::Retry,
            // An operator is changing a password or creating a role. At the start of the program these are errors instead.
            ("28" | "3D", _) => Self::Retry,
            // System error (58030 I/O error), internal error.
            ("58" | "XX", _) => Self::Retry,
            // Data exception, constraint violation, row to be written twice by one statement, row too large for an index.
            ("21" | "22" | "23" | "54", _) => Self::BadData,
            // 42P07 duplicate table: another session has just created it. 42P05 duplicate prepared statement: another client of a pooler
            // prepared it.
            ("42", "42P07" | "42P05") => Self::Retry,
            // Unknown table, column or function; no privilege.
            ("42" | "3F", _) => Self::Schema,
            _ => Self::Retry,
        }
    }

    /// Returns whether a concurrent transaction conflicted, so that an immediate retry may succeed.
    pub fn is_conflict(error: &sqlx::Error) -> bool {
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| matches!(&*code, "40P01" | "40001"))
    }

    /// Returns whether the statement gave up because it would have waited too long for a lock.
    pub fn is_lock_timeout(error: &sqlx::Error) -> bool {
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
    }

    /// Returns whether the database's disk is full or broken (53100 disk full, 58030 I/O error).
    pub fn is_about_disk(error: &sqlx::Error) -> bool {
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| matches!(&*code, "53100" | "58030"))
    }

    /// Returns whether a connection pooler causes the error. A pooler may give each transaction another session, or refuse the settings of a
    /// session. Then a client's prepared statements are missing in its next transaction, or exist in another client's.
    pub fn is_about_pooler(error: &sqlx::Error) -> bool {
        let Some(error) = error.as_database_error() else { return false };
        let code = error.code();
        matches!(code.as_deref(), Some("26000" | "42P05")) || error.message().contains("unsupported startup parameter")
    }

    /// Returns whether the server, the database or the user has reached its limit of connections.
    pub fn is_full(error: &sqlx::Error) -> bool {
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "53300")
    }
}

#[cfg(test)]
mod tests {
    use super::Disposition;

    #[test]
    fn each_known_code_has_its_disposition() {
        for (code, wanted) in [
            ("40P01", Disposition::Retry),
            ("40001", Disposition::Retry),
            ("57P01", Disposition::Retry),
            ("57014", Disposition::Retry),
            ("08006", Disposition::Retry),
            ("53100", Disposition::Retry),
            ("53300", Disposition::Retry),
            ("25006", Disposition::Retry),
            ("23514", Disposition::BadData),
            ("22P05", Disposition::BadData),
            ("22021", Disposition::BadData),
            ("54000", Disposition::BadData),
            ("42P05", Disposition::Retry),
            ("26000", Disposition::Retry),
            ("42P01", Disposition::Schema),
            ("42501", Disposition::Schema),
            ("99999", Disposition::Retry),
            ("", Disposition::Retry),
        ] {
            assert_eq!(Disposition::of_sqlstate(code), wanted, "{code}");
        }
    }
}
