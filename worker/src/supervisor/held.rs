//! What the shell keeps with the messages and jobs of the dispatcher.

use std::{pin::Pin, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    attempt_result::AttemptResult,
    content::{Content, RawMessage},
    prepared::Ready,
};
use crate::disposition::Ending;

/// A message as far as it is decoded.
pub(super) enum HeldMessage {
    Raw(Arc<RawMessage>),
    Decoded(Arc<Content>),
}

/// A job between two effects of the dispatcher.
pub(super) enum HeldJob {
    /// The preparation waits for a compiler, the blob store or another worker.
    Preparing(Preparing),
    Ready(Ready),
    /// A task prepares or runs the job.
    Underway(CancellationToken),
    Ended(AttemptResult),
}

/// The rest of a preparation.
pub(super) type Preparing = Pin<Box<dyn Future<Output = Result<Ready, Ending>> + Send>>;

impl HeldMessage {
    pub(super) fn raw(&self) -> &Arc<RawMessage> {
        match self {
            Self::Raw(raw) => raw,
            Self::Decoded(content) => content.raw(),
        }
    }

    pub(super) fn content(&self) -> &Arc<Content> {
        match self {
            Self::Raw(_) => unreachable!("only a decoded message has jobs"),
            Self::Decoded(content) => content,
        }
    }
}

impl HeldJob {
    /// Stops the preparation or the run.
    pub(super) fn cancel(self) {
        if let Self::Underway(cancel) = self {
            cancel.cancel();
        }
    }

    /// Returns the attempt of a job that has ended; an empty one if the job did not run.
    pub(super) fn into_result(self) -> AttemptResult {
        match self {
            Self::Ended(attempt) => attempt,
            Self::Preparing(_) | Self::Ready(_) | Self::Underway(_) => AttemptResult::default(),
        }
    }
}

impl Default for HeldJob {
    fn default() -> Self {
        Self::Ended(AttemptResult::default())
    }
}
