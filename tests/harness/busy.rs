//! Jobs that take a known time without using the processor: one thread polls the device's clock and sleeps.

use gpufleet::{Array, Job};
use gpufleet_schema::Dtype;

const WAITS: &str = include_str!("ptx/waits.ptx");
/// The value that the kernel writes at its end.
const DONE: u32 = 42;

pub fn for_millis(millis: u64) -> Job {
    Job::ptx(WAITS)
        .zeros("y", Dtype::U32, [1])
        .entry("waits")
        .blocks([1])
        .block([1])
        .arg_buffer("y")
        .arg(millis * 1_000_000)
        .output("y")
}

pub fn for_seconds(seconds: u64) -> Job {
    for_millis(seconds * 1000)
}

/// A job that is long enough to be seen running in the ledger, on a machine that runs all scenarios at once.
pub fn for_all_to_see() -> Job {
    for_seconds(12)
}

/// Whether the job ran to its end.
pub fn is_done(outputs: &[(String, Array)]) -> bool {
    matches!(outputs, [(name, array)] if name == "y" && array.to_vec::<u32>().is_ok_and(|values| values == [DONE]))
}

pub fn assert_done(outputs: &[(String, Array)]) {
    assert!(is_done(outputs), "the waiting job did not run to its end: {outputs:?}");
}
