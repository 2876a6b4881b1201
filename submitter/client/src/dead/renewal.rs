//! Turns the tasks of a dead letter into new jobs.

use std::collections::HashSet;

use gpufleet_schema::{
    Encoding, JobId, OneOrMany, Program, Task,
    bounds::{LABELS_MAX, MESSAGE_BYTES_MAX},
};

use super::DeadError;
use crate::submission::now_ms;

/// The label of a replayed job. Its value is the id of the dead-lettered job.
pub const REPLAY_LABEL: &str = "replay-of";

/// The tasks of a body as new jobs, without those that are `done`. `None` if the body contains no readable task.
pub(super) fn renewed<'a>(
    encoding: Encoding,
    body: &'a [u8],
    done: &HashSet<JobId>,
) -> Option<Result<OneOrMany<Task<'a>>, DeadError>> {
    let tasks = encoding.decode_tasks(body).ok().filter(|tasks| !tasks.is_empty())?;
    Some(match tasks {
        OneOrMany::Many(tasks) => {
            let open = tasks.into_iter().filter(|task| !done.contains(&task.job_id));
            open.map(renew).collect::<Result<_, _>>().map(OneOrMany::Many)
        }
        OneOrMany::One(task) if done.contains(&task.job_id) => Ok(OneOrMany::Many(Vec::new())),
        OneOrMany::One(task) => renew(task).map(OneOrMany::One),
    })
}

/// The body of the new jobs' message, if it is not too large.
pub(super) fn encode(encoding: Encoding, tasks: &OneOrMany<Task<'_>>) -> Result<Vec<u8>, DeadError> {
    let body = encoding.encode_tasks(tasks).expect("a task that was decoded can be encoded");
    if body.len() > MESSAGE_BYTES_MAX {
        return Err(DeadError::TooLarge { bytes: body.len() as u64 });
    }
    Ok(body)
}

/// Renews one task. It is checked here, because a worker would fail an invalid task and its contents would be lost.
fn renew(task: Task<'_>) -> Result<Task<'_>, DeadError> {
    let job_id = task.job_id;
    match task.program {
        Program::Session { .. } => return Err(DeadError::Session),
        Program::Host(_) => return Err(DeadError::HostProgram),
        _ => {}
    }
    let mut labels = task.labels;
    labels.insert(REPLAY_LABEL.to_owned(), job_id.to_string());
    if labels.len() > LABELS_MAX {
        return Err(DeadError::LabelsFull { job_id });
    }
    let task = Task { job_id: JobId::new(), labels, submitted_ms: Some(now_ms()), ..task };
    task.check().map_err(|source| DeadError::Invalid { job_id, source })?;
    Ok(task)
}
