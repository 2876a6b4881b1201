//! How far a running job is. A worker publishes it about once a second, for jobs that run for longer than a second.
//!
//! These messages may be lost: the broker does not confirm them, drops them if no client follows the job, and no table has them.

use serde::{Deserialize, Serialize};

use crate::{DecodeError, Encoding, JobId, RanOn, VERSION, bounds::PROGRESS_TEXT_BYTES_MAX, printf, word::words};

/// One message: how far an attempt is, and what its kernels have printed since the message before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Progress {
    #[cfg_attr(feature = "json-schema", schemars(extend("const" = crate::VERSION)))]
    pub version: u32,
    pub job_id: JobId,
    pub attempt: u32,
    /// The number of the message in its attempt, from 0. A gap means that messages were lost.
    pub sequence: u64,
    /// When the worker looked, and when an executor took the job, in milliseconds since 1970 by the worker's clock.
    pub at_ms: i64,
    pub started_ms: i64,
    pub stage: Stage,
    /// Finished launches of all launches, repeats counted singly. Absent before the first has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches: Option<Count>,
    /// The value of the counter that the kernels increment, if the job has one ([`Arg::Progress`](crate::Arg::Progress)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Count>,
    /// Bytes that were moved between blob store and device, in the stages that move them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Count>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<Printed>,
    /// The worker and device of a host program, in the first message of an attempt. Absent in other messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_on: Option<Box<RanOn>>,
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Count {
    pub done: u64,
    pub total: u64,
}

/// A piece of what the kernels print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Printed {
    /// The number of printed bytes before the piece.
    pub offset: u64,
    /// At most [`PROGRESS_TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

words! {
    /// What a running job does.
    Stage {
        /// It waits for its inputs from the blob store.
        Fetching = "fetching",
        /// Its kernels run, or are about to.
        Running = "running",
        /// Its outputs move to the blob store.
        Storing = "storing",
    }
}

impl Count {
    /// A count of which no more than everything is done, whatever was reported.
    pub fn of(done: u64, total: u64) -> Self {
        Self { done: done.min(total), total }
    }

    /// Between 0 and 1.
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a bar")]
    pub fn fraction(self) -> f64 {
        if self.total == 0 { 0.0 } else { self.done.min(self.total) as f64 / self.total as f64 }
    }
}

impl Printed {
    /// The beginning of printed bytes, of which the first is number `offset`, and the number of bytes that were taken. The rest, and a
    /// character that is not complete yet, are for the next message. Control characters other than newlines and tabs become U+FFFD.
    pub fn take(offset: u64, bytes: &[u8]) -> (Self, usize) {
        let incomplete = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_incomplete = str::from_utf8(incomplete).is_err_and(|error| error.error_len().is_none());
        let whole = if is_incomplete { bytes.len() - incomplete.len() } else { bytes.len() };
        let mut text = String::new();
        let taken = printf::take(&bytes[..whole], &mut text, PROGRESS_TEXT_BYTES_MAX);
        (Self { offset, text }, taken)
    }
}

impl Progress {
    /// The share of the work that is done, by the counter or else by the launches; in stages that move arrays, by their bytes.
    pub fn count(&self) -> Option<Count> {
        match self.stage {
            Stage::Fetching | Stage::Storing => self.bytes,
            Stage::Running | Stage::Later(_) => self.counter.or(self.launches),
        }
    }

    /// Encodes the message in MessagePack.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("a vector takes every message")
    }

    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let progress: Self = Encoding::MessagePack.decode(body)?;
        match progress.version {
            VERSION => Ok(progress),
            found => Err(DecodeError::UnsupportedVersion { found: found.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_no_more_than_everything() {
        assert_eq!(Count::of(5, 3), Count { done: 3, total: 3 });
        assert_eq!(Count { done: 1, total: 4 }.fraction().to_string(), "0.25");
        assert_eq!(Count { done: 9, total: 0 }.fraction().to_string(), "0");
    }

    #[test]
    fn printed_text_is_short_and_moves_no_cursor() {
        let (printed, taken) = Printed::take(7, b"x\x1b[2J\xff\n");
        assert_eq!(printed, Printed { offset: 7, text: "x\u{fffd}[2J\u{fffd}\n".to_owned() });
        assert_eq!(taken, 7);
        let (printed, taken) = Printed::take(0, &[0xff; 2 * PROGRESS_TEXT_BYTES_MAX]);
        assert_eq!((printed.text.len(), taken), (PROGRESS_TEXT_BYTES_MAX, PROGRESS_TEXT_BYTES_MAX / 3));
    }

    #[test]
    fn a_character_that_is_not_complete_waits_for_the_next_message() {
        let bytes = "5 µ".as_bytes();
        let (first, taken) = Printed::take(0, &bytes[..3]);
        assert_eq!((first.text.as_str(), taken), ("5 ", 2));
        let (second, taken) = Printed::take(2, &bytes[2..]);
        assert_eq!((second.text.as_str(), taken), ("µ", 2));
    }

    #[test]
    fn a_message_is_read_as_it_was_written_and_another_version_is_refused() {
        let progress = Progress {
            version: VERSION,
            job_id: JobId::new(),
            attempt: 2,
            sequence: 3,
            at_ms: 5_000,
            started_ms: 1_000,
            stage: Stage::Running,
            launches: Some(Count { done: 312, total: 1_000 }),
            counter: None,
            bytes: None,
            printed: Some(Printed { offset: 0, text: "epoch 1\n".to_owned() }),
            ran_on: None,
        };
        assert_eq!(Progress::decode(&progress.encode()).unwrap(), progress);
        assert_eq!(progress.count(), progress.launches);
        let later = Progress { version: VERSION + 1, ..progress };
        let refused = Progress::decode(&later.encode());
        assert!(matches!(refused, Err(DecodeError::UnsupportedVersion { .. })), "{refused:?}");
    }
}
