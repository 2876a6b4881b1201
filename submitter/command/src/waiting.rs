//! Progress on a terminal while a person waits. It is not written to logs.

use std::{fmt, time::Duration};

use gpufleet::{Fleet, PoolDepth, schema::PoolName};
use gpufleet_local::{Lines, Progress, Silent};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{complaint::Complaint, exit::Exit, output, progress_terminal::ProgressTerminal};

/// A shorter wait needs no progress display.
const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(120);
const FRAMES: &str = "⠋⠙⠸⠴⠦⠇⠏⠟ ";
/// The room for the spinner and the time beside the message. A line that wraps can't be cleared.
const SPINNER_ROOM: usize = 12;
/// The room for a bar and a count.
const COUNT_ROOM: usize = 24;
/// The room for the spinner alone.
const FRAME_ROOM: usize = 2;

/// A spinner on stderr. It appears after a moment, and only on a terminal. Clones share the line, which disappears when the first of them is
/// dropped.
#[derive(Debug, Clone)]
pub struct Spinner {
    bar: ProgressBar,
    is_quiet: bool,
}

impl Spinner {
    pub fn new(message: impl Into<String>) -> Self {
        Self::with("{spinner} {msg} ({elapsed})", None, fitting(&message.into(), SPINNER_ROOM))
    }

    /// Also shows how many of `many` are done.
    pub fn of_many(message: impl Into<String>, many: usize) -> Self {
        match many {
            0 | 1 => Self::new(message),
            many => Self::with(
                "{spinner} {msg} {bar:10} {pos}/{len} ({elapsed})",
                Some(many as u64),
                fitting(&message.into(), SPINNER_ROOM + COUNT_ROOM),
            ),
        }
    }

    /// Shows the line, which is asked for at each drawing; while there is none, the message. A narrow terminal lacks the last parts of the
    /// line, which ` · ` separates.
    pub fn with_line(message: String, line: impl Fn() -> Option<String> + Clone + Send + Sync + 'static) -> Self {
        let draw = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let text = line().unwrap_or_else(|| format!("{message} ({:#})", HumanDuration(state.elapsed())));
            let columns = ProgressTerminal::columns().saturating_sub(FRAME_ROOM);
            // An error is impossible, because the text goes to a string.
            let _ = out.write_str(&fitting(first_parts(&text, columns), FRAME_ROOM));
        };
        Self::of_style(style("{spinner} {line}").with_key("line", draw), None)
    }

    /// Does not appear if `is_quiet`.
    #[must_use]
    pub fn quiet(mut self, is_quiet: bool) -> Self {
        self.is_quiet = is_quiet;
        self
    }

    fn with(template: &str, many: Option<u64>, message: String) -> Self {
        let spinner = Self::of_style(style(template), many);
        spinner.bar.set_message(message);
        spinner
    }

    fn of_style(style: ProgressStyle, many: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(many, ProgressDrawTarget::hidden()).with_style(style);
        Self { bar, is_quiet: false }
    }

    /// Shows the spinner until the future is ready. If cancelled, the line is cleared.
    pub async fn around<T>(self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = std::pin::pin!(awaited);
        if let Ok(value) = tokio::time::timeout(PATIENCE, &mut awaited).await {
            return value;
        }
        if output::stderr_can_move() && !self.is_quiet {
            self.bar.set_draw_target(ProgressDrawTarget::term_like(Box::<ProgressTerminal>::default()));
            self.bar.enable_steady_tick(TICK);
        }
        awaited.await
    }

    /// Counts one of many as done.
    pub fn advance(&self) {
        self.bar.inc(1);
    }

    /// Prints something else on the terminal, with the line cleared in the meantime.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

/// The line must also be cleared if the wait is cancelled.
impl Drop for Spinner {
    fn drop(&mut self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is constant").tick_chars(FRAMES)
}

/// The start of the message that leaves this room on the line.
fn fitting(message: &str, room: usize) -> String {
    message.chars().take(ProgressTerminal::columns().saturating_sub(room)).collect()
}

/// The parts of a line that fit, but at least the first.
fn first_parts(mut line: &str, columns: usize) -> &str {
    while let Some((shorter, _)) = line.rsplit_once(" · ").filter(|_| line.chars().count() > columns) {
        line = shorter;
    }
    line
}

/// Waits for Ctrl-C, and clears the terminal's `^C` so that the next message starts on an empty line.
pub async fn interrupt() {
    // Without a handler, the signal ends the process.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    output::redraw("");
}

/// What the work gives, unless Ctrl-C ends it with this message.
pub fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, Complaint>>,
    message: &str,
) -> impl Future<Output = Result<T, Complaint>> {
    let work = Box::pin(work);
    async move {
        tokio::select! {
            done = work => done,
            () = interrupt() => Err(Complaint::new(Exit::Interrupted, message)),
        }
    }
}

/// Warns if no worker serves the pool.
pub async fn warn_if_unserved(fleet: &Fleet, pool: &PoolName, within: Duration) {
    // An error is ignored, because the wait itself will report it.
    let depth = tokio::time::timeout(within, fleet.pool_depth(pool)).await;
    if let Ok(Ok(PoolDepth { consumers: 0, messages })) = depth {
        let others = match messages {
            0 | 1 => String::new(),
            many => format!(" with {many} messages in total"),
        };
        output::warn(&format!(
            "no worker serves pool {pool} at the moment; the job waits in its queue{others}. To start a worker: gpufleet-worker run --pool {pool}"
        ));
    }
}

/// The progress display for starting and stopping a local fleet.
pub fn steps(quiet: bool) -> Box<dyn Progress> {
    if quiet { Box::new(Silent) } else { Box::new(Lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_leaves_room_for_the_rest_of_the_line() {
        let columns = ProgressTerminal::columns();
        assert_eq!(fitting(&"x".repeat(1000), SPINNER_ROOM).len(), columns - SPINNER_ROOM);
        assert_eq!(fitting("waiting", SPINNER_ROOM), "waiting");
        assert_eq!(fitting("waiting", columns + 1), "");
    }

    #[test]
    fn a_line_loses_whole_parts() {
        let line = "kernels ███░░ 3/5 launches · 41 s · about 27 s left";
        assert_eq!(first_parts(line, 51), line);
        assert_eq!(first_parts(line, 50), "kernels ███░░ 3/5 launches · 41 s");
        assert_eq!(first_parts(line, 3), "kernels ███░░ 3/5 launches");
    }

    #[tokio::test]
    async fn a_spinner_returns_what_it_waited_for_and_counts() {
        let spinner = Spinner::of_many("counting", 2);
        let counted = spinner.clone().around(async {
            spinner.aside(|| ());
            spinner.advance();
            spinner.bar.position()
        });
        assert_eq!(counted.await, 1);
        assert!(spinner.bar.is_finished());
    }
}
