//! The recorder: whether one reads the events now, and how far it is.

use std::time::Duration;

use gpufleet::schema::topology::LEDGER_QUEUE;
use gpufleet_ledger::Progress;
use gpufleet_transport::{Broker, QueueDepth};

use super::{super::complaint::chain, finding::Finding, pools::waits};

const CHECK: &str = "recorder";
const START: &str = "start one, or look at its log: gpufleet-ledger record";
/// An idle recorder reports every ten seconds.
const BEHIND_NOTED: f64 = 60.0;

/// The queue of the events, according to the broker. An error is the reason why it is unknown.
pub type Events = Result<Option<QueueDepth>, String>;

pub async fn events(broker: &Broker) -> Events {
    broker.queue_depth(LEDGER_QUEUE).await.map_err(|error| chain(&error))
}

/// `progress` is none without a ledger that can be read.
pub fn judge(events: &Events, progress: Option<&Progress>) -> Vec<Finding> {
    match (events, progress) {
        // The queue has no reader, whatever the ledger says of the past.
        (Ok(Some(QueueDepth { messages, consumers: 0 })), _) => {
            vec![absent(format!("none reads the events: {}", waiting(*messages)), progress.is_some())]
        }
        (Ok(None), Some(_)) => {
            vec![absent("no recorder or worker has ever declared the queue of the events".to_owned(), true)]
        }
        (_, Some(progress)) => vec![judge_progress(progress)],
        (Ok(Some(depth)), None) => {
            vec![Finding::ok(CHECK, format!("it reads the events: {}", waiting(depth.messages)))]
        }
        (Ok(None) | Err(_), None) => Vec::new(),
    }
}

/// A fleet without a ledger may do without a recorder.
fn absent(found: String, has_ledger: bool) -> Finding {
    let finding = if has_ledger { Finding::error(CHECK, found) } else { Finding::warning(CHECK, found) };
    finding.fix(START)
}

fn waiting(messages: u32) -> String {
    match messages {
        0 => "nothing waits".to_owned(),
        some => waits(some),
    }
}

fn judge_progress(progress: &Progress) -> Finding {
    match progress.behind_seconds {
        None => Finding::warning(CHECK, "no recorder has ever caught up with the events").fix(START),
        Some(behind) if behind > BEHIND_NOTED => {
            let behind = humantime::format_duration(Duration::from_secs(behind as u64));
            Finding::warning(CHECK, format!("it last caught up with the events {behind} ago")).fix(START)
        }
        Some(_) => Finding::ok(CHECK, "it keeps up with the events"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Status, *};

    fn progress(behind_seconds: Option<f64>) -> Progress {
        Progress { caught_up_at: None, behind_seconds }
    }

    fn judged(consumers: Option<u32>, behind_seconds: Option<f64>) -> Finding {
        let events = Ok(consumers.map(|consumers| QueueDepth { messages: 3, consumers }));
        judge(&events, Some(&progress(behind_seconds))).remove(0)
    }

    #[test]
    fn a_recorder_that_just_died_is_an_error_by_the_consumers_of_its_queue() {
        let dead = judged(Some(0), Some(1.0));
        assert_eq!((dead.status, dead.found.as_str()), (Status::Error, "none reads the events: 3 messages wait"));
        assert!(dead.fix.unwrap().contains("gpufleet-ledger record"));
        assert_eq!(judged(None, Some(1.0)).status, Status::Error);
        let unread = Ok(Some(QueueDepth { messages: 1, consumers: 0 }));
        assert_eq!(judge(&unread, None)[0].status, Status::Warning, "a fleet may have no ledger");
    }

    #[test]
    fn a_recorder_that_is_behind_is_a_warning() {
        assert_eq!(judged(Some(1), None).status, Status::Warning);
        assert_eq!(judged(Some(1), Some(12.0)).status, Status::Ok);
        assert_eq!(judged(Some(1), Some(600.0)).status, Status::Warning);
        let unknown = Err("failed to look at the queue".to_owned());
        assert_eq!(judge(&unknown, Some(&progress(Some(600.0))))[0].status, Status::Warning);
        assert_eq!(judge(&unknown, None), []);
    }
}
