//! Declares the worker's exchanges and bindings again every 30 s. If an operator deletes an exchange, the next process that declares it
//! binds only its own pools, and jobs of the others are refused although their workers run.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::Supervisor;

/// Some dozen requests each time.
const INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn keep(supervisor: Arc<Supervisor>) {
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and the start has just declared everything.
    interval.tick().await;
    loop {
        interval.tick().await;
        let pools = &supervisor.config.pools;
        for pool in pools {
            // While the broker is away, or a queue is being declared again by its subscriber, the next round does it.
            if let Err(error) = supervisor.broker.bind_again(&pool.name, pool.affinity).await {
                debug!(pool = %pool.name, %error, "bindings not declared again");
            }
        }
    }
}
