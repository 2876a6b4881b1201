//! The states of a job and of an attempt.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownState;

            fn from_str(text: &str) -> Result<Self, UnknownState> {
                Self::ALL.iter().copied().find(|state| state.name() == text).ok_or_else(|| UnknownState {
                    text: text.chars().take(32).collect(),
                    known: [$($text),*].join(", "),
                })
            }
        }
    };
}

/// A text that is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a state; use one of {known}")]
pub struct UnknownState {
    text: String,
    known: String,
}

states! {
    /// The state of a job. The last five are final: the first final state in the ledger never changes.
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

states! {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for state in JobState::ALL {
            assert_eq!(state.name().parse::<JobState>().unwrap(), *state);
            assert_eq!(serde_json::to_string(state).unwrap(), format!("\"{state}\""));
        }
        for state in AttemptState::ALL {
            assert_eq!(state.name().parse::<AttemptState>().unwrap(), *state);
        }
    }
}
