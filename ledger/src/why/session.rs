//! Explains why a session waits: for a worker, for its turn or for memory. Neither shares nor jobs of its pool delay it.

use gpufleet_schema::{DeviceSessions, size::Size};

use super::{Reason, Situation};
use crate::{DeviceRow, WorkerRow};

impl Situation<'_> {
    /// Collects the reasons, most fundamental first.
    pub(super) fn session_reasons(&self) -> Vec<Reason> {
        let reasons = [
            ("no_consumer", self.no_session_consumer()),
            ("no_sessions", self.no_sessions()),
            ("lease_too_large", self.lease_too_large()),
            ("sessions_open", self.sessions_open()),
            ("memory", self.session_memory()),
        ];
        let found = reasons.into_iter().filter_map(|(reason, text)| Some(Reason::new(reason, text?)));
        let found: Vec<Reason> = found.collect();
        if found.is_empty() { vec![Reason::new("lease", self.no_obstacle())] } else { found }
    }

    /// Explains that no worker serves the pool, or that none of those with heartbeats reads the queue of sessions.
    fn no_session_consumer(&self) -> Option<String> {
        let pool = self.pool();
        match (self.workers().count(), self.takers().count()) {
            _ if self.has_consumers() == Some(true) => None,
            (0, _) => Some(format!(
                "no worker serves pool {pool}{}; to start one that takes sessions: \
                 gpufleet-worker run --pool {pool}:sessions=1",
                self.in_queue()
            )),
            (_, takers @ 1..) if self.has_consumers() == Some(false) => Some(format!(
                "no worker reads the queue of sessions of pool {pool}, although {takers} of its workers should; look at \
                 their logs"
            )),
            _ => None,
        }
    }

    fn no_sessions(&self) -> Option<String> {
        let takes_none = self.workers().next().is_some() && self.takers().next().is_none();
        let pool = self.pool();
        (takes_none && self.has_consumers() != Some(true)).then(|| {
            format!(
                "no worker of pool {pool} takes sessions; to allow them, set `sessions` when a worker starts: \
                 gpufleet-worker run --pool {pool}:sessions=1"
            )
        })
    }

    fn lease_too_large(&self) -> Option<String> {
        let asked = self.detail.job.lease_bytes?;
        let most = self.session_devices().map(|(_, sessions)| sessions.lease_bytes_max()).max()?;
        (asked > most).then(|| {
            format!(
                "it asks for {}, but a session of pool {} gets at most {} on any of its devices (pool option \
                 `session-memory`); cancel it and ask for less",
                Size(asked),
                self.pool(),
                Size(most)
            )
        })
    }

    fn sessions_open(&self) -> Option<String> {
        let (open, max) = self.sessions()?;
        let is_full = |worker: &WorkerRow| open_sessions(worker, self.pool()) >= worker.sessions_max(self.pool());
        self.takers().all(is_full).then(|| {
            format!(
                "{open} of {max} sessions of pool {} are open{}; the next one starts when one ends",
                self.pool(),
                self.in_queue()
            )
        })
    }

    fn session_memory(&self) -> Option<String> {
        let asked = self.detail.job.lease_bytes.filter(|_| self.lease_too_large().is_none())?;
        let free = self.lease_free()?;
        (asked > free).then(|| {
            format!(
                "it asks for {}; open sessions and running jobs leave at most {} for it on a device of pool {}",
                Size(asked),
                Size(free),
                self.pool()
            )
        })
    }

    /// What is known if nothing known keeps the session.
    fn no_obstacle(&self) -> String {
        if let Some(text) = self.just_submitted() {
            return text;
        }
        let pool = self.pool();
        let (Some((open, max)), Some(free)) = (self.sessions(), self.lease_free()) else {
            return format!(
                "it waits for a worker of pool {pool} that takes sessions and has a device in service; heartbeats name none"
            );
        };
        format!(
            "{open} of {max} sessions of pool {pool} are open{}, and up to {} are free on a device; it still waits if no \
             such device meets its requirements, or if other processes or other pools' guarantees have this memory",
            self.in_queue(),
            Size(free)
        )
    }

    /// Returns the workers that take sessions of the pool.
    fn takers(&self) -> impl Iterator<Item = &WorkerRow> {
        self.workers().filter(|worker| worker.sessions_max(self.pool()) > 0)
    }

    /// Returns whether a worker reads the queue of sessions; none if the broker was not asked.
    fn has_consumers(&self) -> Option<bool> {
        self.depth.map(|depth| depth.consumers > 0)
    }

    /// Returns the number of open sessions and of those that may be open; none if no worker takes any.
    fn sessions(&self) -> Option<(u32, u32)> {
        let sum = |(open, max), worker| {
            (open + open_sessions(worker, self.pool()), WorkerRow::sessions_max(worker, self.pool()) + max)
        };
        Some(self.takers().fold((0, 0), sum)).filter(|(_, max)| *max > 0)
    }

    /// Returns the devices in service on which the pool may have sessions.
    fn session_devices(&self) -> impl Iterator<Item = (&DeviceRow, DeviceSessions)> {
        let devices = self.takers().flat_map(|worker| &worker.devices);
        let in_service = devices.filter(|device| device.out_of_service.is_none());
        in_service.filter_map(|device| Some((device, sessions_on(device, self.pool())?)))
    }

    /// Returns the largest lease for which a device has room now.
    fn lease_free(&self) -> Option<u64> {
        let free = |(device, sessions): (&DeviceRow, DeviceSessions)| {
            let unused = super::memory_unused(device).saturating_sub(sessions.overhead_bytes);
            unused.min(sessions.lease_bytes_free())
        };
        self.session_devices().map(free).max()
    }

    /// Returns what else waits, as the end of a clause.
    fn in_queue(&self) -> String {
        match self.depth.map(|depth| depth.messages) {
            None | Some(0) => String::new(),
            Some(1) => ", and 1 session waits in its queue".to_owned(),
            Some(many) => format!(", and {many} sessions wait in its queue"),
        }
    }
}

fn sessions_on(device: &DeviceRow, pool: &str) -> Option<DeviceSessions> {
    device.pools.iter().find(|of| of.pool.as_str() == pool)?.sessions
}

fn open_sessions(worker: &WorkerRow, pool: &str) -> u32 {
    worker.devices.iter().filter_map(|device| sessions_on(device, pool)).map(|sessions| sessions.open).sum()
}
