//! Decides which work is brief: it costs less than handing it to another task, or than a message about it.

use std::time::Duration;

use gpufleet_schema::Task;

use super::footprints::Footprint;
use crate::scheduler::BRIEF_US_MAX;

/// Maximum size of brief work, in bytes.
pub(super) const BRIEF_BYTES: usize = 32 << 10;
/// Maximum number of launches of a job that rides in a train.
const LAUNCHES_MAX: usize = 16;
/// Minimum time limit of a job that rides in a train, which must be long against the time until a train is disbanded.
const TIME_LIMIT_MIN: Duration = Duration::from_secs(1);

/// Returns the expected run time of a job that may ride in a train, in microseconds. The last jobs with its program decide; a program that
/// has not run yet may take any time.
pub(super) fn brief_us(
    task: &Task<'_>,
    device_bytes: u64,
    footprints: &[Footprint],
    time_limit: Duration,
) -> Option<u32> {
    let is_small = device_bytes <= BRIEF_BYTES as u64 && task.launches.len() <= LAUNCHES_MAX;
    if !is_small || time_limit < TIME_LIMIT_MIN {
        return None;
    }
    let means = footprints.iter().map(|footprint| footprint.mean_us).collect::<Option<Vec<_>>>()?;
    means.into_iter().max().filter(|mean_us| *mean_us <= BRIEF_US_MAX)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Program;

    use super::*;

    #[test]
    fn only_a_small_job_of_a_program_that_is_known_as_brief_rides() {
        let task = Task::new(Program::Catalog("saxpy".into()));
        let of = |mean_us| Footprint { bytes: 1, prints: false, mean_us };
        let brief = |bytes, footprints: &[Footprint], limit| brief_us(&task, bytes, footprints, limit);
        assert_eq!(brief(100, &[of(Some(20)), of(Some(30))], TIME_LIMIT_MIN), Some(30));
        assert_eq!(brief(100, &[of(Some(20)), of(None)], TIME_LIMIT_MIN), None);
        assert_eq!(brief(100, &[of(Some(BRIEF_US_MAX + 1))], TIME_LIMIT_MIN), None);
        assert_eq!(brief(BRIEF_BYTES as u64 + 1, &[of(Some(20))], TIME_LIMIT_MIN), None);
        assert_eq!(brief(100, &[of(Some(20))], TIME_LIMIT_MIN / 2), None);
    }
}
