//! Decodes a message and begins to prepare its jobs. A job that needs no compiler, blob store or other worker is ready at once.

use std::sync::Arc;

use futures::FutureExt;
use gpufleet_schema::{DecodeError, Failure, FailureCode, Task, Verdict};

use super::{
    Supervisor,
    content::{Content, JobContent, RawMessage},
    envelope::Envelope,
    handle::Input,
    held::{HeldJob, HeldMessage},
};
use crate::{
    dispatcher::{Decoded, MessageNo, NewJob, Preparation, QueueLimit, Subject},
    failpoint::{self, Failpoint},
};

impl Supervisor {
    pub(super) fn decode(self: &Arc<Self>, message: MessageNo, raw: Arc<RawMessage>) -> Input {
        failpoint::reach(Failpoint::BeforeDecode);
        failpoint::reach(Failpoint::Handling);
        let body_bytes = raw.body.len();
        let encoding = raw.envelope.encoding().expect("the dispatcher has no message of an unknown encoding decoded");
        let content = match Content::decode(raw, encoding) {
            Ok(content) => Arc::new(content),
            Err(error) => return Input::Unreadable(message, Box::new(unreadable(&error))),
        };
        let jobs =
            (0..content.tasks().len()).map(|index| self.begin(JobContent { message: Arc::clone(&content), index }));
        let jobs = jobs.collect();
        let held = HeldMessage::Decoded(Arc::clone(&content));
        Input::Decoded(message, Decoded { is_list: content.is_list(), body_bytes, held, jobs })
    }

    /// Begins to prepare a job, and finishes if that needs no wait.
    fn begin(self: &Arc<Self>, job: JobContent) -> NewJob<HeldJob> {
        let (task, envelope) = (job.task(), job.envelope());
        let subject = Subject {
            job: task.job_id,
            labels: task.labels.clone(),
            submitted_ms: envelope.received.submission_ms(task, envelope.properties.timestamp),
            user: envelope.user.clone(),
        };
        let (attempts_max, limit) = (task.limits.attempts_max(), self.queue_limit(task, envelope));
        let mut preparing = Box::pin(Arc::clone(self).prepare(job));
        let (held, preparation) = match (&mut preparing).now_or_never() {
            Some(Ok(ready)) => {
                let (demand, reply_bytes) = (ready.demand, ready.reply_bytes);
                (HeldJob::Ready(ready), Preparation::Ready { demand, reply_bytes })
            }
            Some(Err(ending)) => (HeldJob::default(), Preparation::Ended(ending)),
            None => (HeldJob::Preparing(preparing), Preparation::Underway),
        };
        NewJob { held, subject, attempts_max, limit, preparation }
    }

    /// Returns the job's queue limit. A job that has lost an attempt, or may have, has none.
    fn queue_limit(&self, task: &Task<'_>, envelope: &Envelope) -> Option<QueueLimit> {
        if envelope.may_have_started() {
            return None;
        }
        // If the pool does not allow the limit, the preparation fails the job.
        let limit = self.pool_spec(envelope).times.queue_limit(&task.limits).ok().flatten()?;
        Some(envelope.received.queue_limit(limit, task, envelope.properties.timestamp))
    }
}

fn unreadable(error: &DecodeError) -> Failure {
    let code = match error {
        DecodeError::UnsupportedVersion { .. } => FailureCode::UnsupportedVersion,
        DecodeError::Empty | DecodeError::Malformed { .. } | DecodeError::TooMany { .. } => FailureCode::MalformedTask,
    };
    Failure::new(Verdict::User, code, error.to_string())
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Encoding;

    #[test]
    fn a_task_is_as_it_came_alone_or_in_a_list() {
        let task = |id: u32| {
            format!(
                r#"{{ "version": 1, "job_id": "0190a5b8-7c00-7000-8000-00000000000{id}", "program": {{"ptx": "],"}}, "new": [1e1] }}"#
            )
        };
        let list = format!("[{},\n {}]", task(1), task(2));
        for (body, expected) in [(task(1), vec![task(1)]), (list, vec![task(1), task(2)])] {
            assert_eq!(Encoding::Json.decode_tasks(body.as_bytes()).unwrap().len(), expected.len());
            let found = Encoding::Json.items(body.as_bytes());
            assert_eq!(found, expected.iter().map(|task| task.as_bytes()).collect::<Vec<_>>());
        }
    }
}
