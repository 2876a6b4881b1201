//! The news of jobs since Python last asked. One Python thread takes all of it at once.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use gpufleet::{Follower, JobError, JobResult, ProgressError, SubmitError, UnreadOutput, schema::Progress};
use tokio::sync::watch;

use crate::{ended::Ended, sending::Reading};

/// Maximum number of messages of progress that wait for Python. If its callbacks are slow, the oldest are dropped.
const PROGRESS_MAX: usize = 1024;

/// The number by which Python knows a job.
pub type Token = u64;

#[derive(Debug)]
pub struct Completions {
    news: Mutex<News>,
    arrived: Condvar,
    /// Receives results whose outputs must be read.
    reading: Reading,
    /// The number of jobs that the broker has neither confirmed nor refused.
    unsettled: watch::Sender<usize>,
    is_closing: AtomicBool,
    /// Whether a task reads the progress of jobs.
    reads_progress: AtomicBool,
}

/// A job whose submission has begun and that the broker has neither confirmed nor refused.
#[derive(Debug)]
pub struct Unsettled(Arc<Completions>);

/// The news that Python takes.
#[derive(Debug, Default)]
pub struct News {
    /// Jobs that the broker has on disk.
    pub confirmed: Vec<Token>,
    pub ended: Vec<(Token, Ended)>,
    pub progress: VecDeque<Arc<Progress>>,
    /// Why the progress of a pool is not received.
    pub not_followed: Option<ProgressError>,
    is_closed: bool,
}

impl News {
    fn is_empty(&self) -> bool {
        let Self { confirmed, ended, progress, not_followed, is_closed: _ } = self;
        confirmed.is_empty() && ended.is_empty() && progress.is_empty() && not_followed.is_none()
    }
}

impl Completions {
    pub fn new(reading: Reading) -> Self {
        Self {
            news: Mutex::default(),
            arrived: Condvar::new(),
            reading,
            unsettled: watch::Sender::new(0),
            is_closing: AtomicBool::new(false),
            reads_progress: AtomicBool::new(false),
        }
    }

    /// Counts jobs whose submission begins. [`Self::settle`] removes them from the count.
    pub fn began(&self, jobs: usize) {
        self.unsettled.send_modify(|unsettled| *unsettled += jobs);
    }

    /// Counts a job until the returned value is dropped. Returns `None` if the connection is closing: the job must not be sent then,
    /// because nothing would wait for its confirmation.
    pub fn begin_if_open(self: &Arc<Self>) -> Option<Unsettled> {
        self.began(1);
        // Counted before the check. Either `settled` waits for this job, or the job began after `closing` and sees that here.
        let unsettled = Unsettled(self.clone());
        (!self.is_closing.load(Ordering::SeqCst)).then_some(unsettled)
    }

    /// Marks the connection as closing, before it waits for [`Self::settled`].
    pub fn closing(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    /// Waits until the broker has confirmed or refused all jobs whose submission has begun.
    pub async fn settled(&self) {
        // An error would mean that the sender is gone, but `self` owns it.
        drop(self.unsettled.subscribe().wait_for(|unsettled| *unsettled == 0).await);
    }

    pub fn settle(&self, jobs: usize) {
        self.unsettled.send_modify(|unsettled| *unsettled -= jobs);
    }

    pub fn end(&self, job: Token, ended: Ended) {
        self.add([(job, ended)]);
    }

    pub fn progressed(&self, progress: Arc<Progress>) {
        let mut news = self.locked();
        if news.progress.len() == PROGRESS_MAX {
            news.progress.pop_front();
        }
        news.progress.push_back(progress);
        self.arrived.notify_one();
    }

    pub fn not_followed(&self, why: ProgressError) {
        self.locked().not_followed = Some(why);
        self.arrived.notify_one();
    }

    /// Returns true once, to the task that is to read the progress.
    pub fn is_first_to_follow(&self) -> bool {
        !self.reads_progress.swap(true, Ordering::Relaxed)
    }

    /// Ends the news: nothing more will be added.
    pub fn close(&self) {
        self.locked().is_closed = true;
        self.arrived.notify_all();
    }

    /// Waits for news and takes all of it. `None` once everything was taken and nothing more will be added.
    pub fn take(&self) -> Option<News> {
        let waited = self.arrived.wait_while(self.locked(), |news| news.is_empty() && !news.is_closed);
        let mut news = waited.expect("nothing panics while it holds this lock");
        if news.is_empty() {
            return None;
        }
        let is_closed = news.is_closed;
        Some(std::mem::replace(&mut *news, News { is_closed, ..News::default() }))
    }

    fn add(&self, jobs: impl IntoIterator<Item = (Token, Ended)>) {
        self.locked().ended.extend(jobs);
        self.arrived.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, News> {
        self.news.lock().expect("nothing panics while it holds this lock")
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.settle(1);
    }
}

impl Follower for Completions {
    fn confirmed(&self, tokens: Vec<Token>) {
        self.settle(tokens.len());
        self.locked().confirmed.extend(tokens);
        self.arrived.notify_one();
    }

    fn refused(&self, token: Token, error: SubmitError) {
        self.settle(1);
        self.end(token, Ended::Refused(Box::new(error)));
    }

    fn ended(&self, jobs: Vec<(Token, Result<JobResult<UnreadOutput>, JobError>)>) {
        let mut ended = Vec::with_capacity(jobs.len());
        for (token, job) in jobs {
            match job {
                Ok(result) if result.outputs.iter().any(|(_, output)| matches!(output, UnreadOutput::Stored(_))) => {
                    // An error means that the connection is closed. Python ends the job itself then.
                    drop(self.reading.send((token, Box::new(result))));
                }
                job => ended.push((token, job.into())),
            }
        }
        self.add(ended);
    }
}
