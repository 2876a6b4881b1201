//! Something that turns on a terminal while a person waits, and says nothing to a log.

use std::time::{Duration, Instant};

use gpufleet_local::{Lines, Progress, Silent};

use super::output;

/// Below this nobody notices a wait.
const PATIENCE: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(120);
const FRAMES: [char; 8] = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠟'];
/// A terminal that shows Ctrl-C as `^C` must have room for that, or the spinner's line breaks and can't be cleared any more.
const MARGIN: usize = 3;

/// A spinner on stderr. It appears after a moment, and not at all where stderr is no terminal.
#[derive(Debug)]
pub struct Spinner {
    message: String,
    started: Instant,
    is_drawn: bool,
}

impl Spinner {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), started: Instant::now(), is_drawn: false }
    }

    /// Waits for something, turning. Cancelling is as harmless as it is for what is waited for.
    pub async fn around<T>(mut self, waited_for: impl Future<Output = T>) -> T {
        let mut waited_for = std::pin::pin!(waited_for);
        if let Ok(value) = tokio::time::timeout(PATIENCE, &mut waited_for).await {
            return value;
        }
        if !output::stderr_can_move() {
            return waited_for.await;
        }
        for frame in FRAMES.into_iter().cycle() {
            self.draw(frame);
            if let Ok(value) = tokio::time::timeout(TURN, &mut waited_for).await {
                return value;
            }
        }
        unreachable!("a cycle has no end")
    }

    fn draw(&mut self, frame: char) {
        self.is_drawn = true;
        let width = output::stderr_width().saturating_sub(MARGIN);
        output::redraw(&self.line(frame, width));
    }

    fn line(&self, frame: char, width: usize) -> String {
        let line = format!("{frame} {} ({} s)", self.message, self.started.elapsed().as_secs());
        line.chars().take(width).collect()
    }
}

/// Also when the wait is cancelled the line has to go.
impl Drop for Spinner {
    fn drop(&mut self) {
        if self.is_drawn {
            output::redraw("");
        }
    }
}

/// Waits for Ctrl-C, and takes the terminal's `^C` off the line that the next message begins.
pub async fn interrupt() {
    // Where the signal can't be listened for, it ends the process as it always did.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    output::redraw("");
}

/// How the steps of starting and stopping a local fleet are told.
pub fn steps(quiet: bool) -> Box<dyn Progress> {
    if quiet { Box::new(Silent) } else { Box::new(Lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinner_fits_on_its_line() {
        let spinner = Spinner::new("waiting for job 01990f3e-0000-7000-8000-000000000001");
        assert_eq!(spinner.line('⠋', 200), "⠋ waiting for job 01990f3e-0000-7000-8000-000000000001 (0 s)");
        assert_eq!(spinner.line('⠋', 9), "⠋ waiting");
        assert_eq!(spinner.line('⠋', 0), "");
    }
}
