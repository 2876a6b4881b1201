//! Hands each reply to the handle or the follower that waits for it.
//!
//! A reply can arrive twice, if the worker's acknowledgement was lost, or after its handle was dropped. The inbox drops
//! and counts such replies, so a handle sees only the first reply of its job. The inbox of a client with a name of its own
//! leaves replies that were not taken in the broker's queue: see [`Unread`].

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use gpufleet_schema::{AttemptState, DecodeError, Encoding, JobId, Submitted};
use gpufleet_transport::Acker;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::{
    JobError,
    arrived::{ArrivedReply, arrived, outcome},
    follower::{Awaited, ByFollower, Ended, GuardedFollower},
    offers::Offers,
    run_times::{JobKind, RunTimes},
    unread::{Settle, Unread},
    unreported::Unreported,
};

/// Replies that a client has received since it connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replies that the client handed to their handles.
    pub replies: u64,
    /// Replies to jobs that had a reply before, or whose handle was dropped.
    pub replies_dropped: u64,
    /// Messages in the reply queue that are not readable replies to this client's tasks.
    pub replies_unreadable: u64,
}

/// The reply to one job, before it has arrived. Dropping this ends the wait.
#[derive(Debug)]
pub(crate) struct PendingReply {
    job_id: JobId,
    arrival: oneshot::Receiver<Box<ArrivedReply>>,
    inbox: Arc<Inbox>,
}

/// A job whose reply is awaited.
#[derive(Debug)]
pub(crate) struct Waiter {
    sink: ReplySink,
    /// The kind of job whose run time the reply shows.
    kind: Option<JobKind>,
}

/// What takes a reply.
#[derive(Debug)]
enum ReplySink {
    /// The sender of a [`PendingReply`].
    Handle(oneshot::Sender<Box<ArrivedReply>>),
    Follower(Awaited),
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<HashMap<JobId, Waiter>>,
    offers: Arc<Offers>,
    run_times: RunTimes,
    unreported: Arc<Unreported>,
    /// Set for a client whose replies the broker keeps until they are taken.
    unread: Option<Mutex<Unread<Acker>>>,
    replies: AtomicU64,
    dropped: AtomicU64,
    unreadable: AtomicU64,
}

/// A message in the reply queue that carries one reply.
#[derive(Debug)]
pub(crate) struct SingleReply {
    job_id: JobId,
    /// The handle that gets it once the inbox holds its delivery, so that the program can have it acknowledged.
    handoff: Option<(Waiter, Box<ArrivedReply>)>,
}

impl Inbox {
    /// Creates the inbox of a client whose replies the broker keeps until they are taken.
    pub(crate) fn with_unread() -> Self {
        Self { unread: Some(Mutex::default()), ..Self::default() }
    }

    /// Starts to wait for the reply to a job. The caller publishes the job afterwards, because the reply can arrive
    /// before the confirm. Returns `None` if another wait for this job is open.
    pub(crate) fn expect(self: &Arc<Self>, job_id: JobId, kind: Option<JobKind>) -> Option<PendingReply> {
        let (sender, arrival) = oneshot::channel();
        let is_first = self.wait(job_id, Waiter { sink: ReplySink::Handle(sender), kind });
        is_first.then(|| PendingReply { job_id, arrival, inbox: self.clone() })
    }

    /// Starts to wait for the reply to a followed job. Returns false if another wait for this job is open.
    pub(crate) fn follow(&self, job_id: JobId, kind: Option<JobKind>, awaited: Awaited) -> bool {
        self.wait(job_id, Waiter { sink: ReplySink::Follower(awaited), kind })
    }

    fn wait(&self, job_id: JobId, waiter: Waiter) -> bool {
        match self.waiting().entry(job_id) {
            Entry::Occupied(entry) if entry.get().is_open() => return false,
            Entry::Occupied(mut entry) => _ = entry.insert(waiter),
            Entry::Vacant(entry) => _ = entry.insert(waiter),
        }
        true
    }

    /// Ends the wait of a follower. Returns false if the end of the job was already reported to it.
    pub(crate) fn unfollow(&self, job_id: JobId) -> bool {
        self.waiting().remove(&job_id).is_some()
    }

    /// Ends every open wait, because no more replies will arrive.
    pub(crate) fn close(&self) {
        self.offers.close();
        let waiting = std::mem::take(&mut *self.waiting());
        let mut ended = ByFollower::default();
        for (job_id, waiter) in waiting {
            if let ReplySink::Follower(Awaited { job, .. }) = waiter.sink {
                ended.push(job.follower, (job.token, Err(JobError::Closed { job_id })));
            }
        }
        ended.tell(GuardedFollower::ended);
    }

    /// Hands the replies of one message to their handles. A reply without a job id answers a task that the worker could
    /// not read. Its correlation id is then the correlation id or message id of the task message, which is the job's id
    /// if that message carried one task.
    pub(crate) fn deliver(
        &self,
        encoding: Encoding,
        correlation_id: Option<&str>,
        body: &[u8],
    ) -> Result<Option<SingleReply>, DecodeError> {
        let replies = encoding.decode_replies(body).inspect_err(|_| self.count_unreadable())?.into_vec();
        let (at, is_single) = (Instant::now(), replies.len() == 1);
        let (mut single, mut ended) = (None, ByFollower::default());
        for reply in replies {
            let job_id = reply.job_id.or_else(|| correlation_id?.parse().ok());
            // Removing the waiter first releases the lock before large outputs are copied.
            let waiter = job_id.and_then(|job_id| self.waiting().remove(&job_id));
            // A worker that dead-letters a message may have been unable to read the job, so its event may not describe
            // it.
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
            let handoff = waiter.zip(job_id).map(|(waiter, job_id)| (waiter, arrived(job_id, reply, at)));
            match job_id.filter(|_| is_single && self.unread.is_some()) {
                Some(job_id) => single = Some(SingleReply { job_id, handoff }),
                None => self.hand(handoff, &mut ended),
            }
        }
        ended.tell(GuardedFollower::ended);
        Ok(single)
    }

    /// Hands a reply to its handle, or adds it to the report for its follower.
    fn hand(&self, handoff: Option<(Waiter, Box<ArrivedReply>)>, ended: &mut ByFollower<(u64, Ended)>) {
        let taken = handoff.is_some_and(|(waiter, reply)| match waiter.sink {
            ReplySink::Handle(sender) => sender.send(reply).is_ok(),
            ReplySink::Follower(Awaited { job, submitted }) => {
                ended.push(job.follower, (job.token, outcome(reply, submitted)));
                true
            }
        });
        self.count(taken);
    }

    /// Settles a message of the reply queue after [`Inbox::deliver`].
    pub(crate) async fn settle(&self, single: Option<SingleReply>, acker: Acker) {
        let settle = match (&self.unread, single) {
            (Some(unread), Some(SingleReply { job_id, handoff })) => {
                let settle = {
                    let mut unread = locked(unread);
                    // A handle that was created after `deliver` looked has found no delivery to requeue.
                    let has_waiter = handoff.is_none() && self.waiting().contains_key(&job_id);
                    unread.arrived(job_id, acker, has_waiter)
                };
                let mut ended = ByFollower::default();
                self.hand(handoff, &mut ended);
                if !ended.is_empty() {
                    // A reply that is reported to a follower counts as taken.
                    self.take(job_id).await;
                }
                ended.tell(GuardedFollower::ended);
                settle
            }
            _ => Some(Settle::Acknowledge(acker)),
        };
        match settle {
            // The broker redelivers a message whose acknowledgement is lost, and the inbox drops it because its job is answered.
            Some(Settle::Acknowledge(acker)) => acker.begin_ack(),
            Some(Settle::Requeue(acker)) => {
                if let Err(error) = acker.requeue().await {
                    debug!(%error, "could not requeue a reply");
                }
            }
            None => {}
        }
    }

    /// Has the broker send the reply to a job again, if it came before a handle waited for it.
    pub(crate) async fn await_again(&self, job_id: JobId) {
        let Some(acker) = self.unread.as_ref().and_then(|unread| locked(unread).await_again(job_id)) else { return };
        if let Err(error) = acker.requeue().await {
            debug!(%error, "could not requeue a reply; the broker does so when the connection ends");
        }
    }

    /// Acknowledges the reply to a job, because the program has its result. If cancelled, the acknowledgement is sent nevertheless.
    pub(crate) async fn take(&self, job_id: JobId) {
        let Some(acker) = self.unread.as_ref().and_then(|unread| locked(unread).take(job_id)) else { return };
        let acknowledged = tokio::spawn(async move { acker.ack().await });
        if let Ok(Err(error)) = acknowledged.await {
            debug!(%error, "could not acknowledge a reply");
        }
    }

    /// Whether this process has taken the reply to a job.
    pub(crate) fn is_taken(&self, job_id: JobId) -> bool {
        self.unread.as_ref().is_some_and(|unread| locked(unread).is_taken(job_id))
    }

    /// The jobs with a reply that has arrived and that the program has not taken.
    pub(crate) fn unread(&self) -> Vec<JobId> {
        self.unread.as_ref().map(|unread| locked(unread).jobs()).unwrap_or_default()
    }

    /// Offers of sessions, which come to the same queue as replies.
    pub(crate) fn offers(&self) -> &Arc<Offers> {
        &self.offers
    }

    pub(crate) fn run_times(&self) -> &RunTimes {
        &self.run_times
    }

    /// Submissions that the client reports to the ledger unless the replies arrive first.
    pub(crate) fn unreported(&self) -> &Arc<Unreported> {
        &self.unreported
    }

    /// Drops the submissions whose jobs are answered already. The handles of all of the jobs must still exist.
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
        locked(&self.waiting)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this lock")
}

impl PendingReply {
    pub(crate) fn job_id(&self) -> JobId {
        self.job_id
    }

    /// The reply, or `None` if no reply can arrive any more; that includes a reply that was returned before. Cancelling
    /// the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Box<ArrivedReply>> {
        if self.arrival.is_terminated() { None } else { (&mut self.arrival).await.ok() }
    }

    /// Ends the wait, because the program has the result from elsewhere.
    pub(crate) async fn end(&mut self) {
        self.arrival.close();
        self.take().await;
    }

    /// Acknowledges the reply, because the program has its result: [`Inbox::take`].
    pub(crate) async fn take(&self) {
        self.inbox.take(self.job_id).await;
    }
}

impl Waiter {
    /// Whether something still awaits the reply.
    fn is_open(&self) -> bool {
        match &self.sink {
            ReplySink::Handle(sender) => !sender.is_closed(),
            ReplySink::Follower(_) => true,
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.arrival.close();
        let mut waiting = self.inbox.waiting();
        // An open sender belongs to a later wait for the same job, which must continue.
        if waiting.get(&self.job_id).is_some_and(|waiter| !waiter.is_open()) {
            waiting.remove(&self.job_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Dtype, Inline, OneOrMany, Output, Reply, Timings, VERSION};

    use super::*;
    use crate::UnreadOutput;
    use crate::{Follower, SubmitError, follower::Followed};

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
            session: None,
        }
    }

    /// The bytes of the first output.
    fn bytes(arrived: Box<ArrivedReply>) -> Vec<u8> {
        match arrived.outputs.unwrap().remove(0) {
            (_, UnreadOutput::Array(array)) => array.into_bytes(),
            other => panic!("{other:?} is not an array"),
        }
    }

    fn body(replies: Vec<Reply<'static>>) -> Vec<u8> {
        Encoding::MessagePack.encode_replies(&OneOrMany::Many(replies)).unwrap()
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
        assert!(inbox.expect(job_id, None).is_none(), "a job has one handle");
        let message = body(vec![reply(job_id, &[1, 2]), reply(job_id, &[9, 9]), reply(JobId::new(), &[0, 0])]);
        inbox.deliver(Encoding::MessagePack, None, &message).unwrap();
        assert_eq!(bytes(awaited.next().await.unwrap()), [1, 2]);
        assert_eq!(inbox.counts(), Counts { replies: 1, replies_dropped: 2, replies_unreadable: 0 });
    }

    #[tokio::test]
    async fn a_reply_of_the_next_release_ends_the_wait_with_its_words() {
        let inbox = Arc::new(Inbox::default());
        let job_id = "0190a5b8-7c00-7000-8000-000000000002".parse().unwrap();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        let body = include_bytes!("../../../schema/golden/next/reply.json");
        inbox.deliver(Encoding::Json, None, body).unwrap();
        let arrived = awaited.next().await.unwrap();
        let Err(JobError::Failed(failed)) = outcome(arrived, Instant::now()) else { panic!("it failed") };
        assert_eq!((failed.ended(), failed.failure.as_ref().unwrap().code.name()), ("preempted", "device_preempted"));
    }

    #[tokio::test]
    async fn a_reply_without_a_job_id_reaches_the_job_that_its_correlation_id_names() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        let unknown = body(vec![Reply { job_id: None, ..reply(job_id, &[1, 2]) }]);
        for correlation_id in [None, Some("not a UUID"), Some(&*JobId::new().to_string())] {
            inbox.deliver(Encoding::MessagePack, correlation_id, &unknown).unwrap();
        }
        assert_eq!(inbox.counts(), Counts { replies: 0, replies_dropped: 3, replies_unreadable: 0 });
        inbox.deliver(Encoding::MessagePack, Some(&job_id.to_string()), &unknown).unwrap();
        assert_eq!(bytes(awaited.next().await.unwrap()), [1, 2]);
    }

    #[tokio::test]
    async fn a_client_can_wait_again_for_a_job_whose_handle_was_dropped() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        drop(inbox.expect(job_id, None).unwrap());
        assert!(inbox.waiting().is_empty());
        let mut first = inbox.expect(job_id, None).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body(vec![reply(job_id, &[1, 2])])).unwrap();
        let second = inbox.expect(job_id, None).expect("the first wait has its reply");
        assert!(first.next().await.is_some());
        assert!(first.next().await.is_none(), "a job has one reply");
        drop(first);
        assert!(inbox.expect(job_id, None).is_none(), "the second wait goes on");
        drop(second);
    }

    #[tokio::test]
    async fn outputs_that_contradict_their_shape_are_an_error_and_garbage_is_counted() {
        let inbox = Arc::new(Inbox::default());
        let job_id = JobId::new();
        let mut awaited = inbox.expect(job_id, None).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body(vec![reply(job_id, &[1])])).unwrap();
        assert!(awaited.next().await.unwrap().outputs.unwrap_err().contains("takes 2 bytes, but there are 1"));
        assert!(inbox.deliver(Encoding::Json, None, b"garbage").is_err());
        assert_eq!(inbox.counts().replies_unreadable, 1);
    }

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Vec<(u64, Ended)>>>);

    impl Follower for Told {
        fn confirmed(&self, _: Vec<u64>) {}
        fn refused(&self, _: u64, _: SubmitError) {}
        fn ended(&self, jobs: Vec<(u64, Ended)>) {
            locked(&self.0).push(jobs);
        }
    }

    fn awaited(token: u64, follower: &Arc<Told>) -> Awaited {
        Awaited { job: Followed::new(token, follower.clone()), submitted: Instant::now() }
    }

    #[derive(Debug)]
    struct Panicking;

    impl Follower for Panicking {
        fn confirmed(&self, _: Vec<u64>) {
            panic!("a program's error");
        }
        fn refused(&self, _: u64, _: SubmitError) {
            panic!("a program's error");
        }
        fn ended(&self, _: Vec<(u64, Ended)>) {
            panic!("a program's error");
        }
    }

    #[test]
    fn a_follower_is_told_all_ends_of_a_message_at_once() {
        let (inbox, told) = (Inbox::default(), Arc::new(Told::default()));
        let [first, second, third] = [JobId::new(), JobId::new(), JobId::new()];
        for (job_id, token) in [(first, 1), (second, 2), (third, 3)] {
            assert!(inbox.follow(job_id, None, awaited(token, &told)));
        }
        assert!(!inbox.follow(first, None, awaited(4, &told)), "the job has a follower");
        assert!(inbox.unfollow(third), "its job was not submitted");
        let failed = Reply { state: AttemptState::Failed, ..reply(second, &[3, 4]) };
        let message = body(vec![reply(first, &[1, 2]), failed, reply(third, &[5, 6]), reply(first, &[7, 8])]);
        inbox.deliver(Encoding::MessagePack, None, &message).unwrap();
        let calls = std::mem::take(&mut *locked(&told.0));
        let [jobs] = calls.as_slice() else { panic!("{calls:?}") };
        let [(1, Ok(result)), (2, Err(JobError::Failed(failed)))] = jobs.as_slice() else { panic!("{jobs:?}") };
        assert_eq!((result.job_id, failed.job_id), (first, second));
        assert!(!inbox.unfollow(first), "the follower knows the end of its job");
        assert_eq!(inbox.counts(), Counts { replies: 2, replies_dropped: 2, replies_unreadable: 0 });
    }

    #[tokio::test]
    async fn a_follower_that_panics_takes_no_reply_from_the_others() {
        let (inbox, told) = (Arc::new(Inbox::default()), Arc::new(Told::default()));
        let [first, second, third, fourth] = [JobId::new(), JobId::new(), JobId::new(), JobId::new()];
        let job = |token| Followed::new(token, Arc::new(Panicking));
        for job_id in [first, fourth] {
            assert!(inbox.follow(job_id, None, Awaited { job: job(1), submitted: Instant::now() }));
        }
        assert!(inbox.follow(second, None, awaited(2, &told)));
        let mut handle = inbox.expect(third, None).unwrap();
        let message = body(vec![reply(first, &[1, 2]), reply(second, &[3, 4]), reply(third, &[5, 6])]);
        inbox.deliver(Encoding::MessagePack, None, &message).unwrap();
        assert_eq!(bytes(handle.next().await.unwrap()), [5, 6]);
        assert!(matches!(locked(&told.0)[0].as_slice(), [(2, Ok(_))]));
        assert_eq!(inbox.counts().replies, 3);
        job(1).refused(SubmitError::AlreadySubmitted { job_id: first });
        job(1).follower.confirmed(vec![1]);
        inbox.close();
        assert!(inbox.waiting().is_empty());
    }

    #[test]
    fn closing_ends_followed_jobs() {
        let (inbox, told) = (Inbox::default(), Arc::new(Told::default()));
        inbox.follow(JobId::new(), None, awaited(1, &told));
        inbox.close();
        let calls = locked(&told.0);
        assert!(matches!(calls[0].as_slice(), [(1, Err(JobError::Closed { .. }))]), "{calls:?}");
    }
}
