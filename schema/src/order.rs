//! Orders to the whole fleet. They are kept in a log that every worker reads from its beginning, so that one that starts later
//! honours them too. Always JSON, one order a message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{JobId, MessageId, VERSION, WorkerName};

/// Something that workers are to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub version: u32,
    /// When it was given, in milliseconds since 1970 by the sender's clock.
    pub at_ms: i64,
    /// Who gave it, for people to read.
    #[serde(default)]
    pub by: Option<String>,
    pub command: Command,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Cancel(Selection),
    /// The worker of this name, if it was there before the order, takes no more jobs, finishes what runs, and leaves.
    Drain {
        worker: WorkerName,
    },
    /// Asks for nothing: whoever wrote it and reads it again has read everything before it.
    Mark {
        id: MessageId,
    },
}

/// Jobs: those named, and those that carry all of the labels and were submitted before the order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Selection {
    /// Whether a job is meant, by an order given at `ordered_ms`.
    pub fn matches(&self, job: JobId, labels: &BTreeMap<String, String>, submitted_ms: i64, ordered_ms: i64) -> bool {
        let labelled = !self.labels.is_empty()
            && submitted_ms <= ordered_ms
            && self.labels.iter().all(|(name, value)| labels.get(name) == Some(value));
        labelled || self.jobs.contains(&job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_job_is_meant_by_its_id_whenever_it_was_submitted() {
        let job = JobId::new();
        let selection = Selection { jobs: vec![job], ..Selection::default() };
        assert!(selection.matches(job, &labels(&[]), 2, 1));
        assert!(!selection.matches(JobId::new(), &labels(&[]), 0, 1));
    }

    #[test]
    fn labels_must_all_be_there_and_the_job_must_have_been_too() {
        let selection = Selection { labels: labels(&[("team", "a"), ("run", "7")]), ..Selection::default() };
        let (job, whole) = (JobId::new(), labels(&[("team", "a"), ("run", "7"), ("more", "x")]));
        assert!(selection.matches(job, &whole, 1, 1));
        assert!(!selection.matches(job, &whole, 2, 1), "it came after the order");
        assert!(!selection.matches(job, &labels(&[("team", "a")]), 0, 1));
        assert!(!Selection::default().matches(job, &whole, 0, 1), "no label means no job, not all");
    }
}
