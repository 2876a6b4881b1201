//! Prepares a session: which devices it may use, with how much memory and for how long.

use std::time::Duration;

use gpufleet_schema::{FailureCode, Program, Requires};

use super::{
    Supervisor,
    content::JobContent,
    devices::WorkerDevice,
    prepared::{CompiledPrograms, Ready, Resolved},
    preparing::{resolved, user},
};
use crate::{
    config::{Allowance, SessionAllowance, TimeAllowances},
    dispatcher::Unfit,
    disposition::Ending,
    executor::ComputeMode,
    scheduler::{Allowed, Demand, SessionTerms},
};

/// Time limit of a session that sets none.
const TIME_LIMIT_DEFAULT: Duration = Duration::from_secs(3600);
/// Number of workers at which a session waits for memory before one reserves it.
const WAITS_BEFORE_INSISTING: u32 = 2;

impl Supervisor {
    /// Prepares a session. It needs no wait.
    pub(super) fn prepare_session(&self, job: JobContent) -> Result<Ready, Ending> {
        let resolved = Resolved::try_new(job, resolved)?;
        let job = resolved.borrow_owner();
        let (task, envelope) = (resolved.task(), job.envelope());
        let sessions = self.pool_spec(envelope).sessions;
        if job.message.is_list() {
            let one = "a session is a message of its own; publish each by itself".to_owned();
            return Err(user(FailureCode::InvalidTask, one));
        }
        if envelope.recipient(task.reply.as_ref(), envelope.reply_to().ok().flatten().as_ref()).is_none() {
            return Err(user(
                FailureCode::InvalidTask,
                "reply: missing; a session is offered to its client".to_owned(),
            ));
        }
        let time_limit = session_times(sessions, self.pool_spec(envelope).times).run_limit(&task.limits);
        let time_limit = time_limit.map_err(|too_long| user(FailureCode::Policy, too_long.to_string()))?;
        idle_limit(&task.program, sessions).map_err(|why| user(FailureCode::Policy, why))?;
        let allowed = self.allowed_sessions(&task.needs());
        if allowed.is_empty() {
            return Err(self.session_elsewhere(Unfit::NoDevice, task, envelope));
        }
        let lease = task.limits.memory_bytes_max.expect("the check wants it");
        let terms = SessionTerms {
            memory_permille: sessions.memory_permille,
            insists: envelope.forwarding.forwards >= WAITS_BEFORE_INSISTING,
            is_whole: false,
        };
        let may_use = self.devices.iter().filter(|device| allowed.has(device.id));
        let bytes = lease.saturating_add(may_use.map(WorkerDevice::session_overhead).max().unwrap_or(0));
        let demand = Demand {
            pool: envelope.pool_id,
            priority: envelope.priority,
            bytes,
            alone: false,
            prints: false,
            allowed,
            input: None,
            returnable: true,
            brief_us: None,
            is_long: false,
            session: Some(terms),
        };
        let programs = CompiledPrograms::default();
        Ok(Ready { resolved, needs_store: false, reply_bytes: 0, time_limit, demand, program: None, programs })
    }

    /// Returns the devices that a session or a host program may use. A device in exclusive mode belongs to its executor.
    pub(super) fn allowed_sessions(&self, requires: &Requires) -> Allowed {
        let allowed = self.allowed(requires);
        let shared = self.devices.iter().filter(|device| device.info.compute_mode == ComputeMode::Shared);
        shared.map(|device| device.id).filter(|device| allowed.has(*device)).collect()
    }
}

/// Returns the time limits of a session in a pool: those of the session settings, and the queue limits of the pool.
fn session_times(sessions: SessionAllowance, pool: TimeAllowances) -> TimeAllowances {
    let run = Allowance { default: Some(TIME_LIMIT_DEFAULT), max: Some(sessions.time_max) };
    TimeAllowances { run, ..pool }
}

/// Returns the idle limit of a session, or why its pool does not allow it.
pub(super) fn idle_limit(program: &Program<'_>, sessions: SessionAllowance) -> Result<Duration, String> {
    let Program::Session { idle_limit_ms: Some(asked_ms), .. } = program else { return Ok(sessions.idle_max) };
    let asked = Duration::from_millis(*asked_ms);
    if asked <= sessions.idle_max {
        return Ok(asked);
    }
    let (asked, most) = (humantime::format_duration(asked), humantime::format_duration(sessions.idle_max));
    Err(format!("the session asks for an idle limit of {asked}, but its pool allows at most {most}; lower the limit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: SessionAllowance = SessionAllowance {
        count: 1,
        memory_permille: 500,
        time_max: Duration::from_secs(7200),
        idle_max: Duration::from_secs(60),
    };

    #[test]
    fn a_session_has_the_idle_limit_that_it_asks_for_up_to_the_pools() {
        let asks = |idle_limit_ms| {
            let program = Program::Session { label: "x".to_owned(), idle_limit_ms };
            idle_limit(&program, ALLOWANCE)
        };
        assert_eq!(asks(None), Ok(Duration::from_secs(60)));
        assert_eq!(asks(Some(5000)), Ok(Duration::from_secs(5)));
        assert!(asks(Some(60_001)).unwrap_err().contains("at most 1m"));
    }
}
