//! Orders to the whole fleet. A stream keeps them, and every worker reads it from its beginning, so that workers that
//! start later obey them too. A message has one order in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Announcement, JobId, MessageId, VERSION, WorkerName,
    bounds::{LABELS_MAX, ORDER_BYTES_MAX, ORDER_JOBS_MAX},
    encoding::bounded,
};

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
    #[serde(deserialize_with = "bounded::list::<_, _, ORDER_JOBS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = ORDER_JOBS_MAX)))]
    pub jobs: Vec<JobId>,
    #[serde(deserialize_with = "bounded::map::<_, _, LABELS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(extend("maxProperties" = LABELS_MAX)))]
    pub labels: BTreeMap<String, String>,
}

/// Why no worker obeys an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrder {
    #[error("the order names more than {ORDER_JOBS_MAX} jobs; give several orders")]
    TooManyJobs,
    #[error("the order names more than {LABELS_MAX} labels; a job has no more")]
    TooManyLabels,
    #[error("the order has {bytes} bytes; the maximum is {ORDER_BYTES_MAX}, so give several orders")]
    TooLarge { bytes: usize },
}

impl Order {
    pub fn new(at_ms: i64, by: Option<String>, command: Command) -> Self {
        Self { version: VERSION, at_ms, by, command }
    }

    /// Whether workers obey the order, by its bounds.
    pub fn check(&self) -> Result<(), InvalidOrder> {
        match &self.command {
            Command::Cancel(Selection { jobs, .. }) if jobs.len() > ORDER_JOBS_MAX => Err(InvalidOrder::TooManyJobs),
            Command::Cancel(Selection { labels, .. }) if labels.len() > LABELS_MAX => Err(InvalidOrder::TooManyLabels),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{decode_order, encode_order};

    fn decoded(jobs: usize, labels: usize) -> Order {
        let selection = Selection {
            jobs: (0..jobs).map(|_| JobId::new()).collect(),
            labels: (0..labels).map(|label| (label.to_string(), String::new())).collect(),
        };
        decode_order(&encode_order(&Order::new(1, None, Command::Cancel(selection))).unwrap()).unwrap()
    }

    #[test]
    fn an_order_with_too_many_jobs_or_labels_is_refused_and_not_kept_whole() {
        assert_eq!(decoded(ORDER_JOBS_MAX, LABELS_MAX).check(), Ok(()));
        for (jobs, labels, problem) in
            [(100 * ORDER_JOBS_MAX, 1, InvalidOrder::TooManyJobs), (1, 1000 * LABELS_MAX, InvalidOrder::TooManyLabels)]
        {
            let order = decoded(jobs, labels);
            assert_eq!(order.check(), Err(problem));
            let Command::Cancel(Selection { jobs, labels }) = order.command else { panic!("{order:?}") };
            assert!(jobs.len() <= ORDER_JOBS_MAX + 1 && labels.len() <= LABELS_MAX + 1);
        }
    }
}
