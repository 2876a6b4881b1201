//! The progress of running jobs: from the broker to the thread that completes Python's futures.

use std::{future::pending, sync::Arc, time::Duration};

use gpufleet::{
    Fleet, ProgressError, ProgressUpdates,
    schema::{Count, JobId, PoolName, Printed, Progress},
};
use pyo3::{Bound, IntoPyObject as _, PyResult, Python, types::PyTuple};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::completions::Completions;

/// The time before a pool's progress is asked for again, because workers may have started meanwhile.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Receives the progress of this client's jobs in a pool until the connection is closed. Tells why it does not, and asks again unless the
/// broker's user may not. `asked` hears of the broker's first answer.
pub async fn follow(fleet: Fleet, pool: PoolName, completions: Arc<Completions>, asked: oneshot::Sender<()>) {
    let mut asked = Some(asked);
    let mut updates = loop {
        let answer = fleet.progress(&pool).await;
        if let Some(asked) = asked.take() {
            // An error means that the caller does not wait.
            _ = asked.send(());
        }
        match answer {
            Ok(updates) => break updates,
            Err(ProgressError::Closed) => return,
            Err(error) => {
                let is_final = matches!(error, ProgressError::Forbidden { .. });
                completions.not_followed(error);
                if is_final {
                    return;
                }
            }
        }
        sleep(ASK_AGAIN_AFTER).await;
    };
    // The task must not keep the connection open.
    drop(fleet);
    // All updates of a connection have the messages of all of its pools, so one task reads for the others.
    if completions.is_first_to_follow() {
        while let Some(progress) = updates.next().await {
            completions.progressed(progress);
        }
    } else {
        pending().await
    }
}

/// Returns the next progress of a job that any client may have submitted. `None` if there is none within this time.
pub async fn next_of(
    fleet: &Fleet,
    pool: &PoolName,
    job_id: JobId,
    within: Duration,
) -> Result<Option<Arc<Progress>>, ProgressError> {
    let mut updates: ProgressUpdates = fleet.progress_of(pool, job_id).await?;
    Ok(timeout(within, updates.next()).await.ok().flatten())
}

/// Returns a message as Python's class `Update` has it.
pub fn into_python<'py>(py: Python<'py>, progress: &Progress) -> PyResult<Bound<'py, PyTuple>> {
    let count = |count: Count| (count.done, count.total);
    (
        progress.job_id.to_string(),
        progress.attempt,
        progress.sequence,
        progress.at_ms,
        progress.started_ms,
        progress.stage.to_string(),
        progress.launches.map(count),
        progress.counter.map(count),
        progress.bytes.map(count),
        progress.printed.as_ref().map(|Printed { offset, text }| (*offset, text.as_str())),
    )
        .into_pyobject(py)
}
