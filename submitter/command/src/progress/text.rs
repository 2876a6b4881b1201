//! The text that a job prints, put together from pieces. Some may be lost; the outcome has the whole text of kernels, and the end of that of
//! a host program.

use gpufleet::schema::{Printed, PrintfOutput, bounds::PRINTF_OUTPUT_BYTES_MAX};

/// More of the text is not needed to find its rest in the outcome.
const BYTES_MAX: usize = 2 * PRINTF_OUTPUT_BYTES_MAX;
/// The end of the text that is looked for in the outcome.
const LAST_BYTES: usize = 4 << 10;

/// What was received of the text that one run of a job prints.
#[derive(Debug, Default)]
pub struct ReceivedText {
    /// Where the text after the last gap begins, or the part of it that is left.
    start: u64,
    /// The text since then.
    text: String,
    has_gap: bool,
    /// The beginning of the text is not kept any more.
    is_cut: bool,
}

impl ReceivedText {
    /// Adds the next piece. Returns the number of bytes that are missing before it.
    pub fn add(&mut self, piece: &Printed) -> u64 {
        let missing = piece.offset.saturating_sub(self.start + self.text.len() as u64);
        if missing > 0 {
            *self = Self { start: piece.offset, text: String::new(), has_gap: true, is_cut: false };
        }
        self.text.push_str(&piece.text);
        if self.text.len() > BYTES_MAX {
            let cut = self.text.ceil_char_boundary(self.text.len() - PRINTF_OUTPUT_BYTES_MAX);
            self.text.drain(..cut);
            (self.start, self.is_cut) = (self.start + cut as u64, true);
        }
        missing
    }

    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// The part of the outcome's text after what was received. `None` if what was received is not in it.
    pub fn rest<'a>(&self, outcome: &'a PrintfOutput) -> Option<&'a str> {
        if outcome.is_tail {
            return self.rest_of_tail(outcome);
        }
        let whole = outcome.text.as_str();
        if self.is_cut && self.start >= whole.len() as u64 {
            return Some("");
        }
        let whole = usize::try_from(self.start).ok().and_then(|start| whole.get(start..))?;
        match whole.strip_prefix(self.text.as_str()) {
            // More may be received than the outcome keeps.
            None if self.text.starts_with(whole) => Some(""),
            rest => rest,
        }
    }

    fn rest_of_tail<'a>(&self, tail: &'a PrintfOutput) -> Option<&'a str> {
        if self.text.is_empty() && self.start == 0 {
            return (tail.dropped_bytes == 0).then_some(tail.text.as_str());
        }
        let begin = self.text.ceil_char_boundary(self.text.len().saturating_sub(LAST_BYTES));
        let last = &self.text[begin..];
        after(self.start + begin as u64, last, tail)
    }
}

/// The number of bytes that a text had before bytes were replaced. It may have had more, because a replaced character stands for up to three
/// bytes.
pub fn bytes_least(text: &str) -> u64 {
    text.chars().map(|c| if c == char::REPLACEMENT_CHARACTER { 1 } else { c.len_utf8() as u64 }).sum()
}

/// The part of the end of an output that follows a piece which began at `offset`; `None` if the piece does not reach into it.
pub fn after<'a>(offset: u64, piece: &str, tail: &'a PrintfOutput) -> Option<&'a str> {
    let text = tail.text.as_str();
    match offset.checked_sub(tail.dropped_bytes) {
        Some(within) => {
            let expected = index_of(text, within);
            let near = |at: &usize| at.abs_diff(expected);
            let found = text.match_indices(piece).map(|(at, _)| at).min_by_key(near)?;
            Some(&text[found + piece.len()..])
        }
        None => {
            let before = tail.dropped_bytes - offset;
            match bytes_least(piece) < before {
                true => None,
                false => text.strip_prefix(&piece[index_of(piece, before)..]),
            }
        }
    }
}

/// The place in a text before which there are so many bytes.
fn index_of(text: &str, bytes: u64) -> usize {
    let mut before = 0;
    let place = text.char_indices().find(|(_, c)| {
        let is_there = before >= bytes;
        before += if *c == char::REPLACEMENT_CHARACTER { 1 } else { c.len_utf8() as u64 };
        is_there
    });
    place.map_or(text.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(pieces: &[(u64, &str)]) -> (ReceivedText, Vec<u64>) {
        let mut text = ReceivedText::default();
        let missing =
            pieces.iter().map(|(offset, piece)| text.add(&Printed { offset: *offset, text: (*piece).to_owned() }));
        let missing = missing.collect();
        (text, missing)
    }

    fn whole(text: &str) -> PrintfOutput {
        PrintfOutput { text: text.to_owned(), dropped_bytes: 0, is_tail: false }
    }

    fn tail(dropped_bytes: u64, text: &str) -> PrintfOutput {
        PrintfOutput { text: text.to_owned(), dropped_bytes, is_tail: true }
    }

    #[test]
    fn pieces_make_the_whole_with_the_rest_of_it() {
        let (text, missing) = received(&[(0, "epoch 1\nepo"), (11, "ch 2\n")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 0], false));
        assert_eq!(text.rest(&whole("epoch 1\nepoch 2\nepoch 3\n")), Some("epoch 3\n"));
        assert_eq!(text.rest(&whole("epoch 1\nepoch 2\n")), Some(""));
        assert_eq!(text.rest(&whole("epoch 1\n")), Some(""), "the outcome keeps less");
        assert_eq!(text.rest(&whole("another text")), None);
        assert_eq!(ReceivedText::default().rest(&whole("all of it")), Some("all of it"));
    }

    #[test]
    fn after_a_gap_the_rest_is_what_follows_the_last_piece() {
        let outcome = whole("0123456789");
        let (text, missing) = received(&[(0, "01"), (5, "5"), (6, "6")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 3, 0], true));
        assert_eq!(text.rest(&outcome), Some("789"));
        let (joined_late, missing) = received(&[(7, "7")]);
        assert_eq!((missing, joined_late.rest(&outcome)), (vec![7], Some("89")));
        assert_eq!(joined_late.rest(&whole("01")), None);
    }

    #[test]
    fn an_offset_that_counts_replaced_bytes_singly_is_no_gap() {
        let (text, missing) = received(&[(0, "\u{fffd}[2J"), (4, "done\n")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 0], false));
        assert_eq!(text.rest(&whole("\u{fffd}[2Jdone\n.\n")), Some(".\n"));
    }

    #[test]
    fn the_rest_of_the_end_of_an_output_follows_what_was_received() {
        let (text, _) = received(&[(0, "0123"), (4, "4567")]);
        assert_eq!(text.rest(&tail(2, "23456789")), Some("89"), "the end begins within what was received");
        assert_eq!(text.rest(&tail(8, "89")), Some("89"), "it begins where that ended");
        assert_eq!(text.rest(&tail(9, "9")), None, "a byte between them is missing");
        assert_eq!(text.rest(&tail(0, "0123456789")), Some("89"));
        let (late, _) = received(&[(6, "67")]);
        assert_eq!(late.rest(&tail(2, "23456789")), Some("89"));
        assert_eq!(ReceivedText::default().rest(&tail(0, "all")), Some("all"));
        assert_eq!(ReceivedText::default().rest(&tail(1, "ll")), None);
    }

    #[test]
    fn of_equal_pieces_the_one_at_the_offset_counts() {
        let tail = tail(3, "ab\nab\nab\nend\n");
        assert_eq!(after(6, "ab\n", &tail), Some("ab\nend\n"));
        assert_eq!(after(9, "ab\n", &tail), Some("end\n"));
        let coloured =
            PrintfOutput { text: "\u{fffd}[1mx\u{fffd}[0m\ny\n".to_owned(), dropped_bytes: 0, is_tail: true };
        assert_eq!(after(9, "\ny", &coloured), Some("\n"), "a replaced byte is one byte");
        assert_eq!(bytes_least(&coloured.text), 12);
    }

    #[test]
    fn a_long_text_takes_little_memory() {
        let mut text = ReceivedText::default();
        let line = "0123456789abcde\n";
        let lines = 40 * PRINTF_OUTPUT_BYTES_MAX / line.len();
        for number in 0..lines {
            assert_eq!(text.add(&Printed { offset: (number * line.len()) as u64, text: line.to_owned() }), 0);
        }
        assert!(text.text.len() <= BYTES_MAX && !text.has_gap());
        let all = (lines * line.len()) as u64;
        assert_eq!(text.rest(&tail(all - 16, &format!("{line}last\n"))), Some("last\n"));
        assert_eq!(text.rest(&whole(&line.repeat(8))), Some(""), "the outcome keeps less");
    }
}
