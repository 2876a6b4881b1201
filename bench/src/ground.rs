//! The broker, the database and the fleets on which benchmarks run.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use gpufleet_local::{Lines, LocalFleet, LocalFleetBuilder, Services};

use crate::{
    cpu::{Part, Parts},
    machine::{self, Machine},
    programs,
};

/// Starts a broker and a database, on a machine that was looked at before.
pub async fn services() -> anyhow::Result<(Arc<Services>, Machine)> {
    programs::build()?;
    let load_before = machine::load();
    let services = Services::ephemeral().await?;
    let machine = Machine::look(machine::broker_version(&services).await?, load_before);
    Ok((services, machine))
}

/// Runs `measure` on a fleet of its own and ends that.
pub async fn on_fleet<T>(
    services: &Arc<Services>,
    builder: LocalFleetBuilder,
    measure: impl AsyncFnOnce(&LocalFleet) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let fleet = builder.on(services).start_with(&Lines).await?;
    let measured = measure(&fleet).await;
    let stopped = fleet.stop().await.context("stop the fleet");
    let measured = measured?;
    let forced = stopped?;
    ensure!(forced.is_empty(), "these did not stop by themselves: {}", forced.join(", "));
    Ok(measured)
}

/// The processes of a fleet, with its broker and database.
pub fn parts(fleet: &LocalFleet) -> Parts {
    let services = fleet.services();
    Parts::default()
        .with(Part::Broker, services.broker().pid())
        .with(Part::Postgres, services.postgres().pid())
        .with(Part::Ledger, fleet.ledger().map(|ledger| ledger.pid()))
        .with(Part::Supervisor, fleet.workers().iter().map(|worker| worker.pid()))
        .with_children(Part::Supervisor, Part::Executor)
}
