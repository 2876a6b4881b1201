//! Applies migrations, and checks that a database has the tables of this program.

use std::collections::BTreeMap;

use backon::Retryable as _;
use sqlx::{Connection, PgConnection, migrate::Migrator};
use tokio::time::timeout;

use crate::{
    DatabaseUrl, LedgerError,
    database::{CONNECT_TIMEOUT, FULL_RETRIES, Purpose},
    disposition::Disposition,
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// A database whose tables do not match this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaMismatch {
    #[error("the database has no ledger tables yet; create them with `gpufleet-ledger migrate`")]
    NotMigrated,
    #[error(
        "the ledger's tables have version {found}, but this program needs {needed}; upgrade them with `gpufleet-ledger migrate`"
    )]
    Older { found: i64, needed: i64 },
    #[error(
        "the ledger's tables have version {found}, but this program supports versions up to {known}; upgrade this program"
    )]
    Newer { found: i64, known: i64 },
    #[error(
        "migration {version} was changed after the database applied it; use the release that applied it, or restore the database"
    )]
    Changed { version: i64 },
    #[error(
        "migration {version} failed halfway; restore the database or repair it by hand, then run `gpufleet-ledger migrate`"
    )]
    Unfinished { version: i64 },
}

/// The versions of the tables before and after [`migrate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// 0 if no migration had been applied.
    pub from: i64,
    pub to: i64,
}

/// Returns the version of the tables that this program was built for.
pub fn version_needed() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Applies the missing migrations. Concurrent calls wait for each other. If cancelled, the finished migrations stay
/// applied.
pub async fn migrate(url: &DatabaseUrl) -> Result<Migrated, LedgerError> {
    let mut connection = connect(url, Purpose::Migrate).await?;
    let from = applied(&mut connection).await?.keys().max().copied().unwrap_or(0);
    MIGRATIONS.run(&mut connection).await.map_err(|error| read_migrate_error(error, from))?;
    // A failed close is harmless.
    connection.close().await.ok();
    Ok(Migrated { from, to: version_needed() })
}

/// Opens a connection. If the server has no free connection, waits for one.
pub(crate) async fn connect(url: &DatabaseUrl, purpose: Purpose) -> Result<PgConnection, LedgerError> {
    let options = url.options(purpose);
    let opened = (|| PgConnection::connect_with(&options)).retry(FULL_RETRIES).when(Disposition::is_full);
    match timeout(CONNECT_TIMEOUT, opened).await {
        Ok(opened) => opened.map_err(|error| LedgerError::connecting(url, error)),
        Err(_) => {
            let problem = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
            Err(LedgerError::Unreachable { url: url.clone(), problem })
        }
    }
}

/// Checks that the database's tables are exactly those of this program.
pub(crate) async fn check_version(connection: &mut PgConnection) -> Result<(), LedgerError> {
    let applied = applied(connection).await?;
    Ok(compare(&applied, &MIGRATIONS)?)
}

struct Applied {
    success: bool,
    checksum: Vec<u8>,
}

/// Returns the migrations that the database has applied, by version; none if it has no table of migrations.
async fn applied(connection: &mut PgConnection) -> Result<BTreeMap<i64, Applied>, LedgerError> {
    let rows = sqlx::query!("/* migrate::applied */ select version, success, checksum from _sqlx_migrations")
        .fetch_all(connection)
        .await;
    match rows {
        Ok(rows) => Ok(rows
            .into_iter()
            .map(|row| (row.version, Applied { success: row.success, checksum: row.checksum }))
            .collect()),
        // 42P01: the table does not exist.
        Err(error) if error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42P01")) => {
            Ok(BTreeMap::new())
        }
        Err(source) => Err(LedgerError::failed("reading the tables' version", source)),
    }
}

fn compare(applied: &BTreeMap<i64, Applied>, known: &Migrator) -> Result<(), SchemaMismatch> {
    let needed = known.iter().map(|migration| migration.version).max().unwrap_or(0);
    let Some(found) = applied.keys().max().copied() else { return Err(SchemaMismatch::NotMigrated) };
    if let Some((version, _)) = applied.iter().find(|(_, migration)| !migration.success) {
        return Err(SchemaMismatch::Unfinished { version: *version });
    }
    if found > needed {
        return Err(SchemaMismatch::Newer { found, known: needed });
    }
    for migration in known.iter() {
        match applied.get(&migration.version) {
            None => return Err(SchemaMismatch::Older { found, needed }),
            Some(applied) if *applied.checksum != *migration.checksum => {
                return Err(SchemaMismatch::Changed { version: migration.version });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn read_migrate_error(error: sqlx::migrate::MigrateError, found: i64) -> LedgerError {
    use sqlx::migrate::MigrateError;
    match error {
        MigrateError::VersionMissing(version) => {
            SchemaMismatch::Newer { found: found.max(version), known: version_needed() }.into()
        }
        MigrateError::VersionMismatch(version) => SchemaMismatch::Changed { version }.into(),
        MigrateError::Dirty(version) => SchemaMismatch::Unfinished { version }.into(),
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
            LedgerError::Database { operation: "applying migrations", source }
        }
        other => LedgerError::Database { operation: "applying migrations", source: sqlx::Error::from(other) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_to_upgrades_names_the_version_of_the_tables() {
        let guide = include_str!("../../docs/src/operate/upgrade.md");
        let needed = version_needed();
        let outdated = [
            format!("tables upgraded from=0 to={needed}"),
            SchemaMismatch::Older { found: needed - 1, needed }.to_string(),
            SchemaMismatch::Newer { found: needed + 1, known: needed }.to_string(),
        ];
        for text in outdated {
            let text = text.replace('`', "");
            assert!(guide.replace('`', "").contains(&text), "upgrade.md lacks {text:?}");
        }
    }

    #[test]
    fn migrations_are_numbered_without_gaps() {
        let versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=version_needed()).collect::<Vec<_>>());
    }
}
