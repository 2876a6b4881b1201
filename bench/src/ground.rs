//! Starts the broker, the database and the fleets of the benchmarks.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use gpufleet_local::{Lines, LocalFleet, LocalFleetBuilder, Services};

use crate::{
    machine::{self, Machine},
    programs,
    usage::{Part, Parts},
};

/// Describes the machine, then starts a broker and a database.
pub async fn services() -> anyhow::Result<(Arc<Services>, Machine)> {
    programs::build()?;
    let load_before = machine::load();
    let services = Services::ephemeral().await?;
    let machine = Machine::look(machine::broker_version(&services).await?, load_before);
    Ok((services, machine))
}

/// Runs `measure` on a new fleet, and stops the fleet.
pub async fn on_fleet<T>(
    services: &Arc<Services>,
    builder: LocalFleetBuilder,
    measure: impl AsyncFnOnce(&LocalFleet) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let fleet = builder.on(services).start_with(&Lines).await?;
    let measured = measure(&fleet).await;
    let stopped = fleet.stop().await.context("failed to stop the fleet");
    let measured = measured?;
    let forced = stopped?;
    ensure!(forced.is_empty(), "these did not stop by themselves: {}", forced.join(", "));
    Ok(measured)
}

/// Returns the processes of a fleet, of its broker and of its database.
pub fn parts(fleet: &LocalFleet) -> Parts {
    let services = fleet.services();
    Parts::default()
        .with(Part::Broker, services.broker().pid())
        .with(Part::Postgres, services.postgres().pid())
        .with(Part::Ledger, fleet.ledger().map(|ledger| ledger.pid()))
        .with(Part::Supervisor, fleet.workers().iter().map(|worker| worker.pid()))
        .with_children(Part::Supervisor, Part::Executor)
}
