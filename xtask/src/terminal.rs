//! Shows the steps of a command: a line that is updated while a step runs, and a line that stays with its duration.

use std::{
    io::IsTerminal as _,
    sync::Mutex,
    time::{Duration, Instant},
};

use gpufleet_local::{Lines, Progress};
use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// Shows steps on a terminal with a spinner, elsewhere as plain lines.
pub struct Terminal {
    bar: Mutex<Option<ProgressBar>>,
    is_terminal: bool,
    started: Instant,
}

impl Terminal {
    pub fn new() -> Self {
        Self { bar: Mutex::new(None), is_terminal: std::io::stderr().is_terminal(), started: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints a heading for the output of another program, such as cargo.
    pub fn heading(&self, text: &str) {
        eprintln!("── {text}");
    }

    pub fn steps(&self) -> &dyn Progress {
        self
    }

    fn take(&self) -> Option<ProgressBar> {
        self.bar.lock().expect("no panic happens under this lock").take()
    }
}

impl Progress for Terminal {
    fn begin(&self, what: &str) {
        if !self.is_terminal {
            return Lines.begin(what);
        }
        let style = ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim} {prefix:.dim}")
            .expect("the template is right");
        let bar = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        *self.bar.lock().expect("no panic happens under this lock") = Some(bar);
    }

    fn detail(&self, line: &str) {
        /// The room in a usual line next to the name of the step, in characters.
        const CHARS_MAX: usize = 40;
        match self.bar.lock().expect("no panic happens under this lock").as_ref() {
            Some(bar) => bar.set_prefix(line.chars().take(CHARS_MAX).collect::<String>()),
            None => Lines.detail(line),
        }
    }

    fn end(&self, what: &str, took: Duration, succeeded: bool) {
        match self.take() {
            Some(bar) => {
                bar.finish_and_clear();
                let mark = if succeeded { "\x1b[32m✔\x1b[0m" } else { "\x1b[31m✘\x1b[0m" };
                eprintln!("{mark} {what} \x1b[2m({:.1} s)\x1b[0m", took.as_secs_f64());
            }
            None => Lines.end(what, took, succeeded),
        }
    }
}
