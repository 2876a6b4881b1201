//! The latest text that the kernels of a job printed.

use gpufleet::schema::Printed;
use serde::Serialize;

/// The end that is kept. A page shows so much at most, and gets it again with each change.
const BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Text {
    kept: String,
    is_cut: bool,
    /// The number of printed bytes up to the end of the text, or a little more.
    end: u64,
}

/// What viewers see of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownText {
    text: String,
    /// More was printed before.
    is_cut: bool,
}

impl Text {
    /// Appends a piece, and says how much was lost before it.
    pub(super) fn add(&mut self, Printed { offset, text }: &Printed) {
        // A printed byte that is no text takes three bytes of a piece, so the next piece may begin before the assumed end.
        let lost = offset.saturating_sub(self.end);
        if lost > 0 && self.kept.is_empty() {
            self.is_cut = true;
        } else if lost > 0 {
            self.kept.push_str(&format!("\n… {} not received …\n", bytes(lost)));
        }
        self.kept.push_str(text);
        self.end = offset.saturating_add(text.len() as u64);
        self.cut();
    }

    pub(super) fn shown(&self) -> Option<ShownText> {
        (!self.kept.is_empty()).then(|| ShownText { text: self.kept.clone(), is_cut: self.is_cut })
    }

    /// Cuts the beginning, if possible after a line.
    fn cut(&mut self) {
        if self.kept.len() <= BYTES_MAX {
            return;
        }
        let from = self.kept.ceil_char_boundary(self.kept.len() - BYTES_MAX);
        let line = self.kept[from..].find('\n').map(|newline| from + newline + 1);
        self.kept.drain(..line.filter(|line| *line < self.kept.len()).unwrap_or(from));
        self.is_cut = true;
    }
}

fn bytes(count: u64) -> String {
    if count < 1024 { format!("{count} B") } else { format!("{} KiB", count.div_ceil(1024)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[(u64, &str)]) -> (String, bool) {
        let mut text = Text::default();
        pieces.iter().for_each(|(offset, piece)| text.add(&Printed { offset: *offset, text: (*piece).to_owned() }));
        let ShownText { text, is_cut } = text.shown().unwrap();
        (text, is_cut)
    }

    #[test]
    fn pieces_make_the_text_and_what_is_missing_is_said() {
        assert_eq!(shown(&[(0, "a\n"), (2, "b\n")]), ("a\nb\n".to_owned(), false));
        assert_eq!(shown(&[(700, "b\n")]), ("b\n".to_owned(), true), "the page was opened later");
        let gap = "a\n\n… 98 B not received …\nb\n";
        assert_eq!(shown(&[(0, "a\n"), (100, "b\n")]), (gap.to_owned(), false));
        assert!(shown(&[(0, "a"), (5_001, "b")]).0.contains("… 5 KiB not received …"));
        assert_eq!(shown(&[(0, "\u{fffd}"), (1, "b")]), ("\u{fffd}b".to_owned(), false));
    }

    #[test]
    fn the_end_of_a_long_text_is_kept_from_the_beginning_of_a_line() {
        let lines: String = (0..5_000).map(|line| format!("line {line}\n")).collect();
        let (text, is_cut) = shown(&[(0, &lines)]);
        assert!(is_cut && text.len() <= BYTES_MAX && text.len() > BYTES_MAX - 20, "{}", text.len());
        assert!(text.starts_with("line ") && lines.ends_with(&text));
        let (text, _) = shown(&[(0, &"µ".repeat(BYTES_MAX))]);
        assert_eq!(text.len(), BYTES_MAX, "a single line is cut within");
    }
}
