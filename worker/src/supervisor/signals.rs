//! The signals that ask a worker to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The name of the next signal. Cancelling loses no signal.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// The name of the second signal. A worker that drains for another reason than a signal has had none: a service manager that stops it
    /// after `gpufleet workers drain` does not end the grace period.
    pub(super) async fn second(&mut self, had_first: bool) -> &'static str {
        if !had_first {
            let signal = self.next().await;
            info!(signal, "already draining, a second signal requeues running jobs");
        }
        self.next().await
    }
}
