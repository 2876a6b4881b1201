//! The signals that ask a worker to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// The signals SIGINT and SIGTERM.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal and returns its name. Cancelling loses no signal.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Waits for the second signal and returns its name. If the drain was not caused by a signal, the first signal does not count either:
    /// when a service manager stops a worker after `gpufleet workers drain`, that must not end the grace period.
    pub(super) async fn second(&mut self, had_first: bool) -> &'static str {
        if !had_first {
            let signal = self.next().await;
            info!(signal, "already draining, a second signal requeues running jobs");
        }
        self.next().await
    }
}
