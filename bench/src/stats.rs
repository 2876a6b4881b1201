//! Statistics of durations, and of several rounds of a measurement.

use std::time::Duration;

use serde::Serialize;

/// One pass over all jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The time from the start of the first job to the last answer.
    pub took: Duration,
    /// The time of each job from the call that submits it until the caller has the answer.
    pub round_trips: Vec<Duration>,
}

/// A figure over several rounds: the median and the spread.
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

    /// Returns the round trip that this share of the jobs did not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        percentile(&self.round_trips, percent).as_secs_f64() * 1e3
    }
}

impl Spread {
    /// Summarizes figures of rounds; `None` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }

    /// Summarizes the figures of a benchmark's rounds, of which there is at least one.
    ///
    /// # Panics
    /// If there are no figures.
    pub fn of_rounds(figures: impl IntoIterator<Item = f64>) -> Self {
        Self::of(figures).expect("a benchmark has a round")
    }

    /// Returns the distance between the lowest and the highest figure, as a share of the median.
    pub fn relative(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Returns the smallest value that at least `percent` of the values do not exceed. It is always a measured value.
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
