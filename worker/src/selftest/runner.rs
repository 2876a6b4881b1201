//! Runs tasks on a device, with a new executor after each loss.

use std::time::Duration;

use gpufleet_schema::{Failure, Task, Timings};
use tokio_util::sync::CancellationToken;

use crate::{
    executor::{DeviceInfo, Executor, ExecutorJob, ExecutorOptions, FinishedOutput, OutputBytes, RunError, StartError},
    scheduler::PoolId,
};

/// Time limit of a task: longer than any check takes on any device.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Runner {
    options: ExecutorOptions,
    executor: Executor,
}

/// The outcome of a task.
pub(super) enum Outcome {
    Done {
        outputs: Vec<OutputBytes>,
        timings: Timings,
    },
    Failed(Failure),
    /// The executor was lost.
    Lost(String),
}

impl Runner {
    pub(super) async fn start(options: ExecutorOptions) -> Result<Self, StartError> {
        let (executor, _) = Executor::start(options.clone()).await?;
        Ok(Self { options, executor })
    }

    pub(super) fn device(&self) -> &DeviceInfo {
        self.executor.device()
    }

    pub(super) async fn run(&self, task: &Task<'_>) -> Outcome {
        self.run_within(task, TIME_LIMIT).await
    }

    pub(super) async fn run_within(&self, task: &Task<'_>, time_limit: Duration) -> Outcome {
        let cancel = CancellationToken::new();
        match self
            .executor
            .run(ExecutorJob {
                task,
                pool: PoolId(0),
                program: None,
                compiled: None,
                time_limit,
                alone: false,
                progress: None,
                printout: None,
                cache_bytes_max: u64::MAX,
                blobs: None,
                cancel: &cancel,
            })
            .await
        {
            Ok(finished) => match finished.outcome {
                Ok(outputs) => {
                    // Without a blob store, all outputs are staged.
                    let outputs = outputs.into_iter().filter_map(FinishedOutput::staged).collect();
                    Outcome::Done { outputs, timings: finished.timings }
                }
                Err(failure) => Outcome::Failed(failure),
            },
            Err(RunError::Cancelled) => unreachable!("only this runner has the token"),
            Err(RunError::Lost { reason, .. }) => Outcome::Lost(reason),
        }
    }

    /// Starts another executor after the end of the previous one.
    pub(super) async fn replace(&mut self) -> Result<(), StartError> {
        self.executor.lost().await;
        self.executor = Executor::start(self.options.clone()).await?.0;
        Ok(())
    }
}
