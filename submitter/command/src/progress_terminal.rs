//! The terminal on which progress is drawn: stderr, but a little narrower.
//!
//! indicatif fills its line with spaces up to the terminal's width. The `^C` that a terminal shows for Ctrl-C would then begin another line,
//! and the line of the progress could not be cleared any more.

use std::{
    io::{self, Write as _},
    sync::{Mutex, MutexGuard},
};

use indicatif::TermLike;

use super::output;

/// The characters of `^C`, and one more so that the cursor stays on the line.
const MARGIN: usize = 3;

/// Writes to stderr when flushed, so that a line does not flicker.
#[derive(Debug, Default)]
pub struct ProgressTerminal(Mutex<String>);

impl ProgressTerminal {
    /// The width of a line in characters.
    pub fn columns() -> usize {
        output::stderr_width().saturating_sub(MARGIN)
    }

    fn push(&self, text: &str) -> io::Result<()> {
        self.unwritten().push_str(text);
        Ok(())
    }

    /// Moves the cursor by the escape sequence that ends in `direction`.
    fn move_cursor(&self, by: usize, direction: char) -> io::Result<()> {
        // Zero would move the cursor by one.
        if by > 0 { self.push(&format!("\x1b[{by}{direction}")) } else { Ok(()) }
    }

    fn unwritten(&self) -> MutexGuard<'_, String> {
        self.0.lock().expect("no thread panics while holding the text")
    }
}

impl TermLike for ProgressTerminal {
    fn width(&self) -> u16 {
        u16::try_from(Self::columns()).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, by: usize) -> io::Result<()> {
        self.move_cursor(by, 'A')
    }

    fn move_cursor_down(&self, by: usize) -> io::Result<()> {
        self.move_cursor(by, 'B')
    }

    fn move_cursor_right(&self, by: usize) -> io::Result<()> {
        self.move_cursor(by, 'C')
    }

    fn move_cursor_left(&self, by: usize) -> io::Result<()> {
        self.move_cursor(by, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.push(line)?;
        self.push("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.push(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push(output::CLEAR_LINE)
    }

    fn flush(&self) -> io::Result<()> {
        let text = std::mem::take(&mut *self.unwritten());
        io::stderr().write_all(text.as_bytes())
    }
}
