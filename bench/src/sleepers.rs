//! Work that takes a device's time and no processor's: one thread that looks at the device's clock and sleeps.

use anyhow::ensure;
use gpufleet::{
    Job, JobResult,
    schema::{Dtype, PoolName},
};

const CODE: &str = include_str!("sleepers.cu");
/// What the kernel writes when its time is over.
const DONE: u32 = 42;

/// A job of one pool.
#[derive(Debug, Clone)]
pub struct Sleeper {
    pub pool: PoolName,
    pub milliseconds: u64,
    /// Device memory that it asks for beside its output.
    pub bytes: u64,
}

impl Sleeper {
    pub fn job(&self) -> Job {
        let job = Job::source(CODE).zeros("done", Dtype::U32, [1]);
        let job = if self.bytes > 0 { job.zeros("room", Dtype::U8, [self.bytes]) } else { job };
        job.pool(self.pool.clone())
            .entry("sleeps")
            .blocks([1])
            .block([1])
            .arg_buffer("done")
            .arg(self.milliseconds * 1_000_000)
            .output("done")
    }

    /// Whether the job ran to its end, and for the time that it was to take.
    pub fn check(&self, result: &JobResult) -> anyhow::Result<()> {
        let done = result.output::<u32>("done")?;
        ensure!(done == [DONE], "a sleeper was answered with {done:?}");
        let slept_us = result.timings.kernel_us();
        ensure!(slept_us >= self.milliseconds * 1000, "a sleeper of {} ms took {slept_us} µs", self.milliseconds);
        Ok(())
    }
}
