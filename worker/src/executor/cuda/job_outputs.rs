//! Hands over the outputs of one job in pieces. After its kernels the job keeps its memory and waits until the supervisor has read them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    buffer::DeviceBuffer,
    ending::{StreamError, internal},
    preparation::LaunchPreparation,
    transfers::{Direction, Signal},
};
use crate::ipc::{FromExecutor, message::JobPlan};

/// Waits until the supervisor has read the outputs. Returns how long that took.
pub(super) fn leave(
    preparation: &LaunchPreparation<'_>,
    run: &JobPlan,
    blocks: &[DeviceBuffer],
) -> Result<Duration, StreamError> {
    if run.leaving.is_empty() {
        return Ok(Duration::ZERO);
    }
    let common = preparation.common;
    let started = Instant::now();
    let transfer = common.transfers.open(preparation.job, Direction::FromDevice, sources(run, blocks)?);
    common.waits.runs(preparation.job);
    common.say(&FromExecutor::Offers { job: preparation.job });
    let signal = transfer.wait();
    drop(transfer);
    common.waits.calls(preparation.job);
    match signal {
        Signal::Go => Ok(started.elapsed()),
        Signal::Release => Err(StreamError::Released),
    }
}

fn sources(run: &JobPlan, blocks: &[DeviceBuffer]) -> Result<HashMap<u32, DeviceBuffer>, StreamError> {
    let source = |index: &u32| match blocks.get(*index as usize) {
        Some(block) => Ok((*index, *block)),
        None => internal(format!("there is no buffer {index}")),
    };
    run.leaving.iter().map(source).collect()
}
