//! The clocks of this machine, the database and the workers. Deadlines and the times in the history compare them.
//!
//! The database is the reference: this machine reads its clock, and each heartbeat has the time of its worker beside that of the database. AMQP
//! has no clock of the broker.

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet_ledger::{WorkerRow, WorkerState};

use super::finding::Finding;

/// The database's clock, read between two readings of this machine's.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub before: DateTime<Utc>,
    pub database: DateTime<Utc>,
    pub after: DateTime<Utc>,
}

/// A heartbeat reaches the database within a few seconds.
const WARNED: TimeDelta = TimeDelta::seconds(5);
/// Job deadlines of minutes are wrong with such a clock.
const WRONG: TimeDelta = TimeDelta::seconds(60);
const SYNCHRONIZE: &str = "synchronize the clocks with NTP, such as chrony or systemd-timesyncd";

pub fn judge_all(client: &Result<Reading, String>, workers: Option<&[WorkerRow]>) -> Vec<Finding> {
    vec![judge_client(client), judge_workers(workers)]
}

fn judge_client(reading: &Result<Reading, String>) -> Finding {
    const CHECK: &str = "clock of this machine";
    match reading {
        Err(why) => Finding::skipped(CHECK, why.clone()),
        Ok(reading) => judge(CHECK, &[("this machine", reading.offset())]),
    }
}

fn judge_workers(workers: Option<&[WorkerRow]>) -> Finding {
    const CHECK: &str = "clocks of workers";
    let up = workers.into_iter().flatten().filter(|worker| worker.state() == WorkerState::Up);
    let offsets: Vec<_> = up.map(|worker| (worker.worker.as_str(), worker.last_seen_at - worker.heard_at)).collect();
    if offsets.is_empty() {
        return Finding::skipped(CHECK, "no heartbeat of a worker that is up is known");
    }
    judge(CHECK, &offsets)
}

/// Names the clock that is farthest from the database's.
fn judge(check: &str, offsets: &[(&str, TimeDelta)]) -> Finding {
    let farthest = offsets.iter().max_by_key(|(_, offset)| offset.abs());
    let Some((name, offset)) = farthest.filter(|(_, offset)| offset.abs() >= WARNED) else {
        return Finding::ok(check, "within 5 s of the database");
    };
    let direction = if *offset > TimeDelta::zero() { "ahead of" } else { "behind" };
    let seconds = std::time::Duration::from_secs(offset.num_seconds().unsigned_abs());
    let found = format!("{name} is {} {direction} the database", humantime::format_duration(seconds));
    let finding = if offset.abs() >= WRONG { Finding::error(check, found) } else { Finding::warning(check, found) };
    finding.fix(SYNCHRONIZE)
}

impl Reading {
    /// How far this machine is ahead of the database, at least: zero if the time of the query explains the difference.
    fn offset(&self) -> TimeDelta {
        if self.database < self.before {
            self.before - self.database
        } else if self.database > self.after {
            self.after - self.database
        } else {
            TimeDelta::zero()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::workers::tests::worker, finding::Status},
        *,
    };

    fn read(ahead: i64) -> Finding {
        let before = DateTime::<Utc>::UNIX_EPOCH;
        let database = before - TimeDelta::seconds(ahead);
        judge_client(&Ok(Reading { before, database, after: before + TimeDelta::seconds(1) }))
    }

    #[test]
    fn a_clock_may_differ_by_seconds_and_not_by_minutes() {
        assert_eq!(read(0).status, Status::Ok);
        assert_eq!(read(-1).status, Status::Ok);
        assert_eq!((read(7).status, read(-10).status), (Status::Warning, Status::Warning));
        assert_eq!(read(120).found, "this machine is 2m ahead of the database");
        assert_eq!(read(-121).found, "this machine is 2m behind the database");
        assert_eq!((read(120).status, read(-121).status), (Status::Error, Status::Error));
        assert_eq!(judge_client(&Err("no ledger".to_owned())).status, Status::Skipped);
    }

    #[test]
    fn the_worker_whose_clock_is_farthest_off_is_named() {
        let right = worker("right", 1, false);
        let mut wrong = worker("wrong", 1, false);
        wrong.last_seen_at = wrong.heard_at + TimeDelta::seconds(600);
        let finding = judge_workers(Some(&[right.clone(), wrong]));
        assert_eq!(finding.status, Status::Error);
        assert_eq!(finding.found, "wrong is 10m ahead of the database");
        assert_eq!(judge_workers(Some(&[])).status, Status::Skipped);
    }
}
