//! Jobs that occupy a device for a given time with a given amount of memory, but use no CPU.

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
    /// The device memory that the job asks for in addition to its output.
    pub bytes: u64,
}

impl Sleeper {
    pub fn job(&self) -> Job {
        let job = busy::for_millis(self.milliseconds).pool(self.pool.clone());
        if self.bytes > 0 { job.zeros("room", Dtype::U8, [self.bytes]) } else { job }
    }

    /// Checks that the job ran to its end and took its time.
    pub fn check(&self, result: &JobResult) -> anyhow::Result<()> {
        ensure!(busy::is_done(&result.outputs), "a sleeper was answered with {:?}", result.outputs);
        let slept_us = result.timings.kernel_us();
        ensure!(slept_us >= self.milliseconds * 1000, "a sleeper of {} ms took {slept_us} µs", self.milliseconds);
        Ok(())
    }
}
