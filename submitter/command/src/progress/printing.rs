//! Prints on standard output what the kernels print, beside a line that is drawn on the same terminal.

use gpufleet::schema::{Printed, PrintfOutput};

use super::text::ReceivedText;
use crate::{complaint::Complaint, output, quantity, waiting::Spinner};

/// The text on standard output.
#[derive(Debug)]
pub struct PrintedText {
    received: ReceivedText,
    held: HeldLine,
    is_within_line: bool,
    /// The first error of standard output. Nothing is printed after it.
    result: Result<(), Complaint>,
}

/// The beginning of a line whose end was not received. On a terminal, the line of the progress would be drawn over it.
#[derive(Debug)]
struct HeldLine {
    text: String,
    holds: bool,
}

impl PrintedText {
    /// `holds_lines` prints whole lines alone until the end.
    pub fn new(holds_lines: bool) -> Self {
        let held = HeldLine { text: String::new(), holds: holds_lines };
        Self { received: ReceivedText::default(), held, is_within_line: false, result: Ok(()) }
    }

    pub fn print(&mut self, piece: &Printed, spinner: &Spinner) {
        let missing = self.received.add(piece);
        if missing > 0 {
            self.release(spinner);
            spinner.aside(|| output::note(&format!("… {} not received …", quantity::bytes(missing))));
        }
        let ready = self.held.add(&piece.text);
        spinner.aside(|| self.emit(&ready));
    }

    pub fn start_over(&mut self, spinner: &Spinner) {
        self.release(spinner);
        self.received = ReceivedText::default();
    }

    /// Prints the rest of the text in the outcome. Returns whether all of the text was printed.
    pub fn complete(&mut self, outcome: Option<&PrintfOutput>) -> bool {
        let nothing = PrintfOutput { text: String::new(), dropped_bytes: 0, is_tail: false };
        let outcome = outcome.unwrap_or(&nothing);
        let rest = self.received.rest(outcome);
        let held = std::mem::take(&mut self.held.text);
        // The end of an output follows what was received, if with a gap.
        let end = if outcome.is_tail { outcome.text.as_str() } else { "" };
        self.emit(&(held + rest.unwrap_or(end)));
        rest.is_some() && !self.received.has_gap()
    }

    /// Ends the last line, so that something else can follow it.
    pub fn end_line(&mut self) {
        if self.is_within_line {
            self.emit("\n");
        }
    }

    /// Writes to standard output, unless that failed before.
    pub fn attempt(&mut self, write: impl FnOnce() -> Result<(), Complaint>) {
        if self.result.is_ok() {
            self.result = write();
        }
    }

    pub fn result(&self) -> Result<(), Complaint> {
        self.result.clone()
    }

    /// Prints the line that is held, and ends it.
    fn release(&mut self, spinner: &Spinner) {
        let held = std::mem::take(&mut self.held.text);
        if !held.is_empty() {
            spinner.aside(|| self.emit(&(held + "\n")));
        }
    }

    fn emit(&mut self, text: &str) {
        if !text.is_empty() {
            self.is_within_line = !text.ends_with('\n');
            self.attempt(|| output::emit(text));
        }
    }
}

impl HeldLine {
    /// Adds text. Returns what can be printed now.
    fn add(&mut self, text: &str) -> String {
        self.text.push_str(text);
        let whole_lines = self.text.rfind('\n').map_or(0, |end| end + 1);
        let ready = if self.holds { whole_lines } else { self.text.len() };
        self.text.drain(..ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_its_end_where_another_line_is_drawn() {
        let added = |holds| {
            let mut held = HeldLine { text: String::new(), holds };
            (["1.2.", "3\n4", ".5\n", "6"].map(|text| held.add(text)), held.text)
        };
        let texts = |texts: [&str; 4]| texts.map(str::to_owned);
        assert_eq!(added(true), (texts(["", "1.2.3\n", "4.5\n", ""]), "6".to_owned()));
        assert_eq!(added(false), (texts(["1.2.", "3\n4", ".5\n", "6"]), String::new()));
    }
}
