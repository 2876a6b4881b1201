//! Samples of devices over time, taken from heartbeats, and the daily partitions that hold them.

use chrono::{DateTime, Days, DurationRound as _, NaiveDate, TimeDelta, Utc};

use super::change::DeviceChange;

/// The minimum time between two samples of a device, however often its worker reports. Heartbeats come every ten seconds.
const EVERY: TimeDelta = TimeDelta::seconds(5);
/// How many days back samples are recorded. An older heartbeat waited for too long in the broker, or its worker's clock is wrong. The bound
/// keeps workers from creating arbitrary partitions.
const DAYS_BACK: u64 = 14;
/// How many days ahead partitions are created, so that a recorder needs no new one at midnight.
const DAYS_AHEAD: u64 = 1;

/// Identifies a sample: a device of a worker, and the time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) worker: String,
    pub(super) device: i32,
    pub(super) at: DateTime<Utc>,
}

/// The measurements of a device at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) jobs_running: Option<i64>,
    pub(super) declared_bytes: i64,
    pub(super) memory_used_bytes: Option<i64>,
    pub(super) utilization_percent: Option<i32>,
    pub(super) temperature_celsius: Option<i32>,
    pub(super) power_milliwatts: Option<i64>,
}

impl Key {
    /// Returns the key of a sample; `None` if the time is far from today.
    pub(super) fn of(worker: &str, device: i32, at: DateTime<Utc>, today: NaiveDate) -> Option<Self> {
        let (first, last) =
            (today.checked_sub_days(Days::new(DAYS_BACK))?, today.checked_add_days(Days::new(DAYS_AHEAD))?);
        let is_near = (first..=last).contains(&at.date_naive());
        is_near.then(|| Self {
            worker: worker.to_owned(),
            device,
            at: at.duration_trunc(EVERY).expect("chrono represents a time near today in nanoseconds"),
        })
    }

    pub(super) fn day(&self) -> NaiveDate {
        self.at.date_naive()
    }
}

impl Sample {
    pub(super) fn of(device: &DeviceChange, declared_bytes: i64) -> Self {
        Self {
            jobs_running: device.jobs_running,
            declared_bytes,
            memory_used_bytes: device.memory_used_bytes,
            utilization_percent: device.utilization.map(|(percent, _)| percent),
            temperature_celsius: device.temperature_celsius,
            power_milliwatts: device.power_milliwatts,
        }
    }
}

/// Returns the days that need a partition: those of these samples, today and tomorrow.
pub(super) fn days<'a>(samples: impl Iterator<Item = &'a Key>, today: NaiveDate) -> Vec<NaiveDate> {
    let mut days: Vec<NaiveDate> = samples.map(Key::day).collect();
    if !days.is_empty() {
        days.extend((0..=DAYS_AHEAD).filter_map(|ahead| today.checked_add_days(Days::new(ahead))));
    }
    days.sort_unstable();
    days.dedup();
    days
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_far_from_today_leaves_no_sample_and_others_one_in_five_seconds() {
        let today: NaiveDate = "2026-11-24".parse().unwrap();
        let key = |at: &str| Key::of("w1", 0, at.parse().unwrap(), today).map(|key| key.at.to_rfc3339());
        assert_eq!(key("2026-11-24T10:00:09.999Z").as_deref(), Some("2026-11-24T10:00:05+00:00"));
        assert!(key("2026-11-10T00:00:00Z").is_some() && key("2026-11-25T23:59:59Z").is_some());
        for far in ["2026-11-09T23:59:59Z", "2026-11-26T00:00:00Z", "1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z"] {
            assert_eq!(key(far), None, "{far}");
        }
    }

    #[test]
    fn the_partition_of_tomorrow_is_made_with_the_first_sample_of_a_day() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        let key = Key::of("w1", 0, "2026-11-20T00:00:00Z".parse().unwrap(), day("2026-11-24")).unwrap();
        assert_eq!(days([&key].into_iter(), day("2026-11-24")), ["2026-11-20", "2026-11-24", "2026-11-25"].map(day));
        assert_eq!(days([].into_iter(), day("2026-11-24")), []);
    }
}
