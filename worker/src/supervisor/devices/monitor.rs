//! Reads NVML through a child process. A child that falls silent is killed and replaced, and its last readings are discarded.

use std::{
    collections::HashMap,
    io,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};
use tracing::warn;

use crate::{
    executor::{KillOnDrop, receive},
    nvml::{PERIOD, Reading},
    own_executable,
};

/// Time without a reading after which the child counts as hanging in a call that may never return.
const SILENT_AFTER: Duration = PERIOD.saturating_mul(4);
/// Pause before the first restart, doubled with each failed try. A broken library may work after a driver reset, but a missing one will
/// hardly appear.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// The latest readings of all devices.
#[derive(Debug, Clone)]
pub(in crate::supervisor) struct Monitor(watch::Receiver<Readings>);

#[derive(Debug, Default)]
struct Readings {
    by_uuid: HashMap<String, Reading>,
    at: Option<Instant>,
}

impl Monitor {
    /// Starts a child that reads through this library as long as the monitor exists. Without a library there are no readings.
    pub(in crate::supervisor) fn start(library: Option<String>, user: Option<String>) -> Self {
        let (readings, seen) = watch::channel(Readings::default());
        if let Some(library) = library {
            tokio::spawn(keep(library, user, readings));
        }
        Self(seen)
    }

    /// Returns the latest reading of a device, or `None` if it is too old.
    pub(super) fn reading(&self, uuid: &str) -> Option<Reading> {
        let readings = self.0.borrow();
        readings.at.filter(|at| at.elapsed() <= SILENT_AFTER)?;
        readings.by_uuid.get(uuid).cloned()
    }
}

async fn keep(library: String, user: Option<String>, readings: watch::Sender<Readings>) {
    let mut pause = PAUSE;
    loop {
        let ended = tokio::select! {
            ended = listen(&library, user.as_deref(), &readings) => ended,
            () = readings.closed() => return,
        };
        let reason = ended.unwrap_or_else(|error| error.to_string());
        let was_heard = readings.send_replace(Readings::default()).at.is_some();
        pause = if was_heard { PAUSE } else { pause };
        warn!(reason, seconds = pause.as_secs(), "no readings from NVML, trying again later");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Receives readings until they stop. Returns the reason.
async fn listen(library: &str, user: Option<&str>, readings: &watch::Sender<Readings>) -> io::Result<String> {
    let mut command = own_executable::command(None, "device-monitor");
    command.arg("--library").arg(library);
    if let Some(user) = user {
        command.arg("--user").arg(user);
    }
    let (child, mut incoming, _outgoing) = KillOnDrop::spawn(command, None).await?;
    loop {
        match timeout(SILENT_AFTER, receive::<Vec<Reading>>(&mut incoming)).await {
            Ok(Ok(Some(read))) => {
                let by_uuid = read.into_iter().map(|reading| (reading.uuid.clone(), reading)).collect();
                readings.send_replace(Readings { by_uuid, at: Some(Instant::now()) });
            }
            Ok(Ok(None) | Err(_)) => return Ok(child.end().await.describe()),
            // Do not wait for the child's end, because a call that hangs in the kernel survives a kill.
            Err(_) => return Ok(format!("no reading within {} s", SILENT_AFTER.as_secs())),
        }
    }
}
