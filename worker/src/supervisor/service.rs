//! Notifies systemd that the worker accepts jobs, that it is alive, and that it stops. Without systemd the notifications have no effect.

use std::sync::Arc;

use sd_notify::NotifyState;
use tracing::warn;

use super::handle::DispatcherHandle;

/// Reports that the worker accepts jobs.
pub(super) fn ready(worker: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("{worker} accepts jobs"))]);
}

/// Reports that the worker drains.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing running jobs")]);
}

/// Feeds systemd's watchdog, if enabled, at half of its interval, for as long as the dispatcher responds.
pub(super) async fn feed_watchdog(dispatcher: Arc<DispatcherHandle>) {
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    let mut interval = tokio::time::interval(patience / 2);
    loop {
        interval.tick().await;
        // If the dispatcher hangs, this waits forever, and the watchdog fires.
        dispatcher.snapshot().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "failed to notify the service manager");
    }
}
