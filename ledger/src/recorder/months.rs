//! Chooses the monthly partition of a job's row, and determines the partitions that must exist.

use std::collections::HashSet;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, Utc};
use gpufleet_schema::JobId;

use super::merge::Changes;
use crate::job_time::time_in_id;

/// How many months back partitions are created. A job may be recorded long after its submission, because events waited in the broker or
/// were replayed.
const MONTHS_BACK: u32 = 24;
/// How many days ahead partitions are created for jobs, because the clocks of producers may be ahead.
const DAYS_AHEAD: u64 = 40;
/// How many months ahead partitions are created in any case, so that they exist before the first job of the month.
const MONTHS_AHEAD: u32 = 2;

/// Returns whether the time in a job's id determines its partition. A time far from today does not, so that clients can't create arbitrary
/// partitions.
pub(super) fn is_keyed_by_id(job_id: JobId, today: NaiveDate) -> bool {
    time_in_id(job_id).is_some_and(|at| is_near(at.date_naive(), today))
}

/// Returns the time that becomes the key of a job whose id determines none: that of its first event, or now if that time is far off. So the
/// job is among the latest ones in a list.
pub(super) fn time_of_first_event(created_at: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    near(created_at, now.date_naive()).unwrap_or(now)
}

/// Returns the first days of the months in which these jobs may have rows, and of the next months.
pub(super) fn needed(changes: &Changes, today: NaiveDate) -> HashSet<NaiveDate> {
    let ahead = (0..=MONTHS_AHEAD).filter_map(|months| today.checked_add_months(Months::new(months)));
    let of_jobs = changes.jobs.iter().map(|(job_id, change)| match time_in_id(*job_id) {
        Some(at) if is_near(at.date_naive(), today) => at.date_naive(),
        _ => near(change.created_at, today).map_or(today, |at| at.date_naive()),
    });
    ahead.chain(of_jobs).map(first_of_month).collect()
}

pub(super) fn beginning(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// Returns the time if it is near enough to today that partitions are created for it.
pub(super) fn near(at: DateTime<Utc>, today: NaiveDate) -> Option<DateTime<Utc>> {
    Some(at).filter(|at| is_near(at.date_naive(), today))
}

fn is_near(day: NaiveDate, today: NaiveDate) -> bool {
    let first = today.checked_sub_months(Months::new(MONTHS_BACK));
    let last = today.checked_add_days(Days::new(DAYS_AHEAD));
    first.is_some_and(|first| day >= first) && last.is_some_and(|last| day <= last)
}

fn first_of_month(day: NaiveDate) -> NaiveDate {
    day.with_day(1).expect("every month has a first day")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn only_months_near_today_get_a_partition() {
        let today = day("2026-03-31");
        for near in ["2026-03-31", "2024-03-31", "2026-05-10", "2025-12-31"] {
            assert!(is_near(day(near), today), "{near}");
        }
        for far in ["1970-01-01", "2024-03-30", "2026-05-11", "2099-12-31"] {
            assert!(!is_near(day(far), today), "{far}");
        }
        assert_eq!(first_of_month(today), day("2026-03-01"));
    }

    #[test]
    fn the_next_two_months_are_created_ahead() {
        let made = needed(&Changes::default(), day("2025-11-30"));
        assert_eq!(made, ["2025-11-01", "2025-12-01", "2026-01-01"].map(day).into());
    }

    #[test]
    fn a_job_without_a_time_is_keyed_by_its_first_event_or_by_the_present() {
        let now: DateTime<Utc> = "2026-03-31T15:30:00Z".parse().unwrap();
        let time = |created: &str| time_of_first_event(beginning(day(created)), now);
        assert_eq!(time("2026-02-17"), beginning(day("2026-02-17")));
        assert_eq!(time("1970-01-01"), now, "not midnight");
    }
}
