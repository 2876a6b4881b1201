//! Keeps a constant number of a pool's jobs in flight.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gpufleet::{Fleet, JobResult};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::sleepers::Sleeper;

/// The deadline of a job. A job that is not answered by then is lost, not slow.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// The jobs in flight.
#[derive(Debug)]
pub struct Flow {
    stop: CancellationToken,
    loops: JoinSet<anyhow::Result<Vec<Answer>>>,
}

/// The result of a job, and when it arrived.
#[derive(Debug, Clone)]
pub struct Answer {
    pub at: Instant,
    pub result: JobResult,
}

impl Flow {
    /// Starts `in_flight` loops. Each submits a job when its last one was answered.
    pub fn start(client: &Arc<Fleet>, sleeper: &Sleeper, in_flight: usize) -> Self {
        let stop = CancellationToken::new();
        let mut loops = JoinSet::new();
        for _ in 0..in_flight {
            loops.spawn(one_after_the_other(Arc::clone(client), sleeper.clone(), stop.clone()));
        }
        Self { stop, loops }
    }

    /// Waits for the jobs in flight, and returns all answers.
    pub async fn end(mut self) -> anyhow::Result<Vec<Answer>> {
        self.stop.cancel();
        let mut answers = Vec::new();
        while let Some(ended) = self.loops.join_next().await {
            answers.extend(ended.context("a loop panicked")??);
        }
        Ok(answers)
    }
}

async fn one_after_the_other(
    client: Arc<Fleet>,
    sleeper: Sleeper,
    stop: CancellationToken,
) -> anyhow::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    while !stop.is_cancelled() {
        let handle = client.submit(sleeper.job()).await.context("failed to submit a job")?;
        let result = timeout(ANSWER_DEADLINE, handle).await.context("a job was not answered")??;
        sleeper.check(&result)?;
        answers.push(Answer { at: Instant::now(), result });
    }
    Ok(answers)
}
