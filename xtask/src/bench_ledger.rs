//! `cargo xtask bench-ledger`: runs the tests of the ledger's query plans and of its largest migration on tables with millions of rows.
//!
//! The checked numbers do not depend on the machine: buffers that queries read, and rows that a migration moves while others write. The
//! tests also print how long statistics take, so the build is optimised.

use gpufleet_local::setup::Part;

use crate::{
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Numbers of jobs over 24 months; the buffers of the first are the measure of the others
    #[arg(long, value_delimiter = ',', default_values_t = [2_000_000_u32, 10_000_000])]
    jobs: Vec<u32>,
    /// Attempts to migrate, beside a writer that gives up if it has to wait for a lock; 0 for none
    #[arg(long, default_value_t = 20_000_000)]
    attempts: u32,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    setup::ensure(&[Part::Services], &Terminal::new())?;
    let jobs: Vec<String> = options.jobs.iter().map(u32::to_string).collect();
    let plans = "plans::pages_and_jobs_are_read_within_their_buffers";
    test(plans, "GPUFLEET_TEST_PLANNED_JOBS", &jobs.join(",")).await?;
    if options.attempts > 0 {
        let migration = "migrating::attempts_move_to_the_months_of_their_jobs_while_a_recorder_writes";
        test(migration, "GPUFLEET_TEST_MIGRATED_ATTEMPTS", &options.attempts.to_string()).await?;
    }
    Ok(())
}

/// Runs one test of the ledger with this variable set, and shows its output.
async fn test(name: &str, variable: &str, value: &str) -> anyhow::Result<()> {
    let mut test = cargo(["test", "--release", "--package", "gpufleet-ledger", "--test", "postgres"]);
    test.args(["--", "--nocapture", "--exact", name]).env(variable, value);
    workspace::run(test).await
}
