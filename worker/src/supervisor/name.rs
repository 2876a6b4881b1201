//! Claims the worker's name on the broker, so that no two connected workers share one.
//!
//! Replies, the ledger, drain orders and the console tell workers apart by name alone. The claim is an exclusive queue, which the broker
//! deletes with the connection of its worker.

use std::time::Duration;

use gpufleet_schema::WorkerName;
use gpufleet_transport::Broker;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, error, warn};

use super::WorkerError;

/// Number of heartbeats within which the broker closes a dead worker's connection and so releases its name. The broker closes a silent
/// connection after two to three heartbeats.
const HEARTBEATS: u32 = 3;
/// Pause between two attempts to claim the name at the start.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval between two claims of a running worker. A claim ends with the connection, so a new connection needs a new one.
const INTERVAL: Duration = Duration::from_secs(10);
/// Number of failed claims in a row that prove that another worker has the name.
const REFUSALS: u32 = 12;

/// Claims the name. Fails if another worker still has it after [`HEARTBEATS`].
pub(super) async fn claim(broker: &Broker, worker: &WorkerName, heartbeat: Duration) -> Result<(), WorkerError> {
    let deadline = Instant::now() + heartbeat * HEARTBEATS;
    let mut is_told = false;
    loop {
        match broker.claim_name(worker).await {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() >= deadline => return Err(WorkerError::NameTaken(worker.clone())),
            Ok(false) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn!(%worker, "another worker with this name is connected, waiting for its end");
                }
            }
            Err(error) => {
                warn!(%error, "failed to check whether another worker has this name");
                return Ok(());
            }
        }
        sleep(PAUSE).await;
    }
}

/// Claims the name at intervals, because a claim ends with its connection.
pub(super) async fn keep(broker: Broker, worker: WorkerName) {
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refusals = 0;
    loop {
        interval.tick().await;
        match broker.claim_name(&worker).await {
            Ok(true) => refusals = 0,
            // The first failures may be due to a lost connection of this worker, which the broker has not noticed yet.
            Ok(false) => {
                refusals += 1;
                if refusals == REFUSALS {
                    error!(%worker, "another worker has taken this name, give each worker its own with --name");
                }
            }
            Err(error) => debug!(%error, "name not claimed"),
        }
    }
}
