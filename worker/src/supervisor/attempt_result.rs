//! The result of an attempt.

use gpufleet_schema::{KeptOutputs, PrintfOutput, RanOn, SessionUse, Timings};

use super::arrays::JobOutput;

/// The result of an attempt besides its ending.
#[derive(Debug, Default)]
pub(super) struct AttemptResult {
    pub(super) outputs: Vec<JobOutput>,
    /// The outputs that the task asks to keep.
    pub(super) kept: Option<KeptOutputs>,
    /// The text that its kernels printed, however it ended.
    pub(super) printed: Option<PrintfOutput>,
    pub(super) timings: Timings,
    pub(super) ran_on: Option<RanOn>,
    /// The time at which it went to an executor, if it did, in Unix milliseconds.
    pub(super) started_ms: Option<i64>,
    /// The device time that its pool is charged, in microseconds, if it was measured.
    pub(super) charged_us: Option<u64>,
    /// What a session did.
    pub(super) session: Option<SessionUse>,
}
