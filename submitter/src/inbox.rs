//! Who waits for which reply.
//!
//! A reply can come twice (the worker's acknowledgement was lost) or for a handle that was dropped. Both are dropped here and
//! counted: the first reply of a job is the only one that anybody sees.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use gpufleet_schema::{AttemptState, DecodeError, Encoding, JobId, Reply, Submitted};
use tokio::sync::oneshot;
use tracing::warn;

use crate::{
    output::{self, ReplyOutput},
    run_times::{JobKind, RunTimes},
    unreported::Unreported,
};

/// A reply and when it came. The outputs stand beside it, checked, or with what is wrong about them.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) reply: Reply<'static>,
    pub(crate) outputs: Result<Vec<(String, ReplyOutput)>, String>,
    pub(crate) at: Instant,
}

/// What a client has counted since it connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replies that reached their handle.
    pub replies: u64,
    /// Replies for a job that was answered before, or whose handle was dropped.
    pub replies_dropped: u64,
    /// Bodies on the reply queue that are no replies.
    pub replies_unreadable: u64,
}

/// The right to one job's reply. Dropping it gives up the wait, at whatever point of a submission that happens.
#[derive(Debug)]
pub(crate) struct Awaited {
    job_id: JobId,
    arrival: oneshot::Receiver<Arrived>,
    inbox: Arc<Inbox>,
}

/// The other end of an [`Awaited`].
#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Arrived>,
    /// What its run time tells something about.
    kind: Option<JobKind>,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<HashMap<JobId, Waiter>>,
    run_times: RunTimes,
    unreported: Arc<Unreported>,
    replies: AtomicU64,
    dropped: AtomicU64,
    unreadable: AtomicU64,
}

impl Inbox {
    /// Begins to wait. This comes before the publish, because the reply can be faster than the confirm. `None`: somebody already
    /// waits for this job.
    pub(crate) fn expect(self: &Arc<Self>, job_id: JobId, kind: Option<JobKind>) -> Option<Awaited> {
        let mut waiting = self.waiting();
        if waiting.get(&job_id).is_some_and(|waiter| !waiter.sender.is_closed()) {
            return None;
        }
        let (sender, arrival) = oneshot::channel();
        waiting.insert(job_id, Waiter { sender, kind });
        Some(Awaited { job_id, arrival, inbox: self.clone() })
    }

    /// Ends every wait: nothing will come any more.
    pub(crate) fn close(&self) {
        self.waiting().clear();
    }

    /// Hands the replies of one message to their handles. A reply without a job id answers a task that no worker could read; its message
    /// then has the task message's correlation id or message id, which is the job's id if that message carried one task.
    pub(crate) fn deliver(
        &self,
        encoding: Encoding,
        correlation_id: Option<&str>,
        body: &[u8],
    ) -> Result<(), DecodeError> {
        let replies = encoding.decode_replies(body).inspect_err(|_| self.count_unreadable())?;
        let at = Instant::now();
        for reply in replies.into_vec() {
            let job_id = reply.job_id.or_else(|| correlation_id?.parse().ok());
            // The waiter is taken out first: copying a large output happens outside the lock.
            let waiter = job_id.and_then(|job_id| self.waiting().remove(&job_id));
            // A worker that gives up on a message may not have been able to read what the job is.
            if let Some(job_id) = job_id.filter(|_| reply.state != AttemptState::Dead) {
                self.unreported.forget(job_id);
            }
            if waiter.is_none() && reply.job_id.is_none() {
                let reason = reply.failure.as_ref().map(|failure| failure.message.as_str());
                warn!(correlation_id, reason, "dropped a reply without a job id that matches no job");
            }
            if let Some(kind) = waiter.as_ref().and_then(|waiter| waiter.kind) {
                self.run_times.learn(kind, &reply);
            }
            self.count(waiter.is_some_and(|waiter| waiter.sender.send(arrived(reply, at)).is_ok()));
        }
        Ok(())
    }

    pub(crate) fn run_times(&self) -> &RunTimes {
        &self.run_times
    }

    /// Jobs that the ledger is told of unless their replies come first.
    pub(crate) fn unreported(&self) -> &Arc<Unreported> {
        &self.unreported
    }

    /// Leaves out the submissions whose jobs are answered already. Their handles still have to exist.
    pub(crate) fn unanswered(&self, mut submitted: Vec<Submitted>) -> Vec<Submitted> {
        let waiting = self.waiting();
        submitted.retain(|submitted| waiting.contains_key(&submitted.job.job_id));
        submitted
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            replies: self.replies.load(Ordering::Relaxed),
            replies_dropped: self.dropped.load(Ordering::Relaxed),
            replies_unreadable: self.unreadable.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, taken: bool) {
        let counter = if taken { &self.replies } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<JobId, Waiter>> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }
}

impl Awaited {
    pub(crate) fn job_id(&self) -> JobId {
        self.job_id
    }

    /// The reply, or `None` if none can come any more. Once it was given there is nothing more to come. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Arrived> {
        if self.arrival.is_terminated() { None } else { (&mut self.arrival).await.ok() }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.arrival.close();
        let mut waiting = self.inbox.waiting();
        // After this job was answered, somebody else may wait for it again: that wait is not ours to end.
        if waiting.get(&self.job_id).is_some_and(|waiter| waiter.sender.is_closed()) {
            waiting.remove(&self.job_id);
        }
    }
}

fn arrived(mut reply: Reply<'_>, at: Instant) -> Arrived {
    let outputs = output::checked(std::mem::take(&mut reply.outputs));
    Arrived { reply: reply.into_owned(), outputs, at }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Batch, Dtype, Inline, Output, Timings, VERSION};

    use super::*;

    fn reply(job_id: JobId, bytes: &[u8]) -> Reply<'static> {
        let data = Inline::from(bytes.to_vec());
        Reply {
            version: VERSION,
            job_id: Some(job_id),
            attempt: 1,
            state: AttemptState::Succeeded,
            failure: None,
            outputs: vec![Output { name: "y".to_owned(), dtype: Dtype::U8, shape: vec![2], data: data.into() }],
            timings: Timings::default(),
            ran_on: None,
            printf_output: None,
        }
    }

    /// The bytes of its first output.
    fn bytes(arrived: Arrived) -> Vec<u8> {
        match arrived.outputs.unwrap().remove(0) {
            (_, ReplyOutput::Array(array)) => array.into_bytes(),
            other => panic!("{other:?} is no array"),
        }
    }

    fn body(replies: Vec<Reply<'static>>) -> Vec<u8> {
        Encoding::MessagePack.encode_replies(&Batch::Many(replies)).unwrap()
    }

    #[tokio::test]
    async fn each_reply_of_a_message_reaches_its_own_handle() {
        let inbox = Arc::new(Inbox::default());
        let [first, second] = [JobId::new(), JobId::new()];
        let (mut first_wait, mut second_wait) =
            (inbox.expect(first, None).unwrap(), inbox.expect(second, None).unwrap());
        let message = body(vec![reply(second, &[3, 4]), reply(first, &[1, 2])]);
        inbox.deliver(Encoding::MessagePack, None, &message).unwrap();
        assert_eq!(bytes(first_wait.next().await.unwrap()), [1, 2]);
        assert_eq!(bytes(second_wait.next().await.unwrap()), [3, 4]);
        assert_eq!(inbox.counts().replies, 2);
    }

    #[tokio::test]
    async fn a_second_reply_and_an_unawaited_one_are_dropped_and_counted() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        assert!(inbox.expect(job_id, None).is_none(), "one handle a job");
        let message = body(vec![reply(job_id, &[1, 2]), reply(job_id, &[9, 9]), reply(JobId::new(), &[0, 0])]);
        inbox.deliver(Encoding::MessagePack, None, &message).unwrap();
        assert_eq!(bytes(awaited.next().await.unwrap()), [1, 2]);
        assert_eq!(inbox.counts(), Counts { replies: 1, replies_dropped: 2, replies_unreadable: 0 });
    }

    #[tokio::test]
    async fn a_reply_without_a_job_id_reaches_the_job_that_its_correlation_id_names() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        let unknown = body(vec![Reply { job_id: None, ..reply(job_id, &[1, 2]) }]);
        for correlation_id in [None, Some("no UUID"), Some(&*JobId::new().to_string())] {
            inbox.deliver(Encoding::MessagePack, correlation_id, &unknown).unwrap();
        }
        assert_eq!(inbox.counts(), Counts { replies: 0, replies_dropped: 3, replies_unreadable: 0 });
        inbox.deliver(Encoding::MessagePack, Some(&job_id.to_string()), &unknown).unwrap();
        assert_eq!(bytes(awaited.next().await.unwrap()), [1, 2]);
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_can_be_taken_up_again() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        drop(inbox.expect(job_id, None).unwrap());
        assert!(inbox.waiting().is_empty());
        let mut first = inbox.expect(job_id, None).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body(vec![reply(job_id, &[1, 2])])).unwrap();
        let second = inbox.expect(job_id, None).expect("the first wait has its reply");
        assert!(first.next().await.is_some());
        assert!(first.next().await.is_none(), "there is one reply");
        drop(first);
        assert!(inbox.expect(job_id, None).is_none(), "the second wait goes on");
        drop(second);
    }

    #[tokio::test]
    async fn outputs_that_contradict_their_shape_are_told_and_garbage_is_counted() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body(vec![reply(job_id, &[1])])).unwrap();
        assert!(awaited.next().await.unwrap().outputs.unwrap_err().contains("takes 2 bytes, but there are 1"));
        assert!(inbox.deliver(Encoding::Json, None, b"garbage").is_err());
        assert_eq!(inbox.counts().replies_unreadable, 1);
    }
}
