//! Dead letters as viewers see them.

use std::{collections::BTreeSet, sync::Arc};

use gpufleet::{
    DeadLetter,
    schema::{BlobDigest, JobId},
};
use serde::Serialize;
use tokio::{sync::Mutex, time::Instant};

/// Held by the reader of the dead-letter queue: another one would find no letters. It keeps the latest list.
pub(crate) type DeadLetterLock = Mutex<Option<(Instant, Arc<DeadList>)>>;

#[derive(Debug, Serialize)]
pub(crate) struct DeadList {
    pub(super) letters: Vec<ListedLetter>,
    /// The queue has this many more.
    pub(super) unseen: usize,
    pub(super) has_other_consumers: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct ListedLetter {
    /// Names the letter in an action.
    key: String,
    id: Option<String>,
    jobs: Vec<JobId>,
    reason: String,
    origin: String,
    user: Option<String>,
    kind: Option<String>,
    bytes: u64,
    is_cut: bool,
    timestamp: Option<u64>,
}

impl ListedLetter {
    pub(super) fn of(letter: &DeadLetter) -> Self {
        Self {
            key: key_of(letter),
            id: id_of(letter),
            jobs: letter.jobs.clone(),
            reason: letter.reason.clone(),
            origin: letter.origin.clone(),
            user: letter.user.clone(),
            kind: letter.kind.clone(),
            bytes: letter.bytes,
            is_cut: letter.is_cut(),
            timestamp: letter.timestamp,
        }
    }
}

/// Differs for letters that a viewer can tell apart. Ids may be missing, and producers may use one twice.
fn key_of(letter: &DeadLetter) -> String {
    let DeadLetter { message_id, jobs, reason, origin, user, bytes, timestamp, .. } = letter;
    BlobDigest::of(format!("{:?}", (message_id, jobs, reason, origin, user, bytes, timestamp)).as_bytes()).to_string()
}

/// The message's id, else that of its first job.
fn id_of(letter: &DeadLetter) -> Option<String> {
    letter.message_id.clone().or_else(|| letter.jobs.first().map(ToString::to_string))
}

/// What records of actions call the letter.
pub(super) fn name_of(letter: &DeadLetter) -> String {
    id_of(letter).unwrap_or_else(|| key_of(letter))
}

/// Whether a key names the letter, or an id one of its jobs. A job can have several letters, and all of them are meant.
pub(super) fn is_among(names: &BTreeSet<String>, letter: &DeadLetter) -> bool {
    names.contains(&key_of(letter)) || letter.jobs.iter().any(|job| names.contains(&job.to_string()))
}
