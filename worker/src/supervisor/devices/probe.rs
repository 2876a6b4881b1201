//! Tests whether a device still computes: a kernel in a new executor writes one word.

use std::time::Duration;

use gpufleet_schema::{Arg, Block, Buffer, Data, Dtype, Grid, Launch, Program, Task};
use tokio_util::sync::CancellationToken;

use crate::{
    executor::{Executor, ExecutorJob, FinishedOutput},
    scheduler::PoolId,
};

const PTX: &str = include_str!("probe.ptx");
const ENTRY: &str = "gpufleet_probe";
const BUFFER: &str = "word";
/// The word that the kernel writes.
const WORD: u32 = 0x5eed_cafe;
/// Time limit of the probe kernel. A working device takes milliseconds; the rest is for a driver that loads its
/// compiler from a slow disk.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Runs the probe kernel. The error says why it failed.
pub(super) async fn passes(executor: &Executor) -> Result<(), String> {
    let task = task();
    let cancel = CancellationToken::new();
    let job = ExecutorJob {
        task: &task,
        pool: PoolId(0),
        program: None,
        compiled: None,
        time_limit: TIME_LIMIT,
        alone: true,
        progress: None,
        printout: None,
        cache_bytes_max: u64::MAX,
        blobs: None,
        cancel: &cancel,
    };
    let finished = executor.run(job).await.map_err(|error| format!("{error}"))?;
    let outputs = finished.outcome.map_err(|failure| failure.message)?;
    match outputs.first() {
        Some(FinishedOutput::Staged(output)) if *output.bytes == WORD.to_le_bytes() => Ok(()),
        _ => Err("the probe kernel returned a wrong value".to_owned()),
    }
}

fn task() -> Task<'static> {
    let launch = Launch {
        block: Block::Threads(vec![1]),
        args: vec![Arg::Buffer(BUFFER.to_owned())],
        ..Launch::new(ENTRY, Grid::Blocks(vec![1]))
    };
    Task {
        buffers: vec![Buffer::new(BUFFER, Dtype::U32, vec![1], Data::Zeros)],
        launches: vec![launch],
        outputs: vec![BUFFER.to_owned()],
        ..Task::new(Program::Ptx(PTX.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_a_valid_task() {
        task().check().unwrap();
        assert!(PTX.contains(&format!("entry {ENTRY}(")) && PTX.contains(&WORD.to_string()));
    }
}
