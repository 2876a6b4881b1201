//! Reads samples of a device over time.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::ledger::{Ledger, ask};
use crate::LedgerError;

/// The device and the time span to read.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleFilter {
    pub worker: String,
    pub device: u32,
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
    /// At most [`SampleFilter::POINTS_MAX`].
    pub points: u32,
}

/// A device over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct DeviceSamples {
    /// Each point stands for this time.
    pub bucket_seconds: f64,
    /// The oldest first. There is none for a time without heartbeats.
    pub points: Vec<DeviceSample>,
}

/// A device in one span of time, by one or several heartbeats. Unknown values are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct DeviceSample {
    /// The beginning of the span.
    pub at: DateTime<Utc>,
    /// The most.
    pub jobs_running: Option<u32>,
    /// The most device memory that jobs of the worker declared.
    pub declared_bytes: u64,
    /// The most memory in use by all processes.
    pub memory_used_bytes: Option<u64>,
    /// The mean.
    pub utilization_percent: Option<f64>,
    /// The highest.
    pub temperature_celsius: Option<u32>,
    /// The mean.
    pub power_milliwatts: Option<f64>,
}

impl SampleFilter {
    /// The maximum number of points; enough for a chart on a wide screen.
    pub const POINTS_MAX: u32 = 500;
    /// The minimum time between two points, because a device has at most one sample in this time.
    const BUCKET_MIN: Duration = Duration::from_secs(5);

    /// Returns the length of a point's time span, chosen so that there are at most `points` points.
    fn bucket_seconds(&self) -> f64 {
        let span = (self.until - self.since).as_seconds_f64();
        let points = self.points.clamp(1, Self::POINTS_MAX);
        (span / f64::from(points)).ceil().max(Self::BUCKET_MIN.as_secs_f64())
    }
}

impl Ledger {
    /// Returns the samples of a device in a time span, gathered into points.
    pub async fn device_samples(&self, filter: &SampleFilter) -> Result<DeviceSamples, LedgerError> {
        let bucket_seconds = filter.bucket_seconds();
        let device = i32::try_from(filter.device).unwrap_or(-1);
        let mut lease = self.connection.lease().await?;
        let records = sqlx::query!(
            r#"/* queries::device_samples */
            select date_bin(make_interval(secs => $5), at, $3) as "at!", max(jobs_running) as jobs_running,
                   max(declared_bytes) as "declared_bytes!", max(memory_used_bytes) as memory_used_bytes,
                   avg(utilization_percent)::float8 as utilization_percent, max(temperature_celsius) as temperature_celsius,
                   avg(power_milliwatts)::float8 as power_milliwatts
            from device_samples
            where worker = $1 and device = $2 and at >= $3 and at < $4
            group by 1
            order by 1"#,
            filter.worker,
            device,
            filter.since,
            filter.until,
            bucket_seconds,
        );
        let records = ask("reading samples of a device", records.fetch_all(lease.connection())).await?;
        lease.keep();
        let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let points = records.into_iter().map(|record| DeviceSample {
            at: record.at,
            jobs_running: record.jobs_running.map(count),
            declared_bytes: record.declared_bytes.unsigned_abs(),
            memory_used_bytes: record.memory_used_bytes.map(i64::unsigned_abs),
            utilization_percent: record.utilization_percent,
            temperature_celsius: record.temperature_celsius.map(i32::unsigned_abs),
            power_milliwatts: record.power_milliwatts,
        });
        Ok(DeviceSamples { bucket_seconds, points: points.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_suffice_for_the_span() {
        let filter = |hours, points| SampleFilter {
            worker: String::new(),
            device: 0,
            since: DateTime::UNIX_EPOCH,
            until: DateTime::UNIX_EPOCH + chrono::TimeDelta::hours(hours),
            points,
        };
        for (hours, points, expected) in [(48, 480, 360.0), (48, 500, 346.0), (0, 500, 5.0), (1, 0, 3600.0)] {
            assert_eq!(filter(hours, points).bucket_seconds(), expected, "{hours} h, {points} points");
        }
    }
}
