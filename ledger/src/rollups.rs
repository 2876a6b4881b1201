//! Statistics of ended attempts: the counts and sums, and the dimensions that divide them.
//!
//! The recorder writes them ([`crate::recorder`]), and [`crate::Ledger::statistics`] reads them. Sums saturate, because one event with an
//! absurd number must not stop the others from being counted.

mod measures;
mod record;
mod stages;

use std::{fmt, str::FromStr};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

pub(crate) use measures::{Ended, Measures, Part, Sum};
pub(crate) use record::{RollupColumns, RollupRecord};
pub use stages::{Stage, Stages};

/// How long statistics of whole pools are kept by five minutes: a day, and some time to read it.
pub(crate) const FIVE_MINUTES_KEPT: TimeDelta = TimeDelta::hours(26);
/// How long statistics are kept by the hour, in days. Statistics by the day are kept forever.
pub(crate) const HOURS_KEPT_DAYS: i32 = 62;
/// The value that counts all values of an hour or day after the first [`VALUES_MAX`].
pub const OTHER: &str = "(other)";
/// The maximum number of values of one dimension in an hour or day of a pool. Producers choose kernels and labels, and must not be able to
/// fill the tables.
pub(crate) const VALUES_MAX: usize = 1000;

/// A dimension by which statistics are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dimension {
    Pool,
    Kernel,
    User,
    Worker,
    /// The model of the device.
    Device,
    /// A declared label key.
    Label(String),
}

/// A text that is not a [`Dimension`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is unknown; use pool, kernel, user, worker, device or label:KEY")]
pub struct UnknownDimension(String);

/// How much time a roll-up covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Grain {
    /// Only of whole pools, and only for a day.
    FiveMinutes,
    Hour,
    Day,
}

impl Dimension {
    /// Returns the value of the column `dimension`. It is empty for pools, because every row has its pool.
    pub(crate) fn column(&self) -> String {
        match self {
            Self::Pool => String::new(),
            Self::Kernel => "kernel".to_owned(),
            Self::User => "user".to_owned(),
            Self::Worker => "worker".to_owned(),
            Self::Device => "device".to_owned(),
            Self::Label(key) => format!("label:{key}"),
        }
    }
}

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, UnknownDimension> {
        match text {
            "pool" => Ok(Self::Pool),
            "kernel" => Ok(Self::Kernel),
            "user" => Ok(Self::User),
            "worker" => Ok(Self::Worker),
            "device" => Ok(Self::Device),
            _ => match text.strip_prefix("label:").filter(|key| !key.is_empty()) {
                Some(key) => Ok(Self::Label(key.to_owned())),
                None => Err(UnknownDimension(text.chars().take(64).collect())),
            },
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("pool"),
            other => f.write_str(&other.column()),
        }
    }
}

impl Grain {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FiveMinutes => "five_minutes",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Returns whether there are rows of this grain and dimension.
    pub(crate) fn has(self, dimension: &str) -> bool {
        self != Self::FiveMinutes || dimension.is_empty()
    }

    /// Returns the beginning of the five minutes, hour or day in UTC.
    pub(crate) fn begin(self, at: DateTime<Utc>) -> DateTime<Utc> {
        let span = match self {
            Self::FiveMinutes => TimeDelta::minutes(5),
            Self::Hour => TimeDelta::hours(1),
            Self::Day => TimeDelta::days(1),
        };
        at.duration_trunc(span).expect("chrono represents the time in nanoseconds or it was checked before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_parses_back() {
        for text in ["pool", "kernel", "user", "worker", "device", "label:team", "label:a:b"] {
            assert_eq!(text.parse::<Dimension>().unwrap().to_string(), text);
        }
        for text in ["", "label:", "kernels", "label"] {
            assert!(text.parse::<Dimension>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn spans_begin_in_utc() {
        let at: DateTime<Utc> = "2026-03-29T01:59:59.999Z".parse().unwrap();
        assert_eq!(Grain::FiveMinutes.begin(at).to_rfc3339(), "2026-03-29T01:55:00+00:00");
        assert_eq!(Grain::Hour.begin(at).to_rfc3339(), "2026-03-29T01:00:00+00:00");
        assert_eq!(Grain::Day.begin(at).to_rfc3339(), "2026-03-29T00:00:00+00:00");
    }
}
