//! Announces the classes of this worker's devices, so that other workers can forward jobs to it.
//!
//! One announcement of a class is enough for all workers with such devices: each worker announces only classes whose announcement is
//! missing in the control stream, or old.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{Announcement, Command, MessageId, Order, topology::Speaker};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Supervisor, clock::unix_ms};

/// Minimum interval between checks of the announcement's age. Jitter of up to the same length is added, so that workers that started
/// together don't repeat it together.
const LOOK_EVERY: Duration = Duration::from_secs(15 * 60);
/// Pause after the broker has not accepted an announcement.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Announces this worker's classes whenever that is due; never returns.
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
    /// Announces this worker's classes if that is due. Returns `false` if the broker did not accept the announcement.
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
