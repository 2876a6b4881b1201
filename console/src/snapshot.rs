//! What a viewer sees of one subject at one time: the latest answer, its age, and why there is no newer one.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gpufleet_service::problem::Problem;
use serde::Serialize;
use serde_json::value::RawValue;

/// The latest answer about a topic.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The topic's name, by which viewers know it.
    pub topic: String,
    /// The latest good answer, as JSON; none if there was none yet.
    pub body: Option<Bytes>,
    /// When the body was last known to be true, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why the latest refresh brought no answer.
    pub problem: Option<Problem>,
}

#[derive(Serialize)]
struct Event<'a> {
    topic: &'a str,
    at_ms: u64,
    problem: Option<&'a Problem>,
    body: Option<&'a RawValue>,
}

impl Snapshot {
    /// The answer, or the earlier one if there is none.
    pub fn new(topic: String, answer: Result<Bytes, Problem>, earlier: Option<&Self>) -> Self {
        match answer {
            Ok(body) => Self { topic, body: Some(body), at_ms: now_ms(), problem: None },
            Err(problem) => Self {
                topic,
                body: earlier.and_then(|earlier| earlier.body.clone()),
                at_ms: earlier.map_or(0, |earlier| earlier.at_ms),
                problem: Some(problem),
            },
        }
    }

    /// Whether a viewer would see the same.
    pub fn shows_the_same_as(&self, other: &Self) -> bool {
        self.body == other.body && self.problem == other.problem
    }

    /// The snapshot as JSON, on one line.
    pub fn to_event(&self) -> String {
        let body = self.body.as_deref().and_then(|body| serde_json::from_slice::<&RawValue>(body).ok());
        let event = Event { topic: &self.topic, at_ms: self.at_ms, problem: self.problem.as_ref(), body };
        serde_json::to_string(&event).expect("all of its fields are texts, numbers and JSON")
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).expect("this century's times fit 64 bits")
}

#[cfg(test)]
mod tests {
    use gpufleet_service::problem::ProblemKind;

    use super::*;

    #[test]
    fn a_failed_attempt_keeps_the_last_answer_and_its_time() {
        let good = Snapshot::new("t".to_owned(), Ok(Bytes::from_static(b"{\"a\":1}")), None);
        assert!(good.to_event().ends_with("\"problem\":null,\"body\":{\"a\":1}}"), "{}", good.to_event());
        let problem = || Problem::new(ProblemKind::ApiUnavailable, "a", "b", "c");
        let away = Snapshot::new("t".to_owned(), Err(problem()), Some(&good));
        assert_eq!((away.at_ms, away.body.as_deref()), (good.at_ms, Some(&b"{\"a\":1}"[..])));
        assert!(!away.shows_the_same_as(&good));
        let never = Snapshot::new("t".to_owned(), Err(problem()), None);
        assert!(never.to_event().contains("\"at_ms\":0") && never.to_event().ends_with("\"body\":null}"));
    }
}
