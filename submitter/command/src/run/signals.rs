//! Signals while a command runs. A terminal sends Ctrl-C to the command too, so this process ignores it and waits for the command.

use std::{fs, future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals that end a command, unless this process was started with them ignored, as `nohup` does. The command inherits that.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on these signals do not end this process. In the command they have their usual effect.
    pub fn listen() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let all = [
            (Signal::INT, SignalKind::interrupt()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::HUP, SignalKind::hangup()),
        ];
        let wanted = all.into_iter().filter(|(_, kind)| !is_ignored(&status, kind.as_raw_value()));
        wanted.map(|(name, kind)| Ok((name, signal(kind)?))).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (name, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*name);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_counts_from_one() {
        let status = "Name:\tgpufleet\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored("", 1));
    }
}
