//! The work of a stream: a job with everything that it needs from the supervisor.

use std::{collections::HashMap, sync::Arc};

use super::{
    ending::{StreamError, internal},
    pinned::PinnedSegment,
    program::Program,
};
use crate::ipc::message::{JobPlan, Place};

/// A job with its program and segments.
#[derive(Debug)]
pub(crate) struct Work {
    pub run: JobPlan,
    pub program: Arc<Program>,
    pub segments: HashMap<u32, Arc<PinnedSegment>>,
}

impl Work {
    /// Returns the shared memory that contains this place.
    pub(super) fn segment(&self, place: Place) -> Result<&PinnedSegment, StreamError> {
        match self.segments.get(&place.segment) {
            Some(segment) => Ok(segment),
            None => internal(format!("there is no segment for {place:?}")),
        }
    }
}
