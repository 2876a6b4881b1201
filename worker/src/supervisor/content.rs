//! A message and its decoded tasks, which borrow from its body. They are one value, so that no body is copied.

use std::sync::Arc;

use gpufleet_schema::{DecodeError, Encoding, OneOrMany, Task};
use self_cell::self_cell;

use super::envelope::Envelope;

/// A message as it was delivered.
#[derive(Debug)]
pub(super) struct RawMessage {
    pub(super) envelope: Envelope,
    pub(super) body: Vec<u8>,
}

type Tasks<'a> = OneOrMany<Task<'a>>;

self_cell!(
    struct TasksOfBody {
        owner: Arc<RawMessage>,
        #[covariant]
        dependent: Tasks,
    }
);

/// A decoded message.
pub(super) struct Content {
    pub(super) encoding: Encoding,
    decoded: TasksOfBody,
}

/// One job of a decoded message.
pub(super) struct JobContent {
    pub(super) message: Arc<Content>,
    pub(super) index: usize,
}

impl Content {
    pub(super) fn decode(raw: Arc<RawMessage>, encoding: Encoding) -> Result<Self, DecodeError> {
        let decoded = TasksOfBody::try_new(raw, |raw| encoding.decode_tasks(&raw.body))?;
        Ok(Self { encoding, decoded })
    }

    pub(super) fn raw(&self) -> &Arc<RawMessage> {
        self.decoded.borrow_owner()
    }

    pub(super) fn envelope(&self) -> &Envelope {
        &self.raw().envelope
    }

    pub(super) fn tasks(&self) -> &[Task<'_>] {
        self.decoded.borrow_dependent().as_slice()
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.decoded.borrow_dependent(), OneOrMany::Many(_))
    }

    /// Returns the original bytes of each task. Encoding a task again could exceed the maximum size of a message, because numbers have
    /// several encodings.
    pub(super) fn originals(&self) -> Vec<&[u8]> {
        self.encoding.items(&self.decoded.borrow_owner().body)
    }
}

impl JobContent {
    pub(super) fn task(&self) -> &Task<'_> {
        &self.message.tasks()[self.index]
    }

    pub(super) fn envelope(&self) -> &Envelope {
        self.message.envelope()
    }
}
