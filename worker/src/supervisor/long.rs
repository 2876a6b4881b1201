//! Decides which jobs are expected to run long. In a pool with several executors, they are kept apart.

use std::time::Duration;

use super::footprints::Footprint;

/// Mean run time from which a program's jobs are long. If a job of ten seconds has to start again, its user hardly notices.
const MEAN_MIN: Duration = Duration::from_secs(10);
/// Time limit above which a job of an unknown program is long: the default limit, so the user has asked for more time.
const TIME_LIMIT_MAX: Duration = Duration::from_secs(600);

/// Returns whether a job is expected to run long. The mean time of the last jobs with its program decides. If it is unknown, the time limit
/// does that the job itself sets: a pool's default says nothing about the job.
pub(super) fn is_long(footprints: &[Footprint], time_limit: Option<Duration>) -> bool {
    let mean_us = footprints.iter().filter_map(|footprint| footprint.mean_us).max();
    match mean_us {
        Some(mean_us) => Duration::from_micros(mean_us.into()) >= MEAN_MIN,
        None => time_limit.is_some_and(|limit| limit > TIME_LIMIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_time_of_the_program_decides_and_then_the_jobs_own_time_limit() {
        let (short, long) = (Some(9_999_999), Some(10_000_000));
        for (means, limit_seconds, expected) in [
            (&[long][..], None, true),
            (&[short], None, false),
            (&[short], Some(3600), false),
            (&[long], Some(1), true),
            (&[short, long], None, true),
            (&[None, short], Some(3600), false),
            (&[None], None, false),
            (&[None], Some(600), false),
            (&[None], Some(601), true),
            (&[], Some(601), true),
        ] {
            let footprints: Vec<_> =
                means.iter().map(|mean_us| Footprint { bytes: 1, prints: false, mean_us: *mean_us }).collect();
            let limit = limit_seconds.map(Duration::from_secs);
            assert_eq!(is_long(&footprints, limit), expected, "{means:?}, {limit:?}");
        }
    }
}
