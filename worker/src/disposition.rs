//! Decides what happens to a job after an attempt, in one exhaustive table.

use gpufleet_schema::{
    AttemptState, Failure, FailureCode, Verdict,
    bounds::DELIVERIES_MAX,
    topology::{Rung, retry_rung},
};

use crate::forwarding::{Destination, ForwardingHistory};

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Succeeded,
    Failed(Failure),
    /// The job's queue limit passed before it started.
    Expired {
        queued_ms: u64,
        limit_ms: u64,
    },
    /// The executor was lost. `suspect` if the job may be the cause.
    Lost {
        reason: String,
        suspect: bool,
    },
    /// The device had too little memory despite the scheduler's admission and released caches, perhaps because of other processes.
    ShortOfMemory(Failure),
    /// The blob store could not be read or written. The job has `tries_max` tries in total.
    Unavailable {
        failure: Failure,
        tries_max: u32,
    },
    /// An operator or the job's owner cancelled the job.
    Cancelled {
        reason: String,
    },
    /// No device of this worker can run the job, but another worker's may.
    Forwarded {
        history: ForwardingHistory,
        to: Destination,
    },
    /// The job did not start: the worker is draining or has too many jobs of the queue, or the delivery's channel was closed.
    HandedBack,
}

impl Ending {
    /// Adds a sentence about a job that did not succeed.
    pub(crate) fn explain(&mut self, more: &str) {
        let text = match self {
            Self::Failed(failure) | Self::ShortOfMemory(failure) | Self::Unavailable { failure, .. } => {
                &mut failure.message
            }
            Self::Lost { reason, .. } | Self::Cancelled { reason } => reason,
            Self::Succeeded | Self::Expired { .. } | Self::Forwarded { .. } | Self::HandedBack => return,
        };
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(more);
    }

    /// Returns the ending of a job that an order cancels, which may have explained itself before.
    pub(crate) fn cancelled(self, order: String) -> Self {
        match self {
            Self::Cancelled { reason } if !reason.is_empty() => {
                Self::Cancelled { reason: format!("{order}; {reason}") }
            }
            _ => Self::Cancelled { reason: order },
        }
    }

    /// Returns whether a cancellation still has an effect. A job with an outcome keeps it.
    pub fn can_be_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. } | Self::Lost { .. } | Self::Unavailable { .. } | Self::Forwarded { .. })
    }
}

/// The job's earlier losses and failures, from the headers of its message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryHistory {
    /// The number of executors that the job has lost while it may have been the cause.
    pub losses: u32,
    /// How often the job's blobs could not be read or stored. This uses up no attempts and does not make the job a suspect.
    pub unavailable: u32,
}

/// What the supervisor does with the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Publish the reply and record the outcome; the job is over.
    Final { state: AttemptState, failure: Option<Failure>, dead_letter: Option<String> },
    /// Publish the job again as a message of its own with this history, at once or after a delay, and record the lost attempt.
    Again { past: RetryHistory, failure: Failure, after: Option<Rung> },
    /// Forward the job to other workers of its pool, without counting an attempt.
    Forward { history: ForwardingHistory, to: Destination },
    /// Requeue the job without counting an attempt.
    HandBack,
}

impl Disposition {
    /// Returns the state of the attempt, or `None` if the attempt does not count.
    pub fn attempt_state(&self) -> Option<AttemptState> {
        match self {
            Self::Final { state, .. } => Some(*state),
            Self::Again { .. } => Some(AttemptState::Lost),
            Self::Forward { .. } | Self::HandBack => None,
        }
    }
}

/// Decides what happens to the job after an attempt that ended with `ending`. `past` describes the earlier attempts, and `delivery_count`
/// is the number of earlier deliveries of its message.
pub fn dispose(ending: Ending, past: RetryHistory, attempts_max: u32, delivery_count: u64) -> Disposition {
    match ending {
        Ending::Succeeded => Disposition::Final { state: AttemptState::Succeeded, failure: None, dead_letter: None },
        Ending::Failed(failure) => {
            Disposition::Final { state: AttemptState::Failed, failure: Some(failure), dead_letter: None }
        }
        Ending::Expired { queued_ms, limit_ms } => {
            let mut message =
                format!("the job waited {queued_ms} ms in the queue, longer than its limit of {limit_ms} ms");
            if past.unavailable > 0 {
                message.push_str(
                    "; its earlier attempts could not fetch its arrays from the blob store (`gpufleet show` has their errors)",
                );
            }
            let failure = Failure::new(Verdict::Timeout, FailureCode::QueueLimit, message);
            Disposition::Final { state: AttemptState::Expired, failure: Some(failure), dead_letter: None }
        }
        Ending::Lost { reason, suspect } => {
            let losses = past.losses.saturating_add(u32::from(suspect));
            lost(reason, RetryHistory { losses, ..past }, suspect, attempts_max, delivery_count)
        }
        // Retry the job once, alone on its executor. If that fails too, the job does not fit.
        Ending::ShortOfMemory(failure) if past.losses == 0 && attempts_max > 1 => {
            Disposition::Again { past: RetryHistory { losses: 1, ..past }, failure, after: Some(retry_rung(1)) }
        }
        Ending::ShortOfMemory(failure) => {
            Disposition::Final { state: AttemptState::Failed, failure: Some(failure), dead_letter: None }
        }
        // The blob store may recover.
        Ending::Unavailable { failure, tries_max } => {
            let unavailable = past.unavailable.saturating_add(1);
            if unavailable >= tries_max || delivery_count >= DELIVERIES_MAX {
                return given_up(failure);
            }
            Disposition::Again {
                past: RetryHistory { unavailable, ..past },
                failure,
                after: Some(retry_rung(unavailable)),
            }
        }
        Ending::Cancelled { reason } => {
            let failure = Failure::new(Verdict::User, FailureCode::Cancelled, reason);
            Disposition::Final { state: AttemptState::Cancelled, failure: Some(failure), dead_letter: None }
        }
        Ending::Forwarded { history, to } => Disposition::Forward { history, to },
        Ending::HandedBack => Disposition::HandBack,
    }
}

/// Ends the job as dead-lettered, so that an operator can retry it once the store works again.
fn given_up(failure: Failure) -> Disposition {
    let message = format!("gave up after several attempts; the last error: {}", failure.message);
    let failure = Failure { message: message.clone(), ..failure };
    Disposition::Final { state: AttemptState::Dead, failure: Some(failure), dead_letter: Some(message) }
}

/// Decides what happens to a job whose executor was lost. A job that is not a suspect is retried at once. A suspect waits longer with each
/// loss, because the cause may be temporary.
fn lost(reason: String, past: RetryHistory, suspect: bool, attempts_max: u32, delivery_count: u64) -> Disposition {
    let (poison, losses) = (delivery_count >= DELIVERIES_MAX, past.losses);
    if losses < attempts_max && !poison {
        let failure = Failure::new(Verdict::Infrastructure, FailureCode::ExecutorLost, reason);
        return Disposition::Again { past, failure, after: suspect.then(|| retry_rung(losses)) };
    }
    let message = if losses < attempts_max {
        format!(
            "gave up after {delivery_count} deliveries without an outcome; the last attempt lost its executor: {reason}"
        )
    } else {
        let attempts = match losses {
            1 => "1 attempt that lost its executor".to_owned(),
            many => format!("{many} attempts that lost their executor"),
        };
        format!("gave up after {attempts}; the last error: {reason}")
    };
    let failure = Failure::new(Verdict::Infrastructure, FailureCode::AttemptsExhausted, message.clone());
    Disposition::Final { state: AttemptState::Dead, failure: Some(failure), dead_letter: Some(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_once(suspect: bool, losses: u32) -> Disposition {
        dispose(Ending::Lost { reason: "signal 9".into(), suspect }, RetryHistory { losses, unavailable: 1 }, 3, 0)
    }

    #[test]
    fn a_lost_executor_means_another_attempt_until_there_were_too_many() {
        assert!(matches!(
            lost_once(true, 0),
            Disposition::Again {
                past: RetryHistory { losses: 1, unavailable: 1 },
                after: Some(Rung { seconds: 1, .. }),
                ..
            }
        ));
        assert!(matches!(
            lost_once(true, 1),
            Disposition::Again { past: RetryHistory { losses: 2, .. }, after: Some(Rung { seconds: 5, .. }), .. }
        ));
        let Disposition::Final { state, dead_letter, failure } = lost_once(true, 2) else { panic!("not final") };
        assert_eq!(state, AttemptState::Dead);
        assert!(dead_letter.unwrap().contains("3 attempts that lost their executor"));
        assert_eq!(failure.unwrap().code, FailureCode::AttemptsExhausted);
    }

    #[test]
    fn a_job_that_expires_without_its_arrays_says_so() {
        let message = |unavailable| {
            let expired = Ending::Expired { queued_ms: 9, limit_ms: 5 };
            let Disposition::Final { failure: Some(failure), .. } =
                dispose(expired, RetryHistory { losses: 0, unavailable }, 3, 0)
            else {
                panic!("not final")
            };
            failure.message
        };
        assert_eq!(message(0), "the job waited 9 ms in the queue, longer than its limit of 5 ms");
        assert!(
            message(1).ends_with("could not fetch its arrays from the blob store (`gpufleet show` has their errors)")
        );
    }

    #[test]
    fn an_innocent_neighbour_loses_no_attempt() {
        assert!(matches!(
            lost_once(false, 0),
            Disposition::Again { past: RetryHistory { losses: 0, .. }, after: None, .. }
        ));
        assert!(matches!(lost_once(false, 2), Disposition::Again { past: RetryHistory { losses: 2, .. }, .. }));
    }

    #[test]
    fn a_job_that_found_no_memory_has_one_more_try_alone() {
        let short = |losses, attempts_max| {
            let failure = Failure::new(Verdict::OutOfMemory, FailureCode::OutOfMemory, "10 bytes wanted, 5 free");
            dispose(Ending::ShortOfMemory(failure), RetryHistory { losses, unavailable: 0 }, attempts_max, 0)
        };
        assert!(matches!(short(0, 3), Disposition::Again { past: RetryHistory { losses: 1, .. }, after: Some(_), .. }));
        assert!(matches!(short(1, 3), Disposition::Final { state: AttemptState::Failed, .. }));
        assert!(matches!(short(0, 1), Disposition::Final { state: AttemptState::Failed, .. }));
    }

    #[test]
    fn a_job_whose_blobs_are_away_is_tried_again_without_a_loss_and_kept_in_the_end() {
        let without = |unavailable, delivery_count| {
            let failure = Failure::new(Verdict::Infrastructure, FailureCode::BlobUnavailable, "no blob");
            let ending = Ending::Unavailable { failure, tries_max: 3 };
            dispose(ending, RetryHistory { losses: 2, unavailable }, 1, delivery_count)
        };
        for (before, seconds) in [(0, 1), (1, 5)] {
            let Disposition::Again { past, after: Some(rung), failure } = without(before, 0) else {
                panic!("not again")
            };
            assert_eq!((past, rung.seconds), (RetryHistory { losses: 2, unavailable: before + 1 }, seconds));
            assert_eq!(failure.code, FailureCode::BlobUnavailable);
        }
        for last in [without(2, 0), without(0, DELIVERIES_MAX)] {
            let Disposition::Final { state, failure: Some(failure), dead_letter: Some(reason) } = last else {
                panic!("not final")
            };
            assert_eq!((state, failure.code), (AttemptState::Dead, FailureCode::BlobUnavailable));
            assert!(reason.ends_with("the last error: no blob"), "{reason}");
        }
    }

    #[test]
    fn what_is_cancelled_is_final_and_so_is_what_ended_before() {
        let cancelled =
            dispose(Ending::Cancelled { reason: "cancelled by anna".into() }, RetryHistory::default(), 3, 0);
        let Disposition::Final { state, failure, dead_letter: None } = cancelled else { panic!("not final") };
        assert_eq!((state, failure.unwrap().code), (AttemptState::Cancelled, FailureCode::Cancelled));
        assert!(Ending::Lost { reason: String::new(), suspect: true }.can_be_cancelled());
        assert!(!Ending::Succeeded.can_be_cancelled());
        assert!(!Ending::HandedBack.can_be_cancelled(), "the next worker reads the same log");
    }

    #[test]
    fn a_message_that_was_delivered_too_often_is_given_up_even_if_innocent() {
        let ending = Ending::Lost { reason: "signal 9".into(), suspect: false };
        let given_up = dispose(ending, RetryHistory::default(), 3, DELIVERIES_MAX);
        let Disposition::Final { dead_letter: Some(reason), .. } = given_up else { panic!("{given_up:?}") };
        assert!(reason.contains("15 deliveries"), "{reason}");
    }
}
