//! Sends jobs in the order in which Python submits them, and follows them to their ends.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use gpufleet::{CheckedJob, Fleet, Follower, Job, JobHandle, JobResult, UnreadOutput, schema::bounds::BLOB_BYTES_MIN};
use tokio::sync::{
    Semaphore,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};
use tokio_util::task::TaskTracker;

use crate::{
    completions::{Completions, Token},
    ended::Ended,
    job::described,
};

/// The maximum number of requests that are taken at once.
const REQUESTS_MAX: usize = 256;
/// The maximum number of concurrent submissions with handles, each of which takes 4 KiB. Further jobs wait as
/// descriptions.
const HANDLES_MAX: usize = 2048;
/// Stands for no deadline, because a Python future waits for as long as its caller wants.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

pub enum Request {
    One(Token, CheckedJob),
    /// Jobs that share messages.
    Many(Vec<(CheckedJob, Token)>),
    /// A job whose large outputs stay in the blob store.
    Unread(Token, Job),
    /// A job that was sent earlier, perhaps by another program.
    Attached(Token, JobHandle, bool),
    /// Signals that all jobs before it were sent.
    Passed(oneshot::Sender<()>),
    /// Runs after the broker has confirmed or refused all jobs before it, and before the jobs after it are sent.
    Alone(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// The queue into which Python puts requests, in order.
#[derive(Debug, Clone)]
pub struct Requests {
    sender: UnboundedSender<Request>,
    /// The number of requests that the task has not begun yet.
    waiting: Arc<AtomicUsize>,
}

/// The task that takes requests has ended.
#[derive(Debug)]
pub struct RuntimeEnded;

/// The receiving end of [`Requests`].
pub struct Taken {
    receiver: UnboundedReceiver<Request>,
    waiting: Arc<AtomicUsize>,
}

/// The task that sends jobs. It ends when its requests are dropped.
pub struct Sending {
    fleet: Fleet,
    completions: Arc<Completions>,
    follower: Arc<dyn Follower>,
    /// Whether the client's replies stay with the broker until their outputs are read. Then each job needs a handle.
    keeps_replies: bool,
    tasks: TaskTracker,
    handles: Arc<Semaphore>,
}

impl Requests {
    pub fn new() -> (Self, Taken) {
        let (sender, receiver) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Self { sender, waiting: waiting.clone() }, Taken { receiver, waiting })
    }

    pub fn send(&self, request: Request) -> Result<(), RuntimeEnded> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.sender.send(request).map_err(|_| RuntimeEnded)
    }

    /// Waits until the jobs of all earlier requests were sent.
    pub async fn passed(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            let (passed, all_passed) = oneshot::channel();
            // Both fail if the runtime has ended; then nothing is sent any more.
            if self.send(Request::Passed(passed)).is_ok() {
                drop(all_passed.await);
            }
        }
    }
}

impl Sending {
    pub fn new(fleet: Fleet, completions: Arc<Completions>, keeps_replies: bool) -> Self {
        let (follower, handles) = (completions.clone(), Arc::new(Semaphore::new(HANDLES_MAX)));
        Self { fleet, completions, follower, keeps_replies, tasks: TaskTracker::new(), handles }
    }

    /// Returns the tracker of the tasks that send jobs and read outputs.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub async fn run(self, Taken { mut receiver, waiting }: Taken) {
        let mut taken = Vec::new();
        while receiver.recv_many(&mut taken, REQUESTS_MAX).await > 0 {
            for request in taken.drain(..) {
                self.begin(request).await;
                waiting.fetch_sub(1, Ordering::Release);
            }
        }
    }

    async fn begin(&self, request: Request) {
        match request {
            Request::One(token, job) if self.keeps_replies => self.send_with_handle(token, described(job), false),
            Request::Unread(token, job) => self.send_with_handle(token, job, true),
            Request::Attached(token, handle, unread) => self.follow(token, handle, unread),
            Request::One(token, job) => {
                self.completions.began(1);
                let (fleet, follower) = (self.fleet.clone(), self.follower.clone());
                // Storing large inputs takes long, and must not delay other jobs.
                let is_large = job.task.inline_bytes() >= BLOB_BYTES_MIN;
                let send = async move { fleet.submit_followed(job, token, follower).await };
                if is_large { drop(self.tasks.spawn(send)) } else { send.await }
            }
            Request::Many(jobs) if self.keeps_replies => {
                for (job, token) in jobs {
                    self.send_with_handle(token, described(job), false);
                }
            }
            Request::Many(jobs) => {
                self.completions.began(jobs.len());
                let (fleet, follower) = (self.fleet.clone(), self.follower.clone());
                self.tasks.spawn(async move { fleet.submit_many_followed(jobs, &follower).await });
            }
            // An error means that the caller no longer waits.
            Request::Passed(passed) => _ = passed.send(()),
            Request::Alone(work) => {
                self.completions.settled().await;
                work.await;
            }
        }
    }

    fn send_with_handle(&self, token: Token, job: Job, unread: bool) {
        self.completions.began(1);
        let (fleet, follower, handles) = (self.fleet.clone(), self.follower.clone(), self.handles.clone());
        let (completions, tasks) = (self.completions.clone(), self.tasks.clone());
        self.tasks.spawn(async move {
            // The semaphore is never closed, so there is no error.
            let room = handles.acquire().await;
            let submitted = Box::pin(fleet.submit(job)).await;
            drop(room);
            match submitted {
                Ok(handle) => {
                    follower.confirmed(vec![token]);
                    tasks.spawn(end(handle, unread, token, completions));
                }
                Err(error) => follower.refused(token, error),
            }
        });
    }

    fn follow(&self, token: Token, handle: JobHandle, unread: bool) {
        self.tasks.spawn(end(handle, unread, token, self.completions.clone()));
    }
}

async fn end(mut handle: JobHandle, unread: bool, token: Token, completions: Arc<Completions>) {
    let ended = match handle.arrived().await {
        Ok(()) if unread => Box::pin(handle.wait_unread(NO_DEADLINE)).await.into(),
        Ok(()) => Box::pin(handle.wait(NO_DEADLINE)).await.into(),
        Err(closed) => Ended::from(closed),
    };
    completions.end(token, ended);
}

/// Receives results whose outputs must be read from the blob store.
pub type Reading = UnboundedSender<(Token, Box<JobResult<UnreadOutput>>)>;

/// Reads outputs from the blob store, until the sender is dropped.
pub async fn read_outputs(
    fleet: Fleet,
    completions: Arc<Completions>,
    tasks: TaskTracker,
    mut results: UnboundedReceiver<(Token, Box<JobResult<UnreadOutput>>)>,
) {
    while let Some((token, result)) = results.recv().await {
        let (fleet, completions) = (fleet.clone(), completions.clone());
        tasks.spawn(async move { completions.end(token, fleet.read_outputs(*result).await.into()) });
    }
}
