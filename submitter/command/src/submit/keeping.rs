//! Whether the outputs of a job are kept after its reply.

use std::time::Duration;

use gpufleet::schema::{JobId, Task, bounds::KEPT_INLINE_BYTES_MAX};

use super::Options;
use crate::quantity;

const TIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// What becomes of the outputs when the command does not receive them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeping {
    For(Duration),
    /// A person or the defaults decided so.
    #[default]
    Discard,
    /// They would be kept, but the ledger takes no outputs of this size, and there is no blob store.
    TooLarge(u64),
}

impl Keeping {
    pub fn of(options: &Options, task: &Task<'_>, has_store: bool) -> Self {
        if let Some(time) =
            options.keep.or_else(|| task.keep_ms.map(Duration::from_millis)).filter(|_| !options.discard)
        {
            return Self::For(time);
        }
        if options.discard || !(has_store || options.detach) {
            return Self::Discard;
        }
        match output_bytes(task) {
            bytes if !has_store && bytes > KEPT_INLINE_BYTES_MAX => Self::TooLarge(bytes),
            _ => Self::For(TIME_DEFAULT),
        }
    }

    /// For how long the job keeps its outputs; zero if not at all.
    pub fn time(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Discard | Self::TooLarge(_) => Duration::ZERO,
        }
    }

    /// A warning for a detached job, before it is submitted.
    pub fn warning(self) -> Option<String> {
        let Self::TooLarge(bytes) = self else { return None };
        Some(format!(
            "the outputs ({}) will be discarded: without a blob store at most {} are kept. To keep them, give --blobs; to wait for them, \
             leave out --detach; for no warning, add --discard",
            quantity::bytes(bytes),
            quantity::bytes(KEPT_INLINE_BYTES_MAX)
        ))
    }

    /// What a person can do about a job that keeps running.
    pub fn advice(self, id: JobId) -> String {
        match self {
            Self::For(time) => format!(
                "the job keeps running; `gpufleet wait {id}` waits for it, and its outputs can be fetched for {} after it has succeeded: \
                 gpufleet fetch {id} --dir results",
                humantime::format_duration(time)
            ),
            Self::Discard | Self::TooLarge(_) => {
                format!(
                    "the job keeps running, but its outputs will be discarded; `gpufleet show {id}` shows how it ends"
                )
            }
        }
    }

    /// What a person can do if an output of a job that succeeded could not be written to its file.
    pub fn after_loss(self, id: JobId) -> String {
        match self {
            Self::For(time) => format!(
                "job {id} succeeded, and its outputs can be fetched for {}: gpufleet fetch {id} --dir results",
                humantime::format_duration(time)
            ),
            Self::Discard | Self::TooLarge(_) => {
                format!("job {id} succeeded, but this output is lost; submit the job again with another file for --out")
            }
        }
    }
}

/// The size of the outputs. Those of a catalog kernel come from its manifest; a task that can't be resolved is refused later.
pub fn output_bytes(task: &Task<'_>) -> u64 {
    gpufleet_kernels::resolve(task.borrowed()).map_or_else(|_| task.output_bytes(), |resolved| resolved.output_bytes())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gpufleet::schema::{Buffer, Data, Dtype, Program};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn keeping(words: &[&str], bytes: u64, has_store: bool) -> Keeping {
        let words = [&["submit", "saxpy"], words].concat();
        let options = Line::try_parse_from(words).unwrap().options;
        let buffer = Buffer::new("y", Dtype::U8, vec![bytes], Data::Zeros);
        let mut task = Task::new(Program::Ptx("x".into()));
        (task.buffers, task.outputs) = (vec![buffer], vec!["y".to_owned()]);
        Keeping::of(&options, &task, has_store)
    }

    #[test]
    fn outputs_are_kept_for_a_day_where_they_can_be_and_someone_may_come_for_them() {
        let (small, large) = (KEPT_INLINE_BYTES_MAX, KEPT_INLINE_BYTES_MAX + 1);
        assert_eq!(keeping(&[], large, true), Keeping::For(TIME_DEFAULT));
        assert_eq!(keeping(&["--detach"], large, true), Keeping::For(TIME_DEFAULT));
        assert_eq!(keeping(&["--detach"], small, false), Keeping::For(TIME_DEFAULT));
        assert_eq!(keeping(&["--detach"], large, false), Keeping::TooLarge(large));
        assert_eq!(keeping(&[], small, false), Keeping::Discard, "the command waits for them");
    }

    #[test]
    fn a_person_decides_otherwise() {
        assert_eq!(keeping(&["--keep", "7days"], 1 << 30, false), Keeping::For(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(keeping(&["--detach", "--discard"], 1 << 30, false), Keeping::Discard);
    }
}
