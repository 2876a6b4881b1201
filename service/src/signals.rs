//! Stops a program on a signal.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Returns a token that the first SIGTERM or Ctrl-C cancels. A second signal ends the process at once with exit code 0, so the program must
/// lose nothing by that.
pub fn stop() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        info!("stopping; finishing the work in progress");
        told.cancel();
        next().await;
        warn!("second signal; stopping at once");
        std::process::exit(0);
    });
    Ok(stop)
}
