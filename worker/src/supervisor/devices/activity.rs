//! Tracks the jobs on a device, and the share of time in which it was busy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::DeviceProgram;

use crate::{
    scheduler::PoolId,
    shared_state::{Locked, SharedState},
};

/// The activity of one device.
#[derive(Debug)]
pub(super) struct Activity {
    inner: SharedState<Inner>,
}

#[derive(Debug)]
struct Inner {
    pools: Vec<Use>,
    /// The host program that has the device.
    program: Option<(PoolId, DeviceProgram)>,
    /// The start of the current busy period, if there is one.
    busy_since: Option<Instant>,
    /// The busy time since the last query, without the current busy period.
    busy: Duration,
    looked: Instant,
}

/// The jobs, sessions and memory of one pool on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) jobs: u32,
    /// Open sessions.
    pub(super) sessions: u32,
    /// The memory that jobs declared and sessions take, in bytes.
    pub(super) bytes: u64,
    /// The part of `bytes` that sessions take.
    pub(super) session_bytes: u64,
}

/// Counts a job as running on the device until it is dropped.
#[derive(Debug)]
pub(in crate::supervisor) struct Presence {
    activity: Arc<Activity>,
    pool: PoolId,
    bytes: u64,
}

/// Counts a host program as running on the device until it is dropped. It keeps the device busy, as a job does.
#[derive(Debug)]
pub(in crate::supervisor) struct ProgramPresence(Presence);

/// Counts a session as open on the device until it is dropped. An idle session does not keep the device busy, so it tells the busy time.
#[derive(Debug)]
pub(in crate::supervisor) struct SessionPresence {
    activity: Arc<Activity>,
    pool: PoolId,
    bytes: u64,
}

impl Activity {
    pub(super) fn new(pools: usize) -> Arc<Self> {
        let inner = Inner {
            pools: vec![Use::default(); pools],
            program: None,
            busy_since: None,
            busy: Duration::ZERO,
            looked: Instant::now(),
        };
        Arc::new(Self { inner: SharedState::new(inner) })
    }

    pub(super) fn enter(self: &Arc<Self>, pool: PoolId, bytes: u64) -> Presence {
        self.inner().enter(pool, bytes, Instant::now());
        Presence { activity: Arc::clone(self), pool, bytes }
    }

    pub(super) fn open_session(self: &Arc<Self>, pool: PoolId, bytes: u64) -> SessionPresence {
        let mut inner = self.inner();
        let held = &mut inner.pools[pool.0 as usize];
        held.sessions += 1;
        held.bytes += bytes;
        held.session_bytes += bytes;
        drop(inner);
        SessionPresence { activity: Arc::clone(self), pool, bytes }
    }

    /// The program takes all of the device's memory.
    pub(super) fn run_program(self: &Arc<Self>, pool: PoolId, bytes: u64, program: DeviceProgram) -> ProgramPresence {
        self.inner().program = Some((pool, program));
        ProgramPresence(self.enter(pool, bytes))
    }

    /// Returns the host program that has the device, if it is the pool's.
    pub(super) fn program(&self, pool: PoolId) -> Option<DeviceProgram> {
        self.inner().program.as_ref().filter(|(of, _)| *of == pool).map(|(_, program)| program.clone())
    }

    /// Returns the jobs and memory of each pool.
    pub(super) fn pools(&self) -> Vec<Use> {
        self.inner().pools.clone()
    }

    /// Returns the percentage of the time since the last call in which a job was on the device, or `None` if no time has passed.
    pub(super) fn busy_percent(&self) -> Option<u32> {
        self.inner().busy_percent(Instant::now())
    }

    fn inner(&self) -> Locked<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn enter(&mut self, pool: PoolId, bytes: u64, now: Instant) {
        let held = &mut self.pools[pool.0 as usize];
        held.jobs += 1;
        held.bytes += bytes;
        self.busy_since.get_or_insert(now);
    }

    fn leave(&mut self, pool: PoolId, bytes: u64, now: Instant) {
        let held = &mut self.pools[pool.0 as usize];
        held.jobs -= 1;
        held.bytes -= bytes;
        if self.pools.iter().all(|held| held.jobs == 0) {
            let since = self.busy_since.take().expect("a job was running");
            self.busy += now - since;
        }
    }

    fn busy_percent(&mut self, now: Instant) -> Option<u32> {
        if let Some(since) = &mut self.busy_since {
            self.busy += now - std::mem::replace(since, now);
        }
        // What sessions tell may overlap with jobs, and come late.
        let span = now - self.looked;
        let busy = std::mem::take(&mut self.busy).min(span);
        self.looked = now;
        (!span.is_zero()).then(|| (busy.as_secs_f64() / span.as_secs_f64() * 100.0).round() as u32)
    }
}

impl SessionPresence {
    /// Adds time in which the device worked for the session.
    pub(in crate::supervisor) fn was_busy(&self, busy: Duration) {
        self.activity.inner().busy += busy;
    }
}

impl Drop for ProgramPresence {
    fn drop(&mut self) {
        self.0.activity.inner().program = None;
    }
}

impl Drop for SessionPresence {
    fn drop(&mut self) {
        let mut inner = self.activity.inner();
        let held = &mut inner.pools[self.pool.0 as usize];
        held.sessions -= 1;
        held.bytes -= self.bytes;
        held.session_bytes -= self.bytes;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.activity.inner().leave(self.pool, self.bytes, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_counts_in_which_any_job_is_there() {
        let activity = Activity::new(2);
        let mut inner = activity.inner();
        let start = inner.looked;
        let at = |seconds| start + Duration::from_secs(seconds);
        inner.enter(PoolId(0), 5, at(1));
        inner.enter(PoolId(1), 7, at(2));
        inner.leave(PoolId(0), 5, at(3));
        inner.leave(PoolId(1), 7, at(4));
        inner.enter(PoolId(0), 1, at(8));
        assert_eq!(inner.busy_percent(at(10)), Some(50));
        assert_eq!(inner.busy_percent(at(10)), None);
        assert_eq!(inner.busy_percent(at(20)), Some(100), "it is still there");
        inner.leave(PoolId(0), 1, at(20));
        assert_eq!(inner.busy_percent(at(30)), Some(0));
    }

    #[test]
    fn each_pool_has_its_own_jobs_and_bytes() {
        let activity = Activity::new(2);
        let first = activity.enter(PoolId(1), 10);
        let _second = activity.enter(PoolId(1), 5);
        drop(first);
        assert_eq!(activity.pools(), [Use::default(), Use { jobs: 1, bytes: 5, ..Use::default() }]);
    }

    #[test]
    fn a_host_program_is_a_job_with_a_name_until_it_ends() {
        let activity = Activity::new(2);
        let program = DeviceProgram { job_id: gpufleet_schema::JobId::new(), label: "python train.py".to_owned() };
        let running = activity.run_program(PoolId(1), 8, program.clone());
        assert_eq!((activity.program(PoolId(0)), activity.program(PoolId(1))), (None, Some(program)));
        assert_eq!(activity.pools()[1], Use { jobs: 1, bytes: 8, ..Use::default() });
        drop(running);
        assert_eq!((activity.program(PoolId(1)), activity.pools()[1]), (None, Use::default()));
    }

    #[test]
    fn a_session_is_busy_as_far_as_it_says() {
        let activity = Activity::new(1);
        let session = activity.open_session(PoolId(0), 8);
        assert_eq!(activity.pools(), [Use { jobs: 0, sessions: 1, bytes: 8, session_bytes: 8 }]);
        let start = activity.inner().looked;
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(activity.inner().busy_percent(at(10)), Some(0));
        session.was_busy(Duration::from_secs(5));
        assert_eq!(activity.inner().busy_percent(at(20)), Some(50));
        session.was_busy(Duration::from_secs(15));
        assert_eq!(activity.inner().busy_percent(at(30)), Some(100));
        drop(session);
        assert_eq!(activity.pools(), [Use::default()]);
    }
}
