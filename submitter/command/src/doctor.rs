//! `gpufleet doctor`: checks the parts of a fleet, and tells how to fix what is broken.
//!
//! Each part is examined in a file of its own, which separates what was seen, as plain data, from the findings about it. A part that can't be
//! examined is skipped with the reason, so one broken part does not hide the others.

use std::collections::BTreeSet;

use clap::Args;
use gpufleet::schema::PoolName;

use super::{
    complaint::Complaint,
    environment,
    exit::Exit,
    json,
    options::{BlobOptions, BrokerOptions, OutputOptions},
    source::SourceOptions,
    spec,
    waiting::Spinner,
};

mod blobs;
mod broker;
mod clock;
mod consumer_timeout;
mod finding;
mod ledger;
mod pools;
mod programs;
mod recorder;
mod sessions;
mod workers;

use finding::Diagnosis;

/// Check the broker, the ledger, the blob store, the workers and the clocks
///
/// Every finding is ok, a warning, an error, or skipped, and each problem has its fix. No message reaches a queue of the fleet. The checks
/// use a reply queue, which they delete, a small file in the blob store, and connections to the addresses of sessions.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", json::DOCTOR))]
pub struct Options {
    /// Pool that you submit to. Repeatable. Pools with workers or waiting jobs are checked anyway
    #[arg(long, value_name = "POOL", env = environment::POOL)]
    pool: Vec<PoolName>,
    /// Environment that you run host programs in (`gpufleet run --on-worker`). Repeatable
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Hold a message unacknowledged for this long, to see whether the broker's consumer_timeout is shorter. The broker checks once a
    /// minute, so add a minute [default: skip this check]
    #[arg(long, value_name = "DURATION", value_parser = spec::duration)]
    hold: Option<std::time::Duration>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    blobs: BlobOptions,
    #[command(flatten)]
    source: SourceOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet doctor
  gpufleet doctor --pool team-a --hold 32m
  gpufleet doctor --pool train --env torch
  gpufleet doctor -o json";

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let diagnosis = Spinner::new("checking the fleet").around(examine(options)).await;
    options.output.format.print(&diagnosis, Diagnosis::describe)?;
    Ok(if diagnosis.errors > 0 { Exit::Unhealthy } else { Exit::Success })
}

async fn examine(options: &Options) -> Diagnosis {
    let (ledger, blobs) = tokio::join!(
        Box::pin(ledger::examine(&options.source, &options.broker)),
        Box::pin(blobs::examine(&options.blobs, &options.broker))
    );
    let known = options.pool.iter().cloned().chain(ledger.pools()).collect::<BTreeSet<_>>();
    let broker = Box::pin(broker::examine(&options.broker, &known, options.hold)).await;
    let mut findings = broker.findings();
    findings.extend(ledger.findings());
    findings.extend(recorder::judge(&broker.events, ledger.progress.as_ref()));
    findings.push(blobs);
    findings.push(workers::judge(ledger.workers.as_ref()));
    findings.extend(sessions::examine(ledger.workers.as_ref()).await);
    findings.extend(pools::judge_all(&broker.pools, &known, ledger.workers.as_ref().ok().map(Vec::as_slice)));
    findings.extend(programs::judge_all(broker.pools.as_deref(), &options.env, ledger.workers.as_ref()));
    findings.extend(clock::judge_all(&ledger.clock, ledger.workers.as_ref().ok().map(Vec::as_slice)));
    Diagnosis::new(findings)
}
