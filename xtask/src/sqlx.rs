//! `cargo xtask sqlx`: describes the ledger's queries, so that builds need no database.
//!
//! The compiler checks the queries against the descriptions in `ledger/.sqlx`. sqlx's macros write them while the crate is compiled with
//! access to a database. This command starts a private one and applies the migrations as plain SQL, because the ledger's own `migrate` may
//! not compile at that moment.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use gpufleet_local::{Postgres, StateDir, setup::Part};
use tokio::process::Command;

use crate::{
    interrupt::unless_interrupted,
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Change nothing; fail if the descriptions are out of date
    #[arg(long)]
    pub check: bool,
}

const DATABASE: &str = "describe";
/// The SQL of sqlx's table of applied migrations, because one of our queries reads it.
const MIGRATIONS_TABLE: &str = "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
     installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL)";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let check = cargo(["check", "--package", "gpufleet-ledger", "--all-targets"]);
    compile(check, options).await
}

/// Runs a cargo command that compiles the ledger, and compares the descriptions that the macros write meanwhile.
pub async fn compile(command: Command, options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services], &terminal)?;
    let state = StateDir::ephemeral()?;
    let described = unless_interrupted(describe(command, &terminal, &state)).await;
    state.close().await?;
    let described = described?;
    let folder = workspace::root().join("ledger/.sqlx");
    if described == read_all(&folder)? {
        eprintln!("The descriptions of the ledger's {} queries are up to date.", described.len());
        return Ok(());
    }
    if options.check {
        bail!("{} is not what the queries and migrations give; run `cargo xtask sqlx`", folder.display());
    }
    write_all(&folder, &described)?;
    eprintln!("Described {} queries in {}.", described.len(), folder.display());
    Ok(())
}

/// Returns the descriptions by file name.
async fn describe(
    mut command: Command,
    terminal: &Terminal,
    state: &Arc<StateDir>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let prepare = async {
        let postgres = Postgres::start(state).await?;
        postgres.create_database(DATABASE).await?;
        postgres.psql(DATABASE, MIGRATIONS_TABLE).await?;
        for (name, migration) in read_all(&workspace::root().join("migrations"))? {
            postgres.psql(DATABASE, &migration).await.with_context(|| format!("failed to apply {name}"))?;
        }
        anyhow::Ok(postgres)
    };
    let postgres = terminal.steps().step_async("start a private Postgres and apply the migrations", prepare).await?;
    let scratch = tempfile::tempdir().context("failed to make a scratch folder")?;
    terminal.heading(&format!("cargo {}, with the ledger's queries against it", workspace::arguments(&command)));
    command
        .env("DATABASE_URL", postgres.url(DATABASE))
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", scratch.path());
    let compiled = workspace::run(command).await;
    postgres.stop().await?;
    compiled?;
    read_all(scratch.path())
}

/// Returns the contents of a folder's files by name; none if there is no folder.
fn read_all(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    if !folder.is_dir() {
        return Ok(BTreeMap::new());
    }
    let read = |path: PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        fs::read_to_string(&path).map(|text| (name, text)).with_context(|| format!("failed to read {}", path.display()))
    };
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    entries.map(|entry| read(entry?.path())).collect()
}

fn write_all(folder: &Path, files: &BTreeMap<String, String>) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for name in read_all(folder)?.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder.join(name)).with_context(|| format!("failed to remove {name}"))?;
    }
    for (name, text) in files {
        fs::write(folder.join(name), text).with_context(|| format!("failed to write {name}"))?;
    }
    Ok(())
}
