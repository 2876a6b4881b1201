//! Jobs over an input in the blob store.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gpufleet::{
    Array, Fleet, Job, StoredArray,
    schema::{PoolName, Timings},
};
use gpufleet_tests::kernels;
use tokio::time::timeout;

const JOB_DEADLINE: Duration = Duration::from_secs(300);

/// Stores an array of this size in which every element has this value.
pub async fn store(client: &Fleet, mib: u32, value: f32) -> anyhow::Result<StoredArray> {
    let values = vec![value; (mib as usize) << 18];
    Ok(client.store(Array::from_slice(&values)).await?)
}

/// Returns a job that doubles the first element of an input, so that the transfer of the input is what is measured.
pub fn doubling(input: &StoredArray, pool: PoolName) -> Job {
    kernels::doubles_stored(input, 1).pool(pool)
}

/// Runs a [`doubling`] job over an input with this value, and checks the result.
pub async fn run(client: &Fleet, job: Job, value: f32) -> anyhow::Result<Timings> {
    let answer = async { anyhow::Ok(client.submit(job).await?.await?) };
    let result = timeout(JOB_DEADLINE, answer).await.context("a job was not answered in time")??;
    let found: Vec<f32> = result.output("y")?;
    ensure!(found == [2.0 * value], "the answer is {found:?} in place of {}", 2.0 * value);
    Ok(result.timings)
}
