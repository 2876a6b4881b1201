//! The states of a job and of an attempt.

use std::str::FromStr;

use crate::word::words;

/// A text that is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a state; use one of {known}")]
pub struct UnknownState {
    text: String,
    known: String,
}

impl UnknownState {
    fn new<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self { text: text.chars().take(32).collect(), known: known.collect::<Vec<_>>().join(", ") }
    }
}

words! {
    /// The state of a job. All but the first two are final: the first final state in the ledger never changes.
    JobState {
        /// Confirmed by the broker, or lost its executor and waits for the next attempt.
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        /// The job ran and failed, or could never run. The failure has a verdict.
        Failed = "failed",
        Cancelled = "cancelled",
        /// The job's queue limit passed before it started.
        Expired = "expired",
        /// The job lost its executor too often, or its message is malformed. The message is in the dead-letter queue.
        Dead = "dead",
    }
}

words! {
    /// The state of one attempt at a job.
    AttemptState {
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        Expired = "expired",
        /// The attempt lost its executor or its device. The job is retried.
        Lost = "lost",
        /// The attempt was the last of too many losses, or the message is malformed.
        Dead = "dead",
    }
}

/// Reads what a person typed, so only states of this release pass.
impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        match Self::of(text) {
            Self::Later(_) => Err(UnknownState::new(text, Self::ALL.iter().map(Self::name))),
            state => Ok(state),
        }
    }
}

impl JobState {
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl AttemptState {
    /// The state of a job whose last attempt has this state.
    pub const fn job_state(self) -> JobState {
        match self {
            Self::Running => JobState::Running,
            Self::Succeeded => JobState::Succeeded,
            Self::Failed => JobState::Failed,
            Self::Cancelled => JobState::Cancelled,
            Self::Expired => JobState::Expired,
            Self::Lost => JobState::Queued,
            Self::Dead => JobState::Dead,
            Self::Later(word) => JobState::Later(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_state_is_one_of_this_release() {
        for state in JobState::ALL {
            assert_eq!(state.name().parse::<JobState>().unwrap(), *state);
        }
        let refused = "suceeded".parse::<JobState>().unwrap_err().to_string();
        assert!(refused.contains("use one of queued, running, succeeded"), "{refused}");
    }

    #[test]
    fn a_state_of_a_later_release_is_final() {
        let state = AttemptState::of("preempted").job_state();
        assert_eq!((state.name(), state.is_final()), ("preempted", true));
    }
}
