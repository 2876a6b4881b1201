//! What the handlers share.

use std::sync::Arc;

use axum::extract::State;
use gpufleet_blobs::BlobStore;
use gpufleet_service::problem::Problem;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{access::Access, actions::letters::DeadLetterLock, broker::away, downloads::Downloads, feed::Feed};

#[derive(Debug)]
pub struct Console {
    pub(crate) feed: Arc<Feed>,
    pub(crate) access: Arc<Access>,
    pub(crate) actions: bool,
    pub(crate) blobs: Option<BlobStore>,
    pub(crate) dead_letters: DeadLetterLock,
    /// Actions that run, which the console ends before it stops.
    pub(crate) actions_running: TaskTracker,
    pub(crate) downloads: Arc<Downloads>,
    pub(crate) stop: CancellationToken,
}

/// The state of a handler.
pub(crate) type Shared = State<Arc<Console>>;

impl Console {
    pub fn new(feed: Arc<Feed>, access: Access, actions: bool, stop: CancellationToken) -> Self {
        Self {
            feed,
            access: Arc::new(access),
            actions,
            blobs: None,
            dead_letters: DeadLetterLock::default(),
            actions_running: TaskTracker::new(),
            downloads: Downloads::new(),
            stop,
        }
    }

    /// Runs an action to its end, also if the viewer leaves or the console stops. So it is recorded, and letters return to the queue in their
    /// order.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions_running.spawn(work).await.unwrap_or_else(|_| Err(away("the work ended too early")))
    }
}
