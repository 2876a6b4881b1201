//! Orders to the whole fleet. They are kept in a log that every worker reads from its beginning, so that one that starts later
//! honours them too. Always JSON, one order a message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Announcement, JobId, MessageId, VERSION, WorkerName};

/// Something that workers are to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Order {
    #[cfg_attr(feature = "json-schema", schemars(extend("const" = crate::VERSION)))]
    pub version: u32,
    /// When it was given, in milliseconds since 1970 by the sender's clock. Which jobs a label means depends on it; whether an order comes
    /// before another, or before a worker's start, is told by their places in the log.
    pub at_ms: i64,
    /// Who gave it, for people to read.
    #[serde(default)]
    pub by: Option<String>,
    pub command: Command,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Cancel(Selection),
    /// The worker of this name, if its mark is in the log before the order, takes no more jobs, finishes what runs, and leaves.
    Drain {
        worker: WorkerName,
    },
    /// Has no effect: a worker that writes it and reads it again has read every earlier order.
    Mark {
        id: MessageId,
    },
    /// Asks for nothing: a worker tells what it has, so that others can forward to it what they can't run.
    Announce(Announcement),
}

/// Jobs: those named, and those that carry all of the labels and were submitted before the order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Selection {
    pub jobs: Vec<JobId>,
    pub labels: BTreeMap<String, String>,
}

impl Order {
    pub fn new(at_ms: i64, by: Option<String>, command: Command) -> Self {
        Self { version: VERSION, at_ms, by, command }
    }
}
