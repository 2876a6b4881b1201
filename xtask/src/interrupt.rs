//! Handles Ctrl-C and other signals: stops what runs, waits for its end, and exits with the signal's exit code.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// A signal that asked this process to stop.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted(SignalKind);

impl std::error::Error for Interrupted {}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl Interrupted {
    /// Returns the exit code that a shell reports for a program that this signal ended.
    pub fn exit_code(self) -> ExitCode {
        u8::try_from(128 + self.0.as_raw_value()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

/// Completes at the first SIGINT, SIGTERM or SIGHUP. From the first call on, these signals no longer end the process by
/// themselves.
pub async fn interrupted() -> Interrupted {
    let [int, term, hup] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let expected = "the runtime was built with signals";
    let (mut on_int, mut on_term, mut on_hup) =
        (signal(int).expect(expected), signal(term).expect(expected), signal(hup).expect(expected));
    tokio::select! {
        _ = on_int.recv() => Interrupted(int),
        _ = on_term.recv() => Interrupted(term),
        _ = on_hup.recv() => Interrupted(hup),
    }
}

/// Returns the result of the work. If a signal arrives first, drops the work and returns [`Interrupted`].
pub async fn unless_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        result = work => result,
        interrupted = interrupted() => Err(interrupted.into()),
    }
}
