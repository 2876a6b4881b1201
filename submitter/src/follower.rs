//! One receiver for the ends of many jobs, in place of a handle for each.

use std::{fmt::Debug, sync::Arc, time::Instant};

use crate::{JobError, JobResult, SubmitError, UnreadOutput};

/// How a followed job has ended.
pub type Ended = Result<JobResult<UnreadOutput>, JobError>;

/// Is told what becomes of the jobs of [`Fleet::submit_followed`](crate::Fleet::submit_followed). Programs with very many
/// open jobs use it: a followed job takes a tenth of the memory of a [`JobHandle`](crate::JobHandle) that a task awaits.
///
/// The client's own tasks call the methods, so they must be quick. The tokens are those of the caller.
pub trait Follower: Debug + Send + Sync {
    /// The broker has these jobs on disk.
    fn confirmed(&self, tokens: Vec<u64>);

    /// The job was not submitted, or it is unknown whether it was. Nothing else follows.
    fn refused(&self, token: u64, error: SubmitError);

    /// These jobs have ended, or the connection was closed before. This can come before `confirmed`. Large outputs are still
    /// in the blob store: see [`Fleet::read_outputs`](crate::Fleet::read_outputs).
    fn ended(&self, jobs: Vec<(u64, Ended)>);
}

/// A job and its follower.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) token: u64,
    pub(crate) follower: Arc<dyn Follower>,
}

/// The same with the time of the submission, while the reply is awaited.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) job: Followed,
    pub(crate) submitted: Instant,
}

/// Gathers what followers are told, so that each is told once. Nearly always it is one follower.
#[derive(Debug)]
pub(crate) struct ByFollower<T>(Vec<(Arc<dyn Follower>, Vec<T>)>);

impl<T> ByFollower<T> {
    pub(crate) fn push(&mut self, follower: Arc<dyn Follower>, item: T) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &follower)) {
            Some((_, items)) => items.push(item),
            None => self.0.push((follower, vec![item])),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(self, tell: impl Fn(&dyn Follower, Vec<T>)) {
        for (follower, items) in self.0 {
            tell(&*follower, items);
        }
    }
}

impl<T> Default for ByFollower<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
