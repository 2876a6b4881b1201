//! The states of a job and of an attempt.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
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

/// A word that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a state; use one of {known}")]
pub struct UnknownState {
    text: String,
    known: String,
}

states! {
    /// Where a job stands. The last five are final: the first one recorded is never changed.
    JobState {
        /// Confirmed by the broker, or lost its executor and waits for the next attempt.
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        /// It ran, or could never run, and the failure says whose fault it was.
        Failed = "failed",
        Cancelled = "cancelled",
        /// Its queue limit passed before it started.
        Expired = "expired",
        /// It lost its executor too often, or its message is malformed. The message is in the dead-letter queue.
        Dead = "dead",
    }
}

states! {
    /// How one attempt at a job stands.
    AttemptState {
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        Expired = "expired",
        /// The executor or its device went away under it; the job is tried again.
        Lost = "lost",
        /// The last of too many losses, or a malformed message.
        Dead = "dead",
    }
}

impl JobState {
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl AttemptState {
    /// What the job becomes when its attempt stands like this.
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
