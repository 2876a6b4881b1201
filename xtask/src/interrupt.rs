//! Ctrl-C and its relatives: whatever runs is stopped, waited for, and the exit code says why.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Somebody wants us to stop.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted(SignalKind);

impl std::error::Error for Interrupted {}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl Interrupted {
    /// As a shell reports a program that a signal ended.
    pub fn exit_code(self) -> ExitCode {
        u8::try_from(128 + self.0.as_raw_value()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

/// Ends with the first SIGINT, SIGTERM or SIGHUP. From the first call on these no longer end the process by themselves.
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

/// The work's result, unless somebody interrupts it; then the work is dropped where it stands.
pub async fn unless_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        result = work => result,
        interrupted = interrupted() => Err(interrupted.into()),
    }
}
