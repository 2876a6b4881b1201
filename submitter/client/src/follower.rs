//! A follower: one receiver for the outcomes of many jobs, instead of a handle for each.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use tracing::error;

use crate::{JobError, JobResult, SubmitError, UnreadOutput};

/// How a followed job has ended.
pub type Ended = Result<JobResult<UnreadOutput>, JobError>;

/// Receives the outcomes of the jobs of [`Fleet::submit_followed`](crate::Fleet::submit_followed). Programs with very many open jobs use
/// it: a followed job takes a tenth of the memory of a [`JobHandle`](crate::JobHandle) that a task awaits.
///
/// The client's own tasks call the methods, so they must return quickly. If a method panics, the client logs the panic and continues. The
/// caller of `submit_followed` chooses the tokens.
pub trait Follower: Debug + Send + Sync {
    /// Called when the broker has these jobs on disk.
    fn confirmed(&self, tokens: Vec<u64>);

    /// Called when the job was not submitted, or when it is unknown whether it was. No other call follows for this job.
    fn refused(&self, token: u64, error: SubmitError);

    /// Called when these jobs have ended, or when the connection was closed before they ended. This call can come before `confirmed`. Large
    /// outputs are still in the blob store: see [`Fleet::read_outputs`](crate::Fleet::read_outputs).
    fn ended(&self, jobs: Vec<(u64, Ended)>);
}

/// A job and its follower.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) token: u64,
    pub(crate) follower: GuardedFollower,
}

/// A followed job whose reply is awaited, with the time of its submission.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) job: Followed,
    pub(crate) submitted: Instant,
}

/// A program's follower. Its panics do not unwind the client's tasks, which serve the other jobs too.
#[derive(Debug, Clone)]
pub(crate) struct GuardedFollower(Arc<dyn Follower>);

/// Gathers reports by follower, so that each follower gets one call. Nearly always there is one follower.
#[derive(Debug)]
pub(crate) struct ByFollower<T>(Vec<(GuardedFollower, Vec<T>)>);

impl Followed {
    pub(crate) fn new(token: u64, follower: Arc<dyn Follower>) -> Self {
        Self { token, follower: GuardedFollower(follower) }
    }

    pub(crate) fn refused(&self, error: SubmitError) {
        self.follower.call("refused", |follower| follower.refused(self.token, error));
    }
}

impl GuardedFollower {
    pub(crate) fn confirmed(&self, tokens: Vec<u64>) {
        self.call("confirmed", |follower| follower.confirmed(tokens));
    }

    pub(crate) fn ended(&self, jobs: Vec<(u64, Ended)>) {
        self.call("ended", |follower| follower.ended(jobs));
    }

    fn call(&self, method: &str, call: impl FnOnce(&dyn Follower)) {
        // The client shares no state with the call, so a panic leaves nothing of its own half changed.
        if catch_unwind(AssertUnwindSafe(|| call(&*self.0))).is_err() {
            error!(method, "a follower panicked; the client goes on without what it missed");
        }
    }
}

impl<T> ByFollower<T> {
    pub(crate) fn push(&mut self, follower: GuardedFollower, item: T) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(&known.0, &follower.0)) {
            Some((_, items)) => items.push(item),
            None => self.0.push((follower, vec![item])),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(self, tell: impl Fn(&GuardedFollower, Vec<T>)) {
        for (follower, items) in self.0 {
            tell(&follower, items);
        }
    }
}

impl<T> Default for ByFollower<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
