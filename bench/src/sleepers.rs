//! Work that takes a device's time and no processor's, for so long and with so much of its memory.

use anyhow::ensure;
use gpufleet::{
    Job, JobResult,
    schema::{Dtype, PoolName},
};
use gpufleet_tests::busy;

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
        let job = busy::for_millis(self.milliseconds).pool(self.pool.clone());
        if self.bytes > 0 { job.zeros("room", Dtype::U8, [self.bytes]) } else { job }
    }

    /// Whether the job ran to its end, and for the time that it was to take.
    pub fn check(&self, result: &JobResult) -> anyhow::Result<()> {
        ensure!(busy::is_done(&result.outputs), "a sleeper was answered with {:?}", result.outputs);
        let slept_us = result.timings.kernel_us();
        ensure!(slept_us >= self.milliseconds * 1000, "a sleeper of {} ms took {slept_us} µs", self.milliseconds);
        Ok(())
    }
}
