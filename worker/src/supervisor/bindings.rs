//! Declares the worker's exchanges and bindings again every 30 s. If an operator deletes an exchange, the next process that declares it
//! binds only its own pools. The jobs of other pools would then be refused although those pools have workers.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::{Supervisor, task_queue::more_queues};

/// Interval between two declarations, each of which takes a few dozen requests.
const INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn keep(supervisor: Arc<Supervisor>) {
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate; at the start everything has just been declared.
    interval.tick().await;
    loop {
        interval.tick().await;
        let pools = &supervisor.config.pools;
        for pool in pools {
            // It fails while the broker is away or a subscriber declares a queue again. The next round then does it.
            if let Err(error) = supervisor.broker.bind_again(&pool.name, more_queues(pool)).await {
                debug!(pool = %pool.name, %error, "bindings not declared again");
            }
        }
    }
}
