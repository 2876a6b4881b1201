//! Something that turns on a terminal while a person waits, and says nothing to a log.

use std::{io::IsTerminal, time::Duration};

use gpufleet_local::{Lines, Progress, Silent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Below this nobody notices a wait.
const PATIENCE: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(120);

/// A spinner on stderr. It appears after a moment, and not at all where stderr is no terminal.
#[derive(Debug)]
pub struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    pub fn new(message: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is constant"));
        bar.set_message(message.into());
        Self { bar }
    }

    /// Waits for something, turning. Cancelling is as harmless as it is for what is waited for.
    pub async fn around<T>(self, waited_for: impl Future<Output = T>) -> T {
        let mut waited_for = std::pin::pin!(waited_for);
        if let Ok(value) = tokio::time::timeout(PATIENCE, &mut waited_for).await {
            return value;
        }
        if std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(TURN);
        }
        let value = waited_for.await;
        self.bar.finish_and_clear();
        value
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How the steps of starting and stopping a local fleet are told.
pub fn steps(quiet: bool) -> Box<dyn Progress> {
    if quiet { Box::new(Silent) } else { Box::new(Lines) }
}
