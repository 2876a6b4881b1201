//! Prints data to stdout and everything else to stderr.

use std::{
    borrow::Cow,
    io::{ErrorKind, IsTerminal, Write},
};

use gpufleet::schema::text::is_invisible;

use super::{complaint::Complaint, environment, exit::Exit};

/// The narrowest terminal that is common.
const WIDTH_DEFAULT: usize = 80;
/// Clears the line of the cursor on a terminal.
pub const CLEAR_LINE: &str = "\r\x1b[2K";

/// Prints data. A closed pipe (`| head`) is not an error.
pub fn emit(text: &str) -> Result<(), Complaint> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(visible(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Complaint::new(Exit::Internal, format!("failed to write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints data that replaces what was printed before. On a terminal `clear` goes in front of it; elsewhere an empty line follows it.
pub fn replace(text: &str, clear: &str) -> Result<(), Complaint> {
    if stdout_width().is_none() {
        return emit(&format!("{text}\n"));
    }
    let mut stdout = std::io::stdout().lock();
    // An error shows again when the data is printed.
    let _ = stdout.write_all(clear.as_bytes());
    drop(stdout);
    emit(text)
}

/// Prints a value as JSON.
pub fn emit_json(value: &impl serde::Serialize) -> Result<(), Complaint> {
    emit_written(serde_json::to_string_pretty(value))
}

/// Prints a value as JSON on one line.
pub fn emit_json_line(value: &impl serde::Serialize) -> Result<(), Complaint> {
    emit_written(serde_json::to_string(value))
}

fn emit_written(json: serde_json::Result<String>) -> Result<(), Complaint> {
    let text = json.map_err(|error| Complaint::new(Exit::Internal, format!("failed to write JSON: {error}")))?;
    emit(&format!("{}\n", escaped(&text)))
}

/// Writes invisible characters of a JSON document as escapes, which changes nothing that a program reads.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(is_invisible) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_invisible(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

/// Replaces control characters and invisible ones, because names and logs may come from other users: they must neither control the
/// terminal nor look like other names.
pub fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c);
    if text.contains(steers) {
        // Lines of a foreign source may end in CRLF; a carriage return alone would overwrite its line.
        Cow::Owned(text.replace("\r\n", "\n").replace(steers, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Prints a message that is not data.
pub fn note(text: &str) {
    // An error is ignored, because it could only be printed to stderr.
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn warn(text: &str) {
    let warning = if stderr_has_colour() { "\x1b[1;33mwarning:\x1b[0m" } else { "warning:" };
    note(&format!("{warning} {text}"));
}

/// The width of a line of stdout in characters. `None` if stdout is not a terminal, so that lines may have any length.
pub fn stdout_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { terminal_size_of(stdout) } else { None }
}

/// The width of a line of stderr in characters.
pub fn stderr_width() -> usize {
    terminal_size_of(std::io::stderr()).unwrap_or(WIDTH_DEFAULT)
}

fn terminal_size_of(stream: impl std::os::fd::AsFd) -> Option<usize> {
    // A terminal of unknown size reports 0.
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Replaces the last line of stderr, such as the `^C` that a terminal shows. It does nothing if stderr is not a terminal.
pub fn redraw(line: &str) {
    if stderr_can_move() {
        // An error is ignored, because it could only be printed to stderr.
        let _ = write!(std::io::stderr(), "{CLEAR_LINE}{line}");
    }
}

/// Whether the last line of stderr can be replaced.
pub fn stderr_can_move() -> bool {
    stderr_is_terminal() && std::env::var_os(environment::TERM).is_none_or(|term| term != "dumb")
}

fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

pub fn stderr_has_colour() -> bool {
    stderr_is_terminal() && colour_is_wanted()
}

pub fn stdout_has_colour() -> bool {
    std::io::stdout().is_terminal() && colour_is_wanted()
}

fn colour_is_wanted() -> bool {
    std::env::var_os(environment::NO_COLOR).is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_nobody_sees_are_shown_or_escaped() {
        assert_eq!(visible("pay\u{202e}gnp.exe\u{200b}"), "pay\u{fffd}gnp.exe\u{fffd}");
        assert_eq!(visible("Größe 漢字 🦀"), "Größe 漢字 🦀");
        let json = serde_json::to_string(&["a\u{202e}b\u{e0041}"]).unwrap();
        let shown = escaped(&json);
        assert_eq!(shown, r#"["a\u202eb\udb40\udc41"]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), ["a\u{202e}b\u{e0041}"]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(visible("a\tb\r\n"), "a\tb\n");
        assert_eq!(visible("failed\rsucceeded"), "failed\u{fffd}succeeded");
        assert_eq!(visible("\x1b[2Jgone\x07"), "\u{fffd}[2Jgone\u{fffd}");
    }
}
