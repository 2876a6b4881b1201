//! Ports on the loopback interface: free ports for a new service, and the old port of a restarted service.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    error::{FileContext as _, LocalError},
    process::{self, POLL, Signal},
    state::StateDir,
};

/// First port that is tried. It is below Linux's ephemeral range (from 32768), so that no outgoing connection takes the
/// port of a service while it restarts.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;
/// Number of ports that are tried, far more than needed: the range has 12,000 ports.
const TRIES: u32 = 200;
/// Time limit for the port of a killed process. The kernel closes its sockets while it frees its memory, which takes a
/// moment for gigabytes.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(10);

/// A free port. Another process may take it before the caller does, so the caller must retry its start.
pub(crate) fn free() -> Result<u16, LocalError> {
    for _ in 0..TRIES {
        let random = RandomState::new().build_hasher().finish();
        let port = FIRST + u16::try_from(random % u64::from(LAST - FIRST)).expect("the remainder is below 12 000");
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(LocalError::NoPort { tries: TRIES })
}

/// The port of the earlier run, if there was one. An unreadable file is an error, because clients that know the old
/// port would not find the server at a new one.
pub(crate) fn recorded(record: &Path) -> Result<Option<u16>, LocalError> {
    match fs::read_to_string(record) {
        Ok(text) => text.parse().map(Some).map_err(io::Error::other).at("read", record),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("read", record),
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Frees a port that `service` used before, because the rest of the fleet still uses it. Kills a process of the fleet
/// that still listens there, such as the port mapper that RabbitMQ starts if it finds none. A process outside the fleet
/// is an error. `record` is the file that holds the port.
pub(crate) async fn reclaim(state: &StateDir, service: &str, port: u16, record: &Path) -> Result<(), LocalError> {
    let deadline = Instant::now() + RECLAIMED_WITHIN;
    while !is_free(port) {
        let listener = process::listener(port);
        let is_ours = listener.is_some_and(|listener| process::of_state(state.path()).contains(&listener));
        match listener {
            Some(leftover) if is_ours => leftover.signal(Signal::Kill),
            // The socket of an exiting process has no owner.
            None if Instant::now() < deadline => {}
            holder => {
                let (service, record) = (service.to_owned(), record.to_owned());
                let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.described());
                return Err(LocalError::PortTaken { service, port, holder, record });
            }
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
