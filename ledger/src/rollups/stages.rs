//! Distributions of the times of jobs' stages, as sketches with a relative error of at most 1 %.

use std::fmt;

use sketches_ddsketch::{Config, DDSketch};

/// A stage of a job's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From submission to the start on the device, without compiling and fetching.
    Queue,
    Compile,
    /// To the device and back.
    Copy,
    /// All launches together.
    Kernel,
    /// On the device.
    Total,
}

/// A sketch for each stage.
#[derive(Clone)]
pub struct Stages([DDSketch; Stage::ALL.len()]);

/// The maximum relative error of a percentile. An interpolation between two neighbouring values keeps this bound.
const ALPHA: f64 = 0.01;
/// The maximum number of bins of a sketch; enough for times from a microsecond to [`US_MAX`], so that no bins are ever merged.
const BINS_MAX: u32 = 2048;
/// The maximum time that is counted: a hundred years. Only a producer's wrong clock makes a longer time, in the queue.
const US_MAX: i64 = 100 * 365 * 24 * 3600 * 1_000_000;
/// The minimum of a value; smaller ones count as zero. This is the crate's default, which its decoder assumes.
const VALUE_MIN: f64 = 1e-9;
/// The format version, which is the first byte of an encoding. Each stage follows with its length as a little-endian `u32` and a sketch in
/// the format of DataDog's libraries; an empty sketch has length 0.
const VERSION: u8 = 1;
const LENGTH_BYTES: usize = size_of::<u32>();

impl Stage {
    pub const ALL: [Self; 5] = [Self::Queue, Self::Compile, Self::Copy, Self::Kernel, Self::Total];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Compile => "compile",
            Self::Copy => "copy",
            Self::Kernel => "kernel",
            Self::Total => "total",
        }
    }
}

impl Default for Stages {
    fn default() -> Self {
        Self(std::array::from_fn(|_| DDSketch::new(Config::new(ALPHA, BINS_MAX, VALUE_MIN))))
    }
}

impl Stages {
    pub(crate) fn add(&mut self, stage: Stage, us: i64) {
        self.0[stage as usize].add(us.min(US_MAX) as f64);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            mine.merge(others).expect("all sketches have the same configuration");
        }
    }

    /// Returns how many jobs have a time of this stage.
    pub fn count(&self, stage: Stage) -> u64 {
        self.0[stage as usize].count() as u64
    }

    pub fn max_us(&self, stage: Stage) -> Option<u64> {
        self.0[stage as usize].max().map(|us| us as u64)
    }

    /// Returns the time that this share of the jobs, 0 to 1, did not exceed. It is interpolated like Postgres's `percentile_cont`. `None`
    /// without jobs.
    pub fn percentile_us(&self, stage: Stage, share: f64) -> Option<u64> {
        let sketch = &self.0[stage as usize];
        let last = sketch.count().checked_sub(1)? as f64;
        let rank = share.clamp(0.0, 1.0) * last;
        let (below, above) = (value_at(sketch, rank.floor(), last)?, value_at(sketch, rank.ceil(), last)?);
        Some((below + (above - below) * rank.fract()).round() as u64)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for sketch in &self.0 {
            let encoded = if sketch.count() == 0 { Vec::new() } else { sketch.to_java_bytes() };
            let length = u32::try_from(encoded.len()).expect("a sketch has at most 2048 bins");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&encoded);
        }
        bytes
    }

    /// Decodes stages. `None` if a newer release wrote the bytes, or if they are no encoded stages.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, mut rest) = bytes.split_first()? else { return None };
        let mut stages = Self::default();
        for sketch in &mut stages.0 {
            let (length, others) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (encoded, others) = others.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            if !encoded.is_empty() {
                let decoded = DDSketch::from_java_bytes(encoded).ok()?;
                // The merge fails for a sketch of another accuracy.
                sketch.merge(&decoded).ok()?;
            }
            rest = others;
        }
        Some(stages)
    }
}

/// Returns the value of a rank from 0 to `last`. A sketch knows its minimum and maximum exactly.
fn value_at(sketch: &DDSketch, rank: f64, last: f64) -> Option<f64> {
    // A sketch rounds the rank down. The half keeps a rounding error of the quotient from changing the rank.
    let share = if rank >= last {
        1.0
    } else if rank <= 0.0 {
        0.0
    } else {
        (rank + 0.5) / last
    };
    // The estimate is the middle of a bin, so it may be outside the minimum and maximum.
    let value = sketch.quantile(share).expect("the share is between 0 and 1")?;
    Some(value.clamp(sketch.min()?, sketch.max()?))
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stages = f.debug_map();
        for stage in Stage::ALL {
            stages.entry(&stage.name(), &self.count(stage));
        }
        stages.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[i64]) -> Stages {
        let mut stages = Stages::default();
        values.iter().for_each(|us| stages.add(Stage::Kernel, *us));
        stages
    }

    /// Computes a percentile exactly as Postgres's `percentile_cont` does.
    fn exact(values: &[i64], share: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let rank = share * (sorted.len() - 1) as f64;
        let [below, above] = [rank.floor(), rank.ceil()].map(|rank| sorted[rank as usize] as f64);
        below + (above - below) * rank.fract()
    }

    proptest! {
        #[test]
        fn percentiles_are_within_two_percent_also_after_merging_and_encoding(
            parts in prop::collection::vec(prop::collection::vec(prop_oneof![0_i64..3, 1_i64..1_000_000_000_000], 1..60), 1..5),
        ) {
            let mut merged = Stages::default();
            for part in &parts {
                merged.merge(&Stages::decode(&of(part).encode()).unwrap());
            }
            let merged = Stages::decode(&merged.encode()).unwrap();
            let values = parts.concat();
            prop_assert_eq!(merged.count(Stage::Kernel), values.len() as u64);
            for share in [0.0, 0.5, 0.9, 0.95, 0.99, 1.0] {
                let (found, exact) = (merged.percentile_us(Stage::Kernel, share).unwrap() as f64, exact(&values, share));
                prop_assert!((found - exact).abs() <= 0.02 * exact + 0.5, "{}: {} instead of {}", share, found, exact);
            }
            let rising: Vec<u64> = [0.0, 0.5, 0.95, 0.99].map(|share| merged.percentile_us(Stage::Kernel, share).unwrap()).into();
            prop_assert!(rising.is_sorted() && rising[3] <= merged.max_us(Stage::Kernel).unwrap(), "{:?}", rising);
        }
    }

    #[test]
    fn no_percentile_is_beyond_the_longest_time() {
        for us in [1_000_003, 33_333, 7] {
            let stages = of(&[us; 100]);
            let found = [0.5, 0.95, 0.99].map(|share| stages.percentile_us(Stage::Kernel, share));
            assert_eq!((found, stages.max_us(Stage::Kernel)), ([Some(us as u64); 3], Some(us as u64)));
        }
    }

    #[test]
    fn stages_are_kept_apart_and_an_empty_one_has_no_percentile() {
        let mut stages = of(&[7]);
        stages.add(Stage::Total, i64::MAX);
        stages.add(Stage::Total, 1);
        let stages = Stages::decode(&stages.encode()).unwrap();
        assert_eq!(Stage::ALL.map(|stage| stages.count(stage)), [0, 0, 0, 1, 2]);
        assert_eq!(stages.percentile_us(Stage::Total, 0.0), Some(1));
        assert_eq!(stages.max_us(Stage::Total), Some(US_MAX as u64));
        assert_eq!(stages.percentile_us(Stage::Queue, 0.5), None);
        assert_eq!(stages.max_us(Stage::Kernel), Some(7));
    }

    #[test]
    fn an_encoding_of_another_version_or_a_damaged_one_is_refused() {
        let bytes = of(&[1, 2, 3]).encode();
        assert!(Stages::decode(&[]).is_none());
        assert!(Stages::decode(&bytes[..bytes.len() - 1]).is_none());
        assert!(Stages::decode(&[&[VERSION + 1], &bytes[1..]].concat()).is_none());
    }
}
