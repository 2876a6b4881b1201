//! The lease of a device by a host program. As long as it lasts, no executor is on the device, because a context takes some hundred
//! megabytes of a GPU, and a program has the whole device.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// Time limit for an executor without jobs to end by itself; after it, the executor is killed.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);

/// Tells the executors of a device whether a host program has it.
#[derive(Debug, Clone)]
pub(super) struct Leases(Arc<watch::Sender<bool>>);

/// The device is a host program's until this is dropped. Then its executors start again.
#[derive(Debug)]
pub(in crate::supervisor) struct DeviceLease(Leases);

impl Leases {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Has the executors leave the device.
    pub(super) fn begin(&self) -> DeviceLease {
        self.0.send_replace(true);
        DeviceLease(self.clone())
    }

    /// Waits until a host program has the device.
    pub(super) async fn leased(&self) {
        self.wait_for(true).await;
    }

    /// Waits until no host program has the device.
    pub(super) async fn free(&self) {
        self.wait_for(false).await;
    }

    async fn wait_for(&self, wanted: bool) {
        // `self` holds the sender, so the wait ends only with the wanted state.
        drop(self.0.subscribe().wait_for(|is_leased| *is_leased == wanted).await);
    }
}

impl Drop for DeviceLease {
    fn drop(&mut self) {
        self.0.0.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_device_is_leased_until_the_lease_is_dropped() {
        let leases = Leases::new();
        leases.free().await;
        let lease = leases.begin();
        leases.leased().await;
        assert!(poll!(std::pin::pin!(leases.free())).is_pending());
        drop(lease);
        leases.free().await;
        assert!(poll!(std::pin::pin!(leases.leased())).is_pending());
    }
}
