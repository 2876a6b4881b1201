//! Announces the classes of this worker's devices, so that other workers can forward jobs to it.
//!
//! One announcement of a class is enough for all its workers: each announces only classes that the log does not have, or has had for long.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{Announcement, Command, MessageId, Order, topology::Speaker};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Supervisor, clock::unix_ms};

/// The interval at which a worker checks the age of the announcement, plus up to as much jitter, so that workers that started together
/// don't repeat it together.
const LOOK_EVERY: Duration = Duration::from_secs(15 * 60);
/// The pause after the broker has not accepted an announcement.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Never ends by itself.
pub(super) async fn announce(supervisor: Arc<Supervisor>) {
    loop {
        let pause = match supervisor.announce_classes().await {
            true => {
                let jitter = RandomState::new().hash_one(()) % LOOK_EVERY.as_secs();
                LOOK_EVERY + Duration::from_secs(jitter)
            }
            false => AGAIN_AFTER,
        };
        sleep(pause).await;
    }
}

impl Supervisor {
    /// Announces this worker's classes if they are due. Returns whether all are announced.
    async fn announce_classes(&self) -> bool {
        let (announcement, now_ms) = (self.announcement(), unix_ms());
        if !self.orders.roster().is_due(&announcement, now_ms) {
            return true;
        }
        let classes = announcement.classes.len();
        let by = Some(self.config.name.to_string());
        let order = Order::new(now_ms, by, Command::Announce(announcement));
        match self.broker.order(&order, Speaker::Worker, MessageId::new()).await {
            Ok(()) => {
                info!(classes, "device classes announced");
                true
            }
            Err(error) => {
                warn!(%error, "device classes not announced, trying again");
                false
            }
        }
    }

    pub(super) fn announcement(&self) -> Announcement {
        let pools = self.config.pools.iter().map(|pool| pool.name.clone()).collect();
        Announcement { pools, classes: self.own_classes() }
    }
}
