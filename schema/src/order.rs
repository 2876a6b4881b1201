//! Orders to the whole fleet. A stream keeps them, and every worker reads it from its beginning, so that workers that
//! start later obey them too. A message has one order in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Announcement, JobId, MessageId, VERSION, WorkerName};

/// An order to the workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Order {
    #[cfg_attr(feature = "json-schema", schemars(extend("const" = crate::VERSION)))]
    pub version: u32,
    /// The time of the order, in milliseconds since 1970 by the sender's clock. A label selects jobs that were
    /// submitted before it. The sequence of orders and of workers' starts is that of the stream.
    pub at_ms: i64,
    /// The name of the sender, for people.
    #[serde(default)]
    pub by: Option<String>,
    pub command: Command,
}

/// The action of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Cancel(Selection),
    /// The worker with this name takes no more jobs, finishes the running ones and exits. The order applies only to a
    /// worker whose mark precedes it in the stream.
    Drain {
        worker: WorkerName,
    },
    /// A worker writes this mark before it reads orders. When it reads the mark, it has read every earlier order.
    Mark {
        id: MessageId,
    },
    /// A worker announces its devices, so that other workers can forward jobs to it.
    Announce(Announcement),
}

/// A selection of jobs: the listed jobs, and the jobs that have all of the labels and were submitted before the order.
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
