//! Where data and messages go: data to stdout, everything else to stderr.

use std::{
    borrow::Cow,
    io::{ErrorKind, IsTerminal, Write},
};

use super::{complaint::Complaint, environment, exit::Exit};

/// The narrowest terminal that is common.
const WIDTH_DEFAULT: usize = 80;

/// Prints data. A reader that has left (`| head`) has what it wanted: that is no fault.
pub fn emit(text: &str) -> Result<(), Complaint> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(visible(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Complaint::new(Exit::Internal, format!("failed to write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn emit_json(value: &impl serde::Serialize) -> Result<(), Complaint> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Complaint::new(Exit::Internal, format!("failed to write JSON: {error}")))?;
    emit(&(text + "\n"))
}

/// Names and logs come from strangers: what would steer the terminal is made visible instead.
pub fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(steers) {
        // Lines of a source from elsewhere may end like this; a carriage return alone would write over its line.
        Cow::Owned(text.replace("\r\n", "\n").replace(steers, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Tells a person something that is no data.
pub fn note(text: &str) {
    // Nobody is left to tell that stderr is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn warn(text: &str) {
    let warning = if stderr_has_colour() { "\x1b[1;33mwarning:\x1b[0m" } else { "warning:" };
    note(&format!("{warning} {text}"));
}

/// How many characters fit on a line of stdout. `None`: it is no terminal, and lines may be as long as they like.
pub fn stdout_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { terminal_size_of(stdout) } else { None }
}

/// How many characters fit on a line of stderr.
pub fn stderr_width() -> usize {
    terminal_size_of(std::io::stderr()).unwrap_or(WIDTH_DEFAULT)
}

fn terminal_size_of(stream: impl std::os::fd::AsFd) -> Option<usize> {
    // A terminal that was never told its size says 0.
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Replaces the last line of stderr: a spinner, or the `^C` that a terminal shows. A stream that can't go back is left as it is.
pub fn redraw(line: &str) {
    if stderr_can_move() {
        // Nobody is left to tell that stderr is gone.
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }
}

/// Whether what stands on stderr's last line can be replaced.
pub fn stderr_can_move() -> bool {
    stderr_is_terminal() && std::env::var_os(environment::TERM).is_none_or(|term| term != "dumb")
}

fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

pub fn stderr_has_colour() -> bool {
    stderr_is_terminal() && std::env::var_os(environment::NO_COLOR).is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_can_not_steer_the_terminal() {
        assert_eq!(visible("a\tb\r\n"), "a\tb\n");
        assert_eq!(visible("failed\rsucceeded"), "failed\u{fffd}succeeded");
        assert_eq!(visible("\x1b[2Jgone\x07"), "\u{fffd}[2Jgone\u{fffd}");
    }
}
