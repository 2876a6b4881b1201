//! A job's limits and requirements.

use serde::{Deserialize, Serialize};

use crate::bounds::ATTEMPTS_MAX;

/// Bounds that a producer sets on its job. For an absent one, the pool's default applies, or else the default here.
/// Workers cap limits by [`crate::bounds`], and refuse a limit that exceeds the pool's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Time on the device. When it is over, the worker kills the executor and the verdict is `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// Time in the queue. A job that starts later than this after its submission is `expired` instead, unless it may
    /// have started before. The submission is at the task's `submitted_ms`, else at the time in its UUIDv7 id, else at
    /// the message's AMQP timestamp. Without any of them, the time counts from the message's arrival at the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit_ms: Option<u64>,
    /// How many executors the job may lose before it is dead-lettered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// Device memory for all buffers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
}

impl Limits {
    /// Default time limit: ten minutes, which is long for one kernel and short for a person who forgot a limit.
    pub const TIME_LIMIT_MS_DEFAULT: u64 = 600_000;
    pub const ATTEMPTS_DEFAULT: u32 = 3;

    pub fn attempts_max(&self) -> u32 {
        self.attempts_max.unwrap_or(Self::ATTEMPTS_DEFAULT).clamp(1, ATTEMPTS_MAX)
    }
}

/// The properties that a device must have to run a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Requires {
    /// Major and minor, such as `[8, 0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability_min: Option<[u32; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_min: Option<u64>,
    /// A part of the device's name, such as `H200`; letter case does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}
