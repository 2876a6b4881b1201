//! What is said about many durations, and about several rounds of the same measurement.

use std::time::Duration;

use serde::Serialize;

/// One pass over all jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// From the first job's start to the last one's answer.
    pub took: Duration,
    /// Of each job, from the call that submits it until its answer is in the caller's hands.
    pub round_trips: Vec<Duration>,
}

/// A figure over several rounds: the median, and how far the rounds lay apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Run {
    pub fn jobs_per_second(&self) -> f64 {
        self.round_trips.len() as f64 / self.took.as_secs_f64()
    }

    /// The round trip that this share of the jobs did not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        percentile(&self.round_trips, percent).as_secs_f64() * 1e3
    }
}

impl Spread {
    /// Of the rounds' figures; `None` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }

    /// Of the rounds of a benchmark, which has at least one.
    ///
    /// # Panics
    /// Without rounds.
    pub fn of_rounds(figures: impl IntoIterator<Item = f64>) -> Self {
        Self::of(figures).expect("a benchmark has a round")
    }

    /// How far the rounds lie apart, as a share of the median.
    pub fn relative(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// The smallest value that at least `percent` of the values do not exceed: always one that was measured.
pub fn percentile(values: &[Duration], percent: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(milliseconds: impl IntoIterator<Item = u64>, took: u64) -> Run {
        let round_trips = milliseconds.into_iter().map(Duration::from_millis).collect();
        Run { took: Duration::from_millis(took), round_trips }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let hundred = run((1..=100).rev(), 1000);
        assert_eq!((hundred.percentile_ms(50.0), hundred.percentile_ms(99.0)), (50.0, 99.0));
        assert_eq!((hundred.percentile_ms(0.0), hundred.percentile_ms(100.0)), (1.0, 100.0));
        let three = run([30, 10, 20], 1000);
        assert_eq!((three.percentile_ms(50.0), three.percentile_ms(99.0)), (20.0, 30.0));
    }

    #[test]
    fn the_rate_counts_all_jobs_over_the_whole_time() {
        assert_eq!(run([500; 10], 2000).jobs_per_second(), 5.0);
    }

    #[test]
    fn a_spread_tells_the_median_and_the_extremes() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).unwrap().relative(), 1.0);
        assert_eq!(Spread::of([]), None);
    }
}
